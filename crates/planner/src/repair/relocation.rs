//! Moves a complete chunk: it is read at its node and written at another one, without decoding. A node is emptied in
//! this way before it leaves the cluster.

use crate::{PlanError, Stripe};
use gabion_layout::{ByteRange, ChunkIndex, NodeId, Slices};
use gabion_plan::{Goal, Plan};

/// Plans to move a chunk to a node that holds nothing of the stripe, in slices of at most
/// `slice_bytes`.
///
/// # Errors
/// [`PlanError::NeedsChunk`] when the chunk is lost.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_layout::{ChunkIndex, Geometry, NodeId, StripeId, Topology};
/// use gabion_plan::{Cost, check};
/// use gabion_planner::Stripe;
/// use gabion_planner::repair::move_chunk;
///
/// let code = "rdp(4)".parse::<Code>().unwrap();
/// let placement: Vec<NodeId> = (0..6).map(NodeId).collect();
/// let stripe = Stripe {
///     id: StripeId(1),
///     code: &code,
///     geometry: Geometry::new(4, 2, code.sub_chunks(), 1 << 20).unwrap(),
///     placement: &placement,
///     lost: &[],
/// };
/// let plan = move_chunk(&stripe, ChunkIndex(5), NodeId(6), 32 << 10).unwrap();
/// check(&plan, &code).unwrap();
/// let cost = Cost::of(&plan, &Topology::uniform(7, 1));
/// assert_eq!((cost.read_bytes, cost.cross_rack_bytes), (1 << 20, 1 << 20));
/// ```
pub fn move_chunk(
    stripe: &Stripe<'_>,
    chunk: ChunkIndex,
    to: NodeId,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    if stripe.lost.contains(&chunk) {
        return Err(PlanError::NeedsChunk(chunk));
    }
    let g = stripe.geometry;
    let mut b = stripe.builder();
    for row in g.split_rows(ByteRange::new(0, g.chunk_bytes())) {
        let slices = Slices::contiguous(row, slice_bytes);
        let stored = b.read(chunk, slices);
        let there = b.send(stored, to);
        b.write(chunk, slices, there);
    }
    let chunks = vec![(chunk, to)];
    Ok(b.finish(Goal::Move { chunks }))
}
