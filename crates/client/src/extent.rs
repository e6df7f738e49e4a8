//! The mapping of a file's byte addresses to its stripes: pure arithmetic over the layout.
//!
//! A file is divided into segments as long as a full stripe of its pool. A segment is a hole, whose bytes are
//! zero, or has one extent from its beginning on, whose stripe may be smaller; the rest of the segment is a hole
//! then. Bytes of a stripe behind the end of the file are zero. A segment with replicated blocks has a stripe for
//! each of them, in order; such files have no holes. A file without extents may have inline bytes at its beginning.

use crate::error::ClientError;
use bytes::Bytes;
use gabion_layout::{ByteRange, Geometry, StripeRecord};
use gabion_meta::PoolSpec;
use gabion_plan::Keepings;
use gabion_planner::update;
use gabion_protocol::message::FileLayout;

/// A piece of a file within one stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// The offset of the stripe in the file.
    pub(crate) start: u64,
    /// Bytes of the stripe's data.
    pub(crate) range: ByteRange,
    /// The start of the piece in the file.
    pub(crate) file_offset: u64,
}

impl Extent {
    /// The piece as a range of the file.
    pub(crate) const fn in_file(&self) -> ByteRange {
        ByteRange::new(self.file_offset, self.range.length)
    }
}

/// A piece of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// Within one stripe.
    Stored(Extent),
    /// The inline bytes.
    Inline(Bytes),
    /// Within no stripe: these bytes of the file are zero.
    Hole(ByteRange),
}

impl Piece {
    /// Its bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Stored(extent) => extent.range.length,
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Hole(range) => range.length,
        }
    }

    /// The extent, if this is stored in a stripe.
    pub(crate) const fn extent(&self) -> Option<Extent> {
        match self {
            Self::Stored(extent) => Some(*extent),
            Self::Inline(_) | Self::Hole(_) => None,
        }
    }
}

/// Splits a range of a file at the borders of its stripes, in order. `spans` has the range of each stripe in
/// the file, in order.
pub(crate) fn pieces(spans: &[ByteRange], range: ByteRange) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = range.offset;
    let first = spans.partition_point(|span| span.end() <= range.offset);
    for span in &spans[first..] {
        let Some(piece) = span.intersect(range) else {
            break;
        };
        if at < piece.offset {
            pieces.push(Piece::Hole(ByteRange::new(at, piece.offset - at)));
        }
        pieces.push(Piece::Stored(Extent {
            start: span.offset,
            range: ByteRange::new(piece.offset - span.offset, piece.length),
            file_offset: piece.offset,
        }));
        at = piece.end();
    }
    if at < range.end() {
        pieces.push(Piece::Hole(ByteRange::new(at, range.end() - at)));
    }
    pieces
}

/// Those pieces of a range that are stored.
pub(crate) fn extents(spans: &[ByteRange], range: ByteRange) -> Vec<Extent> {
    let pieces = pieces(spans, range);
    pieces.iter().filter_map(Piece::extent).collect()
}

/// The range of each stripe of a layout in the file.
///
/// # Errors
/// [`ClientError::Broken`] when a stripe's geometry is invalid, stripes overlap, or there is a hole where none may be.
pub(crate) fn spans(layout: &FileLayout) -> Result<Vec<ByteRange>, ClientError> {
    let (name, window) = (&layout.file.name, layout.window);
    let is_whole = layout.offsets.len() == layout.stripes.len()
        && layout.before.is_none_or(|before| before < window.offset)
        && layout.behind.is_none_or(|behind| window.end() <= behind);
    if !is_whole {
        let sentence = format!("the layout of {name} is inconsistent");
        return Err(ClientError::Broken(sentence));
    }
    let mut spans: Vec<ByteRange> = Vec::with_capacity(layout.stripes.len());
    for (stripe, &offset) in layout.stripes.iter().zip(&layout.offsets) {
        let pool = layout.pool_of(stripe);
        let shape = geometry(&pool.spec, stripe)?;
        // Where blocks are replicated at first, each stripe follows the one before it.
        let has_holes = layout.encoded.is_none();
        let before = spans.last().map_or(window.offset, |last| last.end());
        let is_behind = before == offset || has_holes && before < offset;
        let end = offset.checked_add(shape.stripe_bytes());
        let fits = window.offset <= offset && end.is_some_and(|end| end <= window.end());
        if !is_behind || !fits || pool.id != stripe.pool {
            return Err(ClientError::Broken(format!(
                "{} is not part of {name}",
                stripe.id
            )));
        }
        spans.push(ByteRange::new(offset, shape.stripe_bytes()));
    }
    let stored_end = spans.last().map_or(window.offset, |last| last.end());
    if layout.encoded.is_some() && stored_end < layout.file.size_bytes.min(window.end()) {
        let sentence = format!("the layout of {name} ends before the file");
        return Err(ClientError::Broken(sentence));
    }
    Ok(spans)
}

