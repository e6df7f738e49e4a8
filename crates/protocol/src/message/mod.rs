//! Everything that processes say to each other. `wire` frames it; nothing here does I/O.
//!
//! Three kinds: a *request* to a node or to the coordinator gets exactly one *reply*; a *flow
//! frame* moves a plan's slices, and the credit for more of them, from node to node directly.
//! Here is what all of them name: runs, and why bytes move.

mod array;
mod coordinator;
mod flow;
mod join;
mod meter;
mod node;
mod refusal;
mod status;

pub use array::{ArrayMemory, ArrayStatus, DeviceState, DeviceStatus};
pub use coordinator::{
    Applicant, CoordinatorReply, CoordinatorRequest, EndCause, FileLayout, FormOrder,
    LifecycleWish, PoolWish, RepairOrder, SettledStripe, StoreFailure, StripeLease,
};
pub use flow::Flow;
pub use join::{
    Decided, HeldChunk, InventoryDigest, InventoryPage, JoinBegun, JoinEnd, JoinProgress,
    JoinSession, Joined, PAGE_CHUNK_COUNT, PAGE_CHUNK_COUNT_MAX, PageAnswer, Scope,
};
pub use meter::Meter;
pub use node::{
    Attestation, CommittedMark, ConversionSource, Damage, Effect, Holding, NodeReply, NodeRequest,
    PendingRecord, ReadCut, RunFate, RunPart, RunQuestion,
};
pub use refusal::Refusal;
pub use status::{
    ClusterStatus, LifecycleStatus, LinkRate, Liveness, NodeStatus, RepairStatus, Vitals,
};

pub use gabion_layout::RunId;
pub use gabion_meta::Progress;
pub use gabion_store::{RunMemory, StoreCounts};
use serde::{Deserialize, Serialize};

/// Why bytes move; nodes count payload bytes by rack pair and purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// Deltas of updates.
    Update,
    /// Bytes to rebuild lost chunks.
    Repair,
    /// Bytes of new stripes.
    Encode,
    /// Bytes that a client reads, on their whole way to it.
    Client,
    /// Copies of new bytes, and old bytes, that wait for a commit (CAU's interim replicas, PARIX's data).
    Replica,
    /// What brings parity up to date at a commit.
    Commit,
    /// Chunks that data grouping moves between racks.
    Grouping,
}

impl Purpose {
    /// All purposes, in the order of their display.
    pub const ALL: [Self; 7] = [
        Self::Update,
        Self::Repair,
        Self::Encode,
        Self::Client,
        Self::Replica,
        Self::Commit,
        Self::Grouping,
    ];

    /// The purpose's name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Repair => "repair",
            Self::Encode => "encode",
            Self::Client => "client",
            Self::Replica => "replica",
            Self::Commit => "commit",
            Self::Grouping => "grouping",
        }
    }
}
