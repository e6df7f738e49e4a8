//! The order of maps of extents: which map is below which, and the end of maps that have none above them. See `maps.rs`.

use crate::error::MetaError;
use crate::kv::{ReadTxn, WriteTxn};
use crate::map_records::MapRecord;
use crate::records::MapId;
use crate::schema::{MAPS, MAPS_ABOVE, MERGES, REMOVED};

/// Most maps of a file: a look-up reads rows of each.
pub(crate) const LAYERS_MAX: usize = 512;

/// A map and those below it, from the uppermost to the lowest.
pub(crate) fn layers(txn: &dyn ReadTxn, map: MapId) -> Result<Vec<MapId>, MetaError> {
    let mut layers = vec![map];
    let mut upper = map;
    while let Some(record) = MAPS.get(txn, &upper)? {
        upper = record.below;
        layers.push(upper);
        if layers.len() > LAYERS_MAX {
            return Err(MAPS.contradiction(&map, "it has too many maps below it"));
        }
    }
    Ok(layers)
}

/// Puts a map above another one.
pub(crate) fn put_above(
    txn: &mut dyn WriteTxn,
    map: MapId,
    record: MapRecord,
) -> Result<(), MetaError> {
    MAPS.put(txn, &map, &record)?;
    MAPS_ABOVE.put(txn, &(record.below, map), &())
}

/// Takes a map away that has no rows and no maps above it. The one below it may end, or be taken in by the only one
/// that is still above it.
pub(crate) fn forget_map(txn: &mut dyn WriteTxn, map: MapId) -> Result<(), MetaError> {
    MERGES.delete(txn, &map)?;
    let Some(MapRecord { below, .. }) = MAPS.get(txn, &map)? else {
        return Ok(());
    };
    MAPS.delete(txn, &map)?;
    MAPS_ABOVE.delete(txn, &(below, map))?;
    match maps_above(txn, below, 2)?.as_slice() {
        [] => REMOVED.put(txn, &below, &()),
        [last] if REMOVED.get(txn, last)?.is_none() => MERGES.put(txn, last, &()),
        _ => Ok(()),
    }
}

/// At most `limit` of the maps directly above one.
pub(crate) fn maps_above(
    txn: &dyn ReadTxn,
    below: MapId,
    limit: usize,
) -> Result<Vec<MapId>, MetaError> {
    let next = MapId(below.0.saturating_add(1));
    let span = MAPS_ABOVE.between(&(below, MapId(0)), &(next, MapId(0)));
    let rows = MAPS_ABOVE.scan(txn, &span, limit)?;
    Ok(rows.into_iter().map(|((_, above), ())| above).collect())
}

/// Removes a file's own map: its stripes become garbage later, some at a time.
pub(crate) fn release(txn: &mut dyn WriteTxn, map: MapId) -> Result<(), MetaError> {
    if let Some(record) = MAPS.get(txn, &map)? {
        MAPS.put(
            txn,
            &map,
            &MapRecord {
                file: None,
                ..record
            },
        )?;
    }
    MERGES.delete(txn, &map)?;
    REMOVED.put(txn, &map, &())
}
