//! A client's segment cache (thesis section 4.4.4: an LRU cache of segments, in which frequent
//! updates of a segment are batched and its reads answered). The cache of one client is shared by
//! all files that it opens through it, and bounded by a size.
//!
//! What is kept is not whole segments: any range of one may be valid, and any part of that changed.
//! Changes of a segment gather until they are written back, all by one update where they fit into
//! one; that is when somebody flushes or closes the file, and when changes take half of the memory.
//! Other bytes make room page by page, of the segments that were used the longest time ago first.
//!
//! What makes this right while requests overlap:
//! - One write to the cluster at a time is under way for a segment, so none overtakes another.
//! - Bytes that are changed again while they are being written stay changed.
//! - Of a read that is under way, nothing is kept that was written here since it began.
//! - Bytes that came before a file was opened are served to whoever opened it only if the cluster
//!   says that the segment's version is still the one that they are of.
//!
//! This is not the cache that a distributed file system has with leases or call-backs: what others
//! write is seen when a file is opened, not before.

mod backing;
mod counts;
mod range_set;
mod segment;
mod table;
#[cfg(test)]
mod tests;

pub use counts::CacheCounts;

use crate::ClientError;
use crate::extent::Extent;
use crate::runs::LastRun;
use backing::Backing;
use bytes::Bytes;
use event_listener::Event;
use futures::stream::{self, StreamExt};
use gabion_layout::ByteRange;
use gabion_meta::PutId;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use table::{Key, Reading, Table, Writing};

/// How many segments a flush writes back at a time.
const WRITE_BACK_PARALLEL_COUNT: usize = 8;
/// After how many segments that could not be written back a writer looks for room no further. The
/// first may be of a file that is gone; two mean that there is more amiss.
const DISPLACE_FAILURES_MAX: usize = 2;

/// The segments that a client has at hand.
pub(crate) struct SegmentCache<B: Backing> {
    table: Mutex<Table<B::File>>,
    /// Whoever waits for the end of a write to the cluster.
    ended: Event,
}

/// A file as somebody opened it.
#[derive(Clone)]
pub(crate) struct Handle<F> {
    pub(crate) file: F,
    pub(crate) put: PutId,
    /// What was kept before this must be asked after.
    pub(crate) opened_at: u64,
}

/// Segments that are being written to the cluster, until this is dropped.
struct Leaving<'a, B: Backing> {
    cache: &'a SegmentCache<B>,
    keys: Vec<Key>,
    /// The last run of the write, if it is an update.
    last_run: LastRun,
    /// What a write past the cache overwrites, and whether it is known to have arrived.
    passing: Vec<(Key, ByteRange)>,
    has_passed: bool,
}

/// A read from the cluster, which is over when this is dropped.
struct Fetching<'a, B: Backing> {
    cache: &'a SegmentCache<B>,
    key: Key,
    fetch: u64,
}

impl<B: Backing> SegmentCache<B> {
    /// A cache of this size; with 0 bytes everything goes past it.
    pub(crate) fn new(capacity_bytes: u64, read_ahead_bytes: u64) -> Self {
        Self {
            table: Mutex::new(Table::new(capacity_bytes, read_ahead_bytes)),
            ended: Event::new(),
        }
    }

    /// The moment at which a file is opened.
    pub(crate) fn open(&self) -> u64 {
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

    /// Writes bytes of a file; `extents` are where they go. They are kept here as changes, unless
    /// they are large or there is no room, and then they are durable at once.
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

    /// Takes a change in, after others were written back if need be. Returns whether there was room.
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

    /// Writes bytes of a file to the cluster at once. What changed here of these bytes is older and
    /// goes, unless it changes again meanwhile.
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
        let keys: Vec<Key> = extents.iter().map(|extent| handle.key(extent)).collect();
        let mut leaving = self.take_all(keys.clone(), &handle.file).await;
        for (&key, extent) in keys.iter().zip(extents) {
            self.table().pass(key, extent.range);
            leaving.passing.push((key, extent.range));
        }
        let offset = first.file_offset;
        backing.write(&handle.file, offset, bytes.clone()).await?;
        leaving.has_passed = true;
        self.table().counts.write_through_count += 1;
        Ok(())
    }

