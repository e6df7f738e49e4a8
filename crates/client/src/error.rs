//! Errors of the client: one plain sentence each.

use gabion_protocol::message::{Cause, CoordinatorRequest, Denial};
use gabion_protocol::ports::CoordinatorError;
use thiserror::Error;

/// The side that an error concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The request itself is wrong; it must be changed.
    Usage,
    /// The cluster could not do it now.
    Cluster,
}

/// The reason why an operation failed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The request is invalid.
    #[error("{0}")]
    Usage(String),
    /// The file would have more bytes than a file can have.
    #[error("a file has at most {limit_bytes} bytes; choose a smaller size or offset")]
    TooLarge {
        /// Most bytes of a file.
        limit_bytes: u64,
    },
    /// The coordinator's refusal.
    #[error("{0}")]
    Refused(Denial),
    /// A node's final refusal.
    #[error("{what}: {refusal}")]
    Node {
        /// The operation.
        what: String,
        /// The node's refusal.
        refusal: Denial,
    },
    /// The operation was not refused, but did not finish in time.
    #[error("{what} took longer than {limit_s} s; last problem: {missing}")]
    Late {
        /// The operation.
        what: String,
        /// The time limit, in seconds.
        limit_s: u64,
        /// The problem when time ran out.
        missing: Denial,
    },
    /// The coordinator does not answer.
    #[error("{0}; check its address and that it runs")]
    NoCoordinator(String),
    /// The coordinator recovers a restored backup, and changes nothing. An earlier one may have carried the request
    /// out.
    #[error("{0}")]
    Recovering(String),
    /// The caller's reader or writer failed.
    #[error("cannot {operation}: {source}")]
    Io {
        /// The operation, to be read after "cannot".
        operation: &'static str,
        /// The reader's or writer's error.
        source: std::io::Error,
    },
    /// The source had fewer bytes than announced.
    #[error(
        "the source ended after {found_bytes} of {size_bytes} bytes, so the file was not stored; check whether another \
        process truncated the source"
    )]
    SourceTooShort {
        /// Bytes found.
        found_bytes: u64,
        /// Bytes announced.
        size_bytes: u64,
    },
    /// The opened file was removed, by its name or by another file that took it.
    #[error("{0} was removed or replaced after it was opened; open it again")]
    FileGone(String),
    /// Another client is the file's only writer.
    #[error(
        "another client has {name} open exclusively; end that client first{}",
        free_in(*.left_ms)
    )]
    InUse {
        /// The file's name.
        name: String,
        /// The time after which it may be taken over without a further renewal, in milliseconds.
        left_ms: Option<u64>,
    },
    /// This client was the file's only writer, and another one has taken the file over.
    #[error("another client took over {0}, so this client can no longer write it; open it again")]
    Superseded(String),
    /// The file is a snapshot.
    #[error("{0} is a snapshot and is never changed; clone it to get a file to write")]
    ReadOnly(String),
    /// This client has lost advisory locks that it had in the file, which another client may have got.
    #[error(
        "the advisory locks in {0} were lost while the coordinator did not hear this client; close the file, open it \
         again and lock it again"
    )]
    LocksLost(String),
    /// The file was truncated while it was read.
    #[error("{name} was truncated to {size_bytes} bytes while it was read; read it again")]
    Shrunk {
        /// The file's name.
        name: String,
        /// Its size now.
        size_bytes: u64,
    },
    /// Changes in a cache could not be written back. None is lost: they are still there.
    #[error("{source}; unwritten changes stay in the cache")]
    NotWrittenBack {
        /// The cause.
        source: Box<ClientError>,
    },
    /// A write failed, and its outcome could not be determined in time.
    #[error(
        "{source}; it is unknown whether the bytes were written; read them before you write again"
    )]
    Undecided {
        /// The cause.
        source: Box<ClientError>,
    },
    /// The outcome of a write can no longer be determined.
    #[error(
        "the answer to a write of {0} was lost, and no node remembers whether the bytes were written; read them before you \
        write again"
    )]
    Forgotten(String),
    /// An answer, or a plan of this client, is invalid.
    #[error("{0}; this is a bug or a mix of releases, please report it")]
    Broken(String),
}

/// When a file may be taken over, as the end of a sentence.
fn free_in(left_ms: Option<u64>) -> String {
    left_ms.map_or_else(String::new, |left_ms| {
        let seconds = left_ms.div_ceil(1_000);
        format!(". Without a renewal the file becomes free in {seconds} s")
    })
}

