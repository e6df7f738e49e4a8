//! Common steps of all encoders of replicas: find the nearest replica, move data chunks that may not stay, and list the
//! superfluous replicas.

use crate::placement::ReplicatedStripe;
use crate::{PlanError, Stripe};
use gabion_layout::{ByteRange, ChunkIndex, NodeId, Slices, Topology};
use gabion_plan::{Goal, Plan, PlanBuilder};

/// A stripe's way from replicas to chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaEncoding {
    /// Makes the chunks that are not there yet. It deletes nothing.
    pub plan: Plan,
    /// Replicas that no chunk of the stripe is. They may be deleted when every chunk of the stripe is
    /// durable and was read back and verified, and not before: until then they are the redundancy.
    pub surplus: Vec<(ChunkIndex, NodeId)>,
}

/// Replicas of a stripe's data chunks while its encoding is planned.
pub(super) struct Replicas<'a> {
    stripe: Stripe<'a>,
    /// By data chunk, the nodes with a replica.
    nodes: &'a [Vec<NodeId>],
    topology: &'a Topology,
    slice_bytes: u64,
}

impl<'a> Replicas<'a> {
    /// # Errors
    /// [`PlanError::Layout`] unless each data chunk of the stripe has a replica.
    pub(super) fn new(
        stripe: &Stripe<'a>,
        replicas: &'a [Vec<NodeId>],
        topology: &'a Topology,
        slice_bytes: u64,
    ) -> Result<Self, PlanError> {
        if replicas.len() != stripe.geometry.k() || replicas.iter().any(Vec::is_empty) {
            return Err(PlanError::Layout(format!(
                "each of the stripe's {} data chunks needs a replica to be encoded from",
                stripe.geometry.k()
            )));
        }
        Ok(Self {
            stripe: *stripe,
            nodes: replicas,
            topology,
            slice_bytes,
        })
    }

    /// The slices of a row of any chunk.
    pub(super) fn row(&self, row: usize) -> Slices {
        let row_bytes = self.stripe.geometry.sub_chunk_bytes();
        let range = ByteRange::new(row as u64 * row_bytes, row_bytes);
        Slices::contiguous(range, self.slice_bytes)
    }

    /// The nodes that have a replica of a data chunk.
    pub(super) fn of(&self, chunk: ChunkIndex) -> &'a [NodeId] {
        &self.nodes[chunk.at()]
    }

    /// The replica that is nearest to `node`: there, in its rack, anywhere.
    pub(super) fn nearest(&self, chunk: ChunkIndex, node: NodeId) -> NodeId {
        let nearest = self
            .of(chunk)
            .iter()
            .min_by_key(|&&at| distance(self.topology, at, node));
        *nearest.expect("each chunk has a replica")
    }

    /// Writes the data chunks that have no replica at their place, each from the nearest replica.
    pub(super) fn relocate(&self, b: &mut PlanBuilder) {
        for chunk in self.stripe.geometry.data_chunks() {
            let place = self.stripe.node_of(chunk);
            if self.of(chunk).contains(&place) {
                continue;
            }
            let from = self.nearest(chunk, place);
            for row in 0..self.stripe.geometry.sub_chunks() {
                let value = b.read_replica(from, chunk, self.row(row));
                let there = b.send(value, place);
                b.write(chunk, self.row(row), there);
            }
        }
    }

    /// The plan with its goal, and the replicas that it makes too many.
    pub(super) fn finish(&self, b: PlanBuilder) -> ReplicaEncoding {
        let chunks = self.stripe.geometry.data_chunks();
        let all = chunks.flat_map(|chunk| self.of(chunk).iter().map(move |&node| (chunk, node)));
        let replicas: Vec<(ChunkIndex, NodeId)> = all.collect();
        let is_surplus =
            |&&(chunk, node): &&(ChunkIndex, NodeId)| self.stripe.node_of(chunk) != node;
        ReplicaEncoding {
            surplus: replicas.iter().filter(is_surplus).copied().collect(),
            plan: b.finish(Goal::EncodeReplicas { replicas }),
        }
    }
}

/// 0 for the node itself, 1 within a rack, 2 across racks.
pub(super) fn distance(topology: &Topology, from: NodeId, to: NodeId) -> u8 {
    if from == to {
        0
    } else if topology.rack_of(from) == topology.rack_of(to) {
        1
    } else {
        2
    }
}

/// The node of the stripe's core rack that has most to do with it already: it sends the fewest chunks
/// when it encodes. None when the stripe has no core rack.
pub fn core_encoder(stripe: &ReplicatedStripe, topology: &Topology) -> Option<NodeId> {
    let core = stripe.core_rack?;
    let parity = &stripe.placement[stripe.replicas.len()..];
    let at_hand = |node: NodeId| {
        let data = stripe.replicas.iter().filter(|nodes| nodes.contains(&node));
        data.count() + usize::from(parity.contains(&node))
    };
    let nodes = topology.nodes().filter(|place| place.rack == core);
    nodes
        .map(|place| place.node)
        .min_by_key(|&node| std::cmp::Reverse(at_hand(node)))
}
