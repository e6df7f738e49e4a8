//! Changes that are committed in memory but not known to be durable. They override the database's rows.

use gabion_meta::Row;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The value of a row; none if it is removed.
pub(crate) type Change = Option<Vec<u8>>;
/// Changes by key.
pub(crate) type Changes = BTreeMap<Vec<u8>, Change>;

/// The changes of all transactions that are not known to be durable.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last change of each row, with the number of its transaction.
    changes: BTreeMap<Vec<u8>, (u64, Change)>,
    /// The number of the last transaction.
    numbered: u64,
}

impl Pending {
    /// Commits a transaction in memory, and gives its number. The caller is the only one that does.
    pub(crate) fn apply(&self, changes: Changes) -> u64 {
        let mut state = self.lock();
        state.numbered += 1;
        let number = state.numbered;
        for (key, change) in changes {
            state.changes.insert(key, (number, change));
        }
        number
    }

    /// The number of the last transaction: those that a view shows have no later one.
    pub(crate) fn numbered(&self) -> u64 {
        self.lock().numbered
    }

    /// All changes, in the order of their keys, and the number of the last transaction.
    pub(crate) fn copy(&self) -> (u64, Vec<(Vec<u8>, Change)>) {
        let state = self.lock();
        let changes = state.changes.iter();
        let changes = changes.map(|(key, (_, change))| (key.clone(), change.clone()));
        (state.numbered, changes.collect())
    }

    /// Forgets the changes of the transactions up to this number: the database has them.
    pub(crate) fn retire(&self, number: u64) {
        let mut state = self.lock();
        state.changes.retain(|_, (of, _)| *of > number);
    }

    /// The change of a row.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Change> {
        self.lock()
            .changes
            .get(key)
            .map(|(_, change)| change.clone())
    }

    /// Adds the changes with `start <= key < end` to others.
    pub(crate) fn range(&self, start: &[u8], end: &[u8], into: &mut Changes) {
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        let state = self.lock();
        let changes = state.changes.range::<[u8], _>(bounds);
        into.extend(changes.map(|(key, (_, change))| (key.clone(), change.clone())));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every step, even if a caller panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lays changes over rows of a range in order, and gives the first `limit` of them. The rows are all of the range up to
/// the last one, or all of it if `is_whole`.
pub(crate) fn merged(rows: Vec<Row>, changes: Changes, limit: usize, is_whole: bool) -> Vec<Row> {
    let reach = rows.last().map(|(key, _)| key.clone());
    let mut all: Changes = rows
        .into_iter()
        .map(|(key, value)| (key, Some(value)))
        .collect();
    // Behind the last row that was read there may be others.
    let is_known = |key: &Vec<u8>| is_whole || reach.as_ref().is_some_and(|reach| key <= reach);
    all.extend(changes.into_iter().filter(|(key, _)| is_known(key)));
    let left = all
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    left.take(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(all: &[(&str, Option<&str>)]) -> Changes {
        let owned = |text: &str| text.as_bytes().to_vec();
        let one = |(key, value): &(&str, Option<&str>)| (owned(key), value.map(owned));
        all.iter().map(one).collect()
    }

    #[test]
    fn a_later_change_outlives_the_retirement_of_an_earlier_one() {
        let pending = Pending::default();
        assert_eq!(
            pending.apply(changes(&[("a", Some("1")), ("b", Some("1"))])),
            1
        );
        let (number, copied) = pending.copy();
        assert_eq!((number, copied.len()), (1, 2));
        assert_eq!(pending.apply(changes(&[("b", None)])), 2);
        pending.retire(number);
        assert_eq!(pending.get(b"a"), None, "the database has it");
        assert_eq!(pending.get(b"b"), Some(None), "the database does not know");
    }

    #[test]
    fn changes_behind_the_last_row_of_a_page_wait_for_the_next() {
        let rows = |all: &[&str]| -> Vec<Row> {
            let row = |key: &&str| (key.as_bytes().to_vec(), b"0".to_vec());
            all.iter().map(row).collect()
        };
        let over = || {
            changes(&[
                ("a", Some("0")),
                ("c", None),
                ("d", Some("0")),
                ("z", Some("0")),
            ])
        };
        let found = merged(rows(&["b", "c", "e"]), over(), 9, false);
        assert_eq!(found, rows(&["a", "b", "d", "e"]));
        let found = merged(rows(&["b", "c", "e"]), over(), 9, true);
        assert_eq!(found, rows(&["a", "b", "d", "e", "z"]));
        let found = merged(rows(&["b", "c", "e"]), over(), 2, false);
        assert_eq!(found, rows(&["a", "b"]));
    }
}
