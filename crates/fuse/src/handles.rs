//! The open handles of a mount.

use crate::errno::Errno;
use crate::open_files::OpenFile;
use fuser::{FileHandle, FopenFlags};
use gabion_client::File;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Linux's numbers of flags of `open`.
pub(crate) mod open_flags {
    pub(crate) const EXCLUSIVE: i32 = 0o200;
    pub(crate) const APPEND: i32 = 0o2000;
}

/// What the kernel has opened, by the numbers of its handles.
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
}

/// What the kernel is told of a new handle.
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

    /// What has the handle.
    pub(crate) fn get(&self, FileHandle(number): FileHandle) -> Result<Arc<T>, Errno> {
        let handle = self.lock().get(&number).cloned();
        handle.ok_or(Errno::BadDescriptor)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<T>>> {
        // The map is consistent after every step.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
