//! A client of the simulated cluster: the real one, on a machine of its own, and its reports to the
//! checkers.

use crate::cached::CachedWrites;
use crate::cells::{CELL_BYTES, UpdateId, fill};
use crate::coverage::{Coverage, Tally};
use crate::ledger::Ledger;
use crate::names::is_snapshot;
use crate::parties::Party;
use crate::ports::SimPorts;
use crate::world::World;
use bytes::Bytes;
use gabion_client::{Cause, Client, ClientError, ClientOptions, File, NewFile};
use gabion_layout::ByteRange;
use gabion_meta::Existing;
use std::ops::Range;
use std::sync::Arc;

/// Wait of a client before it tries to connect to the coordinator again.
const CONNECT_PAUSE_US: u64 = 300_000;

/// A client. Clones share its state.
#[derive(Clone)]
pub(crate) struct SimClient {
    pub(crate) client: Client,
    pub(crate) party: Party,
    pub(crate) world: Arc<World>,
    pub(crate) ledger: Arc<Ledger>,
    tally: Arc<Tally>,
    /// Its writes through its cache.
    pub(crate) cached: CachedWrites,
}

/// The bytes of cells.
pub(crate) fn byte_range(cells: &Range<u64>) -> ByteRange {
    let length = (cells.end - cells.start) * CELL_BYTES;
    ByteRange::new(cells.start * CELL_BYTES, length)
}

impl SimClient {
    /// Connects, without a time limit.
    pub(crate) async fn connect(
        ports: Arc<SimPorts>,
        party: Party,
        ledger: Arc<Ledger>,
        options: ClientOptions,
    ) -> Self {
        let world = Arc::clone(ports.world());
        let tally = Arc::clone(ports.tally());
        loop {
            let connected = Client::connect(Arc::<SimPorts>::clone(&ports), options.clone());
            if let Ok(client) = connected.await {
                return Self {
                    client,
                    party,
                    world,
                    ledger,
                    tally,
                    cached: CachedWrites::default(),
                };
            }
            world.sleep(CONNECT_PAUSE_US).await;
        }
    }

    /// Stores a file of `cell_count` cells.
    pub(crate) async fn put(&self, name: &str, cell_count: u64) -> Result<(), ClientError> {
        self.put_as((name, Existing::Stays), cell_count).await
    }

    /// Stores a file in the place of one that has the name already, if there is one. After an error, either
    /// may be there.
    pub(crate) async fn put_over(&self, name: &str, cell_count: u64) -> Result<(), ClientError> {
        let Ok(old) = self.open(name).await.map(|file| file.put_id()) else {
            return self.put(name, cell_count).await;
        };
        let removal = self.ledger.replacing(name, old);
        let target = (name, Existing::IsReplacedIf(old));
        self.put_as(target, cell_count).await?;
        self.ledger.replaced(name, removal);
        Ok(())
    }

    async fn put_as(
        &self,
        (name, existing): (&str, Existing),
        cell_count: u64,
    ) -> Result<(), ClientError> {
        let write = self.ledger.name();
        let bytes = fill(write, 0, cell_count);
        let size_bytes = bytes.len() as u64;
        self.ledger
            .putting(self.party.slot, name, write, cell_count);
        let called_us = self.world.now_us();
        let bytes = bytes.as_slice();
        let new = NewFile {
            existing,
            ..NewFile::named(name)
        };
        let put = self.client.put_over(new, bytes, size_bytes, &());
        let put = put.await?.put;
        self.ledger.put_is_done(name, put, write, called_us);
        Ok(())
    }

    /// Stores a file of `cell_count` cells whose size the client does not know before. No other put has the name.
    pub(crate) async fn put_stream(&self, name: &str, cell_count: u64) -> Result<(), ClientError> {
        let write = self.ledger.name();
        let bytes = fill(write, 0, cell_count);
        self.ledger
            .streaming(self.party.slot, name, write, cell_count);
        let called_us = self.world.now_us();
        let new = NewFile::named(name);
        let put = self.client.put_stream(new, bytes.as_slice(), &());
        let put = put.await?.put;
        self.ledger.put_is_done(name, put, write, called_us);
        Ok(())
    }

