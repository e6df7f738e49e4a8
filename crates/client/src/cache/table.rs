//! The segments of a cache, their order of use, and their memory. Nothing here waits: requests to
//! the cluster are returned to the caller.

use super::counts::CacheCounts;
use super::range_set::RangeSet;
use super::segment::{CachedSegment, PAGE_BYTES, PAGE_COST_BYTES};
use crate::extent::Extent;
use crate::moment::{Moment, Version};
use crate::open_runs::Attempted;
use gabion_layout::ByteRange;
use gabion_meta::PutId;
use std::collections::{BTreeMap, BTreeSet};

/// Most ranges in one write-back update. Plans grow with them.
pub(super) const UPDATE_RANGES_MAX: usize = 64;
/// Most bytes in one write-back update, unless they are one range: a node's record of an update
/// must fit into its journal.
const UPDATE_BYTES_MAX: u64 = 4 << 20;
/// Upper bound of the memory of a new segment and a few new ranges.
const ENTRY_COST_BYTES: u64 = 1024;

/// A segment of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    /// The put that stored the file; it distinguishes files of the same name.
    pub(super) file: PutId,
    /// The segment's offset in the file.
    pub(super) at: u64,
}

/// The next action of a reader.
pub(super) enum Reading {
    /// None: these are the bytes.
    Hit(Vec<u8>),
    /// Determine the segment's version, and pass it to [`Table::check`] with this time.
    Check(u64),
    /// Read this range, and pass it to [`Table::fetched`] under this number.
    Fetch(u64, ByteRange),
}

/// The next action of a writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Writing {
    /// None: the bytes are taken.
    Done,
    /// Write this segment back, then retry.
    Displace(Key),
    /// Wait until a write to the cluster has ended, then retry.
    Wait,
    /// There is no space, and none can be freed.
    Full,
}

/// One update that writes changes back.
pub(super) struct Batch<F> {
    pub(super) file: F,
    pub(super) ranges: Vec<ByteRange>,
    /// The bytes of the ranges, concatenated.
    pub(super) bytes: Vec<u8>,
}

/// All segments of a cache.
pub(super) struct Table<F> {
    capacity_bytes: u64,
    read_ahead_bytes: u64,
    used_bytes: u64,
    /// Part of the used memory that only write-backs can free.
    changed_cost_bytes: u64,
    clock: u64,
    segments: BTreeMap<Key, CachedSegment<F>>,
    /// The time of the last dropped bytes of a file with unknown outcome, and the file's name.
    forgotten: BTreeMap<PutId, (u64, String)>,
    /// Invariant: all segments, by the time of their last use.
    by_use: BTreeMap<u64, Key>,
    /// Segments being written to the cluster.
    leaving: BTreeSet<Key>,
    pub(super) counts: CacheCounts,
}

