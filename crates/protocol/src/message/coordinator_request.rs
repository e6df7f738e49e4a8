//! Requests of nodes and clients to the coordinator, each with its reply. [`CoordinatorReply`] has the replies.

use super::calls::calls;
use super::changes::{ChangePage, ChangePlace};
use super::coordinator::{
    Applicant, BegunPut, CoordinatorReply, EndCause, FileLayout, FormOrder, Growth, InlineWritten,
    LockAttempt, NewExtent, NotOpened, Opening, PoolRequest, PutPlaces, RepairOrder, Replacement,
    ScrubReport, Standing, StoreFailure, StripeLease, WholeFile,
};
use super::events::EventPage;
use super::join::{InventoryPage, JoinBegun, JoinCount, JoinEnd, JoinSession, Joined, PageAnswer};
use super::origin::Origin;
use super::recovery::{RecoveryPage, RecoveryPlace};
use super::refusal::Damage;
use super::session::{OpenedFile, Opener, ReportPart, SessionState};
use super::status::{ClusterStatus, LinkRate, NodeHealth, NodeStatus};
use super::usage::{ClusterSpace, ClusterUsage};
use crate::ticket::OpenPut;
use bytes::Bytes;
use gabion_layout::{
    ChunkIndex, Epoch, NodeId, PoolId, ReserveSpec, Sequence, StripeId, StripeRecord,
};
use gabion_meta::{
    AttributeChange, Attributes, ClientSessionId, DirectoryEntry, DirectoryId, Exclusion, Existing,
    FencingToken, Inode, InodeStatus, Listing, LockChange, Locking, NewAttributes, PoolRecord,
    PutId, QuotaChange, QuotaStatus, RelativePath, SeenName, SessionId, SizeChange,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

calls! {
    /// A request to the coordinator.
    CoordinatorRequest: CoordinatorCall, CoordinatorReply;

    /// A node starts and begins to report its chunks. Refused with the number of a run that was a member, if
    /// the node's own is not higher.
    BeginJoin {
        /// The node.
        node: Box<Applicant>,
        /// The number of its chunks.
        chunk_count: u64,
    } -> Result<JoinBegun, u64> {
        CoordinatorReply::JoinBegun(begun) => Ok(begun),
        CoordinatorReply::StartAbove(number) => Err(number),
    }
    /// A joining node reports some of its chunks.
    TellChunks(InventoryPage) -> PageAnswer { CoordinatorReply::PageTold(answer) => answer }
    /// A joining node asks whether it may set aside the chunks that the coordinator does not know. Also
    /// keeps the session alive. Refused with a sentence while the operator has to permit it.
    SetAside[JoinSession] -> Result<(), String> {
        CoordinatorReply::Done => Ok(()),
        CoordinatorReply::JoinHeld(why) => Err(why),
    }
    /// A joining node has reported all chunks and executed every answer.
    EndJoin(Box<JoinEnd>) -> Result<Joined, (PageAnswer, Vec<StripeId>)> {
        CoordinatorReply::Joined(joined) => Ok(joined),
        CoordinatorReply::Changed { answer, stripes } => Err((answer, stripes)),
    }
    /// The operator permits the waiting node to set unknown chunks aside.
    Accept[NodeId]
    /// A node's heartbeat.
    Heartbeat {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: u64,
        /// The newest coordinator that it knows.
        heard: Option<Origin>,
        /// The durable end of its journal.
        position: u64,
        /// Its health.
        health: NodeHealth,
    } -> Standing {
        CoordinatorReply::Alive { coordinator, lease_ms, nodes, keys }
            => Standing::Alive { coordinator, lease_ms, nodes, keys },
        CoordinatorReply::Rejoin => Standing::Rejoin,
        CoordinatorReply::Leave => Standing::Leave,
    }
    /// A node ends the membership that began with a session: it no longer serves.
    EndMembership {
        /// The session with which the membership began.
        session: JoinSession,
        /// The reason.
        cause: EndCause,
    }
    /// A node's store has failed: the node no longer serves, ends its membership, and its process ends.
    StoreFailed(StoreFailure)
    /// A node asks to be a stripe's primary.
    Acquire {
        /// The stripe.
        stripe: StripeId,
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: u64,
        /// The put that brought the stripe's file, if the node knows it.
        file: Option<PutId>,
    } -> Result<StripeLease, NodeId> {
        CoordinatorReply::Lease(lease) => Ok(lease),
        CoordinatorReply::HeldBy(node) => Err(node),
    }
    /// A primary is about to settle a stripe without some of its nodes. Answered only when that is
    /// durable, and only while these nodes are declared failed.
    Settling {
        /// The stripe.
        stripe: StripeId,
        /// The nodes that are not asked, and the updates that stand without them.
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
    /// A primary is about to append the first update of a phase, or has committed the last. Answered when
    /// it is durable, and only in the current term.
    NotePhase {
        /// The stripe.
        stripe: StripeId,
        /// The primary's term.
        epoch: Epoch,
        /// The last settled update. Appends come after it, or parity covers all up to it: the note has
        /// its place among others by this, however late it arrives.
        mark: Sequence,
        /// Whether there may be updates that parity does not cover.
        appends: bool,
    }
    /// These data chunks were committed together, and should be in one rack. Answered before any of them is moved.
    Group {
        /// The stripe.
        stripe: StripeId,
        /// The data chunks.
        updated: Vec<ChunkIndex>,
    }
    /// Commit all stripes of a pool. Answered when all are committed, or after some seconds with the number
    /// of stripes left; the client then repeats the request.
    CommitPool {
        /// The pool's name.
        name: String,
    } -> u64 {
        CoordinatorReply::Done => 0,
        CoordinatorReply::Committing { left_count } => left_count,
    }
    /// A node does not answer, or has closed its connection. Answered at once; the coordinator checks it.
    Suspect {
        /// The node.
        node: NodeId,
    }
    /// A node found damage.
    ReportDamage {
        /// The node.
        node: NodeId,
        /// The damage in its own chunks, and in at most one of another node, which has read it before a settlement.
        damage: Vec<Damage>,
    }
    /// The cluster's nodes.
    Nodes -> Vec<NodeStatus> { CoordinatorReply::Nodes(nodes) => nodes }
    /// Make a pool.
    CreatePool(PoolRequest) -> PoolRecord { CoordinatorReply::Pool(pool) => pool }
    /// Change the quota of a pool.
    SetQuota {
        /// The pool's name.
        pool: String,
        /// The change.
        change: QuotaChange,
    }
    /// Change the quota of a directory; without a change, remove it. May be repeated.
    SetDirectoryQuota {
        /// The directory.
        directory: DirectoryId,
        /// The change.
        change: Option<QuotaChange>,
    }
    /// The quota of a directory that counts a file or directory, if there is one.
    DirectoryQuota[Inode] -> Option<Box<QuotaStatus>> { CoordinatorReply::DirectoryQuota(status) => status }
    /// All pools.
    Pools -> Vec<PoolRecord> { CoordinatorReply::Pools(pools) => pools }
    /// The pools' rules for the reserved space of these stripes; stripes without any are left out.
    Reserves[Vec<StripeId>] -> Vec<(StripeId, PoolId, ReserveSpec)> {
        CoordinatorReply::Reserves(specs) => specs,
    }
    /// Begin to store a file. If the request has all of its bytes and the pool keeps such files inline, the file is
    /// stored when it is answered, and only then the request may be repeated.
    BeginPut {
        /// The file's name.
        at: RelativePath,
        /// The fate of a file that has the name already.
        existing: Existing,
        /// The pool; may be absent when there is only one.
        pool: Option<String>,
        /// The file's size.
        size_bytes: u64,
        /// The file's attributes. Directories above it that are missing get its owner.
        attributes: NewAttributes,
        /// All of its bytes, if they are few.
        whole: Option<WholeFile>,
        /// If the file is stored at once, its client has it open from then on.
        opener: Option<Opener>,
    } -> BegunPut {
        CoordinatorReply::Put(places) => BegunPut::Places(places),
        CoordinatorReply::Stored { put, file, pool, is_open } => BegunPut::Stored { put, file, pool, is_open },
    }
    /// Change bytes of an inline file. May be repeated.
    WriteInline {
        /// The put that brought the file.
        file: PutId,
        /// The version of the file's bytes that the sender has seen.
        version: u64,
        /// The offset of the new bytes.
        offset: u64,
        /// The new bytes.
        bytes: Bytes,
        /// The file's fencing token.
        token: FencingToken,
        /// Drawn at random for this write: a repetition is told by it.
        number: u64,
    } -> InlineWritten { CoordinatorReply::InlineWritten(outcome) => outcome }
    /// Reserve the next stripes for a put, or fewer if it began without a size, and get them. May be repeated.
    ExtendPut {
        /// The put.
        put: OpenPut,
        /// The number of its earlier extensions.
        step: u64,
        /// The number of its first stripes of which each chunk is durable.
        stored_count: u64,
        /// The number of its first stripes that stay, and with them those of the same segment. No chunk of the
        /// others counts from now on.
        kept_count: u64,
        /// The file's size afterwards.
        size_bytes: u64,
    } -> Box<PutPlaces> { CoordinatorReply::Put(places) => places }
    /// A node did not take its chunk of a stripe of a put: place the stripe anew. Or its ticket has expired. May be
    /// repeated; the answer is a [`CoordinatorReply::Put`] with the one stripe that has the segment's place now.
    PlaceAnew {
        /// The put.
        put: OpenPut,
        /// The id that the segment's stripe had when the put began.
        first: StripeId,
        /// The stripe that was not stored, of which no chunk counts from now on; none to get a new ticket alone.
        failed: Option<StripeId>,
        /// Nodes that must not get a chunk of it.
        avoid: Vec<NodeId>,
    } -> Box<PutPlaces> { CoordinatorReply::Put(places) => places }
    /// The put is alive.
    TouchPut[OpenPut]
    /// All chunks are durable: make the file visible. May be repeated.
    CommitPut[OpenPut]
    /// Abort the put.
    AbortPut[OpenPut]
    /// One file with the layout of its first window.
    Lookup {
        /// The file's name.
        name: String,
    } -> Box<FileLayout> { CoordinatorReply::File(layout) => layout }
    /// The file that a put made, whatever its name is now, with the layout of one window.
    LookupFile {
        /// The put.
        file: PutId,
        /// A byte of the window.
        offset: u64,
    } -> Option<Box<FileLayout>> {
        CoordinatorReply::File(layout) => Some(layout),
        CoordinatorReply::Gone => None,
    }
    /// Open the file that a put made: it stays, even without a name, until no client has it open. May be repeated. A
    /// file that has no name already is opened only by a client that has it open.
    OpenFile {
        /// The put.
        file: PutId,
        /// The request in its client's session.
        opener: Opener,
    } -> Opening {
        CoordinatorReply::File(layout) => Opening::Open(layout),
        CoordinatorReply::Gone => Opening::Gone,
        CoordinatorReply::SessionState(SessionState::Over) => Opening::Over,
    }
    /// A page of the files whose names have this prefix.
    List {
        /// The prefix.
        prefix: String,
        /// The last entry of the page before.
        after: Option<String>,
        /// Names that have this behind the prefix are joined up to it.
        delimiter: Option<String>,
        /// Most entries; the coordinator may send fewer and say that more follow.
        limit: u64,
    } -> Listing { CoordinatorReply::Listing(listing) => listing }
    /// Give a file another name instead of one of its names. May be repeated.
    Rename {
        /// The put that brought the file.
        file: PutId,
        /// The present name.
        from: RelativePath,
        /// The generation of its names, of which the sender knows.
        generation: u64,
        /// Drawn at random for this change: a repetition is told by it.
        number: u64,
        /// The new name.
        to: RelativePath,
        /// The fate of a file that has that name already.
        existing: Existing,
    }
    /// Give a file one more name. May be repeated.
    Link {
        /// The put that brought the file.
        file: PutId,
        /// The generation of its names, of which the sender knows.
        generation: u64,
        /// Drawn at random for this change: a repetition is told by it.
        number: u64,
        /// The new name.
        to: RelativePath,
    }
    /// Make a symbolic link. May be repeated.
    MakeSymlink {
        /// Its name.
        at: RelativePath,
        /// The path to which it leads.
        target: String,
        /// The pool to which it belongs; may be absent when there is only one.
        pool: Option<String>,
        /// Its attributes. Directories above it that are missing get its owner.
        attributes: NewAttributes,
        /// Drawn at random for this link: a repetition is told by it.
        number: u64,
    }
    /// The path to which a symbolic link leads; none for another file.
    ReadLink[PutId] -> Option<String> { CoordinatorReply::Target(target) => target }
    /// Make a directory, and those above it that are missing. May be repeated.
    MakeDirectory {
        /// The path.
        at: RelativePath,
        /// The attributes of all of them.
        attributes: NewAttributes,
        /// Drawn at random for this directory: a repetition is told by it.
        number: u64,
    }
    /// A page of the names in a directory.
    ReadDirectory {
        /// The directory.
        directory: DirectoryId,
        /// The place of the last entry of the page before.
        after: Option<String>,
        /// Most entries; the coordinator may send fewer and say that more follow.
        limit: u64,
    } -> (Vec<DirectoryEntry>, bool) {
        CoordinatorReply::Entries { entries, is_cut } => (entries, is_cut),
    }
    /// Remove an empty directory. May be repeated.
    RemoveDirectory {
        /// The directory.
        directory: DirectoryId,
        /// Its generation, of which the sender knows.
        generation: u64,
        /// Drawn at random for this change: a repetition is told by it.
        number: u64,
    }
    /// Give a directory another path, and so all that is below it. May be repeated.
    RenameDirectory {
        /// The directory.
        directory: DirectoryId,
        /// Its generation, of which the sender knows.
        generation: u64,
        /// Drawn at random for this change: a repetition is told by it.
        number: u64,
        /// The new path.
        to: RelativePath,
        /// The fate of an empty directory that has that path already.
        existing: Existing,
    }
    /// Give two files or directories each other's name. May be repeated.
    ExchangeNames {
        /// The names, as the sender has looked them up.
        names: [SeenName; 2],
        /// Drawn at random for this change: a repetition is told by it.
        number: u64,
    }
    /// The inode of a path. An empty path is the directory itself.
    LookupInode {
        /// The path.
        at: RelativePath,
    } -> Box<InodeStatus> { CoordinatorReply::Inode(status) => status }
    /// A file or directory, whatever its path; none if it is gone.
    StatInode[Inode] -> Option<Box<InodeStatus>> {
        CoordinatorReply::Inode(status) => Some(status),
        CoordinatorReply::Gone => None,
    }
    /// The attributes that users have given to a file or directory, and the version of its attributes.
    UserAttributes[Inode] -> (u64, BTreeMap<String, Vec<u8>>) {
        CoordinatorReply::UserAttributes { version, user } => (version, user),
    }
    /// Change attributes of a file or directory. May be repeated. The reply has all of them.
    SetAttributes {
        /// The file or directory.
        inode: Inode,
        /// The version of its attributes, of which the sender knows.
        seen: u64,
        /// Drawn at random for this change: a repetition is told by it.
        number: u64,
        /// The new ones.
        change: AttributeChange,
    } -> Attributes { CoordinatorReply::Attributes(attributes) => attributes }
    /// Give a file more bytes, which are zero. May be repeated.
    Grow {
        /// The put that brought the file.
        file: PutId,
        /// Its new size, unless it is larger already.
        size_bytes: u64,
        /// The number of its truncations, as the sender knows.
        truncation_count: u64,
        /// The size that it must have, and a number drawn for this growth, if its new bytes are for one append alone.
        from: Option<(u64, u64)>,
        /// The file's fencing token; only a growth for one append needs it.
        token: FencingToken,
    } -> Growth { CoordinatorReply::Grown(growth) => growth }
    /// Open a file exclusively: no other client may write it from then on, until the session ends.
    /// The answer comes when the writes of all earlier sessions and clients are over. May be repeated.
    OpenExclusive {
        /// The put that brought the file.
        file: PutId,
        /// The session.
        session: SessionId,
        /// The file's token as the client has seen it: a late copy of the request displaces nothing.
        seen: FencingToken,
        /// Displace a session whose client is alive.
        takes_over: bool,
    } -> Result<FencingToken, NotOpened> {
        CoordinatorReply::Exclusive(token) => Ok(token),
        CoordinatorReply::NotOpened(why) => Err(why),
    }
    /// A session's client is alive. Whether the session goes on: another one may have displaced it.
    RenewExclusive {
        /// The put that brought the file.
        file: PutId,
        /// The session.
        session: SessionId,
    } -> bool { CoordinatorReply::Renewed(goes_on) => goes_on }
    /// End a session. May be repeated.
    CloseExclusive {
        /// The put that brought the file.
        file: PutId,
        /// The session.
        session: SessionId,
    }
    /// From a primary: the fencing token of a file. Refused if its writers do not update the stripe in place now.
    Token {
        /// The put that brought the file.
        file: PutId,
        /// The stripe.
        stripe: StripeId,
    } -> FencingToken { CoordinatorReply::Exclusive(token) => token }
    /// Make a file that has the bytes of another one and shares its stripes, or a directory with all that is below
    /// another. It has the writes acknowledged before this, and none that begin after the answer. May be repeated.
    Snapshot {
        /// The other file or directory.
        inode: Inode,
        /// The name of the new one.
        to: RelativePath,
        /// Whether the new one never changes.
        is_read_only: bool,
        /// Drawn at random for this change: a repetition is told by it.
        number: u64,
    }
    /// Take a name of a file away; the last one deletes it. May be repeated: a newer file of the same name stays.
    RemoveFile {
        /// The name.
        at: RelativePath,
        /// The put that brought the file.
        file: PutId,
        /// The generation of its names, of which the sender knows.
        generation: u64,
        /// Drawn at random for this change: a repetition is told by it.
        number: u64,
    }
    /// Redundancy and repair state of the cluster.
    Status -> Box<ClusterStatus> { CoordinatorReply::Status(status) => status }
    /// Repair a stripe that takes no updates because too few of its chunks are left, without waiting for the grace
    /// period of its nodes to end. The reply says whether a repair is possible. May be repeated.
    Hasten {
        /// The stripe.
        stripe: StripeId,
    } -> bool { CoordinatorReply::Hastened(is_possible) => is_possible }
    /// Repair all lost chunks now, without waiting for the grace period to end.
    RepairNow {
        /// The new scheme, if it is to change.
        scheme: Option<String>,
    }
    /// Change the rules for repairs.
    OrderRepair(RepairOrder)
    /// Move all chunks off a node, so that it can leave.
    Drain[NodeId]
    /// Cancel a drain.
    Keep[NodeId]
    /// Measured link rates between nodes.
    Links -> Vec<LinkRate> { CoordinatorReply::Links(links) => links }
    /// Verify every stored byte of the cluster.
    ScrubAll -> ScrubReport { CoordinatorReply::Scrubbed(report) => report }
    /// Encode the replicated blocks of files, or replicate encoded files again. Answered when the request
    /// is durable; the layouts of the files show when it is done.
    OrderForm(FormOrder)
    /// Begin to change extents of a file: stripes leave it, and new ones take their places or fill holes. The
    /// stripes that are to leave take no updates until the replacement is committed with
    /// [`CoordinatorRequest::CommitReplace`] or aborted with [`CoordinatorRequest::AbortPut`].
    BeginReplace {
        /// The put that brought the file.
        file: PutId,
        /// The stripes that are to leave, with the offsets of their extents, in the file's order.
        displaced: Vec<(u64, StripeId)>,
        /// The new extents, in the file's order.
        extents: Vec<NewExtent>,
        /// The effect on the file's size.
        size: SizeChange,
        /// The version of the file's inline bytes that the new stripes will have, if the file has some.
        inline: Option<u64>,
        /// The file's fencing token.
        token: FencingToken,
    } -> Replacement { CoordinatorReply::Replacement(replacement) => replacement }
    /// All chunks of the new stripes are durable: swap them in for the old ones. May be repeated: the
    /// answer is [`CoordinatorReply::Done`] once it is committed and no reader can reach an old chunk any
    /// more, and [`CoordinatorReply::NotCommitted`] when it is not and never will be.
    CommitReplace {
        /// The replacement.
        put: OpenPut,
        /// The old stripes.
        displaced: Vec<StripeId>,
    } -> Result<(), String> {
        CoordinatorReply::Done => Ok(()),
        CoordinatorReply::NotCommitted(why) => Err(why),
    }
    /// A client has lost an answer about a stripe that has left its file: which chunks counted when the
    /// stripe ended. Answered with [`CoordinatorReply::Ended`].
    Ended[StripeId] -> (Option<StripeRecord>, Vec<NodeStatus>) {
        CoordinatorReply::Ended { stripe, nodes } => (stripe, nodes),
    }
    /// Begin a session of a client, for its advisory locks and its open files. A session that is not renewed ends.
    OpenSession -> ClientSessionId { CoordinatorReply::ClientSession(session) => session }
    /// The client of a session is alive.
    RenewSession[ClientSessionId] -> SessionState { CoordinatorReply::SessionState(state) => state }
    /// End a session, free its locks and close its files. May be repeated. The client has ended its writes.
    CloseSession[ClientSessionId]
    /// Which files a session's client has open or has closed. After a lost answer it reports anew.
    ReportFiles {
        /// The request in the session.
        opener: Opener,
        /// Files that are open.
        open: Vec<OpenedFile>,
        /// If these are a part of a report of all open files.
        part: Option<ReportPart>,
        /// Files that were closed. One that a later request has opened stays open.
        closed: Vec<OpenedFile>,
        /// Requests whose answers the client does not wait for, and that may have opened a file that it does not know.
        /// They have no effect from now on.
        abandoned: Vec<u64>,
    } -> SessionState { CoordinatorReply::SessionState(state) => state }
    /// Change what an owner of locks holds in a file, or ask which lock conflicts.
    /// If the answer is lost, the client repeats the change under another number.
    SetLock {
        /// The session.
        session: ClientSessionId,
        /// A number that grows with each request of the session.
        number: u64,
        /// The lowest number whose answer the client waits for. Requests with lower ones have no effect from now on.
        oldest: u64,
        /// A request with a higher number whose answer it does not wait for, and that has no effect from now on.
        voids: Option<u64>,
        /// The file.
        file: PutId,
        /// The change.
        change: LockChange,
        /// The action if another owner's lock conflicts.
        attempt: LockAttempt,
    } -> Locking { CoordinatorReply::Locking(outcome) => outcome }
    /// The space of files, chunks and reserves by pool, and of nodes.
    Usage -> ClusterUsage { CoordinatorReply::Usage(usage) => usage }
    /// Some of the event log. The coordinator's process answers it.
    Events {
        /// Only those with higher numbers.
        after: u64,
        /// Only those since this time, in milliseconds since 1970.
        since_ms: Option<i64>,
        /// Most events; the coordinator may send fewer.
        limit: u64,
    } -> EventPage { CoordinatorReply::Events(page) => page }
    /// The changes of names and inodes behind a place. The answer waits for some, or comes after some time.
    Changes[ChangePlace] -> ChangePage { CoordinatorReply::Changes(page) => page }
    /// Some findings of a coordinator that recovers files, from a place on.
    Recovery[Option<RecoveryPlace>] -> Box<RecoveryPage> { CoordinatorReply::Recovery(page) => page }
    /// The same as `Usage`, but the counts of files and stripes may be [`crate::message::USAGE_AGE_MS`] old.
    RecentUsage -> ClusterUsage { CoordinatorReply::Usage(usage) => usage }
    /// The space for new chunks, and the quotas, without a count of files and stripes.
    Space -> ClusterSpace { CoordinatorReply::Space(space) => space }
}
