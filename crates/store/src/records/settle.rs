//! Promises about a stripe's updates: fence, collect, commit, resolve.
//!
//! This is a participant's durable half of the update protocol. The store does not decide which
//! update stands; it records decisions, refuses stale requests, and reports what it holds.

use crate::error::StoreError;
use crate::index::{Chunk, Stripe};
use crate::journal::checkpoint::Room;
use crate::journal::entry::{Entry, StripeMark, UpdateHead};
use crate::records::record::{RecordSummary, StripeState, UpdateStamp};
use crate::reserve::Reserve;
use crate::state::State;
use crate::store::{Shared, Store};
use gabion_layout::{ChunkId, Epoch, Generation, Sequence, StripeId};

/// Most dropped updates of an epoch that are remembered, which bounds a frame's head.
const DROPPED_COUNT_MAX: usize = 2048;

impl Store {
    /// Promises, durably, to refuse every epoch before `epoch` and generation before `generation`.
    /// A repeated fence has no effect.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] and [`StoreError::StaleGeneration`] when a later one was already
    /// promised; [`StoreError::NoSpace`], [`StoreError::Io`], [`StoreError::Failed`].
    pub fn fence(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        generation: Generation,
    ) -> Result<(), StoreError> {
        let needed_lsn = {
            let mut state = self.shared.lock();
            self.shared.check_latch()?;
            state.find_stripe(stripe)?;
            self.shared.promise(&mut state, stripe, epoch, generation)?
        };
        self.shared.sync(needed_lsn)
    }

    /// The store's state of a stripe above its mark, with all records. Everything reported is
    /// durable.
    ///
    /// # Errors
    /// [`StoreError::NoSuchStripe`]; as [`StripeState::whole`]; [`StoreError::Io`] and
    /// [`StoreError::Failed`].
    pub fn collect(&self, stripe: StripeId) -> Result<StripeState, StoreError> {
        let found = self.shared.lock().held(stripe)?.whole()?;
        self.shared.sync_held([stripe])?;
        // The reserve of a chunk that was lost before the sync was not synced.
        self.shared.lock().held(stripe)?.whole()?;
        Ok(found)
    }