impl<F: Clone> Table<F> {
    pub(super) fn new(capacity_bytes: u64, read_ahead_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            read_ahead_bytes,
            used_bytes: 0,
            changed_cost_bytes: 0,
            clock: 0,
            segments: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            by_use: BTreeMap::new(),
            leaving: BTreeSet::new(),
            counts: CacheCounts::default(),
        }
    }

    /// The next moment; each is unique.
    pub(super) fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(super) fn counts(&self) -> CacheCounts {
        let changed = self.segments.values().flat_map(|s| s.changed().iter());
        CacheCounts {
            used_bytes: self.used_bytes,
            changed_bytes: changed.map(|range| range.length).sum(),
            ..self.counts
        }
    }

    /// Whether a request is so large that it would evict most of the cache.
    pub(super) const fn is_large(&self, bytes: u64) -> bool {
        bytes > self.capacity_bytes / 4
    }

    /// Begins or continues a read of a file that was opened at `opened_at`.
    pub(super) fn read(
        &mut self,
        key: Key,
        file: &F,
        extent: Extent,
        segment_bytes: u64,
        opened_at: u64,
    ) -> Reading {
        let range = extent.range;
        let now = self.touch(key, file);
        let read_ahead_bytes = if self.is_large(range.length) {
            0
        } else {
            self.read_ahead_bytes
        };
        self.with(key, |segment| {
            if segment.checked_at < opened_at {
                if segment.has_clean_bytes() {
                    return Reading::Check(now);
                }
                segment.check(now, None);
            }
            let gaps = segment.valid().gaps(range);
            let (Some(first), Some(last)) = (gaps.first(), gaps.last()) else {
                let mut bytes = vec![0; range.length as usize];
                segment.copy(range, &mut bytes);
                segment.read_end = range.end();
                return Reading::Hit(bytes);
            };
            let is_sequential = segment.read_end == range.offset;
            let ahead_bytes = if is_sequential { read_ahead_bytes } else { 0 };
            let end = last.end().saturating_add(ahead_bytes);
            let end = end.min(segment_bytes.max(last.end()));
            let missing = ByteRange::new(first.offset, end - first.offset);
            segment.begin_fetch(now, missing);
            Reading::Fetch(now, missing)
        })
    }

    /// Takes bytes read from the cluster. Returns the requested bytes, unless some of them were
    /// written here in between and are no longer cached.
    pub(super) fn fetched(
        &mut self,
        key: Key,
        fetch: u64,
        wanted: ByteRange,
        offset: u64,
        moment: &Moment,
    ) -> Option<Vec<u8>> {
        let fetched = ByteRange::new(offset, moment.bytes.len() as u64);
        self.counts.fetched_bytes += fetched.length;
        let (good, bytes) = self.with(key, |segment| {
            let good = segment.spoilt(fetch).gaps(fetched);
            let mut bytes = vec![0; wanted.length as usize];
            let mut missing = RangeSet::of(wanted);
            for part in good.iter().filter_map(|part| part.intersect(wanted)) {
                let from = (part.offset - offset) as usize;
                let to = (part.offset - wanted.offset) as usize;
                let length = part.length as usize;
                bytes[to..to + length].copy_from_slice(&moment.bytes[from..from + length]);
                missing.remove(part);
            }
            segment.copy(wanted, &mut bytes);
            segment.read_end = wanted.end();
            let is_whole = missing.iter().all(|m| segment.valid().gaps(m).is_empty());
            (good, is_whole.then_some(bytes))
        });
        if !self.is_large(wanted.length) {
            for part in good {
                self.fill(key, part, offset, moment);
            }
        }
        bytes
    }

    /// Keeps a part of a read from the cluster, if there is space for it.
    fn fill(&mut self, key: Key, part: ByteRange, offset: u64, moment: &Moment) {
        let version = Version {
            stripe: moment.stripe,
            sequence: moment.sequence,
        };
        let pages = self.with(key, |segment| segment.new_page_count(part));
        if self.make_room(pages * PAGE_COST_BYTES + ENTRY_COST_BYTES) {
            self.with(key, |s| s.fill(part, offset, &moment.bytes, version));
            // Making space may have evicted pages of this segment, so that it needs more pages.
            self.make_room(0);
        }
    }

    /// Ends a read from the cluster, with any outcome.
    pub(super) fn end_fetch(&mut self, key: Key, fetch: u64) {
        self.with(key, |segment| segment.end_fetch(fetch));
        self.forget_if_idle(key);
    }

    /// Processes a segment's version, requested at `now`.
    pub(super) fn check(&mut self, key: Key, now: u64, version: Option<Version>) {
        if !self.segments.contains_key(&key) {
            return;
        }
        if self.with(key, |segment| segment.check(now, version)) {
            self.counts.confirmed_count += 1;
        } else {
            self.counts.outdated_count += 1;
        }
        self.forget_if_idle(key);
    }

    /// Takes bytes of a writer, unless there is no space. Segments in `tried` could not be written
    /// back.
    pub(super) fn write(
        &mut self,
        key: Key,
        file: &F,
        offset: u64,
        bytes: &[u8],
        tried: &BTreeSet<Key>,
    ) -> Writing {
        let length = bytes.len() as u64;
        let page_count = (offset + length).div_ceil(PAGE_BYTES) - offset / PAGE_BYTES;
        let needed_bytes = page_count * PAGE_COST_BYTES + ENTRY_COST_BYTES;
        // Half of the memory stays free of changes, so that reads never wait for a write-back.
        let limit_bytes = self.capacity_bytes / 2;
        if self.changed_cost_bytes + needed_bytes > limit_bytes {
            return self.displace(needed_bytes, limit_bytes, tried);
        }
        if !self.make_room(needed_bytes) {
            return Writing::Full;
        }
        self.touch(key, file);
        let (replaced_bytes, is_coalesced) = self.with(key, |segment| {
            let is_coalesced = segment.has_waiting_changes();
            (segment.write(offset, bytes), is_coalesced)
        });
        self.counts.write_count += 1;
        self.counts.write_bytes += length;
        self.counts.overwritten_bytes += replaced_bytes;
        self.counts.coalesced_write_count += u64::from(is_coalesced);
        Writing::Done
    }

    /// Chooses the segment whose changes are written back to make space.
    fn displace(&self, needed_bytes: u64, limit_bytes: u64, tried: &BTreeSet<Key>) -> Writing {
        let leaving = self.leaving.iter().filter_map(|key| self.segments.get(key));
        let leaving_bytes: u64 = leaving.map(CachedSegment::changed_cost_bytes).sum();
        let staying_bytes = self.changed_cost_bytes.saturating_sub(leaving_bytes);
        if staying_bytes + needed_bytes <= limit_bytes {
            return Writing::Wait;
        }
        let waiting = self.by_use.values().filter(|key| {
            let segment = &self.segments[*key];
            !segment.is_leaving() && !segment.changed().is_empty() && !tried.contains(key)
        });
        // Segments that could not be written back come last.
        let next = waiting.min_by_key(|key| self.segments[*key].has_failed);
        match next {
            Some(&key) => Writing::Displace(key),
            None if !self.leaving.is_empty() => Writing::Wait,
            None => Writing::Full,
        }
    }

    /// The segments with changes, of all files or of one.
    pub(super) fn changed(&self, file: Option<PutId>) -> Vec<Key> {
        let all = self.segments.iter();
        let changed = all.filter(|(key, segment)| {
            file.is_none_or(|file| key.file == file) && !segment.changed().is_empty()
        });
        changed.map(|(&key, _)| key).collect()
    }

    /// The segments with changes of files for which this holds.
    pub(super) fn changed_where(&self, is_meant: impl Fn(&F) -> bool) -> Vec<Key> {
        let mut keys = self.changed(None);
        keys.retain(|key| is_meant(&self.segments[key].file));
        keys
    }

    /// The segments of a file that concern a range of it, each with the range's part in it.
    pub(super) fn segments_in(&self, file: PutId, range: ByteRange) -> Vec<(Key, ByteRange)> {
        let key = |at| Key { file, at };
        // Segments do not overlap, so of those that begin before the range, the last one alone may reach into it.
        let mut earlier = self.segments.range(key(0)..=key(range.offset));
        let first = earlier.next_back().map_or(range.offset, |(key, _)| key.at);
        let near = self.segments.range(key(first)..key(range.end()));
        let parts = near.map(|(&key, segment)| {
            let start = range.offset.saturating_sub(key.at);
            let part = ByteRange::new(start, range.end() - key.at - start);
            (key, part, segment)
        });
        let concerned = parts.filter(|(_, part, segment)| segment.concerns(*part));
        concerned.map(|(key, part, _)| (key, part)).collect()
    }

    /// The changes of a range of a file, each from its offset in the file on.
    pub(super) fn changes_in(&self, file: PutId, range: ByteRange) -> Vec<(u64, Vec<u8>)> {
        let mut changes = Vec::new();
        for (key, part) in self.segments_in(file, range) {
            let segment = &self.segments[&key];
            for change in segment.changed().within(part) {
                let mut bytes = vec![0; change.length as usize];
                segment.copy(change, &mut bytes);
                changes.push((key.at + change.offset, bytes));
            }
        }
        changes
    }

    /// Forgets the unchanged bytes of a range of a file, and reads of it in flight.
    pub(super) fn forget_range(&mut self, file: PutId, range: ByteRange) {
        for (key, part) in self.segments_in(file, range) {
            self.with(key, |segment| segment.forget(part));
            self.forget_if_idle(key);
        }
    }

    /// Takes segments for a write to the cluster: all of them or, if one is already taken, none.
    /// Adds missing ones.
    pub(super) fn take_all(&mut self, keys: &[Key], file: &F) -> bool {
        if keys.iter().any(|key| self.leaving.contains(key)) {
            return false;
        }
        for &key in keys {
            self.touch(key, file);
            self.with(key, CachedSegment::begin_leaving);
            self.leaving.insert(key);
        }
        true
    }

    /// Takes a segment with changes for a write to the cluster, and returns whether it was free;
    /// none if it has no changes.
    pub(super) fn take_changed(&mut self, key: Key) -> Option<bool> {
        if self.segments.get(&key)?.changed().is_empty() {
            return None;
        }
        let is_free = self.leaving.insert(key);
        if is_free {
            self.with(key, CachedSegment::begin_leaving);
        }
        Some(is_free)
    }

    /// All current changes of a segment, to be written back.
    pub(super) fn changes(&self, key: Key) -> RangeSet {
        let segment = self.segments.get(&key);
        segment.map_or_else(RangeSet::default, |segment| segment.changed().clone())
    }

    /// Splits off the next update of a taken segment's write-back.
    pub(super) fn next_batch(
        &mut self,
        key: Key,
        left: &mut RangeSet,
        range_count_max: usize,
    ) -> Option<Batch<F>> {
        let mut ranges = Vec::new();
        let mut total_bytes = 0;
        for range in left.iter().take(range_count_max) {
            if !ranges.is_empty() && total_bytes + range.length > UPDATE_BYTES_MAX {
                break;
            }
            total_bytes += range.length;
            ranges.push(range);
        }
        if ranges.is_empty() {
            return None;
        }
        let mut bytes = vec![0; total_bytes as usize];
        let file = self.with(key, |segment| {
            let mut leaving = RangeSet::default();
            let mut at = 0;
            for &range in &ranges {
                left.remove(range);
                leaving.insert(range);
                let end = at + range.length as usize;
                segment.copy(range, &mut bytes[at..end]);
                at = end;
            }
            segment.leave(leaving);
            segment.file.clone()
        });
        Some(Batch {
            file,
            ranges,
            bytes,
        })
    }

    /// Notes the outcome of a write-back update.
    pub(super) fn sent(&mut self, key: Key, bytes: u64, version: Option<Version>) {
        self.with(key, |segment| {
            segment.has_failed = version.is_none();
            if let Some(version) = version {
                segment.arrived(version);
            }
        });
        if version.is_some() {
            self.counts.update_count += 1;
            self.counts.update_bytes += bytes;
        } else {
            self.counts.failed_update_count += 1;
        }
    }

    /// The write-back of a segment with an unknown outcome, and its file.
    pub(super) fn doubted(&self, key: Key) -> Option<(F, Attempted)> {
        let segment = self.segments.get(&key)?;
        Some((segment.file.clone(), segment.doubted()?))
    }

    /// Notes that the outcome of a segment's write-back is unknown.
    pub(super) fn doubt(&mut self, key: Key, attempted: Attempted) {
        self.with(key, |segment| segment.doubt(attempted));
    }

    /// Notes the outcome of a taken segment's write-back that was in doubt.
    pub(super) fn decide(&mut self, key: Key, made: bool) {
        self.with(key, |segment| segment.decide(made));
    }

    /// Drops the bytes of a taken segment's write-back that was in doubt, because its outcome is unknown.
    pub(super) fn forget(&mut self, key: Key, name: String) {
        self.decide(key, true);
        let now = self.now();
        self.forgotten.insert(key.file, (now, name));
    }

    /// The last drop of bytes of a file, or of any, after this moment, and the file's name.
    pub(super) fn forgotten_since(
        &self,
        file: Option<PutId>,
        moment: u64,
    ) -> Option<(u64, String)> {
        let all = self.forgotten.iter();
        let meant = all.filter(|&(&put, _)| file.is_none_or(|file| file == put));
        let last = meant.map(|(_, dropped)| dropped).max()?;
        (last.0 > moment).then(|| last.clone())
    }

    /// Notes the range that a write past the cache is about to overwrite in a taken segment.
    pub(super) fn pass(&mut self, key: Key, range: ByteRange) {
        self.with(key, |segment| segment.leave(RangeSet::of(range)));
    }

    /// Notes that a write past the cache is durable, or has an unknown outcome; earlier reads are
    /// not kept.
    pub(super) fn passed(&mut self, key: Key, range: ByteRange, is_durable: bool) {
        self.with(key, |segment| {
            if is_durable {
                segment.passed();
            }
            segment.forget(range);
        });
    }

    /// Releases segments after a write to the cluster.
    pub(super) fn end_leaving(&mut self, keys: &[Key]) {
        for &key in keys {
            self.with(key, CachedSegment::end_leaving);
            self.leaving.remove(&key);
            self.forget_if_idle(key);
        }
    }

    /// Discards the changes of a taken segment. Returns their bytes.
    pub(super) fn discard(&mut self, key: Key) -> u64 {
        self.with(key, CachedSegment::discard)
    }

    /// Moves a segment to the end of the order of use; adds it if it is missing.
    fn touch(&mut self, key: Key, file: &F) -> u64 {
        let now = self.now();
        if !self.segments.contains_key(&key) {
            let segment = CachedSegment::new(file.clone(), now);
            self.used_bytes += segment.cost_bytes();
            self.by_use.insert(now, key);
            self.segments.insert(key, segment);
        }
        let segment = self
            .segments
            .get_mut(&key)
            .expect("it was added if missing");
        self.by_use.remove(&segment.used_at);
        self.by_use.insert(now, key);
        segment.used_at = now;
        segment.file = file.clone();
        now
    }

    /// Changes a segment, and updates its memory accounting.
    ///
    /// # Panics
    /// If it is not cached.
    fn with<R>(&mut self, key: Key, work: impl FnOnce(&mut CachedSegment<F>) -> R) -> R {
        let segment = self.segments.get_mut(&key).expect("the segment is cached");
        let (used, changed) = (segment.cost_bytes(), segment.changed_cost_bytes());
        let done = work(segment);
        self.used_bytes = self.used_bytes - used + segment.cost_bytes();
        self.changed_cost_bytes = self.changed_cost_bytes - changed + segment.changed_cost_bytes();
        done
    }

    fn forget_if_idle(&mut self, key: Key) {
        let Some(segment) = self.segments.get(&key) else {
            return;
        };
        if segment.is_idle() {
            self.used_bytes -= segment.cost_bytes();
            self.by_use.remove(&segment.used_at);
            self.segments.remove(&key);
        }
    }

    /// Evicts pages without changes, from the least recently used segments first, until there is
    /// space for `needed_bytes`. Returns whether there is.
    fn make_room(&mut self, needed_bytes: u64) -> bool {
        while self.used_bytes + needed_bytes > self.capacity_bytes {
            let clean = |key: &&Key| self.segments[*key].has_clean_pages();
            let Some(&key) = self.by_use.values().find(clean) else {
                return false;
            };
            self.with(key, CachedSegment::evict_page);
            self.counts.evicted_page_count += 1;
            self.forget_if_idle(key);
        }
        true
    }
}
