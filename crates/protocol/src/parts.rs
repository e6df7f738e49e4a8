//! Running a part of a plan at a participant: whether it may run, its reads and writes, and the state that
//! is made durable at its end or kept after a failure.

use crate::locks::lock;
use crate::message::{AttestedCut, ConversionSource, Effect, Purpose, ReadCut, Refusal, RunPart};
use crate::part_io::{Gathered, NodeIo, Use, WriterSlot};
use crate::participant::{Participant, has_settled, hear, refusal, vouches};
use crate::ports::{Address, run_blocking};
use crate::run::{RunContext, run_part};
use crate::staging::Arrivals;
use crate::unfinished::Left;
use futures::{FutureExt, select_biased};
use gabion_layout::{ChunkId, ChunkIndex, Epoch, Sequence};
use gabion_plan::{PartStep, Step};
use gabion_store::{ChunkSpec, ChunkWriter, Piece, Record, StoreError, StripeState, UpdateStamp};
use std::sync::Arc;

impl Participant {
    /// Runs a part of a plan; its effect is durable when this returns. Returns the update as of which it
    /// has read.
    pub(crate) async fn run(
        &self,
        request: RunPart,
        arrivals: Arrivals,
        origin: Address,
    ) -> Result<Sequence, Refusal> {
        let began_in = self.membership();
        let admitted_at = self.admit(&request).await?;
        let sources = self.sources(&request).await?;
        let writer = self.writer(&request).await?.map(WriterSlot::new);
        let io = NodeIo {
            participant: self.clone(),
            stripe: request.part.stripe,
            holds: request.part.holds,
            cut: request.cut,
            use_of: Use::of(&request.effect),
            sources,
            inputs: arrivals.inputs,
            gathered: Arc::default(),
            writer: writer.clone(),
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
        let mut ran = run_part(&*self.ports, &io, &request.part, context, &mut flows).await;
        if ran.is_err() && flows.is_over() {
            let busy = format!(
                "a node with too many unread frames of run {}",
                request.run.0
            );
            ran = Err(Refusal::Unavailable(busy));
        }
        // Frames that come later take no memory.
        drop(flows);
        if let Err(refusal) = ran {
            let writer = match writer {
                Some(writer) => self.take_writer(writer).await,
                None => None,
            };
            self.leave(&request, writer, &refusal).await;
            return Err(refusal);
        }
        let gathered = std::mem::take(&mut *lock(&io.gathered));
        let as_of = gathered.read_at.unwrap_or(admitted_at);
        let finished = self.finish(request, gathered, writer.clone(), began_in);
        let finished = finished.await;
        if let (Err(_), Some(writer)) = (&finished, writer) {
            self.drop_slot(writer);
        }
        finished.map(|()| as_of)
    }

    /// Takes the writer of a failed part, after the write that runs now. None if the disk hangs.
    async fn take_writer(&self, slot: WriterSlot) -> Option<ChunkWriter> {
        let taken = slot.clone();
        if let Ok(writer) = self.with_store(move |_| Ok(taken.take())).await {
            return writer;
        }
        self.drop_slot(slot);
        None
    }

    /// Drops the writer that a part may have left. That removes its file, which waits for the disk.
    fn drop_slot(&self, slot: WriterSlot) {
        self.ports.blocking(Box::new(move || drop(slot.take())));
    }

    /// Whether the part may run here, and the update as of which it reads.
    async fn admit(&self, request: &RunPart) -> Result<Sequence, Refusal> {
        let stripe = request.part.stripe;
        let held = match self.store.held_now(stripe) {
            Some(held) => Ok(held),
            None => self.with_store(move |store| Ok(store.held(stripe))).await,
        };
        match held? {
            Ok(state) => judge(request, &state),
            // A node that will get its first chunk of the stripe does not know the stripe yet.
            Err(StoreError::NoSuchStripe { .. }) => Ok(Sequence(0)),
            Err(error) => Err(refusal(&error)),
        }
    }

    /// The chunks of other stripes that the part reads here, if it makes a stripe of others. Each must be
    /// settled up to the update read.
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
                are_settled &= has_settled(&state, source.cut);
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
            let gone = || Refusal::Unavailable(format!("the rebuilt part of {chunk}"));
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

    /// Makes the gathered bytes durable.
    async fn finish(
        &self,
        request: RunPart,
        gathered: Gathered,
        writer: Option<WriterSlot>,
        began_in: u64,
    ) -> Result<(), Refusal> {
        match request.effect {
            Effect::None => Ok(()),
            Effect::Install { .. } | Effect::Resume { .. } | Effect::Convert { .. } => {
                let base = request.effect.base().unwrap_or_default();
                let Some(writer) = writer else {
                    return Ok(());
                };
                let (stripe, epoch) = (request.part.stripe, request.epoch);
                // A client stores new chunks: they replace none, not even one that was never updated.
                let is_new = epoch == Epoch(0) && matches!(request.effect, Effect::Install { .. });
                let stored = self.store_for_part(began_in, move |store| {
                    let writer = writer.take().ok_or(crate::part_io::NO_WRITER)?;
                    // A slow part of an earlier term or try must not replace a newer chunk.
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
                        Ok(_) | Err(StoreError::NoSuchStripe { .. }) if is_new => {
                            writer.finish_new()
                        }
                        Ok(_) | Err(StoreError::NoSuchStripe { .. }) => writer.finish_in(epoch),
                        Err(error) => Err(error),
                    }
                });
                stored.await
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
                // No other node has a record of it, so no other node decides whether it stands.
                let own = gathered.pieces.keys().map(|&(chunk, _)| chunk).collect();
                self.append(&request, gathered, sequence, own, began_in)
                    .await
            }
        }
    }

