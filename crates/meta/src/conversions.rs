//! Conversions: stripes of a file are replaced by others with the same bytes in another form,
//! replicated blocks by one stripe or the reverse (EAR, section II-B).
//!
//! The new stripes are written beside the old ones under a put of their own, while updates of the
//! old ones go on. Before a commit, the coordinator has taken the leases of the old stripes, has
//! settled them, and has found them unchanged since the new ones were made.
//!
//! No node becomes a new stripe's primary while an old one's chunks may be served: a reader with an
//! old layout would read them, without later updates. So the new stripe's row of predecessors
//! remains until these are removed as garbage.

use crate::displaced::{check_held, discard};
use crate::error::MetaError;
use crate::extents::{self, Placed, data_bytes, displaced_extents};
use crate::files::{file_of, put_file};
use crate::kv::KeyValue;
use crate::meta::Meta;
use crate::pending::pending_stripes;
use crate::pools::pool;
use crate::predecessors::check_alone;
use crate::puts::{Put, check_nodes, put_record, reserve};
use crate::records::{Placement, PutId, PutTarget};
use crate::replacement_records::Displaced;
use crate::schema::{Counter, EXTENTS, FILES, PENDING, PREDECESSORS, PUTS, STRIPES};
use crate::stripe_rows::{index_stripe, live_stripe};
use gabion_layout::{PoolId, StripeId, StripeRecord};

impl<K: KeyValue> Meta<K> {
    /// Reserves stripes of a pool that are to replace others of the file that the put `file` made.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::UnknownPool`]; those of
    /// places as for a put; [`MetaError::IdsExhausted`].
    pub fn begin_conversion(
        &self,
        file: PutId,
        pool_id: PoolId,
        placements: &[Placement],
        now_ms: u64,
    ) -> Result<Put, MetaError> {
        self.change(|txn| {
            file_of(txn, file)?;
            let failed = check_nodes(txn, &pool(txn, pool_id)?.spec, placements, 0)?;
            let placements: Vec<_> = placements.iter().map(|place| (pool_id, place)).collect();
            reserve(txn, PutTarget::Stripes(file), &placements, &failed, now_ms)
        })
    }

    /// Replaces the old stripes, which must be consecutive in the file, by the new ones. The old
    /// ones become garbage and their leases end. The caller guarantees that every new chunk is
    /// durable on its node, and holds the same bytes as the old ones as of their last update.
    ///
    /// # Errors
    /// [`MetaError::UnknownPut`]; [`MetaError::FileGone`];
    /// [`MetaError::UnknownStripe`] when an old stripe no longer belongs to the file, or they are
    /// not consecutive; [`MetaError::LeaseLost`] when one may have been updated since it was
    /// settled; [`MetaError::Held`] while nodes may serve a stripe that one of them has replaced;
    /// [`MetaError::Placement`] unless the new stripes have the capacity of the old ones.
    pub fn commit_conversion(
        &self,
        put: PutId,
        file: PutId,
        displaced: &[Displaced],
    ) -> Result<Vec<StripeRecord>, MetaError> {
        self.change(|txn| {
            let put_row = put_record(txn, put)?;
            let stripes = pending_stripes(txn, &put_row)?;
            let mut file = file_of(txn, file)?;
            let old_extents = displaced_extents(txn, file.map, displaced)?;
            let is_gap = |pair: &[(usize, Placed)]| pair[0].0 + 1 != pair[1].0;
            if let Some(gap) = old_extents.windows(2).position(is_gap) {
                return Err(MetaError::UnknownStripe(displaced[gap + 1].stripe));
            }
            let Some(&(first, (start, _))) = old_extents.first() else {
                return Err(MetaError::UnknownPut(put));
            };
            let mut old_bytes = 0;
            for old in displaced {
                check_held(txn, *old)?;
                check_alone(txn, *old, self.incarnation())?;
                old_bytes += data_bytes(txn, &live_stripe(txn, old.stripe)?)?;
                discard(txn, old.stripe)?;
            }
            for (_, (offset, _)) in old_extents {
                EXTENTS.delete(txn, &(file.map, offset))?;
            }
            let predecessors: Vec<StripeId> = displaced.iter().map(|old| old.stripe).collect();
            for new in &stripes {
                PENDING.delete(txn, &new.id)?;
                STRIPES.put(txn, &new.id, new)?;
                index_stripe(txn, new)?;
                PREDECESSORS.put(txn, &new.id, &predecessors)?;
            }
            let new_bytes = extents::insert(txn, file.map, start, &stripes)? - start;
            if old_bytes != new_bytes {
                let problem = format!("{new_bytes} bytes cannot replace {old_bytes}");
                return Err(MetaError::Placement {
                    segment: first,
                    problem,
                });
            }
            Counter::StripeCount.lower(txn, displaced.len() as u64)?;
            Counter::StripeCount.raise(txn, stripes.len() as u64)?;
            let change = (stripes.len() as u64, displaced.len() as u64);
            file.stripe_count = FILES.recount(&file.put, file.stripe_count, change)?;
            put_file(txn, &file)?;
            PUTS.delete(txn, &put)?;
            Ok(stripes)
        })
    }
}
