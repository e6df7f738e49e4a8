//! The embedded engine: one redb file on the coordinator's disk. Transactions are made one after another in memory, over
//! the file's rows, and those that wait together become one transaction of redb (`group_commit.rs`): a row that each of
//! them changes is written once. Reading transactions see the file only, so all that they see is durable. A store may keep
//! a second copy of its rows in a metadata log (`metadata_log/`), whose sync comes before its own: so the store is never
//! ahead of the log.

use crate::error::MetaError;
use crate::group_commit::{GroupCommit, Ticket};
use crate::kv::{KeyValue, ReadTxn, Row, WriteTxn};
use crate::metadata_log::{
    Chain, Change, Due, MetadataLog, Position, Stored, decode_changes, encode_change, read_log,
    write_base,
};
use crate::overlay::{self, Changes};
use redb::{
    Builder, Database, DatabaseError, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable,
    StorageError, TableDefinition, TableError,
};
use std::cell::RefCell;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("metadata");
/// One row: numbers and digests of the last change, and of the last one that a log has too.
const POSITION: TableDefinition<'static, (), (u64, u64, u64, u64)> =
    TableDefinition::new("position");

/// Whether a transaction is durable when it returns, or with a later one.
const NOW: Durability = Durability::Immediate;
const LATER: Durability = Durability::None;

/// Rows that are read at once for a base.
const PAGE: usize = 4096;

/// Memory for cached pages. Metadata is small next to data; this holds the hot rows of a large
/// cluster.
const CACHE_BYTES: usize = 256 << 20;

/// A [`KeyValue`] engine over one file.
#[derive(Debug)]
pub struct RedbStore {
    database: Database,
    group: GroupCommit,
    /// Held by the writer that has the turn.
    made: Mutex<Made>,
    log: Option<Mutex<MetadataLog>>,
}

/// Transactions that were made and are not known to be durable.
#[derive(Debug, Default)]
struct Made {
    /// The changes of the group that is being committed.
    committing: Arc<Changes>,
    /// Those of the transactions since.
    next: Changes,
    /// The same, one transaction after another, for the log.
    unlogged: Vec<(Position, Vec<u8>)>,
    /// The place of the last transaction in the store's history.
    stored: Stored,
}

