//! Makes a stripe out of others with the same data: replicated blocks become one stripe (EAR, section II-B), and a
//! stripe becomes replicated blocks again. Each chunk is made complete at its own node, so that the others stay
//! unchanged until the new stripe is known to be complete.

use super::parity::parity_row;
use super::replicas::{Replicas, distance};
use crate::{PlanError, Stripe};
use gabion_layout::{ChunkIndex, NodeId, Topology};
use gabion_plan::{Goal, Plan};

/// Plans to make `stripe`, whose data chunks' bytes are in whole chunks of other stripes on the nodes
/// given, in slices of at most `slice_bytes`. Each data chunk comes from the nearest of these. Parity is
/// made at `encoder`; copies under replication are passed on from each to the next.
///
/// # Errors
/// [`PlanError::Layout`] unless each data chunk has a source.
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
/// // Two blocks with replicas in rack 0, one of each stays in another rack.
/// let topology = Topology::uniform(3, 4);
/// let sources = [vec![NodeId(0), NodeId(4), NodeId(5)], vec![NodeId(1), NodeId(8), NodeId(9)]];
/// let code: Code = "rs(2,1)".parse().unwrap();
/// let stripe = Stripe {
///     id: StripeId(1),
///     code: &code,
///     geometry: Geometry::new(2, 1, 1, 1 << 20).unwrap(),
///     placement: &[4, 8, 2].map(NodeId),
///     lost: &[],
/// };
/// let plan = encode::convert(&stripe, &sources, NodeId(0), &topology, 1 << 15).unwrap();
/// check(&plan, &code).unwrap();
/// let cost = Cost::of(&plan, &topology);
/// assert_eq!((cost.cross_rack_bytes, cost.inner_rack_bytes), (0, 2 << 20));
/// ```
pub fn convert(
    stripe: &Stripe<'_>,
    sources: &[Vec<NodeId>],
    encoder: NodeId,
    topology: &Topology,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    let replicas = Replicas::new(stripe, sources, topology, slice_bytes)?;
    let g = stripe.geometry;
    let mut b = stripe.builder();
    let relays = is_replication(stripe);
    // The last copy of a block that is relayed; what of all others the encoder has.
    let mut copy = None;
    let mut gathered = Vec::with_capacity(g.k() * g.sub_chunks());
    for chunk in g.data_chunks() {
        let place = stripe.node_of(chunk);
        let near_place = replicas.nearest(chunk, place);
        let near_encoder = replicas.nearest(chunk, encoder);
        for row in 0..g.sub_chunks() {
            let slices = replicas.row(row);
            let value = b.read_replica(near_place, chunk, slices);
            let there = b.send(value, place);
            b.write(chunk, slices, there);
            if relays {
                copy = Some(there);
                continue;
            }
            // A node's disk is read once if it serves both.
            let value = if near_encoder == near_place {
                value
            } else {
                b.read_replica(near_encoder, chunk, slices)
            };
            gathered.push((chunk.at(), row, b.send(value, encoder)));
        }
    }
    for chunk in g.parity_chunks() {
        for row in 0..g.sub_chunks() {
            let made = copy
                .unwrap_or_else(|| parity_row(&mut b, stripe, encoder, (chunk, row), &gathered));
            let there = b.send(made, stripe.node_of(chunk));
            b.write(chunk, replicas.row(row), there);
            copy = copy.map(|_| there);
        }
    }
    let sources = g.data_chunks().flat_map(|chunk| {
        let nodes = replicas.of(chunk).iter();
        nodes.map(move |&node| (chunk, node))
    });
    let sources: Vec<(ChunkIndex, NodeId)> = sources.collect();
    Ok(b.finish(Goal::Convert { sources }))
}

/// Whether all chunks are copies of one.
fn is_replication(stripe: &Stripe<'_>) -> bool {
    let g = stripe.geometry;
    let is_copy = |chunk: ChunkIndex| stripe.code.coefficient(chunk.at(), 0, 0, 0) == 1;
    (g.k(), g.sub_chunks()) == (1, 1) && g.chunks().all(is_copy)
}

/// The node at which parity is best made: the fewest bytes cross racks, then the fewest are sent at all.
/// With a core rack that is a node there, and no data crosses racks. None without nodes.
pub fn best_encoder(
    stripe: &Stripe<'_>,
    sources: &[Vec<NodeId>],
    topology: &Topology,
) -> Option<NodeId> {
    let g = stripe.geometry;
    let cost = |node: NodeId| {
        let nearest = |nodes: &Vec<NodeId>| {
            let all = nodes.iter().map(|&from| distance(topology, from, node));
            all.min().unwrap_or(0)
        };
        let gets = sources.iter().map(nearest);
        let sends = g
            .parity_chunks()
            .map(|c| distance(topology, node, stripe.node_of(c)));
        // Data that crosses racks counts first: parity has to leave the rack in any case.
        let (mut crossing, mut sent) = ((0, 0), 0);
        for (at, distance) in gets.chain(sends).enumerate() {
            crossing.0 += usize::from(distance == 2 && at < sources.len());
            crossing.1 += usize::from(distance == 2);
            sent += usize::from(distance > 0);
        }
        (crossing, sent, node)
    };
    topology
        .nodes()
        .map(|place| place.node)
        .min_by_key(|&node| cost(node))
}
