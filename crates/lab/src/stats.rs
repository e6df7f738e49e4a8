//! Statistics of a request stream on its volume, by the counting rules of Table 3.2 of the `CodFS` thesis: the number
//! of writes, the working set, the updated part of it, and the share of writes that are updates.
//!
//! Everything counts by file order, in sectors of 512 bytes, and reads and writes both count as accesses.

use crate::extents::{Extent, ExtentSet};
use crate::trace::{Request, RequestKind};
use serde::Serialize;

/// Bytes of a sector; a request that covers part of a sector accesses all of it.
pub const SECTOR_BYTES: u64 = 512;
/// Sectors of a GiB.
const GIB_SECTORS: f64 = ((1_u64 << 30) / SECTOR_BYTES) as f64;

/// The counts of a request stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Stats {
    /// Write requests.
    pub writes: u64,
    /// Distinct sectors read or written: the working set.
    pub working_set_sectors: u64,
    /// Sectors written, each as often as it was.
    pub written_sectors: u64,
    /// Those of `written_sectors` that had been read or written before.
    pub update_sectors: u64,
    /// Sectors of the working set in updated extents. Accessed sectors that overlap or touch are one
    /// extent, and a write marks all of each extent that it overlaps, as it stood just before.
    pub updated_extent_sectors: u64,
    /// Sectors of the working set that were written after an access: the plain share, without
    /// extents, and at most `updated_extent_sectors`.
    pub updated_sectors: u64,
}

impl Stats {
    /// The counts of a whole stream.
    ///
    /// # Errors
    /// The stream's first error.
    pub fn of<E>(requests: impl IntoIterator<Item = Result<Request, E>>) -> Result<Self, E> {
        let mut count = StatsCount::default();
        for request in requests {
            count.add(&request?);
        }
        Ok(count.stats())
    }

    /// The working set in GiB.
    pub fn working_set_gib(&self) -> f64 {
        self.working_set_sectors as f64 / GIB_SECTORS
    }

    /// Per cent of the working set in updated extents, the table's column; 0 when nothing was
    /// accessed.
    pub fn updated_working_set_pct(&self) -> f64 {
        percent(self.updated_extent_sectors, self.working_set_sectors)
    }

    /// Per cent of the working set's sectors that were updated themselves; 0 when nothing was
    /// accessed.
    pub fn updated_sectors_pct(&self) -> f64 {
        percent(self.updated_sectors, self.working_set_sectors)
    }

    /// Per cent of written sectors that were updates; 0 when nothing was written.
    pub fn update_writes_pct(&self) -> f64 {
        percent(self.update_sectors, self.written_sectors)
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

/// A count in progress. Its memory grows with the extents of the working set, not with requests.
#[derive(Clone, Debug, Default)]
pub struct StatsCount {
    writes: u64,
    written_sectors: u64,
    update_sectors: u64,
    accessed: ExtentSet,
    updated_extents: ExtentSet,
    updated: ExtentSet,
}

impl StatsCount {
    /// Counts one more request. Gives how many of a write's sectors had been accessed before: a write
    /// with any is an update. For a read this is 0.
    pub fn add(&mut self, request: &Request) -> u64 {
        let mut known_sectors = 0;
        let extent = Extent {
            start: request.offset_bytes / SECTOR_BYTES,
            end: request.end_bytes().div_ceil(SECTOR_BYTES),
        };
        if request.kind == RequestKind::Write {
            self.writes += 1;
            self.written_sectors += extent.sector_count();
            for known in self.accessed.overlapping(extent) {
                known_sectors += known.shared_count(extent);
                self.updated_extents.insert(known);
                self.updated.insert(Extent {
                    start: known.start.max(extent.start),
                    end: known.end.min(extent.end),
                });
            }
        }
        self.update_sectors += known_sectors;
        self.accessed.insert(extent);
        known_sectors
    }

    /// The counts so far.
    pub fn stats(&self) -> Stats {
        Stats {
            writes: self.writes,
            working_set_sectors: self.accessed.sector_count(),
            written_sectors: self.written_sectors,
            update_sectors: self.update_sectors,
            updated_extent_sectors: self.updated_extents.sector_count(),
            updated_sectors: self.updated.sector_count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RequestKind::{Read, Write};
    use std::convert::Infallible;

    fn check(requests: &[(RequestKind, u64, u64)], expected: Stats) {
        let requests = requests.iter().map(|&(kind, offset_bytes, length_bytes)| {
            Ok::<_, Infallible>(Request {
                at_ticks: 0,
                kind,
                offset_bytes,
                length_bytes,
            })
        });
        assert_eq!(Stats::of(requests).unwrap(), expected);
    }

    #[test]
    fn a_write_marks_whole_extents_as_they_stood_before() {
        // Sectors 0..4 and 4..8 touch and so are one extent; the write of 7..12 marks 0..8 and no more.
        let requests = [
            (Read, 0, 2048),
            (Write, 2048, 2048),
            (Write, 7 * 512, 5 * 512),
        ];
        check(
            &requests,
            Stats {
                writes: 2,
                working_set_sectors: 12,
                written_sectors: 9,
                update_sectors: 1,
                updated_extent_sectors: 8,
                updated_sectors: 1,
            },
        );
    }

    #[test]
    fn touching_alone_updates_nothing() {
        check(
            &[(Write, 0, 512), (Write, 512, 512), (Read, 0, 1024)],
            Stats {
                writes: 2,
                working_set_sectors: 2,
                written_sectors: 2,
                ..Stats::default()
            },
        );
    }

    #[test]
    fn a_part_of_a_sector_is_all_of_it() {
        check(
            &[(Write, 511, 2), (Write, 1023, 1)],
            Stats {
                writes: 2,
                working_set_sectors: 2,
                written_sectors: 3,
                update_sectors: 1,
                updated_extent_sectors: 2,
                updated_sectors: 1,
            },
        );
    }

    #[test]
    fn one_write_can_bridge_several_extents() {
        check(
            &[
                (Read, 0, 512),
                (Read, 1024, 512),
                (Read, 4096, 512),
                (Write, 0, 1536),
            ],
            Stats {
                writes: 1,
                working_set_sectors: 4,
                written_sectors: 3,
                update_sectors: 2,
                updated_extent_sectors: 2,
                updated_sectors: 2,
            },
        );
    }

    #[test]
    fn shares_of_nothing_are_zero() {
        let stats = Stats::default();
        let shares = [
            stats.updated_working_set_pct(),
            stats.updated_sectors_pct(),
            stats.update_writes_pct(),
        ];
        assert_eq!(shares.map(f64::to_bits), [0; 3]);
    }
}
