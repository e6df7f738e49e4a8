//! Why an episode ends before its time.

use thiserror::Error;

/// Why an episode ends.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum Stop {
    /// A promise was broken, or the cluster did not do what it must.
    #[error("{0}")]
    Broken(String),
    /// This program or this machine failed; it says nothing about the cluster.
    #[error("{0}")]
    Failed(String),
    /// A signal asked for the end.
    #[error("interrupted")]
    Interrupted,
}

/// Adds what was being done to an error of this machine.
pub(crate) trait Context<T> {
    /// The value, or [`Stop::Failed`].
    fn context(self, doing: &str) -> Result<T, Stop>;
}

impl<T, E: std::fmt::Display> Context<T> for Result<T, E> {
    fn context(self, doing: &str) -> Result<T, Stop> {
        self.map_err(|error| Stop::Failed(format!("cannot {doing}: {error}")))
    }
}
