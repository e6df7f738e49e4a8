//! The repair of one lost chunk.

use super::descriptor::Scheme;
use super::lost_row::LostRow;
use super::scheme::descriptor;
use crate::{PlanError, Stripe};
use gabion_layout::{ByteRange, ChunkIndex, NodeId, Slices};
use gabion_plan::{Goal, Plan};

/// Plans the repair of one lost chunk onto `requestor`, in slices of at most `slice_bytes`.
/// `helpers` lists the chunks that may help, the preferred ones first; the code takes as few of
/// them as it can. A pipeline runs through them in that order.
///
/// # Errors
/// [`PlanError::NotEnoughHelpers`] when the chunks named do not determine the lost one.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_layout::{ChunkIndex, Geometry, NodeId, StripeId, Topology};
/// use gabion_plan::{Cost, check};
/// use gabion_planner::repair::{Scheme, helpers_by_distance, repair};
/// use gabion_planner::Stripe;
///
/// let (code, topology) = ("rs(4,2)".parse::<Code>().unwrap(), Topology::uniform(7, 1));
/// let placement: Vec<NodeId> = (0..6).map(NodeId).collect();
/// let lost = [ChunkIndex(2)];
/// let stripe = Stripe {
///     id: StripeId(1),
///     code: &code,
///     geometry: Geometry::new(4, 2, 1, 1 << 20).unwrap(),
///     placement: &placement,
///     lost: &lost,
/// };
/// let requestor = NodeId(6);
/// let helpers = helpers_by_distance(&stripe, requestor, &topology);
/// let busiest_link_bytes = |scheme| {
///     let plan = repair(&stripe, lost[0], requestor, &helpers, scheme, 32 << 10).unwrap();
///     check(&plan, &code).unwrap();
///     Cost::of(&plan, &topology).busiest_link_bytes()
/// };
/// assert_eq!(busiest_link_bytes(Scheme::Conventional), 4 << 20);
/// assert_eq!(busiest_link_bytes(Scheme::Pipeline), 1 << 20);
/// ```
pub fn repair(
    stripe: &Stripe<'_>,
    lost: ChunkIndex,
    requestor: NodeId,
    helpers: &[ChunkIndex],
    scheme: Scheme,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    let helpers: Vec<usize> = helpers
        .iter()
        .filter(|c| !stripe.lost.contains(c))
        .map(|c| c.at())
        .collect();
    let candidates = stripe.code.repair_equations(lost.at(), &helpers)?;
    let equations = &candidates[0];
    let row_bytes = stripe.geometry.sub_chunk_bytes();
    let mut b = stripe.builder();
    for row in 0..stripe.geometry.sub_chunks() {
        let in_row = Slices::contiguous(ByteRange::new(0, row_bytes), slice_bytes);
        let lost_row = LostRow {
            equations,
            output: 0,
            row,
            in_row,
        };
        for part in (descriptor(scheme).planner)(&mut b, stripe, &lost_row, requestor) {
            let offset = row as u64 * row_bytes + part.in_row.offset;
            b.write(lost, part.in_row.at(offset), part.value);
        }
    }
    Ok(b.finish(Goal::Repair {
        chunks: vec![(lost, requestor)],
    }))
}
