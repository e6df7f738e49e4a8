//! Puts, which store files. A put reserves stripe ids and nodes, some at a time; its client writes their chunks; the
//! commit makes the file visible with all its stripes at once. Before the commit no part of it is visible. If the
//! client fails at any point, no id is reused and no chunk is forgotten.

use crate::attributes::{Attributes, NewAttributes};
use crate::directories::{link, make_parents};
use crate::directory_rows::absolute;
use crate::directory_uses::check_put;
use crate::displaced::release_displaced;
use crate::entering::{cut, enter, forget_anew, forget_anew_from};
use crate::error::MetaError;
use crate::files::{check_name, file_row, make_way, put_file_over};
use crate::ids::{Change, Leased};
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::layers::release;
use crate::meta::Meta;
use crate::names::{check_attributes, check_file_name};
use crate::node_rows::staying_node;
use crate::paths::RelativePath;
use crate::pending::pending_stripes;
use crate::pool_spec::PoolSpec;
use crate::pools::{left_out_max, pool};
use crate::quotas::{
    check_bytes, check_files, check_more, count_file, count_stripes, uncount_stripe,
};
use crate::records::{
    Existing, FileRecord, Inode, MapId, Placement, PoolRecord, PutId, PutRecord, PutTarget,
    StripeRun,
};
use crate::schema::{COMMITTED, GARBAGE, PENDING, PUTS};
use gabion_layout::{
    ChunkIndex, Generation, NodeId, PoolId, RackId, StaleChunk, StripeId, StripeRecord,
};
use std::collections::{BTreeMap, BTreeSet};

/// The generation of a stripe that has not changed since it was placed.
const FIRST: Generation = Generation(1);

/// Most stripes of a put that are reserved and have not entered the map of its file: one transaction may change all of
/// them.
pub const PENDING_STRIPES_MAX: u64 = 512;

/// Later ids of puts that may be used before a commit is forgotten: far more than while its client waits for an answer.
const REMEMBERED_COUNT: u64 = 1 << 20;

/// A put that has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put {
    /// Its id, to touch, commit or abort it.
    pub id: PutId,
    /// The stripes to write, one a segment.
    pub stripes: Vec<StripeRecord>,
}

impl<K: KeyValue> Meta<K> {
    /// Begins a put. Segments fill in order: each but the last has the pool's full chunk size, and
    /// the last is large enough for the rest. A put of more stripes than one transaction reserves is extended. The name
    /// stays free for others: of two puts of one name the first to commit wins, or the last if they replace `existing`
    /// files.
    ///
    /// # Errors
    /// [`MetaError::FileName`], [`MetaError::Attributes`], [`MetaError::FileExists`],
    /// [`MetaError::FileReplaced`], [`MetaError::UnknownPool`],
    /// [`MetaError::Placement`] when sizes, counts or racks break the pool's rules,
    /// [`MetaError::UnknownNode`], [`MetaError::NodeFailed`] when a stripe would not survive the loss of
    /// one more chunk, [`MetaError::NodeLeaving`], [`MetaError::IdsExhausted`]; [`MetaError::Quota`].
    pub fn begin_put(
        &self,
        (at, existing, attributes): (impl Into<RelativePath>, Existing, NewAttributes),
        pool_id: PoolId,
        size_bytes: u64,
        placements: &[Placement],
        now_ms: u64,
    ) -> Result<Put, MetaError> {
        let at = at.into();
        check_attributes(&attributes.into())?;
        self.change(|txn| {
            let name = absolute(txn, &at)?;
            check_file_name(&name)?;
            let present = check_name(txn, &name, existing)?;
            let present = present.map(|put| file_row(txn, put)).transpose()?;
            // An open one stays without a name.
            let is_freed = |file: &FileRecord| {
                file.pool == pool_id && file.link_count == 1 && !txn.keeps(file.put)
            };
            match check_files(txn, pool_id) {
                Err(MetaError::Quota(_)) if present.as_ref().is_some_and(is_freed) => {}
                checked => checked?,
            }
            check_put(txn, &name, size_bytes, |file| txn.keeps(file))?;
            let record = pool(txn, pool_id)?;
            check_all_sizes(txn, &record, (size_bytes, 0), placements)?;
            let failed = check_nodes(txn, &record.spec, placements, left_out_max(&record))?;
            let placements: Vec<_> = placements.iter().map(|place| (pool_id, place)).collect();
            check_bytes(txn, &record, &placements, 0)?;
            let target = PutTarget::New {
                at: at.clone(),
                existing,
                pool: pool_id,
                size_bytes,
                attributes,
            };
            reserve(txn, target, &placements, &failed, now_ms)
        })
    }

