//! What nodes and clients ask of the coordinator, each request with the reply that it gets when it is
//! granted. The replies themselves are in [`CoordinatorReply`].

use super::calls::calls;
use super::coordinator::{
    Applicant, CoordinatorReply, EndCause, FileLayout, FormOrder, PoolRequest, PutPlaces,
    RepairOrder, Replacement, ScrubReport, Standing, StoreFailure, StripeLease,
};
use super::join::{InventoryPage, JoinBegun, JoinCount, JoinEnd, JoinSession, Joined, PageAnswer};
use super::origin::Origin;
use super::refusal::Damage;
use super::status::{ClusterStatus, LinkRate, NodeStatus, Vitals};
use gabion_layout::{ChunkIndex, Epoch, NodeId, ReserveSpec, Sequence, StripeId, StripeRecord};
use gabion_meta::{Exclusion, FileRecord, PoolRecord, PutId};
use serde::{Deserialize, Serialize};

calls! {
    /// A request to the coordinator.
    CoordinatorRequest: CoordinatorCall, CoordinatorReply;

    /// A node comes up and begins to tell what it holds.
    BeginJoin {
        /// Which one.
        node: Box<Applicant>,
        /// How many chunks it holds.
        chunk_count: u64,
    } -> JoinBegun { CoordinatorReply::JoinBegun(begun) => begun }
    /// A joining node tells of some of its chunks.
    TellChunks(InventoryPage) -> PageAnswer { CoordinatorReply::PageTold(answer) => answer }
    /// A joining node asks whether it may set aside the chunks of which the coordinator knows nothing.
    /// Also how it says that it is still at work.
    SetAside[JoinSession] -> bool {
        CoordinatorReply::Done => true,
        CoordinatorReply::JoinHeld(_) => false,
    }
    /// A joining node has told all and obeyed every answer.
    EndJoin(Box<JoinEnd>) -> Result<Joined, (PageAnswer, Vec<StripeId>)> {
        CoordinatorReply::Joined(joined) => Ok(joined),
        CoordinatorReply::Changed { answer, stripes } => Err((answer, stripes)),
    }
    /// The operator's word: the node that waits for it may set aside all that nobody knows.
    Accept[NodeId]
    /// A node is alive.
    Heartbeat {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: u64,
        /// The newest coordinator that it has heard of.
        heard: Option<Origin>,
        /// Up to where its journal is durable.
        position: u64,
        /// How it fares.
        vitals: Vitals,
    } -> Standing {
        CoordinatorReply::Alive { coordinator, lease_ms, nodes } => Standing::Alive { coordinator, lease_ms, nodes },
        CoordinatorReply::Rejoin => Standing::Rejoin,
        CoordinatorReply::Leave => Standing::Leave,
    }
    /// A node serves nothing more as the member that it was since a session.
    EndMembership {
        /// The session with which the membership began.
        session: JoinSession,
        /// Why it ends.
        cause: EndCause,
    }
    /// A node's store has failed: the node serves nothing more, ends its membership, and its process
    /// ends.
    StoreFailed(StoreFailure)
    /// A node asks to be a stripe's primary.
    Acquire {
        /// The stripe.
        stripe: StripeId,
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: u64,
    } -> Result<StripeLease, NodeId> {
        CoordinatorReply::Lease(lease) => Ok(lease),
        CoordinatorReply::HeldBy(node) => Err(node),
    }
    /// A primary is about to settle a stripe without some of its nodes. Answered only when that is
    /// durable, and only while these nodes are declared failed.
    Settling {
        /// The stripe.
        stripe: StripeId,
        /// Which nodes are not asked, and what stands without them.
        exclusion: Exclusion,
    }
    /// A primary is about to run the first update of its term that leaves chunks out because they
    /// are lost. Answered only when it is durable that they are stale, and only in the current term
    /// and while each of them is stale already or its node is declared failed and cannot know the term.
    NoteDegraded {
        /// The stripe.
        stripe: StripeId,
        /// The primary's term.
        epoch: Epoch,
        /// The joins before the term.
        since: JoinCount,
        /// The chunks, each with the last update that it can have: the mark before the update.
        chunks: Vec<(ChunkIndex, Sequence)>,
    }
    /// A primary is about to append the first update of a phase, or has committed the last. Answered
    /// when it is durable, and only in the current term.
    NotePhase {
        /// The stripe.
        stripe: StripeId,
        /// The primary's term.
        epoch: Epoch,
        /// Whether there may be updates of which parity knows nothing.
        appends: bool,
    }
    /// These data chunks were committed together, and would be better off in one rack. Answered at once;
    /// the coordinator moves them when it comes to it, and need not.
    Group {
        /// The stripe.
        stripe: StripeId,
        /// The data chunks.
        updated: Vec<ChunkIndex>,
    }
    /// Commit what waits on all stripes of a pool. Answered when all of it is committed, or with how much
    /// is left after some seconds; ask again then.
    CommitPool {
        /// The pool's name.
        name: String,
    } -> u64 {
        CoordinatorReply::Done => 0,
        CoordinatorReply::Committing { left_count } => left_count,
    }
    /// A node does not answer, or has closed its connection. Answered at once; the coordinator looks
    /// for itself.
    Suspect {
        /// The node.
        node: NodeId,
    }
    /// A node found damage.
    ReportDamage {
        /// The node that has found it.
        node: NodeId,
        /// What it has found in its own chunks.
        damage: Vec<Damage>,
    }
    /// The cluster's nodes.
    Nodes -> Vec<NodeStatus> { CoordinatorReply::Nodes(nodes) => nodes }
    /// Make a pool.
    CreatePool(PoolRequest) -> PoolRecord { CoordinatorReply::Pool(pool) => pool }
    /// All pools.
    Pools -> Vec<PoolRecord> { CoordinatorReply::Pools(pools) => pools }
    /// What the pools of these stripes promise of reserved space; stripes without any are left out.
    Reserves[Vec<StripeId>] -> Vec<(StripeId, ReserveSpec)> {
        CoordinatorReply::Reserves(specs) => specs,
    }
    /// Begin to store a file.
    BeginPut {
        /// The file's name.
        name: String,
        /// The pool; may be absent when there is only one.
        pool: Option<String>,
        /// The file's size.
        size_bytes: u64,
    } -> PutPlaces { CoordinatorReply::Put(places) => places }
    /// A node did not take its chunk of a stripe of a put: place the stripe anew. May be repeated; the
    /// answer is a [`CoordinatorReply::Put`] with the one stripe that has the segment's place now.
    PlaceAnew {
        /// The put.
        put: PutId,
        /// The id that the segment's stripe had when the put began.
        first: StripeId,
        /// The stripe that was not stored. No chunk of it counts from now on.
        failed: StripeId,
        /// Nodes that are to get no chunk of it.
        avoid: Vec<NodeId>,
    } -> PutPlaces { CoordinatorReply::Put(places) => places }
    /// The put is alive.
    TouchPut[PutId]
    /// All chunks are durable: make the file visible. May be repeated.
    CommitPut[PutId]
    /// Give the put up.
    AbortPut[PutId]
    /// One file with its layout.
    Lookup {
        /// The file's name.
        name: String,
    } -> FileLayout { CoordinatorReply::File(layout) => layout }
    /// Files whose names start so.
    List {
        /// The prefix.
        prefix: String,
    } -> Vec<FileRecord> { CoordinatorReply::Files(files) => files }
    /// Delete a file. May be repeated: that another of its name has come is no reason to delete that.
    RemoveFile {
        /// Its name.
        name: String,
        /// The put that brought it.
        file: PutId,
    }
    /// Redundancy and repair state of the cluster.
    Status -> ClusterStatus { CoordinatorReply::Status(status) => status }
    /// Repair all lost chunks now, without waiting for the grace period to end.
    RepairNow {
        /// The scheme from now on, if it is to change.
        scheme: Option<String>,
    }
    /// Change how repairs are made from now on.
    OrderRepair(RepairOrder)
    /// Move all chunks off a node, so that it can leave.
    Drain[NodeId]
    /// The node stays after all.
    Keep[NodeId]
    /// What links between nodes carry, as far as it was measured.
    Links -> Vec<LinkRate> { CoordinatorReply::Links(links) => links }
    /// Verify every stored byte of the cluster.
    ScrubAll -> ScrubReport { CoordinatorReply::Scrubbed(report) => report }
    /// Encode the blocks of files that are replicated, or have them replicated again, from now on. Answered
    /// when the wish is durable; the layouts of the files tell when it is done.
    OrderForm(FormOrder)
    /// Begin to replace stripes of a file by new ones with other bytes. The stripes take no updates
    /// until the replacement is committed with [`CoordinatorRequest::CommitReplace`] or given up
    /// with [`CoordinatorRequest::AbortPut`].
    BeginReplace {
        /// The file's name.
        name: String,
        /// The put that brought the file.
        file: PutId,
        /// The stripes, in the file's order.
        stripes: Vec<StripeId>,
    } -> Replacement { CoordinatorReply::Replacement(replacement) => replacement }
    /// All chunks of the new stripes are durable: put them in the places of the old ones. May be
    /// repeated: the answer is [`CoordinatorReply::Done`] once it is committed and readers find no old
    /// chunk any more, and [`CoordinatorReply::NotCommitted`] when it is not and never will be.
    CommitReplace {
        /// The replacement.
        put: PutId,
        /// The old stripes.
        displaced: Vec<StripeId>,
    } -> Result<(), String> {
        CoordinatorReply::Done => Ok(()),
        CoordinatorReply::NotCommitted(why) => Err(why),
    }
    /// A client has lost an answer about a stripe that is the file's no more: whose chunks counted when
    /// it ended. Answered with [`CoordinatorReply::Ended`].
    Ended[StripeId] -> (Option<StripeRecord>, Vec<NodeStatus>) {
        CoordinatorReply::Ended { stripe, nodes } => (stripe, nodes),
    }
}

impl CoordinatorRequest {
    /// Whether whoever asks acts on what the metadata says of files, pools and stripes, or has it changed.
    pub(crate) const fn relies_on_metadata(&self) -> bool {
        matches!(
            self,
            Self::Acquire { .. }
                | Self::Settling { .. }
                | Self::NoteDegraded { .. }
                | Self::NotePhase { .. }
                | Self::CommitPool { .. }
                | Self::CreatePool(_)
                | Self::Reserves(_)
                | Self::Pools
                | Self::BeginPut { .. }
                | Self::PlaceAnew { .. }
                | Self::TouchPut(_)
                | Self::CommitPut(_)
                | Self::AbortPut(_)
                | Self::BeginReplace { .. }
                | Self::CommitReplace { .. }
                | Self::Ended(_)
                | Self::Lookup { .. }
                | Self::List { .. }
                | Self::RemoveFile { .. }
                | Self::OrderForm(_)
                | Self::Drain(_)
                | Self::Keep(_)
                // It lowers how many nodes must have spoken.
                | Self::RepairNow { .. }
        )
    }
}
