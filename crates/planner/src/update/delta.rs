//! Update by delta: each data node sends the change of its chunk to every parity node, which
//! scales it and logs it. Copies of a replicated stripe get the new bytes instead. It is the
//! baseline of CAU (section 3.1) and of `RackCU` (section II-C): cross-rack bytes are one copy of
//! the delta for each parity node in another rack. `degraded.rs` plans updates of stripes with lost
//! chunks.

use super::degraded::{Substitute, check_left};
use crate::{PlanError, Stripe};
use gabion_codec::Family;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId, Slices, Topology};
use gabion_plan::{Goal, Log, Plan, PlanBuilder, ValueId};

/// Plans an update of `ranges` of data chunks, in slices of at most `slice_bytes`. Their new bytes
/// are at the chunks' nodes, and those of a lost chunk where the plan's [`gabion_plan::Step::Input`]
/// takes them. Lost chunks get no record; every parity chunk that is left follows.
///
/// # Errors
/// [`PlanError::BadRanges`] for ranges that are empty, overlap, leave their chunk or are of no data
/// chunk; [`PlanError::TooFewLeft`] when the stripe could lose data by losing one more chunk.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, StripeId, Topology};
/// use gabion_plan::{Cost, check};
/// use gabion_planner::{Stripe, placement, update};
///
/// let code: Code = "rs(6,3)".parse().unwrap();
/// let topology = Topology::uniform(3, 4);
/// let placement = placement::rotate(&topology, 0, code.n(), 3).unwrap();
/// let stripe = Stripe {
///     id: StripeId(1),
///     code: &code,
///     geometry: Geometry::new(6, 3, 1, 64 << 20).unwrap(),
///     placement: &placement,
///     lost: &[],
/// };
/// let range = ByteRange::new(8192, 4096);
/// let part = ChunkRange { chunk: ChunkIndex(0), range };
/// let plan = update::delta(&stripe, &topology, &[part], 32 << 10).unwrap();
/// check(&plan, &code).unwrap();
/// // All three parity chunks are in another rack, and each gets a copy of the delta.
/// assert_eq!(Cost::of(&plan, &topology).cross_rack_bytes, 3 * 4096);
/// ```
pub fn delta(
    stripe: &Stripe<'_>,
    topology: &Topology,
    ranges: &[ChunkRange],
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    check_ranges(stripe, ranges)?;
    check_left(stripe)?;
    let mut b = stripe.builder();
    if matches!(stripe.code.family(), Family::Replication { .. }) {
        copy_all(&mut b, stripe, topology, ranges, slice_bytes)?;
    } else {
        let given = |b: &mut PlanBuilder, at: NodeId, part: ChunkRange, slices| {
            Ok(b.input(at, part.chunk, slices))
        };
        change_all(&mut b, stripe, topology, ranges, slice_bytes, given)?;
    }
    Ok(b.finish(Goal::Update {
        ranges: ranges.to_vec(),
    }))
}

/// Plans the steps of an update of a replicated stripe: each copy that is left gets the new bytes as they are. So no
/// node reads old bytes, and a lost copy changes nothing for the others.
fn copy_all(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    topology: &Topology,
    ranges: &[ChunkRange],
    slice_bytes: u64,
) -> Result<(), PlanError> {
    for part in ranges {
        let at = if stripe.lost.contains(&part.chunk) {
            Substitute::of(stripe, part.chunk, topology)?.node
        } else {
            stripe.node_of(part.chunk)
        };
        let slices = Slices::contiguous(part.range, slice_bytes);
        let new = b.input(at, part.chunk, slices);
        for copy in stripe.available() {
            let node = stripe.node_of(copy);
            let there = if node == at { new } else { b.send(new, node) };
            b.append(Log::Journal, copy, slices, there);
        }
    }
    Ok(())
}

/// Plans the steps of an update of `ranges`, whose new bytes `new` brings to the node that acts for
/// their chunk.
pub(super) fn change_all(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    topology: &Topology,
    ranges: &[ChunkRange],
    slice_bytes: u64,
    new: impl Fn(&mut PlanBuilder, NodeId, ChunkRange, Slices) -> Result<ValueId, PlanError>,
) -> Result<(), PlanError> {
    for part in ranges {
        let is_lost = stripe.lost.contains(&part.chunk);
        let substitute = is_lost.then(|| Substitute::of(stripe, part.chunk, topology));
        let substitute = substitute.transpose()?;
        for range in stripe.geometry.split_rows(part.range) {
            let slices = Slices::contiguous(range, slice_bytes);
            let substitute = substitute.as_ref();
            let at = substitute.map_or_else(|| stripe.node_of(part.chunk), |s| s.node);
            let part = ChunkRange { range, ..*part };
            let new = new(b, at, part, slices)?;
            let delta = change(b, stripe, part, substitute, slices, new);
            spread(b, stripe, part.chunk, range, slices, delta);
        }
    }
    Ok(())
}

/// Plans the change of one range of one sub-chunk: its record, if the chunk is there, and the delta
/// at the node that acts for it.
fn change(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    ChunkRange { chunk, range }: ChunkRange,
    substitute: Option<&Substitute>,
    slices: Slices,
    new: ValueId,
) -> ValueId {
    if let Some(substitute) = substitute {
        let old = substitute.old_bytes(b, stripe, range, slices);
        return b.combine(substitute.node, &[(1, new), (1, old)]);
    }
    let node = stripe.node_of(chunk);
    let old = b.read(chunk, slices);
    let delta = b.combine(node, &[(1, new), (1, old)]);
    b.append(Log::Journal, chunk, slices, new);
    delta
}

