//! A participant's half of the protocol: its store, its parts of plans, its answers to a new primary. An
//! answer with a promise is given only when the promise is durable.

use crate::locks::lock;
use crate::message::{
    Attestation, CommittedMark, Damage, Holding, Origin, PendingRecord, Progress, Refusal, ask,
};
use crate::ports::{Ports, run_blocking};
use crate::unfinished::Unfinished;
use futures::{FutureExt, select_biased};
use gabion_layout::{ByteRange, ChunkId, Epoch, Generation, Sequence, StripeId};
use gabion_store::{RecordSummary, Store, StoreError, StripeState};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The most undecided records of a stripe that a node tells a quorum read of.
const ATTESTED_RECORD_COUNT_MAX: usize = 256;
/// Period of noting how many changes of the coordinator's metadata a node knows.
const NOTE_CHANGES_MS: u64 = 10_000;

/// A node's store as the protocol uses it.
#[derive(Clone)]
pub(crate) struct Participant {
    pub(crate) store: Arc<Store>,
    pub(crate) ports: Arc<dyn Ports>,
    /// The number of times the node has asked to join. Held while a part makes a change durable, which it may only in
    /// the membership in which it began: a joining node's report is final.
    membership: Arc<RwLock<u64>>,
    /// The newest coordinator of which the node has learnt in this run.
    newest_coordinator: Arc<Mutex<Option<Origin>>>,
    /// The time of their last note on disk.
    noted_changes_ms: Arc<AtomicU64>,
    /// Chunks whose repair may be resumed with other helpers.
    pub(crate) unfinished: Arc<Mutex<Unfinished>>,
}

impl Participant {
    pub(crate) fn new(store: Arc<Store>, ports: Arc<dyn Ports>) -> Self {
        Self {
            store,
            ports,
            membership: Arc::default(),
            newest_coordinator: Arc::default(),
            noted_changes_ms: Arc::default(),
            unfinished: Arc::default(),
        }
    }

    /// Ends a membership: after this returns, parts that began in it make no durable change.
    pub(crate) async fn end_membership(&self) {
        let membership = Arc::clone(&self.membership);
        let unfinished = lock(&self.unfinished).abandon_all();
        run_blocking(&*self.ports, move || {
            drop(unfinished);
            *membership.write().unwrap_or_else(PoisonError::into_inner) += 1;
        })
        .await;
    }

