//! Counters of the store since it was opened, for measurements.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the public counts and their counters from one list of names.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a store since it was opened. The cost of opening is not included.
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
            /// Their current values.
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
    /// Bytes written to the journal, without images.
    journal_bytes,
    /// Bytes of images written to the journal.
    image_bytes,
    /// Bytes written to reserves.
    reserve_bytes,
    /// Bytes that merges wrote to chunks in place, with checksums and headers.
    in_place_bytes,
    /// Merges that an append waited for.
    foreground_merge_count,
    /// Merges in the background.
    background_merge_count,
    /// Appends that waited for a merge because their chunk's reserve was full, or was given back.
    stalled_append_count,
    /// Bytes of these appends' records, without overhead.
    stalled_append_bytes,
    /// Records that went to the journal because a reserve had no space for them, or was emptied
    /// before they could be merged.
    spilled_record_count,
    /// Bytes of reserves given back to the file system.
    punched_bytes,
}

impl Counters {
    pub(crate) fn add(&self, counter: impl Fn(&Self) -> &AtomicU64, amount: u64) {
        counter(self).fetch_add(amount, Ordering::Relaxed);
    }
}
