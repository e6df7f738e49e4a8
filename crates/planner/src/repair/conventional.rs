//! Conventional repair: a star. Every helper sends the bytes that it read to the requestor, which combines them.
//! `ECPipe` section 2.2; the requestor's link carries `k` chunks for one lost one.

use super::descriptor::{Descriptor, MultiScheme, Scheme};
use super::lost_row::LostRow;
use crate::Stripe;
use gabion_layout::NodeId;
use gabion_plan::{PlanBuilder, ValueId};

/// The scheme as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: Scheme::Conventional,
    name: "conventional",
    help: "every helper sends to the requestor",
    paper: "ECPipe section 2.2",
    planner: |b, stripe, row, at| row.whole(reconstruct(b, stripe, row, at)),
    together: &[MultiScheme::Dedicated],
    is_one_chain: false,
};

fn reconstruct(b: &mut PlanBuilder, stripe: &Stripe<'_>, row: &LostRow<'_>, at: NodeId) -> ValueId {
    let mut terms = Vec::new();
    for (_, reads) in row.reads(b, stripe) {
        for (coefficient, value) in reads {
            terms.push((coefficient, b.send_once(value, at)));
        }
    }
    b.combine(at, &terms)
}
