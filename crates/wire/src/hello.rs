//! The identities of two peers: the first frame that each side of a connection sends.

use gabion_layout::{NodeId, RackId};
use gabion_meta::ClusterId;
use serde::{Deserialize, Serialize};

use crate::body::Frame;
use crate::error::WireError;
use crate::frame::Kind;
use crate::role::Role;
use crate::trust::Security;
use crate::versions::{FIRST_VERSION, Versions};

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

    /// The first frame of a process that speaks these versions. The header has the newest one; the body begins with the
    /// oldest one, before the hello itself. Both have the same place in every version.
    ///
    /// # Errors
    /// [`WireError::TooLarge`], never for a hello.
    pub fn frame(&self, versions: Versions) -> Result<Frame, WireError> {
        let mut frame = Frame::message(Kind::Hello, 0, &(versions.oldest(), self), 64)?;
        frame.header.version = versions.newest();
        Ok(frame)
    }

    /// The hello in a peer's first frame, and the version in which both sides talk from now on.
    pub(crate) fn of_frame(frame: &Frame, ours: Versions) -> Result<(Self, u16), WireError> {
        let newest = frame.header.version;
        if newest < FIRST_VERSION {
            let theirs = Versions::only(newest);
            return Err(WireError::WrongVersion { ours, theirs });
        }
        if frame.header.kind == Kind::Goodbye {
            return Err(WireError::ClosedByPeer(frame.decode_words()));
        }
        if frame.header.kind != Kind::Hello {
            return Err(WireError::Corrupt("the first frame is not a hello"));
        }
        let begin = postcard::take_from_bytes::<u16>(&frame.body).ok();
        let begin =
            begin.and_then(|(oldest, rest)| Some((Versions::between(oldest, newest)?, rest)));
        let Some((theirs, rest)) = begin else {
            return Err(WireError::UnclearVersions {
                ours,
                theirs: newest,
            });
        };
        let agreed = ours.agree(theirs);
        let agreed = agreed.ok_or(WireError::WrongVersion { ours, theirs })?;
        match postcard::take_from_bytes(rest) {
            // A later version may append to its hello what this one does not know.
            Ok((hello, rest)) if rest.is_empty() || newest > ours.newest() => Ok((hello, agreed)),
            Ok(_) => Err(WireError::Corrupt("bytes follow the hello")),
            Err(_) => Err(WireError::Corrupt("the hello cannot be decoded")),
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
