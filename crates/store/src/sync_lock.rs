//! Syncs of one file by several threads. If a write of the file has failed, the operating system tells one of them, and
//! the others that all is well.

use crate::disk::DiskFile;
use std::io;
use std::sync::Mutex;

/// Files that share a lock are synced one after another, so they are few.
const LOCK_COUNT: usize = 64;

/// The syncs of a file, one after another: behind a failed one, all fail.
#[derive(Debug, Default)]
pub(crate) struct SyncLock(Mutex<bool>);

impl SyncLock {
    /// Syncs the file.
    pub(crate) fn sync(&self, file: &dyn DiskFile) -> io::Result<()> {
        let mut has_failed = self.0.lock().expect("no thread panics while it syncs");
        if *has_failed {
            return Err(io::Error::other("an earlier sync has failed"));
        }
        let synced = file.sync();
        *has_failed = synced.is_err();
        synced
    }
}

/// The locks of many files.
#[derive(Debug)]
pub(crate) struct SyncLocks([SyncLock; LOCK_COUNT]);

impl Default for SyncLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| SyncLock::default()))
    }
}

impl SyncLocks {
    /// The lock of the file with this number.
    pub(crate) fn of(&self, number: u64) -> &SyncLock {
        &self.0[(number % LOCK_COUNT as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;
    use crate::disk::Disk as _;

    #[test]
    fn a_sync_behind_a_failed_one_does_not_succeed() {
        let disk = SimDisk::new(1);
        let file = disk.create("file").unwrap();
        let lock = SyncLock::default();
        lock.sync(&*file).unwrap();
        disk.fail_next_sync();
        lock.sync(&*file).unwrap_err();
        file.sync().expect("the disk has told one caller");
        lock.sync(&*file).unwrap_err();
    }
}
