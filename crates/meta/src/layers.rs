//! The order of maps of extents: which map is below which, and the end of maps that have none above them. See
//! `maps.rs`.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::map_records::MapRecord;
use crate::meta::Meta;
use crate::records::MapId;
use crate::schema::{MAPS, MAPS_ABOVE, MERGES, REMOVED};
use crate::table::Table;

/// Most maps of a file: a look-up reads rows of each.
pub(crate) const LAYERS_MAX: usize = 512;

impl<K: KeyValue> Meta<K> {
    /// Works at the first map of a queue, in one transaction. Returns whether the queue has a map afterwards.
    pub(crate) fn work_at_first(
        &self,
        queue: &Table<MapId, ()>,
        work: impl Fn(&mut dyn WriteTxn, MapId) -> Result<(), MetaError>,
    ) -> Result<bool, MetaError> {
        let first = |txn: &dyn ReadTxn| -> Result<Option<MapId>, MetaError> {
            let rows = queue.scan(txn, &queue.all(), 1)?;
            Ok(rows.first().map(|&(map, ())| map))
        };
        if self.store.read(first)?.is_none() {
            return Ok(false);
        }
        self.change(|txn| {
            let Some(map) = first(txn)? else {
                return Ok(false);
            };
            work(txn, map)?;
            Ok(first(txn)?.is_some())
        })
    }
}

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
    if merge_if_alone(txn, below)? {
        return Ok(());
    }
    REMOVED.put(txn, &below, &())
}

/// Lets the only map above one take it in, unless that is about to end. Returns whether any map is above it.
pub(crate) fn merge_if_alone(txn: &mut dyn WriteTxn, below: MapId) -> Result<bool, MetaError> {
    let above = maps_above(txn, below)?;
    if let [last] = above.as_slice()
        && REMOVED.get(txn, last)?.is_none()
    {
        MERGES.put(txn, last, &())?;
    }
    Ok(!above.is_empty())
}

/// One or two of the maps directly above one.
fn maps_above(txn: &dyn ReadTxn, below: MapId) -> Result<Vec<MapId>, MetaError> {
    let next = MapId(below.0.saturating_add(1));
    let span = MAPS_ABOVE.between(&(below, MapId(0)), &(next, MapId(0)));
    let rows = MAPS_ABOVE.scan(txn, &span, 2)?;
    Ok(rows.into_iter().map(|((_, above), ())| above).collect())
}

/// Notes that a map is not a file's own any more.
pub(crate) fn disown(txn: &mut dyn WriteTxn, map: MapId) -> Result<(), MetaError> {
    let Some(mut record) = MAPS.get(txn, &map)? else {
        return Ok(());
    };
    record.file = None;
    MAPS.put(txn, &map, &record)
}

/// Removes a file's own map: its stripes become garbage later, some at a time.
pub(crate) fn release(txn: &mut dyn WriteTxn, map: MapId) -> Result<(), MetaError> {
    disown(txn, map)?;
    MERGES.delete(txn, &map)?;
    REMOVED.put(txn, &map, &())
}
