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
//! A displaced stripe that other files share is displaced for all of them: the client stores a copy of it too, which
//! takes its place for them. So a reader of any of these files finds no chunk of the old stripe and looks its file up.
//!
//! Stripes that leave the file without a successor are noted until no node serves them, and until then the
//! file gets no stripe for a hole: a reader with an old layout would read the bytes from before.

use crate::directory_uses::check_growth;
use crate::displaced::{check_held, discard};
use crate::dropped::{check_none_served, note_dropped, prune_dropped};
use crate::error::MetaError;
use crate::extents::{self, Found, data_bytes, extents_from, find, map_of, take_out};
use crate::files::{check_no_symlink, file_of, file_row, put_file};
use crate::inline_rows::{check_seen, move_to_stripes, note_resize};
use crate::kv::{KeyValue, WriteTxn};
use crate::layers::layers;
use crate::meta::Meta;
use crate::pending::surviving_stripes;
use crate::pools::{left_out_max, pool};
use crate::predecessors::check_alone;
use crate::puts::{
    Put, check_nodes, check_not_committed, check_remembered, end_committed, put_record, reserve,
};
use crate::quotas::check_bytes;
use crate::records::{
    FILE_BYTES_MAX, FILE_STRIPES_MAX, FileRecord, MapId, Placement, PoolRecord, PutId, PutTarget,
};
use crate::replacement_records::{ReplacementRecord, Rewrite, SizeChange};
use crate::schema::{COPIES, Counter, FILES, PENDING, PREDECESSORS, REPLACEMENTS, STRIPES};
use crate::stripe_rows::{index_stripe, live_stripe};
use crate::tokens::check_token;
use gabion_layout::{PoolId, StripeId, StripeRecord};
use std::collections::{BTreeMap, BTreeSet};

impl<K: KeyValue> Meta<K> {
    /// Begins to change extents of the file that the put `file` made, whatever its name. Each new stripe has
    /// a placement, and so has each copy of a shared stripe behind them; one that takes the place of another is in the
    /// other's pool. The coordinator holds the
    /// leases of the displaced stripes under the given epochs and has settled them.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::Superseded`]; [`MetaError::UnknownStripe`] when a
    /// stripe is not the file's or out of order; [`MetaError::LeaseLost`]; [`MetaError::Held`] while nodes
    /// may serve stripes that one of them has replaced; [`MetaError::StillServed`] while they may serve one
    /// that has left a hole, and a hole is to be filled;
    /// [`MetaError::FixedSize`], [`MetaError::FileTooLarge`];
    /// [`MetaError::Placement`], [`MetaError::UnknownNode`] and [`MetaError::NodeFailed`] as for a
    /// put; [`MetaError::IdsExhausted`]; [`MetaError::Quota`].
    ///
    /// # Panics
    /// Unless there is one placement for each new stripe and each copy.
    pub fn begin_replacement(
        &self,
        file: PutId,
        rewrite: &Rewrite,
        placements: &[Placement],
        now_ms: u64,
    ) -> Result<Put, MetaError> {
        assert_eq!(
            rewrite.offsets.len() + rewrite.copied.len(),
            placements.len(),
            "one placement for each new stripe"
        );
        self.change(|txn| {
            let record = file_of(txn, file)?;
            check_no_symlink(&record)?;
            check_token(txn, &record, rewrite.token)?;
            if !rewrite.offsets.is_empty() {
                check_seen(&record, rewrite.inline)?;
            }
            let held = pool(txn, record.pool)?;
            let layers = layers(txn, record.map)?;
            let with_copy: BTreeSet<u64> = rewrite.copied.iter().copied().collect();
            let mut places = BTreeMap::new();
            for &(offset, old) in &rewrite.displaced {
                let map = map_of(txn, &layers, offset, old.stripe)?;
                check_sharing(with_copy.contains(&offset), map != record.map)?;
                check_held(txn, old)?;
                check_alone(txn, old, self.incarnation())?;
                places.insert(offset, live_stripe(txn, old.stripe)?);
            }
            let (new, copies) = placements.split_at(rewrite.offsets.len());
            check_shape((&record, &held), rewrite, new, &places)?;
            check_copies(rewrite, &places, copies)?;
            check_holes(txn, file, rewrite, &places)?;
            let pool_at = |at: &u64| places.get(at).map_or(record.pool, |old| old.pool);
            let all = rewrite.offsets.iter().chain(&rewrite.copied);
            let pools: Vec<PoolId> = all.map(pool_at).collect();
            let mut failed = BTreeSet::new();
            for (&id, place) in pools.iter().zip(placements) {
                let (pool, place) = (pool(txn, id)?, std::slice::from_ref(place));
                let left_out_max = left_out_max(&pool);
                failed.append(&mut check_nodes(txn, &pool.spec, place, left_out_max)?);
            }
            let placements: Vec<_> = pools.into_iter().zip(placements).collect();
            let mut old_bytes = 0;
            for old in places.values() {
                old_bytes += data_bytes(txn, old)?;
            }
            check_bytes(txn, &held, &placements, old_bytes)?;
            check_growth(txn, &record, rewrite.size.applied_to(record.size_bytes))?;
            let put = reserve(txn, PutTarget::Stripes(file), &placements, &failed, now_ms)?;
            let rewrite = rewrite.clone();
            REPLACEMENTS.put(txn, &put.id, &ReplacementRecord { file, rewrite })?;
            Ok(put)
        })
    }

