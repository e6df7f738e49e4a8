//! The embedded engine: one redb file on the coordinator's disk, one writer at a time, each commit
//! synced.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, Row, WriteTxn};
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition,
};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("metadata");

/// Memory for cached pages. Metadata is small next to data; this holds the hot rows of a large
/// cluster.
const CACHE_BYTES: usize = 256 << 20;

/// A [`KeyValue`] engine over one file.
#[derive(Debug)]
pub struct RedbStore {
    database: Database,
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
        Ok(Self { database })
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
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
        let table = txn.open_table(ROWS).map_err(storage("open its table"))?;
        body(&View { table })
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let txn = self
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
        // An empty transaction need not wait for the disk.
        if result.is_ok() && changed {
            txn.commit().map_err(storage("commit"))?;
        } else {
            txn.abort().map_err(storage("abort"))?;
        }
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
