//! The failure of a command: one plain sentence, and the exit code.

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
/// A usage error.
const USAGE: u8 = 2;
/// `gabion health` found problems, and every stripe survives a further failure.
const YELLOW: u8 = 3;
/// `gabion health` found a stripe that survives no further failure.
const RED: u8 = 4;
/// The reader of the output has closed the pipe: the exit code of a process ended by SIGPIPE.
const READER_GONE: u8 = 141;

impl Failure {
    /// A usage error: exit code 2.
    pub(crate) fn usage(sentence: impl fmt::Display) -> Self {
        Self {
            sentence: sentence.to_string(),
            exit_code: USAGE,
        }
    }

    /// Any other failure: exit code 1.
    pub(crate) fn failed(sentence: impl fmt::Display) -> Self {
        Self {
            sentence: sentence.to_string(),
            exit_code: FAILED,
        }
    }

    /// Another process of this program failed and printed the reason.
    pub(crate) fn said_elsewhere(is_usage: bool) -> Self {
        Self {
            sentence: String::new(),
            exit_code: if is_usage { USAGE } else { FAILED },
        }
    }

    /// The cluster has problems, which the command printed, and every stripe survives a further failure.
    pub(crate) const fn yellow() -> Self {
        Self::light(YELLOW)
    }

    /// A stripe survives no further failure; the command printed it.
    pub(crate) const fn red() -> Self {
        Self::light(RED)
    }

    const fn light(exit_code: u8) -> Self {
        Self {
            sentence: String::new(),
            exit_code,
        }
    }

    /// The reader of the output has closed the pipe, like `head`: no message can be printed.
    pub(crate) fn reader_gone() -> Self {
        Self {
            sentence: String::new(),
            exit_code: READER_GONE,
        }
    }

    /// Whether the reason was printed already.
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

/// Adds the operation to an error.
pub(crate) trait Context<T> {
    /// Fails with "cannot `doing`: error".
    fn context(self, doing: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, doing: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::failed(format!("cannot {doing}: {error}")))
    }
}
