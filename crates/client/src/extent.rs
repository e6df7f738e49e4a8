//! The mapping of a file's byte addresses to its stripes: pure arithmetic over the layout.
//!
//! A file's segments fill in order: each but the last holds the pool's full stripe; the last one's
//! stripe may be smaller, and its data bytes behind the end of the file are zeros. A segment with
//! replicated blocks has a stripe for each of them, in order.

use crate::error::ClientError;
use gabion_layout::{ByteRange, Geometry, StripeRecord};
use gabion_meta::PoolSpec;
use gabion_plan::Keepings;
use gabion_planner::update;
use gabion_protocol::message::FileLayout;

/// A piece of a file within one stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// Index of the stripe in the file.
    pub(crate) stripe_at: usize,
    /// Bytes of the stripe's data.
    pub(crate) range: ByteRange,
    /// The start of the piece in the file.
    pub(crate) file_offset: u64,
}

/// Splits a range of a file at the borders of its stripes, in order. `starts` has the offset of
/// each stripe in the file, and then the end of the last one.
pub(crate) fn extents(starts: &[u64], range: ByteRange) -> Vec<Extent> {
    let mut extents = Vec::new();
    let first = starts.partition_point(|&start| start <= range.offset);
    for stripe_at in first.saturating_sub(1)..starts.len().saturating_sub(1) {
        let (start, end) = (starts[stripe_at], starts[stripe_at + 1]);
        let stripe = ByteRange::new(start, end - start);
        let Some(piece) = stripe.intersect(range) else {
            break;
        };
        extents.push(Extent {
            stripe_at,
            range: ByteRange::new(piece.offset - start, piece.length),
            file_offset: piece.offset,
        });
    }
    extents
}

/// The offset of each stripe of a layout in the file, and the end of the last one.
///
/// # Errors
/// [`ClientError::Broken`] when a stripe's geometry is invalid.
pub(crate) fn starts(layout: &FileLayout) -> Result<Vec<u64>, ClientError> {
    let mut starts = vec![0];
    let mut end = 0_u64;
    for stripe in &layout.stripes {
        let shape = geometry(&layout.pool_of(stripe).spec, stripe.chunk_bytes)?;
        end = end.saturating_add(shape.stripe_bytes());
        starts.push(end);
    }
    Ok(starts)
}

/// The keepings of a stripe with chunks of `chunk_bytes` in a pool.
pub(crate) fn keepings(spec: &PoolSpec, chunk_bytes: u64) -> Keepings {
    update::keepings(spec.update, spec.reserve, chunk_bytes)
}

/// The geometry of a stripe with chunks of `chunk_bytes` in a pool.
///
/// # Errors
/// [`ClientError::Broken`] when it is invalid: the coordinator has checked it.
pub(crate) fn geometry(spec: &PoolSpec, chunk_bytes: u64) -> Result<Geometry, ClientError> {
    Geometry::new(spec.k, spec.m, spec.sub_chunks, chunk_bytes)
        .map_err(|error| ClientError::Broken(error.to_string()))
}

/// Checks that a layout, which comes from another process, holds all of its file.
///
/// # Errors
/// [`ClientError::Broken`] with the contradiction.
pub(crate) fn check_layout(layout: &FileLayout) -> Result<(), ClientError> {
    let name = &layout.file.name;
    let spec = &layout.pool.spec;
    let size_bytes = layout.file.size_bytes;
    if layout.encoded.is_some() {
        return check_segments(layout);
    }
    let full = geometry(spec, spec.chunk_bytes)?.stripe_bytes();
    let expected_count = size_bytes.div_ceil(full);
    if layout.stripes.len() as u64 != expected_count {
        let found = layout.stripes.len();
        return Err(ClientError::Broken(format!(
            "{name} should have {expected_count} stripes and has {found}"
        )));
    }
    for (at, stripe) in layout.stripes.iter().enumerate() {
        let shape = geometry(spec, stripe.chunk_bytes)?;
        let wanted = full.min(size_bytes - at as u64 * full);
        if shape.stripe_bytes() < wanted || stripe.nodes.len() != shape.n() {
            return Err(ClientError::Broken(format!(
                "{} of {name} is too small for its part of the file",
                stripe.id
            )));
        }
    }
    Ok(())
}

/// Checks that the stripes of a file whose blocks are replicated at first hold all of it.
fn check_segments(layout: &FileLayout) -> Result<(), ClientError> {
    let name = &layout.file.name;
    let is_whole = |stripe: &StripeRecord| {
        let pool = layout.pool_of(stripe);
        pool.id == stripe.pool && stripe.nodes.len() == pool.spec.k + pool.spec.m
    };
    let has_room = starts(layout)?.last() >= Some(&layout.file.size_bytes);
    if has_room && layout.stripes.iter().all(is_whole) {
        return Ok(());
    }
    Err(ClientError::Broken(format!(
        "the stripes of {name} do not hold all of it"
    )))
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
        "{name} has {size_bytes} bytes; {} bytes from offset {} reach past its end, and a file \
         keeps the size that it was stored with",
        range.length, range.offset
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extents_tile_the_range_and_stay_in_their_stripes(
            sizes in proptest::collection::vec(1u64..5000, 1..40), offset: u64, length: u64,
        ) {
            let mut starts = vec![0];
            starts.extend(sizes.iter().scan(0, |end, size| {
                *end += size;
                Some(*end)
            }));
            let total: u64 = sizes.iter().sum();
            let offset = offset % total;
            let length = length % (total - offset + 1);
            let mut at = offset;
            let mut last = None;
            for extent in extents(&starts, ByteRange::new(offset, length)) {
                let size = sizes[extent.stripe_at];
                prop_assert!(!extent.range.is_empty() && extent.range.end() <= size);
                prop_assert_eq!(extent.file_offset, at);
                prop_assert_eq!(starts[extent.stripe_at] + extent.range.offset, at);
                prop_assert!(last < Some(extent.stripe_at));
                last = Some(extent.stripe_at);
                at += extent.range.length;
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
