//! The coordinator's disk, and a view of it without faults.

use gabion_meta::{KeyValue, MemoryStore, MetaError, ReadTxn, WriteTxn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The coordinator's disk: transactions that were committed survive.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetaDisk {
    pub(crate) store: Arc<MemoryStore>,
    /// Transactions with changes.
    pub(crate) write_count: Arc<AtomicU64>,
    /// The number of the transaction whose commit reports a failure, although it is durable; 0 is none.
    pub(crate) doubtful: Arc<AtomicU64>,
}

impl MetaDisk {
    /// A disk with a copy of this one's present contents.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::default();
        let rows = self.store.rows();
        let written = copy.store.write(|txn| {
            let mut rows = rows.iter();
            rows.try_for_each(|(key, value)| txn.put(key, value))
        });
        written.expect("a new disk does not fail");
        copy
    }
}

impl KeyValue for MetaDisk {
    fn read<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        self.store.read(body)
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let number = 1 + self.write_count.fetch_add(1, Ordering::Relaxed);
        let done = self.store.write(body);
        if done.is_ok() && self.doubtful.load(Ordering::Relaxed) == number {
            self.store.fail_after(0);
            return Err(MetaError::Storage {
                operation: "commit",
                reason: "its outcome is not known".to_owned(),
            });
        }
        done
    }
}

/// Reads the coordinator's metadata from its disk, also while the coordinator is down.
#[derive(Clone, Debug)]
pub(crate) struct Onlooker(pub(crate) MetaDisk);

impl KeyValue for Onlooker {
    fn read<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        self.0.store.look(body)
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        self.0.write(body)
    }
}
