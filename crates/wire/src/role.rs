//! The role of a process in a cluster.

use serde::{Deserialize, Serialize};

/// The role of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// It stores and reads files, and serves no requests.
    Client,
    /// It stores chunks.
    Node,
    /// It keeps the metadata.
    Coordinator,
    /// A client of the person who runs the cluster: it may also change pools, nodes and repairs.
    Operator,
}
