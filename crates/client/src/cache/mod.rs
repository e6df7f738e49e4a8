//! A client's segment cache (thesis section 4.4.4: an LRU cache of segments, which batches frequent
//! updates of a segment and answers reads of it). All files that a client opens through it share
//! its cache, which has a size limit.
//!
//! The cache need not hold whole segments: any range of one may be valid, and any part of that
//! changed. Changes of a segment accumulate until they are written back, if possible by one update;
//! this happens when a file is flushed or closed, and when changes take half of the memory. Other
//! bytes are evicted page by page, from the least recently used segments first.
//!
//! Rules that keep overlapping requests consistent:
//! - One write to the cluster at a time is in flight for a segment, so none overtakes another.
//! - Bytes changed again while they are being written stay changed.
//! - A read in flight is not kept where its bytes were overwritten here after it began.
//! - Bytes that were cached before a file was opened are served to that opening only if the cluster
//!   confirms that the segment still has their version.
//!
//! Unlike the caches of distributed file systems with leases or call-backs, this one sees others'
//! writes only when a file is opened.

mod backing;
mod counts;
mod range_set;
mod segment;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use backing::Backing;
pub use counts::CacheCounts;

use crate::error::ClientError;
use crate::extent::Extent;
use crate::moment::Version;
use crate::open_runs::LastAttempt;
use bytes::Bytes;
use event_listener::Event;
use futures::stream::{self, StreamExt};
use gabion_layout::ByteRange;
use gabion_meta::PutId;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use table::{Key, Reading, Table, UPDATE_RANGES_MAX, Writing};

/// Segments that a flush writes back at a time.
const WRITE_BACK_PARALLEL_COUNT: usize = 8;
/// Failed write-backs after which a writer stops looking for space. The first may be of a removed
/// file; two indicate a larger problem.
const DISPLACE_FAILURES_MAX: usize = 2;

/// The cached segments of a client.
pub(crate) struct SegmentCache<B: Backing> {
    table: Mutex<Table<B::File>>,
    /// Signals the end of a write to the cluster.
    ended: Event,
}

/// A file as opened.
#[derive(Clone)]
pub(crate) struct Handle<F> {
    pub(crate) file: F,
    pub(crate) put: PutId,
    /// Bytes cached before this moment must be confirmed.
    pub(crate) opened_at: u64,
    /// Flushes of this opening have told of the bytes that were dropped up to this moment. Clones share it.
    told_at: Arc<AtomicU64>,
}

impl<F> Handle<F> {
    /// An opening of a file that began at `opened_at`.
    pub(crate) fn new(file: F, put: PutId, opened_at: u64) -> Self {
        Self {
            file,
            put,
            opened_at,
            told_at: Arc::new(AtomicU64::new(opened_at)),
        }
    }
}

/// Segments being written to the cluster, until this is dropped.
struct Leaving<'a, B: Backing> {
    cache: &'a SegmentCache<B>,
    keys: Vec<Key>,
    /// The last attempt of the write, if it is a write-back.
    last_attempt: LastAttempt,
    /// The ranges of a write past the cache, and whether each is known to have arrived.
    passing: Vec<(Key, ByteRange)>,
    has_passed: bool,
}

/// A read from the cluster, which ends when this is dropped.
struct Fetching<'a, B: Backing> {
    cache: &'a SegmentCache<B>,
    key: Key,
    fetch: u64,
}

impl<B: Backing> SegmentCache<B> {
    /// A cache of this size; with 0 bytes all requests bypass it.
    pub(crate) fn new(capacity_bytes: u64, read_ahead_bytes: u64) -> Self {
        Self {
            table: Mutex::new(Table::new(capacity_bytes, read_ahead_bytes)),
            ended: Event::new(),
        }
    }

    /// This moment; each is unique.
    pub(crate) fn now(&self) -> u64 {
        self.table().now()
    }

    pub(crate) fn counts(&self) -> CacheCounts {
        self.table().counts()
    }