    /// Refuses a put of this size for which a quota has no room. The stripes are counted when they are reserved.
    ///
    /// # Errors
    /// [`MetaError::UnknownPool`]; [`MetaError::DirectoryGone`]; [`MetaError::Quota`].
    pub fn check_room_of_put(
        &self,
        at: &RelativePath,
        pool_id: PoolId,
        size_bytes: u64,
    ) -> Result<(), MetaError> {
        self.store.read(|txn| {
            check_put(txn, &absolute(txn, at)?, size_bytes, |_| false)?;
            check_more(txn, &pool(txn, pool_id)?, size_bytes)
        })
    }

    /// Notes that the first `stored_count` stripes of a put are stored: some of them, the first ones that have not yet,
    /// enter the map of the file. The caller guarantees that each chunk of them is durable on its node. Returns those
    /// that have entered it now. May be repeated.
    ///
    /// # Errors
    /// [`MetaError::UnknownPut`], also for a put into an existing file; [`MetaError::PutLost`].
    pub fn enter_stripes(
        &self,
        put: PutId,
        stored_count: u64,
    ) -> Result<Vec<StripeRecord>, MetaError> {
        self.change(|txn| {
            let mut record = put_record(txn, put)?;
            let PutTarget::New { pool: of, .. } = record.target else {
                return Err(MetaError::UnknownPut(put));
            };
            // Blocks of one segment stay together, since their places are checked together.
            let unit = match pool(txn, of)?.lifecycle {
                None => 1,
                Some(lifecycle) => pool(txn, lifecycle.encoded)?.spec.k.max(1) as u64,
            };
            let whole = |count: u64| count - count % unit;
            let more = whole(stored_count).saturating_sub(record.entered_count);
            let entered = enter(txn, &mut record, more.min(whole(PENDING_STRIPES_MAX)))?;
            PUTS.put(txn, &put, &record)?;
            Ok(entered)
        })
    }

    /// The pool of the file that an open put is to make.
    ///
    /// # Errors
    /// [`MetaError::UnknownPut`], also for a put into an existing file.
    pub fn pool_of_put(&self, put: PutId) -> Result<PoolId, MetaError> {
        self.store.read(|txn| match put_record(txn, put)?.target {
            PutTarget::New { pool, .. } => Ok(pool),
            PutTarget::Stripes(_) => Err(MetaError::UnknownPut(put)),
        })
    }

    /// Reserves more stripes for a put, and drops those behind the first `kept_count`, of which no chunk counts
    /// any more. The file has `size_bytes` bytes then. Does nothing if this was the last extension of the put, the
    /// one of this `step`: a lost answer leads to a second request. Returns the stripes that have not entered the map
    /// of the file, and how many have.
    ///
    /// # Errors
    /// [`MetaError::UnknownPut`], also for a put into an existing file; [`MetaError::PutStep`] for a late message;
    /// those of places as for [`Meta::begin_put`]; [`MetaError::IdsExhausted`]; [`MetaError::Quota`].
    pub fn extend_put(
        &self,
        put: PutId,
        (step, kept_count): (u64, u64),
        size: u64,
        placements: &[Placement],
        now_ms: u64,
    ) -> Result<(u64, Vec<StripeRecord>), MetaError> {
        self.change(|txn| {
            let mut record = put_record(txn, put)?;
            let PutTarget::New {
                ref at,
                pool: pool_id,
                ..
            } = record.target
            else {
                return Err(MetaError::UnknownPut(put));
            };
            let mut stripes = pending_stripes(txn, &record)?;
            let entered_count = record.entered_count;
            // Before the checks: an extension that was made is not refused because there is no room for another one.
            if step.checked_add(1) == Some(record.step) {
                return Ok((entered_count, stripes));
            }
            check_put(txn, &absolute(txn, at)?, size, |file| txn.keeps(file))?;
            // Those that have entered were stored, so the client keeps them.
            let kept = kept_count.checked_sub(entered_count);
            let Some(kept) = kept.filter(|_| step == record.step) else {
                let step = record.step;
                return Err(MetaError::PutStep { put, step });
            };
            if let PutTarget::New {
                ref mut size_bytes, ..
            } = record.target
            {
                *size_bytes = size;
            }
            let kept = usize::try_from(kept).unwrap_or(usize::MAX);
            let kept = kept.min(stripes.len());
            for stripe in stripes.split_off(kept) {
                abandon(txn, &stripe)?;
            }
            forget_anew_from(txn, &record, kept)?;
            cut(&mut record.runs, kept as u64);
            let held = pool(txn, pool_id)?;
            let kept_sizes = stripes.iter().map(|stripe| Placement {
                chunk_bytes: stripe.chunk_bytes,
                nodes: Vec::new(),
            });
            let all: Vec<_> = kept_sizes.chain(placements.iter().cloned()).collect();
            check_all_sizes(txn, &held, (size, record.entered_bytes), &all)?;
            let failed = check_nodes(txn, &held.spec, placements, left_out_max(&held))?;
            let placements: Vec<_> = placements.iter().map(|place| (pool_id, place)).collect();
            check_bytes(txn, &held, &placements, 0)?;
            let (run, new) = reserve_stripes(txn, &placements, &failed)?;
            record.runs.extend(run);
            record.step = PUTS.recount(&put, record.step, (1, 0))?;
            record.touched_ms = record.touched_ms.max(now_ms);
            PUTS.put(txn, &put, &record)?;
            stripes.extend(new);
            Ok((entered_count, stripes))
        })
    }

