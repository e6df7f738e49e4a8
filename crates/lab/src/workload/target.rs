//! The statistics that a workload is calibrated to.

use super::files::Files;
use super::sizes::SizeShare;
use std::num::NonZeroU64;

/// The statistics that a workload is to have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Target {
    /// Write requests.
    pub writes: u64,
    /// Distinct bytes read or written, in GiB.
    pub working_set_gib: f64,
    /// Per cent of the working set in updated extents.
    pub updated_working_set_pct: f64,
    /// Per cent of written sectors that had been accessed before.
    pub update_writes_pct: f64,
    /// Sizes of writes.
    pub sizes: &'static [SizeShare],
    /// Places on the volume around which requests gather.
    pub area_count: u64,
    /// Bytes over which the areas are spread; more where they need more.
    pub span_bytes: u64,
    /// Sectors by which all addresses lie behind multiples of 4 KiB, as on a partition that begins at sector 63.
    pub shift_sectors: u64,
    /// Time that the requests are spread over, in units of 100 ns.
    pub duration_ticks: u64,
    /// Files that the requests are to; none for a bare volume.
    pub files: Option<Files>,
}

impl Target {
    /// The same mix with a part of the requests, data and files: one of `divisor`, and at least one
    /// write.
    #[must_use]
    pub fn part(mut self, divisor: NonZeroU64) -> Self {
        self.writes = (self.writes / divisor).max(1);
        self.working_set_gib /= divisor.get() as f64;
        self.files = self.files.map(|files| files.part(divisor));
        self
    }
}
