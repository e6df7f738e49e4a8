//! Removed files: a removal takes the file's record and name in one transaction, and its stripes later, some at a
//! time, so that no transaction grows with its file. Until then a stripe is live and of no file.

use crate::displaced::discard;
use crate::error::MetaError;
use crate::extents::{extents, extents_from};
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::records::PutId;
use crate::schema::{Counter, EXTENTS, REMOVED};
use gabion_layout::StripeId;
use std::collections::BTreeSet;

impl<K: KeyValue> Meta<K> {
    /// Makes at most `limit` stripes of a removed file garbage. Returns whether there are more, of any removed file.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn discard_removed(&self, limit: usize) -> Result<bool, MetaError> {
        if self.store.read(first_removed)?.is_none() {
            return Ok(false);
        }
        self.change(|txn| {
            let Some(file) = first_removed(txn)? else {
                return Ok(false);
            };
            if !discard_some(txn, file, limit)? {
                REMOVED.delete(txn, &file)?;
            }
            Ok(first_removed(txn)?.is_some())
        })
    }

    /// The stripes of removed files that are not garbage yet.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn removed_stripes(&self) -> Result<BTreeSet<StripeId>, MetaError> {
        self.store.read(|txn| {
            let mut stripes = BTreeSet::new();
            for (file, ()) in REMOVED.scan(txn, &REMOVED.all(), usize::MAX)? {
                let extents = extents(txn, file)?.into_iter();
                stripes.extend(extents.map(|(_, extent)| extent.stripe));
            }
            Ok(stripes)
        })
    }
}

fn first_removed(txn: &dyn ReadTxn) -> Result<Option<PutId>, MetaError> {
    let first = REMOVED.scan(txn, &REMOVED.all(), 1)?;
    Ok(first.first().map(|&(file, ())| file))
}

/// Makes at most `limit` stripes of a file garbage. Returns whether it has more.
fn discard_some(txn: &mut dyn WriteTxn, file: PutId, limit: usize) -> Result<bool, MetaError> {
    let extents = extents_from(txn, file, 0, limit.saturating_add(1))?;
    let has_more = extents.len() > limit;
    let mut count = 0;
    for (offset, extent) in extents.into_iter().take(limit) {
        discard(txn, extent.stripe)?;
        EXTENTS.delete(txn, &(file, offset))?;
        count += 1;
    }
    Counter::StripeCount.lower(txn, count)?;
    Ok(has_more)
}
