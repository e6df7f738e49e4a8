//! Maps of extents in layers. A file has a map of its own. When a snapshot or a clone is made, the map becomes one that
//! both files share, and each gets an empty map above it; so this takes a few rows whatever the file's size. A change
//! of a file changes its own map only, except that a shared stripe which leaves the file is exchanged for a copy in
//! the map that has it.
//!
//! A map ends when no map is above it. If only one is left above it, that one takes it in, some rows at a time. The
//! stripes that it takes in are not updated in place, as before: a client may read them under the layout of a file that
//! is removed, and would get bytes that were written to another file.

use crate::displaced::discard;
use crate::error::MetaError;
use crate::extents::{find, rows_from};
use crate::kv::{KeyValue, WriteTxn};
use crate::layers::{layers, merge_if_alone, put_above};
use crate::map_records::{Extent, MapRecord};
use crate::meta::Meta;
use crate::records::MapId;
use crate::schema::{Counter, EXTENTS, FILES, MAPS, MAPS_ABOVE, MERGES};

impl<K: KeyValue> Meta<K> {
    /// Moves at most `limit` rows of maps into those above them, and makes stripes that no file has any more garbage.
    /// Returns whether there are more.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn merge_maps(&self, limit: usize) -> Result<bool, MetaError> {
        self.work_at_first(&MERGES, |txn, map| merge_some(txn, map, limit))
    }
}

/// Moves rows of the map below one into it.
fn merge_some(txn: &mut dyn WriteTxn, map: MapId, limit: usize) -> Result<(), MetaError> {
    let Some(record) = MAPS.get(txn, &map)? else {
        return Err(MAPS.contradiction(&map, "it is to take in a map and has none below it"));
    };
    let rows = rows_from(txn, record.below, 0, limit)?;
    let has_more = rows.len() == limit;
    let below = layers(txn, record.below)?;
    let (mut moved_count, mut ended_count) = (0, 0);
    for (offset, row) in rows {
        match EXTENTS.get(txn, &(map, offset))? {
            None => {
                moved_count += u64::from(row.is_some());
                EXTENTS.put(txn, &(map, offset), &row)?;
            }
            Some(present) => {
                if let Some(Extent { stripe, .. }) = row {
                    discard(txn, stripe)?;
                    ended_count += 1;
                }
                // It has hidden this row alone.
                if present.is_none() && find(txn, &below[1..], offset)?.is_none() {
                    EXTENTS.delete(txn, &(map, offset))?;
                }
            }
        }
        EXTENTS.delete(txn, &(record.below, offset))?;
    }
    Counter::StripeCount.lower(txn, ended_count)?;
    if let Some(file) = record.file {
        let mut row = FILES.get(txn, &file)?.ok_or(MetaError::FileGone(file))?;
        let shared_count = row.shared_stripe_count;
        row.shared_stripe_count = FILES.recount(&file, shared_count, (0, moved_count))?;
        FILES.put(txn, &file, &row)?;
    }
    if has_more {
        return Ok(());
    }
    end_merge(txn, map, record)
}

/// Ends a map whose rows the only one above it has taken in.
fn end_merge(txn: &mut dyn WriteTxn, map: MapId, record: MapRecord) -> Result<(), MetaError> {
    let MapRecord { below, file } = record;
    MERGES.delete(txn, &map)?;
    MAPS_ABOVE.delete(txn, &(below, map))?;
    let Some(lower) = MAPS.get(txn, &below)? else {
        MAPS.delete(txn, &map)?;
        return Ok(());
    };
    MAPS.delete(txn, &below)?;
    MAPS_ABOVE.delete(txn, &(lower.below, below))?;
    let below = lower.below;
    put_above(txn, map, MapRecord { below, file })?;
    // The ended one may have been the only one above that.
    MERGES.delete(txn, &record.below)?;
    merge_if_alone(txn, below).map(drop)
}