    /// Writes back what has changed of one segment by now.
    ///
    /// # Errors
    /// That of the first update that failed; its bytes and those behind it are still changed.
    async fn write_back(&self, backing: &B, key: Key) -> Result<(), ClientError> {
        let Some(leaving) = self.take_changed(key).await else {
            return Ok(());
        };
        self.decide(backing, key).await?;
        let mut left = self.table().changes(key);
        loop {
            let batch = self.table().next_batch(key, &mut left);
            let Some(batch) = batch else { break };
            let count = batch.bytes.len() as u64;
            let sent = backing
                .update(
                    &batch.file,
                    key.at,
                    &batch.ranges,
                    batch.bytes.into(),
                    &leaving.last_run,
                )
                .await;
            self.table().sent(key, count, sent.as_ref().ok().copied());
            sent?;
            // It has arrived.
            leaving.last_run.take_doubt();
        }
        drop(leaving);
        Ok(())
    }

    /// Finds out what became of the last write-back of a segment that was taken, if that is not known: what has
    /// arrived must not be written once more, over what others have written since.
    ///
    /// # Errors
    /// When it cannot be found out now, or never ([`ClientError::Forgotten`]): then the next write-back writes the
    /// bytes once more.
    async fn decide(&self, backing: &B, key: Key) -> Result<(), ClientError> {
        let Some((file, run)) = self.table().doubted(key) else {
            return Ok(());
        };
        let made = backing.decide(&file, &run).await;
        match made {
            Ok(made) => self.table().decide(key, made),
            Err(ClientError::Forgotten(_)) => self.table().decide(key, false),
            Err(_) => {}
        }
        made.map(drop)
    }

    /// Writes back what has changed by now of one file, or of all.
    ///
    /// # Errors
    /// [`ClientError::NotWrittenBack`] with the first error; all else was written back.
    pub(crate) async fn flush(&self, backing: &B, put: Option<PutId>) -> Result<(), ClientError> {
        let keys = self.table().changed(put);
        self.table().counts.flush_count += 1;
        let sent = keys.into_iter().map(|key| self.write_back(backing, key));
        let sent = stream::iter(sent).buffer_unordered(WRITE_BACK_PARALLEL_COUNT);
        let results: Vec<Result<(), ClientError>> = sent.collect().await;
        let all: Result<(), ClientError> = results.into_iter().collect();
        all.map_err(|source| ClientError::NotWrittenBack {
            source: Box::new(source),
        })
    }

    /// Gives up the changes of all files for which this holds. Returns their bytes.
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

    /// Takes segments for a write to the cluster when none of them is taken; makes those that are
    /// not here.
    async fn take_all(&self, keys: Vec<Key>, file: &B::File) -> Leaving<'_, B> {
        loop {
            let ended = self.ended.listen();
            if self.table().take_all(&keys, file) {
                return Leaving::of(self, keys);
            }
            ended.await;
        }
    }

    /// Takes a segment for a write to the cluster when it is not taken; gives none when it has no
    /// changes.
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
        // A panic in the table is a bug that may have left changes behind half-way: no work goes
        // on from there.
        self.table.lock().expect("the cache's table is whole")
    }
}

impl<F> Handle<F> {
    fn key(&self, extent: &Extent) -> Key {
        Key {
            file: self.put,
            at: extent.stripe_at,
        }
    }
}

impl<'a, B: Backing> Leaving<'a, B> {
    fn of(cache: &'a SegmentCache<B>, keys: Vec<Key>) -> Self {
        Self {
            cache,
            keys,
            last_run: LastRun::default(),
            passing: Vec::new(),
            has_passed: false,
        }
    }
}

impl<B: Backing> Drop for Leaving<'_, B> {
    fn drop(&mut self) {
        // After a panic in the table nobody uses it any more.
        let Ok(mut table) = self.cache.table.lock() else {
            return;
        };
        for &(key, range) in &self.passing {
            table.passed(key, range, self.has_passed);
        }
        if let (Some(run), [key]) = (self.last_run.take_doubt(), self.keys.as_slice()) {
            table.doubt(*key, run);
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
