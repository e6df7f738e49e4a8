//! What the store has done since it was opened, for measurements.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a store has done since it was opened. What its opening cost is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoreCounts {
    /// Records appended.
    pub append_count: u64,
    /// Syncs of files' data.
    pub sync_count: u64,
    /// Bytes written to the journal, images apart.
    pub journal_bytes: u64,
    /// Bytes of images written to the journal.
    pub image_bytes: u64,
    /// Bytes written to reserves.
    pub reserve_bytes: u64,
    /// Bytes that merges have written to chunks in place, checksums and headers included.
    pub in_place_bytes: u64,
    /// Merges that an append waited for.
    pub foreground_merge_count: u64,
    /// Merges that nobody waited for.
    pub background_merge_count: u64,
    /// Appends that waited for a merge because their chunk's reserve was full, or was given back.
    pub stalled_append_count: u64,
    /// Bytes of these appends' records, without what is kept beside the bytes.
    pub stalled_append_bytes: u64,
    /// Records that a reserve had no room for, or had to give up unmerged, and that are in the
    /// journal instead.
    pub spilled_record_count: u64,
    /// Bytes of reserves given back to the file system.
    pub punched_bytes: u64,
}

/// The counters behind [`StoreCounts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) append_count: AtomicU64,
    pub(crate) sync_count: AtomicU64,
    pub(crate) journal_bytes: AtomicU64,
    pub(crate) image_bytes: AtomicU64,
    pub(crate) reserve_bytes: AtomicU64,
    pub(crate) in_place_bytes: AtomicU64,
    pub(crate) foreground_merge_count: AtomicU64,
    pub(crate) background_merge_count: AtomicU64,
    pub(crate) stalled_append_count: AtomicU64,
    pub(crate) stalled_append_bytes: AtomicU64,
    pub(crate) spilled_record_count: AtomicU64,
    pub(crate) punched_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(&self, counter: impl Fn(&Self) -> &AtomicU64, amount: u64) {
        counter(self).fetch_add(amount, Ordering::Relaxed);
    }

    /// What they have counted so far.
    pub(crate) fn read(&self) -> StoreCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreCounts {
            append_count: read(&self.append_count),
            sync_count: read(&self.sync_count),
            journal_bytes: read(&self.journal_bytes),
            image_bytes: read(&self.image_bytes),
            reserve_bytes: read(&self.reserve_bytes),
            in_place_bytes: read(&self.in_place_bytes),
            foreground_merge_count: read(&self.foreground_merge_count),
            background_merge_count: read(&self.background_merge_count),
            stalled_append_count: read(&self.stalled_append_count),
            stalled_append_bytes: read(&self.stalled_append_bytes),
            spilled_record_count: read(&self.spilled_record_count),
            punched_bytes: read(&self.punched_bytes),
        }
    }
}
