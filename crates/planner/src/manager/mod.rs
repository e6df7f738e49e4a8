//! The policy of the repair manager: which repair goes first, how fast all of them together may be,
//! and when they make way for clients. Pure arithmetic over times that are given; the coordinator has
//! the clock, the records and the nodes. docs/repair.md explains how the parts work together.
//!
//! `ECPipe` section 3.3 schedules the recovery of a full node, but does not cover risk, limits or the foreground; those
//! are ours.

mod budget;
mod guard;
mod latencies;
mod links;
mod progress;
mod queue;

pub use budget::{Budget, Choice, Limits};
pub use guard::{FLOOR_BYTES_PER_S, Guard};
pub use latencies::Latencies;
pub use links::{LinkMatrix, Measured};
pub use progress::Progress;
pub use queue::RepairQueue;
