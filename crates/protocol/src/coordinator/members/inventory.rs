//! Comparison of the chunks that a joining node reports with the metadata.

use super::nodes::Nodes;
use crate::coordinator::pool_facts::Pools;
use crate::message::{Decided, HeldChunk, PAGE_CHUNK_COUNT, PageAnswer, Scope};
use gabion_layout::{ChunkId, NodeId, StaleChunk, StripeId, StripeRecord};
use gabion_meta::{Held, KeyValue, Meta, MetaError, StripeFacts, StripeStatus, Verdict};
use std::collections::BTreeMap;

/// A page of an inventory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    /// The node that joins.
    pub(super) node: NodeId,
    /// Whether its directory is an old copy.
    pub(super) went_back: bool,
    /// The stripes.
    pub(super) scope: &'a Scope,
    /// All chunks of these that the node holds, by id.
    pub(super) chunks: &'a [HeldChunk],
}

/// The outcome of the comparison.
#[derive(Debug)]
pub(super) struct Inventory {
    /// The orders for the node.
    pub(super) answer: PageAnswer,
    /// The number of the page's chunks that were checked.
    pub(super) answered_count: usize,
    /// Whether the node has lost a chunk, or holds a stale one.
    pub(super) has_repairs: bool,
}

/// Compares a page, and marks the node's lost chunks stale, and those that have missed an update that stands.
/// Generations do not matter: a chunk keeps that of its making, while its stripe's goes up whenever
/// another chunk moves.
///
/// A chunk that only missed updates stays: the missed updates make it whole. A chunk whose bytes cannot be
/// trusted is obsolete as long as the others determine the stripe: a client with an old layout must not
/// read from it, and repair makes it anew. If the others do not, the chunk is the last resort of a manual
/// rescue, and stays.
///
/// A returning node's records above its marks may have been dropped, and the sequences of these updates
/// reused: no later settlement could detect that. The notes of the settlements that left the node out give
/// the outcome of each update. If there is no note, the next settlement asks this node. So no note may be
/// made while this runs, and a note that is made before the node counts as returned is a change of the
/// answer given here. A node without such records is still fenced: a late message of an older term must not
/// be taken for an update with the same sequence.
///
/// A node that went back in time holds an old state: each of its chunks may have missed all updates after
/// its mark.
pub(super) fn decide<K: KeyValue + Send + Sync + 'static>(
    pools: &Pools,
    nodes: &Nodes<K>,
    meta: &Meta<K>,
    request: &Request<'_>,
) -> Result<Inventory, MetaError> {
    let node = request.node;
    let (facts, upto) = match request.scope {
        Scope::Range { after, upto } => {
            let page = meta.facts_on(node, (*after, *upto), PAGE_CHUNK_COUNT)?;
            // Past the end of this range, the node holds nothing.
            (page.facts, page.upto.or(*upto))
        }
        Scope::Stripes(stripes) => (meta.facts_among(node, stripes)?, None),
    };
    let is_answered = |held: &HeldChunk| upto.is_none_or(|upto| held.chunk.stripe <= upto);
    let answered_count = request.chunks.partition_point(is_answered);
    let chunks = &request.chunks[..answered_count];
    let own = own_chunks(node, &facts);
    let judged = judge(meta, request, chunks, (&facts, &own))?;
    let marked = meta.note_all_stale(&judged.stale)?;
    let marked: BTreeMap<StripeId, StripeRecord> = marked
        .into_iter()
        .map(|record| (record.id, record))
        .collect();
    let mut inventory = Inventory {
        answer: PageAnswer {
            upto,
            ..PageAnswer::default()
        },
        answered_count,
        has_repairs: false,
    };
    let fleet = nodes.fleet();
    for (facts, (chunk, verdict)) in facts.iter().zip(own.iter().zip(judged.verdicts)) {
        let stripe = marked.get(&chunk.stripe).unwrap_or(&facts.record);
        let stale = stripe.staleness(chunk.index);
        if stale.is_some() {
            inventory.has_repairs = true;
            // Those that were stale before have been counted.
            if marked.contains_key(&chunk.stripe) {
                pools.note_stale(meta, stripe)?;
            }
        }
        let Some(verdict) = verdict else { continue };
        let was_lost = facts.record.staleness(chunk.index);
        if was_lost.is_some_and(|stale| stale.missed_after.is_none())
            && pools.failures_left(meta, stripe.pool, &fleet.lost(stripe))? >= 0
        {
            inventory.answer.obsolete.push(*chunk);
        }
        inventory
            .answer
            .decided
            .extend(decided(stripe, stale, verdict));
    }
    for held in chunks {
        if own.binary_search(&held.chunk).is_err() {
            match worth_of(meta, node, held.chunk)? {
                Worth::Kept => {}
                Worth::Obsolete => inventory.answer.obsolete.push(held.chunk),
                Worth::Unknown => inventory.answer.unknown.push(held.chunk),
            }
        }
    }
    Ok(inventory)
}

