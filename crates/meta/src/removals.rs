//! Removed files: a removal takes the file's record and name in one transaction, and the stripes of its map later, some
//! at a time, so that no transaction grows with its file. Until then a stripe is live and of no file. So are the
//! stripes of a map that was shared by files which are all removed.

use crate::displaced::discard;
use crate::entering::entered_maps;
use crate::error::MetaError;
use crate::extents::{own_extents, rows_from};
use crate::kv::{KeyValue, WriteTxn};
use crate::layers::forget_map;
use crate::meta::Meta;
use crate::records::MapId;
use crate::schema::{Counter, EXTENTS, MAPS, REMOVED};
use gabion_layout::StripeId;
use std::collections::BTreeSet;

impl<K: KeyValue> Meta<K> {
    /// Makes at most `limit` stripes of a removed map garbage. Returns whether there are more, of any.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn discard_removed(&self, limit: usize) -> Result<bool, MetaError> {
        self.work_at_first(&REMOVED, |txn, map| {
            if !discard_some(txn, map, limit)? {
                REMOVED.delete(txn, &map)?;
                forget_map(txn, map)?;
            }
            Ok(())
        })
    }

    /// Live stripes that may be in no file: those of removed maps, those of maps below others, and stored ones of open
    /// puts.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn hidden_stripes(&self) -> Result<BTreeSet<StripeId>, MetaError> {
        self.store.read(|txn| {
            let mut stripes = BTreeSet::new();
            let removed = REMOVED.scan(txn, &REMOVED.all(), usize::MAX)?;
            let below = MAPS.scan(txn, &MAPS.all(), usize::MAX)?;
            let removed = removed.into_iter().map(|(map, ())| map);
            let below = below.into_iter().map(|(_, record)| record.below);
            let open = entered_maps(txn)?;
            let maps: BTreeSet<MapId> = removed.chain(below).chain(open).collect();
            for map in maps {
                let extents = own_extents(txn, map)?.into_iter();
                stripes.extend(extents.map(|(_, extent)| extent.stripe));
            }
            Ok(stripes)
        })
    }
}

/// Makes at most `limit` stripes of a map garbage. Returns whether it has more rows.
fn discard_some(txn: &mut dyn WriteTxn, map: MapId, limit: usize) -> Result<bool, MetaError> {
    let rows = rows_from(txn, map, 0, limit.saturating_add(1))?;
    let has_more = rows.len() > limit;
    let mut count = 0;
    for (offset, row) in rows.into_iter().take(limit) {
        if let Some(extent) = row {
            discard(txn, extent.stripe)?;
            count += 1;
        }
        EXTENTS.delete(txn, &(map, offset))?;
    }
    Counter::StripeCount.lower(txn, count)?;
    Ok(has_more)
}
