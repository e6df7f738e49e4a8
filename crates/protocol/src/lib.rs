//! The update protocol's roles, free of any run-time: what a primary, a participant, a settler and
//! the coordinator do, as `async` code over [`ports::Ports`]. A server gives the ports sockets, a
//! disk and a clock; the simulator gives them a seed.
//!
//! The promise and its proof are in docs/update-protocol.md. No scheme logic is here: planners
//! make the plans that these roles start and take part in.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod client_ports;
mod commit;
pub mod coordinator;
pub mod doubts;
pub mod event;
pub mod fate;
mod fence;
mod holdings;
pub mod initiate;
mod inquiry;
mod joining;
pub mod limits;
pub mod locks;
mod marks;
pub mod measure;
pub mod message;
pub mod node;
mod part_io;
mod participant;
mod parts;
pub mod ports;
pub mod primary;
mod progress;
pub mod quorum;
mod reserves;
pub mod run;
pub mod settle;
mod staging;
mod store_failure;
mod term;
pub mod ticket;
mod trash;
mod turns;
mod unfinished;
mod upkeep;
pub mod wake_up;
