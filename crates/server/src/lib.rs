//! Coordinator and node processes: sockets, disk and clock under the protocol's roles.
//!
//! This is the only crate with a server run-time. It makes no decisions: requests go to
//! `gabion_protocol`'s `Node` and `Coordinator`, and their calls go to connections.

mod admission;
mod array;
mod array_watch;
mod audit;
mod certificates;
mod complaint;
mod coordinator;
mod engine;
mod error;
mod events;
mod identity;
mod listening;
mod metadata;
mod metrics;
mod node;
mod own_disk;
mod recovery;
mod slow;

pub use array::ArrayConfig;
pub use audit::{
    AuditError, AuditFault, AuditRecord, AuditTrail, AuditedOrder, AuditedOutcome, AuditedPeer,
    Became, Noted,
};
pub use certificates::Protection;
pub use coordinator::{CoordinatorConfig, CoordinatorProcess};
pub use engine::Engine;
pub use error::{ServerError, why_not_listening};
pub use listening::check_listen;
pub use metadata::{MetadataPlace, MetadataStore, forget_log};
pub use node::{NodeConfig, NodeProcess};
pub use recovery::{RecoveryConfig, RecoveryProcess};