    /// The membership that runs now.
    pub(crate) fn membership(&self) -> u64 {
        *self
            .membership
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change durable for a part that began in a membership.
    pub(crate) async fn store_for_part<R: Send + 'static>(
        &self,
        began_in: u64,
        work: impl FnOnce(&Store) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, Refusal> {
        let membership = Arc::clone(&self.membership);
        let stored = self.with_store(move |store| {
            let current = membership.read().unwrap_or_else(PoisonError::into_inner);
            (*current == began_in).then(|| work(store)).transpose()
        });
        stored.await?.ok_or(Refusal::NoLease)
    }

    /// Works on the store on a thread that may wait for the disk. Refused when the disk hangs; the work may
    /// still complete then, as if the answer had been lost.
    pub(crate) async fn with_store<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, Refusal> {
        if self.ports.disk_hangs() {
            // Enough work waits for it already.
            return Err(Refusal::Stalled(Vec::new()));
        }
        let store = Arc::clone(&self.store);
        let done = run_blocking(&*self.ports, move || {
            work(&store).map_err(|error| match error {
                StoreError::Corrupt { chunk, range } => {
                    Refusal::Damaged(damage(&store, chunk, range))
                }
                // The operation that has detected the failure is refused like all later ones.
                other @ StoreError::Io { .. } => store
                    .failure()
                    .map_or_else(|| refusal(&other), Refusal::StoreFailed),
                other => refusal(&other),
            })
        });
        select_biased! {
            done = done.fuse() => done,
            () = self.ports.disk_hang().fuse() => Err(Refusal::Stalled(Vec::new())),
        }
    }

    /// The node's journal position in this run.
    pub(crate) fn progress(&self, incarnation: u64) -> Progress {
        Progress {
            incarnation,
            position: self.store.position(),
        }
    }

    /// The newest coordinator that the node knows. Changes of its metadata in the last seconds before the
    /// node's start may be forgotten.
    pub(crate) fn heard(&self) -> Option<Origin> {
        let identity = self.store.identity();
        let stored = identity.coordinator.map(|start| Origin {
            start,
            change_count: identity.metadata_changes.unwrap_or(0),
        });
        // A start and a count of changes belong together: a write that hung may store an older start late.
        let newest = lock(&self.newest_coordinator);
        newest.into_iter().chain(stored).max_by_key(rank)
    }

    /// Remembers a coordinator, unless a remembered one refuses it.
    pub(crate) async fn follow(&self, coordinator: Origin) -> Result<(), Refusal> {
        let Origin {
            start,
            change_count,
        } = coordinator;
        let known = self.heard();
        if known.is_some_and(|known| known.refuses(&coordinator)) {
            let why = "the coordinator has an old copy of its metadata";
            return Err(Refusal::Invalid(why.to_owned()));
        }
        let now_ms = self.ports.now_ms();
        let noted_ms = self.noted_changes_ms.load(Ordering::Acquire);
        let is_news = known.is_none_or(|known| known.change_count < change_count);
        let is_due = is_news && now_ms >= noted_ms + NOTE_CHANGES_MS;
        let is_new_start = known.is_none_or(|known| known.start != start);
        if is_due || is_new_start {
            let mut identity = self.store.identity();
            identity.coordinator = Some(start);
            identity.metadata_changes = Some(change_count);
            let noting = self.with_store(move |store| store.set_identity(&identity));
            match noting.await {
                Ok(()) => self.noted_changes_ms.store(now_ms, Ordering::Release),
                // The start is noted. The count is noted later: the membership does not depend on it.
                Err(Refusal::NoSpace) if !is_new_start => {}
                Err(refused) => return Err(refused),
            }
        }
        let mut newest = lock(&self.newest_coordinator);
        *newest = newest.into_iter().chain([coordinator]).max_by_key(rank);
        Ok(())
    }

    /// Fences older terms, then returns the records of the stripe. Refuses if the node has lost its chunk, because
    /// records may be missing then: an update that all others hold would seem not to stand.
    pub(crate) async fn collect(&self, asked: ask::Collect) -> Result<Holding, Refusal> {
        self.with_store(move |store| {
            store.fence(asked.stripe, asked.epoch, asked.generation)?;
            holding(store, asked.stripe)
        })
        .await
    }

    /// Fences older terms and layouts.
    pub(crate) async fn fence(&self, asked: ask::Fence) -> Result<(), Refusal> {
        self.with_store(move |store| store.fence(asked.stripe, asked.epoch, asked.generation))
            .await
    }

    /// Returns this node's knowledge of the stripe, without a promise. Refuses if the node has lost its chunk, as
    /// [`Participant::collect`] does.
    pub(crate) async fn attest(&self, stripe: StripeId) -> Result<Attestation, Refusal> {
        let state = match self.store.held_now(stripe) {
            Some(Ok(held)) if held.lost.is_none() => held,
            Some(Err(error)) => return Err(refusal(&error)),
            Some(Ok(_)) | None => {
                self.with_store(move |store| store.held(stripe)?.whole())
                    .await?
            }
        };
        if state.records.len() > ATTESTED_RECORD_COUNT_MAX {
            return Err(Refusal::Unsettled);
        }
        Ok(Attestation {
            epoch: state.epoch,
            generation: state.generation,
            mark: state.mark,
            records: state.records.into_iter().map(pending_record).collect(),
            led: None,
        })
    }

    /// Makes the outcome of the recovery rule durable.
    pub(crate) async fn resolve(&self, outcome: ask::Resolve) -> Result<(), Refusal> {
        let ask::Resolve {
            stripe,
            epoch,
            mark,
            dropped,
        } = outcome;
        self.with_store(move |store| store.resolve(stripe, epoch, mark, &dropped))
            .await
    }

    /// Applies primaries' marks to the stripes of this node.
    pub(crate) async fn committed(&self, mut marks: Vec<CommittedMark>) -> Result<(), Refusal> {
        marks.retain(|mark| !hear_now(&self.store, mark));
        if marks.is_empty() {
            return Ok(());
        }
        self.with_store(move |store| marks.iter().try_for_each(|mark| hear(store, mark)))
            .await
    }

    /// Deletes chunks of stripes that are gone.
    pub(crate) async fn remove(&self, chunks: Vec<ChunkId>) -> Result<(), Refusal> {
        let stripes: BTreeSet<StripeId> = chunks.iter().map(|chunk| chunk.stripe).collect();
        let are_meant = |chunk: ChunkId, _: Epoch| stripes.contains(&chunk.stripe);
        self.abandon_unfinished(are_meant).await;
        self.with_store(move |store| {
            let mut stripes = stripes.iter();
            stripes.try_for_each(|&stripe| store.remove_stripe(stripe))
        })
        .await
    }

    /// Deletes a chunk and its unfinished bytes, unless this node knows a term after `epoch` of its stripe.
    pub(crate) async fn discard(&self, asked: ask::Discard) -> Result<(), Refusal> {
        let ask::Discard { chunk, epoch } = asked;
        let is_meant = |left: ChunkId, made_in: Epoch| left == chunk && made_in <= epoch;
        self.abandon_unfinished(is_meant).await;
        self.with_store(move |store| store.discard(chunk, epoch))
            .await
    }
}

/// Applies a primary's mark to a stripe of this node.
pub(crate) fn hear(store: &Store, mark: &CommittedMark) -> Result<(), StoreError> {
    match store.held(mark.stripe) {
        Ok(state) if vouches(&state, mark.epoch, mark.sequence) => {
            store.commit(mark.stripe, mark.sequence)
        }
        // Its last chunk here was removed before.
        Ok(_) | Err(StoreError::NoSuchStripe { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The same where that does not wait; returns whether it was done.
fn hear_now(store: &Store, mark: &CommittedMark) -> bool {
    match store.held_now(mark.stripe) {
        Some(Ok(state)) if vouches(&state, mark.epoch, mark.sequence) => {
            let committed = store.commit_now(mark.stripe, mark.sequence);
            matches!(committed, Some(Ok(())))
        }
        Some(Ok(_) | Err(StoreError::NoSuchStripe { .. })) => true,
        Some(Err(_)) | None => false,
    }
}

/// Whether a mark of term `epoch` applies to this node's records: records of another term at or below the
/// mark were never settled here, so the mark does not cover them.
pub(crate) fn vouches(state: &StripeState, epoch: Epoch, sequence: Sequence) -> bool {
    let foreign = |r: &RecordSummary| r.stamp.sequence <= sequence && r.stamp.epoch != epoch;
    sequence == Sequence(0) || !state.records.iter().any(foreign)
}

/// Whether this node has been told that all updates up to this one are settled. A node that went back to an
/// older copy of its store has not, whatever it had settled before.
pub(crate) fn has_settled(state: &StripeState, sequence: Sequence) -> bool {
    sequence <= state.mark && vouches(state, Epoch(0), sequence)
}

fn holding(store: &Store, stripe: StripeId) -> Result<Holding, StoreError> {
    let state = store.collect(stripe)?;
    Ok(Holding {
        mark: state.mark,
        records: state.records.into_iter().map(pending_record).collect(),
        appended: store.appended(stripe)?,
    })
}

fn pending_record(record: RecordSummary) -> PendingRecord {
    PendingRecord {
        chunk: record.chunk.index,
        epoch: record.stamp.epoch,
        sequence: record.stamp.sequence,
        participants: record.participants,
    }
}

/// A node's report of damage that its store has just found.
pub(crate) fn damage(store: &Store, chunk: ChunkId, range: ByteRange) -> Damage {
    let generation = generation_of(store, chunk);
    Damage {
        chunk,
        generation,
        range,
    }
}

/// The generation in which a chunk was made, or the newest known one of its stripe if the header is
/// damaged.
pub(crate) fn generation_of(store: &Store, chunk: ChunkId) -> Generation {
    let made_in = store.chunk_info(chunk).ok().and_then(|info| info.spec);
    let made_in = made_in.map(|spec| spec.generation);
    let known = || store.held(chunk.stripe).ok().map(|state| state.generation);
    made_in.or_else(known).unwrap_or_default()
}

/// The order of coordinators, and of one's changes.
fn rank(origin: &Origin) -> (u64, u64) {
    (origin.start.number, origin.change_count)
}

/// The refusal for a store error that is not damage to a chunk.
pub(crate) fn refusal(error: &StoreError) -> Refusal {
    match error {
        StoreError::Fenced { current, .. } => Refusal::Fenced { current: *current },
        StoreError::StaleGeneration { current, .. } => {
            Refusal::StaleGeneration { current: *current }
        }
        StoreError::NoSuchChunk { chunk } => Refusal::NoSuchChunk(*chunk),
        StoreError::NoSuchStripe { stripe } => Refusal::NoSuchStripe(*stripe),
        StoreError::Unsettled { .. } => Refusal::Unsettled,
        StoreError::CutPassed { applied, .. } => Refusal::CutPassed { asked: *applied },
        StoreError::OutOfChunk { .. }
        | StoreError::Malformed { .. }
        | StoreError::RecordTooLarge { .. }
        | StoreError::Overlap { .. }
        | StoreError::ChunkExists { .. }
        | StoreError::Incomplete { .. }
        | StoreError::Settled { .. }
        | StoreError::Dropped { .. }
        | StoreError::SequenceTaken { .. } => Refusal::Invalid(error.to_string()),
        StoreError::Failed { cause } => Refusal::StoreFailed(cause.clone()),
        StoreError::Busy { .. } => Refusal::Busy(error.to_string()),
        other if other.is_no_space() => Refusal::NoSpace,
        other => Refusal::Failed(other.to_string()),
    }
}
