//! A set of sectors, kept as extents: runs of neighbouring sectors, so that memory grows with the
//! number of runs and not with the sectors in them.

use std::collections::BTreeMap;

/// A run of sectors, `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// First sector.
    pub(crate) start: u64,
    /// One past the last sector.
    pub(crate) end: u64,
}

impl Extent {
    /// Number of sectors.
    pub(crate) const fn sector_count(self) -> u64 {
        self.end - self.start
    }

    /// Sectors that both runs have.
    pub(crate) fn shared_count(self, other: Self) -> u64 {
        let end = self.end.min(other.end);
        end.saturating_sub(self.start.max(other.start))
    }
}

/// A set of sectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExtentSet {
    /// Ends by starts.
    /// Invariant: extents are not empty, and neither overlap nor touch each other.
    ends: BTreeMap<u64, u64>,
    /// Invariant: the number of sectors in all extents.
    sector_count: u64,
}

impl ExtentSet {
    /// Number of sectors in the set.
    pub(crate) const fn sector_count(&self) -> u64 {
        self.sector_count
    }

    /// The extents that share at least one sector with `extent`, by address.
    pub(crate) fn overlapping(&self, extent: Extent) -> impl Iterator<Item = Extent> {
        let before = self.ends.range(..extent.start).next_back();
        let reaching = before.filter(move |(_, end)| **end > extent.start);
        reaching
            .into_iter()
            .chain(self.ends.range(extent.start..extent.end))
            .map(|(&start, &end)| Extent { start, end })
    }

    /// Adds the sectors of `extent`, and merges it with extents that it overlaps or touches.
    pub(crate) fn insert(&mut self, extent: Extent) {
        assert!(
            extent.start < extent.end,
            "an extent has at least one sector"
        );
        let mut merged = extent;
        if let Some((&start, &end)) = self.ends.range(..=extent.start).next_back() {
            if end >= extent.end {
                return;
            }
            if end >= extent.start {
                merged.start = start;
            }
        }
        // The one that starts first may begin before `extent`; all others begin within or at its end.
        while let Some((&start, &end)) = self.ends.range(merged.start..=merged.end).next() {
            self.ends.remove(&start);
            self.sector_count -= end - start;
            merged.end = merged.end.max(end);
        }
        self.ends.insert(merged.start, merged.end);
        self.sector_count += merged.sector_count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_set_of_sectors(runs in prop::collection::vec((0u64..120, 1u64..20), 0..60)) {
            let mut extents = ExtentSet::default();
            let mut sectors = BTreeSet::new();
            for (start, length) in runs {
                let extent = Extent { start, end: start + length };
                let shared: u64 = extents.overlapping(extent).map(|e| e.shared_count(extent)).sum();
                let expected = sectors.range(start..start + length).count() as u64;
                prop_assert_eq!(shared, expected);
                prop_assert!(extents.overlapping(extent).all(|e| e.shared_count(extent) > 0));
                extents.insert(extent);
                sectors.extend(start..start + length);
                prop_assert_eq!(extents.sector_count(), sectors.len() as u64);
            }
            let kept: Vec<(u64, u64)> = extents.ends.into_iter().collect();
            prop_assert!(kept.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", kept);
            let flat: Vec<u64> = kept.iter().flat_map(|&(start, end)| start..end).collect();
            prop_assert_eq!(flat, sectors.into_iter().collect::<Vec<_>>());
        }
    }
}
