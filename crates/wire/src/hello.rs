//! Who talks to whom: the first frame that each side of a connection sends.

use gabion_layout::{NodeId, RackId};
use gabion_meta::ClusterId;
use serde::{Deserialize, Serialize};

use crate::error::WireError;

/// What a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// It stores and asks, and serves nothing.
    Client,
    /// It stores chunks.
    Node,
    /// It keeps the metadata.
    Coordinator,
}

/// Where a process stands in the topology. Clients and the coordinator stand nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerIdentity {
    /// Its node id. `None` also for a node that has not joined yet.
    pub node: Option<NodeId>,
    /// Its rack.
    pub rack: Option<RackId>,
}

/// What each side of a connection says first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The cluster that the process belongs to; `None` when it is yet to learn that.
    pub cluster: Option<ClusterId>,
    /// What it is.
    pub role: Role,
    /// Where it stands.
    pub identity: PeerIdentity,
}

impl Hello {
    /// A client's hello: any cluster, no place.
    pub const fn client() -> Self {
        let identity = PeerIdentity {
            node: None,
            rack: None,
        };
        Self {
            cluster: None,
            role: Role::Client,
            identity,
        }
    }

    /// Whether a process that says this may talk to one that says `theirs`.
    ///
    /// # Errors
    /// [`WireError::WrongCluster`] when both know their clusters and these differ.
    pub fn check(&self, theirs: &Self) -> Result<(), WireError> {
        match (self.cluster, theirs.cluster) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                Err(WireError::WrongCluster { ours, theirs })
            }
            _ => Ok(()),
        }
    }
}
