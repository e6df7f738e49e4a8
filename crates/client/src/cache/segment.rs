//! The cached bytes of one segment: pages, which bytes are valid, and which differ from the
//! cluster's.

use super::range_set::RangeSet;
use crate::moment::Version;
use crate::open_runs::Attempted;
use gabion_layout::{ByteRange, Sequence};
use std::collections::BTreeMap;

/// Page size.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Accounted memory of a page, with its place in the tree.
pub(super) const PAGE_COST_BYTES: u64 = PAGE_BYTES + 64;
/// Accounted memory of a range in a set.
const RANGE_COST_BYTES: u64 = 64;
/// Accounted memory of a segment without its pages and ranges.
const SEGMENT_COST_BYTES: u64 = 512;

/// A page, and whether any of its bytes differ from the cluster's.
struct Page {
    bytes: Box<[u8]>,
    is_changed: bool,
}

/// Bytes of one segment.
pub(super) struct CachedSegment<F> {
    /// The most recent opening of the file, to write the segment back.
    pub(super) file: F,
    /// The last time at which the segment was known to be no older than the cluster's.
    pub(super) checked_at: u64,
    /// Its place in the order of use.
    pub(super) used_at: u64,
    /// The end of the last read.
    pub(super) read_end: u64,
    /// Whether the last attempt to write it back failed.
    pub(super) has_failed: bool,
    pages: BTreeMap<u64, Page>,
    changed_page_count: u64,
    /// Invariant: bytes outside all pages are not valid.
    valid: RangeSet,
    /// Invariant: a part of `valid`.
    changed: RangeSet,
    /// During a write to the cluster: the bytes being written that have not changed again since.
    leaving: Option<RangeSet>,
    /// Whether the segment was compared with the cluster's after `leaving` began. Bytes that arrive
    /// then may be older than the compared version.
    was_checked: bool,
    /// A write to the cluster with an unknown outcome, and those of its bytes that have not changed
    /// here since.
    doubt: Option<(Attempted, RangeSet)>,
    /// For each read from the cluster in flight: the bytes not to keep, since they may have been
    /// read before they were overwritten here.
    fetches: BTreeMap<u64, RangeSet>,
    /// None of the valid unchanged bytes is older than this; none if unknown.
    version: Option<Version>,
}

impl<F> CachedSegment<F> {
    /// A segment without bytes.
    pub(super) fn new(file: F, now: u64) -> Self {
        Self {
            file,
            checked_at: now,
            used_at: now,
            read_end: 0,
            has_failed: false,
            pages: BTreeMap::new(),
            changed_page_count: 0,
            valid: RangeSet::default(),
            changed: RangeSet::default(),
            leaving: None,
            was_checked: false,
            doubt: None,
            fetches: BTreeMap::new(),
            version: None,
        }
    }

    /// The approximate memory of the segment.
    pub(super) fn cost_bytes(&self) -> u64 {
        let leaving = self.leaving.as_ref().map_or(0, RangeSet::range_count);
        let doubted = self.doubt.as_ref().map_or(0, |doubt| doubt.1.range_count());
        let fetches = self.fetches.values().map(|set| 1 + set.range_count());
        let ranges = self.valid.range_count()
            + self.changed.range_count()
            + leaving
            + doubted
            + fetches.sum::<u64>();
        SEGMENT_COST_BYTES + self.pages.len() as u64 * PAGE_COST_BYTES + ranges * RANGE_COST_BYTES
    }

    /// The approximate memory that only a write-back can free.
    pub(super) fn changed_cost_bytes(&self) -> u64 {
        self.changed_page_count * PAGE_COST_BYTES + self.changed.range_count() * RANGE_COST_BYTES
    }

    pub(super) const fn changed(&self) -> &RangeSet {
        &self.changed
    }

    pub(super) const fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Whether there are changes that are not yet being written to the cluster.
    pub(super) fn has_waiting_changes(&self) -> bool {
        let waits = |part| match &self.leaving {
            Some(leaving) => !leaving.gaps(part).is_empty(),
            None => true,
        };
        self.changed.iter().any(waits)
    }

    /// Whether the segment can be forgotten without loss.
    pub(super) fn is_idle(&self) -> bool {
        self.pages.is_empty() && self.leaving.is_none() && self.fetches.is_empty()
    }

    /// Whether there are pages that can be evicted.
    pub(super) fn has_clean_pages(&self) -> bool {
        self.pages.len() as u64 > self.changed_page_count
    }

    /// Whether there are valid bytes that the cluster has too.
    pub(super) fn has_clean_bytes(&self) -> bool {
        self.valid != self.changed
    }

    /// Number of pages that a range would add.
    pub(super) fn new_page_count(&self, range: ByteRange) -> u64 {
        let pages = pages_of(range);
        let count = pages.end - pages.start;
        count - self.pages.range(pages).count() as u64
    }

    /// Whether the segment has bytes of a range, or may get some by a read in flight.
    pub(super) fn concerns(&self, range: ByteRange) -> bool {
        self.valid.touches(range) || !self.fetches.is_empty()
    }

