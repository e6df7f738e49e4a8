//! PARIX, as CAU (section 5.1) and `RackCU` (section V-A) describe it: parity nodes log data, not deltas. The first
//! update of bytes sends the old bytes with the new ones, later updates send only the new ones, and at a commit each
//! parity node computes its delta from these bytes. An update reads no parity, and old data only once; cross-rack bytes
//! are those of the update by delta, and once more for each first update.

use super::appending::Appending;
use super::descriptor::{Descriptor, Traffic, UpdatePlanner};
use super::flow::followers;
use super::piece::{Cell, Piece, check_ranges, check_shape, pieces};
use super::waiting::Waiting;
use crate::{PlanError, Stripe};
use gabion_codec::Code;
use gabion_layout::{
    AppendSpec, ByteRange, ChunkIndex, ChunkRange, Keeping, Slices, Topology, UpdateScheme,
};
use gabion_plan::{Goal, Keepings, Log, Logged, Plan, PlanBuilder};

/// The scheme of pools. A commit's deltas are applied in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parix;

/// The scheme as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: UpdateScheme::Parix,
    help: "parity nodes log data, and parity is updated at a commit",
    paper: "CAU section 5.1",
    planner: &Parix,
    traffic: Traffic::Originals,
};

impl UpdatePlanner for Parix {
    fn keepings(&self, _: u64) -> Keepings {
        Keepings {
            data: Keeping::InPlace,
            parity: Keeping::InPlace,
        }
    }

    fn appending(&self) -> Option<&dyn Appending> {
        Some(self)
    }
}

impl Appending for Parix {
    /// Nodes drop what a commit has taken in, so the first update of bytes after one sends old bytes
    /// again. Waiting updates were sent with their originals.
    fn append(
        &self,
        stripe: &Stripe<'_>,
        _: &Topology,
        ranges: &[ChunkRange],
        (waiting, _): (&Waiting, &AppendSpec),
        slice_bytes: u64,
    ) -> Result<Plan, PlanError> {
        append(stripe, ranges, &waiting.ranges(), slice_bytes)
    }

    fn commit(
        &self,
        stripe: &Stripe<'_>,
        _: &Topology,
        waiting: &Waiting,
        slice_bytes: u64,
    ) -> Result<Plan, PlanError> {
        commit(stripe, &waiting.ranges(), slice_bytes)
    }

    fn keepers(
        &self,
        stripe: &Stripe<'_>,
        _: &Topology,
        data: ChunkIndex,
        _: &AppendSpec,
    ) -> Result<Vec<ChunkIndex>, PlanError> {
        let rows = (0..stripe.geometry.sub_chunks()).map(|row| Cell { chunk: data, row });
        let mut chunks: Vec<ChunkIndex> = rows.flat_map(|cell| followers(stripe, cell)).collect();
        chunks.sort_unstable();
        chunks.dedup();
        Ok(chunks)
    }

    fn is_by_rack(&self) -> bool {
        false
    }

    /// Every parity node has what the data nodes have, so any one that is left is enough.
    fn survives(&self, code: &Code, _: &AppendSpec) -> usize {
        code.failures_survived()
    }
}

/// The plan of an update: new bytes, whose inputs are at the data nodes, go to their journals and to
/// every parity node that depends on them. With them go the old ones of those bytes that `known` does
/// not name: what parity nodes have originals of already.
///
/// # Errors
/// [`PlanError::BadRanges`] for ranges that make no update, [`PlanError::NeedsChunk`] when a chunk is
/// lost.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, StripeId, Topology};
/// use gabion_plan::{Cost, check};
/// use gabion_planner::{Stripe, placement, update::parix};
///
/// let code: Code = "rs(2,1)".parse().unwrap();
/// let topology = Topology::uniform(3, 1);
/// let placement = placement::rotate(&topology, 0, code.n(), 1).unwrap();
/// let geometry = Geometry::new(2, 1, 1, 4096).unwrap();
/// let stripe = Stripe { id: StripeId(1), code: &code, geometry, placement: &placement, lost: &[] };
/// let part = ChunkRange { chunk: ChunkIndex(0), range: ByteRange::new(0, 1000) };
///
/// let bytes = |known: &[ChunkRange]| {
///     let plan = parix::append(&stripe, &[part], known, 512).unwrap();
///     check(&plan, &code).unwrap();
///     Cost::of(&plan, &topology).cross_rack_bytes
/// };
/// assert_eq!((bytes(&[]), bytes(&[part])), (2000, 1000));
/// ```
pub fn append(
    stripe: &Stripe<'_>,
    ranges: &[ChunkRange],
    known: &[ChunkRange],
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    check_ranges(stripe, ranges)?;
    let mut b = stripe.builder();
    let mut copies = Vec::new();
    for part in ranges {
        for range in stripe.geometry.split_rows(part.range) {
            for (range, is_known) in split_known(part.chunk, range, known) {
                let part = ChunkRange {
                    chunk: part.chunk,
                    range,
                };
                let slices = Slices::contiguous(range, slice_bytes);
                send_data(&mut b, stripe, part, slices, is_known, &mut copies);
            }
        }
    }
    Ok(b.finish(Goal::Append {
        ranges: ranges.to_vec(),
        copies,
    }))
}

