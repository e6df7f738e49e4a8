//! The write of a replicated block: each node forwards the bytes, so that the writer's link carries the block once for
//! any number of replicas. HDFS writes in this way (EAR, section II-A).

use crate::{PlanError, Stripe};
use gabion_layout::{ByteRange, NodeId, Slices};
use gabion_plan::{Goal, Plan};

/// Plans the write of a block whose bytes are at `source`, along its replicas' nodes in the order of
/// their chunks, in slices of at most `slice_bytes`. The code is replication.
///
/// # Errors
/// [`PlanError::Layout`] when the code is another.
///
/// # Panics
/// When the stripe's placement, geometry and code do not fit together.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_layout::{Geometry, NodeId, StripeId, Topology};
/// use gabion_plan::{Cost, check};
/// use gabion_planner::{Stripe, encode};
///
/// let code: Code = "rep(3)".parse().unwrap();
/// let stripe = Stripe {
///     id: StripeId(1),
///     code: &code,
///     geometry: Geometry::new(1, 2, 1, 1 << 20).unwrap(),
///     placement: &[0, 4, 5].map(NodeId),
///     lost: &[],
/// };
/// let plan = encode::relay(&stripe, NodeId(0), 1 << 15).unwrap();
/// check(&plan, &code).unwrap();
/// let cost = Cost::of(&plan, &Topology::uniform(2, 4));
/// assert_eq!((cost.cross_rack_bytes, cost.inner_rack_bytes), (1 << 20, 1 << 20));
/// ```
pub fn relay(stripe: &Stripe<'_>, source: NodeId, slice_bytes: u64) -> Result<Plan, PlanError> {
    let g = stripe.geometry;
    let is_copy = |chunk: usize| stripe.code.coefficient(chunk, 0, 0, 0) == 1;
    if g.k() != 1 || g.sub_chunks() != 1 || !g.chunks().all(|chunk| is_copy(chunk.at())) {
        return Err(PlanError::Layout(format!(
            "{} does not copy chunks, but only copies can be relayed",
            stripe.code
        )));
    }
    let slices = Slices::contiguous(ByteRange::new(0, g.chunk_bytes()), slice_bytes);
    let mut b = stripe.builder();
    let mut value = b.input(source, gabion_layout::ChunkIndex(0), slices);
    for chunk in g.chunks() {
        value = b.send(value, stripe.node_of(chunk));
        b.write(chunk, slices, value);
    }
    Ok(b.finish(Goal::Encode))
}