    /// Reads a piece of a segment that has `segment_bytes` bytes.
    pub(crate) async fn read(
        &self,
        backing: &B,
        handle: &Handle<B::File>,
        extent: Extent,
        segment_bytes: u64,
    ) -> Result<Vec<u8>, ClientError> {
        let (key, range) = (handle.key(&extent), extent.range);
        let mut is_hit = true;
        let bytes = loop {
            let opened_at = handle.opened_at;
            let next = self
                .table()
                .read(key, &handle.file, extent, segment_bytes, opened_at);
            match next {
                Reading::Hit(bytes) => break bytes,
                Reading::Check(now) => {
                    let version = backing.version(&handle.file, extent).await;
                    self.table().check(key, now, version);
                }
                Reading::Fetch(fetch, missing) => {
                    is_hit = false;
                    let fetching = Fetching {
                        cache: self,
                        key,
                        fetch,
                    };
                    let piece = Extent {
                        range: missing,
                        file_offset: extent.file_offset - range.offset + missing.offset,
                        ..extent
                    };
                    let moment = backing.read(&handle.file, piece).await?;
                    let offset = missing.offset;
                    let bytes = self.table().fetched(key, fetch, range, offset, &moment);
                    drop(fetching);
                    if let Some(bytes) = bytes {
                        break bytes;
                    }
                }
            }
        };
        let counts = &mut self.table().counts;
        counts.read_bytes += range.length;
        counts.read_hit_count += u64::from(is_hit);
        counts.read_miss_count += u64::from(!is_hit);
        Ok(bytes)
    }

    /// Writes bytes of a file to `extents`. The cache keeps them as changes, unless they are large
    /// or there is no space; then they are durable at once.
    pub(crate) async fn write(
        &self,
        backing: &B,
        handle: &Handle<B::File>,
        extents: &[Extent],
        bytes: &Bytes,
    ) -> Result<(), ClientError> {
        let is_large = self.table().is_large(bytes.len() as u64);
        if is_large {
            return self.write_through(backing, handle, extents, bytes).await;
        }
        let start = extents.first().map_or(0, |extent| extent.file_offset);
        for &extent in extents {
            let from = (extent.file_offset - start) as usize;
            let piece = bytes.slice(from..from + extent.range.length as usize);
            if !self.keep(backing, handle, &extent, &piece).await {
                self.write_through(backing, handle, &[extent], &piece)
                    .await?;
            }
        }
        Ok(())
    }

    /// Takes a change in, and writes others back first if needed. Returns whether there was space.
    async fn keep(
        &self,
        backing: &B,
        handle: &Handle<B::File>,
        extent: &Extent,
        bytes: &Bytes,
    ) -> bool {
        let (key, offset) = (handle.key(extent), extent.range.offset);
        let mut tried = BTreeSet::new();
        while tried.len() < DISPLACE_FAILURES_MAX {
            let ended = self.ended.listen();
            let next = self.table().write(key, &handle.file, offset, bytes, &tried);
            match next {
                Writing::Done => return true,
                Writing::Full => return false,
                Writing::Wait => ended.await,
                Writing::Displace(other) => {
                    if self.write_back(backing, other).await.is_ok() {
                        self.table().counts.displaced_count += 1;
                    } else {
                        tried.insert(other);
                    }
                }
            }
        }
        false
    }

    /// Writes bytes of a file to the cluster at once. Cached changes of these bytes are older and
    /// are dropped, unless the bytes change again during the write.
    async fn write_through(
        &self,
        backing: &B,
        handle: &Handle<B::File>,
        extents: &[Extent],
        bytes: &Bytes,
    ) -> Result<(), ClientError> {
        let Some(first) = extents.first() else {
            return Ok(());
        };
        let parts = extents
            .iter()
            .map(|extent| (handle.key(extent), extent.range));
        let parts = parts.collect();
        self.pass(backing, handle, parts, (first.file_offset, bytes))
            .await
    }