/// What a metadata log has given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Rows of the base.
    pub row_count: u64,
    /// Transactions behind the base.
    pub transaction_count: u64,
    /// The number of the last transaction since the store was made.
    pub last: u64,
    /// Bytes at the end of the log that are not whole: of a transaction that was never acknowledged, unless the log's disk
    /// has lost what it had.
    pub torn_bytes: u64,
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
        name_new_file(new_file(path)?, path)?;
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
        Self::over(database)
    }

    fn over(database: Database) -> Result<Self, MetaError> {
        let txn = database.begin_read().map_err(storage("begin a read"))?;
        let stored = stored_in(txn.open_table(POSITION))?;
        drop(txn);
        let made = Made {
            stored,
            ..Made::default()
        };
        Ok(Self {
            database,
            group: GroupCommit::default(),
            made: Mutex::new(made),
            log: None,
        })
    }

    /// Keeps a metadata log in this directory from now on: each transaction is durable there before it is acknowledged.
    /// If the log is ahead, because the store's disk has lost changes or a process ended between both, the store takes
    /// them over. If the store has changed without the log, the log gets a new base.
    ///
    /// # Errors
    /// [`MetaError::Log`] if the directory cannot be used, or has another history; errors of the store.
    pub fn with_log(mut self, directory: &Path) -> Result<Self, MetaError> {
        let stored = self.stored()?;
        let (log, due) = MetadataLog::attach(directory, stored)?;
        let is_due = match due {
            Due::Base => true,
            Due::Changes(chain) => {
                self.take_over(&chain, stored.at)?;
                false
            }
        };
        lock(&self.made).stored = self.stored()?;
        self.log = Some(Mutex::new(log));
        if is_due {
            self.write_base()?;
        }
        Ok(self)
    }

    /// Restores the store of a metadata log: a new file at `path` with all changes that the log has. Another process must
    /// not use the log. A restored store goes on with the same log.
    ///
    /// # Errors
    /// [`MetaError::Log`] if the log is not whole; [`MetaError::Exists`] if there is a file at `path`; errors of the store.
    pub fn restore(path: &Path, log: &Path) -> Result<Restored, MetaError> {
        if path.try_exists().map_err(storage("look for the store"))? {
            return Err(MetaError::Exists {
                path: path.to_owned(),
            });
        }
        let made = RefCell::new(new_file(path)?);
        let mut row_count = 0;
        let rows = |rows: &[Row]| {
            row_count += rows.len() as u64;
            let changed = rows.iter().map(|(key, value)| (&**key, Some(&**value)));
            change_rows(&made.borrow(), changed, None, LATER)
        };
        let changes = |bytes: &[u8]| change_rows(&made.borrow(), decoded(bytes)?, None, LATER);
        let (end, transaction_count) = read_log(log, rows, changes)?;
        let last = end.position;
        let logged = Stored {
            at: last,
            logged: last,
        };
        let database = made.into_inner();
        change_rows(&database, [], Some(logged), NOW)?;
        name_new_file(database, path)?;
        Ok(Restored {
            row_count,
            transaction_count,
            last: last.number,
            torn_bytes: end.torn_bytes,
        })
    }

    /// Writes a new base of the metadata log if the changes behind the last one have grown. Transactions go on meanwhile.
    /// Without a log it does nothing. Returns whether there is a new base.
    ///
    /// # Errors
    /// [`MetaError::Log`], after which the log goes on without a new base; errors of the store.
    pub fn renew_log(&self) -> Result<bool, MetaError> {
        let is_due = self.log.as_ref().is_some_and(|log| lock(log).wants_base());
        if is_due {
            self.write_base()?;
        }
        Ok(is_due)
    }

    /// Writes a base of the log with all rows of this moment.
    fn write_base(&self) -> Result<(), MetaError> {
        let Some(log) = &self.log else { return Ok(()) };
        let txn = self.database.begin_read();
        let txn = txn.map_err(storage("begin a read"))?;
        let table = txn.open_table(ROWS).map_err(storage("open its table"))?;
        let stored = stored_in(txn.open_table(POSITION))?;
        // All that the view shows is durable: the base is not ahead of the store that is left after a loss of power.
        let view = View { table };
        let page = |behind: &[u8]| view.scan(behind, &[u8::MAX], PAGE);
        let directory = lock(log).directory().to_owned();
        let bytes = write_base(&directory, stored.at, page)?;
        lock(log).note_base(stored.at, bytes)?;
        Ok(())
    }

    /// The store's places in its history. A store with rows and without a place gets one by its rows, which no other
    /// cluster's store and no other state of this one has.
    fn stored(&self) -> Result<Stored, MetaError> {
        let txn = self.database.begin_read();
        let txn = txn.map_err(storage("begin a read"))?;
        let stored = stored_in(txn.open_table(POSITION))?;
        let table = txn.open_table(ROWS).map_err(storage("open its table"))?;
        if stored.at.number > 0 {
            return Ok(stored);
        }
        let view = View { table };
        let (mut at, mut behind) = (stored.at, Vec::new());
        loop {
            let rows = view.scan(&behind, &[u8::MAX], PAGE)?;
            let Some((last, _)) = rows.last() else { break };
            behind = [last.as_slice(), &[0]].concat();
            let mut changes = Vec::new();
            for (key, value) in &rows {
                encode_change(&mut changes, key, Some(value));
            }
            at = at.after(&changes);
        }
        drop(txn);
        if at == stored.at {
            return Ok(stored);
        }
        let stored = Stored { at, ..stored };
        change_rows(&self.database, [], Some(stored), NOW)?;
        Ok(stored)
    }

    /// Makes changes durable that the log has and the store lacks, those behind a position.
    fn take_over(&self, log: &Chain, from: Position) -> Result<(), MetaError> {
        let mut is_behind = log.begin == from;
        let end = log.changes(|at, bytes| {
            if is_behind {
                let stored = Stored { at, logged: at };
                change_rows(&self.database, decoded(bytes)?, Some(stored), LATER)?;
            }
            is_behind |= at == from;
            Ok::<_, MetaError>(())
        })?;
        if end.position != from {
            change_rows(&self.database, [], None, NOW)?;
        }
        Ok(())
    }

    /// Makes all transactions durable that were made before. Returns the last of them.
    fn commit(&self) -> Result<Ticket, MetaError> {
        let mut made = lock(&self.made);
        let last = self.group.end_group();
        made.committing = Arc::new(std::mem::take(&mut made.next));
        let changes = Arc::clone(&made.committing);
        let unlogged = std::mem::take(&mut made.unlogged);
        let mut stored = made.stored;
        drop(made);
        if let Some(log) = &self.log {
            let mut log = lock(log);
            for (at, changes) in &unlogged {
                log.append(*at, changes)?;
            }
            log.sync()?;
            stored.logged = stored.at;
        }
        let rows = changes
            .iter()
            .map(|(key, value)| (&**key, value.as_deref()));
        change_rows(&self.database, rows, Some(stored), NOW)?;
        lock(&self.made).committing = Arc::default();
        Ok(last)
    }

    /// Makes the changes of a transaction the last ones.
    fn add(&self, made: &mut Made, changes: Changes) -> Ticket {
        let mut encoded = Vec::new();
        for (key, value) in &changes {
            encode_change(&mut encoded, key, value.as_deref());
        }
        made.stored.at = made.stored.at.after(&encoded);
        if self.log.is_some() {
            made.unlogged.push((made.stored.at, encoded));
        }
        made.next.extend(changes);
        self.group.number()
    }

    fn rows(&self) -> Result<FileRows, MetaError> {
        let txn = self.database.begin_read();
        let txn = txn.map_err(storage("begin a read"))?;
        let table = txn.open_table(ROWS).map_err(storage("open its table"))?;
        Ok(View { table })
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // A log refuses everything after an error of its files. A transaction that panics has changed nothing.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The places in a table that may not be there yet.
fn stored_in(
    table: Result<impl ReadableTable<(), (u64, u64, u64, u64)>, TableError>,
) -> Result<Stored, MetaError> {
    match table {
        Err(TableError::TableDoesNotExist(_)) => Ok(Stored::default()),
        table => stored_of(&table.map_err(storage("open its table"))?),
    }
}

fn stored_of(table: &impl ReadableTable<(), (u64, u64, u64, u64)>) -> Result<Stored, MetaError> {
    let row = table.get(()).map_err(storage("read a row"))?;
    let (number, digest, logged_number, logged_digest) =
        row.map(|row| row.value()).unwrap_or_default();
    Ok(Stored {
        at: Position { number, digest },
        logged: Position {
            number: logged_number,
            digest: logged_digest,
        },
    })
}

fn put_stored(
    table: &mut redb::Table<'_, (), (u64, u64, u64, u64)>,
    Stored { at, logged }: Stored,
) -> Result<(), MetaError> {
    let row = (at.number, at.digest, logged.number, logged.digest);
    table.insert((), row).map_err(storage("write a row"))?;
    Ok(())
}

/// The changes of a transaction of a log.
fn decoded(bytes: &[u8]) -> Result<Vec<Change<'_>>, MetaError> {
    decode_changes(bytes).ok_or_else(|| storage("read a transaction of the log")("no changes"))
}

