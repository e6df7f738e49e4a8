//! An engine in memory that counts the rows which transactions read.

use gabion_meta::{KeyValue, MemoryStore, MetaError, ReadTxn, Row, WriteTxn};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The engine.
#[derive(Default)]
pub(crate) struct Counted {
    store: MemoryStore,
    row_count: AtomicU64,
}

impl Counted {
    /// The rows that were read since the last call, each question that finds none included.
    pub(crate) fn take(&self) -> u64 {
        self.row_count.swap(0, Relaxed)
    }
}

impl KeyValue for Counted {
    fn read<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let row_count = &self.row_count;
        self.store.read(|txn| body(&Reading { txn, row_count }))
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let row_count = &self.row_count;
        self.store
            .write(|txn| body(&mut Writing { txn, row_count }))
    }
}

struct Reading<'t> {
    txn: &'t dyn ReadTxn,
    row_count: &'t AtomicU64,
}

impl ReadTxn for Reading<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        self.row_count.fetch_add(1, Relaxed);
        self.txn.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError> {
        let rows = self.txn.scan(start, end, limit)?;
        self.row_count.fetch_add(rows.len().max(1) as u64, Relaxed);
        Ok(rows)
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        self.row_count.fetch_add(1, Relaxed);
        self.txn.last(start, end)
    }
}

struct Writing<'t> {
    txn: &'t mut dyn WriteTxn,
    row_count: &'t AtomicU64,
}

impl Writing<'_> {
    fn reading(&self) -> Reading<'_> {
        Reading {
            txn: &*self.txn,
            row_count: self.row_count,
        }
    }
}

impl ReadTxn for Writing<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        self.reading().get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError> {
        self.reading().scan(start, end, limit)
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        self.reading().last(start, end)
    }
}

impl WriteTxn for Writing<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), MetaError> {
        self.txn.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {
        self.txn.delete(key)
    }
}
