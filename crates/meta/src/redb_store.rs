//! The embedded engine: one redb file on the coordinator's disk, one writer at a time. Transactions that wait for
//! each other share a sync (`group_commit.rs`).

use crate::error::MetaError;
use crate::group_commit::GroupCommit;
use crate::kv::{KeyValue, ReadTxn, Row, WriteTxn};
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition,
};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("metadata");

/// Memory for cached pages. Metadata is small next to data; this holds the hot rows of a large
/// cluster.
const CACHE_BYTES: usize = 256 << 20;

/// A [`KeyValue`] engine over one file.
#[derive(Debug)]
pub struct RedbStore {
    database: Database,
    group: GroupCommit,
}

impl RedbStore {
    /// Creates a store at `path`, or opens an existing one; call it again after a crash interrupted
    /// a creation.
    ///
    /// # Errors
    /// As [`RedbStore::open`], without [`MetaError::NoStore`].
    pub fn create(path: &Path) -> Result<Self, MetaError> {
        if path.try_exists().map_err(storage("look for the store"))? {
            return Self::open(path);
        }
        // The file gets its name only when it is complete: a crash before that leaves no partial
        // store that would look damaged.
        let unfinished = unfinished(path);
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(storage("remove an unfinished store")(error));
            }
            _ => {}
        }
        let database = builder()
            .create(&unfinished)
            .map_err(|error| opening(path, error))?;
        keep_private(&unfinished)?;
        let txn = database.begin_write().map_err(storage("begin a write"))?;
        txn.open_table(ROWS).map_err(storage("make its table"))?;
        txn.commit().map_err(storage("commit"))?;
        database.close().map_err(|error| opening(path, error))?;
        std::fs::rename(&unfinished, path).map_err(storage("rename the new file"))?;
        sync_parent(path)?;
        Self::open(path)
    }

    /// Opens the store at `path` and verifies the checksum of each of its pages, so that bit rot is
    /// refused here and never served. Reads the whole file.
    ///
    /// # Errors
    /// [`MetaError::NoStore`] without a file, [`MetaError::Locked`] when another process uses it,
    /// [`MetaError::Damaged`] when it is not intact, [`MetaError::Storage`] when reading fails.
    pub fn open(path: &Path) -> Result<Self, MetaError> {
        let database = builder()
            .set_check_integrity_on_open(true)
            .open(path)
            .map_err(|error| opening(path, error))?;
        keep_private(path)?;
        let group = GroupCommit::default();
        Ok(Self { database, group })
    }

    /// Makes all transactions durable that were committed before. Returns how many of the group's there were.
    fn sync(&self) -> Result<u64, MetaError> {
        let txn = self.database.begin_write();
        let txn = txn.map_err(storage("begin a write"))?;
        // No other transaction is being committed.
        let numbered = self.group.numbered();
        txn.commit().map_err(storage("commit"))?;
        Ok(numbered)
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Lets only its owner read and write a store's file: it holds the keys of tickets.
fn keep_private(path: &Path) -> Result<(), MetaError> {
    let owners = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, owners).map_err(storage("restrict the permissions"))
}

/// The path of a store during its creation.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    PathBuf::from(name)
}

/// Makes a name durable.
fn sync_parent(path: &Path) -> Result<(), MetaError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(storage("sync its directory"))
}

/// Converts an engine error of an operation.
fn storage<E: std::fmt::Display>(operation: &'static str) -> impl FnOnce(E) -> MetaError {
    move |error| MetaError::Storage {
        operation,
        reason: error.to_string(),
    }
}

/// Converts the error of opening a file.
fn opening(path: &Path, error: DatabaseError) -> MetaError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            MetaError::Locked { path }
        }
        DatabaseError::Storage(StorageError::Io(error)) => match error.kind() {
            ErrorKind::NotFound => MetaError::NoStore { path },
            // redb's error for a file without its magic number or cut short.
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => MetaError::Damaged {
                path,
                reason: error.to_string(),
            },
            _ => storage("open its file")(error),
        },
        DatabaseError::Storage(StorageError::Corrupted(reason)) => {
            MetaError::Damaged { path, reason }
        }
        other => MetaError::Damaged {
            path,
            reason: other.to_string(),
        },
    }
}

