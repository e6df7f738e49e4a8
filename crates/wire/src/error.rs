//! The errors between two processes, as one enum.
//!
//! A connection fails once and all of its waiters get the same reason, so errors can be cloned.

use crate::admission::ConnectionLimit;
use crate::versions::Versions;
use gabion_layout::NodeId;
use gabion_meta::ClusterId;
use std::io;
use std::sync::Arc;

/// The reason why a frame, a call or a connection failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WireError {
    /// The other process cannot be reached at all; nothing was sent.
    #[error("cannot connect to {address}: {source}")]
    Unreachable {
        /// Its address, as `host:port`.
        address: String,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// A system call on a connection, a listener or the link table failed.
    #[error("cannot {operation}: {source}")]
    Io {
        /// The operation, to be read after "cannot".
        operation: String,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// Received bytes that no correct peer sends. The connection is closed.
    #[error("received a corrupt frame: {0}")]
    Corrupt(&'static str),
    /// The two processes have no version of the protocol in common.
    #[error(
        "the peer speaks {theirs} of Gabion's protocol and this process speaks {ours}; upgrade {}, release by release",
        ours.laggard(*theirs)
    )]
    WrongVersion {
        /// This process's versions.
        ours: Versions,
        /// The peer's versions.
        theirs: Versions,
    },
    /// The peer's hello does not name the versions that the peer speaks.
    #[error(
        "the peer's hello of version {theirs} of Gabion's protocol names no valid oldest version, and this process speaks \
        {ours}; install the release of this process at the peer"
    )]
    UnclearVersions {
        /// This process's versions.
        ours: Versions,
        /// The version in the header of the peer's hello.
        theirs: u16,
    },
    /// The version on which both sides have agreed lacks the request; it was not sent, and the connection goes on.
    #[error(
        "the peer speaks version {agreed} of Gabion's protocol, and this request needs version {needed}; upgrade the peer"
    )]
    Unsupported {
        /// The first version that has the request.
        needed: u16,
        /// The version of the connection.
        agreed: u16,
    },
    /// The peer belongs to another cluster.
    #[error(
        "the process at that address belongs to cluster {theirs}, but this process to cluster {ours}; check the address"
    )]
    WrongCluster {
        /// This process's cluster.
        ours: ClusterId,
        /// The peer's cluster.
        theirs: ClusterId,
    },
    /// The peer's certificate, or this process's own, is not accepted.
    #[error("the two processes do not trust each other: {0}")]
    Untrusted(String),
    /// The peer does not speak TLS, and this process does.
    #[error(
        "the process at that address does not use TLS; if its cluster runs with --insecure, add --insecure to this \
        command"
    )]
    NoTls,
    /// The peer speaks TLS, and this process does not.
    #[error(
        "the process at that address wants TLS; name a directory with a certificate of its cluster by --tls, or the \
        cluster's own directory by --dir"
    )]
    WantsTls,
    /// Another process has the node's address.
    #[error("{} is where {wanted} was", named(*found))]
    WrongNode {
        /// The expected node.
        wanted: NodeId,
        /// The node that is there; none if the process is not a node.
        found: Option<NodeId>,
    },
    /// The process accepts no more connections now.
    #[error("it {}; try again later", .0.meaning())]
    Full(ConnectionLimit),
    /// The message does not fit in a frame; it was not sent, and the connection goes on.
    #[error("a message of {bytes} bytes is longer than the limit of {limit} bytes")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// [`crate::frame::MAX_BODY_BYTES`].
        limit: usize,
    },
    /// The peer missed a deadline. A request may still have been carried out.
    #[error("{operation} took too long")]
    DeadlinePassed {
        /// The awaited operation.
        operation: &'static str,
    },
    /// The peer took the request but reports that no reply will come. It may have been carried out.
    #[error("the peer does not answer: {0}")]
    NoReply(String),
    /// This process closed the connection. Requests without a reply may or may not have been
    /// carried out.
    #[error("the connection is closed: {0}")]
    Closed(String),
    /// The peer closed the connection. Requests without a reply may or may not have been carried
    /// out.
    #[error("the peer closed the connection: {0}")]
    ClosedByPeer(String),
}

/// The reason for closing a connection whose place another one has taken.
pub(crate) const REPLACED: &str = "a newer connection has taken its place";

impl WireError {
    /// Whether the connection was closed because another one between the same processes has taken its place: no sign
    /// that the peer has ended.
    pub(crate) fn is_replacement(&self) -> bool {
        matches!(self, Self::Closed(reason) | Self::ClosedByPeer(reason) if reason == REPLACED)
    }

    /// Whether a later attempt to connect fails too, until a person changes something.
    pub(crate) const fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::WrongCluster { .. } | Self::Untrusted(_) | Self::NoTls | Self::WantsTls
        )
    }

    /// The reason for the peer when the connection is closed; `None` when the peer knows it already or
    /// cannot receive it.
    pub(crate) fn last_words(&self) -> Option<String> {
        match self {
            Self::Io { .. } | Self::ClosedByPeer(_) | Self::WantsTls | Self::NoTls => None,
            Self::Closed(reason) => Some(reason.clone()),
            _ => Some(self.to_string()),
        }
    }

    /// An operating system's error, with the operation.
    pub(crate) fn io(operation: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            operation: operation.into(),
            source: Arc::new(source),
        }
    }
}

fn named(node: Option<NodeId>) -> String {
    node.map_or_else(
        || "a process that is no node".to_owned(),
        |node| node.to_string(),
    )
}