/// Plans the way of a delta: to each parity node that is left once, and there to each of the parity
/// rows that it touches.
fn spread(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    chunk: ChunkIndex,
    range: ByteRange,
    slices: Slices,
    delta: ValueId,
) {
    let row_bytes = stripe.geometry.sub_chunk_bytes();
    let row = (range.offset / row_bytes) as usize;
    let mut sent = None;
    for target in stripe.code.delta_rows(chunk.at(), row) {
        let parity = ChunkIndex::new(target.chunk);
        if stripe.lost.contains(&parity) {
            continue;
        }
        let there = match sent {
            Some((to, value)) if to == parity => value,
            _ => b.send(delta, stripe.node_of(parity)),
        };
        sent = Some((parity, there));
        let scaled = b.combine(stripe.node_of(parity), &[(target.coefficient, there)]);
        let offset = target.row as u64 * row_bytes + range.offset % row_bytes;
        b.append(
            Log::Parity { data: chunk },
            parity,
            slices.at(offset),
            scaled,
        );
    }
}

fn check_ranges(stripe: &Stripe<'_>, ranges: &[ChunkRange]) -> Result<(), PlanError> {
    let g = stripe.geometry;
    for (at, part) in ranges.iter().enumerate() {
        let overlaps = ranges[..at]
            .iter()
            .any(|other| other.chunk == part.chunk && other.range.intersect(part.range).is_some());
        let leaves = part.range.is_empty() || part.range.end() > g.chunk_bytes();
        if overlaps || leaves || !g.is_data(part.chunk) {
            return Err(PlanError::BadRanges);
        }
    }
    if ranges.is_empty() {
        Err(PlanError::BadRanges)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_codec::Code;
    use gabion_layout::{Geometry, StripeId};
    use gabion_plan::{Cost, Step, check};

    /// Steps of an update of a stripe of three copies, one a rack, of which some are lost: reads, inputs and records.
    #[track_caller]
    fn check_copies(lost: &[ChunkIndex], input_at: NodeId, records_at: &[ChunkIndex]) {
        let code: Code = "rep(3)".parse().unwrap();
        let topology = Topology::uniform(3, 1);
        let placement = [0, 1, 2].map(NodeId);
        let stripe = Stripe {
            id: StripeId(1),
            code: &code,
            geometry: Geometry::new(1, 2, 1, 1 << 20).unwrap(),
            placement: &placement,
            lost,
        };
        let part = ChunkRange {
            chunk: ChunkIndex(0),
            range: ByteRange::new(8192, 4096),
        };
        let plan = delta(&stripe, &topology, &[part], 32 << 10).unwrap();
        check(&plan, &code).unwrap();
        let is_read = |step: &Step| matches!(step, Step::Read { .. } | Step::Combine { .. });
        assert!(!plan.steps.iter().any(is_read), "{lost:?}: old bytes");
        let inputs = plan.steps.iter().filter_map(|step| match step {
            Step::Input { node, .. } => Some(*node),
            _ => None,
        });
        assert_eq!(inputs.collect::<Vec<_>>(), [input_at], "{lost:?}");
        let records = plan.steps.iter().filter_map(|step| match step {
            Step::Append { log, chunk, .. } => Some((*log, *chunk)),
            _ => None,
        });
        let expected = records_at.iter().map(|&chunk| (Log::Journal, chunk));
        let expected: Vec<_> = expected.collect();
        assert_eq!(records.collect::<Vec<_>>(), expected, "{lost:?}");
        let sent_bytes = (records_at.len() as u64 - 1) * 4096;
        assert_eq!(Cost::of(&plan, &topology).cross_rack_bytes, sent_bytes);
    }

    #[test]
    fn copies_get_the_new_bytes_and_no_node_reads_old_ones() {
        let all = [0, 1, 2].map(ChunkIndex);
        check_copies(&[], NodeId(0), &all);
        check_copies(&all[2..], NodeId(0), &all[..2]);
        check_copies(&all[..1], NodeId(1), &all[1..]);
    }

    #[test]
    fn a_copy_that_is_left_out_is_found_by_the_check() {
        let code: Code = "rep(3)".parse().unwrap();
        let topology = Topology::uniform(3, 1);
        let placement = [0, 1, 2].map(NodeId);
        let stripe = Stripe {
            id: StripeId(1),
            code: &code,
            geometry: Geometry::new(1, 2, 1, 1 << 20).unwrap(),
            placement: &placement,
            lost: &[],
        };
        let part = ChunkRange {
            chunk: ChunkIndex(0),
            range: ByteRange::new(0, 4096),
        };
        let plan = delta(&stripe, &topology, &[part], 32 << 10).unwrap();
        for at in 0..plan.steps.len() {
            if matches!(plan.steps[at], Step::Append { .. }) {
                let mut torn = plan.clone();
                torn.steps.remove(at);
                assert!(check(&torn, &code).is_err(), "step {at}");
            }
        }
    }
}