/// The keepings of a stripe with chunks of `chunk_bytes` in a pool.
pub(crate) fn keepings(spec: &PoolSpec, chunk_bytes: u64) -> Keepings {
    update::keepings(spec.update, spec.reserve, chunk_bytes)
}

/// The geometry of a pool's stripe.
///
/// # Errors
/// [`ClientError::Broken`] when it is invalid, or the stripe has another number of nodes or larger chunks: the
/// coordinator has checked it.
pub(crate) fn geometry(spec: &PoolSpec, stripe: &StripeRecord) -> Result<Geometry, ClientError> {
    let shape = Geometry::new(spec.k, spec.m, spec.sub_chunks, stripe.chunk_bytes)
        .map_err(|error| ClientError::Broken(error.to_string()))?;
    if stripe.nodes.len() != shape.n() || stripe.chunk_bytes > spec.chunk_bytes {
        return Err(ClientError::Broken(format!(
            "{} does not fit its pool, {}",
            stripe.id, spec.name
        )));
    }
    Ok(shape)
}

/// The range, if it lies within a file of `size_bytes`.
///
/// # Errors
/// [`ClientError::Usage`] with both sizes.
pub(crate) fn within_file(
    name: &str,
    size_bytes: u64,
    range: ByteRange,
) -> Result<ByteRange, ClientError> {
    let end = range.offset.checked_add(range.length);
    if end.is_some_and(|end| end <= size_bytes) {
        return Ok(range);
    }
    Err(ClientError::Usage(format!(
        "{name} has {size_bytes} bytes; {} bytes from offset {} reach past its end",
        range.length, range.offset
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_tile_the_range_and_stay_in_their_stripes(
            sizes in proptest::collection::vec((1u64..5000, 0u64..3), 1..40), offset: u64, length: u64,
        ) {
            let mut end = 0;
            let spans: Vec<ByteRange> = sizes.iter().map(|(size, gap)| {
                let start = end + gap / 2 * 100;
                end = start + size;
                ByteRange::new(start, *size)
            }).collect();
            let total = end + 50;
            let offset = offset % total;
            let length = length % (total - offset + 1);
            let mut at = offset;
            for piece in pieces(&spans, ByteRange::new(offset, length)) {
                let range = match piece {
                    Piece::Hole(range) => {
                        prop_assert!(spans.iter().all(|span| span.intersect(range).is_none()));
                        range
                    }
                    Piece::Stored(extent) => {
                        let span = spans.iter().find(|span| span.offset == extent.start);
                        prop_assert!(extent.range.end() <= span.expect("its stripe").length);
                        prop_assert_eq!(extent.start + extent.range.offset, extent.file_offset);
                        ByteRange::new(extent.file_offset, extent.range.length)
                    }
                    Piece::Inline(_) => panic!("there are no inline bytes"),
                };
                prop_assert!(!range.is_empty());
                prop_assert_eq!(range.offset, at);
                at = range.end();
            }
            prop_assert_eq!(at, offset + length);
        }
    }

    #[test]
    fn ranges_past_the_end_are_the_users_mistake() {
        let check = |offset, length| within_file("f", 100, ByteRange::new(offset, length));
        assert!(check(0, 100).is_ok() && check(100, 0).is_ok() && check(99, 1).is_ok());
        for (offset, length) in [(0, 101), (100, 1), (101, 0), (u64::MAX, 2)] {
            let error = check(offset, length).unwrap_err();
            assert!(error.is_usage(), "{offset}+{length}: {error}");
        }
    }
}
