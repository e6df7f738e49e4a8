//! A set of addresses, kept as ranges.

use std::collections::BTreeMap;

/// Addresses by range: end by beginning. Invariant: disjoint, not adjacent, not empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds addresses; the answer is how many are new.
    pub(super) fn insert(&mut self, start: u64, length: u64) -> u64 {
        if length == 0 {
            return 0;
        }
        let (mut first, mut last) = (start, start + length);
        let mut known = 0;
        while let Some((&at, &end)) = self.0.range(..=last).next_back()
            && end >= first
        {
            known += end.min(start + length).saturating_sub(at.max(start));
            self.0.remove(&at);
            first = first.min(at);
            last = last.max(end);
        }
        self.0.insert(first, last);
        length - known
    }

    /// Takes addresses out; the answer is how many were there.
    pub(super) fn remove(&mut self, start: u64, length: u64) -> u64 {
        let stop = start.saturating_add(length);
        let mut taken = 0;
        while let Some((&at, &end)) = self.0.range(..stop).next_back()
            && end > start
        {
            self.0.remove(&at);
            taken += end.min(stop) - at.max(start);
            if at < start {
                self.0.insert(at, start);
            }
            if end > stop {
                self.0.insert(stop, end);
            }
        }
        taken
    }

    /// The parts of a range that are not in the set, in order.
    pub(super) fn gaps(&self, start: u64, length: u64) -> Vec<(u64, u64)> {
        let stop = start + length;
        let mut gaps = Vec::new();
        let mut at = start;
        let before = self.0.range(..start).next_back();
        for (&first, &end) in before.into_iter().chain(self.0.range(start..stop)) {
            if first > at {
                gaps.push((at, first - at));
            }
            at = at.max(end);
        }
        if at < stop {
            gaps.push((at, stop - at));
        }
        gaps
    }

    /// Start and length of each range, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&start, &end)| (start, end - start))
    }

    /// Takes the first range of at least `length` addresses, or the longest, cut to `length`.
    pub(super) fn take(&mut self, length: u64) -> Option<(u64, u64)> {
        let fits = self.iter().find(|&(_, free)| free >= length);
        let (start, free) = fits.or_else(|| self.iter().max_by_key(|&(_, free)| free))?;
        let taken = free.min(length);
        self.remove(start, taken);
        Some((start, taken))
    }

    /// Takes addresses from `start` on, as many as there are and at most `length`.
    pub(super) fn take_from(&mut self, start: u64, length: u64) -> u64 {
        let run = self.0.range(..=start).next_back();
        let end = run.map_or(start, |(_, &end)| end.max(start));
        let taken = (end - start).min(length);
        self.remove(start, taken);
        taken
    }
}
