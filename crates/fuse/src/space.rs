//! The space that a mount shows.

use crate::errno::Errno;
use crate::gateway::Gateway;
use gabion_meta::Limit;

/// The unit of `statfs`.
pub(crate) const BLOCK_BYTES: u32 = 4096;
/// Files that may still be made, as `df -i` shows it: there is no table of inodes that could be full.
const FREE_FILE_COUNT: u64 = 1 << 40;

/// The space that the kernel is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Space {
    pub(crate) block_count: u64,
    pub(crate) free_block_count: u64,
    /// Of files that are there and may be made.
    pub(crate) inode_limit: u64,
    pub(crate) free_inode_count: u64,
}

impl Gateway {
    /// The space of the cluster, as files of this mount's pool take it: without parity, and within its quota.
    pub(crate) async fn space(&self) -> Result<Space, Errno> {
        let usage = self.client.usage().await?;
        let own = self.pools.named(&self.pool);
        let (k, m) = own.map_or((1, 0), |pool| (pool.spec.k as u64, pool.spec.m as u64));
        let spaces = || usage.spaces.values();
        let capacity_bytes: u64 = spaces().map(|space| space.capacity_bytes).sum();
        let free_bytes: u64 = spaces().map(|space| space.free_bytes).sum();
        let data = |bytes: u64| bytes / (k + m).max(1) * k;
        let known = usage.pools.values().find(|pool| pool.name == self.pool);
        let (quota, used) = known.map_or_else(Default::default, |pool| (pool.quota, pool.used));
        let file_count: u64 = usage.pools.values().map(|pool| pool.file_count).sum();
        let left = |limit: Limit, used: u64, free: u64| {
            let allowed = limit.number().map(|limit| limit.saturating_sub(used));
            allowed.map_or(free, |allowed| allowed.min(free))
        };
        let (all, free) = (data(capacity_bytes), data(free_bytes));
        let free_file_count = left(quota.files, used.files, FREE_FILE_COUNT);
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        Ok(Space {
            block_count: blocks(quota.bytes.number().map_or(all, |limit| limit.min(all))),
            free_block_count: blocks(left(quota.bytes, used.bytes, free)),
            inode_limit: match quota.files {
                Limit::AtMost(limit) => limit,
                Limit::Unlimited => file_count.saturating_add(FREE_FILE_COUNT),
            },
            free_inode_count: free_file_count,
        })
    }
}
