//! From a file's byte addresses to its stripes: pure arithmetic over the layout.
//!
//! A file's segments fill in order: each but the last holds the pool's full stripe; the last one's
//! stripe may be smaller, and its data bytes behind the end of the file are zeros.

use crate::ClientError;
use gabion_layout::{ByteRange, Geometry};
use gabion_meta::PoolSpec;
use gabion_plan::Keepings;
use gabion_planner::update;
use gabion_protocol::message::FileLayout;

/// A piece of a file that lies in one stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// Which of the file's stripes, from 0.
    pub(crate) stripe_at: usize,
    /// Bytes of the stripe's data.
    pub(crate) range: ByteRange,
    /// Where the piece starts in the file.
    pub(crate) file_offset: u64,
}

/// Cuts a range of a file at the borders of its stripes, in order.
///
/// # Panics
/// When a full stripe has no bytes, which [`Geometry`] excludes.
pub(crate) fn extents(full_stripe_bytes: u64, range: ByteRange) -> Vec<Extent> {
    assert!(full_stripe_bytes > 0, "a stripe has at least one byte");
    let mut extents = Vec::new();
    let mut at = range.offset;
    while at < range.end() {
        let stripe_at = at / full_stripe_bytes;
        let start = stripe_at * full_stripe_bytes;
        let end = range.end().min(start.saturating_add(full_stripe_bytes));
        extents.push(Extent {
            stripe_at: stripe_at as usize,
            range: ByteRange::new(at - start, end - at),
            file_offset: at,
        });
        at = end;
    }
    extents
}

/// How the chunks of a stripe with chunks of `chunk_bytes` keep records in a pool.
pub(crate) fn keepings(spec: &PoolSpec, chunk_bytes: u64) -> Keepings {
    update::keepings(spec.update, spec.reserve, chunk_bytes)
}

/// The shape of a stripe with chunks of `chunk_bytes` in a pool.
///
/// # Errors
/// [`ClientError::Broken`] when there is no such shape: the coordinator checked it.
pub(crate) fn geometry(spec: &PoolSpec, chunk_bytes: u64) -> Result<Geometry, ClientError> {
    Geometry::new(spec.k, spec.m, spec.sub_chunks, chunk_bytes)
        .map_err(|error| ClientError::Broken(error.to_string()))
}

/// Whether a layout can be trusted to hold all of its file; it comes from another process.
///
/// # Errors
/// [`ClientError::Broken`] with what does not fit.
pub(crate) fn check_layout(layout: &FileLayout) -> Result<(), ClientError> {
    let name = &layout.file.name;
    let spec = &layout.pool.spec;
    let full = geometry(spec, spec.chunk_bytes)?.stripe_bytes();
    let size_bytes = layout.file.size_bytes;
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
            full in 1u64..5000, offset in 0u64..100_000, length in 0u64..100_000,
        ) {
            let mut at = offset;
            let mut last = None;
            for extent in extents(full, ByteRange::new(offset, length)) {
                prop_assert!(!extent.range.is_empty() && extent.range.end() <= full);
                prop_assert_eq!(extent.file_offset, at);
                prop_assert_eq!(extent.stripe_at as u64 * full + extent.range.offset, at);
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
