//! The embedded engine: one redb file on the coordinator's disk. Transactions are made one after another in memory,
//! over the file's rows, and those that wait together become one transaction of redb (`group_commit.rs`): a row that
//! each of them changes is written once. Reading transactions see the file only, so all that they see is durable. A
//! store may keep a second copy of its rows in a metadata log (`metadata_log/`), whose sync comes before its own: so
//! the store is never ahead of the log.

mod log;
#[cfg(test)]
mod tests;

use crate::error::MetaError;
use crate::group_commit::{GroupCommit, Ticket};
use crate::kv::{KeyValue, ReadTxn, Row, WriteTxn};
use crate::metadata_log::{Change, MetadataLog, Position, Stored, encode_change};
use crate::overlay::{self, Changes};
use redb::{
    Builder, Database, DatabaseError, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable,
    StorageError, TableDefinition, TableError,
};
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

/// Memory for cached pages. Metadata is small next to data; this holds the hot rows of a large cluster.
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

/// The result of a restore from a metadata log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Rows of the base.
    pub row_count: u64,
    /// Transactions behind the base.
    pub transaction_count: u64,
    /// The number of the last transaction since the store was made.
    pub last: u64,
    /// Bytes at the end of the log that are not whole: of a transaction that was never acknowledged, unless the log's
    /// disk has lost what it had.
    pub torn_bytes: u64,
}

impl RedbStore {
    /// Creates a store at `path`, or opens an existing one; call it again after a crash interrupted a creation.
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

    /// Whether no transaction was ever made.
    pub fn is_blank(&self) -> bool {
        lock(&self.made).stored == Stored::default()
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
    let parent = parent_of(path);
    if !parent.is_dir() {
        return Err(MetaError::NoDirectory {
            path: parent.to_owned(),
        });
    }
    remove_unfinished(path)?;
    let unfinished = unfinished(path);
    let made = || {
        let database = builder().create(&unfinished);
        let database = database.map_err(|error| opening(path, error))?;
        keep_private(&unfinished)?;
        change_rows(&database, [], None, NOW)?;
        Ok(database)
    };
    made().inspect_err(|_| {
        // The first error is the one to tell.
        let _ = remove_unfinished(path);
    })
}

/// Removes a store that has not got its name.
fn remove_unfinished(path: &Path) -> Result<(), MetaError> {
    match std::fs::remove_file(unfinished(path)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(storage("remove an unfinished store")(error))
        }
        _ => Ok(()),
    }
}

/// The directory of a file.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
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
    File::open(parent_of(path))
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
