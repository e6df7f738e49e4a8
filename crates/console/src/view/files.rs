//! The stripes of a file, and the nodes of their chunks.

use gabion_client::FileStat;
use gabion_layout::{ChunkIndex, StripeRecord};
use gabion_protocol::primary::failed_nodes;
use serde::Serialize;
use utoipa::ToSchema;

/// Whether a chunk counts as lost now.
pub fn is_lost(stat: &FileStat, stripe: &StripeRecord, chunk: ChunkIndex) -> bool {
    let failed = failed_nodes(&stat.layout.nodes);
    stripe.is_stale(chunk)
        || stripe
            .node_of(chunk)
            .is_some_and(|node| failed.contains(&node))
}

/// A stripe of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct StripeView {
    /// The stripe's number.
    pub stripe: u64,
    /// The offset in the file at which it begins.
    pub offset: u64,
    /// Bytes of each of its chunks.
    pub chunk_bytes: u64,
    /// Its generation.
    pub generation: u64,
    /// The nodes of its chunks, in the order of the chunks.
    pub nodes: Vec<u32>,
    /// The chunks that count as lost now.
    pub lost_chunks: Vec<u8>,
    /// Further lost chunks that it survives in any combination; -1 has lost data.
    pub failures_left: i32,
    /// Whether updates of it wait for a commit.
    pub appending: bool,
}

/// The stripes that a look at a file has found.
pub fn stripes(stat: &FileStat) -> Vec<StripeView> {
    let layout = &stat.layout;
    let stripes = layout.stripes.iter().zip(&layout.offsets);
    let stripes = stripes.zip(&stat.failures_left);
    let stripes = stripes.map(|((stripe, &offset), &left)| StripeView {
        stripe: stripe.id.0,
        offset,
        chunk_bytes: stripe.chunk_bytes,
        generation: stripe.generation.0,
        nodes: stripe.nodes.iter().map(|node| node.0).collect(),
        lost_chunks: stripe
            .chunks()
            .filter(|&chunk| is_lost(stat, stripe, chunk))
            .map(|chunk| chunk.0)
            .collect(),
        failures_left: left,
        appending: layout.appending.contains(&stripe.id),
    });
    stripes.collect()
}
