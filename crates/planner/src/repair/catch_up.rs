//! Catching up: a chunk whose node was away has missed some updates. If the other nodes' logs still show the ranges of
//! these updates, only these ranges are repaired (`CodFS` section 3.2 keeps the deltas that make it possible). The
//! repair scheme is chosen as for whole chunks.

use super::descriptor::Scheme;
use super::lost_row::LostRow;
use super::scheme::descriptor;
use crate::{PlanError, Stripe};
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId, Slices};
use gabion_plan::{Goal, Plan};
use std::collections::BTreeMap;

/// The updates in a chunk's log after some point: ranges of that chunk, each with the data chunk from which the change
/// came. A range that is noted under a parity chunk may have changed for any data chunk's sake.
pub type Touched = Vec<(ChunkIndex, ByteRange)>;

/// The ranges of `chunk` that updates have touched of which the logs of other chunks tell, joined
/// and in order. For each data chunk that `chunk` depends on, one log that has all of its updates is
/// enough. None when there is none for some of them: then `chunk` must be repaired whole.
///
/// With sub-chunks, logs of parity chunks do not say which row of the data has changed, so all rows
/// of `chunk` count as touched where one may be.
pub fn missed(
    stripe: &Stripe<'_>,
    chunk: ChunkIndex,
    logs: &BTreeMap<ChunkIndex, Touched>,
) -> Option<Vec<ByteRange>> {
    let g = stripe.geometry;
    let depends_on = |on: ChunkIndex, chunk: ChunkIndex| {
        let follows = |row| {
            let mut rows = stripe.code.delta_rows(on.at(), row).into_iter();
            rows.any(|target| target.chunk == chunk.at())
        };
        chunk == on || (0..g.sub_chunks()).any(follows)
    };
    let row_bytes = g.sub_chunk_bytes();
    let mut in_rows: Vec<ByteRange> = Vec::new();
    for data in (0..g.k()).map(ChunkIndex::new) {
        if !depends_on(data, chunk) {
            continue;
        }
        let mut tells = logs.iter().filter(|&(&of, _)| depends_on(data, of));
        let (_, touched) = tells.next()?;
        let concerns = |&&(from, _): &&(ChunkIndex, ByteRange)| from == data || !g.is_data(from);
        for &(_, range) in touched.iter().filter(concerns) {
            let rows = g.split_rows(range).into_iter();
            in_rows.extend(rows.map(|r| ByteRange::new(r.offset % row_bytes, r.length)));
        }
    }
    let in_rows = ByteRange::union(in_rows);
    let at = |row: usize, range: &ByteRange| {
        ByteRange::new(row as u64 * row_bytes + range.offset, range.length)
    };
    let ranges = (0..g.sub_chunks()).flat_map(|row| in_rows.iter().map(move |r| at(row, r)));
    Some(ranges.collect())
}

