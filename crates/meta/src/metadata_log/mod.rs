//! The metadata log: a second copy of a store's rows, in a directory on another disk. It is a *base* with all rows as
//! of one change, and *logs* with the changes since. A change is durable in it before it is acknowledged, so nothing
//! that a coordinator has acknowledged is lost with the disk of its store.
//!
//! A store and its log know their positions in one history (`files.rs`). A log that is ahead has changes that the
//! store's disk has lost or that were never acknowledged: the store takes them over. Any other difference is refused.

mod chain;
mod error;
mod files;

pub(crate) use self::chain::{Chain, End, check_whole, read_base};
pub use self::error::LogError;
pub(crate) use self::error::system;
pub use self::files::is_log_file;
pub(crate) use self::files::{
    Change, Position, Steps, decode_changes, encode_change, remove_unfinished, sync_directory,
    unfinished, write_whole,
};

use self::chain::numbers;
use self::files::{FileKind, Row, UNFINISHED, block, create, header, put_part};
use std::fs::{File, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Bytes of a log file from which on the next one begins.
const FILE_BYTES: u64 = 16 << 20;
/// Bytes of changes from which on a new base is due, and the base's own size if that is more.
const BASE_AFTER_BYTES: u64 = 64 << 20;
/// Bytes of changes from which on a group does not wait for the store's next sync.
const PENDING_BYTES_MAX: usize = 64 << 20;
/// Bytes of rows in a block of a base.
const ROWS_BYTES: usize = 1 << 20;
/// Most bytes of a transaction's changes: a block has a length of 32 bits.
const CHANGES_BYTES_MAX: usize = 3 << 30;
/// The name of the file that a process locks.
const LOCK: &str = "lock";

/// The places of a store in its history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stored {
    /// Its last change.
    pub(crate) at: Position,
    /// Its last change that a log has too.
    pub(crate) logged: Position,
}

/// A log that a store writes.
#[derive(Debug)]
pub(crate) struct MetadataLog {
    directory: PathBuf,
    /// Held as long as this process uses the directory.
    _lock: File,
    tail: Option<Tail>,
    /// The last change that is durable here.
    synced: Position,
    /// The last change of those that wait.
    end: Position,
    pending: Vec<u8>,
    /// The first failure. Since then nothing is written: what the files have is unknown.
    failed: Option<LogError>,
    /// Bytes of the changes behind the base.
    log_bytes: u64,
    base_bytes: u64,
}

#[derive(Debug)]
struct Tail {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The digest in the file's header.
    salt: u64,
}

/// The action that a store takes before it writes to its log.
#[derive(Debug)]
pub(crate) enum Due {
    /// Take over the changes of this log behind the store's own last one.
    Changes(Chain),
    /// Write a base: there is none, or the store has changed without this log.
    Base,
}

impl MetadataLog {
    /// Opens or makes the log of a store.
    ///
    /// # Errors
    /// [`LogError`].
    pub(crate) fn attach(directory: &Path, stored: Stored) -> Result<(Self, Due), LogError> {
        if !directory.exists() {
            if stored.logged.number > 0 {
                return Err(LogError::Gone(directory.to_owned()));
            }
            make_directory(directory)?;
        }
        let mut log = Self {
            directory: directory.to_owned(),
            _lock: lock(directory)?,
            tail: None,
            synced: stored.at,
            end: stored.at,
            pending: Vec::new(),
            failed: None,
            log_bytes: 0,
            base_bytes: 0,
        };
        remove_unfinished(directory)?;
        let Some(chain) = Chain::find(directory)? else {
            return Ok((log, Due::Base));
        };
        let mut is_found = chain.begin == stored.at;
        let end = chain.changes::<LogError>(|at, _| {
            is_found |= at == stored.at;
            Ok(())
        })?;
        if stored.at.number == 0 && end.position.number > 0 {
            return Err(LogError::OfCluster(directory.to_owned()));
        }
        let path = directory.to_owned();
        if !is_found {
            // The store has gone on without this log, from its last change.
            return if end.position == stored.logged {
                Ok((log, Due::Base))
            } else if stored.at.number < chain.begin.number {
                Err(LogError::Older {
                    path,
                    base: chain.begin.number,
                    store: stored.at.number,
                })
            } else {
                Err(LogError::Differs {
                    path,
                    log: end.position.number,
                    store: stored.at.number,
                })
            };
        }
        (log.synced, log.end) = (end.position, end.position);
        log.log_bytes = end.log_bytes;
        log.base_bytes = chain.base_bytes()?;
        if let Some((path, whole, begin)) = end.tail {
            log.tail = Some(open_tail(path, whole, begin.digest)?);
        }
        Ok((log, Due::Changes(chain)))
    }

