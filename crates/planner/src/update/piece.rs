//! Pieces of an update: ranges in which the same rows change at every byte.
//!
//! Deltas can be summed only where they lie at the same place of their rows. So the ranges of an update are cut, in
//! positions within a row, wherever one of them begins or ends. On each piece, linear algebra alone determines the
//! transfers: some data rows, *cells*, change, and some parity rows follow. Updates of whole chunks are one piece.

use crate::{PlanError, Stripe};
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, Slices};

/// A row of a data chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Cell {
    pub(super) chunk: ChunkIndex,
    pub(super) row: usize,
}

/// Bytes of a row, and the data rows in which all of them change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// Positions within the row.
    pub(super) in_row: ByteRange,
    /// In order, at least one.
    pub(super) cells: Vec<Cell>,
}

impl Piece {
    /// The piece's bytes in a row of a chunk, as positions in the chunk.
    pub(super) fn slices(&self, geometry: Geometry, row: usize, slice_bytes: u64) -> Slices {
        let offset = row as u64 * geometry.sub_chunk_bytes() + self.in_row.offset;
        Slices::contiguous(ByteRange::new(offset, self.in_row.length), slice_bytes)
    }
}

/// The pieces of an update, by position.
pub(super) fn pieces(geometry: Geometry, ranges: &[ChunkRange]) -> Vec<Piece> {
    let row_bytes = geometry.sub_chunk_bytes();
    let mut changes: Vec<(Cell, ByteRange)> = Vec::with_capacity(ranges.len());
    for part in ranges {
        for range in geometry.split_rows(part.range) {
            let cell = Cell {
                chunk: part.chunk,
                row: (range.offset / row_bytes) as usize,
            };
            let in_row = ByteRange::new(range.offset % row_bytes, range.length);
            changes.push((cell, in_row));
        }
    }
    changes.sort_unstable();
    let mut borders: Vec<u64> = changes
        .iter()
        .flat_map(|(_, in_row)| [in_row.offset, in_row.end()])
        .collect();
    borders.sort_unstable();
    borders.dedup();
    let cut = borders.windows(2).map(|pair| {
        let in_row = ByteRange::new(pair[0], pair[1] - pair[0]);
        let here = changes
            .iter()
            .filter(|(_, range)| range.intersect(in_row).is_some());
        let cells = here.map(|&(cell, _)| cell).collect();
        Piece { in_row, cells }
    });
    cut.filter(|piece| !piece.cells.is_empty()).collect()
}

/// Refuses ranges that make no update, and stripes with lost chunks: schemes that let parity wait, or
/// bring deltas together on the way, need all that they touch.
pub(super) fn check_ranges(stripe: &Stripe<'_>, ranges: &[ChunkRange]) -> Result<(), PlanError> {
    check_shape(stripe, ranges)?;
    check_whole(stripe)
}

/// Refuses ranges that are empty, overlap, leave their chunk or are of no data chunk.
pub(super) fn check_shape(stripe: &Stripe<'_>, ranges: &[ChunkRange]) -> Result<(), PlanError> {
    let g = stripe.geometry;
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let leaves = |part: &ChunkRange| {
        part.range.is_empty() || part.range.end() > g.chunk_bytes() || !g.is_data(part.chunk)
    };
    let overlaps = |pair: &[ChunkRange]| {
        pair[0].chunk == pair[1].chunk && pair[0].range.end() > pair[1].range.offset
    };
    if sorted.is_empty() || sorted.iter().any(leaves) || sorted.windows(2).any(overlaps) {
        return Err(PlanError::BadRanges);
    }
    Ok(())
}

/// Refuses stripes with lost chunks.
pub(super) fn check_whole(stripe: &Stripe<'_>) -> Result<(), PlanError> {
    match stripe.lost.first() {
        Some(&chunk) => Err(PlanError::NeedsChunk(chunk)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(chunk: u8, offset: u64, length: u64) -> ChunkRange {
        ChunkRange {
            chunk: ChunkIndex(chunk),
            range: ByteRange::new(offset, length),
        }
    }

    fn cell(chunk: u8, row: usize) -> Cell {
        Cell {
            chunk: ChunkIndex(chunk),
            row,
        }
    }

    #[test]
    fn pieces_begin_and_end_where_a_range_does() {
        let geometry = Geometry::new(4, 2, 1, 100).unwrap();
        let found = pieces(
            geometry,
            &[part(2, 30, 40), part(0, 0, 50), part(1, 90, 10)],
        );
        let expected = [
            (0, 30, vec![cell(0, 0)]),
            (30, 20, vec![cell(0, 0), cell(2, 0)]),
            (50, 20, vec![cell(2, 0)]),
            (90, 10, vec![cell(1, 0)]),
        ]
        .map(|(offset, length, cells)| Piece {
            in_row: ByteRange::new(offset, length),
            cells,
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn whole_chunks_of_an_array_code_are_one_piece() {
        let geometry = Geometry::new(2, 2, 2, 20).unwrap();
        let found = pieces(geometry, &[part(0, 0, 20), part(1, 0, 20)]);
        let cells = vec![cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)];
        let in_row = ByteRange::new(0, 10);
        assert_eq!(found, [Piece { in_row, cells }]);
    }
}