/// Plans the repair of some ranges of a chunk that is lost for readers, at the node that has the
/// rest of it, in slices of at most `slice_bytes`. `helpers` as for [`super::repair`].
///
/// # Errors
/// [`PlanError::BadRanges`] for ranges that are empty or leave the chunk;
/// [`PlanError::NotEnoughHelpers`] when the chunks named do not determine it.
pub fn catch_up(
    stripe: &Stripe<'_>,
    chunk: ChunkIndex,
    node: NodeId,
    ranges: &[ByteRange],
    helpers: &[ChunkIndex],
    scheme: Scheme,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    let g = stripe.geometry;
    let helpers: Vec<usize> = helpers
        .iter()
        .filter(|c| !stripe.lost.contains(c) && **c != chunk)
        .map(|c| c.at())
        .collect();
    let candidates = stripe.code.repair_equations(chunk.at(), &helpers)?;
    let row_bytes = g.sub_chunk_bytes();
    let mut b = stripe.builder();
    for range in ranges {
        if range.is_empty() || range.end() > g.chunk_bytes() {
            return Err(PlanError::BadRanges);
        }
        for range in g.split_rows(*range) {
            let slices = Slices::contiguous(range, slice_bytes);
            let lost = LostRow {
                equations: &candidates[0],
                output: 0,
                row: (range.offset / row_bytes) as usize,
                in_row: slices.at(range.offset % row_bytes),
            };
            let row_at = lost.row as u64 * row_bytes;
            for part in (descriptor(scheme).planner)(&mut b, stripe, &lost, node) {
                b.write(
                    chunk,
                    part.in_row.at(row_at + part.in_row.offset),
                    part.value,
                );
            }
        }
    }
    let ranges = ranges.iter().map(|&range| ChunkRange { chunk, range });
    Ok(b.finish(Goal::CatchUp {
        node,
        ranges: ranges.collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_codec::Code;
    use gabion_layout::{Geometry, StripeId};

    /// Ranges that a log tells of: data chunk, offset and length.
    type Log<'a> = &'a [(u8, u64, u64)];

    /// Checks the ranges that chunk `chunk` has missed, of `code` with 100 bytes a row, by logs of (chunk, [(data,
    /// offset, length)]).
    #[track_caller]
    fn check(code: &str, chunk: u8, logs: &[(u8, Log<'_>)], expected: Option<&[(u64, u64)]>) {
        let code: Code = code.parse().unwrap();
        let w = code.sub_chunks();
        let placement: Vec<NodeId> = (0..code.n() as u32).map(NodeId).collect();
        let stripe = Stripe {
            id: StripeId(1),
            geometry: Geometry::new(code.k(), code.m(), w, 100 * w as u64).unwrap(),
            code: &code,
            placement: &placement,
            lost: &[ChunkIndex(chunk)],
        };
        let touched = |list: Log<'_>| -> Touched {
            let one = |&(data, offset, length)| (ChunkIndex(data), ByteRange::new(offset, length));
            list.iter().map(one).collect()
        };
        let logs = logs
            .iter()
            .map(|&(of, list)| (ChunkIndex(of), touched(list)));
        let expected = expected.map(|ranges| {
            let ranges = ranges
                .iter()
                .map(|&(offset, length)| ByteRange::new(offset, length));
            ranges.collect::<Vec<_>>()
        });
        assert_eq!(
            missed(&stripe, ChunkIndex(chunk), &logs.collect()),
            expected
        );
    }

    #[test]
    fn one_parity_tells_what_a_data_chunk_has_missed() {
        let log: &[(u8, u64, u64)] = &[(0, 0, 10), (1, 20, 10), (1, 28, 6)];
        check("rs(2,2)", 1, &[(2, log)], Some(&[(20, 14)]));
        check("rs(2,2)", 1, &[(0, &[(0, 0, 10)])], None);
    }

    #[test]
    fn a_parity_has_missed_what_touched_any_data_chunk() {
        let log: &[(u8, u64, u64)] = &[(0, 0, 10), (1, 20, 10)];
        check("rs(2,2)", 3, &[(2, log)], Some(&[(0, 10), (20, 10)]));
        check(
            "rs(2,2)",
            3,
            &[(0, &[(0, 5, 10)]), (1, &[])],
            Some(&[(5, 10)]),
        );
        check("rs(2,2)", 3, &[(0, &[(0, 5, 10)])], None);
    }

    #[test]
    fn what_a_parity_itself_caught_up_on_counts_for_all() {
        check("rs(2,2)", 0, &[(2, &[(2, 40, 2)])], Some(&[(40, 2)]));
    }

    #[test]
    fn a_local_parity_tells_of_its_group_alone() {
        // Chunks 0 and 1 have the local parity 4, 2 and 3 have 5; 6 is global.
        check("lrc(4,2,1)", 0, &[(5, &[(2, 0, 10)])], None);
        check("lrc(4,2,1)", 0, &[(4, &[(0, 1, 2)])], Some(&[(1, 2)]));
        check(
            "lrc(4,2,1)",
            4,
            &[(6, &[(0, 1, 2), (3, 50, 2)])],
            Some(&[(1, 2)]),
        );
    }

    #[test]
    fn with_rows_every_row_counts() {
        check(
            "rdp(2)",
            0,
            &[(2, &[(0, 110, 5)])],
            Some(&[(10, 5), (110, 5)]),
        );
    }
}
