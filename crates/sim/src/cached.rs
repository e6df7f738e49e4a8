//! A client's writes and reads through its cache, and what they must show: a client reads its last write or something
//! newer, and what it has replaced is seen by no reader once the later write is flushed.

use crate::cells::{CELL_BYTES, UpdateId, fill, writer};
use crate::client::{SimClient, byte_range};
use crate::world::lock;
use gabion_client::{CachedFile, ClientError};
use gabion_meta::PutId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// A file opened through the cache.
#[derive(Clone)]
pub(crate) struct Cached {
    pub(crate) file: CachedFile,
    /// The call time of the open.
    opened_us: u64,
}

/// The writes of a client through its cache. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct CachedWrites(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Writes that no flush is known to have stored: this client reads them, and others may not yet.
    unflushed: BTreeSet<UpdateId>,
    /// Those of them that have returned, so that the next flush stores them.
    returned: BTreeSet<UpdateId>,
    /// Writes whose outcome a flush reported as unknown.
    doubted: BTreeSet<UpdateId>,
    /// A write of each cell that no returned one has replaced, and the last call of a returned one.
    last: BTreeMap<(PutId, u64), (UpdateId, u64)>,
    /// Writes that a later one of this client has replaced.
    replaced: BTreeMap<UpdateId, Replaced>,
    /// Flushes of each file: those that are running, and all.
    flushes: BTreeMap<PutId, (u64, u64)>,
}

/// A write that a later one of the same client has replaced. Only others may see it, until the later one is flushed.
struct Replaced {
    file: PutId,
    at_us: u64,
    /// Whether a later one is flushed.
    is_stored: bool,
}

/// A write of one cell that is called.
struct Overwrite {
    key: (PutId, u64),
    write: UpdateId,
    called_us: u64,
    /// The write that it replaces.
    earlier: Option<UpdateId>,
}

impl CachedWrites {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    fn call(&mut self, key: (PutId, u64), write: UpdateId, called_us: u64) -> Overwrite {
        self.unflushed.insert(write);
        let earlier = self.last.get(&key).map(|&(earlier, _)| earlier);
        Overwrite {
            key,
            write,
            called_us,
            earlier,
        }
    }

    fn end(&mut self, call: &Overwrite, now_us: u64) {
        if self.doubted.contains(&call.write) {
            return;
        }
        self.returned.insert(call.write);
        // The outcome of a doubted one is open: it may be stored later.
        let replaced = call.earlier.filter(|write| !self.doubted.contains(write));
        if let Some(write) = replaced {
            let replaced = Replaced {
                file: call.key.0,
                at_us: now_us,
                is_stored: false,
            };
            self.replaced.entry(write).or_insert(replaced);
        }
        let last = self.last.entry(call.key).or_insert((call.write, 0));
        *last = (call.write, last.1.max(call.called_us));
    }

    /// Notes that the outcome of these writes of a file is unknown. Those that they replaced may be seen again.
    fn doubt(&mut self, file: PutId, writes: BTreeSet<UpdateId>) {
        self.returned.retain(|write| !writes.contains(write));
        self.replaced
            .retain(|_, replaced| replaced.file != file || replaced.is_stored);
        self.doubted.extend(writes);
    }
}

impl SimClient {
    /// Opens a file to read and write it through the cache.
    pub(crate) async fn open_cached(&self, name: &str) -> Result<Cached, ClientError> {
        let opened_us = self.world.now_us();
        let file = self.client.open_cached(name).await?;
        let id = file.put_id();
        self.ledger.is_there(name, id, opened_us);
        self.ledger.size_is(id, file.size_bytes(), opened_us);
        Ok(Cached { file, opened_us })
    }

    /// Overwrites cells through the cache: each is a write of its own, since they need not be stored together.
    pub(crate) async fn write_cached(
        &self,
        cached: &Cached,
        cells: &Range<u64>,
    ) -> Result<(), ClientError> {
        let (id, called_us) = (cached.file.put_id(), self.world.now_us());
        let (mut bytes, mut overwrites) = (Vec::new(), Vec::new());
        for cell in cells.clone() {
            let write = self.ledger.name();
            overwrites.push(self.cached.lock().call((id, cell), write, called_us));
            let name = cached.file.name();
            self.world
                .note(&format!("{name}: {write:?} of cell {cell} is in the cache"));
            self.ledger.writing(id, write, &(cell..cell + 1));
            bytes.extend(fill(write, cell, 1));
        }
        let offset = byte_range(cells).offset;
        let written = cached.file.write(offset, bytes.into()).await;
        if written.is_ok() {
            let state = &mut *self.cached.lock();
            for overwrite in &overwrites {
                state.end(overwrite, self.world.now_us());
            }
        }
        written
    }

