//! Replacements: they make a write that spans stripes, fills holes or changes a file's size one atomic
//! change. The client writes new stripes beside the old ones, and the commit puts them into the file in one
//! transaction.
//!
//! A replacement is a put whose stripes go into an existing file; it is touched, expires and is
//! aborted like any put. From before the client reads the old stripes until the commit, no other
//! client may update them, so the coordinator holds their leases. The commit checks the leases: any
//! other holder since has a higher epoch. A replacement of an earlier run of the coordinator is
//! valid as long as there is none.
//!
//! Stripes that leave the file without a successor are noted until no node serves them, and until then the
//! file gets no stripe for a hole: a reader with an old layout would read the bytes from before.

use crate::displaced::{check_held, discard};
use crate::dropped::{check_none_served, note_dropped};
use crate::error::MetaError;
use crate::extents::{data_bytes, extent_at, extents_from};
use crate::files::{check_no_symlink, file_of, put_file};
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::pending::surviving_stripes;
use crate::pools::{left_out_max, pool};
use crate::predecessors::check_alone;
use crate::puts::{Put, check_nodes, check_not_committed, end_committed, put_record, reserve};
use crate::records::{
    Extent, FILE_BYTES_MAX, FILE_STRIPES_MAX, FileRecord, Placement, PoolRecord, PutId, PutTarget,
    ReplacementRecord, Rewrite, SizeChange,
};
use crate::schema::{Counter, EXTENTS, FILES, PENDING, PREDECESSORS, REPLACEMENTS, STRIPES};
use crate::stripe_rows::{index_stripe, live_stripe};
use crate::tokens::check_token;
use gabion_layout::{PoolId, StripeRecord};
use std::collections::{BTreeMap, BTreeSet};

impl<K: KeyValue> Meta<K> {
    /// Begins to change extents of the file that the put `file` made, whatever its name. Each new stripe has
    /// a placement; one that takes the place of another is in the other's pool. The coordinator holds the
    /// leases of the displaced stripes under the given epochs and has settled them.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::Superseded`]; [`MetaError::UnknownStripe`] when a
    /// stripe is not the file's or out of order; [`MetaError::LeaseLost`]; [`MetaError::Held`] while nodes
    /// may serve stripes that one of them has replaced; [`MetaError::StillServed`] while they may serve one
    /// that has left a hole, and a hole is to be filled;
    /// [`MetaError::FixedSize`], [`MetaError::FileTooLarge`];
    /// [`MetaError::Placement`], [`MetaError::UnknownNode`] and [`MetaError::NodeFailed`] as for a
    /// put; [`MetaError::IdsExhausted`].
    ///
    /// # Panics
    /// Unless there is one placement for each new stripe.
    pub fn begin_replacement(
        &self,
        file: PutId,
        rewrite: &Rewrite,
        placements: &[Placement],
        now_ms: u64,
    ) -> Result<Put, MetaError> {
        assert_eq!(
            rewrite.offsets.len(),
            placements.len(),
            "one placement for each new stripe"
        );
        self.change(|txn| {
            let record = file_of(txn, file)?;
            check_no_symlink(&record)?;
            check_token(txn, file, rewrite.token)?;
            let held = pool(txn, record.pool)?;
            let mut pools = BTreeMap::new();
            for &(offset, old) in &rewrite.displaced {
                extent_at(txn, file, offset, old.stripe)?;
                check_held(txn, old)?;
                check_alone(txn, old, self.incarnation())?;
                pools.insert(offset, live_stripe(txn, old.stripe)?.pool);
            }
            check_shape(&record, &held, rewrite, placements)?;
            if rewrite.offsets.iter().any(|at| !pools.contains_key(at)) {
                check_none_served(txn, file)?;
            }
            let pool_at = |at: &u64| pools.get(at).copied().unwrap_or(record.pool);
            let pools: Vec<PoolId> = rewrite.offsets.iter().map(pool_at).collect();
            let mut failed = BTreeSet::new();
            for (&id, place) in pools.iter().zip(placements) {
                let (pool, place) = (pool(txn, id)?, std::slice::from_ref(place));
                let left_out_max = left_out_max(&pool);
                failed.append(&mut check_nodes(txn, &pool.spec, place, left_out_max)?);
            }
            let placements: Vec<_> = pools.into_iter().zip(placements).collect();
            let put = reserve(txn, PutTarget::Stripes(file), &placements, &failed, now_ms)?;
            let rewrite = rewrite.clone();
            REPLACEMENTS.put(txn, &put.id, &ReplacementRecord { file, rewrite })?;
            Ok(put)
        })
    }

