//! The data chunks that a write touches.

use super::chunk_set::ChunkSet;
use crate::trace::Request;
use gabion_layout::{ChunkIndex, Geometry};

/// One data chunk that a write touches, and with it updates as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChunkUpdate {
    /// Number of the stripe, counted from the volume's first byte.
    pub stripe: u64,
    /// The data chunk.
    pub data: ChunkIndex,
}

/// One write's updates, stripe by stripe.
pub(super) fn batches(touched: &[ChunkUpdate]) -> impl Iterator<Item = (u64, ChunkSet)> {
    let stripes = touched.chunk_by(|a, b| a.stripe == b.stripe);
    stripes.map(|updates| {
        let mut set = ChunkSet::default();
        for update in updates {
            set.insert(update.data);
        }
        (updates[0].stripe, set)
    })
}

/// The data chunks that a request touches, in order.
pub(super) fn chunks_touched(
    request: &Request,
    geometry: Geometry,
) -> impl Iterator<Item = ChunkUpdate> {
    let (first, last) = (request.offset_bytes, request.end_bytes() - 1);
    let k = geometry.k() as u64;
    (first / geometry.chunk_bytes()..=last / geometry.chunk_bytes()).map(move |chunk| ChunkUpdate {
        stripe: chunk / k,
        data: ChunkIndex::new((chunk % k) as usize),
    })
}