    /// Makes the file of a put visible. The caller guarantees that every chunk is durable on its
    /// node. After an error the put remains open.
    ///
    /// # Errors
    /// [`MetaError::CommittedBefore`] when a commit with a lost answer is repeated, until 1,048,576
    /// more ids of puts were used; [`MetaError::UnknownPut`]; [`MetaError::FileExists`] and
    /// [`MetaError::FileReplaced`] when another file has the name by now; [`MetaError::PutLost`];
    /// [`MetaError::Quota`] when the pool has all its files by now.
    pub fn commit_put(&self, put: PutId, now_ms: u64) -> Result<FileRecord, MetaError> {
        let now = self.wall_time();
        self.change(|txn| {
            check_not_committed(txn, put)?;
            let mut record = put_record(txn, put)?;
            let PutTarget::New {
                ref at,
                existing,
                pool,
                size_bytes,
                attributes,
            } = record.target
            else {
                return Err(MetaError::UnknownPut(put));
            };
            let name = absolute(txn, at)?;
            check_file_name(&name)?;
            let freed = make_way(txn, &name, existing, now)?;
            if freed.as_ref().map(|freed| freed.pool) != Some(pool) {
                check_files(txn, pool)?;
            }
            enter(txn, &mut record, u64::MAX)?;
            let stripe_count = record.entered_count;
            let attributes = Attributes::new(attributes, now);
            let (directory, last) = make_parents(txn, &name, (attributes.for_parent(), now))?;
            let key = (directory, last.to_owned());
            let named = (directory, name);
            let file = FileRecord {
                size_bytes,
                stripe_count,
                ..FileRecord::new(named, (put, pool), attributes, now_ms)
            };
            link(txn, &key, Inode::File(put), now)?;
            count_file(txn, &file)?;
            put_file_over(txn, &file, freed.as_ref())?;
            end_committed(txn, put)?;
            Ok(file)
        })
    }

    /// Aborts a put; its stripes become garbage, those that have entered its map by [`Meta::discard_removed`]. If it
    /// was a replacement, its leases end. Returns whether it was open: a committed or aborted one stays unchanged.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn abort_put(&self, put: PutId) -> Result<bool, MetaError> {
        self.change(|txn| {
            let Some(record) = PUTS.get(txn, &put)? else {
                return Ok(false);
            };
            for stripe in pending_stripes(txn, &record)? {
                abandon(txn, &stripe)?;
            }
            forget_anew(txn, &record)?;
            if record.entered_count > 0 {
                release(txn, MapId(put.0))?;
            }
            release_displaced(txn, put)?;
            PUTS.delete(txn, &put)?;
            Ok(true)
        })
    }

    /// All open puts, by id.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn puts(&self) -> Result<Vec<PutRecord>, MetaError> {
        let rows = self
            .store
            .read(|txn| PUTS.scan(txn, &PUTS.all(), usize::MAX))?;
        Ok(rows.into_iter().map(|(_, record)| record).collect())
    }
}

/// Creates a put, and its stripes with their pools and new ids.
pub(crate) fn reserve(
    txn: &mut Change<'_>,
    target: PutTarget,
    placements: &[(PoolId, &Placement)],
    failed: &BTreeSet<NodeId>,
    now_ms: u64,
) -> Result<Put, MetaError> {
    let (run, stripes) = reserve_stripes(txn, placements, failed)?;
    let id = PutId(txn.take(Leased::Put, 1)?);
    let record = PutRecord {
        id,
        target,
        runs: run.into_iter().collect(),
        entered_count: 0,
        entered_bytes: 0,
        step: 0,
        touched_ms: now_ms,
    };
    PUTS.put(txn, &id, &record)?;
    Ok(Put { id, stripes })
}

