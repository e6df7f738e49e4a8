//! The allotment of a file: pages of it that can be written even when the store is full, as
//! `fallocate` promises. The thesis has none; a node's store needs it.
//!
//! Allotting a page writes nothing, since the log would write the page elsewhere the next time
//! anyway. An allotted, unwritten page only counts as if it were written.

use std::ops::Range;

/// Most ranges in an inode.
pub(crate) const ALLOTTED_MAX: usize = 5;

/// Ranges of pages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Allotment {
    /// Invariant: none is empty, none touches another, they are sorted, and there are at most
    /// [`ALLOTTED_MAX`].
    ranges: Vec<Range<u32>>,
}

impl Allotment {
    /// Takes ranges as an inode has them. Empty ones are ignored.
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<u32>>) -> Self {
        let mut allotment = Self::default();
        for range in ranges {
            allotment.add(range);
        }
        allotment
    }

    pub(crate) fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        self.ranges.iter().any(|range| range.contains(&page))
    }

    /// Allots pages. If that makes too many ranges, the gap between the two closest is allotted
    /// too: this takes more than requested, but every promise is kept.
    pub(crate) fn add(&mut self, mut added: Range<u32>) {
        if added.is_empty() {
            return;
        }
        self.ranges.retain(|range| {
            let is_apart = range.end < added.start || added.end < range.start;
            if !is_apart {
                added = added.start.min(range.start)..added.end.max(range.end);
            }
            is_apart
        });
        let at = self
            .ranges
            .partition_point(|range| range.start < added.start);
        self.ranges.insert(at, added);
        if self.ranges.len() > ALLOTTED_MAX {
            let gap = |at: &usize| self.ranges[at + 1].start - self.ranges[*at].end;
            let closest = (0..self.ranges.len() - 1).min_by_key(gap);
            let closest = closest.expect("there are at least two");
            self.ranges[closest].end = self.ranges.remove(closest + 1).end;
        }
    }

    /// Withdraws pages. If that makes too many ranges, they stay allotted.
    pub(crate) fn subtract(&mut self, taken: &Range<u32>) {
        let mut left = Vec::new();
        for range in &self.ranges {
            let before = range.start..range.end.min(taken.start);
            let behind = range.start.max(taken.end)..range.end;
            left.extend([before, behind].into_iter().filter(|part| !part.is_empty()));
        }
        if left.len() <= ALLOTTED_MAX {
            self.ranges = left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_split() {
        let mut allotment = Allotment::default();
        allotment.add(0..10);
        allotment.add(20..30);
        allotment.add(10..12);
        assert_eq!(allotment.ranges(), [0..12, 20..30]);
        allotment.add(5..25);
        assert_eq!(allotment.ranges(), std::slice::from_ref(&(0..30)));
        allotment.subtract(&(10..20));
        assert_eq!(allotment.ranges(), [0..10, 20..30]);
        assert!(allotment.contains(9) && !allotment.contains(10) && allotment.contains(20));
        allotment.subtract(&(25..u32::MAX));
        allotment.subtract(&(0..3));
        assert_eq!(allotment.ranges(), [3..10, 20..25]);
    }

    #[test]
    fn too_many_ranges_take_more_than_was_asked_and_give_back_less() {
        let mut allotment = Allotment::new((0..ALLOTTED_MAX as u32).map(|at| at * 10..at * 10 + 5));
        allotment.add(7..8);
        assert_eq!(allotment.ranges()[0], 0..8);
        assert_eq!(allotment.ranges().len(), ALLOTTED_MAX);
        let before = allotment.clone();
        allotment.subtract(&(2..3));
        assert_eq!(allotment, before);
        allotment.subtract(&(0..8));
        assert!(!allotment.contains(7));
    }
}
