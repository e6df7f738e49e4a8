//! The history of a run as clients and the network fill it in, and what they may know of names.

use crate::cells::{CELL_BYTES, UpdateId};
use crate::deeds::Tally;
use crate::history::{History, Inherited, Observation};
use crate::world::{World, lock};
use gabion_layout::{Sequence, StripeId};
use gabion_protocol::message::{ConversionSource, Effect, NodeRequest, Purpose, RunId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The history, and which run carries which update. A broken promise ends the world.
pub(crate) struct Ledger {
    world: Arc<World>,
    pub(crate) tally: Arc<Tally>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    history: History,
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

    pub(crate) fn add_stripe(&self, stripe: StripeId, cell_count: u64, first: UpdateId) {
        let mut state = lock(&self.state);
        state.history.add_stripe(stripe, cell_count, first);
    }

    pub(crate) fn submitted(
        &self,
        stripe: StripeId,
        update: UpdateId,
        run: RunId,
        cells: &[Range<u64>],
        concerned_count: usize,
    ) {
        let mut state = lock(&self.state);
        let named = Run {
            stripe,
            update,
            concerned_count,
        };
        state.runs.insert(run, named);
        state.history.submitted(stripe, update, cells);
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
        let history = &mut lock(&self.state).history;
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
        self.tally.add(|deeds| deeds.conversion_count += 1);
    }

    /// A client has made sure that an update is over.
    pub(crate) fn closed(&self, stripe: StripeId, update: UpdateId) {
        lock(&self.state).history.closed(stripe, update);
    }

    pub(crate) fn acknowledged(&self, stripe: StripeId, update: UpdateId, sequence: Sequence) {
        let now_us = self.world.now_us();
        let mut state = lock(&self.state);
        let noted = state.history.acknowledged(stripe, update, sequence, now_us);
        if let Err(violation) = noted {
            self.world.fail(violation.to_string());
        }
        let is_degraded = u64::from(state.degraded.contains(&update));
        let is_appended = u64::from(state.appended.contains(&update));
        self.tally.add(|deeds| {
            deeds.degraded_update_count += is_degraded;
            deeds.appended_update_count += is_appended;
        });
    }

    pub(crate) fn read(&self, seen: &Observation<'_>) {
        if let Err(violation) = lock(&self.state).history.read(seen) {
            self.world.fail(violation.to_string());
        }
    }

    /// What is known of a stripe, for whoever looks on. None of one that nobody has told of.
    pub(crate) fn excerpt(&self, stripe: StripeId) -> Option<History> {
        let history = &lock(&self.state).history;
        history.has(stripe).then(|| history.excerpt(stripe))
    }

    /// How many updates were acknowledged and how many reads were checked.
    pub(crate) fn counts(&self) -> (u64, u64) {
        lock(&self.state).history.counts()
    }
}
