//! A joining node's report of its chunks, and the execution of the answer.

use crate::message::{Decided, HeldChunk, Refusal, ask};
use crate::participant::{Participant, refusal};
use gabion_layout::{ChunkId, Sequence, Start, StripeId};
use gabion_store::{Decision, HeldStripe, Identity, RunMemory, Store, StoreError, StripeState};

/// Counts this start of the node, durably, before any other process learns of it.
pub(crate) fn begin(store: &Store, start: Start) -> Result<Identity, StoreError> {
    let mut identity = store.identity();
    identity.begin(start);
    store.set_identity(&identity)?;
    Ok(identity)
}

/// The store's chunks, for the coordinator. A chunk with a damaged header is left out, so that it counts as
/// lost and is repaired.
pub(crate) fn held_chunks(stripes: Vec<HeldStripe>) -> Vec<HeldChunk> {
    let held = stripes.into_iter().flat_map(|held| {
        let HeldStripe {
            stripe,
            chunks,
            state,
        } = held;
        let stamps = state.records.iter();
        let stamps = stamps.map(|record| (record.stamp.epoch, record.stamp.sequence));
        let undecided: Vec<_> = stamps.collect();
        let chunk = move |(index, generation)| HeldChunk {
            chunk: ChunkId { stripe, index },
            generation,
            epoch: state.epoch,
            mark: state.mark,
            undecided: undecided.clone(),
        };
        chunks.into_iter().map(chunk)
    });
    held.collect()
}

/// Makes decisions durable that were made while this node was away. Returns the chunks that this has cost.
pub(crate) fn accept(store: &Store, decided: Vec<Decided>) -> Result<Vec<ChunkId>, StoreError> {
    let decision = |decided: Decided| Decision {
        stripe: decided.stripe,
        epoch: decided.epoch,
        generation: decided.generation,
        stands: decided.stands,
    };
    let decisions: Vec<Decision> = decided.into_iter().map(decision).collect();
    store.adopt_decisions(&decisions)
}

/// Takes chunks out of the store that the coordinator does not count on; their files stay for a day.
pub(crate) fn set_aside(store: &Store, chunks: &[ChunkId]) -> Result<(), StoreError> {
    store.set_aside(chunks)
}

impl Participant {
    /// The last update of a stripe that this node knows, settled or not.
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

    /// This node's memory of a run at a chunk, for a primary whose term no later one has ended.
    pub(crate) async fn recollect(&self, asked: ask::Recollect) -> Result<RunMemory, Refusal> {
        let ask::Recollect { chunk, epoch, run } = asked;
        let stripe = chunk.stripe;
        self.with_store(move |store| {
            match store.held(stripe) {
                Ok(StripeState { epoch: current, .. }) if epoch < current => {
                    Err(StoreError::Fenced { stripe, current })
                }
                // Its stripe may have ended: runs of removed chunks are remembered for a while.
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

/// The newest update of each stripe with a chunk here, settled or not.
pub(crate) fn latest(
    store: &Store,
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
