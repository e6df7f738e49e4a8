//! Extents: which stripes hold a file's bytes, by offset. No row grows with its file.

use crate::error::MetaError;
use crate::kv::{ReadTxn, WriteTxn};
use crate::pools::pool;
use crate::records::{Displaced, Extent, PutId};
use crate::schema::EXTENTS;
use crate::table::Span;
use gabion_layout::{ByteRange, StripeId, StripeRecord};
use std::collections::BTreeMap;

/// An extent and its offset in its file, in bytes.
pub(crate) type Placed = (u64, Extent);

/// All extents of a file, in the order of their offsets.
pub(crate) fn extents(txn: &dyn ReadTxn, file: PutId) -> Result<Vec<Placed>, MetaError> {
    extents_from(txn, file, 0, usize::MAX)
}

/// At most `limit` of those that begin at `first` or behind it.
pub(crate) fn extents_from(
    txn: &dyn ReadTxn,
    file: PutId,
    first: u64,
    limit: usize,
) -> Result<Vec<Placed>, MetaError> {
    scan(txn, &from(file, first), limit)
}

/// Those that begin within a range.
pub(crate) fn extents_within(
    txn: &dyn ReadTxn,
    file: PutId,
    range: ByteRange,
) -> Result<Vec<Placed>, MetaError> {
    let span = EXTENTS.between(&(file, range.offset), &(file, range.end()));
    scan(txn, &span, usize::MAX)
}

/// The offsets of the last extent that begins before a range, and of the first one behind it.
pub(crate) fn neighbours(
    txn: &dyn ReadTxn,
    file: PutId,
    range: ByteRange,
) -> Result<(Option<u64>, Option<u64>), MetaError> {
    let span = EXTENTS.between(&(file, 0), &(file, range.offset));
    let before = EXTENTS.last(txn, &span)?.map(|((_, offset), _)| offset);
    let behind = scan(txn, &from(file, range.end()), 1)?;
    Ok((before, behind.first().map(|&(offset, _)| offset)))
}

fn from(file: PutId, first: u64) -> Span {
    EXTENTS.between(&(file, first), &(PutId(file.0.saturating_add(1)), 0))
}

fn scan(txn: &dyn ReadTxn, span: &Span, limit: usize) -> Result<Vec<Placed>, MetaError> {
    let rows = EXTENTS.scan(txn, span, limit)?.into_iter();
    Ok(rows.map(|((_, offset), extent)| (offset, extent)).collect())
}

/// Checks that a stripe has this place in a file.
///
/// # Errors
/// [`MetaError::UnknownStripe`].
pub(crate) fn extent_at(
    txn: &dyn ReadTxn,
    file: PutId,
    offset: u64,
    stripe: StripeId,
) -> Result<(), MetaError> {
    match EXTENTS.get(txn, &(file, offset))? {
        Some(extent) if extent.stripe == stripe => Ok(()),
        _ => Err(MetaError::UnknownStripe(stripe)),
    }
}

/// Gives a file stripes of one pool for its bytes from `offset` on, one behind the other. Returns the end.
pub(crate) fn insert(
    txn: &mut dyn WriteTxn,
    file: PutId,
    mut offset: u64,
    stripes: &[StripeRecord],
) -> Result<u64, MetaError> {
    let Some(first) = stripes.first() else {
        return Ok(offset);
    };
    let spec = pool(txn, first.pool)?.spec;
    for stripe in stripes {
        let length_bytes = spec.data_bytes(stripe.chunk_bytes);
        let extent = Extent {
            stripe: stripe.id,
            length_bytes,
        };
        EXTENTS.put(txn, &(file, offset), &extent)?;
        offset = offset.saturating_add(length_bytes);
    }
    Ok(offset)
}

/// The extents of the displaced stripes, each with its position among all of the file. The stripes are in
/// the file's order and unique.
///
/// # Errors
/// [`MetaError::UnknownStripe`] for one that is not the file's or out of order.
pub(crate) fn displaced_extents(
    txn: &dyn ReadTxn,
    file: PutId,
    displaced: &[Displaced],
) -> Result<Vec<(usize, Placed)>, MetaError> {
    let all = extents(txn, file)?.into_iter().enumerate();
    let all: BTreeMap<StripeId, (usize, Placed)> = all
        .map(|(at, placed)| (placed.1.stripe, (at, placed)))
        .collect();
    let mut found: Vec<(usize, Placed)> = Vec::with_capacity(displaced.len());
    for old in displaced {
        let here = all.get(&old.stripe).copied();
        let next = here.filter(|(at, _)| found.last().is_none_or(|(last, _)| last < at));
        found.push(next.ok_or(MetaError::UnknownStripe(old.stripe))?);
    }
    Ok(found)
}

/// Capacity of a stripe for data, in bytes.
pub(crate) fn data_bytes(txn: &dyn ReadTxn, stripe: &StripeRecord) -> Result<u64, MetaError> {
    Ok(pool(txn, stripe.pool)?.spec.data_bytes(stripe.chunk_bytes))
}
