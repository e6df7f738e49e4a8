//! The bytes of a file in which an owner may have locks, whatever their modes.

use gabion_meta::LockRange;

/// Disjoint ranges that do not touch each other, in no order.
#[derive(Debug, Default)]
pub(super) struct HeldRanges(Vec<LockRange>);

impl HeldRanges {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The owner may have locks in a range.
    pub(super) fn add(&mut self, range: LockRange) {
        let mut whole = range;
        self.0.retain(|held| {
            let meets = held.first <= whole.last.saturating_add(1)
                && whole.first <= held.last.saturating_add(1);
            if meets {
                whole.first = whole.first.min(held.first);
                whole.last = whole.last.max(held.last);
            }
            !meets
        });
        self.0.push(whole);
    }

    /// The owner has no lock in a range.
    pub(super) fn remove(&mut self, range: LockRange) {
        let (kept, cut): (Vec<_>, Vec<_>) =
            self.0.drain(..).partition(|held| !held.overlaps(range));
        self.0 = kept;
        for held in cut {
            if held.first < range.first {
                let last = range.first - 1;
                self.0.push(LockRange { last, ..held });
            }
            if range.last < held.last {
                let first = range.last + 1;
                self.0.push(LockRange { first, ..held });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(first: u64, last: u64) -> LockRange {
        LockRange { first, last }
    }

    fn check(added: &[(u64, u64)], removed: &[(u64, u64)], left: &[(u64, u64)]) {
        let mut held = HeldRanges::default();
        for &(first, last) in added {
            held.add(range(first, last));
        }
        for &(first, last) in removed {
            held.remove(range(first, last));
        }
        let mut found: Vec<_> = held.0.iter().map(|held| (held.first, held.last)).collect();
        found.sort_unstable();
        assert_eq!(found, left, "{added:?} without {removed:?}");
    }

    #[test]
    fn a_range_is_held_until_all_of_its_bytes_are_unlocked() {
        check(&[(5, 9)], &[(5, 9)], &[]);
        check(&[(5, 9)], &[(0, u64::MAX)], &[]);
        check(&[(5, 9)], &[(0, 4), (10, 20)], &[(5, 9)]);
        check(&[(5, 9)], &[(6, 7)], &[(5, 5), (8, 9)]);
        check(&[(5, 9)], &[(5, 6), (8, 9)], &[(7, 7)]);
        check(&[(0, u64::MAX)], &[(1, u64::MAX)], &[(0, 0)]);
        check(&[(0, u64::MAX)], &[(0, 4)], &[(5, u64::MAX)]);
    }

    #[test]
    fn neighbours_are_one_range() {
        check(&[(0, 4), (10, 14), (5, 9)], &[], &[(0, 14)]);
        check(&[(0, 4), (6, 9), (2, 7)], &[(0, 9)], &[]);
        check(
            &[(3, u64::MAX), (u64::MAX, u64::MAX), (0, 2)],
            &[],
            &[(0, u64::MAX)],
        );
    }
}
