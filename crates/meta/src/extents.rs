//! Extents: which stripes hold a file's bytes, by offset. No row grows with its file.
//!
//! The extents of a file are those of its own map, and those of the maps below it that no map above them covers
//! (`maps.rs`).

use crate::error::MetaError;
use crate::kv::{ReadTxn, WriteTxn};
use crate::layers::layers;
use crate::map_records::Extent;
use crate::pools::pool;
use crate::records::MapId;
use crate::replacement_records::Displaced;
use crate::schema::EXTENTS;
use crate::table::Span;
use gabion_layout::{ByteRange, StripeId, StripeRecord};
use std::collections::BTreeMap;

/// Least rows of a map that are read at once: some of them may hide others.
const PAGE_ROWS: usize = 256;
/// Rows that hide others before the search goes on in larger steps.
const HIDDEN_COUNT: usize = 16;
/// Bytes of a file that the first of these covers.
const STEP_BYTES: u64 = 64 << 20;

/// An extent and its offset in its file, in bytes.
pub(crate) type Placed = (u64, Extent);

/// An extent of a file and its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Its offset in bytes.
    pub(crate) offset: u64,
    /// It.
    pub(crate) extent: Extent,
    /// The map that has it.
    pub(crate) map: MapId,
}

/// A part of the rows of several maps.
struct Page {
    found: Vec<Found>,
    /// The offset behind which rows may follow.
    next: Option<u64>,
}

/// All extents of a file, in the order of their offsets.
pub(crate) fn extents(txn: &dyn ReadTxn, map: MapId) -> Result<Vec<Found>, MetaError> {
    extents_from(txn, map, 0, usize::MAX)
}

/// At most `limit` of those that begin at `first` or behind it.
pub(crate) fn extents_from(
    txn: &dyn ReadTxn,
    map: MapId,
    first: u64,
    limit: usize,
) -> Result<Vec<Found>, MetaError> {
    visible(txn, &layers(txn, map)?, (first, None), limit)
}

/// Those that begin within a range.
pub(crate) fn extents_within(
    txn: &dyn ReadTxn,
    map: MapId,
    range: ByteRange,
) -> Result<Vec<Found>, MetaError> {
    let range = (range.offset, Some(range.end()));
    visible(txn, &layers(txn, map)?, range, usize::MAX)
}

/// The offsets of the last extent that begins before a range, and of the first one behind it.
pub(crate) fn neighbours(
    txn: &dyn ReadTxn,
    map: MapId,
    range: ByteRange,
) -> Result<(Option<u64>, Option<u64>), MetaError> {
    let layers = layers(txn, map)?;
    let before = last_before(txn, &layers, range.offset)?;
    let behind = visible(txn, &layers, (range.end(), None), 1)?;
    Ok((before, behind.first().map(|found| found.offset)))
}

/// The extent at an offset, as the first of these maps has it.
pub(crate) fn find(
    txn: &dyn ReadTxn,
    layers: &[MapId],
    offset: u64,
) -> Result<Option<Found>, MetaError> {
    for &map in layers {
        if let Some(row) = EXTENTS.get(txn, &(map, offset))? {
            return Ok(row.map(|extent| Found {
                offset,
                extent,
                map,
            }));
        }
    }
    Ok(None)
}

/// The map in which a stripe has this place in a file.
///
/// # Errors
/// [`MetaError::UnknownStripe`].
pub(crate) fn map_of(
    txn: &dyn ReadTxn,
    layers: &[MapId],
    offset: u64,
    stripe: StripeId,
) -> Result<MapId, MetaError> {
    let found = find(txn, layers, offset)?.filter(|found| found.extent.stripe == stripe);
    let found = found.ok_or(MetaError::UnknownStripe(stripe))?;
    Ok(found.map)
}

/// At most `limit` rows of one map, from an offset on.
pub(crate) fn rows_from(
    txn: &dyn ReadTxn,
    map: MapId,
    first: u64,
    limit: usize,
) -> Result<Vec<(u64, Option<Extent>)>, MetaError> {
    let rows = EXTENTS.scan(txn, &span(map, first, None), limit)?;
    let rows = rows.into_iter();
    Ok(rows.map(|((_, offset), row)| (offset, row)).collect())
}

/// The extents of one map, in the order of their offsets.
pub(crate) fn own_extents(txn: &dyn ReadTxn, map: MapId) -> Result<Vec<Placed>, MetaError> {
    let rows = rows_from(txn, map, 0, usize::MAX)?.into_iter();
    Ok(rows
        .filter_map(|(offset, row)| Some((offset, row?)))
        .collect())
}

