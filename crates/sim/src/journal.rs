//! The event log of a run: its last lines for reading, and a digest of all lines, which identifies the run.

use std::collections::VecDeque;

/// Lines with their times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Journal {
    kept: VecDeque<String>,
    kept_line_count: usize,
    line_count: u64,
    digest: u64,
}

impl Journal {
    /// A log that keeps its last lines.
    pub(crate) fn new(kept_line_count: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            kept_line_count,
            line_count: 0,
            digest: 0xcbf2_9ce4_8422_2325,
        }
    }

    pub(crate) fn add(&mut self, now_us: u64, text: &str) {
        let line = format!("{:>9}.{:03} {text}", now_us / 1000, now_us % 1000);
        // FNV-1a distinguishes runs; it need not resist deliberate collisions.
        for &byte in line.as_bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.line_count += 1;
        self.kept.push_back(line);
        if self.kept.len() > self.kept_line_count {
            self.kept.pop_front();
        }
    }

    /// The number of lines, and the digest of all of them.
    pub(crate) fn digest(&self) -> (u64, u64) {
        (self.line_count, self.digest)
    }

    /// The last lines, oldest first.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.kept.into()
    }
}
