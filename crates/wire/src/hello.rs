//! The identities of two peers: the first frame that each side of a connection sends.

use gabion_layout::{NodeId, RackId};
use gabion_meta::ClusterId;
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::role::Role;
use crate::trust::Security;

/// The position of a process in the topology. Clients and the coordinator have none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerIdentity {
    /// Its node id. `None` also for a node that has not joined yet.
    pub node: Option<NodeId>,
    /// Its rack.
    pub rack: Option<RackId>,
}

/// The first frame of each side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The cluster of the process; `None` before the process learns it.
    pub cluster: Option<ClusterId>,
    /// Its role.
    pub role: Role,
    /// Its position.
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

    /// The hello of a process that serves no requests. Without certificates it is an operator: then all may do
    /// everything that a person may.
    pub(crate) fn of_user(security: &Security) -> Self {
        let name = security.name();
        Self {
            cluster: name.map(|name| name.cluster),
            role: name.map_or(Role::Operator, |name| name.role),
            ..Self::client()
        }
    }

    /// Whether a process with this hello may talk to one with `theirs`.
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