    /// Of the given stripes of the file that `put` made, with their offsets, those that other files share: their
    /// offsets and chunk sizes.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::UnknownStripe`] for one that is not the file's.
    pub fn shared_of(
        &self,
        put: PutId,
        stripes: &[(u64, StripeId)],
    ) -> Result<Vec<(u64, u64)>, MetaError> {
        self.store.read(|txn| {
            let file = file_row(txn, put)?;
            let layers = layers(txn, file.map)?;
            let mut shared = Vec::new();
            for &(offset, stripe) in stripes {
                if map_of(txn, &layers, offset, stripe)? != file.map {
                    shared.push((offset, live_stripe(txn, stripe)?.chunk_bytes));
                }
            }
            Ok(shared)
        })
    }

    /// Makes the change. The displaced stripes become garbage, and their leases end. No node
    /// becomes the primary of a new one while the one whose place it takes may be served.
    /// The caller guarantees that every new chunk is durable on its node. After an error the
    /// replacement remains open. It can only be aborted, except after [`MetaError::StillServed`].
    ///
    /// The file's identity stays: its [`FileRecord::put`](crate::FileRecord::put) does not change.
    ///
    /// # Errors
    /// [`MetaError::CommittedBefore`] when a commit with a lost answer is repeated, until 1,048,576
    /// more ids of puts were used, and [`MetaError::PutForgotten`] after that; [`MetaError::UnknownPut`];
    /// [`MetaError::FileGone`];
    /// [`MetaError::Superseded`] by a session since; [`MetaError::UnknownStripe`] when an old stripe no longer
    /// belongs to the file; [`MetaError::LeaseLost`] when it may have been updated since;
    /// [`MetaError::FileChanged`] when other changes since do not go together with this one, such as a truncation
    /// before a new stripe; [`MetaError::StillServed`] when it fills a hole and others have made one since;
    /// [`MetaError::FileTooLarge`]; [`MetaError::PutLost`]; [`MetaError::Quota`] of a directory that has no room for a
    /// larger file by now.
    pub fn commit_replacement(&self, put: PutId) -> Result<Vec<StripeRecord>, MetaError> {
        let now = self.wall_time();
        self.change(|txn| {
            check_not_committed(txn, put)?;
            let Some(record) = REPLACEMENTS.get(txn, &put)? else {
                check_remembered(txn, put)?;
                return Err(MetaError::UnknownPut(put));
            };
            let put_row = put_record(txn, put)?;
            let stripes = surviving_stripes(txn, &put_row)?;
            let mut file = file_of(txn, record.file)?;
            let (rewrite, before) = (record.rewrite, file.stripe_count);
            check_token(txn, &file, rewrite.token)?;
            let (new, copies) =
                stripes
                    .split_at_checked(rewrite.offsets.len())
                    .ok_or_else(|| {
                        REPLACEMENTS.contradiction(&put, "it has fewer stripes than offsets")
                    })?;
            let layers = layers(txn, file.map)?;
            let mut places = take_old(txn, &mut file, &layers, (&rewrite, copies))?;
            // Others may have filled and emptied the hole since the beginning.
            check_holes(txn, record.file, &rewrite, &places)?;
            if !new.is_empty() {
                move_to_stripes(txn, &mut file, rewrite.inline)?;
            }
            change_size(txn, &mut file, rewrite.size)?;
            for (&offset, new) in rewrite.offsets.iter().zip(new) {
                if find(txn, &layers, offset)?.is_some() {
                    return Err(MetaError::FileChanged("a hole is filled by now"));
                }
                if offset >= file.size_bytes {
                    return Err(MetaError::FileChanged("it ends before a new stripe by now"));
                }
                make_live(txn, new, places.remove(&offset))?;
                extents::insert(txn, file.map, offset, std::slice::from_ref(new))?;
                file.stripe_count = FILES.recount(&file.put, file.stripe_count, (1, 0))?;
            }
            let displaced = rewrite.displaced.iter().map(|(_, old)| &old.stripe);
            if !rewrite.displaced.is_empty() {
                prune_dropped(txn, file.put)?;
            }
            // Bytes behind the end of a shorter file have no successor, even if the rest of their stripe has one.
            match rewrite.size {
                SizeChange::Exactly(_) => note_dropped(txn, file.put, displaced)?,
                SizeChange::AtLeast(_) => note_dropped(txn, file.put, places.values())?,
            }
            recount(txn, &file, before, copies.len() as u64)?;
            file.attributes.note_content(now);
            put_file(txn, &file)?;
            REPLACEMENTS.delete(txn, &put)?;
            end_committed(txn, put)?;
            Ok(stripes)
        })
    }
}

