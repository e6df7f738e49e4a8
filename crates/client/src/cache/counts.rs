//! Counters of a cache.

/// Counters of a client's segment cache since the client was created. A request in several segments
/// counts once for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounts {
    /// Reads served from the cache alone.
    pub read_hit_count: u64,
    /// Reads that needed the cluster.
    pub read_miss_count: u64,
    /// Bytes returned to readers.
    pub read_bytes: u64,
    /// Bytes read from the cluster, with read-ahead.
    pub fetched_bytes: u64,
    /// Writes taken into the cache.
    pub write_count: u64,
    /// Bytes of these writes.
    pub write_bytes: u64,
    /// Writes that joined waiting changes of their segment, and so needed no update of their own.
    pub coalesced_write_count: u64,
    /// Bytes overwritten in the cache before they were sent.
    pub overwritten_bytes: u64,
    /// Updates that wrote changes back.
    pub update_count: u64,
    /// Bytes of these updates.
    pub update_bytes: u64,
    /// Writes past the cache, because they were large beside it or it had no space.
    pub write_through_count: u64,
    /// Failed updates; their bytes are still in the cache.
    pub failed_update_count: u64,
    /// Flushes of files, with closes, and of the whole cache.
    pub flush_count: u64,
    /// Segments whose changes were written back to make space.
    pub displaced_count: u64,
    /// Pages dropped to make space.
    pub evicted_page_count: u64,
    /// Segments found unchanged when their file was reopened.
    pub confirmed_count: u64,
    /// Segments that others had or might have changed when their file was reopened.
    pub outdated_count: u64,
    /// Memory in use.
    pub used_bytes: u64,
    /// Bytes waiting to be written back.
    pub changed_bytes: u64,
}