/// Changes rows, and the places if they are given, in one transaction.
fn change_rows<'a>(
    database: &Database,
    changes: impl IntoIterator<Item = Change<'a>>,
    stored: Option<Stored>,
    durability: Durability,
) -> Result<(), MetaError> {
    let mut txn = database.begin_write().map_err(storage("begin a write"))?;
    txn.set_durability(durability)
        .map_err(storage("prepare a commit"))?;
    let mut table = txn.open_table(ROWS).map_err(storage("open its table"))?;
    for (key, value) in changes {
        match value {
            Some(value) => table.insert(key, value).map(drop),
            None => table.remove(key).map(drop),
        }
        .map_err(storage("write a row"))?;
    }
    drop(table);
    if let Some(stored) = stored {
        let mut table = txn
            .open_table(POSITION)
            .map_err(storage("open its table"))?;
        put_stored(&mut table, stored)?;
    }
    txn.commit().map_err(storage("commit"))
}

/// Makes an empty store under a name that it keeps until it is whole: a crash before that leaves no partial store that
/// would look damaged.
fn new_file(path: &Path) -> Result<Database, MetaError> {
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
    change_rows(&database, [], None, NOW)?;
    Ok(database)
}

/// Closes a new store, and gives it its name.
fn name_new_file(database: Database, path: &Path) -> Result<(), MetaError> {
    database.close().map_err(|error| opening(path, error))?;
    std::fs::rename(unfinished(path), path).map_err(storage("rename the new file"))?;
    sync_parent(path)
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
        body(&self.rows()?)
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let waiting = self.group.enter();
        let mut made = lock(&self.made);
        let run = self.group.check().and_then(|()| self.rows());
        let run = run.and_then(|rows| {
            let mut writer = Writer {
                changes: Changes::new(),
                made: &made,
                rows,
            };
            Ok((body(&mut writer)?, writer.changes))
        });
        let (result, ticket) = match run {
            Ok((value, changes)) if !changes.is_empty() => {
                (Ok(value), self.add(&mut made, changes))
            }
            // What it has seen has to be durable.
            run => (run.map(|(value, _)| value), self.group.last()),
        };
        drop(made);
        drop(waiting);
        self.group.wait(ticket, || self.commit())?;
        result
    }
}

