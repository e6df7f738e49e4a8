//! The facts that every planner gets about its stripe.

use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry, NodeId, StripeId};
use gabion_plan::PlanBuilder;

/// A stripe as planners see it.
#[derive(Clone, Copy, Debug)]
pub struct Stripe<'a> {
    /// The stripe.
    pub id: StripeId,
    /// Its code.
    pub code: &'a Code,
    /// Its shape; `k`, `m` and sub-chunks are the code's.
    pub geometry: Geometry,
    /// `placement[j]` holds chunk `j`.
    pub placement: &'a [NodeId],
    /// Chunks that cannot be read or written now.
    pub lost: &'a [ChunkIndex],
}

impl Stripe<'_> {
    /// The node that holds a chunk.
    ///
    /// # Panics
    /// When the stripe has no such chunk.
    pub fn node_of(&self, chunk: ChunkIndex) -> NodeId {
        self.placement[chunk.at()]
    }

    /// Chunks that can be read, data first.
    pub fn available(&self) -> impl Iterator<Item = ChunkIndex> {
        self.geometry
            .chunks()
            .filter(|chunk| !self.lost.contains(chunk))
    }

    pub(crate) fn builder(&self) -> PlanBuilder {
        PlanBuilder::new(self.id, self.geometry, self.placement.to_vec())
            .without(self.lost.to_vec())
    }
}
