//! Repair pipelining, basic version: a chain. Each helper adds its share to the partial sum that
//! passes, slice by slice, so that all links work at once and each carries the lost bytes once.
//! `ECPipe` section 3.2.

use super::descriptor::{Descriptor, MultiScheme, Scheme};
use super::lost_row::{HelperReads, LostRow};
use crate::Stripe;
use gabion_layout::NodeId;
use gabion_plan::{PlanBuilder, ValueId};

/// The scheme as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: Scheme::Pipeline,
    name: "pipeline",
    help: "a chain of helpers, slice by slice",
    paper: "ECPipe section 3.2",
    planner: |b, stripe, row, at| row.whole(reconstruct(b, stripe, row, at)),
    together: &[MultiScheme::Pipeline, MultiScheme::Dealt],
    is_one_chain: true,
};

pub(crate) fn reconstruct(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    row: &LostRow<'_>,
    at: NodeId,
) -> ValueId {
    let reads = row.reads(b, stripe);
    chain(b, reads, at)
}

/// Sums what helpers have read, from one to the next in their order, and brings the sum to `at`.
pub(super) fn chain(b: &mut PlanBuilder, reads: Vec<HelperReads>, at: NodeId) -> ValueId {
    let mut partial = None;
    for (node, mut terms) in reads {
        if let Some(sum) = partial {
            terms.push((1, b.send(sum, node)));
        }
        partial = Some(b.combine(node, &terms));
    }
    let sum = partial.expect("a chunk that the code can repair has at least one helper");
    b.send(sum, at)
}
