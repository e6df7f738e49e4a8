//! What clients called and were answered, and what the network carried, for those that check it: what clients saw
//! goes to [`Registers`] and [`Names`], what the system says of it besides to [`History`].

use crate::cells::{CELL_BYTES, UpdateId};
use crate::deeds::Tally;
use crate::history::{History, Inherited, Observation};
use crate::names::{Names, Span};
use crate::registers::{Registers, Seen};
use crate::world::{World, lock};
use gabion_layout::{Sequence, StripeId};
use gabion_meta::PutId;
use gabion_protocol::message::{ConversionSource, Effect, NodeRequest, Purpose, RunFate, RunId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Those who check, and which run carries which update. A broken promise ends the world.
pub(crate) struct Ledger {
    world: Arc<World>,
    pub(crate) tally: Arc<Tally>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    history: History,
    registers: Registers,
    names: Names,
    /// The file that each stripe is a part of.
    files: BTreeMap<StripeId, PutId>,
    runs: BTreeMap<RunId, Run>,
    /// Updates that were sent out without some chunk that they concern.
    degraded: BTreeSet<UpdateId>,
    /// Updates whose parity was to follow later.
    appended: BTreeSet<UpdateId>,
    /// Commits that were begun.
    commits: BTreeSet<(StripeId, Sequence)>,
}

struct Run {
    stripe: StripeId,
    update: UpdateId,
    /// Chunks that the update concerns: those written and all parities.
    concerned_count: usize,
    /// Its client was told that it was not made: no number of it can stand.
    is_closed: bool,
}

impl Ledger {
    pub(crate) fn new(world: Arc<World>, tally: Arc<Tally>) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self {
            world,
            tally,
            state,
        })
    }

    /// A name for an update that is to come.
    pub(crate) fn name(&self) -> UpdateId {
        UpdateId(self.world.fresh() as u32)
    }

    /// A put is about to store a file in some stripes, all of whose cells it writes.
    pub(crate) fn putting(
        &self,
        (name, file): (&str, PutId),
        put: UpdateId,
        stripes: &[(StripeId, Range<u64>)],
        called_us: u64,
    ) {
        let state = &mut *lock(&self.state);
        state.names.putting(name, file, called_us);
        let end = stripes.last().map_or(0, |(_, cells)| cells.end);
        state.registers.add_file(file, end);
        let all = 0..end;
        let all = std::slice::from_ref(&all);
        state.registers.called(file, put, all, called_us);
        for (stripe, cells) in stripes {
            state.files.insert(*stripe, file);
            state.history.add_stripe(*stripe, cells.clone(), put);
        }
    }

    /// A put was acknowledged.
    pub(crate) fn put_is_done(&self, name: &str, file: PutId, put: UpdateId, called_us: u64) {
        let at = self.span(called_us);
        let state = &mut *lock(&self.state);
        let registers = &mut state.registers;
        self.judge(registers.acknowledged(file, put, at.answered_us));
        self.judge(state.names.is_there(name, file, at));
    }

    /// A look-up has shown a file.
    pub(crate) fn looked_up(&self, name: &str, file: PutId, called_us: u64) {
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

    /// A removal is called. Gives its number.
    pub(crate) fn removing(&self, name: &str, file: PutId) -> usize {
        let now_us = self.world.now_us();
        lock(&self.state).names.removing(name, file, now_us)
    }

    /// A removal was acknowledged.
    pub(crate) fn removed(&self, name: &str, number: usize) {
        let now_us = self.world.now_us();
        self.judge(lock(&self.state).names.removed(name, number, now_us));
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

    pub(crate) fn submitted(
        &self,
        stripe: StripeId,
        update: UpdateId,
        run: RunId,
        cells: &[Range<u64>],
        concerned_count: usize,
    ) {
        let state = &mut *lock(&self.state);
        let named = Run {
            stripe,
            update,
            concerned_count,
            is_closed: false,
        };
        state.runs.insert(run, named);
        state.history.submitted(stripe, update, cells);
        let (file, first) = state.place(stripe);
        let in_file = cells
            .iter()
            .map(|part| first + part.start..first + part.end);
        let in_file: Vec<Range<u64>> = in_file.collect();
        let now_us = self.world.now_us();
        state.registers.called(file, update, &in_file, now_us);
    }

    /// Sees each request to a node on its way: a primary's parts say an update's number.
    pub(crate) fn witness(&self, request: &NodeRequest) {
        let NodeRequest::RunPart(part) = request else {
            return;
        };
        let (sequence, participants, is_append) = match &part.effect {
            Effect::Convert { sources } => {
                self.converted(part.part.stripe, part.part.chunk_bytes, sources);
                return;
            }
            // A commit is no client's update: it changes nothing that anybody reads.
            Effect::Record { sequence, .. } if part.purpose == Purpose::Commit => {
                let is_first = lock(&self.state)
                    .commits
                    .insert((part.part.stripe, *sequence));
                self.tally
                    .add(|deeds| deeds.commit_count += u64::from(is_first));
                return;
            }
            Effect::Record {
                sequence,
                participants,
            } => (*sequence, participants, false),
            Effect::Append {
                sequence,
                participants,
            } => (*sequence, participants, true),
            _ => return,
        };
        let state = &mut *lock(&self.state);
        let Some(run) = state.runs.get(&part.run) else {
            self.world
                .fail(format!("{:?} is nobody's update", part.run));
            return;
        };
        if run.is_closed {
            return;
        }
        state.history.numbered(run.stripe, run.update, sequence);
        if is_append {
            state.appended.insert(run.update);
        } else if participants.len() < run.concerned_count {
            state.degraded.insert(run.update);
        }
    }

    /// A stripe is about to be made of others: what they hold is what it holds before any update.
    fn converted(&self, stripe: StripeId, chunk_bytes: u64, sources: &[ConversionSource]) {
        let chunk_cells = chunk_bytes / CELL_BYTES;
        let state = &mut *lock(&self.state);
        let history = &mut state.history;
        if history.has(stripe) {
            return;
        }
        let mut pieces: BTreeMap<u64, Inherited> = BTreeMap::new();
        for source in sources {
            let old = source.held.stripe;
            // Every chunk of a replicated block is all of it.
            let is_block = history.cell_count(old) == chunk_cells;
            let old_chunk = if is_block {
                0
            } else {
                u64::from(source.held.index.0)
            };
            let first = u64::from(source.chunk.0) * chunk_cells;
            pieces.insert(
                first,
                Inherited {
                    first,
                    count: chunk_cells,
                    old,
                    old_first: old_chunk * chunk_cells,
                    cut: source.cut,
                },
            );
        }
        history.add_heir(stripe, pieces.into_values().collect());
        if let Some(&file) = sources
            .first()
            .and_then(|source| state.files.get(&source.held.stripe))
        {
            state.files.insert(stripe, file);
        }
        self.tally.add(|deeds| deeds.conversion_count += 1);
    }

    /// A client has made sure that an attempt is over, and was told what became of it.
    pub(crate) fn closed(&self, stripe: StripeId, update: UpdateId, run: RunId, fate: RunFate) {
        if let RunFate::Stood(sequence) = fate {
            self.acknowledged(stripe, update, sequence);
            return;
        }
        let state = &mut *lock(&self.state);
        let known = state.runs.get_mut(&run);
        known
            .expect("attempts are made before they are closed")
            .is_closed = true;
        state.history.closed(stripe, update);
        if fate == RunFate::Never {
            self.judge(state.history.denied(stripe, update));
        }
    }

    pub(crate) fn acknowledged(&self, stripe: StripeId, update: UpdateId, sequence: Sequence) {
        let now_us = self.world.now_us();
        let state = &mut *lock(&self.state);
        let (file, _) = state.place(stripe);
        self.judge(state.registers.acknowledged(file, update, now_us));
        let noted = state.history.acknowledged(stripe, update, sequence, now_us);
        self.judge(noted);
        let is_degraded = u64::from(state.degraded.contains(&update));
        let is_appended = u64::from(state.appended.contains(&update));
        self.tally.add(|deeds| {
            deeds.degraded_update_count += is_degraded;
            deeds.appended_update_count += is_appended;
        });
    }

    pub(crate) fn read(&self, seen: &Observation<'_>) {
        let state = &mut *lock(&self.state);
        let (file, first) = state.place(seen.stripe);
        let pieces = in_file(first, seen.pieces);
        let read = state.registers.read(&Seen {
            file,
            pieces: &pieces,
            called_us: seen.began_us,
            answered_us: seen.ended_us,
        });
        self.judge(read);
        self.judge(state.history.read(seen));
    }

    /// What would be wrong with a read that nobody makes.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn check(&self, seen: &Observation<'_>) -> Result<(), String> {
        let state = &*lock(&self.state);
        if !state.history.has(seen.stripe) {
            let stripe = seen.stripe;
            return Err(format!("{stripe} counts, and nobody has begun to make it"));
        }
        let (file, first) = state.place(seen.stripe);
        let pieces = in_file(first, seen.pieces);
        let read = state.registers.check(&Seen {
            file,
            pieces: &pieces,
            called_us: seen.began_us,
            answered_us: seen.ended_us,
        });
        read.map_err(|anomaly| anomaly.to_string())?;
        let mut history = state.history.excerpt(seen.stripe);
        let read = history.read(seen);
        read.map_err(|violation| violation.to_string())
    }

    /// How many updates were acknowledged and how many reads were checked.
    pub(crate) fn counts(&self) -> (u64, u64) {
        lock(&self.state).history.counts()
    }
}

impl State {
    /// The file of a stripe, and the first of the stripe's cells there.
    fn place(&self, stripe: StripeId) -> (PutId, u64) {
        (self.files[&stripe], self.history.first_cell(stripe))
    }
}

/// Pieces of a stripe as pieces of its file, in which the stripe starts at `first`.
fn in_file(first: u64, pieces: &[(u64, Vec<u8>)]) -> Vec<(u64, Vec<u8>)> {
    let pieces = pieces.iter();
    let moved = pieces.map(|(cell, bytes)| (first + cell, bytes.clone()));
    moved.collect()
}
