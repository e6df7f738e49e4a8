//! Reads of any ranges of a stripe: from the chunks themselves if they are readable, otherwise through the code. Only
//! the requested bytes are read and moved (`ECPipe` section 3.2 calls it a degraded read; the client is the requestor).

use super::lost_row::LostRow;
use super::scheme::{Scheme, reconstruct};
use crate::{PlanError, Stripe};
use gabion_layout::{ChunkIndex, ChunkRange, NodeId, Slices};
use gabion_plan::{Goal, Plan};

/// Plans a read of `ranges` to `asker`, in slices of at most `slice_bytes`. Ranges of lost chunks
/// are reconstructed from `helpers`, the preferred ones first.
///
/// # Errors
/// [`PlanError::BadRanges`] for ranges that are empty, overlap or leave their chunk;
/// [`PlanError::NotEnoughHelpers`] when the chunks named do not determine a lost one.
pub fn read(
    stripe: &Stripe<'_>,
    ranges: &[ChunkRange],
    asker: NodeId,
    helpers: &[ChunkIndex],
    scheme: Scheme,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    let g = stripe.geometry;
    let helpers: Vec<usize> = helpers
        .iter()
        .filter(|c| !stripe.lost.contains(c))
        .map(|c| c.at())
        .collect();
    let mut b = stripe.builder();
    for (at, part) in ranges.iter().enumerate() {
        let overlaps = ranges[..at]
            .iter()
            .any(|other| other.chunk == part.chunk && other.range.intersect(part.range).is_some());
        let leaves = part.range.is_empty() || part.range.end() > g.chunk_bytes();
        if overlaps || leaves || part.chunk.at() >= g.n() {
            return Err(PlanError::BadRanges);
        }
        let equations = if stripe.lost.contains(&part.chunk) {
            Some(
                stripe
                    .code
                    .repair_equations(part.chunk.at(), &helpers)?
                    .swap_remove(0),
            )
        } else {
            None
        };
        for range in g.split_rows(part.range) {
            let slices = Slices::contiguous(range, slice_bytes);
            let Some(equations) = &equations else {
                let stored = b.read(part.chunk, slices);
                let value = b.send(stored, asker);
                b.deliver(part.chunk, slices, value);
                continue;
            };
            let row_bytes = g.sub_chunk_bytes();
            let row = range.offset / row_bytes;
            let lost = LostRow {
                equations,
                output: 0,
                row: row as usize,
                in_row: slices.at(range.offset % row_bytes),
            };
            for piece in reconstruct(&mut b, stripe, scheme, &lost, asker) {
                let offset = row * row_bytes + piece.in_row.offset;
                b.deliver(part.chunk, piece.in_row.at(offset), piece.value);
            }
        }
    }
    Ok(b.finish(Goal::Read {
        ranges: ranges.to_vec(),
    }))
}

/// The chunks of a stripe that can be read, in the order in which a repair should prefer them when
/// nothing is known about load: nodes near `asker` last, so that a chain ends near it.
pub fn helpers_by_distance(
    stripe: &Stripe<'_>,
    asker: NodeId,
    topology: &gabion_layout::Topology,
) -> Vec<ChunkIndex> {
    let mut helpers: Vec<ChunkIndex> = stripe.available().collect();
    let rack = topology.rack_of(asker);
    helpers.sort_by_key(|&chunk| {
        let helper_rack = topology.rack_of(stripe.node_of(chunk));
        (helper_rack == rack, helper_rack, chunk)
    });
    helpers
}
