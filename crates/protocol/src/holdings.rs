//! What a node says that it holds when it joins, and what it makes of the answer.

use crate::message::{Decided, HeldChunk};
use gabion_layout::{ChunkId, Sequence, StripeId};
use gabion_store::{Disk, Store, StoreError, UpdateStamp};

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

/// The newest update of each of the stripes that are here, settled or not.
pub(crate) fn latest<D: Disk>(
    store: &Store<D>,
    stripes: Vec<StripeId>,
) -> Result<Vec<(StripeId, Sequence)>, StoreError> {
    let mut latest = Vec::with_capacity(stripes.len());
    for stripe in stripes {
        match store.held(stripe) {
            Ok(state) => {
                let records = state.records.iter().map(|record| record.stamp.sequence);
                latest.push((stripe, records.fold(state.mark, Sequence::max)));
            }
            Err(StoreError::NoSuchStripe { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(latest)
}