/// Creates stripes of an open put with new ids. Returns the run of these, if there are any.
fn reserve_stripes(
    txn: &mut Change<'_>,
    placements: &[(PoolId, &Placement)],
    failed: &BTreeSet<NodeId>,
) -> Result<(Option<StripeRun>, Vec<StripeRecord>), MetaError> {
    let stripe_count = placements.len() as u64;
    if stripe_count == 0 {
        return Ok((None, Vec::new()));
    }
    let first = txn.take(Leased::Stripe, stripe_count)?;
    let stripe = |(id, &(pool, place)): (u64, &(PoolId, &Placement))| StripeRecord {
        id: StripeId(id),
        pool,
        chunk_bytes: place.chunk_bytes,
        generation: FIRST,
        nodes: place.nodes.clone(),
        stale: left_out(&place.nodes, failed),
    };
    let stripes: Vec<_> = (first..).zip(placements).map(stripe).collect();
    for stripe in &stripes {
        PENDING.put(txn, &stripe.id, stripe)?;
    }
    count_stripes(txn, &stripes)?;
    let run = StripeRun {
        first: StripeId(first),
        count: stripe_count,
    };
    Ok((Some(run), stripes))
}

/// Makes a pending stripe garbage.
fn abandon(txn: &mut dyn WriteTxn, stripe: &StripeRecord) -> Result<(), MetaError> {
    PENDING.delete(txn, &stripe.id)?;
    uncount_stripe(txn, stripe)?;
    GARBAGE.put(txn, &stripe.id, stripe)
}

/// Refuses a put that was committed, as long as that is remembered.
pub(crate) fn check_not_committed(txn: &dyn ReadTxn, put: PutId) -> Result<(), MetaError> {
    match COMMITTED.get(txn, &put)? {
        Some(()) => Err(MetaError::CommittedBefore(put)),
        None => Ok(()),
    }
}

/// Refuses a put of which it is not remembered whether it was committed.
pub(crate) fn check_remembered(txn: &Change<'_>, put: PutId) -> Result<(), MetaError> {
    if put.0.saturating_add(REMEMBERED_COUNT) < txn.next(Leased::Put) {
        return Err(MetaError::PutForgotten(put));
    }
    Ok(())
}

/// Ends a committed put, and forgets the oldest remembered ones.
pub(crate) fn end_committed(txn: &mut Change<'_>, put: PutId) -> Result<(), MetaError> {
    PUTS.delete(txn, &put)?;
    COMMITTED.put(txn, &put, &())?;
    let next = txn.next(Leased::Put);
    // Two at a time, so that the rows do not accumulate when few puts begin between two commits.
    for (oldest, ()) in COMMITTED.scan(txn, &COMMITTED.all(), 2)? {
        if oldest.0.saturating_add(REMEMBERED_COUNT) < next {
            COMMITTED.delete(txn, &oldest)?;
        }
    }
    Ok(())
}

pub(crate) fn put_record(txn: &dyn ReadTxn, put: PutId) -> Result<PutRecord, MetaError> {
    PUTS.get(txn, &put)?.ok_or(MetaError::UnknownPut(put))
}

/// Checks the sizes of the stripes of a put in a pool, for a file of `sizes.0` bytes, of which stripes with `sizes.1`
/// bytes have entered its map.
fn check_all_sizes(
    txn: &dyn ReadTxn,
    record: &PoolRecord,
    sizes: (u64, u64),
    placements: &[Placement],
) -> Result<(), MetaError> {
    if placements.len() as u64 > PENDING_STRIPES_MAX {
        let count = placements.len();
        let problem = format!(
            "{count} stripes are to be stored at a time, not {PENDING_STRIPES_MAX} at most"
        );
        let segment = 0;
        return Err(MetaError::Placement { segment, problem });
    }
    match record.lifecycle {
        None => check_sizes(&record.spec, sizes, placements),
        Some(lifecycle) => {
            let encoded = pool(txn, lifecycle.encoded)?.spec;
            check_sizes(&encoded, sizes, &as_segments(&encoded, placements)?)
        }
    }
}

/// The segments of replicated blocks, `encoded.k` of them each: one placement for each, without
/// meaningful nodes.
fn as_segments(encoded: &PoolSpec, blocks: &[Placement]) -> Result<Vec<Placement>, MetaError> {
    let segments = blocks.chunks(encoded.k).enumerate();
    let segments = segments.map(|(segment, blocks)| {
        let chunk_bytes = blocks[0].chunk_bytes;
        if blocks.len() != encoded.k || blocks.iter().any(|b| b.chunk_bytes != chunk_bytes) {
            let problem = format!("it does not have {} blocks of one size", encoded.k);
            return Err(MetaError::Placement { segment, problem });
        }
        let nodes = Vec::new();
        Ok(Placement { chunk_bytes, nodes })
    });
    segments.collect()
}