    /// Makes the kept bytes durable as records of one sequence.
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
        // The ranges that a chunk has missed come from forgotten runs.
        let is_update = !matches!(request.effect, Effect::CatchUp { .. });
        let runs = if is_update {
            request.runs()
        } else {
            Vec::new()
        };
        self.store_for_part(began_in, move |store| {
            mark.map_or(Ok(()), |mark| hear(store, &mark))?;
            let mut appended = Vec::new();
            for (index, kind, pieces) in gathered.records() {
                let record = Record {
                    chunk: ChunkId { stripe, index },
                    generation,
                    stamp,
                    runs: runs.clone(),
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

impl Participant {
    /// Keeps the bytes that a failed part has written, if its repair may be resumed without the failed
    /// node.
    pub(crate) async fn leave(
        &self,
        request: &RunPart,
        writer: Option<ChunkWriter>,
        refusal: &Refusal,
    ) {
        let Some(writer) = writer else { return };
        let base = match request.effect {
            Effect::Install { base } | Effect::Resume { base }
                if request.purpose == Purpose::Repair && refusal.is_temporary() =>
            {
                Some(base)
            }
            _ => None,
        };
        let chunk = installed_chunk(request).ok().flatten();
        let dropped = match base.zip(chunk) {
            None => Some(writer),
            Some((base, chunk)) => {
                let left = Left {
                    writer,
                    epoch: request.epoch,
                    generation: request.generation,
                    base,
                    since_ms: self.ports.now_ms(),
                };
                lock(&self.unfinished).leave(chunk, left)
            }
        };
        self.drop_writers(dropped.into_iter().collect()).await;
    }

    /// Drops unfinished chunks that are not to be made here any more, selected by chunk and by the term in
    /// which they were begun.
    pub(crate) async fn abandon_unfinished(&self, is_meant: impl Fn(ChunkId, Epoch) -> bool) {
        let gone = lock(&self.unfinished).abandon(is_meant);
        self.drop_writers(gone).await;
    }

    /// Drops unfinished chunks that no run has resumed.
    pub(crate) async fn expire_unfinished(&self) {
        let gone = lock(&self.unfinished).expire(self.ports.now_ms());
        self.drop_writers(gone).await;
    }

    /// Removes the files of dropped chunks. If the disk hangs, this returns before they are removed.
    async fn drop_writers(&self, writers: Vec<ChunkWriter>) {
        if writers.is_empty() {
            return;
        }
        select_biased! {
            () = run_blocking(&*self.ports, move || drop(writers)).fuse() => {}
            () = self.ports.disk_hang().fuse() => {}
        }
    }
}

/// The chunk that a part installs on its node, if it writes any.
fn installed_chunk(request: &RunPart) -> Result<Option<ChunkId>, Refusal> {
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

/// Whether a part may run on a stripe in this state, and the update as of which it reads.
fn judge(request: &RunPart, state: &StripeState) -> Result<Sequence, Refusal> {
    let is_write = |step: &PartStep| matches!(step.step, Step::Write { .. } | Step::Append { .. });
    let writes = request.effect != Effect::None && request.part.steps.iter().any(is_write);
    // A settled and pinned update stays readable after any later change of the stripe.
    let is_timeless = matches!(request.cut, ReadCut::Settled(_)) && !writes;
    let (cut_epoch, sequence) = match request.cut {
        ReadCut::Committed(epoch, sequence) => (epoch, sequence),
        ReadCut::Attested(cut) => (cut.since, cut.mark),
        ReadCut::Exactly(sequence) | ReadCut::Coded(sequence) => (request.epoch, sequence),
        ReadCut::Settled(sequence) => (Epoch(0), sequence),
    };
    // A cut of an older term may miss updates that a newer primary has acknowledged.
    let is_old_cut = match request.cut {
        // An attested update is known to the nodes of its terms. A node of another term was not asked, or was left out.
        ReadCut::Attested(AttestedCut { since, until, .. }) => {
            !(since..=until).contains(&state.epoch)
        }
        _ => cut_epoch < state.epoch && cut_epoch != Epoch(0),
    };
    if is_old_cut || (writes && request.epoch < state.epoch) {
        let current = state.epoch;
        return Err(Refusal::Fenced { current });
    }
    if request.generation < state.generation && !is_timeless {
        let current = state.generation;
        return Err(Refusal::StaleGeneration { current });
    }
    let is_read = |step: &PartStep| matches!(step.step, Step::Read { .. } | Step::Recall { .. });
    let is_known = match request.cut {
        // A node that is given a chunk may know the stripe from earlier, and has not settled it since.
        ReadCut::Settled(sequence) if request.part.steps.iter().any(is_read) => {
            has_settled(state, sequence)
        }
        _ => vouches(state, cut_epoch, sequence),
    };
    if !is_known {
        return Err(Refusal::Unsettled);
    }
    Ok(match request.cut {
        ReadCut::Committed(_, sequence) => state.mark.max(sequence),
        ReadCut::Exactly(sequence) | ReadCut::Settled(sequence) | ReadCut::Coded(sequence) => {
            sequence
        }
        ReadCut::Attested(cut) => cut.mark,
    })
}
