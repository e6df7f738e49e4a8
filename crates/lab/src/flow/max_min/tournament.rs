//! The smallest of many keys that often change: a tournament, in which the smaller of two keys advances.
//!
//! When a key changes, only the matches that it had won or now wins are played again; these are few unless it is the
//! first of all. A heap with an entry for each change would be full of invalid entries.

/// A key after all others. Places without a key have it.
pub(super) const NEVER: u128 = u128::MAX;

/// The least of the keys that numbered places have. A key is one number, so that a match is one comparison.
#[derive(Debug)]
pub(super) struct Tournament {
    /// Invariant: the second half, a power of two, are the keys by place; before it, what is at `i` is the least
    /// of those at `2 i` and `2 i + 1`. Nothing is at 0.
    matches: Vec<u128>,
}

impl Tournament {
    /// No place has a key yet.
    pub(super) fn new() -> Self {
        Self {
            matches: vec![NEVER; 2],
        }
    }

    /// Gives keys to the first places, and takes those of all others.
    pub(super) fn restart(&mut self, keys: impl ExactSizeIterator<Item = u128>) {
        let half = keys.len().next_power_of_two();
        self.matches.resize(2 * half, NEVER);
        let keys = keys.chain(std::iter::repeat(NEVER));
        for (place, key) in self.matches[half..].iter_mut().zip(keys) {
            *place = key;
        }
        for at in (1..half).rev() {
            self.matches[at] = self.matches[2 * at].min(self.matches[2 * at + 1]);
        }
    }

    /// The least key.
    pub(super) fn first(&self) -> Option<u128> {
        Some(self.matches[1]).filter(|&key| key != NEVER)
    }

    /// Gives a key to a place.
    pub(super) fn set(&mut self, place: usize, key: u128) {
        while place >= self.matches.len() / 2 {
            let mut keys = self.matches.split_off(self.matches.len() / 2);
            keys.resize(2 * keys.len(), NEVER);
            self.restart(keys.into_iter());
        }
        self.put(place, key);
    }

    /// Takes the key of a place that has one.
    pub(super) fn remove(&mut self, place: usize) {
        self.put(place, NEVER);
    }

    fn put(&mut self, place: usize, mut key: u128) {
        let matches = self.matches.as_mut_slice();
        let mut at = matches.len() / 2 + place;
        while at > 1 && matches[at] != key {
            matches[at] = key;
            key = key.min(matches[at ^ 1]);
            at /= 2;
        }
        if at == 1 {
            matches[1] = key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_first_is_the_least_of_all(
            changes in prop::collection::vec((0_usize..40, prop::option::of(0_u128..100)), 0..200),
            restarted_with in prop::collection::vec(0_u128..100, 0..20),
        ) {
            let mut tournament = Tournament::new();
            let mut keys = BTreeMap::new();
            for (number, &(place, key)) in changes.iter().enumerate() {
                match key {
                    Some(key) => {
                        tournament.set(place, key);
                        keys.insert(place, key);
                    }
                    None => {
                        if keys.remove(&place).is_some() {
                            tournament.remove(place);
                        }
                    }
                }
                prop_assert_eq!(tournament.first(), keys.values().copied().min());
                if number == changes.len() / 2 {
                    tournament.restart(restarted_with.iter().copied());
                    keys = restarted_with.iter().copied().enumerate().collect();
                    prop_assert_eq!(tournament.first(), keys.values().copied().min());
                }
            }
        }
    }
}
