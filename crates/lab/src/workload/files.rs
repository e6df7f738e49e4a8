//! Files of a workload: how many there are, and how many a stream of requests is to.

use crate::trace::{Request, RequestKind};
use std::num::NonZeroU64;

/// The number of files of a workload's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Files {
    /// Files that are read or written.
    pub accessed: u64,
    /// Those of them that are updated; at least one.
    pub updated: u64,
}

impl Files {
    /// One of `divisor` of the files, and at least one of either kind.
    pub(super) fn part(self, divisor: NonZeroU64) -> Self {
        Self {
            accessed: (self.accessed / divisor).max(1),
            updated: (self.updated / divisor).max(1),
        }
    }

    /// Files that are accessed and not updated.
    pub(super) const fn unchanged(self) -> u64 {
        self.accessed - self.updated
    }
}

/// Counts the files of a stream of requests. Its memory is a byte for each file number.
#[derive(Clone, Debug, Default)]
pub struct FileCounts {
    /// By number.
    states: Vec<State>,
    accessed: u64,
    updated: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Untouched,
    Accessed,
    Updated,
}

impl FileCounts {
    /// Counts a request to the file of number `file`. `is_update` says of a write whether it is to
    /// bytes that were accessed before.
    ///
    /// # Panics
    /// When a read is called an update.
    pub fn add(&mut self, file: u64, request: &Request, is_update: bool) {
        assert!(
            !is_update || request.kind == RequestKind::Write,
            "reads do not update"
        );
        let at = file as usize;
        if at >= self.states.len() {
            self.states.resize(at + 1, State::Untouched);
        }
        let state = &mut self.states[at];
        if *state == State::Untouched {
            self.accessed += 1;
            *state = State::Accessed;
        }
        if is_update && *state == State::Accessed {
            self.updated += 1;
            *state = State::Updated;
        }
    }

    /// Files with at least one request.
    pub const fn accessed(&self) -> u64 {
        self.accessed
    }

    /// Files with at least one update.
    pub const fn updated(&self) -> u64 {
        self.updated
    }
}