/// The file's rows as of one moment.
type FileRows = View<ReadOnlyTable<&'static [u8], &'static [u8]>>;

/// A view of the file's rows.
struct View<T> {
    table: T,
}

impl<T: ReadableTable<&'static [u8], &'static [u8]>> View<T> {
    /// The rows with `start <= key < end`, from both ends.
    fn range(
        &self,
        start: &[u8],
        end: &[u8],
    ) -> Result<impl DoubleEndedIterator<Item = Result<Row, MetaError>>, MetaError> {
        let range = self.table.range::<&[u8]>(start..end);
        let rows = range.map_err(storage("scan rows"))?;
        Ok(rows.map(|row| {
            let (key, value) = row.map_err(storage("scan rows"))?;
            Ok((key.value().to_vec(), value.value().to_vec()))
        }))
    }
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
        self.range(start, end)?.take(limit).collect()
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        if start >= end {
            return Ok(None);
        }
        self.range(start, end)?.next_back().transpose()
    }
}

/// A write transaction: its changes, over those that were made before, over the file's rows.
struct Writer<'m> {
    changes: Changes,
    made: &'m Made,
    rows: FileRows,
}

impl Writer<'_> {
    fn layers(&self) -> impl Iterator<Item = &Changes> {
        [&self.changes, &self.made.next, &*self.made.committing].into_iter()
    }
}

impl ReadTxn for Writer<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        match self.layers().find_map(|layer| layer.get(key)) {
            Some(change) => Ok(change.clone()),
            None => self.rows.get(key),
        }
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError> {
        if start >= end {
            return Ok(Vec::new());
        }
        let rows = self.rows.range(start, end)?;
        overlay::scan(self.layers(), rows, (start, end), limit)
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        if start >= end {
            return Ok(None);
        }
        let rows = self.rows.range(start, end)?.rev();
        overlay::last(self.layers(), rows, (start, end))
    }
}

