//! A row of a parity chunk, where all data is at one node.

use crate::Stripe;
use gabion_layout::{ChunkIndex, NodeId};
use gabion_plan::{PlanBuilder, ValueId};

/// Makes a row of a parity chunk at a node that has all rows of all data chunks: `data` says for each of
/// them its chunk, which row of that it is, and its value.
pub(super) fn parity_row(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    node: NodeId,
    (parity, row): (ChunkIndex, usize),
    data: &[(usize, usize, ValueId)],
) -> ValueId {
    let terms = data.iter().map(|&(chunk, data_row, value)| {
        let coefficient = stripe.code.coefficient(parity.at(), row, chunk, data_row);
        (coefficient, value)
    });
    let terms: Vec<_> = terms.filter(|&(coefficient, _)| coefficient != 0).collect();
    b.combine(node, &terms)
}
