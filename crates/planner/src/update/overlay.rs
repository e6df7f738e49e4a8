//! Overlay reads: reads of a stripe with lost chunks in an append phase, without a commit.
//!
//! The newest bytes of a data chunk are its bytes as of the last commit, and in their place the bytes that were
//! appended since. Parity and the chunks' stored bytes determine the former whatever was appended, because both are as
//! of the last commit. The logs have the latter: the data node's own, and those of the nodes with copies. So where a
//! log has new bytes, the read recalls them; all other bytes of a lost chunk go through the code. The method is ours.
//!
//! The plan depends only on which logs have which bytes ([`super::Waiting`]), so this file serves all schemes with
//! append phases: PARIX recalls from any parity node, CAU from nodes with interim replicas.

use super::waiting::newest_of;
use crate::repair::Scheme;
use crate::repair::degraded_read::{StoredBytes, check_readable};
use crate::{PlanError, Stripe};
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId, Slices};
use gabion_plan::{Goal, Log, Logged, Plan, PlanBuilder};
use std::collections::BTreeMap;

/// The receiver of a read, and the way to it.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The node that receives the bytes.
    pub asker: NodeId,
    /// Chunks that may help to reconstruct others, the preferred ones first.
    pub helpers: &'a [ChunkIndex],
    /// The scheme of reconstruction.
    pub scheme: Scheme,
    /// The largest slice.
    pub slice_bytes: u64,
}

/// Plans a read of the newest bytes of `ranges`. `logged` says what all logs have of the stripe since the last commit,
/// those of lost nodes included. All reads of chunks must be as of the last commit.
///
/// # Errors
/// As [`crate::repair::read`]; [`PlanError::NoCopy`] when all logs with some of the bytes are lost;
/// [`PlanError::MovedLog`] when a log is not where the stripe's layout has it.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, StripeId, Topology};
/// use gabion_plan::check;
/// use gabion_planner::repair::Scheme;
/// use gabion_planner::update::{Reader, Waiting, overlay_read, parix};
/// use gabion_planner::{Stripe, placement};
///
/// let code: Code = "rs(4,2)".parse().unwrap();
/// let placement = placement::rotate(&Topology::uniform(3, 2), 0, code.n(), 2).unwrap();
/// let geometry = Geometry::new(4, 2, 1, 4096).unwrap();
/// let mut stripe = Stripe { id: StripeId(1), code: &code, geometry, placement: &placement, lost: &[] };
/// let part = |chunk, length| ChunkRange { chunk: ChunkIndex(chunk), range: ByteRange::new(0, length) };
/// let mut waiting = Waiting::default();
/// waiting.note_plan(&parix::append(&stripe, &[part(0, 1000), part(2, 500)], &[], 512).unwrap());
///
/// stripe.lost = &[ChunkIndex(0), ChunkIndex(1)];
/// let helpers = [2, 3, 4, 5].map(ChunkIndex);
/// let reader = Reader { asker: NodeId::CLIENT, helpers: &helpers, scheme: Scheme::Pipeline, slice_bytes: 512 };
/// let plan = overlay_read(&stripe, &[part(0, 4096), part(1, 4096)], &waiting.logged(), reader).unwrap();
/// check(&plan, &code).unwrap();
/// ```
pub fn overlay_read(
    stripe: &Stripe<'_>,
    ranges: &[ChunkRange],
    logged: &[Logged],
    reader: Reader<'_>,
) -> Result<Plan, PlanError> {
    check_readable(stripe, ranges)?;
    let logged = newest_of(logged, ranges);
    let mut b = stripe.builder();
    let how = (reader.helpers, reader.scheme);
    let mut stored = StoredBytes::new(stripe, reader.asker, how, reader.slice_bytes);
    for &part in ranges {
        let logs = Logs::of(stripe, part.chunk, &logged)?;
        for (range, place) in logs.pieces(part, reader.helpers)? {
            let piece = ChunkRange {
                chunk: part.chunk,
                range,
            };
            match place {
                Place::Stored => stored.deliver(&mut b, piece)?,
                Place::Log(node, log) => recall(&mut b, stripe, piece, (node, log), reader),
            }
        }
    }
    Ok(b.finish(Goal::ReadAppended {
        ranges: ranges.to_vec(),
        logged,
    }))
}

