//! What a joining node says it holds, against what metadata says it should.

use super::{Coordinator, PAGE};
use crate::message::{Decided, HeldChunk};
use gabion_layout::{ChunkId, NodeId, StaleChunk, StripeRecord};
use gabion_meta::{Held, KeyValue, Meta, MetaError, StripeStatus, Verdict};
use std::collections::BTreeSet;

/// What came of the comparison.
#[derive(Debug)]
pub(super) struct Inventory {
    /// Chunks that the node should set aside before it serves anything.
    pub(super) obsolete: Vec<ChunkId>,
    /// Stripes of which it has lost a chunk, or holds a stale one.
    pub(super) to_repair: Vec<StripeRecord>,
}

/// Compares, and marks the node's lost chunks stale. Generations do not matter: a chunk keeps that
/// of its making, while its stripe's goes up whenever another chunk moves.
///
/// A chunk that only missed updates stays: what it missed makes it whole. One of which nothing can
/// be trusted is obsolete as well while the others determine the stripe: a client with an old layout
/// must not read from it, and repair makes it anew. If they do not, it is the last resort of whoever
/// tries to save something, and stays.
pub(super) fn compare<K: KeyValue + Send + Sync + 'static>(
    coordinator: &Coordinator<K>,
    meta: &Meta<K>,
    node: NodeId,
    chunks: &[HeldChunk],
) -> Result<Inventory, MetaError> {
    let held: BTreeSet<ChunkId> = chunks.iter().map(|held| held.chunk).collect();
    let mut known = BTreeSet::new();
    let mut inventory = Inventory {
        obsolete: Vec::new(),
        to_repair: Vec::new(),
    };
    let fleet = coordinator.fleet();
    let mut after = None;
    loop {
        let page = meta.stripes_on(node, after, PAGE)?;
        for mut stripe in page.iter().cloned() {
            let index = stripe.chunk_on(node);
            let index = index.expect("the index by node lists stripes with a chunk on it");
            let chunk = ChunkId {
                stripe: stripe.id,
                index,
            };
            known.insert(chunk);
            if !held.contains(&chunk) {
                stripe = meta.mark_stale(stripe.id, index)?;
            } else if stripe
                .staleness(index)
                .is_some_and(|stale| stale.missed_after.is_none())
                && coordinator.failures_left(meta, stripe.pool, &fleet.lost(&stripe))? >= 0
            {
                inventory.obsolete.push(chunk);
            }
            if stripe.is_stale(index) {
                inventory.to_repair.push(stripe);
            }
        }
        match page.last() {
            Some(last) => after = Some(last.id),
            None => break,
        }
    }
    for &chunk in held.difference(&known) {
        if is_obsolete(meta, node, chunk)? {
            inventory.obsolete.push(chunk);
        }
    }
    Ok(inventory)
}

/// What a returning node is told of updates that others have decided without it.
#[derive(Debug, Default)]
pub(super) struct Fates {
    /// What it has to make durable before it serves anything.
    pub(super) decided: Vec<Decided>,
    /// Stripes of which its chunk is stale.
    pub(super) to_repair: Vec<StripeRecord>,
}

/// Finds what became of a returning node's records above its marks, and which of its chunks have
/// missed an update that stands: these are stale from then on.
///
/// Its records may have been dropped, and the numbers of these updates even used again: no later
/// settlement could tell. The notes of those that left the node out say which of them stand. Where
/// there is no note, the next settlement asks this node. So nobody may make a note while this runs,
/// nor before the node counts as returned. A node without such records is fenced at least: a part
/// of an older term that arrives only now must not be taken for an update of its number.
///
/// A node that went back in time shows what it had once, and no more: each of its chunks may have missed
/// whatever came after its mark.
pub(super) fn find_fates<K: KeyValue>(
    meta: &Meta<K>,
    node: NodeId,
    went_back: bool,
    chunks: &[HeldChunk],
) -> Result<Fates, MetaError> {
    let mut fates = Fates::default();
    for held in chunks {
        match find_fate(meta, node, went_back, held) {
            Ok(Some((stripe, decided))) => {
                if stripe.is_stale(held.chunk.index) {
                    fates.to_repair.push(stripe);
                }
                fates.decided.extend(decided);
            }
            // It is another's, or its stripe is gone, perhaps since the node was asked.
            Ok(None) | Err(MetaError::UnknownStripe(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(fates)
}

/// The fate of one chunk, with its stripe's record; none if the chunk is not the node's.
fn find_fate<K: KeyValue>(
    meta: &Meta<K>,
    node: NodeId,
    went_back: bool,
    held: &HeldChunk,
) -> Result<Option<(StripeRecord, Option<Decided>)>, MetaError> {
    let mut stripe = meta.stripe(held.chunk.stripe)?;
    if stripe.node_of(held.chunk.index) != Some(node) {
        return Ok(None);
    }
    let Verdict {
        excluded_by,
        mut stands,
        open,
        missed_after,
        last_epoch,
    } = meta.judge(&Held {
        node,
        chunk: held.chunk,
        epoch: held.epoch,
        mark: held.mark,
        undecided: &held.undecided,
    })?;
    if held.epoch > last_epoch {
        let (stripe, epoch) = (stripe.id, held.epoch);
        let proof = format!("{node} knows {epoch} of {stripe}, which it has not handed out");
        return Err(MetaError::WentBack { proof });
    }
    let mut epoch = excluded_by;
    let missed_after = match missed_after {
        // Of what was appended copies may be missing, and nobody could tell which: nothing is trusted.
        _ if went_back && meta.appends(stripe.id)? => Some(None),
        _ if went_back => Some(Some(held.mark)),
        missed_after => missed_after.map(Some),
    };
    if let Some(missed_after) = missed_after {
        let stale = StaleChunk {
            chunk: held.chunk.index,
            missed_after,
        };
        stripe = meta.note_stale(stripe.id, &[stale])?;
    }
    if let Some(stale) = stripe.staleness(held.chunk.index) {
        // No term counts on it any more, so nothing is open: it has what it had when it became
        // stale, and no more.
        epoch = Some(last_epoch);
        stands.extend(open);
        stands.retain(|&(_, sequence)| Some(sequence) <= stale.missed_after);
        stands.sort_unstable_by_key(|&(_, sequence)| sequence);
    }
    let decided = epoch.map(|epoch| Decided {
        stripe: stripe.id,
        epoch,
        generation: stripe.generation,
        stands,
    });
    Ok(Some((stripe, decided)))
}

/// Whether a chunk, which was not the node's when its stripes were listed, should be set aside. A put
/// may have been committed since, so the record is asked again.
///
/// A stripe without a record whose id was handed out was removed since: its chunk is explained. One whose
/// id was not is explained by nothing but metadata that are older than the chunk.
fn is_obsolete<K: KeyValue>(
    meta: &Meta<K>,
    node: NodeId,
    chunk: ChunkId,
) -> Result<bool, MetaError> {
    match meta.stripe_status(chunk.stripe)? {
        StripeStatus::Pending => Ok(false),
        StripeStatus::Unknown if !meta.was_handed_out(chunk.stripe)? => {
            let stripe = chunk.stripe;
            let proof = format!("{node} has a chunk of {stripe}, whose id it has not handed out");
            Err(MetaError::WentBack { proof })
        }
        StripeStatus::Garbage | StripeStatus::Unknown => Ok(true),
        StripeStatus::Live => match meta.stripe(chunk.stripe) {
            Ok(stripe) => Ok(stripe.node_of(chunk.index) != Some(node)),
            Err(MetaError::UnknownStripe(_)) => Ok(true),
            Err(error) => Err(error),
        },
    }
}