    /// Copies the valid bytes of a range to their places in `into`.
    pub(super) fn copy(&self, range: ByteRange, into: &mut [u8]) {
        for part in self.valid.within(range) {
            for (page, piece) in pieces_of(part) {
                let from = &self.pages[&page].bytes[within_page(piece)];
                into[within(range, piece)].copy_from_slice(from);
            }
        }
    }

    pub(super) fn valid(&self) -> &RangeSet {
        &self.valid
    }

    /// Takes bytes written here. Returns the number of unsent changed bytes that they replace.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> u64 {
        let range = ByteRange::new(offset, bytes.len() as u64);
        let replaced = self.changed.within(range);
        let sent_bytes = |part| self.leaving.as_ref().map_or(0, |l| l.bytes_within(part));
        let replaced_bytes = replaced.map(|part| part.length - sent_bytes(part)).sum();
        self.store(range, range, bytes, true);
        self.changed.insert(range);
        if let Some(leaving) = &mut self.leaving {
            leaving.remove(range);
        }
        self.trust(range);
        self.spoil(range);
        replaced_bytes
    }

    /// Notes that a read from the cluster is in flight.
    pub(super) fn begin_fetch(&mut self, fetch: u64, range: ByteRange) {
        // The cluster's bytes are older than these, even if these are written back during the read.
        let mut spoilt = RangeSet::default();
        for part in self.changed.within(range) {
            spoilt.insert(part);
        }
        self.fetches.insert(fetch, spoilt);
    }

    /// The bytes of a read from the cluster that must not be kept.
    ///
    /// # Panics
    /// If it is not in flight.
    pub(super) fn spoilt(&self, fetch: u64) -> &RangeSet {
        &self.fetches[&fetch]
    }

    /// Notes that a read from the cluster has ended.
    pub(super) fn end_fetch(&mut self, fetch: u64) {
        let fetch = self.fetches.remove(&fetch);
        assert!(fetch.is_some(), "a fetch ends once, after it has begun");
    }

    /// Keeps bytes of a read from the cluster in `keep`, where none are valid yet.
    pub(super) fn fill(&mut self, keep: ByteRange, offset: u64, bytes: &[u8], read: Version) {
        let had_clean_bytes = self.has_clean_bytes();
        let all = ByteRange::new(offset, bytes.len() as u64);
        for gap in self.valid.gaps(keep) {
            self.store(gap, all, bytes, false);
        }
        self.join_version(had_clean_bytes, read);
    }

    /// Notes that the segment has bytes of this version now. If there are other unchanged ones, these may be older.
    fn join_version(&mut self, has_others: bool, version: Version) {
        self.version = match self.version {
            Some(old) if has_others => oldest(old, version),
            None if has_others => None,
            _ => Some(version),
        };
    }

    /// Marks this range as not to be kept in all reads in flight.
    fn spoil(&mut self, range: ByteRange) {
        for spoilt in self.fetches.values_mut() {
            spoilt.insert(range);
        }
    }

    /// Takes the segment for a write to the cluster. No other write begins before its end.
    pub(super) fn begin_leaving(&mut self) {
        assert!(self.leaving.is_none(), "one write to a segment at a time");
        self.leaving = Some(RangeSet::default());
        self.was_checked = false;
    }

    /// Sets the ranges that are written to the cluster next.
    ///
    /// # Panics
    /// Unless [`Self::begin_leaving`] was called.
    pub(super) fn leave(&mut self, ranges: RangeSet) {
        assert!(self.leaving.is_some(), "leaving has begun");
        self.leaving = Some(ranges);
    }

    /// Notes that the ranges being written are durable in the cluster, with this version. They stay
    /// cached, unless a file may have been opened since: another client may have overwritten them
    /// before that.
    pub(super) fn arrived(&mut self, version: Version) {
        if self.was_checked {
            self.drop_leaving();
            return;
        }
        let others_are_clean = self.has_clean_bytes();
        for part in self.take_leaving().iter() {
            self.changed.remove(part);
            self.mark_pages(part);
        }
        // Other clients may have written in between, and also with this update: a primary makes updates of different
        // bytes together, under one number.
        self.join_version(others_are_clean, version);
    }

    /// Notes that the ranges of a write past the cache are durable in the cluster; they are not
    /// cached.
    pub(super) fn passed(&mut self) {
        for part in self.drop_leaving().iter() {
            self.trust(part);
        }
    }

    /// Drops the ranges being written, which are durable in the cluster. Returns them.
    fn drop_leaving(&mut self) -> RangeSet {
        let left = self.take_leaving();
        for part in left.iter() {
            self.changed.remove(part);
            self.mark_pages(part);
            self.forget(part);
        }
        left
    }

    /// Removes this range from the write in doubt.
    fn trust(&mut self, range: ByteRange) {
        if let Some((_, ranges)) = &mut self.doubt {
            ranges.remove(range);
        }
    }

    /// Notes that the outcome of this attempt, which writes the ranges being written, is unknown.
    pub(super) fn doubt(&mut self, attempted: Attempted) {
        let ranges = self.leaving.clone().unwrap_or_default();
        self.doubt = Some((attempted, ranges));
    }

    /// The attempt with an unknown outcome.
    pub(super) fn doubted(&self) -> Option<Attempted> {
        self.doubt.as_ref().map(|(attempted, _)| attempted.clone())
    }

    /// Notes the outcome of the write that was in doubt.
    ///
    /// # Panics
    /// Unless [`Self::begin_leaving`] was called.
    pub(super) fn decide(&mut self, made: bool) {
        let Some((_, ranges)) = self.doubt.take() else {
            return;
        };
        // Others may have overwritten it since.
        if made {
            self.leave(ranges);
            self.drop_leaving();
        }
    }

    fn take_leaving(&mut self) -> RangeSet {
        self.leaving
            .replace(RangeSet::default())
            .unwrap_or_default()
    }

    /// Notes that the write to the cluster has ended, whether or not all of it has arrived.
    pub(super) fn end_leaving(&mut self) {
        self.leaving = None;
    }

    /// Forgets the unchanged bytes of a range, and reads of it in flight.
    pub(super) fn forget(&mut self, range: ByteRange) {
        self.spoil(range);
        let valid = self.valid.within(range);
        let clean: Vec<ByteRange> = valid.flat_map(|part| self.changed.gaps(part)).collect();
        for part in clean {
            self.valid.remove(part);
            self.drop_empty_pages(part);
        }
    }

    /// Discards changes, as if they had never been made. Returns their bytes.
    pub(super) fn discard(&mut self) -> u64 {
        let changed = std::mem::take(&mut self.changed);
        self.doubt = None;
        for part in changed.iter() {
            self.valid.remove(part);
            self.mark_pages(part);
            self.drop_empty_pages(part);
        }
        changed.iter().map(|part| part.length).sum()
    }

    /// Forgets all unchanged bytes, unless they are of this version.
    pub(super) fn check(&mut self, now: u64, version: Option<Version>) -> bool {
        let is_same = version.is_some() && self.version == version;
        let all = ByteRange::new(0, u64::MAX);
        if is_same {
            self.spoil(all);
        } else {
            self.forget(all);
            self.version = None;
        }
        self.checked_at = now;
        self.was_checked = true;
        is_same
    }

    /// Evicts one page without changes; the caller has checked that there is one.
    pub(super) fn evict_page(&mut self) {
        let clean = self.pages.iter().find(|(_, page)| !page.is_changed);
        let (&number, _) = clean.expect("the caller has checked has_clean_pages");
        self.pages.remove(&number);
        self.valid.remove(page_range(number));
    }

    /// Writes bytes of a range into pages; `bytes` are those of `all`.
    fn store(&mut self, range: ByteRange, all: ByteRange, bytes: &[u8], is_change: bool) {
        for (number, piece) in pieces_of(range) {
            let page = self.pages.entry(number).or_insert_with(|| Page {
                bytes: vec![0; PAGE_BYTES as usize].into(),
                is_changed: false,
            });
            page.bytes[within_page(piece)].copy_from_slice(&bytes[within(all, piece)]);
            if is_change && !page.is_changed {
                page.is_changed = true;
                self.changed_page_count += 1;
            }
        }
        self.valid.insert(range);
    }

    /// Updates the marks of a range's pages after changes were removed.
    fn mark_pages(&mut self, range: ByteRange) {
        for number in pages_of(range) {
            if self.changed.touches(page_range(number)) {
                continue;
            }
            if let Some(page) = self.pages.get_mut(&number)
                && page.is_changed
            {
                page.is_changed = false;
                self.changed_page_count -= 1;
            }
        }
    }

    /// Drops those of a range's pages without valid bytes.
    fn drop_empty_pages(&mut self, range: ByteRange) {
        for number in pages_of(range) {
            if !self.valid.touches(page_range(number)) {
                let page = self.pages.remove(&number);
                assert!(
                    !page.is_some_and(|page| page.is_changed),
                    "changes are valid"
                );
            }
        }
    }
}

