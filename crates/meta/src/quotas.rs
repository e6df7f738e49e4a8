//! Quotas of pools, and what pools use of them.
//!
//! A pool uses the data bytes of its stripes, those of open puts included, its inline bytes, and its files. A stripe
//! is counted from the transaction that reserves it to the one that makes it garbage, so the check at the reservation
//! is exact: no two clients get the same bytes. Holes use nothing, and stripes that several files share are counted
//! once. A change that takes no more than it gives back is never refused: an overwrite of a file's own stripes, a
//! conversion, a repair.

use crate::error::MetaError;
use crate::extents::data_bytes;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::pools::pool;
use crate::quota_error::QuotaError;
use crate::quota_records::{Limit, PoolUse, Quota, QuotaChange};
use crate::records::{FileRecord, Placement, PoolRecord};
use crate::schema::{FILES, POOL_NAMES, POOLS, QUOTAS, USES};
use gabion_layout::{PoolId, StripeRecord};
use std::collections::BTreeMap;

/// Transactions that make stripes of removed files garbage before a request is refused.
const ROOM_STEP_COUNT: usize = 16;

impl<K: KeyValue> Meta<K> {
    /// Changes the quota of a pool. One below what the pool uses takes nothing away: the pool gets nothing more.
    ///
    /// # Errors
    /// [`MetaError::UnknownPool`]; [`QuotaError::Encoded`].
    pub fn set_quota(&self, name: &str, change: QuotaChange) -> Result<(), MetaError> {
        self.change(|txn| {
            let id = POOL_NAMES.get(txn, &name.to_owned())?;
            let id = id.ok_or_else(|| MetaError::UnknownPool(name.to_owned()))?;
            for (_, other) in POOLS.scan(txn, &POOLS.all(), usize::MAX)? {
                let encoded = other.lifecycle.map(|lifecycle| lifecycle.encoded);
                if encoded == Some(id) {
                    let (pool, of) = (name.to_owned(), other.spec.name);
                    return Err(QuotaError::Encoded { pool, of }.into());
                }
            }
            let present = QUOTAS.get(txn, &id)?.unwrap_or_default();
            let quota = Quota {
                bytes: change.bytes.unwrap_or(present.bytes),
                files: change.files.unwrap_or(present.files),
            };
            if quota == Quota::default() {
                QUOTAS.delete(txn, &id)
            } else {
                QUOTAS.put(txn, &id, &quota)
            }
        })
    }

    /// Runs an operation that reserves stripes. If a quota has no room for them, stripes of removed files, which count
    /// until they are garbage, become garbage first, at most `limit` in each of some transactions.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn with_room<T>(
        &self,
        limit: usize,
        operation: impl Fn() -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        for _ in 0..ROOM_STEP_COUNT {
            match operation() {
                Err(MetaError::Quota(QuotaError::Bytes { .. })) => {}
                done => return done,
            }
            let has_more = self.discard_removed(limit)? || self.merge_maps(limit)?;
            if !has_more {
                break;
            }
        }
        operation()
    }

    /// The quota of a pool, and what it uses, with the stripes that its blocks have become.
    ///
    /// # Errors
    /// [`MetaError::UnknownPool`].
    pub fn quota(&self, id: PoolId) -> Result<(Quota, PoolUse), MetaError> {
        self.store.read(|txn| {
            let quota = QUOTAS.get(txn, &id)?.unwrap_or_default();
            Ok((quota, used(txn, &pool(txn, id)?)?))
        })
    }
}

/// The bytes and files that a pool uses, with the stripes that its blocks have become.
fn used(txn: &dyn ReadTxn, pool: &PoolRecord) -> Result<PoolUse, MetaError> {
    let mut used = USES.get(txn, &pool.id)?.unwrap_or_default();
    if let Some(lifecycle) = pool.lifecycle {
        let encoded = USES.get(txn, &lifecycle.encoded)?.unwrap_or_default();
        used.bytes += encoded.bytes;
    }
    Ok(used)
}

/// Refuses a file's new stripes in place of `old_bytes`, if they take more bytes than its pool has left.
pub(crate) fn check_bytes(
    txn: &dyn ReadTxn,
    file_pool: &PoolRecord,
    new: &[(PoolId, &Placement)],
    old_bytes: u64,
) -> Result<(), MetaError> {
    let quota = QUOTAS.get(txn, &file_pool.id)?.unwrap_or_default();
    let Limit::AtMost(_) = quota.bytes else {
        return Ok(());
    };
    let sizes = new.iter().map(|&(id, place)| (id, place.chunk_bytes));
    let new_bytes: u64 = bytes_by_pool(txn, sizes)?.values().sum();
    check_more(txn, file_pool, new_bytes.saturating_sub(old_bytes))
}

/// Refuses more bytes than a pool has left.
pub(crate) fn check_more(
    txn: &dyn ReadTxn,
    file_pool: &PoolRecord,
    more: u64,
) -> Result<(), MetaError> {
    let quota = QUOTAS.get(txn, &file_pool.id)?.unwrap_or_default();
    let Limit::AtMost(limit) = quota.bytes else {
        return Ok(());
    };
    let used = used(txn, file_pool)?.bytes;
    if more == 0 || used.saturating_add(more) <= limit {
        return Ok(());
    }
    let pool = file_pool.spec.name.clone();
    Err(QuotaError::Bytes {
        pool,
        limit,
        used,
        more,
    }
    .into())
}