impl WriteTxn for Writer<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), MetaError> {
        self.changes.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {
        self.changes.insert(key.to_vec(), None);
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
            RedbStore::over(builder().create_with_backend(self.clone()).unwrap()).unwrap()
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
            while store.group.last().number < u64::from(COUNT) + 1 {
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
    fn transactions_see_changes_that_are_being_committed_and_readers_only_durable_ones() {
        let disk = Disk::default();
        let store = first_row(&disk);
        put(&store, b"count", &[0]);
        let count = || {
            let raise = |txn: &mut dyn WriteTxn| {
                let present = txn.get(b"count")?.map_or(0, |value| value[0]);
                txn.put(b"count", &[present + 1])
            };
            store.write(raise).unwrap();
        };
        let seen = || rows(&store)[0].1[0];
        disk.shut(true);
        thread::scope(|scope| {
            scope.spawn(count);
            disk.until_sync_waits();
            for _ in 0..2 {
                scope.spawn(count);
            }
            while store.group.last().number < 4 {
                thread::yield_now();
            }
            assert_eq!(seen(), 0, "nothing is durable yet");
            disk.shut(false);
        });
        assert_eq!(seen(), 3);
    }

    #[test]
    fn a_refusal_waits_for_the_changes_that_it_has_seen() {
        let disk = Disk::default();
        let store = first_row(&disk);
        let refused_count = AtomicU64::new(0);
        let refuse = |txn: &mut dyn WriteTxn| {
            assert!(txn.get(b"a")?.is_some(), "it sees the change");
            refused_count.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(MetaError::NoCluster)
        };
        disk.shut(true);
        thread::scope(|scope| {
            let store = &store;
            scope.spawn(move || put(store, b"a", b"1"));
            disk.until_sync_waits();
            let refused = scope.spawn(|| store.write(refuse));
            while refused_count.load(Ordering::Relaxed) == 0 || store.group.waiting_count() > 0 {
                thread::yield_now();
            }
            for _ in 0..20 {
                thread::yield_now();
                assert!(!refused.is_finished(), "the change is not durable yet");
            }
            disk.shut(false);
            assert_eq!(refused.join().unwrap(), Err(MetaError::NoCluster));
        });
    }

    #[test]
    fn a_transaction_that_fails_changes_nothing_of_its_group() {
        let failed_count = AtomicU64::new(0);
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
            let failed_count = &failed_count;
            let failing = scope.spawn(move || {
                store.write(|txn| {
                    txn.put(b"a", b"3")?;
                    txn.delete(b"b")?;
                    failed_count.fetch_add(1, Ordering::Relaxed);
                    Err::<(), _>(MetaError::NoCluster)
                })
            });
            while store.group.last().number < 3 || failed_count.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            disk.shut(false);
            assert_eq!(failing.join().unwrap(), Err(MetaError::NoCluster));
        });
        let left = rows(&disk.after_power_loss().open());
        let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        assert_eq!(left, [row(b"a", b"1"), row(b"b", b"2"), row(b"c", b"2")]);
    }

    #[test]
    fn nothing_is_acknowledged_after_the_log_has_failed() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("log");
        let disk = Disk::default();
        let store = first_row(&disk).with_log(&directory).unwrap();
        put(&store, b"a", b"1");
        lock(store.log.as_ref().unwrap()).fill_disk();
        thread::scope(|scope| {
            for writer in 0..4_u8 {
                let store = &store;
                scope.spawn(move || {
                    for at in 0..5_u8 {
                        let written = store.write(|txn| txn.put(&[writer, at], b"lost"));
                        assert!(matches!(written, Err(MetaError::Log(_))), "{written:?}");
                    }
                });
            }
        });
        drop(store);
        let restored = place.path().join("restored");
        RedbStore::restore(&restored, &directory).unwrap();
        let left = rows(&RedbStore::open(&restored).unwrap());
        assert_eq!(left, [(b"a".to_vec(), b"1".to_vec())]);
    }

    #[test]
    fn a_change_is_in_the_log_before_it_is_in_the_store() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("log");
        let disk = Disk::default();
        let store = first_row(&disk).with_log(&directory).unwrap();
        put(&store, b"a", b"1");
        let synced = || rows(&disk.after_power_loss().open());
        thread::scope(|scope| {
            disk.shut(true);
            let store = &store;
            scope.spawn(move || put(store, b"b", b"2"));
            disk.until_sync_waits();
            assert_eq!(synced().len(), 1);
            // The other process is gone, as is its lock.
            let copy = place.path().join("copy");
            std::fs::create_dir(&copy).unwrap();
            for entry in std::fs::read_dir(&directory).unwrap() {
                let entry = entry.unwrap();
                std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
            }
            let restored = place.path().join("restored");
            RedbStore::restore(&restored, &copy).unwrap();
            assert_eq!(rows(&RedbStore::open(&restored).unwrap()).len(), 2);
            // A store that lost its power takes the change over.
            let left = disk.after_power_loss().open().with_log(&copy).unwrap();
            assert_eq!(rows(&left).len(), 2);
            disk.shut(false);
        });
    }
}
