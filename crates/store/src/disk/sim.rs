//! A simulated disk in memory that fails like a real one, reproducibly from a seed.
//!
//! [`SimDisk::crash`] keeps all synced bytes; each unsynced write is kept, lost or torn between
//! sectors; each unsynced creation, rename and removal is kept or lost. A failed sync loses the
//! bytes that it should have made durable, while reads still see them, as with page caches. The
//! next process ([`SimDisk::restart_process`]) sees them too, except in reads from the device. A
//! hole takes no space, other bytes take whole pages. Clones share one disk. Handles opened before a crash fail after
//! it.
//!
//! Not modelled: latency, and reordering of unsynced writes to the same sector (each is kept or
//! lost, but in order).

mod model;

pub use model::DiskCounts;

use crate::disk::{Disk, DiskFile, PhysicalExtent};
use gabion_layout::ByteRange;
use model::{
    Change, Fate, Inode, NameChange, Node, State, directory_of, input_output_error, lock_inode,
    powered_off,
};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Size of a page that is cached or not as a whole.
const PAGE_BYTES: u64 = 4096;

/// The disk. See the module's documentation for what it models.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// An open file of a [`SimDisk`].
#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    inode: Arc<Mutex<Inode>>,
    incarnation: u64,
}

impl SimDisk {
    /// An empty disk without limits; `seed` decides its crashes.
    pub fn new(seed: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(State::new(seed))),
        }
    }

    /// Operations so far.
    pub fn counts(&self) -> DiskCounts {
        self.lock().counts
    }

    /// Makes the operation that raises `operation_count` to `number` fail with an I/O error. Later
    /// ones work again.
    pub fn fail_operation(&self, number: u64) {
        self.lock().fail_at = Some(number);
    }

    /// Makes the next sync of a file fail with an I/O error. Later ones work again.
    pub fn fail_next_sync(&self) {
        self.lock().fails_next.sync = true;
    }

    /// Makes the next read that misses the cache fail with an I/O error. Later ones work again.
    pub fn fail_next_read(&self) {
        self.lock().fails_next.read = true;
    }

    /// Makes the next open of a file fail with an I/O error. Later ones work again.
    pub fn fail_next_open(&self) {
        self.lock().fails_next.open = true;
    }

    /// The files of which a read has failed by [`SimDisk::fail_next_read`] since the last call. Files
    /// without a name are left out.
    pub fn take_failed_reads(&self) -> Vec<String> {
        let mut state = self.lock();
        let failed = std::mem::take(&mut state.failed_reads);
        let path_of = |inode: &Arc<Mutex<Inode>>| {
            let is_it =
                |node: &Node| matches!(node, Node::File(known) if Arc::ptr_eq(known, inode));
            let mut names = state.names.iter();
            names.find_map(|(path, node)| is_it(node).then(|| path.clone()))
        };
        failed.iter().filter_map(path_of).collect()
    }

    /// Cuts the power during the operation that raises `operation_count` to `number`: that one may
    /// take effect in part, and everything fails until [`SimDisk::crash`].
    pub fn power_off_at(&self, number: u64) {
        self.lock().power_off_at = Some(number);
    }

    /// Makes every further operation and read fail with an I/O error, as when the device is gone.
    pub fn die(&self) {
        self.lock().is_dead = true;
    }

    /// Whether descriptors are available; without them every open, create or list fails.
    pub fn give_descriptors(&self, are_there: bool) {
        self.lock().is_out_of_descriptors = !are_there;
    }

    /// Makes every open, list and removal of the file or directory `path` fail with this error code
    /// of the system, as when its inode cannot be read.
    pub fn break_path(&self, path: &str, code: i32) {
        self.lock().broken_paths.insert(path.to_owned(), code);
    }

    /// Ends the effect of [`SimDisk::break_path`].
    pub fn mend_path(&self, path: &str) {
        self.lock().broken_paths.remove(path);
    }

    /// Makes every read that touches the 4 KiB page around `offset` of a file fail with an I/O
    /// error. Does nothing when the file is missing.
    pub fn lose_page(&self, path: &str, offset: u64) {
        if let Some(Node::File(inode)) = self.lock().names.get(path) {
            let page = (offset / PAGE_BYTES) as usize;
            lock_inode(inode).unreadable.insert(page);
        }
    }

    /// Whether some page of a file is unreadable. False when the file is missing.
    pub fn has_lost_pages(&self, path: &str) -> bool {
        match self.lock().names.get(path) {
            Some(Node::File(inode)) => !lock_inode(inode).unreadable.is_empty(),
            _ => false,
        }
    }

    /// Sets whether the system keeps its cached pages of a file, as when another process maps them:
    /// a read from the device then fails where they differ. A crash ends that. Does nothing when the
    /// file is missing.
    pub fn keep_cache(&self, path: &str, keeps: bool) {
        if let Some(Node::File(inode)) = self.lock().names.get(path) {
            lock_inode(inode).keeps_cache = keeps;
        }
    }

    /// Makes the next read from the device of a file fail, since dirty pages cannot be written back
    /// before it. Does nothing when the file is missing.
    pub fn fail_write_back(&self, path: &str) {
        if let Some(Node::File(inode)) = self.lock().names.get(path) {
            lock_inode(inode).fails_write_back = true;
        }
    }

    /// Ends the process that uses the disk: its handles become invalid, and the page cache stays.
    pub fn restart_process(&self) {
        let mut state = self.lock();
        state.incarnation += 1;
        state.forget_faults();
    }

    /// Whether the power was cut and [`SimDisk::crash`] not yet called.
    pub fn has_lost_power(&self) -> bool {
        self.lock().is_off()
    }

    /// Limits the space of all files, in whole pages of 4 KiB, to `bytes`.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity_bytes = bytes;
    }

    /// Loses power and restarts: see the module's documentation for what survives.
    pub fn crash(&self) {
        let mut state = self.lock();
        let names = state.survivors();
        state.names.clone_from(&names);
        state.durable_names = names;
        state.unsynced_names.clear();
        state.counts.name_count += 1;
        state.incarnation += 1;
        state.power_off_at = None;
        state.forget_faults();
    }

    /// A copy of the disk after a crash at this point; the original goes on. Different seeds give
    /// different outcomes of the same crash.
    #[must_use]
    pub fn after_crash(&self, seed: u64) -> Self {
        let copy = Self::new(seed);
        {
            let state = self.lock();
            let mut other = copy.lock();
            // Copy every inode once, so that its names still share it.
            let mut copies: Vec<(*const Mutex<Inode>, Arc<Mutex<Inode>>)> = Vec::new();
            let mut duplicate = |node: &Node| match node {
                Node::Directory => Node::Directory,
                Node::File(inode) => {
                    let address = Arc::as_ptr(inode);
                    if let Some((_, known)) = copies.iter().find(|(at, _)| *at == address) {
                        return Node::File(Arc::clone(known));
                    }
                    let fresh = Arc::new(Mutex::new(lock_inode(inode).clone()));
                    copies.push((address, Arc::clone(&fresh)));
                    Node::File(fresh)
                }
            };
            for (name, node) in &state.names {
                other.names.insert(name.clone(), duplicate(node));
            }
            for (name, node) in &state.durable_names {
                other.durable_names.insert(name.clone(), duplicate(node));
            }
            for change in &state.unsynced_names {
                let link = change
                    .link
                    .as_ref()
                    .map(|(name, node)| (name.clone(), duplicate(node)));
                let unlink = change.unlink.clone();
                other.unsynced_names.push(NameChange { unlink, link });
            }
            other.capacity_bytes = state.capacity_bytes;
            other.inode_count = state.inode_count;
        }
        copy.crash();
        copy
    }

    /// Paths of all files, sorted.
    pub fn files(&self) -> Vec<String> {
        let state = self.lock();
        let is_file =
            |(path, node): (&String, &Node)| matches!(node, Node::File(_)).then(|| path.clone());
        state.names.iter().filter_map(is_file).collect()
    }

    /// Whether a file of this name exists after any crash now, today's or one that is about to
    /// replace it.
    pub fn keeps(&self, path: &str) -> bool {
        self.lock().keeps(path)
    }

    /// The bytes of a file, if it exists.
    pub fn contents(&self, path: &str) -> Option<Vec<u8>> {
        match self.lock().names.get(path)? {
            Node::Directory => None,
            Node::File(inode) => Some(lock_inode(inode).current.bytes.to_vec()),
        }
    }

    /// Flips bit `bit` of a file (counted from its start), both in the synced and in the readable
    /// bytes. Does nothing when the file is missing or shorter.
    pub fn flip_bit(&self, path: &str, bit: u64) {
        if let Some(Node::File(inode)) = self.lock().names.get(path) {
            let inode = &mut *lock_inode(inode);
            let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
            for bytes in [&mut inode.current, &mut inode.durable] {
                if let Some(byte) = Arc::make_mut(&mut bytes.bytes).get_mut(byte) {
                    *byte ^= mask;
                }
            }
        }
    }

    fn handle(&self, inode: Arc<Mutex<Inode>>, state: &State) -> Arc<dyn DiskFile> {
        Arc::new(SimFile {
            disk: self.clone(),
            inode,
            incarnation: state.incarnation,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.check_descriptors()?;
        if state.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if !state.has_directory(directory_of(path)) {
            return Err(ErrorKind::NotFound.into());
        }
        state.inode_count += 1;
        let inode = Arc::new(Mutex::new(Inode {
            number: state.inode_count,
            ..Inode::default()
        }));
        state.change_names(NameChange {
            unlink: None,
            link: Some((path.to_owned(), Node::File(Arc::clone(&inode)))),
        })?;
        Ok(self.handle(inode, &state))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.check_descriptors()?;
        state.check_path(path)?;
        if std::mem::take(&mut state.fails_next.open) {
            return Err(input_output_error());
        }
        Ok(self.handle(state.file(path)?, &state))
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        if state.has_directory(path) {
            return Ok(());
        }
        state.change_names(NameChange {
            unlink: None,
            link: Some((path.to_owned(), Node::Directory)),
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let inode = state.file(from)?;
        state.change_names(NameChange {
            unlink: Some(from.to_owned()),
            link: Some((to.to_owned(), Node::File(inode))),
        })
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.file(path)?;
        state.check_path(path)?;
        state.change_names(NameChange {
            unlink: Some(path.to_owned()),
            link: None,
        })
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let state = self.lock();
        state.check_descriptors()?;
        state.check_path(directory)?;
        if !state.has_directory(directory) {
            return Err(match state.file(directory) {
                Ok(_) => ErrorKind::NotADirectory.into(),
                Err(missing) => missing,
            });
        }
        let prefix = match directory {
            "" => String::new(),
            _ => format!("{directory}/"),
        };
        let behind = state.names.range(prefix.clone()..);
        let inside = behind.map_while(|(path, _)| path.strip_prefix(&prefix));
        Ok(inside
            .filter(|name| !name.contains('/'))
            .map(str::to_owned)
            .collect())
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.counts.sync_count += 1;
        state.counts.name_count += 1;
        match state.step()? {
            Fate::Works => {}
            Fate::LosesPower => return Err(powered_off()),
            Fate::Fails => return Err(io::Error::other("injected failure")),
        }
        let changes = std::mem::take(&mut state.unsynced_names);
        for change in changes {
            if change.touches(directory) {
                change.apply(&mut state.durable_names);
            } else {
                state.unsynced_names.push(change);
            }
        }
        Ok(())
    }

    fn available_bytes(&self) -> io::Result<u64> {
        Ok(self.lock().available_bytes())
    }
}

impl SimFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.lock();
        if state.incarnation != self.incarnation || state.is_off() {
            return Err(powered_off());
        }
        Ok(state)
    }

    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.state()?;
        let growth = change.growth_bytes(&lock_inode(&self.inode).current);
        if growth > 0 && growth > state.available_bytes() {
            return Err(ErrorKind::StorageFull.into());
        }
        if let Change::Write { bytes, .. } = &change {
            state.counts.write_count += 1;
            state.counts.written_bytes += bytes.len() as u64;
        }
        match state.step()? {
            Fate::Fails => Err(io::Error::other("injected failure")),
            Fate::Works => {
                lock_inode(&self.inode).change(change);
                Ok(())
            }
            Fate::LosesPower => {
                lock_inode(&self.inode).change(change);
                Err(powered_off())
            }
        }
    }
}

