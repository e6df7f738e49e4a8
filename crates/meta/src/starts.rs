//! The coordinator's own starts. Nodes remember the newest one that they know, which reveals an old
//! copy of the metadata.

use crate::error::MetaError;
use crate::kv::KeyValue;
use crate::meta::Meta;
use crate::records::StartRecord;
use crate::schema::{CONTRADICTED, Counter, GRANTED_LEASE, STARTS};
use gabion_layout::{Start, StripeId};
use std::collections::BTreeSet;

/// Number of the last starts that the metadata remember. They also remember each older start that a node has
/// contradicted, and the start after it.
pub const REMEMBERED_START_COUNT: u64 = 1024;
/// Contradicted starts that are remembered. Further ones are not.
const CONTRADICTED_COUNT_MAX: usize = 256;

impl<K: KeyValue> Meta<K> {
    /// Notes the length of the leases that this run of the coordinator grants to nodes. Returns the longest that an
    /// earlier run may have granted, or this one.
    ///
    /// # Errors
    /// When the store fails or the row is corrupt.
    pub fn note_granted_lease(&self, lease_ms: u64) -> Result<u64, MetaError> {
        let earlier_ms = self.store.read(|txn| GRANTED_LEASE.get(txn, &()))?;
        let earlier_ms = earlier_ms.unwrap_or(0);
        if earlier_ms < lease_ms {
            self.change(|txn| GRANTED_LEASE.put(txn, &(), &lease_ms))?;
        }
        Ok(earlier_ms.max(lease_ms))
    }

    /// Notes that no node has a longer lease than this one any more.
    ///
    /// # Errors
    /// When the store fails.
    pub fn end_longer_leases(&self, lease_ms: u64) -> Result<(), MetaError> {
        self.change(|txn| GRANTED_LEASE.put(txn, &(), &lease_ms))
    }

    /// Notes that a node knows more of a start than these metadata, which are an old copy. However often a
    /// coordinator starts with them after that, the start is remembered, and so contradicts them again.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn note_contradicted_start(&self, start: u64) -> Result<(), MetaError> {
        self.change(|txn| {
            let known = CONTRADICTED.scan(txn, &CONTRADICTED.all(), CONTRADICTED_COUNT_MAX)?;
            if known.len() == CONTRADICTED_COUNT_MAX {
                return Ok(());
            }
            CONTRADICTED.put(txn, &start, &())
        })
    }

    /// The newest start that the metadata know.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn last_start(&self) -> Result<Option<Start>, MetaError> {
        let rows = self
            .store
            .read(|txn| STARTS.scan(txn, &STARTS.all(), usize::MAX))?;
        let last = rows.into_iter().next_back();
        Ok(last.map(|(number, StartRecord { nonce, .. })| Start { number, nonce }))
    }

    /// Whether an earlier run has noted that a node knows more of this start, or of a later one, than these metadata.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn is_contradicted_from(&self, start: u64) -> Result<bool, MetaError> {
        let known = self
            .store
            .read(|txn| CONTRADICTED.scan(txn, &CONTRADICTED.all(), CONTRADICTED_COUNT_MAX))?;
        Ok(known.into_iter().any(|(known, ())| known >= start))
    }

    /// Records the nonce of this run of the coordinator, which the caller draws at random. Returns
    /// all remembered starts, oldest first, each with the number of changes before it; the last is this one.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn note_start(&self, nonce: u64) -> Result<Vec<(Start, u64)>, MetaError> {
        let number = self.incarnation();
        self.change(|txn| {
            let change_count = Counter::Changes.value(txn)?;
            let own = StartRecord {
                nonce,
                change_count,
            };
            STARTS.put(txn, &number, &own)?;
            let rows = STARTS.scan(txn, &STARTS.all(), usize::MAX)?;
            let contradicted =
                CONTRADICTED.scan(txn, &CONTRADICTED.all(), CONTRADICTED_COUNT_MAX)?;
            let next = |start: u64| rows.iter().find(|(known, _)| *known > start);
            let next = contradicted.iter().filter_map(|&(start, ())| next(start));
            let mut pinned: BTreeSet<u64> = next.map(|&(number, _)| number).collect();
            pinned.extend(contradicted.iter().map(|&(start, ())| start));
            let is_kept = |known: u64| {
                known.saturating_add(REMEMBERED_START_COUNT) > number || pinned.contains(&known)
            };
            let (kept, old): (Vec<_>, Vec<_>) =
                rows.into_iter().partition(|&(known, _)| is_kept(known));
            for (number, _) in old {
                STARTS.delete(txn, &number)?;
            }
            let start = |(number, row): (u64, StartRecord)| {
                let StartRecord {
                    nonce,
                    change_count,
                } = row;
                (Start { number, nonce }, change_count)
            };
            Ok(kept.into_iter().map(start).collect())
        })
    }

    /// Whether a stripe id was ever issued. If it was leased only, no stripe has it.
    pub fn was_handed_out(&self, stripe: StripeId) -> bool {
        self.ids.was_issued(stripe.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_store::MemoryStore;
    use crate::{WallClock, WallTime};

    #[test]
    fn the_longest_lease_is_known_until_it_has_ended() {
        let clock = WallClock::stopped(WallTime::default());
        let meta = Meta::create(MemoryStore::new(), gabion_layout::ClusterId(1), clock).unwrap();
        assert_eq!(meta.note_granted_lease(3_000).unwrap(), 3_000);
        assert_eq!(meta.note_granted_lease(10_000).unwrap(), 10_000);
        assert_eq!(meta.note_granted_lease(3_000).unwrap(), 10_000);
        assert_eq!(
            meta.note_granted_lease(2_000).unwrap(),
            10_000,
            "also twice"
        );
        meta.end_longer_leases(2_000).unwrap();
        assert_eq!(meta.note_granted_lease(1_000).unwrap(), 2_000);
    }
}
