//! The record of one stripe: the nodes of its chunks, and its generation.

use crate::checked::checked;
use crate::ids::{ChunkIndex, Generation, NodeId, PoolId, Sequence, StripeId};
use serde::{Deserialize, Serialize};

/// The nodes of a stripe's chunks. The coordinator keeps it; clients and primaries cache it and
/// find by [`StripeRecord::generation`] that their copy is stale.
///
/// A record that is read from a message or a disk has 1 to [`StripeRecord::NODES_MAX`] nodes, chunks of at most
/// [`StripeRecord::CHUNK_BYTES_MAX`] bytes, and stale chunks among its own, sorted and each once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct StripeRecord {
    /// The stripe.
    pub id: StripeId,
    /// Its pool, which gives code, chunk size and guarantee.
    pub pool: PoolId,
    /// Bytes of each of its chunks: the pool's chunk size, or less for a file's last stripe.
    pub chunk_bytes: u64,
    /// Raised with each change of `nodes` or `stale`.
    pub generation: Generation,
    /// `nodes[j]` holds chunk `j`; `n` distinct nodes.
    pub nodes: Vec<NodeId>,
    /// Chunks that missed a committed update or are known to be corrupt. They count as lost until
    /// they are repaired, whether or not their node is up. Sorted by chunk, each at most once.
    pub stale: Vec<StaleChunk>,
}

/// A stale chunk, and how much of it is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StaleChunk {
    /// The chunk.
    pub chunk: ChunkIndex,
    /// It has all updates up to this one and may have missed any later one, so the missed ranges
    /// suffice to make it whole. None if none of it can be trusted.
    pub missed_after: Option<Sequence>,
}

checked!(StripeRecord, StripeRecord::is_possible);

impl StripeRecord {
    /// The most bytes of a chunk. The data bytes of a stripe of such chunks are far below 2^64.
    pub const CHUNK_BYTES_MAX: u64 = 16 << 30;

    /// The most nodes of a stripe.
    pub const NODES_MAX: usize = 255;

    fn is_possible(&self) -> bool {
        let count = self.nodes.len();
        let mut stale = self.stale.iter();
        (1..=Self::NODES_MAX).contains(&count)
            && self.chunk_bytes <= Self::CHUNK_BYTES_MAX
            && stale.all(|stale| stale.chunk.at() < count)
            && self.stale.is_sorted_by(|a, b| a.chunk < b.chunk)
    }

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
        self.staleness(chunk).is_some()
    }

    /// Notes that a chunk is stale. Of two reports about one chunk the worse counts. Returns
    /// whether this changed the record.
    pub fn note_stale(&mut self, stale: StaleChunk) -> bool {
        match self
            .stale
            .binary_search_by_key(&stale.chunk, |known| known.chunk)
        {
            Err(at) => self.stale.insert(at, stale),
            Ok(at) if stale.missed_after < self.stale[at].missed_after => self.stale[at] = stale,
            Ok(_) => return false,
        }
        true
    }

    /// The staleness of `chunk`, if it is stale.
    pub fn staleness(&self, chunk: ChunkIndex) -> Option<StaleChunk> {
        self.stale
            .iter()
            .copied()
            .find(|stale| stale.chunk == chunk)
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
            stale: vec![StaleChunk {
                chunk: ChunkIndex(1),
                missed_after: None,
            }],
        };
        for chunk in record.chunks() {
            let node = record.node_of(chunk).unwrap();
            assert_eq!(record.chunk_on(node), Some(chunk));
            assert_eq!(record.is_stale(chunk), node == NodeId(5));
        }
        assert_eq!(record.node_of(ChunkIndex(3)), None);
        assert_eq!(record.chunk_on(NodeId(6)), None);
    }

    #[test]
    fn of_two_reports_the_worse_counts() {
        let mut record = StripeRecord {
            id: StripeId(1),
            pool: PoolId(1),
            chunk_bytes: 64,
            generation: Generation(3),
            nodes: [7, 5, 9].map(NodeId).to_vec(),
            stale: vec![],
        };
        let stale = |chunk, missed_after: Option<u64>| StaleChunk {
            chunk: ChunkIndex(chunk),
            missed_after: missed_after.map(Sequence),
        };
        let reports = [
            (stale(2, Some(4)), true),
            (stale(0, None), true),
            (stale(2, Some(6)), false),
            (stale(2, Some(3)), true),
            (stale(0, Some(9)), false),
        ];
        for (report, is_news) in reports {
            assert_eq!(record.note_stale(report), is_news, "{report:?}");
        }
        assert_eq!(record.stale, [stale(0, None), stale(2, Some(3))]);
    }
}
