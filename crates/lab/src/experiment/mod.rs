//! The parts of every experiment of a paper: its id and title, a [`Session`] with everything outside, and the
//! [`Report`] that it returns.

mod finding;
mod report;
mod runs;
mod session;
pub(crate) mod tolerance;
mod verdict;

pub use finding::Finding;
pub use report::{Cell, Reading, Report, Table, Tally};
pub use session::{
    CacheEffect, Clusters, Overwrite, OverwriteSetting, Progress, Scale, Sent, Session,
    TestbedLimits, TestbedSetting, Throughput, TransferSetting, Transfers,
};
pub use tolerance::{Rule, Tolerance, rules};
pub use verdict::{Goal, Paper, Verdict};

use crate::error::LabError;
pub(crate) use crate::sample::{least_and_most, mean};

/// An experiment that can be run.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its id: the paper, and the figure or table, such as `COD-T32`.
    pub id: &'static str,
    /// Letters of the figure's parts. Each may follow the id, as in `COD-F52b`, and runs all of them.
    pub parts: &'static str,
    /// Its subject, in a few words.
    pub title: &'static str,
    /// Whether one run suffices: nothing is left to chance, or one run has as many draws as the paper's.
    pub is_one_enough: bool,
    /// Whether it needs racks with limited links, which only root can make.
    pub needs_testbed: bool,
    /// Runs it.
    pub run: fn(&Session<'_>) -> Result<Report, LabError>,
}

impl Experiment {
    /// An experiment of a figure without parts.
    pub(crate) const fn new(
        id: &'static str,
        title: &'static str,
        run: fn(&Session<'_>) -> Result<Report, LabError>,
    ) -> Self {
        Self {
            id,
            parts: "",
            title,
            is_one_enough: false,
            needs_testbed: false,
            run,
        }
    }

    /// The same with parts, named by letters.
    #[must_use]
    pub(crate) const fn with_parts(mut self, parts: &'static str) -> Self {
        self.parts = parts;
        self
    }

    /// The same, of which one run suffices.
    #[must_use]
    pub(crate) const fn once(mut self) -> Self {
        self.is_one_enough = true;
        self
    }

    /// The same, on racks with limited links.
    #[must_use]
    pub(crate) const fn on_testbed(mut self) -> Self {
        self.needs_testbed = true;
        self
    }

    /// Runs at a scale unless another number is asked for: 3 at the usual one, as far as more than one says more.
    pub fn run_count(&self, scale: Scale) -> u64 {
        if scale == Scale::Usual && !self.is_one_enough {
            3
        } else {
            1
        }
    }

    pub(crate) fn is_called(&self, id: &str) -> bool {
        let Some((known, part)) = id.split_at_checked(self.id.len()) else {
            return false;
        };
        known.eq_ignore_ascii_case(self.id)
            && (part.is_empty()
                || (part.len() == 1 && self.parts.contains(&part.to_ascii_lowercase())))
    }
}