    /// Makes the change. The displaced stripes become garbage, and their leases end. No node
    /// becomes the primary of a new one while the one whose place it takes may be served.
    /// The caller guarantees that every new chunk is durable on its node. After an error the
    /// replacement remains open, but can only be aborted.
    ///
    /// The file's identity stays: its [`FileRecord::put`](crate::FileRecord::put) does not change.
    ///
    /// # Errors
    /// [`MetaError::CommittedBefore`] when a commit with a lost answer is repeated, until 65,536
    /// more puts have begun; [`MetaError::UnknownPut`]; [`MetaError::FileGone`];
    /// [`MetaError::Superseded`] by a session since; [`MetaError::UnknownStripe`] when an old stripe no longer
    /// belongs to the file; [`MetaError::LeaseLost`] when it may have been updated since;
    /// [`MetaError::FileChanged`] when other changes since do not go together with this one;
    /// [`MetaError::FileTooLarge`]; [`MetaError::PutLost`].
    pub fn commit_replacement(&self, put: PutId) -> Result<Vec<StripeRecord>, MetaError> {
        let now = self.wall_time();
        self.change(|txn| {
            check_not_committed(txn, put)?;
            let record = REPLACEMENTS.get(txn, &put)?;
            let record = record.ok_or(MetaError::UnknownPut(put))?;
            let put_row = put_record(txn, put)?;
            let stripes = surviving_stripes(txn, &put_row)?;
            let mut file = file_of(txn, record.file)?;
            let Rewrite {
                displaced,
                offsets,
                size,
                token,
            } = record.rewrite;
            check_token(txn, file.put, token)?;
            for &(offset, old) in &displaced {
                extent_at(txn, file.put, offset, old.stripe)?;
            }
            let mut places = BTreeMap::new();
            for (offset, old) in displaced {
                check_held(txn, old)?;
                discard(txn, old.stripe)?;
                EXTENTS.delete(txn, &(file.put, offset))?;
                places.insert(offset, old.stripe);
                file.stripe_count -= 1;
            }
            change_size(txn, &mut file, size)?;
            for (&offset, new) in offsets.iter().zip(&stripes) {
                if EXTENTS.get(txn, &(file.put, offset))?.is_some() {
                    return Err(MetaError::FileChanged("a hole is filled by now"));
                }
                PENDING.delete(txn, &new.id)?;
                STRIPES.put(txn, &new.id, new)?;
                index_stripe(txn, new)?;
                if let Some(old) = places.remove(&offset) {
                    PREDECESSORS.put(txn, &new.id, &vec![old])?;
                }
                let extent = Extent {
                    stripe: new.id,
                    length_bytes: data_bytes(txn, new)?,
                };
                EXTENTS.put(txn, &(file.put, offset), &extent)?;
                file.stripe_count += 1;
            }
            note_dropped(txn, file.put, places.values())?;
            recount(txn, &file)?;
            file.attributes.note_content(now);
            put_file(txn, &file)?;
            REPLACEMENTS.delete(txn, &put)?;
            end_committed(txn, put)?;
            Ok(stripes)
        })
    }
}

/// Checks where new stripes are to go, and how large they are.
fn check_shape(
    file: &FileRecord,
    pool: &PoolRecord,
    rewrite: &Rewrite,
    placements: &[Placement],
) -> Result<(), MetaError> {
    let is_sorted = rewrite.offsets.is_sorted_by(|a, b| a < b)
        && rewrite.displaced.is_sorted_by(|a, b| a.0 < b.0);
    if !is_sorted {
        let problem = "the extents are out of order".to_owned();
        return Err(MetaError::Placement {
            segment: 0,
            problem,
        });
    }
    let (SizeChange::AtLeast(end) | SizeChange::Exactly(end)) = rewrite.size;
    if end > FILE_BYTES_MAX {
        return Err(MetaError::FileTooLarge);
    }
    if pool.lifecycle.is_some() {
        let mut old = rewrite.displaced.iter().map(|(offset, _)| offset);
        let is_kept = rewrite
            .offsets
            .iter()
            .all(|offset| old.next() == Some(offset));
        let keeps_size = rewrite.size == SizeChange::AtLeast(0);
        return if is_kept && keeps_size && old.next().is_none() {
            Ok(())
        } else {
            Err(MetaError::FixedSize)
        };
    }
    let (segment_bytes, rows) = (pool.spec.segment_bytes(), pool.spec.sub_chunks as u64);
    let size_bytes = rewrite.size.applied_to(file.size_bytes);
    for (segment, (&offset, place)) in rewrite.offsets.iter().zip(placements).enumerate() {
        let bytes = place.chunk_bytes;
        let is_whole = bytes > 0 && bytes <= pool.spec.chunk_bytes && bytes.is_multiple_of(rows);
        if !offset.is_multiple_of(segment_bytes) || offset >= size_bytes || !is_whole {
            let problem = format!(
                "a stripe with chunks of {bytes} bytes cannot begin at byte {offset} of a file of \
                 {size_bytes} bytes"
            );
            return Err(MetaError::Placement { segment, problem });
        }
    }
    Ok(())
}

/// Gives the file its new size. The displaced extents are gone, and the new ones are not there yet.
fn change_size(
    txn: &dyn ReadTxn,
    file: &mut FileRecord,
    change: SizeChange,
) -> Result<(), MetaError> {
    let size = change.applied_to(file.size_bytes);
    if size < file.size_bytes {
        let segment_bytes = pool(txn, file.pool)?.spec.segment_bytes();
        let first = size - size % segment_bytes;
        let reaches =
            |&(offset, extent): &(u64, Extent)| offset.saturating_add(extent.length_bytes) > size;
        // The second one begins behind the new end.
        if extents_from(txn, file.put, first, 2)?.iter().any(reaches) {
            return Err(MetaError::FileChanged("it has bytes behind its new end"));
        }
        file.truncation_count += 1;
    }
    file.size_bytes = size;
    Ok(())
}

/// Counts the stripes of the cluster after a file has got another number of them. Its row has the old one.
fn recount(txn: &mut dyn WriteTxn, file: &FileRecord) -> Result<(), MetaError> {
    let before = FILES
        .get(txn, &file.put)?
        .map_or(0, |file| file.stripe_count);
    if file.stripe_count > FILE_STRIPES_MAX {
        return Err(MetaError::FileTooLarge);
    }
    Counter::StripeCount.lower(txn, before)?;
    Counter::StripeCount.raise(txn, file.stripe_count)?;
    Ok(())
}
