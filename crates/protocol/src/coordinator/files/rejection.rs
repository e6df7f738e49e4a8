//! Reasons why new stripes get no places, and whether the client should retry.

use crate::coordinator::core::Answer;
use crate::coordinator::repair::survey::TaskError;
use crate::message::{CoordinatorReply, Denial};
use gabion_meta::MetaError;

/// The reason why a replacement does not begin.
pub(in crate::coordinator) enum Rejection {
    /// A retry may succeed.
    Retry(Denial),
    /// A retry of the same request cannot succeed.
    Final(Denial),
}

impl From<TaskError> for Rejection {
    fn from(TaskError(sentence): TaskError) -> Self {
        Self::Retry(sentence.into())
    }
}

impl From<Rejection> for TaskError {
    fn from(hindrance: Rejection) -> Self {
        match hindrance {
            Rejection::Retry(denial) | Rejection::Final(denial) => Self(denial.sentence),
        }
    }
}

impl From<MetaError> for Rejection {
    fn from(error: MetaError) -> Self {
        match error {
            // The client's layout is old. With a new one, the client may succeed or learn the reason.
            MetaError::UnknownStripe(_)
            | MetaError::FileGone(_)
            | MetaError::Superseded { .. }
            | MetaError::FileChanged(_)
            | MetaError::LeaseLost { .. }
            | MetaError::Held { .. }
            | MetaError::StillServed(_)
            // A node has failed since it was chosen.
            | MetaError::NodeFailed(_) => Self::Retry(error.into()),
            other => Self::Final(other.into()),
        }
    }
}

impl Rejection {
    pub(in crate::coordinator) fn answer(self) -> Answer {
        match self {
            Self::Retry(denial) => Ok(CoordinatorReply::Busy(denial)),
            Self::Final(denied) => Err(denied),
        }
    }
}
