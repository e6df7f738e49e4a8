//! Data grouping: CAU section 3.3, Algorithm 1. Data chunks of a stripe that were updated together
//! are brought into one rack, in exchange for chunks that were not, so that their next commit can sum
//! their deltas before they leave it. Racks keep as many chunks of the stripe as they had, so its
//! fault tolerance stays what it was.

use super::super::piece::check_whole;
use super::super::spread::Spread;
use crate::{PlanError, Stripe};
use gabion_layout::{ByteRange, ChunkIndex, GroupingRule, NodeId, RackId, Slices, Topology};
use gabion_plan::{Goal, Plan};

/// Two data chunks that change places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swap {
    /// The updated chunk, which goes where the others are.
    pub updated: ChunkIndex,
    /// The chunk that makes room for it.
    pub other: ChunkIndex,
}

/// What grouping would do to one stripe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grouping {
    /// The exchanges, at least one.
    pub swaps: Vec<Swap>,
    /// Where each chunk is afterwards.
    pub placement: Vec<NodeId>,
    /// Sub-chunks across racks that the next commit of the same chunks saves, less those that the
    /// exchanges cost.
    pub gain: i64,
}

/// Decides whether and how to group a stripe whose data chunks `updated` were committed together.
///
/// Ties go to the rack and the chunk that come first in the stripe.
///
/// # Panics
/// When a chunk is not one of the stripe's data chunks.
pub fn group(
    stripe: &Stripe<'_>,
    topology: &Topology,
    updated: &[ChunkIndex],
    rule: GroupingRule,
) -> Option<Grouping> {
    let least = match rule {
        GroupingRule::Algorithm1 => 1,
        GroupingRule::Authors => 0,
    };
    let into = destination(stripe, topology, updated, rule)?;
    let mut sources: Vec<RackId> = Vec::new();
    for &chunk in updated {
        let rack = topology.rack_of(stripe.node_of(chunk));
        sources.extend(rack.filter(|rack| *rack != into && !sources.contains(rack)));
    }
    let mut best: Option<Grouping> = None;
    for from in sources {
        let Some(found) = exchange(stripe, topology, updated, from, into) else {
            continue;
        };
        if found.gain >= best.as_ref().map_or(least, |best| best.gain + 1) {
            best = Some(found);
        }
    }
    best
}

/// The rack that chunks are brought into: that with most updated chunks, or for a lone one under the
/// authors' rule that with most parity chunks.
fn destination(
    stripe: &Stripe<'_>,
    topology: &Topology,
    updated: &[ChunkIndex],
    rule: GroupingRule,
) -> Option<RackId> {
    let votes: Vec<ChunkIndex> = match (rule, updated) {
        (GroupingRule::Authors, [_]) => stripe.geometry.parity_chunks().collect(),
        _ => updated.to_vec(),
    };
    let rack = |&chunk: &ChunkIndex| topology.rack_of(stripe.node_of(chunk));
    let racks: Vec<RackId> = votes.iter().filter_map(rack).collect();
    let count = |rack| racks.iter().filter(|other| **other == rack).count();
    // The last of several maxima is taken, so the first rack must be looked at last.
    racks.iter().copied().rev().max_by_key(|&rack| count(rack))
}

/// All updated chunks of rack `from` for as many others of rack `into`, if it has so many.
fn exchange(
    stripe: &Stripe<'_>,
    topology: &Topology,
    updated: &[ChunkIndex],
    from: RackId,
    into: RackId,
) -> Option<Grouping> {
    let rack = |chunk: ChunkIndex| topology.rack_of(stripe.node_of(chunk));
    let mut places = stripe
        .geometry
        .data_chunks()
        .filter(|&chunk| rack(chunk) == Some(into) && !updated.contains(&chunk));
    let mut placement = stripe.placement.to_vec();
    let mut swaps = Vec::new();
    for &updated in updated.iter().filter(|&&chunk| rack(chunk) == Some(from)) {
        let other = places.next()?;
        placement.swap(updated.at(), other.at());
        swaps.push(Swap { updated, other });
    }
    let after = Stripe {
        placement: &placement,
        ..*stripe
    };
    let crossing = |stripe: &Stripe<'_>| {
        let spread = Spread::of_chunks(stripe, topology, updated);
        i64::from(spread.direct_rows())
    };
    let moved_rows = (2 * swaps.len() * stripe.code.sub_chunks()) as u32;
    let gain = crossing(stripe) - crossing(&after) - i64::from(moved_rows);
    Some(Grouping {
        swaps,
        placement,
        gain,
    })
}

/// Plans the exchanges: each chunk is read whole and written at its new node.
///
/// # Errors
/// [`PlanError::NeedsChunk`] when a chunk is lost.
pub fn relocate(
    stripe: &Stripe<'_>,
    grouping: &Grouping,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    check_whole(stripe)?;
    let g = stripe.geometry;
    let mut b = stripe.builder();
    let mut moves = Vec::with_capacity(2 * grouping.swaps.len());
    for swap in &grouping.swaps {
        for chunk in [swap.updated, swap.other] {
            let to = grouping.placement[chunk.at()];
            for row in g.split_rows(ByteRange::new(0, g.chunk_bytes())) {
                let slices = Slices::contiguous(row, slice_bytes);
                let stored = b.read(chunk, slices);
                let there = b.send(stored, to);
                b.write(chunk, slices, there);
            }
            moves.push((chunk, to));
        }
    }
    Ok(b.finish(Goal::Move { chunks: moves }))
}