    /// Adds a transaction, which the caller is about to commit in memory.
    ///
    /// # Errors
    /// [`LogError::System`], also after any earlier failure; [`LogError::TooLarge`].
    pub(crate) fn append(&mut self, at: Position, changes: &[u8]) -> Result<(), LogError> {
        if changes.len() > CHANGES_BYTES_MAX {
            return Err(LogError::TooLarge(changes.len()));
        }
        if self.pending.len() + changes.len() > PENDING_BYTES_MAX {
            self.sync()?;
        }
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        put_part(&mut self.pending, changes);
        self.end = at;
        Ok(())
    }

    /// Makes all transactions durable that were added.
    ///
    /// # Errors
    /// [`LogError::System`], also after any earlier failure.
    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let written = self.write_pending();
        self.failed = written.as_ref().err().cloned();
        written
    }

    fn write_pending(&mut self) -> Result<(), LogError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self
            .tail
            .as_ref()
            .is_none_or(|tail| tail.bytes > FILE_BYTES)
        {
            self.tail = Some(new_tail(&self.directory, self.synced)?);
        }
        if let Some(tail) = &mut self.tail {
            let bytes = block(tail.salt, self.end.number, &self.pending);
            let written = tail.file.write_all(&bytes);
            written.map_err(system("write", &tail.path))?;
            tail.file.sync_data().map_err(system("sync", &tail.path))?;
            tail.bytes += bytes.len() as u64;
            self.log_bytes += bytes.len() as u64;
        }
        self.synced = self.end;
        self.pending.clear();
        Ok(())
    }

    /// Whether the changes have outgrown the base.
    pub(crate) fn wants_base(&self) -> bool {
        self.log_bytes > BASE_AFTER_BYTES.max(self.base_bytes)
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Notes that there is a base as of a position, and removes the files that it replaces. Returns how many.
    ///
    /// # Errors
    /// [`LogError::System`].
    pub(crate) fn note_base(&mut self, at: Position, bytes: u64) -> Result<usize, LogError> {
        let removed = replaced(&self.directory, at.number)?;
        for path in &removed {
            std::fs::remove_file(path).map_err(system("remove", path))?;
        }
        self.base_bytes = bytes;
        self.log_bytes = 0;
        for number in numbers(&self.directory, FileKind::Log)? {
            let path = FileKind::Log.path(&self.directory, number);
            let length = std::fs::metadata(&path).map_err(system("measure", &path))?;
            self.log_bytes += length.len();
        }
        Ok(removed.len())
    }
}

/// The files in a directory that a base as of this change replaces.
///
/// # Errors
/// [`LogError::System`].
pub(crate) fn replaced(directory: &Path, base: u64) -> Result<Vec<PathBuf>, LogError> {
    let bases = numbers(directory, FileKind::Base)?;
    let old = bases.iter().filter(|number| **number < base);
    let old = old.map(|number| FileKind::Base.path(directory, *number));
    let mut replaced: Vec<PathBuf> = old.collect();
    let logs = numbers(directory, FileKind::Log)?;
    // A file ends where the next one begins.
    for pair in logs.windows(2) {
        if pair[1] <= base {
            replaced.push(FileKind::Log.path(directory, pair[0]));
        }
    }
    Ok(replaced)
}

/// Whether a directory of a log may have a file of this name.
pub(crate) fn belongs(name: &str) -> bool {
    name == LOCK || name == UNFINISHED || is_log_file(name)
}

/// Makes a directory that only its owner reads, in one that is there.
///
/// # Errors
/// [`LogError::System`].
pub(crate) fn make_directory(directory: &Path) -> Result<(), LogError> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(directory);
    made.map_err(system("create", directory))?;
    sync_directory(directory)
}

