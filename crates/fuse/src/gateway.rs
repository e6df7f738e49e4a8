//! The state of a mount that all requests share.

use crate::errno::Errno;
use crate::handles::{Handle, Handles};
use crate::listing::Listing;
use crate::numbers::Numbers;
use crate::open_files::OpenFiles;
use crate::pools::Pools;
use crate::unstored::CacheMemory;
use fuser::{FileAttr, INodeNo, Notifier};
use gabion_client::Client;
use gabion_meta::{DirectoryId, Inode, PutId, RelativePath};
use std::ffi::OsStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};

/// An inode's attributes for the kernel.
pub(crate) type Stat = FileAttr;

/// Most bytes of a name in a directory.
pub(crate) const NAME_BYTES: usize = 255;

/// A mounted directory of a cluster.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) client: Client,
    /// The pool of new files.
    pub(crate) pool: String,
    pub(crate) numbers: Numbers,
    pub(crate) is_read_only: bool,
    /// For how long the kernel may go by attributes and names that it was told.
    pub(crate) kept: Duration,
    pub(crate) open_files: OpenFiles,
    pub(crate) handles: Handles<Handle>,
    pub(crate) listings: Handles<AsyncMutex<Listing>>,
    pub(crate) pools: Pools,
    /// Tells the kernel to forget attributes. Set as soon as the directory is mounted.
    pub(crate) notifier: OnceLock<Notifier>,
    /// Places of threads in which the kernel forgets pages. Each waits until reads of the pages end.
    pub(crate) forgetting: Arc<Semaphore>,
    /// Memory for bytes that the cluster gets later; none if each write waits until its bytes are durable.
    pub(crate) cache: Option<CacheMemory>,
}

impl Gateway {
    /// Refuses changes of a mount for reading. The kernel does that too, unless it was told otherwise since.
    pub(crate) const fn check_writable(&self) -> Result<(), Errno> {
        if self.is_read_only {
            Err(Errno::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// The directory with a number.
    pub(crate) fn directory(&self, number: INodeNo) -> Result<DirectoryId, Errno> {
        match self.numbers.inode(number) {
            Inode::Directory(directory) => Ok(directory),
            Inode::File(_) => Err(Errno::NotADirectory),
        }
    }

    /// The path of an existing entry of a directory.
    pub(crate) fn entry(&self, parent: INodeNo, name: &OsStr) -> Result<RelativePath, Errno> {
        let directory = self.directory(parent)?;
        check_length(name)?;
        // Names are UTF-8 without control characters, so nothing has any other.
        let name = name.to_str().ok_or(Errno::NotFound)?;
        if name.chars().any(char::is_control) {
            return Err(Errno::NotFound);
        }
        Ok(RelativePath::new(directory, name))
    }

    /// The path of a new entry of a directory.
    pub(crate) fn new_entry(&self, parent: INodeNo, name: &OsStr) -> Result<RelativePath, Errno> {
        self.check_writable()?;
        let directory = self.directory(parent)?;
        check_length(name)?;
        let name = name.to_str().ok_or(Errno::Invalid)?;
        Ok(RelativePath::new(directory, name))
    }

    /// Tells the kernel that it must ask for the attributes of an inode when they are needed next.
    pub(crate) fn forget_attributes(&self, inode: Inode) {
        /// Before the first byte: attributes alone.
        const NO_BYTES: i64 = -1;
        if let Some(notifier) = self.notifier.get() {
            // It fails for an inode that the kernel does not know.
            let _ = notifier.inval_inode(self.numbers.number(inode), NO_BYTES, 0);
        }
    }
}

impl Gateway {
    /// Makes the kernel forget the pages of a file, which waits until reads of them end. None if it is not mounted yet.
    pub(crate) fn forget_pages_later(&self, put: PutId) -> Option<JoinHandle<()>> {
        let notifier = self.notifier.get()?.clone();
        let number = self.numbers.number(Inode::File(put));
        let places = Arc::clone(&self.forgetting);
        Some(tokio::spawn(async move {
            let _place = places.acquire_owned().await.expect("it is never closed");
            // It fails for an inode that the kernel does not know, of which it has no pages.
            let forgotten = spawn_blocking(move || notifier.inval_inode(number, 0, 0));
            let _ = forgotten.await;
        }))
    }
}

fn check_length(name: &OsStr) -> Result<(), Errno> {
    if name.len() > NAME_BYTES {
        return Err(Errno::NameTooLong);
    }
    Ok(())
}