/// Checks that segments fill in order without waste, so that an offset alone determines its
/// segment. Those that have entered the map are full ones.
fn check_sizes(
    spec: &PoolSpec,
    (size_bytes, entered_bytes): (u64, u64),
    placements: &[Placement],
) -> Result<(), MetaError> {
    let (k, rows) = (spec.k as u64, spec.sub_chunks as u64);
    let full = u128::from(k) * u128::from(spec.chunk_bytes);
    let rest = size_bytes.checked_sub(entered_bytes);
    let rest = rest.filter(|_| u128::from(entered_bytes).is_multiple_of(full));
    let Some(size_bytes) = rest else {
        let problem = format!("{entered_bytes} bytes are stored in stripes before it");
        let segment = 0;
        return Err(MetaError::Placement { segment, problem });
    };
    let needed = u128::from(size_bytes).div_ceil(full);
    if placements.len() as u128 != needed {
        return Err(MetaError::Placement {
            segment: placements.len(),
            problem: format!(
                "{size_bytes} bytes need {needed} segments of {full} bytes, not {}",
                placements.len()
            ),
        });
    }
    for (segment, place) in placements.iter().enumerate() {
        let last = segment + 1 == placements.len();
        let needed_bytes = if last {
            let rest = u128::from(size_bytes) - full * segment as u128;
            u64::try_from(rest.div_ceil(u128::from(k))).expect("at most the file's bytes")
        } else {
            spec.chunk_bytes
        };
        let bytes = place.chunk_bytes;
        if bytes < needed_bytes || bytes > spec.chunk_bytes || !bytes.is_multiple_of(rows) {
            return Err(MetaError::Placement {
                segment,
                problem: format!(
                    "its chunks must have {needed_bytes} to {} bytes in {rows} equal rows, not {bytes} bytes",
                    spec.chunk_bytes
                ),
            });
        }
    }
    Ok(())
}

/// The chunks of a new stripe that are not stored, since their nodes have failed.
pub(crate) fn left_out(nodes: &[NodeId], failed: &BTreeSet<NodeId>) -> Vec<StaleChunk> {
    let left_out = nodes.iter().enumerate();
    let left_out = left_out.filter(|(_, node)| failed.contains(node));
    let stale = left_out.map(|(chunk, _)| StaleChunk {
        chunk: ChunkIndex::new(chunk),
        missed_after: None,
    });
    stale.collect()
}

/// Checks each segment's nodes: one node for each chunk, no rack with too many chunks, and at most
/// the allowed number of failed nodes, which are returned.
pub(crate) fn check_nodes(
    txn: &dyn ReadTxn,
    spec: &PoolSpec,
    placements: &[Placement],
    left_out_max: usize,
) -> Result<BTreeSet<NodeId>, MetaError> {
    // Each node is looked up once for all segments.
    let all: BTreeSet<NodeId> = placements.iter().flat_map(|p| p.nodes.clone()).collect();
    let (mut racks, mut failed) = (BTreeMap::new(), BTreeSet::new());
    for id in all {
        let record = staying_node(txn, id)?;
        racks.insert(id, record.rack);
        if record.failed {
            failed.insert(id);
        }
    }
    for place in placements {
        let mut left_out = place.nodes.iter().filter(|node| failed.contains(node));
        if let Some(&node) = left_out.nth(left_out_max) {
            return Err(MetaError::NodeFailed(node));
        }
    }
    let n = spec.k + spec.m;
    for (segment, place) in placements.iter().enumerate() {
        let wrong = |problem| MetaError::Placement { segment, problem };
        let distinct: BTreeSet<NodeId> = place.nodes.iter().copied().collect();
        if place.nodes.len() != n || distinct.len() != n {
            return Err(wrong(format!(
                "its {n} chunks need {n} different nodes, not {} ({} different)",
                place.nodes.len(),
                distinct.len()
            )));
        }
        let mut chunks: BTreeMap<RackId, usize> = BTreeMap::new();
        for node in &place.nodes {
            *chunks.entry(racks[node]).or_default() += 1;
        }
        let crowded = chunks
            .iter()
            .find(|(_, count)| **count > spec.chunks_per_rack);
        if let Some((rack, count)) = crowded {
            return Err(wrong(format!(
                "{rack} would hold {count} of its chunks, and the pool allows {}",
                spec.chunks_per_rack
            )));
        }
    }
    Ok(failed)
}
