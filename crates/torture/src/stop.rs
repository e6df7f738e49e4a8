//! The reasons why an episode ends early.

use thiserror::Error;

/// The reason why an episode ends.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum Stop {
    /// A guarantee was violated, or the cluster did not reach a required state.
    #[error("{0}")]
    Broken(String),
    /// This program or this machine failed; the cluster is not at fault.
    #[error("{0}")]
    Failed(String),
    /// A signal ended the run.
    #[error("interrupted")]
    Interrupted,
}

/// Adds the operation to an error of this machine.
pub(crate) trait Context<T> {
    /// The value, or [`Stop::Failed`].
    fn context(self, doing: &str) -> Result<T, Stop>;
}

impl<T, E: std::fmt::Display> Context<T> for Result<T, E> {
    fn context(self, doing: &str) -> Result<T, Stop> {
        self.map_err(|error| Stop::Failed(format!("cannot {doing}: {error}")))
    }
}
