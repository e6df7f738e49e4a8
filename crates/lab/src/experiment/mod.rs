//! What every experiment of a paper has: its id and title, a [`Session`] with everything outside, and the
//! [`Report`] that it returns.

mod report;
mod runs;
mod session;
mod verdict;

pub(crate) use report::mean;
pub use report::{Cell, Finding, Report, Table};
pub use session::{
    CacheEffect, Clusters, Overwrite, OverwriteSetting, Progress, Scale, Sent, Session,
    TestbedLimits, TestbedSetting, Throughput, TransferSetting, Transfers,
};
pub(crate) use verdict::RATIO;
pub use verdict::{Goal, Paper, Tolerance, Verdict};

use crate::error::LabError;

/// An experiment that can be run.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its id: the paper, and the figure or table, such as `COD-T32`.
    pub id: &'static str,
    /// Letters of the figure's parts. Each may follow the id, as in `COD-F52b`, and runs all of them.
    pub parts: &'static str,
    /// Its subject, in a few words.
    pub title: &'static str,
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
            run,
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
