//! Reads of any ranges of a stripe: from the chunks themselves if they are readable, otherwise through the code. Only
//! the requested bytes are read and moved (`ECPipe` section 3.2 calls it a degraded read; the client is the requestor).

use super::descriptor::Scheme;
use super::lost_row::LostRow;
use super::scheme::descriptor;
use crate::{PlanError, Stripe};
use gabion_codec::Equations;
use gabion_layout::{ChunkIndex, ChunkRange, NodeId, Slices};
use gabion_plan::{Goal, Plan, PlanBuilder};
use std::collections::BTreeMap;

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
    check_readable(stripe, ranges)?;
    let mut b = stripe.builder();
    let mut stored = StoredBytes::new(stripe, asker, (helpers, scheme), slice_bytes);
    for &part in ranges {
        stored.deliver(&mut b, part)?;
    }
    Ok(b.finish(Goal::Read {
        ranges: ranges.to_vec(),
    }))
}

/// Refuses ranges that are empty, overlap or leave their chunk.
pub(crate) fn check_readable(stripe: &Stripe<'_>, ranges: &[ChunkRange]) -> Result<(), PlanError> {
    let g = stripe.geometry;
    for (at, part) in ranges.iter().enumerate() {
        let overlaps = ranges[..at]
            .iter()
            .any(|other| other.chunk == part.chunk && other.range.intersect(part.range).is_some());
        let leaves = part.range.is_empty() || part.range.end() > g.chunk_bytes();
        if overlaps || leaves || part.chunk.at() >= g.n() {
            return Err(PlanError::BadRanges);
        }
    }
    Ok(())
}

/// The way of a stripe's stored bytes to an asker.
pub(crate) struct StoredBytes<'a> {
    stripe: &'a Stripe<'a>,
    asker: NodeId,
    /// Chunks that may help, the preferred ones first.
    helpers: Vec<usize>,
    scheme: Scheme,
    slice_bytes: u64,
    /// Of the lost chunks so far.
    equations: BTreeMap<ChunkIndex, Equations>,
}

impl<'a> StoredBytes<'a> {
    pub(crate) fn new(
        stripe: &'a Stripe<'a>,
        asker: NodeId,
        (helpers, scheme): (&[ChunkIndex], Scheme),
        slice_bytes: u64,
    ) -> Self {
        let may_help = |chunk: &&ChunkIndex| !stripe.lost.contains(chunk);
        let helpers = helpers.iter().filter(may_help).map(|chunk| chunk.at());
        Self {
            stripe,
            asker,
            helpers: helpers.collect(),
            scheme,
            slice_bytes,
            equations: BTreeMap::new(),
        }
    }

    /// Delivers stored bytes of a chunk: from its node, or through the code if it is lost.
    ///
    /// # Errors
    /// [`PlanError::NotEnoughHelpers`].
    pub(crate) fn deliver(
        &mut self,
        b: &mut PlanBuilder,
        part: ChunkRange,
    ) -> Result<(), PlanError> {
        let (stripe, chunk) = (self.stripe, part.chunk);
        let is_lost = stripe.lost.contains(&chunk);
        if is_lost && !self.equations.contains_key(&chunk) {
            let equations = stripe.code.repair_equations(chunk.at(), &self.helpers)?;
            self.equations
                .extend(equations.into_iter().take(1).map(|first| (chunk, first)));
        }
        let row_bytes = stripe.geometry.sub_chunk_bytes();
        for range in stripe.geometry.split_rows(part.range) {
            let slices = Slices::contiguous(range, self.slice_bytes);
            let Some(equations) = self.equations.get(&chunk) else {
                let stored = b.read(chunk, slices);
                let value = b.send(stored, self.asker);
                b.deliver(chunk, slices, value);
                continue;
            };
            let row = range.offset / row_bytes;
            let lost = LostRow {
                equations,
                output: 0,
                row: row as usize,
                in_row: slices.at(range.offset % row_bytes),
            };
            for piece in (descriptor(self.scheme).planner)(b, stripe, &lost, self.asker) {
                let offset = row * row_bytes + piece.in_row.offset;
                b.deliver(chunk, piece.in_row.at(offset), piece.value);
            }
        }
        Ok(())
    }
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
