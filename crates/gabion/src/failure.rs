//! Why a command failed: one plain sentence, and the exit code that goes with it.

use std::fmt;
use std::process::ExitCode;

/// A failed command.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    sentence: String,
    exit_code: u8,
}

/// Something failed.
const FAILED: u8 = 1;
/// The command was wrong.
const USAGE: u8 = 2;
/// The reader of the output has gone: as a shell sees a process that SIGPIPE has ended.
const READER_GONE: u8 = 141;

impl Failure {
    /// The command cannot be done as it was given: exit code 2.
    pub(crate) fn usage(sentence: impl fmt::Display) -> Self {
        Self {
            sentence: sentence.to_string(),
            exit_code: USAGE,
        }
    }

    /// The command was fine, but something failed: exit code 1.
    pub(crate) fn failed(sentence: impl fmt::Display) -> Self {
        Self {
            sentence: sentence.to_string(),
            exit_code: FAILED,
        }
    }

    /// Several things were tried, and these failed: a line each.
    ///
    /// # Errors
    /// Unless there are none.
    pub(crate) fn of_several(failures: Vec<Self>) -> Result<(), Self> {
        let exit_code = failures.iter().map(|failure| failure.exit_code).min();
        let Some(exit_code) = exit_code else {
            return Ok(());
        };
        let sentences: Vec<String> = failures
            .into_iter()
            .map(|failure| failure.sentence)
            .collect();
        Err(Self {
            sentence: sentences.join("\n"),
            exit_code,
        })
    }

    /// A process of this program in another place failed, and has said why.
    pub(crate) fn said_elsewhere(is_usage: bool) -> Self {
        Self {
            sentence: String::new(),
            exit_code: if is_usage { USAGE } else { FAILED },
        }
    }

    /// The reader of the output has gone, as that of a pipe to `head` does: there is nobody to tell.
    pub(crate) fn reader_gone() -> Self {
        Self {
            sentence: String::new(),
            exit_code: READER_GONE,
        }
    }

    /// Whether the user has been told.
    pub(crate) fn is_said(&self) -> bool {
        self.sentence.is_empty()
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_code)
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
