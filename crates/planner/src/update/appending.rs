//! The interface of a scheme that updates parity later: its appends, its commits, and the failures that a stripe
//! survives in between.

use super::waiting::Waiting;
use crate::{PlanError, Stripe};
use gabion_codec::Code;
use gabion_layout::{AppendSpec, ChunkIndex, ChunkRange, Topology};
use gabion_plan::Plan;
use std::fmt::Debug;

/// A scheme with append phases (CAU, section 3.1).
pub trait Appending: Debug + Sync {
    /// Plans to append an update of a stripe that has all of its chunks, in a phase in which this waits
    /// already.
    ///
    /// # Errors
    /// [`PlanError::BadRanges`], [`PlanError::NeedsChunk`] when a chunk is lost, and
    /// [`PlanError::TooManyReplicas`].
    fn append(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        ranges: &[ChunkRange],
        phase: (&Waiting, &AppendSpec),
        slice_bytes: u64,
    ) -> Result<Plan, PlanError>;

    /// Plans the commit of what waits, whatever chunks are lost.
    ///
    /// # Errors
    /// [`PlanError::NeedsChunk`], [`PlanError::TooFewLeft`] and [`PlanError::NotEnoughHelpers`] when the
    /// chunks that are left do not have what is needed.
    fn commit(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        waiting: &Waiting,
        slice_bytes: u64,
    ) -> Result<Plan, PlanError>;

    /// The parity chunks whose nodes have copies of what is appended to a data chunk.
    ///
    /// # Errors
    /// [`PlanError::TooManyReplicas`].
    fn keepers(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        data: ChunkIndex,
        spec: &AppendSpec,
    ) -> Result<Vec<ChunkIndex>, PlanError>;

    /// Whether a pool chooses the number of copies on parity nodes ([`AppendSpec::replicas`]), and may have data
    /// grouping after commits ([`AppendSpec::grouping`]). Otherwise every parity node has a copy, and chunks stay
    /// where they are.
    fn is_by_rack(&self) -> bool;

    /// Returns the number of nodes, whichever they are, that may fail while something waits.
    fn survives(&self, code: &Code, spec: &AppendSpec) -> usize;
}
