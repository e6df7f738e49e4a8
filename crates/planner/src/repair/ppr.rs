//! PPR, partial parallel repair: a tree. In each round half of the nodes that still hold partial sums
//! send theirs to the other half, the requestor counting as one of them, so that no node receives
//! the lost bytes more than about `log2(k + 1)` times. `ECPipe` section 2.2, after Mitra et al.
//! The tree uses the same slices as a chain; it differs only in the traffic of each link.

use super::descriptor::{Descriptor, Scheme};
use super::lost_row::LostRow;
use crate::Stripe;
use gabion_layout::NodeId;
use gabion_plan::{PlanBuilder, ValueId};

/// The scheme as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: Scheme::Ppr,
    name: "ppr",
    help: "helpers combine pairwise in rounds",
    paper: "ECPipe section 2.2, after Mitra et al.",
    planner: |b, stripe, row, at| row.whole(reconstruct(b, stripe, row, at)),
    together: &[],
    is_one_chain: false,
};

fn reconstruct(b: &mut PlanBuilder, stripe: &Stripe<'_>, row: &LostRow<'_>, at: NodeId) -> ValueId {
    // Sums at each node on the way so far; the requestor is the last and has nothing of its own.
    let mut held = row.reads(b, stripe);
    held.push((at, Vec::new()));
    while held.len() > 1 {
        let mut rest = held.into_iter();
        let mut receivers = Vec::with_capacity(rest.len().div_ceil(2));
        // An odd one out waits. It is the first, so that the last stays the requestor.
        if rest.len() % 2 == 1 {
            receivers.extend(rest.next());
        }
        while let (Some((from, sum)), Some((to, mut terms))) = (rest.next(), rest.next()) {
            let sum = b.combine(from, &sum);
            terms.push((1, b.send(sum, to)));
            receivers.push((to, terms));
        }
        held = receivers;
    }
    let (node, terms) = held.remove(0);
    b.combine(node, &terms)
}

#[cfg(test)]
mod tests {
    use crate::Stripe;
    use crate::repair::{Scheme, repair};
    use gabion_codec::Code;
    use gabion_layout::{ChunkIndex, Geometry, NodeId, StripeId, Topology};
    use gabion_plan::Cost;

    /// Checks the bytes that the requestor and the busiest node receive, in multiples of the lost bytes, of `k`
    /// helpers.
    #[track_caller]
    fn check(k: usize, requestor_receives: u64, busiest_receives: u64) {
        let code = Code::reed_solomon(k, 2).unwrap();
        let topology = Topology::uniform(k as u32 + 3, 1);
        let placement: Vec<NodeId> = (0..code.n() as u32).map(NodeId).collect();
        let stripe = Stripe {
            id: StripeId(1),
            geometry: Geometry::new(k, 2, 1, 64).unwrap(),
            code: &code,
            placement: &placement,
            lost: &[ChunkIndex(0)],
        };
        let requestor = NodeId(k as u32 + 2);
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let plan = repair(&stripe, ChunkIndex(0), requestor, &helpers, Scheme::Ppr, 8).unwrap();
        gabion_plan::check(&plan, &code).unwrap();
        let links = Cost::of(&plan, &topology).links;
        let received = |node| -> u64 {
            let into = links.iter().filter(|link| link.to == node);
            into.map(|link| link.bytes / 64).sum()
        };
        assert_eq!(links.len(), k, "every helper sends once");
        assert_eq!(received(requestor), requestor_receives);
        let nodes = topology.nodes().map(|place| received(place.node));
        assert_eq!(nodes.max().unwrap(), busiest_receives);
    }

    #[test]
    fn rounds_grow_with_the_logarithm_of_the_helpers() {
        check(1, 1, 1);
        check(2, 2, 2);
        check(3, 2, 2);
        check(4, 3, 3);
        check(7, 3, 3);
        check(10, 4, 4);
        check(12, 4, 4);
    }
}
