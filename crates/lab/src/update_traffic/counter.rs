//! The counter of an update scheme's traffic, and the settings that it takes.

use super::layout::Stripes;
use super::moved::Moved;
use super::touched::Batch;
use crate::error::LabError;
use gabion_layout::GroupingRule;

/// Settings of the schemes that let parity wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Stripes that may have appended updates before a commit, `u_s`.
    pub stripes_max: u64,
    /// Interim replicas of each appended chunk.
    pub replicas: usize,
    /// When data grouping moves chunks after a commit; never if none.
    pub grouping: Option<GroupingRule>,
}

impl Default for Options {
    /// The defaults of CAU's section 5.1, but without data grouping.
    fn default() -> Self {
        Self {
            stripes_max: 100,
            replicas: 1,
            grouping: None,
        }
    }
}

/// An update scheme that is being counted. It may remember what it likes between writes: logs that
/// are yet to be committed, or which chunks were updated before.
pub trait TrafficCounter {
    /// Counts what one write updates in one stripe.
    ///
    /// # Errors
    /// When the planner has no plan for it.
    fn write(&mut self, stripes: &Stripes, batch: &Batch<'_>) -> Result<(), LabError>;

    /// Counts what is still due at the trace's end, and gives the bytes that crossed racks.
    ///
    /// # Errors
    /// When the planner has no plan for what is due.
    fn finish(self: Box<Self>, stripes: &Stripes) -> Result<Moved, LabError>;
}