/// Refuses a displaced stripe that other files share and that gets no copy, and the reverse.
fn check_sharing(is_copied: bool, is_shared: bool) -> Result<(), MetaError> {
    if is_copied == is_shared {
        return Ok(());
    }
    Err(MetaError::FileChanged(
        "other files share other stripes of it by now",
    ))
}

/// Refuses to fill a hole while nodes may serve stripes that the file has lost. `places` has the stripes whose places
/// are taken, by offset.
fn check_holes<T>(
    txn: &mut dyn WriteTxn,
    file: PutId,
    rewrite: &Rewrite,
    places: &BTreeMap<u64, T>,
) -> Result<(), MetaError> {
    if rewrite.offsets.iter().all(|at| places.contains_key(at)) {
        return Ok(());
    }
    check_none_served(txn, file)
}

/// Checks that each copy is as large as its stripe.
fn check_copies(
    rewrite: &Rewrite,
    places: &BTreeMap<u64, StripeRecord>,
    copies: &[Placement],
) -> Result<(), MetaError> {
    for (segment, (offset, copy)) in rewrite.copied.iter().zip(copies).enumerate() {
        let old = places.get(offset).map(|old| old.chunk_bytes);
        if old != Some(copy.chunk_bytes) {
            let problem = format!("a copy with chunks of {} bytes is none", copy.chunk_bytes);
            return Err(MetaError::Placement { segment, problem });
        }
    }
    Ok(())
}

