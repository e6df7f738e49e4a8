//! One row of a lost chunk: the helpers' reads for it, and the parts from which it is combined.

use crate::Stripe;
use gabion_codec::Equations;
use gabion_layout::{ChunkIndex, NodeId, Slices};
use gabion_plan::{PlanBuilder, ValueId};

/// One helper's terms of a row: values that it has read, with their coefficients.
pub(super) type HelperReads = (NodeId, Vec<(u8, ValueId)>);

/// Some slices of a row of a lost chunk, brought together.
pub(crate) struct Part {
    /// Positions within the row.
    pub(crate) in_row: Slices,
    pub(crate) value: ValueId,
}

/// A row of a lost chunk, and the equation that gives it.
pub(crate) struct LostRow<'a> {
    pub(crate) equations: &'a Equations,
    /// The index of the equations' output, and of its row.
    pub(crate) output: usize,
    pub(crate) row: usize,
    /// Positions within the row.
    pub(crate) in_row: Slices,
}

impl LostRow<'_> {
    /// The reads that the equation needs, helper by helper, with their coefficients. Reads of
    /// earlier rows are not repeated.
    pub(super) fn reads(&self, b: &mut PlanBuilder, stripe: &Stripe<'_>) -> Vec<HelperReads> {
        let row_bytes = stripe.geometry.sub_chunk_bytes();
        let mut reads = Vec::with_capacity(self.equations.helpers.len());
        for (at, &helper) in self.equations.helpers.iter().enumerate() {
            let mut terms = Vec::new();
            for row in 0..stripe.geometry.sub_chunks() {
                let coefficient = self.equations.coefficient(self.output, self.row, at, row);
                if coefficient != 0 {
                    let slices = self.in_row.at(self.in_row.offset + row as u64 * row_bytes);
                    terms.push((coefficient, b.read_once(ChunkIndex::new(helper), slices)));
                }
            }
            if !terms.is_empty() {
                reads.push((stripe.placement[helper], terms));
            }
        }
        reads
    }

    /// The whole row as one part.
    pub(super) fn whole(&self, value: ValueId) -> Vec<Part> {
        let in_row = self.in_row;
        vec![Part { in_row, value }]
    }

    /// Returns the number of helpers of which the equation reads anything for this row.
    pub(super) fn helper_count(&self, sub_chunks: usize) -> usize {
        let adds = |&at: &usize| {
            let coefficient = |row| self.equations.coefficient(self.output, self.row, at, row);
            (0..sub_chunks).any(|row| coefficient(row) != 0)
        };
        (0..self.equations.helpers.len()).filter(adds).count()
    }
}