    /// Writes bytes of a file into a hole at once. Cached bytes of the hole come from earlier stripes, so they are
    /// dropped.
    pub(crate) async fn fill_hole(
        &self,
        backing: &B,
        handle: &Handle<B::File>,
        offset: u64,
        bytes: &Bytes,
    ) -> Result<(), ClientError> {
        let hole = ByteRange::new(offset, bytes.len() as u64);
        let parts = self.table().segments_in(handle.put, hole);
        self.pass(backing, handle, parts, (offset, bytes)).await?;
        // Reads that began before the hole was filled may be of an earlier stripe.
        self.table().forget_range(handle.put, hole);
        Ok(())
    }

    /// The changes of a range of a file, each from its offset in the file on.
    pub(crate) fn changes(
        &self,
        handle: &Handle<B::File>,
        range: ByteRange,
    ) -> Vec<(u64, Vec<u8>)> {
        self.table().changes_in(handle.put, range)
    }

    /// Writes bytes to the cluster from an offset in the file on; `parts` has the cached segments that they concern.
    async fn pass(
        &self,
        backing: &B,
        handle: &Handle<B::File>,
        parts: Vec<(Key, ByteRange)>,
        (offset, bytes): (u64, &Bytes),
    ) -> Result<(), ClientError> {
        let keys = parts.iter().map(|&(key, _)| key).collect();
        let mut leaving = self.take_all(keys, &handle.file).await;
        for &(key, _) in &parts {
            // It must not take effect behind this write.
            self.decide(backing, key).await?;
        }
        for &(key, range) in &parts {
            self.table().pass(key, range);
        }
        leaving.passing = parts;
        backing.write(&handle.file, offset, bytes.clone()).await?;
        leaving.has_passed = true;
        self.table().counts.write_through_count += 1;
        Ok(())
    }

    /// Writes back the current changes of one segment.
    ///
    /// # Errors
    /// The error of the first update that failed; its bytes and those behind it are still changed.
    async fn write_back(&self, backing: &B, key: Key) -> Result<(), ClientError> {
        let Some(leaving) = self.take_changed(key).await else {
            return Ok(());
        };
        self.decide(backing, key).await?;
        let mut left = self.table().changes(key);
        let mut range_count_max = UPDATE_RANGES_MAX;
        loop {
            let batch = self.table().next_batch(key, &mut left, range_count_max);
            let Some(batch) = batch else { break };
            let count = batch.bytes.len() as u64;
            let sent = backing
                .update(
                    &batch.file,
                    key.at,
                    &batch.ranges,
                    batch.bytes.into(),
                    &leaving.last_attempt,
                )
                .await;
            if let Ok(None) = sent {
                // One by one: it must be known which of them have arrived.
                range_count_max = 1;
                left = self.table().changes(key);
                continue;
            }
            let sent = sent.map(|version| version.unwrap_or(Version::NONE));
            self.table().sent(key, count, sent.as_ref().ok().copied());
            sent?;
            // It has arrived.
            leaving.last_attempt.take_doubt();
        }
        drop(leaving);
        Ok(())
    }

    /// Determines whether the last write-back of a taken segment took effect, if that is unknown:
    /// bytes that have arrived must not be written again, over later writes of others.
    ///
    /// # Errors
    /// If it cannot be determined now, or never ([`ClientError::Forgotten`]). The bytes stay in doubt.
    async fn decide(&self, backing: &B, key: Key) -> Result<(), ClientError> {
        let Some((file, attempted)) = self.table().doubted(key) else {
            return Ok(());
        };
        let made = backing.decide(&file, &attempted).await;
        self.table().decide(key, made?);
        Ok(())
    }

    /// Drops the bytes of a write-back whose outcome is unknown: a second write could undo later writes of
    /// others. The next flush of each opening reports it.
    async fn forget(&self, key: Key, name: String) {
        let Some(leaving) = self.take_changed(key).await else {
            return;
        };
        self.table().forget(key, name);
        drop(leaving);
    }