/// Takes the displaced stripes out of the file. Those that other files share leave all of them, and their copies take
/// their places in the maps that had them. Returns the stripes whose places are free in the file, by offset.
fn take_old(
    txn: &mut dyn WriteTxn,
    file: &mut FileRecord,
    layers: &[MapId],
    (rewrite, copies): (&Rewrite, &[StripeRecord]),
) -> Result<BTreeMap<u64, StripeId>, MetaError> {
    let copies: BTreeMap<u64, &StripeRecord> = rewrite.copied.iter().copied().zip(copies).collect();
    let mut maps = Vec::with_capacity(rewrite.displaced.len());
    for &(offset, old) in &rewrite.displaced {
        maps.push(map_of(txn, layers, offset, old.stripe)?);
    }
    let mut places = BTreeMap::new();
    for (&(offset, old), map) in rewrite.displaced.iter().zip(maps) {
        check_sharing(copies.contains_key(&offset), map != file.map)?;
        check_held(txn, old)?;
        discard(txn, old.stripe)?;
        if let Some(copy) = copies.get(&offset) {
            make_live(txn, copy, Some(old.stripe))?;
            COPIES.put(txn, &copy.id, &())?;
            extents::insert(txn, map, offset, std::slice::from_ref(*copy))?;
            let shared_count = file.shared_stripe_count;
            file.shared_stripe_count = FILES.recount(&file.put, shared_count, (0, 1))?;
        }
        take_out(txn, layers, offset)?;
        places.insert(offset, old.stripe);
        file.stripe_count = FILES.recount(&file.put, file.stripe_count, (0, 1))?;
    }
    Ok(places)
}

/// Makes a new stripe one of a file, in the place of another one or in a hole.
fn make_live(
    txn: &mut dyn WriteTxn,
    new: &StripeRecord,
    predecessor: Option<StripeId>,
) -> Result<(), MetaError> {
    PENDING.delete(txn, &new.id)?;
    STRIPES.put(txn, &new.id, new)?;
    index_stripe(txn, new)?;
    match predecessor {
        Some(old) => PREDECESSORS.put(txn, &new.id, &vec![old]),
        None => Ok(()),
    }
}

/// Checks where new stripes are to go, and how large they are.
fn check_shape(
    (file, pool): (&FileRecord, &PoolRecord),
    rewrite: &Rewrite,
    placements: &[Placement],
    places: &BTreeMap<u64, StripeRecord>,
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
        let mut old = places.iter();
        let mut new = rewrite.offsets.iter().zip(placements);
        let is_kept = new.all(|(offset, place)| {
            old.next()
                .is_some_and(|(at, old)| at == offset && old.chunk_bytes == place.chunk_bytes)
        });
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
    txn: &mut dyn WriteTxn,
    file: &mut FileRecord,
    change: SizeChange,
) -> Result<(), MetaError> {
    let size = change.applied_to(file.size_bytes);
    if size < file.size_bytes {
        let segment_bytes = pool(txn, file.pool)?.spec.segment_bytes();
        let first = size - size % segment_bytes;
        let reaches = |found: &Found| found.offset.saturating_add(found.extent.length_bytes) > size;
        // The second one begins behind the new end.
        if extents_from(txn, file.map, first, 2)?.iter().any(reaches) {
            return Err(MetaError::FileChanged("it has bytes behind its new end"));
        }
        file.truncation_count = FILES.recount(&file.put, file.truncation_count, (1, 0))?;
    }
    if size == file.size_bytes {
        return Ok(());
    }
    file.size_bytes = size;
    note_resize(txn, file)
}

/// Counts the stripes of the cluster after a file that had `before` stripes has got others, and `copy_count` shared
/// ones were copied.
fn recount(
    txn: &mut dyn WriteTxn,
    file: &FileRecord,
    before: u64,
    copy_count: u64,
) -> Result<(), MetaError> {
    if file.stripe_count > FILE_STRIPES_MAX {
        return Err(MetaError::FileTooLarge);
    }
    // A displaced stripe that was shared has a copy in its place.
    Counter::StripeCount.lower(txn, before)?;
    Counter::StripeCount.raise(txn, file.stripe_count + copy_count)?;
    Ok(())
}