/// The place of the newest bytes of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The stripe as of the last commit.
    Stored,
    /// A log that is left.
    Log(NodeId, Log),
}

/// The logs with new bytes of one data chunk.
struct Logs<'a> {
    stripe: &'a Stripe<'a>,
    /// By node and log, in order and without overlaps.
    ranges: BTreeMap<(NodeId, Log), Vec<ByteRange>>,
}

impl<'a> Logs<'a> {
    /// # Errors
    /// [`PlanError::MovedLog`].
    fn of(stripe: &'a Stripe<'a>, chunk: ChunkIndex, logged: &[Logged]) -> Result<Self, PlanError> {
        let mut ranges: BTreeMap<(NodeId, Log), Vec<ByteRange>> = BTreeMap::new();
        for kept in logged.iter().filter(|kept| kept.part.chunk == chunk) {
            let is_own = stripe.node_of(chunk) == kept.node;
            if is_own != (kept.log == Log::Journal) || !stripe.placement.contains(&kept.node) {
                return Err(PlanError::MovedLog(chunk));
            }
            let ranges = ranges.entry((kept.node, kept.log)).or_default();
            ranges.push(kept.part.range);
        }
        for ranges in ranges.values_mut() {
            *ranges = ByteRange::union(std::mem::take(ranges));
        }
        Ok(Self { stripe, ranges })
    }

    /// Cuts a range of the chunk by the places of its newest bytes.
    ///
    /// # Errors
    /// [`PlanError::NoCopy`].
    fn pieces(
        &self,
        part: ChunkRange,
        helpers: &[ChunkIndex],
    ) -> Result<Vec<(ByteRange, Place)>, PlanError> {
        let all = self.ranges.values().flatten();
        let inner = all.filter_map(|range| range.intersect(part.range));
        let mut borders: Vec<u64> = inner
            .flat_map(|range| [range.offset, range.end()])
            .collect();
        borders.extend([part.range.offset, part.range.end()]);
        borders.sort_unstable();
        borders.dedup();
        let mut pieces: Vec<(ByteRange, Place)> = Vec::with_capacity(borders.len());
        for pair in borders.windows(2) {
            let range = ByteRange::new(pair[0], pair[1] - pair[0]);
            let place = self.place_of(range, helpers);
            let place = place.ok_or(PlanError::NoCopy(part.chunk))?;
            match pieces.last_mut() {
                Some((last, same)) if *same == place => last.length += range.length,
                _ => pieces.push((range, place)),
            }
        }
        Ok(pieces)
    }

    /// The place of the newest bytes of a range without borders. None if only lost logs have them.
    fn place_of(&self, range: ByteRange, helpers: &[ChunkIndex]) -> Option<Place> {
        let has = |ranges: &Vec<ByteRange>| {
            let next = ranges.partition_point(|kept| kept.offset <= range.offset);
            next > 0 && ranges[next - 1].end() > range.offset
        };
        let holders = self.ranges.iter().filter(|(_, ranges)| has(ranges));
        let holders: Vec<(NodeId, Log)> = holders.map(|(&place, _)| place).collect();
        let left = holders.iter().filter_map(|&(node, log)| {
            let nearness = self.nearness(node, helpers)?;
            Some(((log == Log::Journal, nearness), Place::Log(node, log)))
        });
        match left.max_by_key(|&(preference, _)| preference) {
            Some((_, place)) => Some(place),
            None if holders.is_empty() => Some(Place::Stored),
            None => None,
        }
    }

    /// The place of a node among the helpers, of which the nearest come last: 0 for any other. None if the node is
    /// lost.
    fn nearness(&self, node: NodeId, helpers: &[ChunkIndex]) -> Option<usize> {
        let held = self.stripe.placement.iter().position(|&at| at == node)?;
        let held = ChunkIndex::new(held);
        let near = helpers.iter().position(|&helper| helper == held);
        (!self.stripe.lost.contains(&held)).then_some(near.map_or(0, |at| at + 1))
    }
}

fn recall(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    piece: ChunkRange,
    (node, log): (NodeId, Log),
    reader: Reader<'_>,
) {
    for range in stripe.geometry.split_rows(piece.range) {
        let slices = Slices::contiguous(range, reader.slice_bytes);
        let there = b.recall(node, log, piece.chunk, slices);
        let value = b.send(there, reader.asker);
        b.deliver(piece.chunk, slices, value);
    }
}
