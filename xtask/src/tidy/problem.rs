//! A broken rule, as tidy prints it.

use std::fmt;

/// One broken rule, at one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    /// The file, from the workspace's directory, with `/` between parts.
    pub(super) path: String,
    /// The line, counted from 1.
    pub(super) line: usize,
    /// The fault, and what is allowed.
    pub(super) message: String,
}

impl Problem {
    /// A problem at a line of a file.
    pub(super) fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_editors_expect() {
        let problem = Problem::new("crates/a/src/lib.rs", 7, "wrong; allowed: right");
        assert_eq!(
            problem.to_string(),
            "crates/a/src/lib.rs:7: wrong; allowed: right"
        );
    }
}
