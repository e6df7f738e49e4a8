//! Why certificates, keys or the authority cannot be used.

use gabion_layout::NodeId;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Errors for which certificates, keys or the authority cannot be used.
#[derive(Debug, Error)]
pub enum TrustError {
    /// A file could not be read or written.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process keeps the files of a directory locked, perhaps because it is paused.
    #[error("another process has held the lock of {} for 5 s; wait for this process, or end it", path.display())]
    Locked {
        /// The file that is locked.
        path: PathBuf,
    },
    /// A directory has no certificate and key.
    #[error("{} holds no certificate; 'gabion cert issue' makes one, and a node gets one with 'gabion node --token FILE'", path.display())]
    NoCredentials {
        /// The directory.
        path: PathBuf,
    },
    /// A directory has no authority.
    #[error("{} has no certificate authority; name the coordinator's directory with --authority, or create a new \
    authority with 'gabion init'", path.display())]
    NoAuthority {
        /// The directory.
        path: PathBuf,
    },
    /// A new authority would replace another one.
    #[error("{} already has a certificate authority, and a new one would lock out every process of its cluster; choose \
    another directory", path.display())]
    AuthorityExists {
        /// The directory.
        path: PathBuf,
    },
    /// A file holds something else.
    #[error("{} is not usable: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file of a process's credentials holds something else.
    #[error("{} is not usable: {reason}; restore the file from a copy, or get a new certificate with 'gabion cert issue' or, \
    for a node, with 'gabion node --token FILE'", path.display())]
    NotCredentials {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A new certificate would replace that of another process.
    #[error("{} has the certificate of {holder}; choose another directory for the certificate of {wanted}", path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// The process that uses it.
        holder: String,
        /// The process for which the new certificate is.
        wanted: String,
    },
    /// A new certificate without a node's number would replace a node's own.
    #[error("{} has the certificate of {holder}, which one without a number must not replace; name the node with \
    --node, or choose another directory", path.display())]
    Identified {
        /// The directory.
        path: PathBuf,
        /// The node.
        holder: String,
    },
    /// A certificate is not valid now.
    #[error("the certificate in {} has expired; get a new one with 'gabion cert issue' or, for a node, with 'gabion node --token FILE'", path.display())]
    Expired {
        /// The directory.
        path: PathBuf,
    },
    /// A new certificate is not valid yet, so the present one stays in use.
    #[error(
        "the new certificate is not valid before {ahead_s} s from now by this machine's clock, and the present one \
    stays in use; compare this machine's clock with the coordinator's"
    )]
    NotYetValid {
        /// Seconds until it is.
        ahead_s: i64,
    },
    /// A list of revoked certificates is older than the one in use.
    #[error("the offered list of revoked certificates is older than {}, which stays in use; check whether the \
    authority's directory was restored from a copy", path.display())]
    OldList {
        /// The list in use.
        path: PathBuf,
    },
    /// There is no file with a join token.
    #[error("cannot read {}, because it does not exist; name a file with the output of 'gabion cert token'", path.display())]
    NoTokenFile {
        /// The file.
        path: PathBuf,
    },
    /// A join token cannot be read.
    #[error("this is not a join token; copy the whole output of 'gabion cert token'")]
    NoToken,
    /// A join token is for another role.
    #[error("the join token is for {0}; make one for a node with 'gabion cert token'")]
    OtherToken(String),
    /// A join token has been exchanged before.
    #[error("the join token was already used; make another token with 'gabion cert token'")]
    TokenUsed,
    /// No certificate has this serial.
    #[error(
        "the authority has not issued a certificate {0}; 'gabion cert ls' lists all certificates"
    )]
    UnknownSerial(String),
    /// A new node's certificate was used by another node.
    #[error(
        "{0} already joined with this certificate, and a certificate admits one node; make another token with 'gabion \
        cert token'"
    )]
    Admitted(NodeId),
    /// The authority does not sign for this name.
    #[error("{0}")]
    NotSigned(String),
    /// Keys, signatures or certificates could not be made.
    #[error("cannot make a certificate: {0}")]
    Crypto(String),
}

impl From<rcgen::Error> for TrustError {
    fn from(error: rcgen::Error) -> Self {
        Self::Crypto(error.to_string())
    }
}

/// The error of an operation on a file.
pub(super) fn io_error(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> TrustError {
    let path = path.to_owned();
    move |source| TrustError::Io {
        operation,
        path,
        source,
    }
}

/// The error of a file that holds something else.
#[expect(
    clippy::needless_pass_by_value,
    reason = "errors are passed as they come"
)]
pub(super) fn malformed(path: &Path, reason: impl ToString) -> TrustError {
    TrustError::Malformed {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// The error of a file of credentials that holds something else.
#[expect(
    clippy::needless_pass_by_value,
    reason = "errors are passed as they come"
)]
pub(super) fn not_credentials(path: &Path, reason: impl ToString) -> TrustError {
    TrustError::NotCredentials {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
