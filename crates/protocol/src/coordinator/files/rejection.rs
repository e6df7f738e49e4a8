//! Why new stripes do not get their places, and whether the client should try again.

use crate::coordinator::core::{Answer, Denied};
use crate::coordinator::repair::survey::Setback;
use crate::message::CoordinatorReply;
use gabion_meta::MetaError;

/// Why a replacement does not begin.
pub(in crate::coordinator) enum Rejection {
    /// It may begin soon.
    Retry(String),
    /// It never will as it was asked for.
    Final(Denied),
}

impl From<Setback> for Rejection {
    fn from(Setback(sentence): Setback) -> Self {
        Self::Retry(sentence)
    }
}

impl From<Rejection> for Setback {
    fn from(hindrance: Rejection) -> Self {
        match hindrance {
            Rejection::Retry(sentence) | Rejection::Final(Denied(sentence)) => Self(sentence),
        }
    }
}

impl From<MetaError> for Rejection {
    fn from(error: MetaError) -> Self {
        match error {
            // The client's layout is old; with a new one it may succeed, or learn why not.
            MetaError::UnknownStripe(_)
            | MetaError::FileReplaced(_)
            | MetaError::LeaseLost { .. }
            | MetaError::Held { .. }
            // A node has failed since it was chosen.
            | MetaError::NodeFailed(_) => Self::Retry(error.to_string()),
            other => Self::Final(other.into()),
        }
    }
}

impl Rejection {
    pub(in crate::coordinator) fn answer(self) -> Answer {
        match self {
            Self::Retry(sentence) => Ok(CoordinatorReply::Busy(sentence)),
            Self::Final(denied) => Err(denied),
        }
    }
}
