//! What a cache has done for whoever uses it.

/// Counts of a client's segment cache since the client was made. A request that lies in several
/// segments counts once for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounts {
    /// Reads of which every byte was here.
    pub read_hit_count: u64,
    /// Reads that asked the cluster.
    pub read_miss_count: u64,
    /// Bytes that readers got.
    pub read_bytes: u64,
    /// Bytes that were read from the cluster, read-ahead included.
    pub fetched_bytes: u64,
    /// Writes that were taken into the cache.
    pub write_count: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Those that joined changes of their segment which waited already, and so cost no update.
    pub coalesced_write_count: u64,
    /// Bytes that were overwritten here before they were sent.
    pub overwritten_bytes: u64,
    /// Updates that wrote changes back.
    pub update_count: u64,
    /// Their bytes.
    pub update_bytes: u64,
    /// Writes that went past the cache, since they were large beside it or it had no room.
    pub write_through_count: u64,
    /// Updates that failed; their bytes are still here.
    pub failed_update_count: u64,
    /// Files that were flushed or closed, and flushes of the whole cache.
    pub flush_count: u64,
    /// Segments of which changes were written back to make room for others.
    pub displaced_count: u64,
    /// Pages that were dropped to make room.
    pub evicted_page_count: u64,
    /// Segments that were found to be as they were when their file was opened again.
    pub confirmed_count: u64,
    /// Segments that others had changed, or might have, when their file was opened again.
    pub outdated_count: u64,
    /// Memory that is in use now.
    pub used_bytes: u64,
    /// Bytes that wait to be written back now.
    pub changed_bytes: u64,
}