/// Takes the extent at an offset out of a file, whose own map is the first of these. The maps below keep theirs.
pub(crate) fn take_out(
    txn: &mut dyn WriteTxn,
    layers: &[MapId],
    offset: u64,
) -> Result<(), MetaError> {
    let (&own, below) = layers.split_first().expect("a file has a map");
    if find(txn, below, offset)?.is_some() {
        EXTENTS.put(txn, &(own, offset), &None)
    } else {
        EXTENTS.delete(txn, &(own, offset))
    }
}

fn span(map: MapId, first: u64, end: Option<u64>) -> Span {
    let end = end.map_or((MapId(map.0.saturating_add(1)), 0), |end| (map, end));
    EXTENTS.between(&(map, first), &end)
}

/// At most `limit` extents of a file with these maps, from the uppermost to the lowest.
fn visible(
    txn: &dyn ReadTxn,
    layers: &[MapId],
    (first, end): (u64, Option<u64>),
    limit: usize,
) -> Result<Vec<Found>, MetaError> {
    let (mut all, mut next) = (Vec::new(), Some(first));
    // A map without others below hides nothing.
    let rows = if layers.len() > 1 {
        limit.max(PAGE_ROWS)
    } else {
        limit
    };
    while let Some(first) = next
        && all.len() < limit
    {
        let page = page(txn, layers, (first, end), rows)?;
        all.extend(page.found);
        next = page.next;
    }
    all.truncate(limit);
    Ok(all)
}

/// Extents from `first` on, up to the offset up to which `limit` rows of each map reach.
fn page(
    txn: &dyn ReadTxn,
    layers: &[MapId],
    (first, end): (u64, Option<u64>),
    limit: usize,
) -> Result<Page, MetaError> {
    let mut rows: BTreeMap<u64, (MapId, Option<Extent>)> = BTreeMap::new();
    let mut next: Option<u64> = None;
    for &map in layers {
        let own = EXTENTS.scan(txn, &span(map, first, end), limit)?;
        if own.len() == limit
            && let Some(((_, last), _)) = own.last()
        {
            let behind = last.saturating_add(1);
            next = Some(next.map_or(behind, |next| next.min(behind)));
        }
        for ((_, offset), row) in own {
            // An upper map covers a lower one.
            rows.entry(offset).or_insert((map, row));
        }
    }
    if let Some(next) = next {
        rows.split_off(&next);
    }
    let found = rows.into_iter().filter_map(|(offset, (map, row))| {
        row.map(|extent| Found {
            offset,
            extent,
            map,
        })
    });
    Ok(Page {
        found: found.collect(),
        next,
    })
}

fn last_before(
    txn: &dyn ReadTxn,
    layers: &[MapId],
    mut end: u64,
) -> Result<Option<u64>, MetaError> {
    for _ in 0..HIDDEN_COUNT {
        let mut last: Option<(u64, bool)> = None;
        for &map in layers {
            let span = EXTENTS.between(&(map, 0), &(map, end));
            if let Some(((_, offset), row)) = EXTENTS.last(txn, &span)?
                && last.is_none_or(|(known, _)| known < offset)
            {
                last = Some((offset, row.is_some()));
            }
        }
        match last {
            None => return Ok(None),
            Some((offset, true)) => return Ok(Some(offset)),
            Some((hidden, false)) => end = hidden,
        }
    }
    let mut step_bytes = STEP_BYTES;
    while end > 0 {
        let start = end.saturating_sub(step_bytes);
        let found = visible(txn, layers, (start, Some(end)), usize::MAX)?;
        if let Some(last) = found.last() {
            return Ok(Some(last.offset));
        }
        (end, step_bytes) = (start, step_bytes.saturating_mul(2));
    }
    Ok(None)
}

/// Gives a map stripes of one pool for its bytes from `offset` on, one behind the other. Returns the end.
pub(crate) fn insert(
    txn: &mut dyn WriteTxn,
    map: MapId,
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
        EXTENTS.put(txn, &(map, offset), &Some(extent))?;
        offset = offset.saturating_add(length_bytes);
    }
    Ok(offset)
}

/// The extents of the displaced stripes, each with its position among all of the file, whose map has none below it. The
/// stripes are in the file's order and unique.
///
/// # Errors
/// [`MetaError::UnknownStripe`] for one that is not the file's or out of order.
pub(crate) fn displaced_extents(
    txn: &dyn ReadTxn,
    map: MapId,
    displaced: &[Displaced],
) -> Result<Vec<(usize, Placed)>, MetaError> {
    let all = own_extents(txn, map)?.into_iter().enumerate();
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