    /// Writes back the current changes of one file, or of all.
    ///
    /// # Errors
    /// [`ClientError::NotWrittenBack`] with the first error; all other changes were written back.
    /// [`ClientError::Forgotten`] when the outcome of an earlier write-back cannot be determined any more: its bytes
    /// are dropped, by this flush or by another one that this opening has not reported yet.
    pub(crate) async fn flush(
        &self,
        backing: &B,
        handle: Option<&Handle<B::File>>,
    ) -> Result<(), ClientError> {
        let put = handle.map(|handle| handle.put);
        let told_at = handle.map_or_else(
            || self.now(),
            |handle| handle.told_at.load(Ordering::Relaxed),
        );
        let keys = self.table().changed(put);
        self.table().counts.flush_count += 1;
        let sent = keys.into_iter().map(async |key| {
            let sent = self.write_back(backing, key).await;
            match sent {
                Err(ClientError::Forgotten(name)) => {
                    self.forget(key, name).await;
                    Ok(())
                }
                sent => sent,
            }
        });
        let sent = stream::iter(sent).buffer_unordered(WRITE_BACK_PARALLEL_COUNT);
        let results: Vec<Result<(), ClientError>> = sent.collect().await;
        if let Some((at, name)) = self.table().forgotten_since(put, told_at) {
            if let Some(handle) = handle {
                handle.told_at.fetch_max(at, Ordering::Relaxed);
            }
            return Err(ClientError::Forgotten(name));
        }
        let all: Result<(), ClientError> = results.into_iter().collect();
        all.map_err(|source| ClientError::NotWrittenBack {
            source: Box::new(source),
        })
    }

    /// Discards the changes of all files for which this holds. Returns their bytes.
    pub(crate) async fn discard(&self, is_meant: impl Fn(&B::File) -> bool) -> u64 {
        let keys = self.table().changed_where(is_meant);
        let mut discarded_bytes = 0;
        for key in keys {
            if let Some(leaving) = self.take_changed(key).await {
                discarded_bytes += self.table().discard(key);
                drop(leaving);
            }
        }
        discarded_bytes
    }

    /// Takes segments for a write to the cluster when none of them is taken; adds missing ones.
    async fn take_all(&self, keys: Vec<Key>, file: &B::File) -> Leaving<'_, B> {
        loop {
            let ended = self.ended.listen();
            if self.table().take_all(&keys, file) {
                return Leaving::of(self, keys);
            }
            ended.await;
        }
    }

    /// Takes a segment for a write to the cluster when it is not taken; none if it has no changes.
    async fn take_changed(&self, key: Key) -> Option<Leaving<'_, B>> {
        loop {
            let ended = self.ended.listen();
            if self.table().take_changed(key)? {
                return Some(Leaving::of(self, vec![key]));
            }
            ended.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table<B::File>> {
        // A panic in the table is a bug that may have left it inconsistent: no operation continues
        // after that.
        self.table.lock().expect("the cache's table is consistent")
    }
}

impl<F> Handle<F> {
    fn key(&self, extent: &Extent) -> Key {
        Key {
            file: self.put,
            at: extent.start,
        }
    }
}

impl<'a, B: Backing> Leaving<'a, B> {
    fn of(cache: &'a SegmentCache<B>, keys: Vec<Key>) -> Self {
        Self {
            cache,
            keys,
            last_attempt: LastAttempt::default(),
            passing: Vec::new(),
            has_passed: false,
        }
    }
}

impl<B: Backing> Drop for Leaving<'_, B> {
    fn drop(&mut self) {
        // After a panic in the table, it is no longer used.
        let Ok(mut table) = self.cache.table.lock() else {
            return;
        };
        for &(key, range) in &self.passing {
            table.passed(key, range, self.has_passed);
        }
        if let (Some(attempted), [key]) = (self.last_attempt.take_doubt(), self.keys.as_slice()) {
            table.doubt(*key, attempted);
        }
        table.end_leaving(&self.keys);
        drop(table);
        self.cache.ended.notify(usize::MAX);
    }
}

impl<B: Backing> Drop for Fetching<'_, B> {
    fn drop(&mut self) {
        if let Ok(mut table) = self.cache.table.lock() {
            table.end_fetch(self.key, self.fetch);
        }
    }
}
