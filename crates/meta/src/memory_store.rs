//! An engine in memory, for tests and simulations: nothing survives the process, and it fails on
//! request.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, Row, WriteTxn};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard};

/// A [`KeyValue`] engine over a map.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Operations that still succeed; `None` for all.
    allowance: Option<u64>,
    /// The cause if `leads` says no; none for yes.
    deposed_by: Option<MetaError>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `operations` more reads, writes, scans and commits succeed. All later ones fail, and
    /// the transaction of the first that fails leaves no trace.
    pub fn fail_after(&self, operations: u64) {
        self.lock().allowance = Some(operations);
    }

    /// Ends [`MemoryStore::fail_after`].
    pub fn heal(&self) {
        self.lock().allowance = None;
    }

    /// Lets [`KeyValue::leads`] give this error from now on, or none.
    pub fn depose(&self, reason: Option<MetaError>) {
        self.lock().deposed_by = reason;
    }

    /// Reads without counting as an operation of [`MemoryStore::fail_after`], and never fails by
    /// it.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn look<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let state = self.lock();
        body(&Transaction {
            rows: &state.rows,
            changes: BTreeMap::new(),
            allowance: Cell::new(None),
        })
    }

    /// All rows, in order.
    pub fn rows(&self) -> Vec<Row> {
        let state = self.lock();
        let rows = state.rows.iter();
        rows.map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A transaction that panicked has changed nothing: changes are kept apart until commit.
        match self.state.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

impl KeyValue for MemoryStore {
    fn read<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let mut state = self.lock();
        let txn = Transaction::new(&state);
        let result = body(&txn);
        state.allowance = txn.allowance.get();
        result
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let mut state = self.lock();
        let mut txn = Transaction::new(&state);
        let result = body(&mut txn).and_then(|value| txn.spend("commit").map(|()| value));
        let (allowance, changes) = (txn.allowance.get(), txn.changes);
        state.allowance = allowance;
        if result.is_ok() {
            for (key, change) in changes {
                match change {
                    Some(value) => state.rows.insert(key, value),
                    None => state.rows.remove(&key),
                };
            }
        }
        result
    }

    fn leads(&self) -> Result<(), MetaError> {
        self.lock().deposed_by.clone().map_or(Ok(()), Err)
    }
}

/// The rows before, and the changes on top: `None` is a removed row.
struct Transaction<'s> {
    rows: &'s BTreeMap<Vec<u8>, Vec<u8>>,
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    allowance: Cell<Option<u64>>,
}

impl<'s> Transaction<'s> {
    fn new(state: &'s State) -> Self {
        Self {
            rows: &state.rows,
            changes: BTreeMap::new(),
            allowance: Cell::new(state.allowance),
        }
    }

    fn spend(&self, operation: &'static str) -> Result<(), MetaError> {
        let Some(left) = self.allowance.get() else {
            return Ok(());
        };
        let Some(less) = left.checked_sub(1) else {
            return Err(MetaError::Storage {
                operation,
                reason: "injected failure".to_owned(),
            });
        };
        self.allowance.set(Some(less));
        Ok(())
    }
}

impl ReadTxn for Transaction<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        self.spend("read")?;
        let changed = self.changes.get(key);
        Ok(changed.map_or_else(|| self.rows.get(key).cloned(), Clone::clone))
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError> {
        self.spend("scan")?;
        if start >= end {
            return Ok(Vec::new());
        }
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        let mut found: BTreeMap<&[u8], &[u8]> = self
            .rows
            .range::<[u8], _>(bounds)
            .take(limit.saturating_add(self.changes.len()))
            .map(|(key, value)| (key.as_slice(), value.as_slice()))
            .collect();
        for (key, change) in self.changes.range::<[u8], _>(bounds) {
            match change {
                Some(value) => found.insert(key, value),
                None => found.remove(key.as_slice()),
            };
        }
        let rows = found.into_iter().take(limit);
        Ok(rows
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect())
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        self.spend("find a row")?;
        if start >= end {
            return Ok(None);
        }
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        let unchanged = self.rows.range::<[u8], _>(bounds).rev();
        let unchanged = unchanged.filter(|(key, _)| !self.changes.contains_key(*key));
        let changed = self.changes.range::<[u8], _>(bounds).rev();
        let changed = changed.filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let last = unchanged.take(1).chain(changed.take(1)).max();
        Ok(last.map(|(key, value)| (key.clone(), value.clone())))
    }
}

impl WriteTxn for Transaction<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), MetaError> {
        self.spend("write")?;
        self.changes.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {
        self.spend("delete")?;
        self.changes.insert(key.to_vec(), None);
        Ok(())
    }
}