/// The older of two versions, if their order is known.
fn oldest(one: Version, other: Version) -> Option<Version> {
    let sequence: Sequence = one.sequence.min(other.sequence);
    let stripe = one.stripe;
    (stripe == other.stripe).then_some(Version { stripe, sequence })
}

fn pages_of(range: ByteRange) -> std::ops::Range<u64> {
    range.offset / PAGE_BYTES..range.end().div_ceil(PAGE_BYTES)
}

const fn page_range(number: u64) -> ByteRange {
    ByteRange::new(number * PAGE_BYTES, PAGE_BYTES)
}

/// Cuts a range at the borders of pages.
fn pieces_of(range: ByteRange) -> impl Iterator<Item = (u64, ByteRange)> {
    pages_of(range).filter_map(move |page| Some((page, page_range(page).intersect(range)?)))
}

/// The position of a piece in its page.
fn within_page(piece: ByteRange) -> std::ops::Range<usize> {
    let start = (piece.offset % PAGE_BYTES) as usize;
    start..start + piece.length as usize
}

/// The position of a piece in a buffer of the bytes of `all`.
fn within(all: ByteRange, piece: ByteRange) -> std::ops::Range<usize> {
    let start = (piece.offset - all.offset) as usize;
    start..start + piece.length as usize
}
