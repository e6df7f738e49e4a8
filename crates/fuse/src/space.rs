//! The space that a mount shows.

use crate::errno::Errno;
use crate::gateway::Gateway;
use fuser::INodeNo;
use gabion_meta::{Limit, Quota};

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

impl Space {
    /// The part of it that a quota allows.
    fn within(self, quota: Quota, (used_bytes, used_files): (u64, u64)) -> Self {
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        let lower = |limit: Limit, present: u64, number: fn(u64) -> u64, used: u64| {
            let limit = limit.number();
            limit.map_or(present, |limit| {
                number(limit.saturating_sub(used)).min(present)
            })
        };
        Self {
            block_count: lower(quota.bytes, self.block_count, blocks, 0),
            free_block_count: lower(quota.bytes, self.free_block_count, blocks, used_bytes),
            inode_limit: lower(quota.files, self.inode_limit, |count| count, 0),
            free_inode_count: lower(
                quota.files,
                self.free_inode_count,
                |count| count,
                used_files,
            ),
        }
    }
}

impl Gateway {
    /// The space of the cluster, as files of this mount's pool take it at an inode: without parity and reserves, and
    /// within the quotas of the pool and of the directory.
    pub(crate) async fn space(&self, number: INodeNo) -> Result<Space, Errno> {
        let own = self.pools.named(&self.pool).ok_or(Errno::Io)?;
        let told = self.client.data_space(&own).await?;
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        let cluster = Space {
            block_count: blocks(told.capacity_bytes),
            free_block_count: blocks(told.free_bytes.unwrap_or(0)),
            inode_limit: told.file_count.saturating_add(FREE_FILE_COUNT),
            free_inode_count: FREE_FILE_COUNT,
        };
        let space = cluster.within(told.quota, (told.used.bytes, told.used.files));
        let inode = self.numbers.inode(number);
        Ok(match self.client.directory_quota(inode).await? {
            Some(own) => space.within(own.quota, (own.used.bytes, own.used.entries)),
            None => space,
        })
    }
}