    /// Gives a file another name, which another file may have already. After an error, it may have either.
    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<(), ClientError> {
        let handle = self.open(from).await?;
        let file = handle.put_id();
        let old = self.open(to).await.ok().map(|file| file.put_id());
        let existing = old.map_or(Existing::Stays, Existing::IsReplacedIf);
        let called_us = self.world.now_us();
        let left = self.ledger.replacing(from, file);
        let removal = old.map(|old| self.ledger.replacing(to, old));
        self.ledger.naming(to, file);
        handle.rename(to, existing).await?;
        self.ledger.replaced(from, left);
        if let Some(removal) = removal {
            self.ledger.replaced(to, removal);
        }
        self.ledger.is_there(to, file, called_us);
        Ok(())
    }

    /// Gives a file one more name. After an error, it may have it.
    pub(crate) async fn link(&self, name: &str, to: &str) -> Result<(), ClientError> {
        let file = self.open(name).await?.put_id();
        let called_us = self.world.now_us();
        self.ledger.naming(to, file);
        self.client.link(file, to).await?;
        self.ledger.is_there(to, file, called_us);
        Ok(())
    }

    /// Moves a directory from one path to another, and so the names below it, each with its new path. After an error,
    /// they may have either.
    pub(crate) async fn rename_directory(
        &self,
        (from, to): (&str, &str),
        names: &[(&str, &str)],
    ) -> Result<(), ClientError> {
        let renamed = self.client.rename(from, to, Existing::Stays);
        self.moving(names, renamed).await
    }

    /// Exchanges two names, and so these names of files, each with its new path. After an error, they may have either.
    pub(crate) async fn exchange(
        &self,
        (one, other): (&str, &str),
        names: &[(&str, &str)],
    ) -> Result<(), ClientError> {
        let exchanged = self.client.exchange_names(one, other);
        self.moving(names, exchanged).await
    }

    /// An operation that gives these names of files other paths.
    async fn moving(
        &self,
        names: &[(&str, &str)],
        operation: impl Future<Output = Result<(), ClientError>>,
    ) -> Result<(), ClientError> {
        let mut moved = Vec::new();
        for &(old, new) in names {
            moved.push((old, new, self.open(old).await?.put_id()));
        }
        let called_us = self.world.now_us();
        let leave = |&(old, new, file): &(&str, &str, _)| {
            self.ledger.naming(new, file);
            self.ledger.replacing(old, file)
        };
        let left: Vec<_> = moved.iter().map(leave).collect();
        operation.await?;
        for ((old, new, file), left) in moved.into_iter().zip(left) {
            self.ledger.replaced(old, left);
            self.ledger.is_there(new, file, called_us);
        }
        Ok(())
    }

