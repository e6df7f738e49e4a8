//! A participant's half of the protocol: its store, its parts of plans, its answers to a new
//! primary. Every answer that promises something is given after that something is durable.

use crate::holdings::remove;
use crate::message::{
    Attestation, CommittedMark, ConversionSource, Damage, Effect, Holding, PendingRecord, ReadCut,
    Refusal, RunPart,
};
use crate::part_io::{Gathered, NodeIo, Use, lock};
use crate::ports::{Address, Ports, run_blocking};
use crate::run::{RunContext, run_part};
use crate::staging::Arrivals;
use crate::unfinished::Unfinished;
use futures::{FutureExt, select_biased};
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Epoch, Generation, Sequence, Start, StripeId};
use gabion_plan::{PartStep, Step};
use gabion_store::{
    ChunkSpec, ChunkWriter, Piece, Record, RecordSummary, Store, StoreError, StripeState,
    UpdateStamp,
};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The most undecided records of a stripe that a node tells a quorum read of.
const ATTESTED_RECORD_COUNT_MAX: usize = 256;

/// A node's store as the protocol uses it.
#[derive(Clone)]
pub(crate) struct Participant {
    pub(crate) store: Arc<Store>,
    pub(crate) ports: Arc<dyn Ports>,
    /// How often the node has asked to join. Held while a part makes something durable, which it may
    /// only in the membership in which it began: what a joining node says that it holds is final.
    membership: Arc<RwLock<u64>>,
    /// Chunks whose repair may go on with other helpers.
    pub(crate) unfinished: Arc<Mutex<Unfinished>>,
}

impl Participant {
    pub(crate) fn new(store: Arc<Store>, ports: Arc<dyn Ports>) -> Self {
        Self {
            store,
            ports,
            membership: Arc::default(),
            unfinished: Arc::default(),
        }
    }

    /// Ends a membership: parts that began in it leave nothing behind from when this returns.
    pub(crate) async fn end_membership(&self) {
        let membership = Arc::clone(&self.membership);
        let unfinished = lock(&self.unfinished).give_up_all();
        run_blocking(&*self.ports, move || {
            drop(unfinished);
            *membership.write().unwrap_or_else(PoisonError::into_inner) += 1;
        })
        .await;
    }

    /// Makes something durable for a part that began in a membership.
    async fn store_for_part<R: Send + 'static>(
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