/// The chunks that a node should have of these stripes.
fn own_chunks(node: NodeId, facts: &[StripeFacts]) -> Vec<ChunkId> {
    let own = facts.iter().map(|facts| {
        let index = facts.record.chunk_on(node);
        ChunkId {
            stripe: facts.record.id,
            index: index.expect("the index by node lists stripes with a chunk on it"),
        }
    });
    own.collect()
}

/// The state of a page's chunks.
struct Judged {
    /// For each stripe the state of the node's chunk; none if the node has lost it.
    verdicts: Vec<Option<Verdict>>,
    /// The chunks that are stale because of it.
    stale: Vec<(StripeId, StaleChunk)>,
}

fn judge<K: KeyValue>(
    meta: &Meta<K>,
    request: &Request<'_>,
    chunks: &[HeldChunk],
    (facts, own): (&[StripeFacts], &[ChunkId]),
) -> Result<Judged, MetaError> {
    let node = request.node;
    let mut judged = Judged {
        verdicts: Vec::with_capacity(facts.len()),
        stale: Vec::new(),
    };
    for (facts, &chunk) in facts.iter().zip(own) {
        let is_stale = |missed_after| StaleChunk {
            chunk: chunk.index,
            missed_after,
        };
        let Ok(at) = chunks.binary_search_by_key(&chunk, |held| held.chunk) else {
            judged.stale.push((chunk.stripe, is_stale(None)));
            judged.verdicts.push(None);
            continue;
        };
        let held = &chunks[at];
        let verdict = facts.judge(&Held {
            node,
            chunk,
            epoch: held.epoch,
            mark: held.mark,
            undecided: &held.undecided,
        });
        if held.epoch > verdict.last_epoch {
            let (stripe, epoch) = (chunk.stripe, held.epoch);
            let proof = format!("{node} knows {epoch} of {stripe}, which it has not handed out");
            return Err(MetaError::WentBack { proof });
        }
        let missed_after = match verdict.missed_after {
            _ if facts.was_remade_after(chunk.index, held.generation) => Some(None),
            // Copies of appended bytes may be missing, and cannot be identified: no part of the chunk is
            // trusted.
            _ if request.went_back && meta.appends(chunk.stripe)? => Some(None),
            _ if request.went_back => Some(Some(held.mark)),
            missed_after => missed_after.map(Some),
        };
        if let Some(missed_after) = missed_after {
            judged.stale.push((chunk.stripe, is_stale(missed_after)));
        }
        judged.verdicts.push(Some(verdict));
    }
    Ok(judged)
}

/// The answer to the node about a stripe's updates, if there is one.
fn decided(stripe: &StripeRecord, stale: Option<StaleChunk>, verdict: Verdict) -> Option<Decided> {
    let Verdict {
        excluded_by,
        mut stands,
        open,
        last_epoch,
        ..
    } = verdict;
    let mut epoch = excluded_by;
    if let Some(stale) = stale {
        // No term counts on it any more, so no update is open: it has exactly the updates from before it
        // became stale.
        epoch = Some(last_epoch);
        stands.extend(open);
        stands.retain(|&(_, sequence)| Some(sequence) <= stale.missed_after);
        stands.sort_unstable_by_key(|&(_, sequence)| sequence);
    }
    Some(Decided {
        stripe: stripe.id,
        epoch: epoch?,
        generation: stripe.generation,
        stands,
    })
}

/// The state of a chunk that was not the node's when its stripes were listed.
enum Worth {
    /// It belongs to the node, or may yet.
    Kept,
    /// The metadata of its stripe explain it.
    Obsolete,
    /// The metadata do not know its stripe.
    Unknown,
}

/// Whether a chunk that was not the node's when its stripes were listed should be set aside. A put may have
/// been committed since, so the record is read again.
///
/// A stripe without a record whose id was handed out was removed since. If the id was never handed out, the
/// metadata are older than the chunk.
fn worth_of<K: KeyValue>(meta: &Meta<K>, node: NodeId, chunk: ChunkId) -> Result<Worth, MetaError> {
    match meta.stripe_status(chunk.stripe)? {
        StripeStatus::Pending => Ok(Worth::Kept),
        StripeStatus::Unknown if !meta.was_handed_out(chunk.stripe) => {
            let stripe = chunk.stripe;
            let proof =
                format!("{node} has a chunk of {stripe}, which the coordinator has not allocated");
            Err(MetaError::WentBack { proof })
        }
        StripeStatus::Unknown => Ok(Worth::Unknown),
        StripeStatus::Garbage => Ok(Worth::Obsolete),
        StripeStatus::Live => match meta.stripe(chunk.stripe) {
            Ok(stripe) if stripe.node_of(chunk.index) == Some(node) => Ok(Worth::Kept),
            Ok(_) | Err(MetaError::UnknownStripe(_)) => Ok(Worth::Obsolete),
            Err(error) => Err(error),
        },
    }
}
