//! The audit log: deletions and changes of settings, the peer that ordered each, and the outcome.
//!
//! The coordinator executes an order after its record is durable, and refuses it if the record cannot be written. So
//! the files contain each executed order. They are only appended to, and each record has a seal that depends on all
//! records before it.

mod file;
mod log;
mod orders;
mod record;

pub(crate) use log::{AuditLog, NotRecorded};
pub(crate) use orders::{Order, peer_of, quota_directory};
pub use record::{
    AuditError, AuditFault, AuditRecord, AuditTrail, AuditedOrder, AuditedOutcome, AuditedPeer,
    Became, Noted,
};
