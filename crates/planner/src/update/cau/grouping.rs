//! Data grouping: CAU section 3.3, Algorithm 1. Data chunks of a stripe that were updated together are brought into one
//! rack, in exchange for chunks that were not, so that their next commit can sum their deltas before they leave it.
//! Each rack keeps its number of chunks of the stripe, so the fault tolerance does not change.

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

/// The effect of grouping on one stripe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grouping {
    /// The exchanges, at least one.
    pub swaps: Vec<Swap>,
    /// The place of each chunk afterwards.
    pub placement: Vec<NodeId>,
    /// Sub-chunks across racks that the next commit of the same chunks saves, less those that the
    /// exchanges cost.
    pub gain: i64,
}

/// Decides whether and how to group a stripe whose data chunks `updated` were committed together.
///
/// # Panics
/// When a chunk is not one of the stripe's data chunks.
pub fn group(
    stripe: &Stripe<'_>,
    topology: &Topology,
    updated: &[ChunkIndex],
    rule: GroupingRule,
) -> Option<Grouping> {
    let racks = Racks::of(stripe, topology, updated);
    match rule {
        GroupingRule::Algorithm1 => by_algorithm_1(&racks),
        GroupingRule::Authors => by_authors(&racks),
    }
}

/// Algorithm 1 as printed: the rack with most updated chunks takes those of the other rack that
/// gains most, if it gains. Ties go to the rack whose first updated chunk comes first in the stripe.
fn by_algorithm_1(racks: &Racks<'_>) -> Option<Grouping> {
    let mut by_first_chunk: Vec<RackId> = Vec::new();
    for &chunk in racks.updated {
        let rack = racks.rack_of(chunk);
        by_first_chunk.extend(rack.filter(|rack| !by_first_chunk.contains(rack)));
    }
    let into = first_with_most(&by_first_chunk, |rack| racks.updated_in(rack).count())?;
    let others = by_first_chunk.into_iter().filter(|&rack| rack != into);
    let mut best: Option<Grouping> = None;
    for from in others {
        let Some(found) = racks.exchange(racks.updated_in(from), into) else {
            continue;
        };
        if found.gain >= best.as_ref().map_or(1, |best| best.gain + 1) {
            best = Some(found);
        }
    }
    best
}

/// Groups as the authors' program does. The rack with most updated chunks takes those of the other rack with fewest,
/// unless the exchange costs more than the next commit of the same chunks spares. A lone chunk in a rack without parity
/// goes to the rack with most parity, whatever that costs: each later commit of it spares the transfer there. Ties go
/// to the rack with the least number.
fn by_authors(racks: &Racks<'_>) -> Option<Grouping> {
    let updated_count = |rack: RackId| racks.updated_in(rack).count();
    let parity_count = |rack: RackId| racks.parity_in(rack).count();
    let into = first_with_most(&racks.all, updated_count)?;
    let others = racks.all.iter().copied().filter(|&rack| rack != into);
    let from = others
        .filter(|&rack| updated_count(rack) > 0)
        .min_by_key(|&rack| updated_count(rack));
    match (from, racks.updated) {
        (Some(from), _) => racks
            .exchange(racks.updated_in(from), into)
            .filter(|found| found.gain >= 0),
        (None, &[lone]) if parity_count(into) == 0 => {
            let with_parity = first_with_most(&racks.all, parity_count)?;
            racks.exchange(std::iter::once(lone), with_parity)
        }
        (None, _) => None,
    }
}

/// The first of the racks of which `count` is greatest.
fn first_with_most(racks: &[RackId], count: impl Fn(RackId) -> usize) -> Option<RackId> {
    // `max_by_key` takes the last of several maxima.
    racks.iter().copied().rev().max_by_key(|&rack| count(rack))
}

/// The racks of the chunks of a stripe, and the chunks that were committed together.
struct Racks<'a> {
    stripe: &'a Stripe<'a>,
    topology: &'a Topology,
    updated: &'a [ChunkIndex],
    /// Racks that have chunks of the stripe, in the order of their numbers.
    all: Vec<RackId>,
}

impl<'a> Racks<'a> {
    fn of(stripe: &'a Stripe<'a>, topology: &'a Topology, updated: &'a [ChunkIndex]) -> Self {
        let of_nodes = stripe.placement.iter();
        let mut all: Vec<RackId> = of_nodes.filter_map(|&n| topology.rack_of(n)).collect();
        all.sort_unstable();
        all.dedup();
        Self {
            stripe,
            topology,
            updated,
            all,
        }
    }

    fn rack_of(&self, chunk: ChunkIndex) -> Option<RackId> {
        self.topology.rack_of(self.stripe.node_of(chunk))
    }

    fn updated_in(&self, rack: RackId) -> impl Iterator<Item = ChunkIndex> {
        let chunks = self.updated.iter().copied();
        chunks.filter(move |&chunk| self.rack_of(chunk) == Some(rack))
    }

    fn parity_in(&self, rack: RackId) -> impl Iterator<Item = ChunkIndex> {
        let chunks = self.stripe.geometry.parity_chunks();
        chunks.filter(move |&chunk| self.rack_of(chunk) == Some(rack))
    }

    /// The chunks `moved` for as many data chunks of rack `into` that were not updated, the first of
    /// the stripe; none if it has fewer.
    fn exchange(&self, moved: impl Iterator<Item = ChunkIndex>, into: RackId) -> Option<Grouping> {
        let stripe = self.stripe;
        let is_free = |&chunk: &ChunkIndex| {
            self.rack_of(chunk) == Some(into) && !self.updated.contains(&chunk)
        };
        let mut free = stripe.geometry.data_chunks().filter(is_free);
        let mut placement = stripe.placement.to_vec();
        let mut swaps = Vec::new();
        for updated in moved {
            let other = free.next()?;
            placement.swap(updated.at(), other.at());
            swaps.push(Swap { updated, other });
        }
        let after = Stripe {
            placement: &placement,
            ..*stripe
        };
        let crossing = |stripe: &Stripe<'_>| {
            let spread = Spread::of_chunks(stripe, self.topology, self.updated);
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
