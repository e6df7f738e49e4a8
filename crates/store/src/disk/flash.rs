//! A flash store ([`gabion_flash`]) as a [`Disk`]: keeps a node's chunks, reserves and journal on
//! an array of SSDs that is written in whole stripes only (`CodFS` thesis, chapter 6).
//!
//! Names and lengths are durable at once, so directories need no syncs. A sync of any file makes
//! all bytes durable in the flash store's non-volatile memory. Directories are empty files whose
//! names end in `/`. A removed or replaced file that is still open is deleted with its last handle,
//! or when the flash store is opened again.

use crate::disk::{Disk, DiskFile, PhysicalExtent};
use gabion_flash::{Device, FileId, FlashError, FlashStore, Nvram};
use gabion_layout::ByteRange;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Called when the flash store has maintenance due.
type OnDue = Box<dyn Fn() + Send + Sync>;

/// A [`Disk`] on a flash store. Clones share it.
pub struct FlashDisk<D: Device + 'static, N: Nvram + 'static> {
    shared: Arc<Shared<D, N>>,
}

struct Shared<D, N> {
    store: FlashStore<D, N>,
    /// Files with handles. Locked while names change, so that no file is opened during its removal.
    open: Mutex<BTreeMap<FileId, Open>>,
    on_due: Option<OnDue>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Open {
    handle_count: usize,
    /// Whether the file is deleted with its last handle.
    is_unlinked: bool,
}

/// An open file of a [`FlashDisk`].
pub struct FlashFile<D: Device + 'static, N: Nvram + 'static> {
    shared: Arc<Shared<D, N>>,
    file: FileId,
}

impl<D: Device, N: Nvram> Clone for FlashDisk<D, N> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<D: Device, N: Nvram> FlashDisk<D, N> {
    /// A disk on `store`, which has no other writer.
    ///
    /// # Errors
    /// If the flash store fails.
    pub fn new(store: FlashStore<D, N>) -> io::Result<Self> {
        Self::make(store, None)
    }

    /// Like [`FlashDisk::new`], but calls `on_due` after a write when [`FlashStore::maintain`] has
    /// work. It must return at once, since the writer waits for it.
    ///
    /// # Errors
    /// If the flash store fails.
    pub fn with_maintenance(store: FlashStore<D, N>, on_due: OnDue) -> io::Result<Self> {
        Self::make(store, Some(on_due))
    }

    fn make(store: FlashStore<D, N>, on_due: Option<OnDue>) -> io::Result<Self> {
        let shared = Shared {
            store,
            open: Mutex::default(),
            on_due,
        };
        let disk = Self {
            shared: Arc::new(shared),
        };
        disk.create_directory("")?;
        Ok(disk)
    }

    /// The flash store below.
    pub fn store(&self) -> &FlashStore<D, N> {
        &self.shared.store
    }

    fn open_handle(&self, open: &mut BTreeMap<FileId, Open>, file: FileId) -> Arc<dyn DiskFile> {
        open.entry(file).or_default().handle_count += 1;
        Arc::new(FlashFile {
            shared: Arc::clone(&self.shared),
            file,
        })
    }

