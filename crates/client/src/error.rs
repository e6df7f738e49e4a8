//! What can go wrong for whoever uses the client: one plain sentence each.

use thiserror::Error;

/// Whose business an error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// What was asked for makes no sense as it is: ask for something else.
    Usage,
    /// The cluster could not do it now.
    Cluster,
}

/// Why an operation was not done.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The coordinator says no, in its own words.
    #[error("{0}")]
    Refused(String),
    /// A node says no, and would say so again.
    #[error("{what}: {refusal}")]
    Node {
        /// What was tried.
        what: String,
        /// The node's sentence.
        refusal: String,
    },
    /// Nobody said no, but it was not done in time.
    #[error("{what} took longer than {limit_s} s; at last {missing}")]
    Late {
        /// What was tried.
        what: String,
        /// How long it was tried, in seconds.
        limit_s: u64,
        /// What was missing when time ran out.
        missing: String,
    },
    /// The coordinator cannot be asked.
    #[error("{0}; check its address and that it runs")]
    NoCoordinator(String),
    /// Reading what was to be stored, or writing what was read, failed on the caller's side.
    #[error("cannot {operation}: {source}")]
    Io {
        /// What was being done, to be read after "cannot".
        operation: &'static str,
        /// What the reader or writer said.
        source: std::io::Error,
    },
    /// The source had fewer bytes than was said.
    #[error(
        "the source ended after {found_bytes} of {size_bytes} bytes; nothing was stored. Was it \
         cut while it was read?"
    )]
    SourceTooShort {
        /// Bytes that it had.
        found_bytes: u64,
        /// Bytes that it was said to have.
        size_bytes: u64,
    },
    /// The file is another one than the one that was opened.
    #[error("{0} was replaced by another file meanwhile; open it again")]
    Replaced(String),
    /// Changes that a cache holds could not be written back. None is lost: they are still there.
    #[error("{source}; what is changed and not stored yet stays in the cache")]
    NotWrittenBack {
        /// Why not.
        source: Box<ClientError>,
    },
    /// A write failed, and whether it was made could not be found out in time.
    #[error(
        "{source}; whether the bytes were written is not known. Read them before you write again"
    )]
    Undecided {
        /// Why it failed.
        source: Box<ClientError>,
    },
    /// Whether a write was made cannot be found out any more.
    #[error(
        "an answer to a write of {0} was lost, and no node remembers whether the bytes were written. \
         Read them before you write again"
    )]
    Forgotten(String),
    /// An answer, or a plan that this client made, cannot be right.
    #[error("{0}; this is a bug or a mix of releases, please report it")]
    Broken(String),
}

impl ClientError {
    /// Whose business the error is; a command's exit status follows from it.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Usage(_) => ErrorKind::Usage,
            _ => ErrorKind::Cluster,
        }
    }

    /// Whether the request itself is wrong, whatever the state of the cluster.
    pub const fn is_usage(&self) -> bool {
        matches!(self.kind(), ErrorKind::Usage)
    }

    /// An answer that does not fit the question.
    pub(crate) fn unexpected(from: &str) -> Self {
        Self::Broken(format!("the reply of {from} does not fit the question"))
    }
}
