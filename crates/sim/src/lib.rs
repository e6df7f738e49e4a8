//! Whole clusters in one thread, reproducible from a seed: the real coordinator, nodes and their stores,
//! and clients, under a seeded scheduler with virtual time. Disks lose and tear unsynced writes, rot, fail
//! and fill up; processes are killed at any instant; messages are late, lost or delivered twice, and links
//! are cut. A history of all updates and reads shows whether a promise was broken, and after each fault
//! period the cluster must become whole without help.
//!
//! It is not a model of the protocol: the roles are those of `gabion-protocol`, on `gabion-store`'s
//! simulated disk. It does not use real time, so it cannot measure speed.
//!
//! ```no_run
//! let report = gabion_sim::simulate(7, &gabion_sim::Options::default());
//! assert_eq!(report.failure, None, "{}", report.log.join("\n"));
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod cached;
pub mod cells;
mod client;
mod cluster;
mod coverage;
pub mod crash;
mod dice;
mod directories;
mod fault_injector;
mod faults;
mod hostility;
mod images;
mod journal;
mod ledger;
mod meta_disk;
pub mod model;
pub mod names;
mod network;
mod other_cluster;
mod parties;
mod places;
mod ports;
pub mod race;
pub mod race_crashes;
mod race_operations;
pub mod registers;
mod run;
mod services;
mod shape;
pub mod sizes;
mod snapshots;
mod sole_writer;
mod steps;
#[cfg(test)]
mod tests;
mod trace;
mod trees;
mod verify;
mod watch;
mod workload;
mod world;
mod zeros;

pub use coverage::Coverage;
pub use faults::{Fault, FaultCounts};
pub use run::{Options, Report, simulate};
pub use shape::scheme_of;
