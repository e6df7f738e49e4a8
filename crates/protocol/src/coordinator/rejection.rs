//! The coordinator's answers to requests: each request's own reply, or the reason why there is none. Only the table of
//! requests (`route`) makes the wire's replies of them.

use crate::message::{CoordinatorReply, Denial};
use gabion_meta::MetaError;

/// The outcome of a request: its reply.
pub(super) type Answer<T> = Result<T, Rejection>;

/// The reason why a request has no reply of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Rejection {
    /// Refused for now; a retry may succeed.
    Busy(Denial),
    /// The sender is not to repeat it.
    Refused(Denial),
}

impl Rejection {
    pub(super) fn busy(why: impl Into<Denial>) -> Self {
        Self::Busy(why.into())
    }

    /// The rejection of a request that this process may not answer. A sender that may ask again is told so.
    pub(super) fn for_now(error: MetaError) -> Self {
        match error {
            MetaError::Away { .. } | MetaError::Closed | MetaError::Deposed { .. } => {
                Self::busy(error)
            }
            error => error.into(),
        }
    }

    /// The rejection of a request that goes by its sender's layout of a file, or by places that were chosen for
    /// stripes.
    pub(super) fn of_layout(error: MetaError) -> Self {
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
            | MetaError::NodeFailed(_) => Self::busy(error),
            other => other.into(),
        }
    }

    /// Its name in metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Busy(_) => "busy",
            Self::Refused(why) => why.cause.name(),
        }
    }
}

impl<E> From<E> for Rejection
where
    Denial: From<E>,
{
    fn from(why: E) -> Self {
        Self::Refused(why.into())
    }
}

impl From<Rejection> for CoordinatorReply {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Busy(why) => Self::Busy(why),
            Rejection::Refused(why) => Self::Refused(why),
        }
    }
}
