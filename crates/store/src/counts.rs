//! What the store has done since it was opened, for measurements.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the counts that are told and the counters behind them of one list of names.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a store has done since it was opened. What its opening cost is not in it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        pub struct StoreCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters behind [`StoreCounts`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            /// What they have counted so far.
            pub(crate) fn read(&self) -> StoreCounts {
                StoreCounts {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

counts! {
    /// Records appended.
    append_count,
    /// Syncs of files' data.
    sync_count,
    /// Bytes written to the journal, images apart.
    journal_bytes,
    /// Bytes of images written to the journal.
    image_bytes,
    /// Bytes written to reserves.
    reserve_bytes,
    /// Bytes that merges have written to chunks in place, checksums and headers included.
    in_place_bytes,
    /// Merges that an append waited for.
    foreground_merge_count,
    /// Merges that nobody waited for.
    background_merge_count,
    /// Appends that waited for a merge because their chunk's reserve was full, or was given back.
    stalled_append_count,
    /// Bytes of these appends' records, without what is kept beside the bytes.
    stalled_append_bytes,
    /// Records that a reserve had no room for, or had to give up unmerged, and that are in the
    /// journal instead.
    spilled_record_count,
    /// Bytes of reserves given back to the file system.
    punched_bytes,
}

impl Counters {
    pub(crate) fn add(&self, counter: impl Fn(&Self) -> &AtomicU64, amount: u64) {
        counter(self).fetch_add(amount, Ordering::Relaxed);
    }
}
