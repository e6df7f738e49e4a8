//! The bytes that helpers read for a repair of several chunks, and their summation: at one node, or from helper to
//! helper.

use crate::Stripe;
use gabion_codec::Equations;
use gabion_layout::{ChunkIndex, NodeId, Slices};
use gabion_plan::{PlanBuilder, ValueId};

/// The values that one helper has read, and their coefficients in each row of each lost chunk.
pub(super) struct Share {
    pub(super) node: NodeId,
    /// Rows that it reads, by the order of their numbers.
    pub(super) reads: Vec<ValueId>,
    /// For each output row, a coefficient for each of `reads`.
    pub(super) coefficients: Vec<Vec<u8>>,
}

impl Share {
    /// Returns its terms of an output row: none if it adds no read to that.
    fn terms(&self, output: usize) -> Vec<(u8, ValueId)> {
        let coefficients = self.coefficients[output].iter().copied();
        let terms = coefficients.zip(self.reads.iter().copied());
        terms.filter(|&(coefficient, _)| coefficient != 0).collect()
    }

    /// Sends its reads to `at` as they are, and notes what they add to each output there.
    pub(super) fn send_reads(
        &self,
        b: &mut PlanBuilder,
        at: NodeId,
        outputs: &mut [Vec<(u8, ValueId)>],
    ) {
        let sent: Vec<ValueId> = self.reads.iter().map(|&read| b.send(read, at)).collect();
        for (terms, coefficients) in outputs.iter_mut().zip(&self.coefficients) {
            let here = coefficients.iter().copied().zip(sent.iter().copied());
            terms.extend(here.filter(|&(coefficient, _)| coefficient != 0));
        }
    }
}

/// The shares of all helpers, in their order. Each row of a chunk is read once, even for several outputs.
pub(super) struct Shares {
    pub(super) of: Vec<Share>,
    /// Lost chunks times rows of a chunk.
    pub(super) output_count: usize,
}

impl Shares {
    pub(super) fn read(
        b: &mut PlanBuilder,
        stripe: &Stripe<'_>,
        e: &Equations,
        slices: Slices,
    ) -> Self {
        let rows = stripe.geometry.sub_chunks();
        let row_bytes = stripe.geometry.sub_chunk_bytes();
        let output_count = e.outputs.len() * rows;
        let mut of = Vec::with_capacity(e.helpers.len());
        for (at, &helper) in e.helpers.iter().enumerate() {
            let chunk = ChunkIndex::new(helper);
            let from = e.reads(at);
            let coefficients = |output| {
                let one = |&row: &usize| e.coefficient(output / rows, output % rows, at, row);
                from.iter().map(one).collect()
            };
            of.push(Share {
                node: stripe.node_of(chunk),
                coefficients: (0..output_count).map(coefficients).collect(),
                reads: from
                    .iter()
                    .map(|&row| {
                        let offset = slices.offset + row as u64 * row_bytes;
                        b.read(chunk, slices.at(offset))
                    })
                    .collect(),
            });
        }
        Self { of, output_count }
    }

    /// All reads at one node, which makes all outputs.
    pub(super) fn star(&self, b: &mut PlanBuilder, at: NodeId) -> Vec<ValueId> {
        let mut terms = vec![Vec::new(); self.output_count];
        for share in &self.of {
            share.send_reads(b, at, &mut terms);
        }
        terms.iter().map(|terms| b.combine(at, terms)).collect()
    }

    /// Partial sums of all outputs from helper to helper.
    pub(super) fn chain(&self, b: &mut PlanBuilder) -> Vec<ValueId> {
        let all: Vec<&Share> = self.of.iter().collect();
        let sums = partial_sums(b, &all, self.output_count).into_iter();
        let made = |sum: Option<ValueId>| sum.expect("a lost chunk needs at least one helper");
        sums.map(made).collect()
    }
}

/// For each output, the sum of what `shares` add, passed from one helper to the next and left at the
/// last that adds to it; none where no helper adds.
pub(super) fn partial_sums(
    b: &mut PlanBuilder,
    shares: &[&Share],
    output_count: usize,
) -> Vec<Option<ValueId>> {
    let mut sums: Vec<Option<ValueId>> = vec![None; output_count];
    for share in shares {
        for (output, sum) in sums.iter_mut().enumerate() {
            let mut terms = share.terms(output);
            if terms.is_empty() {
                continue;
            }
            if let Some(before) = *sum {
                terms.push((1, b.send(before, share.node)));
            }
            *sum = Some(b.combine(share.node, &terms));
        }
    }
    sums
}
