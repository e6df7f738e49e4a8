//! Stripes that have left a file without a successor, or by a truncation: until no node serves them, a reader with an
//! old layout may read them, so no other stripe may take their places, and no client may rely on their end.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::records::PutId;
use crate::schema::{DROPPED, GARBAGE, WITHDRAWN};
use gabion_layout::StripeId;

/// Stripes that a change looks at, of those that a file has lost.
const PAGE_COUNT: usize = 256;

impl<K: KeyValue> Meta<K> {
    /// Some of the stripes that a file has lost and that nodes may serve; none if there is none.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn served_dropped(&self, file: PutId) -> Result<Vec<StripeId>, MetaError> {
        self.store.read(|txn| {
            let mut served = Vec::new();
            for stripe in dropped(txn, file, usize::MAX)? {
                if may_be_served(txn, stripe)? {
                    served.push(stripe);
                }
                if served.len() == PAGE_COUNT {
                    break;
                }
            }
            Ok(served)
        })
    }
}

/// Whether nodes may serve a stripe that has left its file.
pub(crate) fn may_be_served(txn: &dyn ReadTxn, stripe: StripeId) -> Result<bool, MetaError> {
    Ok(GARBAGE.get(txn, &stripe)?.is_some() && WITHDRAWN.get(txn, &stripe)?.is_none())
}

/// Notes stripes that a file has lost.
pub(crate) fn note_dropped<'a>(
    txn: &mut dyn WriteTxn,
    file: PutId,
    stripes: impl Iterator<Item = &'a StripeId>,
) -> Result<(), MetaError> {
    for &stripe in stripes {
        DROPPED.put(txn, &(file, stripe), &())?;
    }
    Ok(())
}

/// Refuses while nodes may serve stripes that the file has lost; forgets those that none serves.
pub(crate) fn check_none_served(txn: &mut dyn WriteTxn, file: PutId) -> Result<(), MetaError> {
    for stripe in dropped(txn, file, usize::MAX)? {
        if may_be_served(txn, stripe)? {
            return Err(MetaError::StillServed(stripe));
        }
        DROPPED.delete(txn, &(file, stripe))?;
    }
    Ok(())
}

/// Forgets some of the stripes that a file has lost and that no node serves, so that they do not become many.
pub(crate) fn prune_dropped(txn: &mut dyn WriteTxn, file: PutId) -> Result<(), MetaError> {
    for stripe in dropped(txn, file, 2 * PAGE_COUNT)? {
        if !may_be_served(txn, stripe)? {
            DROPPED.delete(txn, &(file, stripe))?;
        }
    }
    Ok(())
}

/// Forgets which stripes a file has lost: it is being removed.
pub(crate) fn forget_dropped(txn: &mut dyn WriteTxn, file: PutId) -> Result<(), MetaError> {
    for stripe in dropped(txn, file, usize::MAX)? {
        DROPPED.delete(txn, &(file, stripe))?;
    }
    Ok(())
}

fn dropped(txn: &dyn ReadTxn, file: PutId, limit: usize) -> Result<Vec<StripeId>, MetaError> {
    let next = PutId(file.0.saturating_add(1));
    let span = DROPPED.between(&(file, StripeId(0)), &(next, StripeId(0)));
    let rows = DROPPED.scan(txn, &span, limit)?;
    Ok(rows.into_iter().map(|((_, stripe), ())| stripe).collect())
}
