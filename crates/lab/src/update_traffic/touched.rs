//! The effect of one write on one stripe, as counters see it.

use super::chunk_set::ChunkSet;
use crate::trace::Request;
use gabion_layout::{ChunkIndex, Geometry};

/// The chunks of a stripe that one write touches; each of them is updated as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch<'a> {
    /// Number of the stripe, counted from the volume's first byte.
    pub stripe: u64,
    /// The data chunks; not empty.
    pub set: ChunkSet,
    /// The number of the rack of each chunk of the stripe, as the layout places it.
    pub racks: &'a [u8],
}

/// The stripes that a request touches, in order, and their touched data chunks.
pub(super) fn stripes_touched(
    request: &Request,
    geometry: Geometry,
) -> impl Iterator<Item = (u64, ChunkSet)> + use<> {
    let first = request.offset_bytes / geometry.chunk_bytes();
    let last = (request.end_bytes() - 1) / geometry.chunk_bytes();
    let k = geometry.k() as u64;
    (first / k..=last / k).map(move |stripe| {
        let from = first.saturating_sub(stripe * k);
        let to = (last - stripe * k).min(k - 1);
        let mut set = ChunkSet::default();
        for data in from..=to {
            set.insert(ChunkIndex::new(data as usize));
        }
        (stripe, set)
    })
}
