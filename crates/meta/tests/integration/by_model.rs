//! The engines of this crate by the model: in memory with failures, on disk with restarts and kills.

use crate::model::{Bed, operations, run};
use gabion_meta::{MemoryStore, Meta, MetaError, RedbStore, Row};
use proptest::prelude::*;
use std::path::PathBuf;
use tempfile::TempDir;

/// In memory: operations fail at changing points and are tried again.
struct MemoryBed {
    /// Chooses the failure points; its own small generator, so that a failing case can be replayed.
    cuts: u64,
}

impl Bed for MemoryBed {
    type Store = MemoryStore;

    fn create(&mut self) -> MemoryStore {
        MemoryStore::new()
    }

    fn reopen(&mut self, store: MemoryStore, _: bool) -> MemoryStore {
        store
    }

    fn perform<T>(
        &mut self,
        meta: &Meta<MemoryStore>,
        operation: impl Fn() -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        self.cuts = self.cuts.wrapping_mul(6_364_136_223_846_793_005) + 1;
        let store = meta.store();
        let before = rows_without_leases(store);
        store.fail_after(self.cuts >> 59);
        let result = operation();
        store.heal();
        match result {
            Err(MetaError::Storage { .. }) => {
                assert!(
                    rows_without_leases(store) == before,
                    "a failed transaction changed something"
                );
                operation()
            }
            other => other,
        }
    }
}

/// All rows but the counters of leased ids: a block may be leased for a transaction that then fails.
fn rows_without_leases(store: &MemoryStore) -> Vec<Row> {
    let mut rows = store.rows();
    rows.retain(|(key, _)| {
        ![[2, 2], [2, 3], [2, 8]].contains(&key.as_slice().try_into().unwrap_or([0; 2]))
    });
    rows
}

/// On disk: a kill leaves the file as it is between two commits.
struct RedbBed {
    directory: TempDir,
    runs: u32,
}

impl RedbBed {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { directory, runs: 0 }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(format!("{}.redb", self.runs))
    }
}

impl Bed for RedbBed {
    type Store = RedbStore;

    fn create(&mut self) -> RedbStore {
        RedbStore::create(&self.path()).expect("a new store")
    }

    fn reopen(&mut self, store: RedbStore, killed: bool) -> RedbStore {
        if killed {
            // The copy lacks the writes of a clean shutdown.
            let old = self.path();
            self.runs += 1;
            std::fs::copy(old, self.path()).expect("a copy");
        }
        drop(store);
        RedbStore::open(&self.path()).expect("an intact store")
    }

    fn perform<T>(
        &mut self,
        _: &Meta<RedbStore>,
        operation: impl Fn() -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        operation()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn in_memory_with_failures(operations in operations(120), cuts: u64) {
        run(MemoryBed { cuts }, &operations);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn on_disk_with_restarts_and_kills(operations in operations(60)) {
        run(RedbBed::new(), &operations);
    }
}