/// Refuses one more file if its pool has as many as it may have.
pub(crate) fn check_files(txn: &dyn ReadTxn, id: PoolId) -> Result<(), MetaError> {
    let quota = QUOTAS.get(txn, &id)?.unwrap_or_default();
    let Limit::AtMost(limit) = quota.files else {
        return Ok(());
    };
    if USES.get(txn, &id)?.unwrap_or_default().files < limit {
        return Ok(());
    }
    let pool = pool(txn, id)?.spec.name;
    Err(QuotaError::Files { pool, limit }.into())
}

/// Counts a new file.
pub(crate) fn count_file(txn: &mut dyn WriteTxn, file: &FileRecord) -> Result<(), MetaError> {
    change(txn, file.pool, |used| {
        used.files = used.files.checked_add(1)?;
        Some(())
    })
}

/// Counts a file that is gone.
pub(crate) fn uncount_file(txn: &mut dyn WriteTxn, file: &FileRecord) -> Result<(), MetaError> {
    change(txn, file.pool, |used| {
        used.files = used.files.checked_sub(1)?;
        Some(())
    })
}

/// Counts inline bytes: those that were added, and those that are gone.
pub(crate) fn count_bytes(
    txn: &mut dyn WriteTxn,
    pool: PoolId,
    (more, fewer): (u64, u64),
) -> Result<(), MetaError> {
    if more == fewer {
        return Ok(());
    }
    change(txn, pool, |used| {
        used.bytes = used.bytes.checked_add(more)?.checked_sub(fewer)?;
        Some(())
    })
}

/// Counts stripes that were reserved.
pub(crate) fn count_stripes(
    txn: &mut dyn WriteTxn,
    stripes: &[StripeRecord],
) -> Result<(), MetaError> {
    for (pool, bytes) in bytes_by_pool(txn, stripes.iter().map(size_of))? {
        change(txn, pool, |used| {
            used.bytes = used.bytes.checked_add(bytes)?;
            Some(())
        })?;
    }
    Ok(())
}

/// Counts a stripe that becomes garbage.
pub(crate) fn uncount_stripe(
    txn: &mut dyn WriteTxn,
    stripe: &StripeRecord,
) -> Result<(), MetaError> {
    let bytes = data_bytes(txn, stripe)?;
    change(txn, stripe.pool, |used| {
        used.bytes = used.bytes.checked_sub(bytes)?;
        Some(())
    })
}

/// The pool of a stripe, and the bytes of each of its chunks.
fn size_of(stripe: &StripeRecord) -> (PoolId, u64) {
    (stripe.pool, stripe.chunk_bytes)
}

/// The data bytes of stripes with these pools and bytes of a chunk.
fn bytes_by_pool(
    txn: &dyn ReadTxn,
    sizes: impl IntoIterator<Item = (PoolId, u64)>,
) -> Result<BTreeMap<PoolId, u64>, MetaError> {
    let mut counts: BTreeMap<(PoolId, u64), u64> = BTreeMap::new();
    for size in sizes {
        *counts.entry(size).or_default() += 1;
    }
    let mut bytes: BTreeMap<PoolId, u64> = BTreeMap::new();
    for ((id, chunk_bytes), count) in counts {
        *bytes.entry(id).or_default() += count * pool(txn, id)?.spec.data_bytes(chunk_bytes);
    }
    Ok(bytes)
}

/// Finds out whether pools use what these stripes, all that are pending or live, and all files take. Returns a sentence
/// if not.
pub(crate) fn contradiction<'a>(
    txn: &dyn ReadTxn,
    stripes: impl IntoIterator<Item = &'a StripeRecord>,
) -> Result<Option<String>, MetaError> {
    let mut expected: BTreeMap<PoolId, PoolUse> = BTreeMap::new();
    for (pool, bytes) in bytes_by_pool(txn, stripes.into_iter().map(size_of))? {
        expected.entry(pool).or_default().bytes = bytes;
    }
    for (_, file) in FILES.scan(txn, &FILES.all(), usize::MAX)? {
        let expected = expected.entry(file.pool).or_default();
        expected.files += 1;
        let inline_bytes = file.inline.map_or(0, |inline| inline.length_bytes);
        expected.bytes = expected.bytes.saturating_add(inline_bytes);
    }
    let mut counted: BTreeMap<_, _> = USES
        .scan(txn, &USES.all(), usize::MAX)?
        .into_iter()
        .collect();
    counted.retain(|_, used| *used != PoolUse::default());
    let differ = counted != expected;
    Ok(differ.then(|| format!("pools use {expected:?}, but their counts say {counted:?}")))
}

fn change(
    txn: &mut dyn WriteTxn,
    pool: PoolId,
    change: impl FnOnce(&mut PoolUse) -> Option<()>,
) -> Result<(), MetaError> {
    let mut used = USES.get(txn, &pool)?.unwrap_or_default();
    change(&mut used)
        .ok_or_else(|| USES.contradiction(&pool, "the count does not match the rows"))?;
    USES.put(txn, &pool, &used)
}
