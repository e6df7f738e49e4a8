//! A testbed: racks of nodes as network namespaces of this machine, with limited links (the local
//! clusters of CAU section 5.3 and `RackCU` section V-B).
//!
//! `seats` names the namespaces and their addresses, `limits` defines the speeds of links, `network` makes
//! them, and `fair` those that serve connections in turn. `command` controls a testbed's lifetime, and `job` runs
//! a job of this program in one.

mod command;
mod fair;
mod job;
mod limits;
mod network;
mod seats;

pub use command::Testbed;
pub use job::{put_in_memory, read_job};
pub use limits::Uplink;
pub use seats::Seats;
pub(crate) use seats::{COORDINATOR, command_in, coordinator_listen, node_listen, node_seat};
