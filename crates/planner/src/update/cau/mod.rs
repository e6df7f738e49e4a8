//! Cross-rack-aware updates: CAU, sections 3.1 to 3.4.
//!
//! Updates are appended to the logs of their data nodes, with interim replicas elsewhere, and parity follows in a later
//! commit, when deltas of several updates can be brought together. The traffic is chosen for each pair of racks
//! separately: as many data deltas as data chunks changed in the one, or as many parity deltas as parity chunks are in
//! the other. [`selective`] does the same at once, without the append phase, as `RackCU` counts CAU (section V-A).
//!
//! [`group`] is data grouping, and [`CommitPolicy`] decides the time of a commit.

mod grouping;
mod phases;
mod plans;
mod policy;
mod scheme;
mod selective;

pub use grouping::{Grouping, Swap, group, relocate};
pub use phases::Phases;
pub(super) use plans::send_directly;
pub use plans::{
    Selection, append, append_phase_survives, commit, commit_without, keepers, selective,
};
pub use policy::{AppendPhase, CommitPolicy, Trigger};
pub(super) use scheme::DESCRIPTOR;
pub(super) use selective::DESCRIPTOR as SELECTIVE;