/// The problem, if a retry may succeed after this error. The request may have been carried out.
///
/// # Errors
/// The others.
pub(crate) fn passing(error: CoordinatorError) -> Result<Denial, ClientError> {
    match error {
        CoordinatorError::Busy(denial) => Ok(denial),
        CoordinatorError::Silent(silent) => Ok(silent.to_string().into()),
        // It stopped before it had the outcome, and another one leads soon.
        CoordinatorError::Refused(why) if why.cause.leaves_doubt() => Ok(why),
        other => Err(other.into()),
    }
}

/// Whether a request may be repeated although it may have been carried out. Making a pool a second time would be
/// refused, as if the first request had failed. A change of locks is repeated under another number.
pub(crate) const fn is_repeatable(request: &CoordinatorRequest) -> bool {
    use CoordinatorRequest::{CreatePool, SetLock};
    !matches!(request, CreatePool(_) | SetLock(_))
}

/// The error of a request that may have been carried out, and that nothing asks again.
pub(crate) fn without_outcome(why: Denial) -> ClientError {
    match why.cause {
        Cause::Recovers => ClientError::Recovering(why.sentence),
        _ => ClientError::NoCoordinator(why.sentence),
    }
}

impl From<CoordinatorError> for ClientError {
    fn from(error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::Refused(why) => Self::Refused(why),
            CoordinatorError::Misfit(_) => Self::unexpected("the coordinator"),
            CoordinatorError::Busy(_) | CoordinatorError::Silent(_) => {
                Self::NoCoordinator(error.to_string())
            }
        }
    }
}

impl ClientError {
    /// The side that the error concerns; a command's exit status follows from it.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Usage(_)
            | Self::TooLarge { .. }
            | Self::Refused(Denial {
                cause: Cause::Invalid | Cause::NameTooLong,
                ..
            }) => ErrorKind::Usage,
            _ => ErrorKind::Cluster,
        }
    }

    /// Whether the request itself is wrong, whatever the state of the cluster.
    pub const fn is_usage(&self) -> bool {
        matches!(self.kind(), ErrorKind::Usage)
    }

    /// The cause of the error, for programs: a gateway's error number follows from it. For an operation that timed
    /// out, it is the cause of the last problem.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Refused(denial)
            | Self::Node {
                refusal: denial, ..
            }
            | Self::Late {
                missing: denial, ..
            } => denial.cause,
            Self::NotWrittenBack { source } | Self::Undecided { source } => source.cause(),
            Self::Usage(_) => Cause::Invalid,
            Self::TooLarge { .. } => Cause::TooLarge,
            Self::InUse { .. } => Cause::InUse,
            Self::ReadOnly(_) => Cause::ReadOnly,
            Self::FileGone(_) | Self::Superseded(_) | Self::Shrunk { .. } => Cause::Stale,
            Self::Recovering(_) => Cause::Recovers,
            Self::NoCoordinator(_)
            | Self::Io { .. }
            | Self::SourceTooShort { .. }
            | Self::Forgotten(_)
            | Self::LocksLost(_)
            | Self::Broken(_) => Cause::Failure,
        }
    }

    /// A reply that does not fit the request.
    pub(crate) fn unexpected(from: &str) -> Self {
        Self::Broken(format!("{from} sent a reply that does not fit the request"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_protocol::message::Refusal;

    #[test]
    fn an_answer_of_a_coordinator_that_leads_no_more_is_no_outcome() {
        let refused = |cause| {
            let why = Denial::new(cause, "no".to_owned());
            passing(CoordinatorError::Refused(why)).is_ok()
        };
        assert!(refused(Cause::NotLeading));
        assert!(refused(Cause::Recovers));
        assert!(!refused(Cause::Exists));
    }

    #[test]
    fn an_error_has_the_cause_of_its_last_problem() {
        let node = |refusal: Refusal| ClientError::Node {
            what: "writing f at byte 0".to_owned(),
            refusal: refusal.into(),
        };
        assert_eq!(node(Refusal::NoSpace).cause(), Cause::NoSpace);
        let busy = node(Refusal::Busy("wait".to_owned()));
        assert_eq!(busy.cause(), Cause::Failure);
        let late = ClientError::Late {
            what: "writing f at byte 0".to_owned(),
            limit_s: 30,
            missing: Refusal::NoSpace.into(),
        };
        let undecided = ClientError::Undecided {
            source: Box::new(late),
        };
        assert_eq!(undecided.cause(), Cause::NoSpace);
        assert_eq!(ClientError::FileGone("f".to_owned()).cause(), Cause::Stale);
    }
}