/// Writes a base as of a position; `page` gives the rows behind a key. Returns its bytes.
///
/// # Errors
/// [`LogError`]; errors of `page`.
pub(crate) fn write_base<E: From<LogError> + std::fmt::Display>(
    directory: &Path,
    at: Position,
    mut page: impl FnMut(&[u8]) -> Result<Vec<Row>, E>,
) -> Result<u64, E> {
    let path = FileKind::Base.path(directory, at.number);
    let mut failed = None;
    let mut length = 0;
    let written = write_whole(&path, &|_| Ok(()), |file| {
        let mut put = |bytes: &[u8]| {
            length += bytes.len() as u64;
            file.write_all(bytes)
        };
        put(&header(FileKind::Base, at))?;
        let (mut behind, mut row_count, mut payload) = (Vec::new(), 0, Vec::new());
        loop {
            let rows = page(&behind).map_err(|error| {
                let text = error.to_string();
                failed = Some(error);
                std::io::Error::other(text)
            })?;
            for (key, value) in &rows {
                put_part(&mut payload, key);
                put_part(&mut payload, value);
                row_count += 1;
                if payload.len() > ROWS_BYTES {
                    put(&block(at.digest, row_count, &payload))?;
                    payload.clear();
                }
            }
            if let Some((key, _)) = rows.last() {
                behind = [key.as_slice(), &[0]].concat();
                continue;
            }
            if !payload.is_empty() {
                put(&block(at.digest, row_count, &payload))?;
            }
            return put(&block(at.digest, row_count, &[]));
        }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    written?;
    // The files that it replaces go after that.
    let chain = Chain::find(directory)?;
    let chain = chain.ok_or_else(|| LogError::Missing(directory.to_owned()))?;
    chain.rows::<LogError>(|_| Ok(()))?;
    Ok(length)
}

/// Refuses a directory without a log, before anything is made for it or in it.
///
/// # Errors
/// [`LogError::Missing`]; [`LogError::System`].
pub(crate) fn check_there(directory: &Path) -> Result<(), LogError> {
    if directory.is_dir() {
        for kind in [FileKind::Base, FileKind::Log] {
            if !numbers(directory, kind)?.is_empty() {
                return Ok(());
            }
        }
    }
    Err(LogError::Missing(directory.to_owned()))
}

/// Reads a log: first the rows of its base in pages, then the changes of each transaction behind it. Returns its end,
/// and the number of transactions.
///
/// # Errors
/// [`LogError`] without a whole log; errors of the visitors.
pub(crate) fn read_log<E: From<LogError>>(
    directory: &Path,
    rows: impl FnMut(&[Row]) -> Result<(), E>,
    mut changes: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(End, u64), E> {
    check_there(directory)?;
    // A copy of a log may be on a file system that cannot be written, and has no other reader.
    let _lock = match lock(directory) {
        Err(LogError::System { .. }) => None,
        locked => Some(locked?),
    };
    let chain = Chain::find(directory)?;
    let chain = chain.ok_or_else(|| LogError::Missing(directory.to_owned()))?;
    chain.rows(rows)?;
    let mut count = 0;
    let end = chain.changes(|_, bytes| {
        count += 1;
        changes(bytes)
    })?;
    Ok((end, count))
}

/// Locks a directory for this process, by a file in it: directories of network file systems have no locks.
///
/// # Errors
/// [`LogError::InUse`], [`LogError::Missing`] without a directory, [`LogError::System`].
pub(crate) fn lock(directory: &Path) -> Result<File, LogError> {
    let path = directory.join(LOCK);
    if !directory.is_dir() {
        return Err(LogError::Missing(directory.to_owned()));
    }
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = options.open(&path).map_err(system("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LogError::InUse(directory.to_owned())),
        Err(TryLockError::Error(error)) => Err(system("lock", path)(error)),
    }
}

/// Opens the last file behind its whole blocks.
fn open_tail(path: PathBuf, bytes: u64, salt: u64) -> Result<Tail, LogError> {
    let fails = |operation| system(operation, &path);
    let mut file = File::options();
    let mut file = file.write(true).open(&path).map_err(fails("open"))?;
    file.set_len(bytes).map_err(fails("shorten"))?;
    file.sync_all().map_err(fails("sync"))?;
    sync_directory(&path)?;
    file.seek(SeekFrom::End(0)).map_err(fails("open"))?;
    Ok(Tail {
        path,
        file,
        bytes,
        salt,
    })
}

/// Makes the file for the changes behind a position.
fn new_tail(directory: &Path, at: Position) -> Result<Tail, LogError> {
    let path = FileKind::Log.path(directory, at.number);
    let mut file = create(&path)?;
    let bytes = header(FileKind::Log, at);
    file.write_all(&bytes).map_err(system("write", &path))?;
    file.sync_all().map_err(system("sync", &path))?;
    sync_directory(&path)?;
    let bytes = bytes.len() as u64;
    let salt = at.digest;
    Ok(Tail {
        path,
        file,
        bytes,
        salt,
    })
}

#[cfg(test)]
impl MetadataLog {
    /// Begins a new file with the next change.
    pub(crate) fn end_file(&mut self) {
        self.tail = None;
    }

    /// Makes each further write fail, as on a full disk.
    pub(crate) fn fill_disk(&mut self) {
        let full = File::options().write(true).open("/dev/full");
        self.tail = full.ok().map(|file| Tail {
            path: PathBuf::from("/dev/full"),
            file,
            bytes: 0,
            salt: 0,
        });
    }
}