impl DiskFile for SimFile {
    fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        self.state()?.check_read(&self.inode)?;
        lock_inode(&self.inode).read(output, offset)
    }

    fn read_device_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        self.state()?.check_read(&self.inode)?;
        lock_inode(&self.inode).read_device(output, offset)
    }

    fn read_cached_at(&self, output: &mut [u8], offset: u64) -> bool {
        let is_well = self.state().is_ok_and(|state| state.check().is_ok());
        // Two pages of three are cached, the same ones in each run.
        let is_cached = is_well && !(offset / PAGE_BYTES).is_multiple_of(3);
        is_cached && lock_inode(&self.inode).read(output, offset).is_ok()
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let change = Change::Write {
            offset: offset as usize,
            bytes: bytes.to_vec(),
        };
        self.change(change)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state()?;
        state.counts.sync_count += 1;
        let fate = match state.step()? {
            Fate::Works if std::mem::take(&mut state.fails_next.sync) => Fate::Fails,
            fate => fate,
        };
        match fate {
            Fate::LosesPower => return Err(powered_off()),
            Fate::Works => lock_inode(&self.inode).sync(),
            Fate::Fails => {
                lock_inode(&self.inode).fail_sync();
                return Err(io::Error::other("injected failure"));
            }
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.change(Change::Allocate {
            offset: offset as usize,
            bytes: bytes as usize,
        })
    }

    fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.change(Change::Punch {
            offset: offset as usize,
            bytes: bytes as usize,
        })
    }

    fn extents(&self, range: ByteRange) -> io::Result<Vec<PhysicalExtent>> {
        let _state = self.state()?;
        let inode = lock_inode(&self.inode);
        // Each file lies in a contiguous part of the disk of its own.
        let extent = |used: ByteRange| PhysicalExtent {
            offset: used.offset,
            physical: (inode.number << 40) + used.offset,
            length: used.length,
        };
        Ok(inode.current.used(range).into_iter().map(extent).collect())
    }

    fn length(&self) -> io::Result<u64> {
        let _state = self.state()?;
        Ok(lock_inode(&self.inode).current.bytes.len() as u64)
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.change(Change::Length(bytes as usize))
    }
}