    /// Flushes a file's writes through the cache.
    pub(crate) async fn flush(&self, cached: &Cached) -> Result<(), ClientError> {
        let id = cached.file.put_id();
        let is_of_file = |write: &UpdateId| self.ledger.is_write_of(id, *write);
        let (before, replaced): (Vec<UpdateId>, Vec<UpdateId>) = {
            let mut state = self.cached.lock();
            let (running, all) = state.flushes.entry(id).or_default();
            (*running, *all) = (*running + 1, *all + 1);
            let replaced = state.replaced.iter();
            let replaced = replaced.filter(|(_, one)| one.file == id && !one.is_stored);
            (
                state.returned.iter().copied().filter(is_of_file).collect(),
                replaced.map(|(&write, _)| write).collect(),
            )
        };
        let flushed = cached.file.flush().await;
        if matches!(flushed, Err(ClientError::Forgotten(_))) {
            // The error does not name them: each may be stored, may be stored later, or is dropped.
            let all = self.cached.lock().unflushed.clone();
            let doubted: BTreeSet<UpdateId> = all.into_iter().filter(is_of_file).collect();
            self.world.note(&format!(
                "it is forgotten whether these are made: {doubted:?}"
            ));
            self.cached.lock().doubt(id, doubted);
        }
        let state = &mut *self.cached.lock();
        if let Some((running, _)) = state.flushes.get_mut(&id) {
            *running -= 1;
        }
        flushed?;
        for write in before {
            // Another flush may have reported it already.
            if state.returned.remove(&write) {
                state.unflushed.remove(&write);
                self.world.note(&format!("{write:?} is flushed"));
                self.ledger.written(id, write);
            }
        }
        for write in replaced {
            // Another flush may have found by now that the later write is forgotten.
            if let Some(replaced) = state.replaced.get_mut(&write) {
                replaced.is_stored = true;
                self.ledger.replaced_in_cache(write);
            }
        }
        Ok(())
    }

    /// Reads cells through the cache: each has this client's last write, or the state of some moment since
    /// that was called and since the file was opened.
    pub(crate) async fn read_cached(
        &self,
        cached: &Cached,
        cells: &Range<u64>,
    ) -> Result<(), ClientError> {
        let id = cached.file.put_id();
        let (before, since_us, flushes, called_us) = {
            let state = self.cached.lock();
            let since_us = cells.clone().map(|cell| {
                let last = state.last.get(&(id, cell));
                last.map_or(0, |&(_, called_us)| called_us)
            });
            (
                state.unflushed.clone(),
                since_us.collect::<Vec<u64>>(),
                state.flushes.get(&id).copied().unwrap_or_default(),
                self.world.now_us(),
            )
        };
        let bytes = cached.file.read(byte_range(cells)).await?;
        let seen = bytes.chunks(CELL_BYTES as usize).zip(since_us);
        for (cell, (bytes, since_us)) in cells.clone().zip(seen) {
            let write = writer(cell, bytes);
            if write.is_some_and(|write| self.is_over(id, write, flushes, called_us)) {
                let name = cached.file.name();
                self.world.fail(format!(
                    "{name}: cell {cell} shows {write:?} to the client that has replaced it in its cache"
                ));
            }
            let is_own = write.is_some_and(|write| {
                before.contains(&write) || self.cached.lock().unflushed.contains(&write)
            });
            if !is_own {
                let seen = [(cell, bytes.to_vec())];
                self.ledger.read(id, &seen, cached.opened_us.max(since_us));
            }
        }
        Ok(())
    }

    /// Whether a write was replaced before a read was called, so that its client's cache must not show it. A flush may
    /// find that the later write is forgotten, some time before it returns.
    fn is_over(&self, file: PutId, write: UpdateId, flushes: (u64, u64), called_us: u64) -> bool {
        let state = self.cached.lock();
        let has_flushed =
            flushes.0 > 0 || state.flushes.get(&file).is_some_and(|now| *now != flushes);
        let replaced = state.replaced.get(&write);
        replaced.is_some_and(|replaced| {
            replaced.at_us < called_us
                && (replaced.is_stored || !has_flushed)
                && !self.world.is_forgiving()
        })
    }

    /// Reads cells through the cache as the only writer: each must have this client's last write.
    #[cfg(test)]
    pub(crate) async fn read_own(
        &self,
        cached: &Cached,
        cells: &Range<u64>,
    ) -> Result<(), ClientError> {
        let id = cached.file.put_id();
        let bytes = cached.file.read(byte_range(cells)).await?;
        for (cell, bytes) in cells.clone().zip(bytes.chunks(CELL_BYTES as usize)) {
            let last = self.cached.lock().last.get(&(id, cell)).map(|last| last.0);
            let shown = writer(cell, bytes);
            if shown != last {
                let found = format!("cell {cell} shows {shown:?}, and the last write is {last:?}");
                self.world.fail(found);
            }
        }
        Ok(())
    }
}
