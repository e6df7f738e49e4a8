//! Clients' calls and answers, for the checkers: [`Registers`] has the bytes of files, [`Sizes`] their sizes,
//! [`Names`] the files as a whole. It uses the system's own information only for identity: which put a file is of.

use crate::cells::{CELL_BYTES, UpdateId};
use crate::meta_disk::Onlooker;
use crate::names::{Names, Span};
use crate::parties::Slot;
use crate::registers::{Registers, Seen};
use crate::shape::{PAGE_BYTES, Shape};
use crate::sizes::{SizeSeen, Sizes};
use crate::world::{World, lock};
use gabion_meta::{Meta, PutId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Stripes of a file that grows, at most: several times as many as its clients want.
const STRIPE_COUNT_MAX: u64 = 64;

/// The checkers. A broken promise ends the world.
pub(crate) struct Ledger {
    world: Arc<World>,
    /// Cells of a block: a write within one is atomic even after a conversion of its stripe.
    block_cells: u64,
    /// Cells of a file that grows, at most. Other files have no holes.
    cells_max: Option<u64>,
    /// The coordinator's metadata. They tell which file an inline put has made, though its client may never hear it.
    metadata: Arc<Meta<Onlooker>>,
    state: Mutex<State>,
}

/// A put by its client, its name and its number of cells.
type PutKey = (Slot, String, u64);

/// A put of a size that its client does not announce.
#[derive(Clone, Copy)]
struct Stream {
    write: UpdateId,
    called_us: u64,
    cell_count: u64,
}

#[derive(Default)]
struct State {
    registers: Registers,
    names: Names,
    sizes: Sizes,
    /// The write of a put, by client, name and number of cells, and when the put was called. Several puts of
    /// a client and a name may be in flight: their sizes are random, so they differ.
    puts: BTreeMap<PutKey, (UpdateId, u64)>,
    /// The put of a stream, by client and name: each has its own name.
    streams: BTreeMap<(Slot, String), Stream>,
    /// The puts that one request may carry out, by the number of the request, until the file of each is known.
    whole: BTreeMap<u64, PutKey>,
    /// The number of the last removal of a name that a client has called.
    removals: BTreeMap<(Slot, String), usize>,
    /// The file of each write, and its number as a change of the file's size.
    files: BTreeMap<UpdateId, (PutId, usize)>,
    written_count: u64,
    read_count: u64,
}

impl Ledger {
    pub(crate) fn new(
        world: Arc<World>,
        shape: &Shape,
        metadata: Arc<Meta<Onlooker>>,
    ) -> Arc<Self> {
        // Conversions change the borders of stripes, but never split a page: the last segment of a file has
        // smaller chunks than the others, of whole pages.
        let block_bytes = match shape.lifecycle {
            Some(_) => PAGE_BYTES,
            None => shape.stripe_bytes,
        };
        let block_cells = block_bytes / CELL_BYTES;
        Arc::new(Self {
            world,
            block_cells,
            cells_max: shape.grows().then(|| STRIPE_COUNT_MAX * block_cells),
            metadata,
            state: Mutex::default(),
        })
    }

    /// A name for a future write.
    pub(crate) fn name(&self) -> UpdateId {
        UpdateId(self.world.fresh() as u32)
    }

    /// A client is about to put a file of `cell_count` cells.
    pub(crate) fn putting(&self, client: Slot, name: &str, write: UpdateId, cell_count: u64) {
        let now_us = self.world.now_us();
        self.state()
            .puts
            .insert((client, name.to_owned(), cell_count), (write, now_us));
    }

    /// A client is about to put a file of `cell_count` cells, and does not announce how many they are.
    pub(crate) fn streaming(&self, client: Slot, name: &str, write: UpdateId, cell_count: u64) {
        let stream = Stream {
            write,
            called_us: self.world.now_us(),
            cell_count,
        };
        let key = (client, name.to_owned());
        self.state().streams.insert(key, stream);
    }

    /// A client sends a request with this number that may carry out a whole put.
    pub(crate) fn may_put(&self, key: PutKey, number: u64) {
        lock(&self.state).whole.insert(number, key);
    }

    /// The coordinator has told a client the put of its file; it may do so several times for one call.
    pub(crate) fn put_has_begun(&self, key: &PutKey, file: PutId) {
        let mut state = self.state();
        // It has places, so no request carries it out.
        state.whole.retain(|_, known| known != key);
        self.begin_put(&mut state, key, file);
    }

    /// The state, with all files that inline puts have made.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        let made = |number: &u64| self.metadata.file_made_by(*number).ok().flatten();
        let whole: Vec<_> = state
            .whole
            .keys()
            .map(|number| (*number, made(number)))
            .collect();
        for (number, file) in whole {
            if let (Some(file), Some(key)) = (file, state.whole.get(&number).cloned()) {
                state.whole.remove(&number);
                self.begin_put(&mut state, &key, file);
            }
        }
        state
    }

    fn begin_put(&self, state: &mut State, key: &PutKey, file: PutId) {
        let (client, name, announced_count) = key;
        let stream = state.streams.get(&(*client, name.clone())).copied();
        let whole = state.puts.get(key).map(|&(write, called_us)| Stream {
            write,
            called_us,
            cell_count: *announced_count,
        });
        let Some(put) = stream.or(whole) else {
            return;
        };
        let Stream {
            write,
            called_us,
            cell_count,
        } = put;
        state.names.putting(name, file, called_us);
        state.registers.add_file(file, self.block_cells);
        if let Some(cells_max) = self.cells_max {
            let behind = cell_count..cells_max;
            state.registers.add_holes(file, &behind, called_us);
        }
        let all = 0..cell_count;
        state
            .registers
            .called(file, write, std::slice::from_ref(&all), called_us);
        let size_bytes = cell_count * CELL_BYTES;
        state.sizes.putting(file, size_bytes, called_us);
    }

    /// A put was acknowledged.
    pub(crate) fn put_is_done(&self, name: &str, file: PutId, write: UpdateId, called_us: u64) {
        let at = self.span(called_us);
        let state = &mut *self.state();
        if self.world.is_forgiving() && !state.registers.knows(file) {
            // A hostile peer has made it up, so it has no bytes of this put.
            return;
        }
        self.judge(state.registers.acknowledged(file, write, at.answered_us));
        self.judge(state.registers.exists(file, at.answered_us));
        self.judge(state.names.is_there(name, file, at));
    }

    /// A file was opened by its name.
    pub(crate) fn is_there(&self, name: &str, file: PutId, called_us: u64) {
        let at = self.span(called_us);
        let state = &mut *self.state();
        if self.world.is_forgiving() && !state.registers.knows(file) {
            // A hostile peer has made it up.
            state.registers.add_file(file, self.block_cells);
        }
        self.judge(state.names.is_there(name, file, at));
        self.judge(state.registers.exists(file, at.answered_us));
    }

    /// A client has looked up the size of a file.
    pub(crate) fn size_is(&self, file: PutId, size_bytes: u64, called_us: u64) {
        let seen = SizeSeen {
            size_bytes,
            called_us,
            answered_us: self.world.now_us(),
        };
        self.judge(self.state().sizes.seen(file, seen));
    }

    /// A client calls the growth of a file to a size. Returns its number.
    pub(crate) fn growing(&self, file: PutId, size_bytes: u64) -> usize {
        let now_us = self.world.now_us();
        let sizes = &mut self.state().sizes;
        sizes.growing(file, size_bytes, now_us)
    }

    /// It was acknowledged.
    pub(crate) fn grown(&self, file: PutId, number: usize) {
        let now_us = self.world.now_us();
        self.state().sizes.made(file, number, now_us);
    }

    /// A client calls the extension of a file. Returns its number.
    pub(crate) fn extending(&self, file: PutId, by_bytes: u64) -> usize {
        let now_us = self.world.now_us();
        let sizes = &mut self.state().sizes;
        sizes.extending(file, by_bytes, now_us)
    }

    /// It was acknowledged: the client has got this range.
    pub(crate) fn extended(&self, file: PutId, number: usize, range: Range<u64>) {
        let now_us = self.world.now_us();
        let sizes = &mut self.state().sizes;
        self.judge(sizes.extended(file, number, range, now_us));
    }

    /// A client calls a truncation of a file to this many cells. Returns its numbers.
    pub(crate) fn truncating(&self, file: PutId, cell_count: u64) -> (usize, usize) {
        let now_us = self.world.now_us();
        let state = &mut *self.state();
        let all = cell_count..u64::MAX;
        let size_bytes = cell_count * CELL_BYTES;
        (
            state.registers.zeroing(file, all, now_us),
            state.sizes.truncating(file, size_bytes, now_us),
        )
    }

    /// It was acknowledged.
    pub(crate) fn truncated(&self, file: PutId, (zeroing, change): (usize, usize)) {
        self.punched(file, zeroing);
        self.grown(file, change);
    }

    /// A client calls an operation that makes cells zero. Returns its number.
    pub(crate) fn punching(&self, file: PutId, cells: &Range<u64>) -> usize {
        let now_us = self.world.now_us();
        let registers = &mut self.state().registers;
        registers.zeroing(file, cells.clone(), now_us)
    }

    /// It was acknowledged.
    pub(crate) fn punched(&self, file: PutId, number: usize) {
        let now_us = self.world.now_us();
        self.state().registers.zeroed(file, number, now_us);
    }

    /// A list of all files was answered.
    pub(crate) fn listed(&self, files: &[(String, PutId)], called_us: u64) {
        let at = self.span(called_us);
        let names = &mut self.state().names;
        for (name, file) in files {
            self.judge(names.is_there(name, *file, at));
        }
        let is_missing = |name: &&String| files.iter().all(|(other, _)| other != *name);
        let missing: Vec<String> = names.all().filter(is_missing).cloned().collect();
        for name in missing {
            self.judge(names.is_not_there(&name, at));
        }
    }

    /// A client was told that no file has the name.
    pub(crate) fn is_not_there(&self, name: &str, called_us: u64) {
        let at = self.span(called_us);
        let names = &mut self.state().names;
        self.judge(names.is_not_there(name, at));
    }

    /// A client calls the removal of a file.
    pub(crate) fn removing(&self, client: Slot, name: &str, file: PutId) {
        let number = self.replacing(name, file);
        self.state()
            .removals
            .insert((client, name.to_owned()), number);
    }

    /// A client's removal was acknowledged.
    pub(crate) fn removed(&self, client: Slot, name: &str) {
        let number = self.state().removals.remove(&(client, name.to_owned()));
        if let Some(number) = number {
            self.replaced(name, number);
        }
    }

    /// A client calls an operation that takes a name from a file. Returns its number.
    pub(crate) fn replacing(&self, name: &str, file: PutId) -> usize {
        let now_us = self.world.now_us();
        self.state().names.removing(name, file, now_us)
    }

    /// Such an operation was acknowledged.
    pub(crate) fn replaced(&self, name: &str, number: usize) {
        let now_us = self.world.now_us();
        self.judge(self.state().names.removed(name, number, now_us));
    }

    /// A client calls an operation that gives a name to a file.
    pub(crate) fn naming(&self, name: &str, file: PutId) {
        let now_us = self.world.now_us();
        self.state().names.putting(name, file, now_us);
    }

    /// A client calls a write.
    pub(crate) fn writing(&self, file: PutId, write: UpdateId, cells: &Range<u64>) {
        let now_us = self.world.now_us();
        let state = &mut *self.state();
        let end_bytes = cells.end * CELL_BYTES;
        let growth = state.sizes.growing(file, end_bytes, now_us);
        state.files.insert(write, (file, growth));
        state
            .registers
            .called(file, write, std::slice::from_ref(cells), now_us);
    }

    /// A write was acknowledged.
    pub(crate) fn written(&self, file: PutId, write: UpdateId) {
        let now_us = self.world.now_us();
        let state = &mut *self.state();
        state.written_count += 1;
        if let Some(&(_, growth)) = state.files.get(&write) {
            state.sizes.made(file, growth, now_us);
        }
        if self.world.is_forgiving() {
            return;
        }
        self.judge(state.registers.acknowledged(file, write, now_us));
    }

    /// A client was told that its write has failed and will never succeed.
    pub(crate) fn denied(&self, file: PutId, write: UpdateId) {
        if !self.world.is_forgiving() {
            self.judge(self.state().registers.denied(file, write));
        }
    }

    /// A write has ended, and its client does not know whether it succeeded.
    pub(crate) fn ended(&self, file: PutId, write: UpdateId) {
        let now_us = self.world.now_us();
        if !self.world.is_forgiving() {
            self.judge(self.state().registers.ended(file, write, now_us));
        }
    }

    /// A client has stored a later write than this one of its own through its cache.
    pub(crate) fn replaced_in_cache(&self, write: UpdateId) {
        let now_us = self.world.now_us();
        self.state().registers.replaced(write, now_us);
    }

    /// Whether a write was of a file.
    pub(crate) fn is_write_of(&self, file: PutId, write: UpdateId) -> bool {
        let state = self.state();
        state.files.get(&write).is_some_and(|&(of, _)| of == file)
    }

    /// A read was answered.
    pub(crate) fn read(&self, file: PutId, pieces: &[(u64, Vec<u8>)], called_us: u64) {
        let answered_us = self.world.now_us();
        let state = &mut *self.state();
        state.read_count += 1;
        if self.world.is_forgiving() {
            return;
        }
        self.judge(state.registers.read(&Seen {
            file,
            pieces,
            called_us,
            answered_us,
        }));
    }

    /// A client asks for a snapshot or a clone of a file.
    pub(crate) fn shared(&self, file: PutId) {
        self.state().registers.shared(file);
    }

    /// A copy of a file's bytes at an instant between these times.
    pub(crate) fn copied(&self, file: PutId, bytes: &[u8], (called_us, answered_us): (u64, u64)) {
        let state = &mut *self.state();
        state.read_count += 1;
        if self.world.is_forgiving() {
            return;
        }
        let size_bytes = bytes.len() as u64;
        let seen = SizeSeen {
            size_bytes,
            called_us,
            answered_us,
        };
        self.judge(state.sizes.seen(file, seen));
        self.judge(state.registers.read(&Seen {
            file,
            pieces: &[(0, bytes.to_vec())],
            called_us,
            answered_us,
        }));
    }

    /// The error of a hypothetical read at this instant.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn check(&self, file: PutId, pieces: &[(u64, Vec<u8>)]) -> Result<(), String> {
        let now_us = self.world.now_us();
        let checked = self.state().registers.check(&Seen {
            file,
            pieces,
            called_us: now_us,
            answered_us: now_us,
        });
        checked.map_err(|anomaly| anomaly.to_string())
    }

    /// The numbers of acknowledged writes and of checked reads.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.written_count, state.read_count)
    }

    fn span(&self, called_us: u64) -> Span {
        let answered_us = self.world.now_us();
        Span {
            called_us,
            answered_us,
        }
    }

    fn judge<E: std::fmt::Display>(&self, found: Result<(), E>) {
        if let Err(wrong) = found {
            self.world.fail(wrong.to_string());
        }
    }
}
