//! Encoding by the client, which has the data: it computes all parity chunks and sends each chunk straight to its node.
//! Each byte of the stripe crosses the client's link once, which is the minimum for data that starts at the client.

use super::parity::parity_row;
use crate::update::check_left;
use crate::{PlanError, Stripe};
use gabion_layout::{ByteRange, NodeId, Slices};
use gabion_plan::{Goal, Plan};

/// Plans the first write of a stripe whose data is at `source`, in slices of at most `slice_bytes`. Lost
/// chunks are left out, for a repair to make.
///
/// # Errors
/// [`PlanError::TooFewLeft`] unless the stripe survives the loss of one more chunk.
///
/// # Panics
/// When the stripe's placement, geometry and code do not fit together.
pub fn direct(stripe: &Stripe<'_>, source: NodeId, slice_bytes: u64) -> Result<Plan, PlanError> {
    let g = stripe.geometry;
    if !stripe.lost.is_empty() {
        check_left(stripe)?;
    }
    let row_bytes = g.sub_chunk_bytes();
    let row = |row: usize| {
        Slices::contiguous(
            ByteRange::new(row as u64 * row_bytes, row_bytes),
            slice_bytes,
        )
    };
    let mut b = stripe.builder();
    let mut inputs = Vec::with_capacity(g.k() * g.sub_chunks());
    for chunk in g.data_chunks() {
        for r in 0..g.sub_chunks() {
            inputs.push((chunk.at(), r, b.input(source, chunk, row(r))));
        }
    }
    for chunk in g.chunks().filter(|chunk| !stripe.lost.contains(chunk)) {
        for r in 0..g.sub_chunks() {
            let value = if g.is_data(chunk) {
                inputs[chunk.at() * g.sub_chunks() + r].2
            } else {
                parity_row(&mut b, stripe, source, (chunk, r), &inputs)
            };
            let there = b.send(value, stripe.node_of(chunk));
            b.write(chunk, row(r), there);
        }
    }
    Ok(b.finish(Goal::Encode))
}