    /// Removes a file. After an error, its state is unknown.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), ClientError> {
        self.client.rm(name).await?;
        self.ledger.removed(self.party.slot, name);
        Ok(())
    }

    /// The names of all files.
    pub(crate) async fn list(&self) -> Result<Vec<String>, ClientError> {
        let called_us = self.world.now_us();
        let mut files = self.client.ls("").await?;
        // They are looked up by the test that makes them.
        files.retain(|file| file.symlink.is_none() && !is_snapshot(&file.name));
        let puts = files.iter().map(|file| (file.name.clone(), file.put));
        self.ledger.listed(&puts.collect::<Vec<_>>(), called_us);
        Ok(files.into_iter().map(|file| file.name).collect())
    }

    /// Opens a file.
    pub(crate) async fn open(&self, name: &str) -> Result<File, ClientError> {
        let called_us = self.world.now_us();
        let opened = self.client.open(name).await;
        match &opened {
            Ok(file) => self.note_opened(name, file, called_us),
            Err(error) if error.cause() == Cause::NotFound => {
                self.ledger.is_not_there(name, called_us);
            }
            Err(_) => {}
        }
        opened
    }

    /// Notes that a file was there while an open ran.
    pub(crate) fn note_opened(&self, name: &str, file: &File, called_us: u64) {
        self.ledger.is_there(name, file.put_id(), called_us);
        self.note_size(file, called_us);
    }

    /// The time.
    pub(crate) fn now_us(&self) -> u64 {
        self.world.now_us()
    }

    /// Ends the run: a guarantee is violated.
    pub(crate) fn fail(&self, reason: String) {
        self.world.fail(reason);
    }

    /// Overwrites cells. Returns the write, which another call may repeat.
    pub(crate) async fn write(
        &self,
        file: &File,
        cells: &Range<u64>,
    ) -> Result<Bytes, ClientError> {
        let (id, write) = (file.put_id(), self.ledger.name());
        let bytes = Bytes::from(fill(write, cells.start, cells.end - cells.start));
        self.ledger.writing(id, write, cells);
        let known_bytes = file.size_bytes();
        let written = file.write(byte_range(cells).offset, bytes.clone()).await;
        self.report(file, &format!("{write:?} of cells {cells:?}"), &written);
        match &written {
            Ok(()) => {
                self.ledger.written(id, write);
                let is_behind = known_bytes < byte_range(cells).end();
                self.count(|coverage| coverage.write_behind_count += u64::from(is_behind));
            }
            Err(ClientError::Undecided { .. }) => {}
            Err(ClientError::Forgotten(_)) => self.ledger.ended(id, write),
            Err(_) => self.ledger.denied(id, write),
        }
        written.map(|()| bytes)
    }

    /// Checks the size of a file that was looked up since `called_us`.
    fn note_size(&self, file: &File, called_us: u64) {
        let size_bytes = file.size_bytes();
        self.ledger.size_is(file.put_id(), size_bytes, called_us);
    }

    /// Overwrites cells, each stripe by itself. `cells_between_ends`: see [`crate::shape::Shape`].
    pub(crate) async fn write_pieces(
        &self,
        file: &File,
        cells: &Range<u64>,
        cells_between_ends: u64,
    ) -> Result<(), ClientError> {
        let (bytes, writes) = self.name_pieces(file, cells, cells_between_ends);
        let offset = byte_range(cells).offset;
        let written = file.write_pieces(offset, bytes).await;
        let what = format!("{writes:?} of cells {cells:?}, in pieces");
        self.report(file, &what, &written);
        // After an error, any of them may take effect, also later: the client does not say.
        written?;
        self.note_pieces(file, writes);
        Ok(())
    }

    /// Names the writes of cells in pieces, and makes their bytes.
    fn name_pieces(
        &self,
        file: &File,
        cells: &Range<u64>,
        cells_between_ends: u64,
    ) -> (Bytes, Vec<UpdateId>) {
        let (mut bytes, mut writes, mut at) = (Vec::new(), Vec::new(), cells.start);
        while at < cells.end {
            let end = (at / cells_between_ends + 1) * cells_between_ends;
            let part = at..end.min(cells.end);
            let write = self.ledger.name();
            self.ledger.writing(file.put_id(), write, &part);
            bytes.extend(fill(write, at, part.end - at));
            at = part.end;
            writes.push(write);
        }
        (bytes.into(), writes)
    }

    /// Notes acknowledged writes in pieces.
    fn note_pieces(&self, file: &File, writes: Vec<UpdateId>) {
        for write in writes {
            self.ledger.written(file.put_id(), write);
        }
        self.count(|coverage| coverage.write_in_pieces_count += 1);
    }

    /// Appends cells to a file. Their contents depend on their numbers.
    pub(crate) async fn append(
        &self,
        file: &File,
        cell_count: u64,
        cells_between_ends: u64,
    ) -> Result<(), ClientError> {
        let by_bytes = cell_count * CELL_BYTES;
        let id = file.put_id();
        let extension = self.ledger.extending(id, by_bytes);
        let mut writes = Vec::new();
        let make = |offset| {
            let range = offset..offset + by_bytes;
            self.world
                .note(&format!("{}: extended by {range:?}", file.name()));
            self.ledger.extended(id, extension, range);
            let first = offset / CELL_BYTES;
            let cells = first..first + cell_count;
            let (bytes, names) = self.name_pieces(file, &cells, cells_between_ends);
            writes = names;
            bytes
        };
        let appended = file.append_made((by_bytes, by_bytes), make).await;
        self.report(file, &format!("an append of {writes:?}"), &appended);
        // After an error, any of them may take effect, also later: the client does not say.
        appended?;
        self.note_pieces(file, writes);
        self.count(|coverage| coverage.append_count += 1);
        Ok(())
    }

    /// Gives a file at least this many cells.
    pub(crate) async fn grow(&self, file: &File, cell_count: u64) -> Result<(), ClientError> {
        let (id, size_bytes) = (file.put_id(), cell_count * CELL_BYTES);
        let called_us = self.world.now_us();
        let growth = self.ledger.growing(id, size_bytes);
        let grown = file.grow(size_bytes).await;
        self.report(file, &format!("growth to {cell_count}"), &grown);
        grown?;
        self.note_size(file, called_us);
        self.ledger.grown(id, growth);
        self.count(|coverage| coverage.growth_count += 1);
        Ok(())
    }

    /// Allocates space for cells of a file, which has at least these cells afterwards.
    pub(crate) async fn allocate(
        &self,
        file: &File,
        cells: &Range<u64>,
    ) -> Result<(), ClientError> {
        let (id, range) = (file.put_id(), byte_range(cells));
        let called_us = self.world.now_us();
        let growth = self.ledger.growing(id, range.end());
        let (_, allocated) = file.allocate(range, true, || false).await;
        self.report(file, &format!("space for cells {cells:?}"), &allocated);
        allocated?;
        self.note_size(file, called_us);
        self.ledger.grown(id, growth);
        Ok(())
    }

    /// Gives a file this many cells.
    pub(crate) async fn truncate(&self, file: &File, cell_count: u64) -> Result<(), ClientError> {
        let (id, size_bytes) = (file.put_id(), cell_count * CELL_BYTES);
        let truncation = self.ledger.truncating(id, cell_count);
        let truncated = file.truncate(size_bytes).await;
        self.report(file, &format!("truncation to {cell_count}"), &truncated);
        truncated?;
        self.ledger.truncated(id, truncation);
        self.count(|coverage| coverage.truncation_count += 1);
        Ok(())
    }

    /// Makes cells of a file zero.
    pub(crate) async fn punch(&self, file: &File, cells: &Range<u64>) -> Result<(), ClientError> {
        let id = file.put_id();
        let hole = self.ledger.punching(id, cells);
        let punched = file.punch(byte_range(cells)).await;
        self.report(file, &format!("a hole of cells {cells:?}"), &punched);
        punched?;
        self.ledger.punched(id, hole);
        self.count(|coverage| coverage.hole_count += 1);
        Ok(())
    }

    /// Asks which ranges are stored, and checks that the others may be zero.
    pub(crate) async fn read_holes(&self, file: &File) -> Result<(), ClientError> {
        let called_us = self.world.now_us();
        let all = ByteRange::new(0, u64::MAX);
        let stored = file.stored_within(all).await?;
        if self.world.is_forgiving() {
            return Ok(());
        }
        self.note_size(file, called_us);
        let end = ByteRange::new(file.size_bytes(), 0);
        let (mut holes, mut at) = (Vec::new(), 0);
        for range in stored.into_iter().chain([end]) {
            if at < range.offset {
                let zeros = vec![0; (range.offset - at) as usize];
                holes.push((at / CELL_BYTES, zeros));
            }
            at = range.end();
        }
        self.ledger.read(file.put_id(), &holes, called_us);
        self.count(|coverage| coverage.hole_read_count += holes.len() as u64);
        Ok(())
    }

    fn report<T>(&self, file: &File, what: &str, done: &Result<T, ClientError>) {
        let name = file.name();
        self.world.note(&match done {
            Ok(_) => format!("{name}: {what} is acknowledged"),
            Err(error) => format!("{name}: {what} fails: {error}"),
        });
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Coverage)) {
        self.tally.add(change);
    }

    /// Reads cells.
    pub(crate) async fn read(&self, file: &File, cells: &Range<u64>) -> Result<(), ClientError> {
        let called_us = self.world.now_us();
        let bytes = file.read(byte_range(cells)).await?;
        let seen = [(cells.start, bytes)];
        self.ledger.read(file.put_id(), &seen, called_us);
        Ok(())
    }

    /// Reads a whole file by its name.
    pub(crate) async fn get(&self, name: &str) -> Result<(), ClientError> {
        let file = self.open(name).await?;
        let called_us = self.world.now_us();
        let mut bytes = Vec::new();
        if self.world.is_forgiving() {
            // A hostile coordinator may make a file too large for memory.
            return self
                .client
                .get(name, &mut futures::io::sink(), &())
                .await
                .map(drop);
        }
        self.client.get(name, &mut bytes, &()).await?;
        // Another file may have been stored under the name.
        let again = self.open(name).await?;
        if again.put_id() == file.put_id() {
            self.ledger.read(file.put_id(), &[(0, bytes)], called_us);
        }
        Ok(())
    }
}
