//! Clients' calls and answers, for the checkers: [`Registers`] has the bytes of files, [`Names`] the files
//! as a whole. It uses the system's own information only for identity: which put a file is of.

use crate::cells::UpdateId;
use crate::names::{Names, Span};
use crate::network::Slot;
use crate::registers::{Registers, Seen};
use crate::world::{World, lock};
use gabion_meta::PutId;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The checkers. A broken promise ends the world.
pub(crate) struct Ledger {
    world: Arc<World>,
    /// Cells of a block: a write within one is atomic even after a conversion of its stripe.
    block_cells: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    registers: Registers,
    names: Names,
    /// The write of a put, by client, name and number of cells, and when the put was called. Several puts of
    /// a client and a name may be in flight: their sizes are random, so they differ.
    puts: BTreeMap<(Slot, String, u64), (UpdateId, u64)>,
    /// The number of the last removal of a name that a client has called.
    removals: BTreeMap<(Slot, String), usize>,
    /// The file of each write.
    files: BTreeMap<UpdateId, PutId>,
    written_count: u64,
    read_count: u64,
}

impl Ledger {
    pub(crate) fn new(world: Arc<World>, block_cells: u64) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self {
            world,
            block_cells,
            state,
        })
    }

    /// A name for a future write.
    pub(crate) fn name(&self) -> UpdateId {
        UpdateId(self.world.fresh() as u32)
    }

    /// A client is about to put a file of `cell_count` cells.
    pub(crate) fn putting(&self, client: Slot, name: &str, write: UpdateId, cell_count: u64) {
        let now_us = self.world.now_us();
        lock(&self.state)
            .puts
            .insert((client, name.to_owned(), cell_count), (write, now_us));
    }

    /// The coordinator has told a client the put of its file; it may do so several times for one call.
    pub(crate) fn put_has_begun(&self, client: Slot, name: &str, cell_count: u64, file: PutId) {
        let state = &mut *lock(&self.state);
        let put = state.puts.get(&(client, name.to_owned(), cell_count));
        let Some(&(write, called_us)) = put else {
            return;
        };
        state.names.putting(name, file, called_us);
        state.registers.add_file(file, self.block_cells);
        let all = 0..cell_count;
        state
            .registers
            .called(file, write, std::slice::from_ref(&all), called_us);
    }

    /// A put was acknowledged.
    pub(crate) fn put_is_done(&self, name: &str, file: PutId, write: UpdateId, called_us: u64) {
        let at = self.span(called_us);
        let state = &mut *lock(&self.state);
        self.judge(state.registers.acknowledged(file, write, at.answered_us));
        self.judge(state.names.is_there(name, file, at));
    }

    /// A file was opened by its name.
    pub(crate) fn is_there(&self, name: &str, file: PutId, called_us: u64) {
        let at = self.span(called_us);
        self.judge(lock(&self.state).names.is_there(name, file, at));
    }

    /// A list of all files was answered.
    pub(crate) fn listed(&self, files: &[(String, PutId)], called_us: u64) {
        let at = self.span(called_us);
        let names = &mut lock(&self.state).names;
        for (name, file) in files {
            self.judge(names.is_there(name, *file, at));
        }
        let is_missing = |name: &&String| files.iter().all(|(other, _)| other != *name);
        let missing: Vec<String> = names.all().filter(is_missing).cloned().collect();
        for name in missing {
            self.judge(names.is_not_there(&name, at));
        }
    }

    /// A client calls the removal of a file.
    pub(crate) fn removing(&self, client: Slot, name: &str, file: PutId) {
        let number = self.replacing(name, file);
        lock(&self.state)
            .removals
            .insert((client, name.to_owned()), number);
    }

    /// A client's removal was acknowledged.
    pub(crate) fn removed(&self, client: Slot, name: &str) {
        let number = lock(&self.state)
            .removals
            .remove(&(client, name.to_owned()));
        if let Some(number) = number {
            self.replaced(name, number);
        }
    }

    /// A client calls an operation that takes a name from a file. Returns its number.
    pub(crate) fn replacing(&self, name: &str, file: PutId) -> usize {
        let now_us = self.world.now_us();
        lock(&self.state).names.removing(name, file, now_us)
    }

    /// Such an operation was acknowledged.
    pub(crate) fn replaced(&self, name: &str, number: usize) {
        let now_us = self.world.now_us();
        self.judge(lock(&self.state).names.removed(name, number, now_us));
    }

    /// A client calls an operation that gives a name to a file.
    pub(crate) fn naming(&self, name: &str, file: PutId) {
        let now_us = self.world.now_us();
        lock(&self.state).names.putting(name, file, now_us);
    }

    /// A client calls a write.
    pub(crate) fn writing(&self, file: PutId, write: UpdateId, cells: &Range<u64>) {
        let now_us = self.world.now_us();
        let state = &mut *lock(&self.state);
        state.files.insert(write, file);
        state
            .registers
            .called(file, write, std::slice::from_ref(cells), now_us);
    }

    /// A write was acknowledged.
    pub(crate) fn written(&self, file: PutId, write: UpdateId) {
        let now_us = self.world.now_us();
        let state = &mut *lock(&self.state);
        state.written_count += 1;
        self.judge(state.registers.acknowledged(file, write, now_us));
    }

    /// A client was told that its write has failed and will never succeed.
    pub(crate) fn denied(&self, file: PutId, write: UpdateId) {
        self.judge(lock(&self.state).registers.denied(file, write));
    }

    /// A write has ended, and its client does not know whether it succeeded.
    pub(crate) fn ended(&self, file: PutId, write: UpdateId) {
        let now_us = self.world.now_us();
        self.judge(lock(&self.state).registers.ended(file, write, now_us));
    }

    /// Whether a write was of a file.
    pub(crate) fn is_write_of(&self, file: PutId, write: UpdateId) -> bool {
        lock(&self.state).files.get(&write) == Some(&file)
    }

    /// A read was answered.
    pub(crate) fn read(&self, file: PutId, pieces: &[(u64, Vec<u8>)], called_us: u64) {
        let answered_us = self.world.now_us();
        let state = &mut *lock(&self.state);
        state.read_count += 1;
        self.judge(state.registers.read(&Seen {
            file,
            pieces,
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
        let checked = lock(&self.state).registers.check(&Seen {
            file,
            pieces,
            called_us: now_us,
            answered_us: now_us,
        });
        checked.map_err(|anomaly| anomaly.to_string())
    }

    /// The numbers of acknowledged writes and of checked reads.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = lock(&self.state);
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
