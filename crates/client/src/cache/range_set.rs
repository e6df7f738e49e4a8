//! A set of bytes as ranges of addresses.

use gabion_layout::ByteRange;
use std::collections::BTreeMap;

/// Addresses, kept as the smallest number of ranges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RangeSet {
    /// End by start.
    /// Invariant: ranges are not empty and neither overlap nor touch.
    ends: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The set of one range.
    pub(super) fn of(range: ByteRange) -> Self {
        let mut set = Self::default();
        set.insert(range);
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Number of ranges.
    pub(super) fn range_count(&self) -> u64 {
        self.ends.len() as u64
    }

    /// All ranges, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = ByteRange> {
        self.ends.iter().map(|(&start, &end)| range(start, end))
    }

    /// Adds a range; merges those that it overlaps or touches.
    pub(super) fn insert(&mut self, new: ByteRange) {
        if new.is_empty() {
            return;
        }
        let (mut start, mut end) = (new.offset, new.end());
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.ends.remove(&other);
            start = start.min(other);
            end = end.max(other_end);
        }
        self.ends.insert(start, end);
    }

    /// Removes a range; this may split one in two.
    pub(super) fn remove(&mut self, gone: ByteRange) {
        if gone.is_empty() {
            return;
        }
        while let Some((&other, &other_end)) = self.ends.range(..gone.end()).next_back() {
            if other_end <= gone.offset {
                break;
            }
            self.ends.remove(&other);
            if other_end > gone.end() {
                self.ends.insert(gone.end(), other_end);
            }
            if other < gone.offset {
                self.ends.insert(other, gone.offset);
            }
        }
    }

    /// The parts of a range in the set, in order.
    pub(super) fn within(&self, wanted: ByteRange) -> impl Iterator<Item = ByteRange> {
        let before = self.ends.range(..wanted.offset).next_back();
        let inside = self.ends.range(wanted.offset..wanted.end());
        let all = before.into_iter().chain(inside);
        all.filter_map(move |(&start, &end)| range(start, end).intersect(wanted))
    }

    /// The parts of a range outside the set, in order.
    pub(super) fn gaps(&self, wanted: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut at = wanted.offset;
        for found in self.within(wanted) {
            gaps.push(range(at, found.offset));
            at = found.end();
        }
        gaps.push(range(at, wanted.end()));
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// Whether any byte of a range is in the set.
    pub(super) fn touches(&self, wanted: ByteRange) -> bool {
        self.within(wanted).next().is_some()
    }

    /// Number of bytes of a range in the set.
    pub(super) fn bytes_within(&self, wanted: ByteRange) -> u64 {
        self.within(wanted).map(|part| part.length).sum()
    }
}

const fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end - start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 64;

    proptest! {
        #[test]
        fn it_holds_what_a_table_of_bytes_holds(
            steps in prop::collection::vec((any::<bool>(), 0..SIZE, 0..SIZE), 0..60),
            wanted in (0..SIZE, 0..SIZE),
        ) {
            let mut set = RangeSet::default();
            let mut model = [false; 2 * SIZE as usize];
            for (is_insert, offset, length) in steps {
                let step = ByteRange::new(offset, length);
                if is_insert { set.insert(step) } else { set.remove(step) }
                model[offset as usize..step.end() as usize].fill(is_insert);
                let mut last_end = None;
                for found in set.iter() {
                    prop_assert!(!found.is_empty() && last_end < Some(found.offset));
                    last_end = Some(found.end());
                }
            }
            let wanted = ByteRange::new(wanted.0, wanted.1);
            let mut seen = model;
            for found in set.within(wanted) {
                prop_assert!(wanted.intersect(found) == Some(found));
                let found = &mut seen[found.offset as usize..found.end() as usize];
                prop_assert!(found.iter().all(|&is_in| is_in));
                found.fill(false);
            }
            for gap in set.gaps(wanted) {
                prop_assert!(wanted.intersect(gap) == Some(gap));
                let gap = &mut seen[gap.offset as usize..gap.end() as usize];
                prop_assert!(gap.iter().all(|&is_in| !is_in));
                gap.fill(true);
            }
            // The complement of the set within the wanted range.
            for at in wanted.offset..wanted.end() {
                prop_assert_ne!(seen[at as usize], model[at as usize]);
            }
            let inside = &model[wanted.offset as usize..wanted.end() as usize];
            let count = inside.iter().filter(|&&is_in| is_in).count() as u64;
            prop_assert_eq!(set.bytes_within(wanted), count);
            prop_assert_eq!(set.touches(wanted), count > 0);
        }
    }
}