impl KeyValue for RedbStore {
    fn read<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let txn = self
            .database
            .begin_read()
            .map_err(storage("begin a read"))?;
        // The view's rows may be in memory only. The caller tells others, so they have to be durable.
        let seen = self.group.numbered();
        let table = txn.open_table(ROWS).map_err(storage("open its table"))?;
        let result = body(&View { table });
        drop(txn);
        self.group.wait(seen, || self.sync())?;
        result
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let waiting = self.group.enter();
        let mut txn = self
            .database
            .begin_write()
            .map_err(storage("begin a write"))?;
        let table = txn.open_table(ROWS).map_err(storage("open its table"))?;
        let mut writer = Writer {
            view: View { table },
            changed: false,
        };
        let result = body(&mut writer);
        let changed = writer.changed;
        drop(writer);
        if result.is_err() || !changed {
            // An empty transaction need not wait for the disk, but what it has seen has to be there.
            let seen = self.group.numbered();
            txn.abort().map_err(storage("abort"))?;
            drop(waiting);
            self.group.wait(seen, || self.sync())?;
            return result;
        }
        let is_alone = self.group.waiting_count() == 1;
        let number = if is_alone {
            self.group.numbered()
        } else {
            txn.set_durability(Durability::None)
                .map_err(storage("prepare a commit"))?;
            self.group.number()
        };
        if let Err(error) = txn.commit().map_err(storage("commit")) {
            self.group.fail(&error);
            return Err(error);
        }
        drop(waiting);
        if is_alone {
            self.group.is_durable(number);
        }
        self.group.wait(number, || self.sync())?;
        result
    }
}

/// A transaction's view through a table of redb, for reading or for writing.
struct View<T> {
    table: T,
}

impl<T: ReadableTable<&'static [u8], &'static [u8]>> ReadTxn for View<T> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        let value = self.table.get(key).map_err(storage("read a row"))?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError> {
        if start >= end {
            return Ok(Vec::new());
        }
        let range = self.table.range::<&[u8]>(start..end);
        let mut rows = Vec::new();
        for row in range.map_err(storage("scan rows"))?.take(limit) {
            let (key, value) = row.map_err(storage("scan rows"))?;
            rows.push((key.value().to_vec(), value.value().to_vec()));
        }
        Ok(rows)
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        if start >= end {
            return Ok(None);
        }
        let range = self.table.range::<&[u8]>(start..end);
        let last = range.map_err(storage("find a row"))?.next_back();
        let last = last.transpose().map_err(storage("find a row"))?;
        Ok(last.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())))
    }
}

/// A write transaction, and whether it has anything to commit.
struct Writer<'txn> {
    view: View<redb::Table<'txn, &'static [u8], &'static [u8]>>,
    changed: bool,
}

impl ReadTxn for Writer<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        self.view.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError> {
        self.view.scan(start, end, limit)
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        self.view.last(start, end)
    }
}

