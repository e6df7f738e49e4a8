//! Updates of stripes that have lost chunks: the condition for writing such a stripe, and the way to the old bytes of a
//! lost data chunk.
//!
//! A lost parity chunk is left out, and repair makes it anew. A lost data chunk has no place for new bytes, but the
//! parity chunks can still be updated: one of their nodes, the *substitute*, gets the new bytes, has the old ones of
//! just these ranges rebuilt by the code, and hands out the delta in the lost chunk's place. From then on a degraded
//! read of the chunk gives the new bytes. `CodFS` reads in this state (section 2.3) but does not write; the rule here
//! is ours.

use crate::repair::lost_row::LostRow;
use crate::repair::rp;
use crate::{PlanError, Stripe};
use gabion_codec::Equations;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId, Slices, Topology};
use gabion_plan::{PlanBuilder, ValueId};

/// The lost chunks that an update of `ranges` misses, in order: lost data chunks that it writes, and
/// lost parity chunks that follow from what it writes.
///
/// # Panics
/// When a range is of no data chunk, or ends behind its chunk.
pub fn missed(stripe: &Stripe<'_>, ranges: &[ChunkRange]) -> Vec<ChunkIndex> {
    let g = stripe.geometry;
    let mut missed: Vec<ChunkIndex> = ranges.iter().map(|part| part.chunk).collect();
    for part in ranges {
        for range in g.split_rows(part.range) {
            let row = (range.offset / g.sub_chunk_bytes()) as usize;
            let targets = stripe.code.delta_rows(part.chunk.at(), row);
            missed.extend(targets.iter().map(|target| ChunkIndex::new(target.chunk)));
        }
    }
    missed.retain(|chunk| stripe.lost.contains(chunk));
    missed.sort_unstable();
    missed.dedup();
    missed
}

/// Refuses a stripe that another loss could cost data. For codes that survive any `m` losses that
/// is one with fewer than `k + 1` chunks left. To write to it would be to promise what it cannot keep.
///
/// # Errors
/// [`PlanError::TooFewLeft`].
pub fn check_left(stripe: &Stripe<'_>) -> Result<(), PlanError> {
    let code = stripe.code;
    let left: Vec<usize> = stripe.available().map(ChunkIndex::at).collect();
    if code.n() - left.len() < code.failures_survived() {
        return Ok(());
    }
    let without = |gone: &usize| -> Vec<usize> {
        let rest = left.iter().copied();
        rest.filter(|chunk| chunk != gone).collect()
    };
    if left.iter().all(|gone| code.is_sufficient(&without(gone))) && left.len() > code.k() {
        return Ok(());
    }
    Err(PlanError::TooFewLeft {
        left_count: left.len(),
        chunk_count: code.n(),
    })
}

/// The substitute for a lost data chunk in an update.
pub(super) struct Substitute {
    /// The node that gets the new bytes.
    pub(super) node: NodeId,
    /// The equations of its old bytes from other chunks; these are in the order of a chain to the node.
    equations: Equations,
}

impl Substitute {
    /// Chooses for a lost data chunk. The choice depends only on the stripe and its losses, so that
    /// the node that stages new bytes and the node that plans agree if they know of the same losses.
    ///
    /// All parity nodes of the chunk get its delta, so the substitute is one of them, in the rack that has the most:
    /// this sends the fewest deltas across racks. Helpers are taken from as few racks as possible, the substitute's
    /// own first.
    pub(super) fn of(
        stripe: &Stripe<'_>,
        chunk: ChunkIndex,
        topology: &Topology,
    ) -> Result<Self, PlanError> {
        let rack_of = |chunk: ChunkIndex| topology.rack_of(stripe.node_of(chunk));
        let heirs = heirs(stripe, chunk);
        let neighbours = |heir: ChunkIndex| {
            let near = heirs
                .iter()
                .filter(|&&other| rack_of(other) == rack_of(heir));
            near.count()
        };
        let heir = heirs
            .iter()
            .copied()
            .rev()
            .max_by_key(|&heir| neighbours(heir));
        let Some(heir) = heir else {
            return Err(PlanError::TooFewLeft {
                left_count: stripe.available().count(),
                chunk_count: stripe.geometry.n(),
            });
        };
        let mut helpers: Vec<ChunkIndex> = stripe.available().collect();
        let crowd = |chunk: ChunkIndex| {
            let there = stripe.available().filter(|&c| rack_of(c) == rack_of(chunk));
            std::cmp::Reverse(there.count())
        };
        helpers.sort_by_cached_key(|&helper| {
            let (is_far, is_other) = (rack_of(helper) != rack_of(heir), helper != heir);
            (is_far, is_other, crowd(helper), rack_of(helper), helper)
        });
        let nearest: Vec<usize> = helpers.iter().map(|helper| helper.at()).collect();
        let mut chosen = stripe
            .code
            .repair_equations(chunk.at(), &nearest)?
            .swap_remove(0)
            .helpers;
        // The chain begins far away and ends at the substitute.
        let place = |helper: &usize| nearest.iter().position(|near| near == helper);
        chosen.sort_by_key(|helper| std::cmp::Reverse(place(helper)));
        let equations = stripe
            .code
            .repair_equations(chunk.at(), &chosen)?
            .swap_remove(0);
        Ok(Self {
            node: stripe.node_of(heir),
            equations,
        })
    }

    /// The old bytes of a range of one sub-chunk, at the substitute. They come by a chain, which
    /// carries no byte across a link twice, in any placement.
    pub(super) fn old_bytes(
        &self,
        b: &mut PlanBuilder,
        stripe: &Stripe<'_>,
        range: ByteRange,
        slices: Slices,
    ) -> ValueId {
        let row_bytes = stripe.geometry.sub_chunk_bytes();
        let lost = LostRow {
            equations: &self.equations,
            output: 0,
            row: (range.offset / row_bytes) as usize,
            in_row: slices.at(range.offset % row_bytes),
        };
        rp::reconstruct(b, stripe, &lost, self.node)
    }
}

/// The parity chunks that are left and change with a data chunk, in order.
fn heirs(stripe: &Stripe<'_>, chunk: ChunkIndex) -> Vec<ChunkIndex> {
    let rows = 0..stripe.geometry.sub_chunks();
    let targets = rows.flat_map(|row| stripe.code.delta_rows(chunk.at(), row));
    let mut heirs: Vec<ChunkIndex> = targets
        .map(|target| ChunkIndex::new(target.chunk))
        .collect();
    heirs.sort_unstable();
    heirs.dedup();
    heirs.retain(|heir| !stripe.lost.contains(heir));
    heirs
}