    /// Works on the store where waiting for the disk holds up nothing else. Refused when the disk hangs;
    /// the work may still be done then, as if the answer had been lost.
    pub(crate) async fn with_store<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, Refusal> {
        if self.ports.disk_hangs() {
            // What waits for it already is enough.
            return Err(Refusal::Stalled(Vec::new()));
        }
        let store = Arc::clone(&self.store);
        let done = run_blocking(&*self.ports, move || {
            work(&store).map_err(|error| match error {
                StoreError::Corrupt { chunk, range } => {
                    Refusal::Damaged(damage(&store, chunk, range))
                }
                // The operation that has found out is refused as all later ones are.
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

    /// Remembers a start of the coordinator, unless it is older than one that is remembered or another
    /// one of the same number: then that coordinator has an old copy of the metadata.
    pub(crate) async fn follow(&self, coordinator: Start) -> Result<(), Refusal> {
        let mut identity = self.store.identity();
        match identity.coordinator {
            Some(known) if known == coordinator => return Ok(()),
            Some(known) if known.number >= coordinator.number => {
                let why = "the coordinator has an old copy of its metadata";
                return Err(Refusal::Invalid(why.to_owned()));
            }
            _ => {}
        }
        identity.coordinator = Some(coordinator);
        self.with_store(move |store| store.set_identity(&identity))
            .await
    }

    /// Fences off older terms, then says what is held of the stripe.
    pub(crate) async fn collect(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        generation: Generation,
    ) -> Result<Holding, Refusal> {
        self.with_store(move |store| {
            store.fence(stripe, epoch, generation)?;
            holding(store, stripe)
        })
        .await
    }

    /// Fences off older terms and layouts.
    pub(crate) async fn fence(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        generation: Generation,
    ) -> Result<(), Refusal> {
        self.with_store(move |store| store.fence(stripe, epoch, generation))
            .await
    }

    /// Says what is known of the stripe, and promises nothing.
    pub(crate) async fn attest(&self, stripe: StripeId) -> Result<Attestation, Refusal> {
        let state = match self.store.held_now(stripe) {
            Some(held) => held.map_err(|error| refusal(&error))?,
            None => self.with_store(move |store| store.held(stripe)).await?,
        };
        if state.records.len() > ATTESTED_RECORD_COUNT_MAX {
            return Err(Refusal::Unsettled);
        }
        Ok(Attestation {
            epoch: state.epoch,
            generation: state.generation,
            mark: state.mark,
            records: state.records.into_iter().map(pending_record).collect(),
        })
    }

    /// Makes the outcome of the recovery rule durable.
    pub(crate) async fn resolve(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        mark: Sequence,
        dropped: Vec<Sequence>,
    ) -> Result<(), Refusal> {
        self.with_store(move |store| store.resolve(stripe, epoch, mark, &dropped))
            .await
    }

    /// Takes primaries' word of how far updates are settled, as far as it reaches.
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
        let are_meant = |chunk: ChunkId, _: Epoch| chunks.contains(&chunk);
        self.give_up_unfinished(are_meant).await;
        self.with_store(move |store| remove(store, &chunks)).await
    }

    /// Deletes a chunk and what is unfinished of it, unless a term after `epoch` has to do with it.
    pub(crate) async fn discard(&self, chunk: ChunkId, epoch: Epoch) -> Result<(), Refusal> {
        let is_meant = |left: ChunkId, made_in: Epoch| left == chunk && made_in <= epoch;
        self.give_up_unfinished(is_meant).await;
        self.with_store(move |store| store.discard(chunk, epoch))
            .await
    }

    /// Does a part of a plan, which is durable when this returns. Says as of which update it has read.
    pub(crate) async fn run(
        &self,
        request: RunPart,
        arrivals: Arrivals,
        origin: Address,
    ) -> Result<Sequence, Refusal> {
        let began_in = *self
            .membership
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let admitted_at = self.admit(&request).await?;
        let sources = self.sources(&request).await?;
        let writer = self.writer(&request).await?;
        let io = NodeIo {
            participant: self.clone(),
            stripe: request.part.stripe,
            holds: request.part.holds,
            cut: request.cut,
            use_of: Use::of(&request.effect),
            sources,
            inputs: arrivals.inputs,
            gathered: Arc::new(Mutex::new(Gathered {
                writer,
                ..Gathered::default()
            })),
        };
        let context = RunContext {
            run: request.run,
            origin,
            purpose: request.purpose,
            spread_ms: request.spread_ms,
            deadline_ms: request.deadline_ms,
            stall_ms: request.stall_ms,
        };
        let mut flows = arrivals.flows;
        let ran = run_part(&*self.ports, &io, &request.part, context, &mut flows).await;
        if let Err(refusal) = ran {
            let writer = lock(&io.gathered).writer.take();
            self.leave(&request, writer, &refusal).await;
            return Err(refusal);
        }
        let gathered = std::mem::take(&mut *lock(&io.gathered));
        let as_of = gathered.read_at.unwrap_or(admitted_at);
        self.finish(request, gathered, began_in).await?;
        Ok(as_of)
    }

    /// Whether the part may run here at all, and as of which update it reads.
    async fn admit(&self, request: &RunPart) -> Result<Sequence, Refusal> {
        let stripe = request.part.stripe;
        let held = match self.store.held_now(stripe) {
            Some(held) => Ok(held),
            None => self.with_store(move |store| Ok(store.held(stripe))).await,
        };
        match held? {
            Ok(state) => judge(request, &state),
            // A node that is to get its first chunk of the stripe knows nothing of it yet.
            Err(StoreError::NoSuchStripe { .. }) => Ok(Sequence(0)),
            Err(error) => Err(refusal(&error)),
        }
    }

    /// The chunks of other stripes that the part reads here, if it makes a stripe of others. Each must be
    /// settled as far as it is read.
    async fn sources(&self, request: &RunPart) -> Result<Option<Vec<ConversionSource>>, Refusal> {
        let Effect::Convert { sources } = &request.effect else {
            return Ok(None);
        };
        let here = sources
            .iter()
            .filter(|source| source.node == request.part.node);
        let here: Vec<ConversionSource> = here.copied().collect();
        let asked = here.clone();
        let are_settled = self.with_store(move |store| {
            let mut are_settled = true;
            for source in asked {
                let state = store.held(source.held.stripe)?;
                are_settled &= vouches(&state, Epoch(0), source.cut);
            }
            Ok(are_settled)
        });
        if are_settled.await? {
            Ok(Some(here))
        } else {
            Err(Refusal::Unsettled)
        }
    }

    /// A writer for the chunk that the part installs, if it does.
    async fn writer(&self, request: &RunPart) -> Result<Option<ChunkWriter>, Refusal> {
        let Some(base) = request.effect.base() else {
            return Ok(None);
        };
        let Some(chunk) = installed_chunk(request)? else {
            return Ok(None);
        };
        if matches!(request.effect, Effect::Resume { .. }) {
            let left = lock(&self.unfinished).resume(chunk, request.generation, base);
            let gone = || Refusal::Unavailable(format!("what was made of {chunk}"));
            return left.map(Some).ok_or_else(gone);
        }
        let spec = ChunkSpec {
            generation: request.generation,
            chunk_bytes: request.part.chunk_bytes,
            base,
            keeping: request.part.keeping,
        };
        self.with_store(move |store| store.create(chunk, spec))
            .await
            .map(Some)
    }

    /// Makes durable what the part gathered.
    async fn finish(
        &self,
        request: RunPart,
        gathered: Gathered,
        began_in: u64,
    ) -> Result<(), Refusal> {
        match request.effect {
            Effect::None => Ok(()),
            Effect::Install { .. } | Effect::Resume { .. } | Effect::Convert { .. } => {
                let base = request.effect.base().unwrap_or_default();
                let Some(writer) = gathered.writer else {
                    return Ok(());
                };
                let (stripe, epoch) = (request.part.stripe, request.epoch);
                self.store_for_part(began_in, move |store| {
                    // A part of an earlier term or try that took long must not replace a newer chunk.
                    match store.held(stripe) {
                        Ok(state) if epoch < state.epoch => Err(StoreError::Fenced {
                            stripe,
                            current: state.epoch,
                        }),
                        Ok(state) if base < state.mark => Err(StoreError::Settled {
                            stripe,
                            mark: state.mark,
                            sequence: base,
                        }),
                        Ok(_) | Err(StoreError::NoSuchStripe { .. }) => writer.finish_in(epoch),
                        Err(error) => Err(error),
                    }
                })
                .await
            }
            Effect::Record {
                sequence,
                ref participants,
            }
            | Effect::Append {
                sequence,
                ref participants,
            } => {
                let participants = participants.clone();
                self.append(&request, gathered, sequence, participants, began_in)
                    .await
            }
            Effect::CatchUp { sequence } => {
                // Nobody else has a record of it, so nobody else is asked whether it stands.
                let own = gathered.pieces.keys().map(|&(chunk, _)| chunk).collect();
                self.append(&request, gathered, sequence, own, began_in)
                    .await
            }
        }
    }

    /// Makes what was put aside durable as records of one number.
    async fn append(
        &self,
        request: &RunPart,
        gathered: Gathered,
        sequence: Sequence,
        participants: Vec<ChunkIndex>,
        began_in: u64,
    ) -> Result<(), Refusal> {
        let stamp = UpdateStamp {
            epoch: request.epoch,
            sequence,
        };
        let (stripe, generation) = (request.part.stripe, request.generation);
        let mark = request.known_mark();
        // What a chunk has missed is the work of runs that nobody names any more.
        let is_update = !matches!(request.effect, Effect::CatchUp { .. });
        let run = is_update.then_some(request.run);
        self.store_for_part(began_in, move |store| {
            mark.map_or(Ok(()), |mark| hear(store, &mark))?;
            let mut appended = Vec::new();
            for (index, kind, pieces) in gathered.records() {
                let record = Record {
                    chunk: ChunkId { stripe, index },
                    generation,
                    stamp,
                    run,
                    participants: participants.clone(),
                    kind,
                    pieces: pieces
                        .iter()
                        .map(|(data, offset, bytes)| Piece {
                            data: *data,
                            offset: *offset,
                            bytes,
                        })
                        .collect(),
                };
                appended.push(store.append(&record)?);
            }
            appended.into_iter().try_for_each(|lsn| store.sync(lsn))
        })
        .await
    }
}

/// The chunk that a part installs on its node, if it writes any.
pub(crate) fn installed_chunk(request: &RunPart) -> Result<Option<ChunkId>, Refusal> {
    let writes = |step: &PartStep| match step.step {
        Step::Write { chunk, .. } => Some(chunk),
        _ => None,
    };
    let mut written = request.part.steps.iter().filter_map(writes);
    let Some(index) = written.next() else {
        return Ok(None);
    };
    if written.any(|other| other != index) {
        return Err(Refusal::Invalid(
            "a node holds one chunk of a stripe".to_owned(),
        ));
    }
    let stripe = request.part.stripe;
    Ok(Some(ChunkId { stripe, index }))
}

/// Whether a part may run where a stripe stands so, and as of which update it reads.
fn judge(request: &RunPart, state: &StripeState) -> Result<Sequence, Refusal> {
    let is_write = |step: &PartStep| matches!(step.step, Step::Write { .. } | Step::Append { .. });
    let writes = request.effect != Effect::None && request.part.steps.iter().any(is_write);
    // What is settled and pinned may be read whatever has become of the stripe since.
    let is_timeless = matches!(request.cut, ReadCut::Settled(_)) && !writes;
    let (cut_epoch, sequence) = match request.cut {
        ReadCut::Committed(epoch, sequence) | ReadCut::Attested(epoch, sequence) => {
            (epoch, sequence)
        }
        ReadCut::Exactly(sequence) => (request.epoch, sequence),
        ReadCut::Settled(sequence) => (Epoch(0), sequence),
    };
    // Attested is what nodes of one term know. A node of another one was not asked, or was left out.
    if matches!(request.cut, ReadCut::Attested(..)) && cut_epoch != state.epoch {
        let current = state.epoch;
        return Err(Refusal::Fenced { current });
    }
    // A cut of an older term may miss updates that a newer primary has acknowledged.
    let is_old_cut = cut_epoch < state.epoch && cut_epoch != Epoch(0);
    if is_old_cut || (writes && request.epoch < state.epoch) {
        let current = state.epoch;
        return Err(Refusal::Fenced { current });
    }
    if request.generation < state.generation && !is_timeless {
        let current = state.generation;
        return Err(Refusal::StaleGeneration { current });
    }
    if !vouches(state, cut_epoch, sequence) {
        return Err(Refusal::Unsettled);
    }
    Ok(match request.cut {
        ReadCut::Committed(_, sequence) => state.mark.max(sequence),
        ReadCut::Exactly(sequence)
        | ReadCut::Settled(sequence)
        | ReadCut::Attested(_, sequence) => sequence,
    })
}

/// Takes a primary's word of how far updates are settled, as far as it reaches.
fn hear(store: &Store, mark: &CommittedMark) -> Result<(), StoreError> {
    match store.held(mark.stripe) {
        Ok(state) if vouches(&state, mark.epoch, mark.sequence) => {
            store.commit(mark.stripe, mark.sequence)
        }
        // Its last chunk here was removed since.
        Ok(_) | Err(StoreError::NoSuchStripe { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The same where that waits for nothing; whether it was done.
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

/// Whether a mark of term `epoch` says anything about what this node holds: records of another
/// term at or below the mark were never settled here, so the mark does not mean them.
fn vouches(state: &StripeState, epoch: Epoch, sequence: Sequence) -> bool {
    let foreign = |r: &RecordSummary| r.stamp.sequence <= sequence && r.stamp.epoch != epoch;
    sequence == Sequence(0) || !state.records.iter().any(foreign)
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

/// What a node says of damage that its store has found just now.
pub(crate) fn damage(store: &Store, chunk: ChunkId, range: ByteRange) -> Damage {
    let generation = generation_of(store, chunk);
    Damage {
        chunk,
        generation,
        range,
    }
}

/// The generation in which a chunk was made, or the newest that is known of its stripe where the header
/// is bad.
pub(crate) fn generation_of(store: &Store, chunk: ChunkId) -> Generation {
    let made_in = store.chunk_info(chunk).ok().and_then(|info| info.spec);
    let made_in = made_in.map(|spec| spec.generation);
    let known = || store.held(chunk.stripe).ok().map(|state| state.generation);
    made_in.or_else(known).unwrap_or_default()
}

/// What the store's error means for a peer, where it is not damage to a chunk.
pub(crate) fn refusal(error: &StoreError) -> Refusal {
    match error {
        StoreError::Fenced { current, .. } => Refusal::Fenced { current: *current },
        StoreError::StaleGeneration { current, .. } => {
            Refusal::StaleGeneration { current: *current }
        }
        StoreError::NoSuchChunk { chunk } => Refusal::NoSuchChunk(*chunk),
        StoreError::Unsettled { .. } => Refusal::Unsettled,
        StoreError::CutPassed { applied, .. } => Refusal::CutPassed { asked: *applied },
        StoreError::OutOfChunk { .. }
        | StoreError::Malformed { .. }
        | StoreError::RecordTooLarge { .. }
        | StoreError::Overlap { .. }
        | StoreError::Incomplete { .. }
        | StoreError::NoSuchStripe { .. }
        | StoreError::Settled { .. }
        | StoreError::Dropped { .. }
        | StoreError::SequenceTaken { .. } => Refusal::Invalid(error.to_string()),
        StoreError::Failed { cause } => Refusal::StoreFailed(cause.clone()),
        StoreError::Busy { .. } => Refusal::Busy(error.to_string()),
        other if other.is_no_space() => Refusal::NoSpace,
        other => Refusal::Failed(other.to_string()),
    }
}
