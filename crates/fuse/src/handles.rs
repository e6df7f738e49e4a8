//! The open handles of a mount.

use crate::errno::Errno;
use crate::open_files::{OpenFile, lock};
use fuser::{FileHandle, FopenFlags};
use gabion_client::{File, LockHandle};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Linux's numbers of flags of `open`.
pub(crate) mod open_flags {
    use rustix::fs::OFlags;

    pub(crate) const ACCESS: i32 = 0o3;
    pub(crate) const READ_ONLY: i32 = 0;
    pub(crate) const EXCLUSIVE: i32 = 0o200;
    pub(crate) const APPEND: i32 = 0o2000;

    /// Whether the bytes of each write are durable when it returns, or bypass all caches.
    pub(crate) fn is_synchronous(flags: i32) -> bool {
        const THROUGH: OFlags = OFlags::DSYNC.union(OFlags::SYNC).union(OFlags::DIRECT);
        OFlags::from_bits_retain(flags as _).intersects(THROUGH)
    }
}

/// The kernel's open files or directories, by the numbers of its handles.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    open: Mutex<BTreeMap<u64, Arc<T>>>,
    next: AtomicU64,
}

/// A file as one `open` has opened it.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) file: File,
    pub(crate) shared: Arc<OpenFile>,
    /// Whether writes go to the end of the file, wherever that is.
    pub(crate) appends: bool,
    /// This mount's locks in the file.
    pub(crate) locks: LockHandle,
    /// Owners that have used the handle for range locks and have not closed it since.
    range_owners: Mutex<BTreeSet<u64>>,
    /// Failures to store bytes of the file that this handle need not report any more.
    seen_failures: AtomicU64,
}

impl Handle {
    /// A file that was opened just now, and whose writes heed its locks.
    pub(crate) fn new(
        file: &File,
        shared: &Arc<OpenFile>,
        locks: LockHandle,
        appends: bool,
    ) -> Self {
        Self {
            file: file.with_locks(&locks),
            shared: Arc::clone(shared),
            appends,
            locks,
            range_owners: Mutex::default(),
            seen_failures: AtomicU64::new(shared.unstored.failure_count()),
        }
    }

    /// The number of failures to store bytes of the file that it need not report any more.
    pub(crate) fn seen_failures(&self) -> u64 {
        self.seen_failures.load(Ordering::Acquire)
    }

    /// It has reported failures up to this number.
    pub(crate) fn see_failures(&self, count: u64) {
        self.seen_failures.fetch_max(count, Ordering::AcqRel);
    }

    /// An owner uses the handle for a range lock.
    pub(crate) fn note_range_owner(&self, owner: u64) {
        lock(&self.range_owners).insert(owner);
    }

    /// An owner closes the handle.
    pub(crate) fn forget_range_owner(&self, owner: u64) {
        lock(&self.range_owners).remove(&owner);
    }

    /// Owners that have not closed the handle: those of locks by `F_OFD_SETLK`, which are the handle's.
    pub(crate) fn take_range_owners(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *lock(&self.range_owners))
    }
}

/// The answer to the kernel about a new handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) handle: FileHandle,
    pub(crate) flags: FopenFlags,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            next: AtomicU64::default(),
        }
    }
}

impl<T> Handles<T> {
    /// Gives what was opened a handle.
    pub(crate) fn insert(&self, opened: T) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Arc::new(opened));
        FileHandle(number)
    }

    /// Ends a handle.
    pub(crate) fn remove(&self, FileHandle(number): FileHandle) -> Option<Arc<T>> {
        self.lock().remove(&number)
    }

    /// Returns the open file or directory of the handle.
    pub(crate) fn get(&self, FileHandle(number): FileHandle) -> Result<Arc<T>, Errno> {
        let handle = self.lock().get(&number).cloned();
        handle.ok_or(Errno::BadDescriptor)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<T>>> {
        lock(&self.open)
    }
}
