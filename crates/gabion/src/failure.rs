//! Why a command failed: one plain sentence, and the exit code that goes with it.

use std::fmt;
use std::process::ExitCode;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    sentence: String,
    is_usage: bool,
}

impl Failure {
    /// The command cannot be done as it was given: exit code 2.
    pub(crate) fn usage(sentence: impl fmt::Display) -> Self {
        Self {
            sentence: sentence.to_string(),
            is_usage: true,
        }
    }

    /// The command was fine, but something failed: exit code 1.
    pub(crate) fn failed(sentence: impl fmt::Display) -> Self {
        Self {
            sentence: sentence.to_string(),
            is_usage: false,
        }
    }

    /// A process of this program in another place failed, and has said why.
    pub(crate) fn said_elsewhere(is_usage: bool) -> Self {
        Self {
            sentence: String::new(),
            is_usage,
        }
    }

    /// Whether the user has been told.
    pub(crate) fn is_said(&self) -> bool {
        self.sentence.is_empty()
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.is_usage { 2 } else { 1 })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// Adds what was being done to whatever went wrong with it.
pub(crate) trait Context<T> {
    /// Fails with "cannot `doing`: error".
    fn context(self, doing: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, doing: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::failed(format!("cannot {doing}: {error}")))
    }
}
