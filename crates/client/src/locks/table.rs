//! The locks of a client, by file.

use super::file_locks::FileLocks;
use futures::lock::Mutex as AsyncMutex;
use gabion_meta::{LockOwner, PutId};
use gabion_protocol::locks::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Requests of a client that wait at the coordinator at the same time. Others wait here: unlocks need the connection.
const LONG_CALL_COUNT: usize = 64;
/// Number of files in the table from which on it is swept.
const SWEEP_COUNT_MIN: usize = 64;

/// The locks of a client.
pub(crate) struct Locks {
    files: Mutex<Table>,
    /// Owners that have closed a file, of which the coordinator does not know yet.
    pub(super) owed: Mutex<Vec<(Arc<FileLocks>, LockOwner)>>,
    long_calls: [AsyncMutex<()>; LONG_CALL_COUNT],
    next_long_call: AtomicUsize,
}

#[derive(Default)]
struct Table {
    files: BTreeMap<PutId, Weak<FileLocks>>,
    sweep_count: usize,
}

impl Default for Locks {
    fn default() -> Self {
        Self {
            files: Mutex::default(),
            owed: Mutex::default(),
            long_calls: std::array::from_fn(|_| AsyncMutex::default()),
            next_long_call: AtomicUsize::default(),
        }
    }
}

impl Locks {
    /// The place of a request that waits at the coordinator. It is taken when it is locked.
    pub(super) fn long_call(&self) -> &AsyncMutex<()> {
        let next = self.next_long_call.fetch_add(1, Ordering::Relaxed);
        &self.long_calls[next % LONG_CALL_COUNT]
    }

    /// The locks in a file.
    pub(super) fn file(&self, file: PutId) -> Arc<FileLocks> {
        let mut table = lock(&self.files);
        if let Some(locks) = table.files.get(&file).and_then(Weak::upgrade) {
            return locks;
        }
        if table.files.len() >= table.sweep_count {
            table.files.retain(|_, locks| locks.strong_count() > 0);
            table.sweep_count = SWEEP_COUNT_MIN.max(2 * table.files.len());
        }
        let locks = Arc::new(FileLocks::new(file));
        table.files.insert(file, Arc::downgrade(&locks));
        locks
    }
}