/// Sends bytes of one row that are all known or all new to the parity nodes.
fn send_data(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    part: ChunkRange,
    slices: Slices,
    is_known: bool,
    copies: &mut Vec<Logged>,
) {
    let new = b.input(stripe.node_of(part.chunk), part.chunk, slices);
    let mut sent = vec![(Log::Replica, new)];
    if !is_known {
        sent.push((Log::Original, b.read(part.chunk, slices)));
    }
    b.append(Log::Journal, part.chunk, slices, new);
    for parity in followers(stripe, cell_of(stripe, part)) {
        let node = stripe.node_of(parity);
        for &(log, value) in &sent {
            let there = b.send(value, node);
            b.append(log, part.chunk, slices, there);
            copies.push(Logged { node, log, part });
        }
    }
}

/// The plan by which parity follows all updates of `ranges` since the last commit: each parity node
/// makes its delta from the originals and the newest data in its own logs, and each data node takes in
/// the records of its journal. Nothing is sent. The newest bytes are the originals from then on. Lost chunks
/// are left out: a parity node needs no data node for its part.
///
/// # Errors
/// [`PlanError::BadRanges`] for ranges that make no update.
pub fn commit(
    stripe: &Stripe<'_>,
    ranges: &[ChunkRange],
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    check_shape(stripe, ranges)?;
    let is_there = |chunk: &ChunkIndex| !stripe.lost.contains(chunk);
    let mut b = stripe.builder();
    for part in ranges.iter().filter(|part| is_there(&part.chunk)) {
        for range in stripe.geometry.split_rows(part.range) {
            let slices = Slices::contiguous(range, slice_bytes);
            let node = stripe.node_of(part.chunk);
            let new = b.recall(node, Log::Journal, part.chunk, slices);
            b.append(Log::Journal, part.chunk, slices, new);
        }
    }
    for piece in pieces(stripe.geometry, ranges) {
        for parity in stripe.geometry.parity_chunks().filter(is_there) {
            for row in 0..stripe.geometry.sub_chunks() {
                commit_row(&mut b, stripe, &piece, (parity, row), slice_bytes);
            }
        }
    }
    Ok(b.finish(Goal::Commit {
        ranges: ranges.to_vec(),
        logged: logged(stripe, ranges),
    }))
}

fn commit_row(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    piece: &Piece,
    (parity, row): (ChunkIndex, usize),
    slice_bytes: u64,
) {
    let node = stripe.node_of(parity);
    let mut terms = Vec::with_capacity(2 * piece.cells.len());
    for cell in &piece.cells {
        let coefficient = stripe
            .code
            .coefficient(parity.at(), row, cell.chunk.at(), cell.row);
        if coefficient != 0 {
            let slices = piece.slices(stripe.geometry, cell.row, slice_bytes);
            for log in [Log::Replica, Log::Original] {
                terms.push((coefficient, b.recall(node, log, cell.chunk, slices)));
            }
        }
    }
    if !terms.is_empty() {
        let delta = b.combine(node, &terms);
        let slices = piece.slices(stripe.geometry, row, slice_bytes);
        b.append(Log::ParitySum, parity, slices, delta);
    }
}

/// Returns the updated ranges in the logs of nodes whose chunks are left.
fn logged(stripe: &Stripe<'_>, ranges: &[ChunkRange]) -> Vec<Logged> {
    let is_there = |chunk: &ChunkIndex| !stripe.lost.contains(chunk);
    let mut logged = Vec::new();
    for &part in ranges.iter().filter(|part| is_there(&part.chunk)) {
        let (node, log) = (stripe.node_of(part.chunk), Log::Journal);
        logged.push(Logged { node, log, part });
    }
    for part in ranges {
        for range in stripe.geometry.split_rows(part.range) {
            let part = ChunkRange {
                chunk: part.chunk,
                range,
            };
            let nodes = followers(stripe, cell_of(stripe, part)).into_iter();
            for node in nodes.filter(is_there).map(|parity| stripe.node_of(parity)) {
                let keep = |log| Logged { node, log, part };
                logged.extend([Log::Replica, Log::Original].map(keep));
            }
        }
    }
    logged
}

/// The row in which a range lies that straddles none.
fn cell_of(stripe: &Stripe<'_>, part: ChunkRange) -> Cell {
    Cell {
        chunk: part.chunk,
        row: (part.range.offset / stripe.geometry.sub_chunk_bytes()) as usize,
    }
}

/// Cuts a range where `known` begins or ends, and says of each part whether it is known.
fn split_known(
    chunk: ChunkIndex,
    range: ByteRange,
    known: &[ChunkRange],
) -> Vec<(ByteRange, bool)> {
    let known: Vec<ByteRange> = known
        .iter()
        .filter(|part| part.chunk == chunk)
        .filter_map(|part| part.range.intersect(range))
        .collect();
    let mut borders = vec![range.offset, range.end()];
    borders.extend(known.iter().flat_map(|part| [part.offset, part.end()]));
    borders.sort_unstable();
    borders.dedup();
    let parts = borders.windows(2).map(|pair| {
        let part = ByteRange::new(pair[0], pair[1] - pair[0]);
        let is_known = known.iter().any(|known| known.intersect(part).is_some());
        (part, is_known)
    });
    parts.collect()
}
