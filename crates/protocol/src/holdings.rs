//! What a node says that it holds when it joins, and what it makes of the answer.

use crate::message::{Decided, HeldChunk, Refusal};
use crate::participant::{Participant, refusal};
use gabion_layout::{ChunkId, Epoch, RunId, Sequence, Start, StripeId};
use gabion_store::{Disk, Identity, RunMemory, Store, StoreError, StripeState, UpdateStamp};

/// Counts this start of the node, durably, before anybody is told of it.
pub(crate) fn begin<D: Disk>(store: &Store<D>, start: Start) -> Result<Identity, StoreError> {
    let mut identity = store.identity();
    identity.begin(start);
    store.set_identity(&identity)?;
    Ok(identity)
}

/// What the store holds, for the coordinator. A chunk with a damaged header is left out, so that it
/// counts as lost and is repaired.
pub(crate) fn held_chunks<D: Disk>(store: &Store<D>) -> Result<Vec<HeldChunk>, StoreError> {
    let mut held = Vec::new();
    for info in store.chunks()? {
        if let Some(spec) = info.spec {
            let state = store.collect(info.chunk.stripe)?;
            let stamps = state
                .records
                .iter()
                .map(|r| (r.stamp.epoch, r.stamp.sequence));
            let undecided = stamps.collect();
            held.push(HeldChunk {
                chunk: info.chunk,
                generation: spec.generation,
                epoch: state.epoch,
                mark: state.mark,
                undecided,
            });
        }
    }
    Ok(held)
}

/// Makes durable what others have decided while this node was away.
pub(crate) fn accept<D: Disk>(store: &Store<D>, decided: &[Decided]) -> Result<(), StoreError> {
    for fate in decided {
        let known = match store.collect(fate.stripe) {
            Ok(state) => state,
            // The chunk was obsolete.
            Err(StoreError::NoSuchStripe { .. }) => continue,
            Err(error) => return Err(error),
        };
        // A later term may have asked this node since, without getting as far as deciding.
        let epoch = known.epoch.max(fate.epoch);
        let generation = known.generation.max(fate.generation);
        store.fence(fate.stripe, epoch, generation)?;
        // What arrived after the coordinator was told what is here, and before the fence, is of a
        // past term, and goes too.
        let records = store.collect(fate.stripe)?.records;
        let stands = |stamp: &UpdateStamp| fate.stands.contains(&(stamp.epoch, stamp.sequence));
        let past = records.iter().map(|record| record.stamp);
        let past = past.filter(|stamp| stamp.epoch < fate.epoch && !stands(stamp));
        let dropped: Vec<Sequence> = past.map(|stamp| stamp.sequence).collect();
        let last = fate.stands.last().map(|&(_, sequence)| sequence);
        let mark = last.unwrap_or_default();
        store.resolve(fate.stripe, epoch, mark, &dropped)?;
    }
    Ok(())
}

pub(crate) fn remove<D: Disk>(store: &Store<D>, chunks: &[ChunkId]) -> Result<(), StoreError> {
    chunks.iter().try_for_each(|&chunk| store.remove(chunk))
}

/// Takes chunks out of the store that the coordinator does not count on; their files stay for a day.
pub(crate) fn set_aside<D: Disk>(store: &Store<D>, chunks: &[ChunkId]) -> Result<(), StoreError> {
    chunks.iter().try_for_each(|&chunk| store.set_aside(chunk))
}

impl<D: Disk> Participant<D> {
    /// The last update of a stripe of which this node knows, settled or not.
    pub(crate) async fn newest(&self, stripe: StripeId) -> Result<Sequence, Refusal> {
        let held = match self.store.held_now(stripe) {
            Some(held) => held,
            None => self.with_store(move |store| Ok(store.held(stripe))).await?,
        };
        match held {
            Ok(state) => Ok(newest(&state)),
            Err(StoreError::NoSuchStripe { .. }) => Ok(Sequence(0)),
            Err(error) => Err(refusal(&error)),
        }
    }

    /// What is remembered of a run at a chunk, for a primary of a term that no later one has ended.
    pub(crate) async fn recollect(
        &self,
        chunk: ChunkId,
        epoch: Epoch,
        run: RunId,
    ) -> Result<RunMemory, Refusal> {
        let stripe = chunk.stripe;
        self.with_store(move |store| {
            match store.held(stripe) {
                Ok(StripeState { epoch: current, .. }) if epoch < current => {
                    Err(StoreError::Fenced { stripe, current })
                }
                // Its stripe may have ended: the runs of chunks that were removed are remembered for a while.
                Ok(_) | Err(StoreError::NoSuchStripe { .. }) => store.run_memory(chunk, run),
                Err(error) => Err(error),
            }
        })
        .await
    }
}

fn newest(state: &StripeState) -> Sequence {
    let records = state.records.iter().map(|record| record.stamp.sequence);
    records.fold(state.mark, Sequence::max)
}

/// The newest update of each of the stripes that are here, settled or not.
pub(crate) fn latest<D: Disk>(
    store: &Store<D>,
    stripes: Vec<StripeId>,
) -> Result<Vec<(StripeId, Sequence)>, StoreError> {
    let mut latest = Vec::with_capacity(stripes.len());
    for stripe in stripes {
        match store.held(stripe) {
            Ok(state) => latest.push((stripe, newest(&state))),
            Err(StoreError::NoSuchStripe { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(latest)
}
