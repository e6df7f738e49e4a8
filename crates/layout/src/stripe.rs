//! The record of one stripe: who holds which chunk, under which generation.

use crate::{ChunkIndex, Generation, NodeId, PoolId, StripeId};
use serde::{Deserialize, Serialize};

/// Where a stripe's chunks are. The coordinator keeps it; clients and primaries cache it and find
/// out by [`StripeRecord::generation`] that theirs is old.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StripeRecord {
    /// The stripe.
    pub id: StripeId,
    /// Its pool, which says code, chunk size and promise.
    pub pool: PoolId,
    /// Bytes of each of its chunks: the pool's chunk size, or less for a file's last stripe.
    pub chunk_bytes: u64,
    /// Raised with each change of `nodes` or `stale`.
    pub generation: Generation,
    /// `nodes[j]` holds chunk `j`; `n` distinct nodes.
    pub nodes: Vec<NodeId>,
    /// Chunks that missed a committed update or are known to be corrupt. They count as lost until
    /// they are repaired, whether or not their node is up.
    pub stale: Vec<ChunkIndex>,
}

impl StripeRecord {
    /// The node that holds `chunk`, if the stripe has such a chunk.
    pub fn node_of(&self, chunk: ChunkIndex) -> Option<NodeId> {
        self.nodes.get(chunk.at()).copied()
    }

    /// The chunk that `node` holds, if any.
    pub fn chunk_on(&self, node: NodeId) -> Option<ChunkIndex> {
        self.nodes
            .iter()
            .position(|&n| n == node)
            .map(ChunkIndex::new)
    }

    /// All chunks' indices.
    pub fn chunks(&self) -> impl Iterator<Item = ChunkIndex> + use<> {
        (0..self.nodes.len()).map(ChunkIndex::new)
    }

    /// Whether `chunk` is marked stale.
    pub fn is_stale(&self, chunk: ChunkIndex) -> bool {
        self.stale.contains(&chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_chunks_find_each_other() {
        let record = StripeRecord {
            id: StripeId(1),
            pool: PoolId(1),
            chunk_bytes: 64,
            generation: Generation(3),
            nodes: [7, 5, 9].map(NodeId).to_vec(),
            stale: vec![ChunkIndex(1)],
        };
        for chunk in record.chunks() {
            let node = record.node_of(chunk).unwrap();
            assert_eq!(record.chunk_on(node), Some(chunk));
            assert_eq!(record.is_stale(chunk), node == NodeId(5));
        }
        assert_eq!(record.node_of(ChunkIndex(3)), None);
        assert_eq!(record.chunk_on(NodeId(6)), None);
    }
}
