//! Encoding of replicas at one node: it gets the nearest replica of each data chunk, makes all parity
//! chunks and sends them to their nodes (EAR, section II-B). From a node of the stripe's core rack no
//! data chunk crosses racks; from any node of a stripe of random replication about `k - 2k / R` do.

use super::parity::parity_row;
use super::replicas::{ReplicaEncoding, Replicas};
use crate::{PlanError, Stripe};
use gabion_layout::{NodeId, Topology};

/// Plans the encoding at `encoder` of data chunks that have replicas on the nodes given, in slices of
/// at most `slice_bytes`. Data chunks that have none at their place are moved there by the same plan.
///
/// # Errors
/// [`PlanError::Layout`] unless each data chunk has a replica.
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
/// // Two data chunks with their first replicas in rack 0, the others in racks 1 and 2.
/// let topology = Topology::uniform(3, 4);
/// let replicas = [vec![NodeId(0), NodeId(4), NodeId(5)], vec![NodeId(1), NodeId(8), NodeId(9)]];
/// let code: Code = "rs(2,1)".parse().unwrap();
/// let stripe = Stripe {
///     id: StripeId(1),
///     code: &code,
///     geometry: Geometry::new(2, 1, 1, 1 << 20).unwrap(),
///     placement: &[4, 8, 2].map(NodeId),
///     lost: &[],
/// };
/// let encoding = encode::gather(&stripe, &replicas, NodeId(0), &topology, 1 << 15).unwrap();
/// check(&encoding.plan, &code).unwrap();
/// assert_eq!(Cost::of(&encoding.plan, &topology).cross_rack_bytes, 0);
/// assert_eq!(encoding.surplus.len(), 4);
/// ```
pub fn gather(
    stripe: &Stripe<'_>,
    replicas: &[Vec<NodeId>],
    encoder: NodeId,
    topology: &Topology,
    slice_bytes: u64,
) -> Result<ReplicaEncoding, PlanError> {
    let replicas = Replicas::new(stripe, replicas, topology, slice_bytes)?;
    let g = stripe.geometry;
    let mut b = stripe.builder();
    let mut gathered = Vec::with_capacity(g.k() * g.sub_chunks());
    for chunk in g.data_chunks() {
        let from = replicas.nearest(chunk, encoder);
        for row in 0..g.sub_chunks() {
            let value = b.read_replica(from, chunk, replicas.row(row));
            gathered.push((chunk.at(), row, b.send(value, encoder)));
        }
    }
    for chunk in g.parity_chunks() {
        for row in 0..g.sub_chunks() {
            let parity = parity_row(&mut b, stripe, encoder, (chunk, row), &gathered);
            let there = b.send(parity, stripe.node_of(chunk));
            b.write(chunk, replicas.row(row), there);
        }
    }
    replicas.relocate(&mut b);
    Ok(replicas.finish(b))
}