impl WriteTxn for Writer<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), MetaError> {
        self.changed = true;
        let table = &mut self.view.table;
        table.insert(key, value).map_err(storage("write a row"))?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {
        self.changed = true;
        let table = &mut self.view.table;
        table.remove(key).map_err(storage("remove a row"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::StorageBackend;
    use std::io;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Condvar, Mutex};
    use std::thread;

    /// A disk that loses what is not synced when its power fails.
    #[derive(Clone, Debug, Default)]
    struct Disk(Arc<Shared>);

    #[derive(Debug, Default)]
    struct Shared {
        state: Mutex<State>,
        opened: Condvar,
        sync_count: AtomicU64,
    }

    #[derive(Debug, Default)]
    struct State {
        now: Vec<u8>,
        synced: Vec<u8>,
        /// Syncs wait.
        is_shut: bool,
        is_sync_waiting: bool,
    }

    impl Disk {
        fn shut(&self, is_shut: bool) {
            self.0.state.lock().unwrap().is_shut = is_shut;
            self.0.opened.notify_all();
        }

        /// Waits until a sync waits: its writer has the engine meanwhile.
        fn until_sync_waits(&self) {
            while !self.0.state.lock().unwrap().is_sync_waiting {
                thread::yield_now();
            }
        }

        /// The disk after a loss of power.
        fn after_power_loss(&self) -> Self {
            let synced = self.0.state.lock().unwrap().synced.clone();
            let left = Self::default();
            left.0.state.lock().unwrap().now = synced;
            left
        }

        fn open(&self) -> RedbStore {
            let database = builder().create_with_backend(self.clone()).unwrap();
            let group = GroupCommit::default();
            RedbStore { database, group }
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.state.lock().unwrap().now.len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let state = self.0.state.lock().unwrap();
            let from = offset as usize;
            let bytes = state.now.get(from..from + out.len());
            out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.state.lock().unwrap().now.resize(len as usize, 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            self.0.sync_count.fetch_add(1, Ordering::Relaxed);
            let mut state = self.0.state.lock().unwrap();
            state.is_sync_waiting |= state.is_shut;
            let mut state = self.0.opened.wait_while(state, |s| s.is_shut).unwrap();
            state.synced = state.now.clone();
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let mut state = self.0.state.lock().unwrap();
            let from = offset as usize;
            state.now[from..from + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn put(store: &RedbStore, key: &[u8], value: &[u8]) {
        store.write(|txn| txn.put(key, value)).unwrap();
    }

    fn rows(store: &RedbStore) -> Vec<Row> {
        store
            .read(|txn| txn.scan(b"", b"\xff", usize::MAX))
            .unwrap()
    }

    fn first_row(disk: &Disk) -> RedbStore {
        let store = disk.open();
        let txn = store.database.begin_write().unwrap();
        txn.open_table(ROWS).unwrap();
        txn.commit().unwrap();
        store
    }

    #[test]
    fn what_was_acknowledged_or_read_is_there_after_a_loss_of_power() {
        let disk = Disk::default();
        let store = first_row(&disk);
        let acknowledged = Mutex::new(Vec::new());
        let left_count = AtomicU64::new(4);
        let write = |writer: u8| {
            for at in 0..60 {
                let key = [writer, at];
                put(&store, &key, b"value");
                acknowledged.lock().unwrap().push(key.to_vec());
            }
            left_count.fetch_sub(1, Ordering::Relaxed);
        };
        let check = || {
            while left_count.load(Ordering::Relaxed) > 0 {
                // First what others know, then the power fails.
                let mut known = acknowledged.lock().unwrap().clone();
                known.extend(rows(&store).into_iter().map(|(key, _)| key));
                let left = rows(&disk.after_power_loss().open());
                let is_left = |key: &Vec<u8>| left.iter().any(|(other, _)| other == key);
                assert!(known.iter().all(is_left));
            }
        };
        thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || write(writer));
            }
            scope.spawn(check);
        });
        assert_eq!(rows(&store).len(), 240);
    }

    #[test]
    fn transactions_that_wait_share_a_sync() {
        const COUNT: u8 = 20;
        let disk = Disk::default();
        let store = first_row(&disk);
        disk.shut(true);
        let before = disk.0.sync_count.load(Ordering::Relaxed);
        thread::scope(|scope| {
            let store = &store;
            scope.spawn(move || put(store, &[COUNT], b"value"));
            disk.until_sync_waits();
            for writer in 0..COUNT {
                scope.spawn(move || put(store, &[writer], b"value"));
            }
            while store.group.waiting_count() < u64::from(COUNT) + 1 {
                thread::yield_now();
            }
            disk.shut(false);
        });
        let syncs = disk.0.sync_count.load(Ordering::Relaxed) - before;
        assert!(syncs <= u64::from(COUNT) / 2, "{syncs} syncs");
        assert_eq!(
            rows(&disk.after_power_loss().open()).len(),
            usize::from(COUNT) + 1
        );
    }

    #[test]
    fn a_transaction_that_fails_changes_nothing_of_its_group() {
        let disk = Disk::default();
        let store = first_row(&disk);
        disk.shut(true);
        thread::scope(|scope| {
            let store = &store;
            scope.spawn(move || put(store, b"a", b"1"));
            disk.until_sync_waits();
            for key in [b"b", b"c"] {
                scope.spawn(move || put(store, key, b"2"));
            }
            let failing = scope.spawn(move || {
                store.write(|txn| {
                    txn.put(b"a", b"3")?;
                    txn.delete(b"b")?;
                    Err::<(), _>(MetaError::NoCluster)
                })
            });
            while store.group.waiting_count() < 4 {
                thread::yield_now();
            }
            disk.shut(false);
            assert_eq!(failing.join().unwrap(), Err(MetaError::NoCluster));
        });
        let left = rows(&disk.after_power_loss().open());
        let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        assert_eq!(left, [row(b"a", b"1"), row(b"b", b"2"), row(b"c", b"2")]);
    }
}