    /// Like [`Store::collect`], but the reported state need not be durable yet: for local decisions
    /// only, never for reports to others. It waits for no sync.
    ///
    /// # Errors
    /// [`StoreError::NoSuchStripe`]; [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn held(&self, stripe: StripeId) -> Result<StripeState, StoreError> {
        self.shared.check_latch()?;
        let mut state = self.shared.lock();
        state.held(stripe)
    }

    /// Like [`Store::held`], if it need not wait for the disk or for other users of the store;
    /// `None` otherwise.
    ///
    /// # Errors
    /// As [`Store::held`].
    pub fn held_now(&self, stripe: StripeId) -> Option<Result<StripeState, StoreError>> {
        let mut state = self.shared.try_lock()?;
        let known = state.index.stripe(stripe);
        if known.is_some_and(|known| known.chunks().any(|(_, chunk)| chunk.is_unread())) {
            return None;
        }
        let latched = self.shared.check_latch();
        Some(latched.and_then(|()| state.held(stripe)))
    }

    /// Notes that all updates up to `upto` are settled. It takes effect at once, and the next
    /// [`Store::log_marks`] logs it: after a crash the store may know a lower mark, and hold more
    /// records as unsettled.
    ///
    /// # Errors
    /// [`StoreError::NoSuchStripe`] and [`StoreError::Failed`].
    pub fn commit(&self, stripe: StripeId, upto: Sequence) -> Result<(), StoreError> {
        let mut state = self.shared.lock();
        self.shared.commit(&mut state, stripe, upto)
    }

    /// Like [`Store::commit`], if it need not wait for other users of the store; `None` otherwise.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn commit_now(&self, stripe: StripeId, upto: Sequence) -> Option<Result<(), StoreError>> {
        let mut state = self.shared.try_lock()?;
        Some(self.shared.commit(&mut state, stripe, upto))
    }

    /// Logs the marks raised since the last call, without a sync: a stripe with many updates need
    /// not log each mark.
    ///
    /// # Errors
    /// [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn log_marks(&self) -> Result<(), StoreError> {
        let stripes = std::mem::take(&mut self.shared.lock().records.unlogged_marks);
        for stripe in stripes {
            let mut state = self.shared.lock();
            let Some(known) = state.index.stripe(stripe) else {
                continue;
            };
            let entry = state_entry(known.state_mark(stripe), Vec::new());
            match self.shared.append(&mut state, &entry, &[], Room::Ordinary) {
                // A full disk may lose the mark, which only makes a recovery longer.
                Ok(_) | Err(StoreError::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes the recovery rule's outcome durable: updates up to `mark` stand except `dropped`.
    /// Records above the mark from epochs before `epoch` are dropped too, listed or not: their
    /// primary is fenced, and the resolver has decided about all that stand.
    ///
    /// # Errors
    /// - [`StoreError::Fenced`] when a later epoch was promised.
    /// - [`StoreError::Settled`] when a record to drop is held at or below the earlier mark: it
    ///   stood already.
    /// - [`StoreError::Corrupt`] when the outcome is durable, but a reserve could not be read, which
    ///   cost its chunk. A repetition succeeds.
    /// - [`StoreError::NoSuchStripe`], [`StoreError::NoSpace`], [`StoreError::Io`],
    ///   [`StoreError::Failed`]; [`StoreError::Malformed`] when more than 2048 updates are dropped.
    pub fn resolve(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        mark: Sequence,
        dropped: &[Sequence],
    ) -> Result<(), StoreError> {
        let resolved = self.shared.resolve(stripe, epoch, mark, dropped)?;
        self.shared.sync(resolved.lsn)?;
        match resolved.lost {
            Some(chunk) => Err(StoreError::corrupt_whole(chunk)),
            None => Ok(()),
        }
    }
}

impl StripeState {
    /// The same, if it has all records of the stripe.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it may lack some, because the store has lost its chunk.
    pub fn whole(self) -> Result<Self, StoreError> {
        if let Some(chunk) = self.lost {
            return Err(StoreError::corrupt_whole(chunk));
        }
        Ok(self)
    }
}

/// A recovery rule's outcome in the journal.
pub(crate) struct Resolved {
    /// It is durable once the journal is synced up to this position.
    pub(crate) lsn: u64,
    /// A chunk that it has cost: dropped records could not be taken out of its reserve.
    pub(crate) lost: Option<ChunkId>,
}

impl Shared {
    /// [`Store::resolve`] without the sync.
    pub(crate) fn resolve(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        mark: Sequence,
        dropped: &[Sequence],
    ) -> Result<Resolved, StoreError> {
        // Dropped records leave their reserve before the outcome takes effect: once the mark is
        // above it, a record in a reserve counts as settled.
        let (emptied, lost) = self.empty_of_dropped(stripe, epoch, mark, dropped)?;
        let mut state = self.lock();
        self.check_latch()?;
        let known = state.know_stripe(stripe)?;
        known.check_epoch(stripe, epoch)?;
        let mut stamps = known.stamps_to_drop(stripe, epoch, mark, dropped)?;
        // An interrupted emptying may have left copies of them in the journal.
        stamps.extend(emptied);
        stamps.sort_unstable();
        stamps.dedup();
        let outcome = StripeMark {
            stripe,
            epoch,
            generation: known.generation(),
            mark: mark.max(known.mark()),
        };
        let entry = state_entry(outcome, stamps.clone());
        let position = self.append(&mut state, &entry, &[], Room::Reserved)?;
        state.learn(outcome, stamps);
        let lsn = position.end_lsn();
        Ok(Resolved { lsn, lost })
    }

    /// Empties the reserves of a stripe that hold records dropped by a resolution. Returns the
    /// stamps of these records, and a chunk that is lost because its reserve cannot be read.
    fn empty_of_dropped(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        mark: Sequence,
        dropped: &[Sequence],
    ) -> Result<(Vec<UpdateStamp>, Option<ChunkId>), StoreError> {
        let (stamps, chunks) = {
            let mut state = self.lock();
            self.check_latch()?;
            let known = state.know_stripe(stripe)?;
            known.check_epoch(stripe, epoch)?;
            let stamps = known.stamps_to_drop(stripe, epoch, mark, dropped)?;
            let holds_one = |chunk: &Chunk| {
                let mut reserved = chunk.reserve().into_iter().flat_map(Reserve::unsettled);
                reserved.any(|head| stamps.contains(&head.stamp))
            };
            let holding = known.chunks().filter(|(_, chunk)| holds_one(chunk));
            let id = |(index, _)| ChunkId { stripe, index };
            let chunks: Vec<ChunkId> = holding.map(id).collect();
            (stamps, chunks)
        };
        if chunks.is_empty() {
            return Ok((Vec::new(), None));
        }
        let mut lost = None;
        for chunk in chunks {
            let gate = self.lock().chunks.gate(chunk);
            let _changing = gate.begin_change();
            let empty = || self.empty_reserve(&gate, chunk, &stamps);
            let emptied = match empty() {
                // One failed read must not cost the chunk.
                Err(StoreError::Corrupt { .. }) => empty(),
                emptied => emptied,
            };
            match emptied {
                Ok(()) | Err(StoreError::NoSuchChunk { .. }) => {}
                Err(StoreError::Corrupt { .. }) => {
                    self.invalidate(&gate, chunk)?;
                    lost = Some(chunk);
                }
                Err(error) => return Err(error),
            }
        }
        Ok((stamps, lost))
    }
}

impl Shared {
    /// Promises to refuse everything before an epoch and a generation of a stripe whose headers are
    /// read. The promise is durable once the journal is synced up to the returned position.
    pub(crate) fn promise(
        &self,
        state: &mut State,
        stripe: StripeId,
        epoch: Epoch,
        generation: Generation,
    ) -> Result<u64, StoreError> {
        let unknown = Stripe::default();
        let known = state.index.stripe(stripe).unwrap_or(&unknown);
        known.check_epoch(stripe, epoch)?;
        known.check_generation(stripe, generation)?;
        let mark = known.mark();
        let fence = StripeMark {
            stripe,
            epoch,
            generation,
            mark,
        };
        // An equal fence may have come from a record that is not durable yet, or that will be
        // removed before the journal has a checkpoint. So the fence is written in any case.
        let entry = state_entry(fence, Vec::new());
        let position = self.append(state, &entry, &[], Room::Reserved)?;
        let known = state.index.stripe_or_new(stripe);
        known.learn(epoch, generation, mark);
        Ok(position.end_lsn())
    }

    /// Notes that all updates up to `upto` are settled.
    fn commit(
        &self,
        state: &mut State,
        stripe: StripeId,
        upto: Sequence,
    ) -> Result<(), StoreError> {
        self.check_latch()?;
        let known = state.index.stripe_mut(stripe);
        let known = known.ok_or(StoreError::NoSuchStripe { stripe })?;
        if upto > known.mark() {
            known.raise_mark(upto);
            state.records.unlogged_marks.insert(stripe);
        }
        Ok(())
    }
}

impl State {
    /// The store's state of a stripe, with its records above the mark.
    pub(crate) fn held(&mut self, stripe: StripeId) -> Result<StripeState, StoreError> {
        let known = self.know_stripe(stripe)?;
        let unsettled = known.chunks().flat_map(|(_, chunk)| {
            let unsettled = chunk.unsettled_after(known.mark());
            unsettled.map(|(_, head)| summary(head))
        });
        let lost = known.lost_chunk().map(|index| ChunkId { stripe, index });
        Ok(StripeState {
            epoch: known.epoch(),
            generation: known.generation(),
            mark: known.mark(),
            records: unsettled.collect(),
            lost,
        })
    }

    /// Applies a state entry, now or at replay.
    pub(crate) fn learn(&mut self, outcome: StripeMark, dropped: Vec<UpdateStamp>) {
        let stripe = self.index.stripe_or_new(outcome.stripe);
        let mut gone = Vec::new();
        for stamp in &dropped {
            for chunk in stripe.chunks_mut() {
                chunk.runs_mut().drop_update(stamp.sequence);
                let pending = &mut chunk.records_mut().pending;
                let held = pending.get(&stamp.sequence);
                if held.is_some_and(|held| held.head.stamp == *stamp) {
                    gone.extend(pending.remove(&stamp.sequence));
                }
                if let Some(reserve) = chunk.reserve_mut() {
                    reserve.drop_update(*stamp);
                }
            }
        }
        stripe.drop_updates(dropped);
        stripe.learn(outcome.epoch, outcome.generation, outcome.mark);
        stripe.trim_dropped();
        for record in gone {
            self.release_pending(&record);
        }
    }
}

impl Stripe {
    /// The stamps that a resolution drops: those listed and held, those listed for late copies of
    /// this epoch, and those of older epochs above the mark.
    fn stamps_to_drop(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        mark: Sequence,
        dropped: &[Sequence],
    ) -> Result<Vec<UpdateStamp>, StoreError> {
        let mut stamps = Vec::new();
        for (_, chunk) in self.chunks() {
            let mut settled = chunk.records().pending.range(..=self.mark());
            let to_drop = settled.find(|(sequence, _)| dropped.contains(sequence));
            if let Some((&sequence, _)) = to_drop {
                let mark = self.mark();
                return Err(StoreError::Settled {
                    stripe,
                    mark,
                    sequence,
                });
            }
            for (sequence, head) in chunk.unsettled_after(self.mark()) {
                let stamp = head.stamp;
                let is_listed = dropped.contains(&sequence);
                if is_listed || (sequence > mark && stamp.epoch < epoch) {
                    stamps.push(stamp);
                }
            }
        }
        let late = dropped
            .iter()
            .map(|&sequence| UpdateStamp { epoch, sequence });
        stamps.extend(late.filter(|stamp| stamp.sequence > mark));
        stamps.sort_unstable();
        stamps.dedup();
        if self.dropped().len() + stamps.len() > DROPPED_COUNT_MAX {
            let reason = "one epoch dropped more than 2048 updates; raise the mark first";
            return Err(StoreError::Malformed { reason });
        }
        Ok(stamps)
    }
}

fn state_entry(stripe: StripeMark, dropped: Vec<UpdateStamp>) -> Entry {
    Entry::State { stripe, dropped }
}

fn summary(head: &UpdateHead) -> RecordSummary {
    RecordSummary {
        chunk: head.chunk,
        stamp: head.stamp,
        participants: head.participants.to_vec(),
    }
}
