//! Coordinator and node processes: sockets, disk and clock under the protocol's roles.
//!
//! The only crate with a server run-time. No decision is made here: requests go to
//! `gabion_protocol`'s `Node` and `Coordinator`, and their calls go to connections.

mod coordinator;
mod error;
mod identity;
mod links;
mod node;
mod ports;

pub use coordinator::{CoordinatorConfig, CoordinatorProcess};
pub use error::ServerError;
pub use node::{NodeConfig, NodeProcess};
