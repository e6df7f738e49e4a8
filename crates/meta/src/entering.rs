//! Stripes of an open put that its client has stored: they enter the map that the file will have, some at a time while
//! the others are stored. So no transaction grows with the file, and neither does the record of the put.
//!
//! Until the commit these stripes are live and of no file. Repairs keep them whole like any others. If the put is
//! aborted, its map is a removed one, and its stripes become garbage some at a time.

use crate::error::MetaError;
use crate::extents;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::pending::surviving_stripes;
use crate::records::{MapId, PutId, PutRecord, StripeRun};
use crate::schema::{Counter, PENDING, PLACED_ANEW, PUTS, STRIPES};
use crate::stripe_rows::{index_stripe, live_stripe};
use gabion_layout::{StripeId, StripeRecord};

impl<K: KeyValue> Meta<K> {
    /// At most `limit` stripes of an open put that have entered its map, in the order of the file, each with the
    /// offset of its bytes: those from the offset `first` on. A put that has ended has none.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn entered_stripes(
        &self,
        put: PutId,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, StripeRecord)>, MetaError> {
        self.store.read(|txn| {
            if PUTS.get(txn, &put)?.is_none() {
                return Ok(Vec::new());
            }
            let mut entered = Vec::new();
            for (offset, row) in extents::rows_from(txn, MapId(put.0), first, limit)? {
                if let Some(extent) = row {
                    entered.push((offset, live_stripe(txn, extent.stripe)?));
                }
            }
            Ok(entered)
        })
    }
}

/// Puts the first pending stripes of a put into its map, at most `limit`. The caller sets the put's row.
///
/// # Errors
/// [`MetaError::PutLost`].
pub(crate) fn enter(
    txn: &mut dyn WriteTxn,
    put: &mut PutRecord,
    limit: u64,
) -> Result<Vec<StripeRecord>, MetaError> {
    let mut first = put.clone();
    cut(&mut first.runs, limit);
    let stripes = surviving_stripes(txn, &first)?;
    for stripe in &stripes {
        PENDING.delete(txn, &stripe.id)?;
        STRIPES.put(txn, &stripe.id, stripe)?;
        index_stripe(txn, stripe)?;
    }
    forget_anew(txn, &first)?;
    let count = stripes.len() as u64;
    Counter::StripeCount.raise(txn, count)?;
    let map = MapId(put.id.0);
    put.entered_bytes = extents::insert(txn, map, put.entered_bytes, &stripes)?;
    put.entered_count = PUTS.recount(&put.id, put.entered_count, (count, 0))?;
    drop_first(&mut put.runs, count);
    Ok(stripes)
}

/// The maps of open puts with stored stripes.
pub(crate) fn entered_maps(txn: &dyn ReadTxn) -> Result<Vec<MapId>, MetaError> {
    let puts = PUTS.scan(txn, &PUTS.all(), usize::MAX)?.into_iter();
    let entered = puts.filter(|(_, record)| record.entered_count > 0);
    Ok(entered.map(|(put, _)| MapId(put.0)).collect())
}

/// A sentence for each open put that does not count its stored stripes, or has them not one behind the other.
pub(crate) fn contradictions(txn: &dyn ReadTxn) -> Result<Vec<String>, MetaError> {
    let mut faults = Vec::new();
    for (id, put) in PUTS.scan(txn, &PUTS.all(), usize::MAX)? {
        let (mut count, mut end) = (0, 0);
        for (offset, extent) in extents::own_extents(txn, MapId(id.0))? {
            if offset == end {
                count += 1;
                end = end.saturating_add(extent.length_bytes);
            }
        }
        let counted = (put.entered_count, put.entered_bytes);
        if counted != (count, end) {
            faults.push(format!(
                "{id} has stored {count} stripes, but counts {counted:?}"
            ));
        }
    }
    Ok(faults)
}

/// Shortens runs to their first `count` ids.
pub(crate) fn cut(runs: &mut Vec<StripeRun>, mut count: u64) {
    for run in runs.iter_mut() {
        run.count = run.count.min(count);
        count -= run.count;
    }
    runs.retain(|run| run.count > 0);
}

/// Takes the first `count` ids of runs away.
fn drop_first(runs: &mut Vec<StripeRun>, mut count: u64) {
    for run in runs.iter_mut() {
        let dropped = run.count.min(count);
        run.first = StripeId(run.first.0.saturating_add(dropped));
        run.count -= dropped;
        count -= dropped;
    }
    runs.retain(|run| run.count > 0);
}

/// Forgets which pending stripes of a put were placed again, when they enter its map or the put ends.
pub(crate) fn forget_anew(txn: &mut dyn WriteTxn, put: &PutRecord) -> Result<(), MetaError> {
    forget_anew_from(txn, put, 0)
}

/// The same for those behind the first `kept_count`.
pub(crate) fn forget_anew_from(
    txn: &mut dyn WriteTxn,
    put: &PutRecord,
    kept_count: usize,
) -> Result<(), MetaError> {
    let mut kept_count = kept_count as u64;
    for run in &put.runs {
        let skipped = kept_count.min(run.count);
        kept_count -= skipped;
        let first = StripeId(run.first.0.saturating_add(skipped));
        let span = PLACED_ANEW.between(&first, &run.end());
        for (first, _) in PLACED_ANEW.scan(txn, &span, usize::MAX)? {
            PLACED_ANEW.delete(txn, &first)?;
        }
    }
    Ok(())
}
