//! A stripe between its two lives: where the replicas of its data chunks are, and where its `n` chunks
//! will be once it is encoded. Both placements, random and encoding-aware, end in one of these.

use super::matching::Matching;
use super::rack_table::{NodeNumber, RackNumber, RackTable};
use crate::PlanError;
use gabion_layout::{ChunkIndex, NodeId, RackId};
use rand::Rng;

/// The blocks of a stripe that is replicated and waits to be encoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicatedStripe {
    /// The rack that holds a replica of each block, if the placement saw to it.
    pub core_rack: Option<RackId>,
    /// The nodes of each data chunk's replicas, the first replica first.
    pub replicas: Vec<Vec<NodeId>>,
    /// `placement[j]` holds chunk `j` once the stripe is encoded.
    pub placement: Vec<NodeId>,
}

impl ReplicatedStripe {
    pub(super) fn new(
        racks: &RackTable,
        core: Option<RackNumber>,
        replicas: Vec<Vec<NodeId>>,
        matching: &Matching<'_>,
        parity: &[NodeNumber],
    ) -> Self {
        let data = (0..replicas.len()).filter_map(|block| matching.kept(block));
        let chunks = data.chain(parity.iter().copied());
        let placement: Vec<NodeId> = chunks.map(|node| racks.node_id(node)).collect();
        assert_eq!(
            placement.len(),
            replicas.len() + parity.len(),
            "each block is kept somewhere"
        );
        Self {
            core_rack: core.map(|rack| racks.rack_id(rack)),
            replicas,
            placement,
        }
    }

    /// Data chunks that no replica of theirs is kept of: they move while the stripe is encoded.
    pub fn relocated(&self) -> impl Iterator<Item = ChunkIndex> {
        let pairs = self.replicas.iter().zip(&self.placement).enumerate();
        let moved = pairs.filter(|(_, (replicas, kept))| !replicas.contains(kept));
        moved.map(|(block, _)| ChunkIndex::new(block))
    }
}

/// Places `parity_count` chunks on nodes that keep no block, in racks with room: as many as fit in the
/// rack named, the others anywhere.
pub(super) fn fill_with_parity(
    matching: &mut Matching<'_>,
    parity_count: usize,
    first: Option<RackNumber>,
    rng: &mut impl Rng,
) -> Result<Vec<NodeNumber>, PlanError> {
    let mut parity = Vec::with_capacity(parity_count);
    while parity.len() < parity_count {
        let near = first.and_then(|rack| matching.any_with_room_in(rack, rng));
        let node = near.or_else(|| matching.any_with_room(rng));
        let node = node.ok_or_else(|| matching.no_room(parity_count - parity.len()))?;
        matching.occupy(node);
        parity.push(node);
    }
    Ok(parity)
}
