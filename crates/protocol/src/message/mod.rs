//! All messages between processes. `wire` frames them; this module does no I/O.
//!
//! Three kinds: a *request* to a node or to the coordinator gets exactly one *reply*; a *flow
//! frame* moves a plan's slices, and the credit for more of them, from node to node directly.

mod array;
mod calls;
mod changes;
mod coordinator;
mod coordinator_request;
mod denial;
mod events;
mod flow;
mod join;
mod meter;
mod node;
mod node_request;
mod origin;
mod purpose;
mod recovery;
mod refusal;
mod request_scope;
mod session;
mod status;
mod usage;

pub use array::{ArrayMemory, ArrayStatus, DeviceState, DeviceStatus};
pub use changes::{CHANGES_WAIT_MS, Change, ChangePage, ChangePlace};
pub use coordinator::{
    Applicant, BegunPut, CLIENT_LEASE_MS, CLIENT_SESSION_MS, CoordinatorReply, EndCause,
    FileLayout, FormOrder, Growth, InlineBytes, InlineWritten, LONG_CALL_MS, LifecycleRequest,
    LockAttempt, NewExtent, NotOpened, Opening, PUT_LEASE_MS, PoolRequest, PutPlaces,
    RENEW_EVERY_MS, REPORTED_FILES_MAX, RepairOrder, Replacement, ScrubReport, SettledStripe,
    Standing, StoreFailure, StripeLease, WholeFile,
};
pub use coordinator_request::{CoordinatorCall, CoordinatorRequest};
pub use denial::{Cause, Denial, RECOVERING};
pub use events::{EventPage, LoggedEvent};
pub use flow::Flow;
pub use join::{
    Decided, HeldChunk, InventoryDigest, InventoryPage, JoinBegun, JoinCount, JoinEnd, JoinSession,
    Joined, PAGE_CHUNK_COUNT, PAGE_CHUNK_COUNT_MAX, PageAnswer, Scope,
};
pub use meter::Meter;
pub use node::{
    Attestation, AttestedCut, CommittedMark, ConversionSource, Effect, Holding, NodeReply,
    PendingRecord, ReadCut, RunFate, RunPart, RunQuestion, Scrubbed,
};
pub use node_request::{NodeCall, NodeRequest};
pub use origin::Origin;
pub use purpose::Purpose;
pub use recovery::{
    FileFinding, HELD_ASKED_MAX, HeldScope, KnownCluster, KnownStripe, KnownStripes, RecoveryPage,
    RecoveryPlace, StripeCounts,
};
pub use refusal::{Damage, Refusal};
pub use session::{OpenedFile, Opener, ReportPart, SessionState};
pub use status::{
    ClusterStatus, JoinProgress, LifecycleStatus, LinkRate, Liveness, NodeHealth, NodeStatus,
    RepairStatus, Served, failed_nodes,
};
pub use usage::{
    ClusterSpace, ClusterUsage, NodeUsage, PoolSpace, PoolUsage, RESERVES_ASKED_MAX, USAGE_AGE_MS,
    raw_bytes,
};

pub use crate::ticket::{OpenPut, Ticket, TicketFault, TicketKeys};
pub use gabion_layout::RunId;
pub use gabion_meta::{Departure, Progress};
pub use gabion_store::{RunMemory, StoreCounts};

pub(crate) use calls::routes;

/// The requests themselves, as types; each names its reply.
pub mod ask {
    pub use super::coordinator_request::*;
    pub use super::node_request::*;
}
