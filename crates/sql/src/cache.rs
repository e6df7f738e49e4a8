//! Rows that the leader knows, because it has read or written them. Only the leader changes rows, so its knowledge
//! stays true for its term. It also knows rows that do not exist.
//!
//! There are two generations: a row that is used moves to the young one, and when that is full, the old one is dropped.

use crate::pending::Change;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Bytes that a row takes beside its key and value, roughly.
const ROW_BYTES: usize = 96;

/// A bounded cache of rows.
#[derive(Debug)]
pub(crate) struct Cache {
    generations: Mutex<Generations>,
    /// Of the young generation.
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Vec<u8>, Change>,
    young_bytes: usize,
    old: HashMap<Vec<u8>, Change>,
}

impl Cache {
    /// A cache of at most about this size.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            generations: Mutex::default(),
            bytes_max: bytes / 2,
        }
    }

    /// Returns the known state of a row.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Change> {
        let mut generations = self.lock();
        if let Some(known) = generations.young.get(key) {
            return Some(known.clone());
        }
        let (key, known) = generations.old.remove_entry(key)?;
        generations.put(key, known.clone(), self.bytes_max);
        Some(known)
    }

    /// Notes the present state of a row.
    pub(crate) fn put(&self, key: &[u8], known: Change) {
        let mut generations = self.lock();
        generations.old.remove(key);
        generations.put(key.to_vec(), known, self.bytes_max);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Generations> {
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn put(&mut self, key: Vec<u8>, known: Change, bytes_max: usize) {
        let bytes = row_bytes(&key, &known);
        let key_bytes = key.len();
        self.young_bytes += bytes;
        if let Some(before) = self.young.insert(key, known) {
            let before = before.map_or(0, |value| value.len());
            self.young_bytes -= ROW_BYTES + key_bytes + before;
        }
        if self.young_bytes > bytes_max {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

fn row_bytes(key: &[u8], known: &Change) -> usize {
    ROW_BYTES + key.len() + known.as_ref().map_or(0, Vec::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_known_as_it_was_noted_last() {
        let cache = Cache::new(1 << 20);
        assert_eq!(cache.get(b"a"), None);
        cache.put(b"a", Some(b"1".to_vec()));
        cache.put(b"a", None);
        assert_eq!(cache.get(b"a"), Some(None));
    }

    #[test]
    fn what_is_used_stays_and_the_size_is_bounded() {
        let cache = Cache::new(200 * (ROW_BYTES + 2));
        cache.put(b"hot", Some(Vec::new()));
        for at in 0..10_000u16 {
            cache.put(&at.to_be_bytes(), None);
            assert_eq!(cache.get(b"hot"), Some(Some(Vec::new())), "after {at}");
        }
        let generations = cache.lock();
        let count = generations.young.len() + generations.old.len();
        assert!((100..=202).contains(&count), "{count} rows");
        let known: usize = generations
            .young
            .iter()
            .map(|(key, known)| row_bytes(key, known))
            .sum();
        assert_eq!(generations.young_bytes, known);
    }

    #[test]
    fn an_older_state_does_not_come_back() {
        let cache = Cache::new(200 * (ROW_BYTES + 2));
        cache.put(b"a", Some(b"old".to_vec()));
        for at in 0..100u16 {
            cache.put(&at.to_be_bytes(), None);
        }
        // It is in the old generation now.
        cache.put(b"a", Some(b"new".to_vec()));
        for at in 100..1000u16 {
            cache.put(&at.to_be_bytes(), None);
            let known = cache.get(b"a");
            assert_eq!(known, Some(Some(b"new".to_vec())), "after {at}");
        }
    }
}