    fn find(&self, path: &str) -> io::Result<FileId> {
        let found = self.store().find(path);
        found.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Refuses a path in a missing directory.
    fn check_parent(&self, path: &str) -> io::Result<()> {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.find(&directory_name(parent)).map(|_| ())
    }
}

/// The name of a directory's own file.
fn directory_name(path: &str) -> String {
    format!("{path}/")
}

impl<D: Device, N: Nvram> Shared<D, N> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileId, Open>> {
        // Counts are consistent after every change, even if a thread panics between two of them.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes a file without a name, now or with its last handle.
    fn delete(&self, open: &mut BTreeMap<FileId, Open>, file: FileId) -> io::Result<()> {
        match open.get_mut(&file) {
            Some(open) => {
                open.is_unlinked = true;
                Ok(())
            }
            None => self.store.delete(file).map_err(io_error),
        }
    }
}

impl<D: Device, N: Nvram> Disk for FlashDisk<D, N> {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut open = self.shared.lock();
        self.check_parent(path)?;
        let file = self.store().create(path).map_err(io_error)?;
        Ok(self.open_handle(&mut open, file))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut open = self.shared.lock();
        let file = self.find(path)?;
        Ok(self.open_handle(&mut open, file))
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        let _open = self.shared.lock();
        if !path.is_empty() {
            self.check_parent(path)?;
        }
        match self.store().create(&directory_name(path)) {
            Ok(_) | Err(FlashError::Exists { .. }) => Ok(()),
            Err(error) => Err(io_error(error)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut open = self.shared.lock();
        self.check_parent(to)?;
        let file = self.find(from)?;
        match self.store().rename(file, to).map_err(io_error)? {
            Some(replaced) => self.shared.delete(&mut open, replaced),
            None => Ok(()),
        }
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut open = self.shared.lock();
        let file = self.find(path)?;
        if open.contains_key(&file) {
            self.store().unlink(file).map_err(io_error)?;
        }
        self.shared.delete(&mut open, file)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let own = directory_name(directory);
        if self.find(&own).is_err() && self.find(directory).is_ok() {
            return Err(ErrorKind::NotADirectory.into());
        }
        self.find(&own)?;
        let prefix = if directory.is_empty() { "" } else { &own };
        let inside = |name: &String| {
            let rest = &name[prefix.len()..];
            let rest = rest.strip_suffix('/').unwrap_or(rest);
            (!rest.is_empty() && !rest.contains('/')).then(|| rest.to_owned())
        };
        let mut names: Vec<String> = self
            .store()
            .list(prefix)
            .iter()
            .filter_map(inside)
            .collect();
        // A directory's file is sorted by a name that is longer by one character.
        names.sort_unstable();
        Ok(names)
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        self.find(&directory_name(directory)).map(|_| ())
    }

    fn available_bytes(&self) -> io::Result<u64> {
        Ok(self.store().available_bytes())
    }
}

impl<D: Device, N: Nvram> DiskFile for FlashFile<D, N> {
    fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.shared.store.read(self.file, offset, output);
        if read.map_err(io_error)? < output.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let store = &self.shared.store;
        store
            .write_deferred(self.file, offset, bytes)
            .map_err(io_error)?;
        if let Some(on_due) = &self.shared.on_due
            && store.is_maintenance_due()
        {
            on_due();
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.store.sync().map_err(io_error)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let store = &self.shared.store;
        store.allocate(self.file, offset, bytes).map_err(io_error)
    }

    fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let store = &self.shared.store;
        store.punch_hole(self.file, offset, bytes).map_err(io_error)
    }

    fn extents(&self, range: ByteRange) -> io::Result<Vec<PhysicalExtent>> {
        let found = self
            .shared
            .store
            .locate(self.file, range.offset, range.length);
        let extents = found.map_err(io_error)?.into_iter();
        let extent = |at: gabion_flash::Located| PhysicalExtent {
            offset: at.offset,
            physical: at.place,
            length: at.length,
        };
        Ok(extents.map(extent).collect())
    }

    fn length(&self) -> io::Result<u64> {
        self.shared.store.length(self.file).map_err(io_error)
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        let store = &self.shared.store;
        store.set_length(self.file, bytes).map_err(io_error)
    }
}

impl<D: Device + 'static, N: Nvram + 'static> Drop for FlashFile<D, N> {
    fn drop(&mut self) {
        let mut open = self.shared.lock();
        let Some(file) = open.get_mut(&self.file) else {
            return;
        };
        file.handle_count -= 1;
        if file.handle_count > 0 {
            return;
        }
        let is_unlinked = file.is_unlinked;
        open.remove(&self.file);
        if is_unlinked {
            // A failed flash store reports its failure to the next writer; its next start deletes
            // the file.
            let _ = self.shared.store.delete(self.file);
        }
    }
}

/// The equivalent error of a file system.
fn io_error(error: FlashError) -> io::Error {
    let kind = match &error {
        FlashError::NoSpace { .. } | FlashError::FullBelow { .. } => ErrorKind::StorageFull,
        FlashError::NoSuchFile { .. } => ErrorKind::NotFound,
        FlashError::Exists { .. } => ErrorKind::AlreadyExists,
        FlashError::OutOfRange { .. } => ErrorKind::InvalidInput,
        FlashError::Damaged { .. } => ErrorKind::InvalidData,
        FlashError::Io { source, .. } => source.kind(),
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
