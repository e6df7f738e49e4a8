//! The metadata log of a store: its beginning, new bases, what a store takes over from it, and a store that is
//! restored from it.

use super::{LATER, NOW, POSITION, ROWS, RedbStore, Restored, View};
use super::{change_rows, lock, name_new_file, new_file, remove_unfinished, storage, stored_in};
use crate::error::MetaError;
use crate::kv::{ReadTxn as _, Row};
use crate::metadata_log::{
    Chain, Change, Due, MetadataLog, Position, Stored, check_there, decode_changes, encode_change,
    read_log, write_base,
};
use redb::ReadableDatabase as _;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Rows that are read at once for a base.
const PAGE: usize = 4096;

impl RedbStore {
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

    /// Restores the store of a metadata log: a new file at `path` with all changes that the log has. Another process
    /// must not use the log. A restored store goes on with the same log.
    ///
    /// # Errors
    /// [`MetaError::Log`] if the log is not whole; [`MetaError::Exists`] if there is a file at `path`; errors of the
    /// store.
    pub fn restore(path: &Path, log: &Path) -> Result<Restored, MetaError> {
        if path.try_exists().map_err(storage("look for the store"))? {
            return Err(MetaError::Exists {
                path: path.to_owned(),
            });
        }
        // Nothing is made if there is no log.
        check_there(log)?;
        Self::restore_new(path, log).inspect_err(|_| {
            // The first error is the one to tell.
            let _ = remove_unfinished(path);
        })
    }

    fn restore_new(path: &Path, log: &Path) -> Result<Restored, MetaError> {
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

    /// The directory of the metadata log, if there is one and its changes have grown so that a new base is due.
    pub fn due_log(&self) -> Option<PathBuf> {
        let log = lock(self.log.as_ref()?);
        log.wants_base().then(|| log.directory().to_owned())
    }

    /// Writes a new base of the metadata log if one is due. Transactions continue during that. Returns whether it
    /// wrote one.
    ///
    /// # Errors
    /// [`MetaError::Log`], after which the log continues without a new base; errors of the store.
    pub fn renew_log(&self) -> Result<bool, MetaError> {
        let is_due = self.due_log().is_some();
        if is_due {
            self.write_base()?;
        }
        Ok(is_due)
    }

    /// Writes a base of the log with all rows of this moment.
    pub(crate) fn write_base(&self) -> Result<(), MetaError> {
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

    /// Begins a new file of the log with the next change.
    #[cfg(test)]
    pub(crate) fn end_log_file(&self) {
        if let Some(log) = &self.log {
            lock(log).end_file();
        }
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
}

/// The changes of a transaction of a log.
fn decoded(bytes: &[u8]) -> Result<Vec<Change<'_>>, MetaError> {
    decode_changes(bytes).ok_or_else(|| storage("read a transaction of the log")("no changes"))
}
