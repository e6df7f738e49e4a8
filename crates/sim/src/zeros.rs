//! Zero cells of files that were truncated or punched. Zeros do not name the operation that they are of, so
//! this is weaker than [`crate::registers`]' check of other cells, and every violation that it finds is one:
//!
//! - A zero cell is wrong if each operation that may have made it zero was followed by a write that is
//!   acknowledged, and all of this ended before the read was called.
//! - A cell that shows a write is wrong if an acknowledged truncation or hole has made it zero after the
//!   write was over and before the read was called.

use crate::cells::UpdateId;
use std::collections::BTreeMap;
use std::ops::Range;

/// A write of a file.
#[derive(Clone, Debug)]
struct Write {
    cells: Range<u64>,
    called_us: u64,
    /// When it was acknowledged.
    made_us: Option<u64>,
    /// When it was over, acknowledged or not.
    over_us: Option<u64>,
}

/// An operation that makes cells zero: the creation of the file, a truncation, a hole.
#[derive(Clone, Debug)]
struct Zeroing {
    cells: Range<u64>,
    called_us: u64,
    /// `u64::MAX` without an acknowledgement: it may take effect at any time.
    made_us: u64,
}

/// The writes of a file, and the operations that make its cells zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zeros {
    /// Cells from this one on are zero when the file is created.
    put_cells: u64,
    writes: BTreeMap<UpdateId, Write>,
    zeroings: Vec<Zeroing>,
}

impl Zeros {
    /// Those of a file whose put has this many cells.
    pub(crate) fn behind(put_cells: u64) -> Self {
        Self {
            put_cells,
            ..Self::default()
        }
    }

    /// Whether cells may have become zero again.
    pub(crate) fn is_any(&self) -> bool {
        !self.zeroings.is_empty()
    }

    pub(crate) fn called(&mut self, write: UpdateId, cells: &[Range<u64>], called_us: u64) {
        let cells = cells
            .iter()
            .cloned()
            .reduce(|all, next| all.start..next.end);
        let fresh = Write {
            cells: cells.unwrap_or_default(),
            called_us,
            made_us: None,
            over_us: None,
        };
        self.writes.insert(write, fresh);
    }

    pub(crate) fn acknowledged(&mut self, write: UpdateId, now_us: u64) {
        self.ended(write, now_us);
        if let Some(known) = self.writes.get_mut(&write) {
            known.made_us.get_or_insert(now_us);
        }
    }

    pub(crate) fn ended(&mut self, write: UpdateId, now_us: u64) {
        if let Some(known) = self.writes.get_mut(&write) {
            known.over_us.get_or_insert(now_us);
        }
    }

    /// A client calls an operation that makes cells zero. Returns its number.
    pub(crate) fn zeroing(&mut self, cells: Range<u64>, called_us: u64) -> usize {
        self.zeroings.push(Zeroing {
            cells,
            called_us,
            made_us: u64::MAX,
        });
        self.zeroings.len() - 1
    }

    /// It was acknowledged.
    pub(crate) fn zeroed(&mut self, number: usize, now_us: u64) {
        self.zeroings[number].made_us = now_us;
    }

    /// The first of some zero cells that cannot be zero.
    pub(crate) fn wrong_zero(
        &self,
        cells: &Range<u64>,
        called_us: u64,
        answered_us: u64,
    ) -> Option<u64> {
        let creation = Zeroing {
            cells: self.put_cells..u64::MAX,
            called_us: 0,
            made_us: 0,
        };
        let mut wrong = vec![cells.clone()];
        for zeroing in self.zeroings.iter().chain([&creation]) {
            if zeroing.called_us > answered_us {
                continue;
            }
            let mut right = vec![intersection(cells, &zeroing.cells)];
            for write in self.writes.values() {
                let is_between = zeroing.made_us < write.called_us
                    && write.made_us.is_some_and(|made_us| made_us < called_us);
                if is_between {
                    right = without(&right, &write.cells);
                }
            }
            for range in &right {
                wrong = without(&wrong, range);
            }
        }
        wrong.first().map(|range| range.start)
    }

    /// The first of the cells that show a write although they must have become zero.
    pub(crate) fn wrong_write(
        &self,
        cells: &Range<u64>,
        write: UpdateId,
        called_us: u64,
    ) -> Option<u64> {
        let over_us = self.writes.get(&write)?.over_us?;
        self.zeroings.iter().find_map(|zeroing| {
            let is_between = over_us < zeroing.called_us && zeroing.made_us < called_us;
            let common = intersection(cells, &zeroing.cells);
            (is_between && !common.is_empty()).then_some(common.start)
        })
    }
}

fn intersection(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// Ranges without the cells of another.
fn without(ranges: &[Range<u64>], gone: &Range<u64>) -> Vec<Range<u64>> {
    let parts = ranges.iter().flat_map(|range| {
        let before = range.start..range.end.min(gone.start);
        let behind = range.start.max(gone.end)..range.end;
        let is_apart = gone.is_empty() || gone.end <= range.start || range.end <= gone.start;
        if is_apart {
            [range.clone(), 0..0]
        } else {
            [before, behind]
        }
    });
    parts.filter(|range| !range.is_empty()).collect()
}
