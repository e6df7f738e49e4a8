//! The contents of a simulated disk, which of them are durable, and the effect of a crash.

use crate::disk::SECTOR_BYTES;
use gabion_flash::CacheFault;
use gabion_layout::ByteRange;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Operations of a simulated disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskCounts {
    /// Operations that change the disk or make a change durable; the clock of injected faults.
    pub operation_count: u64,
    /// Writes to files.
    pub write_count: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Syncs of files and directories.
    pub sync_count: u64,
    /// Operations that affect which names survive a crash: changes of names, syncs of directories,
    /// crashes.
    pub name_count: u64,
}

/// The operation that fails at its next attempt.
#[derive(Debug, Default)]
pub(super) struct FailsNext {
    pub(super) sync: bool,
    pub(super) read: bool,
    pub(super) open: bool,
}

/// Everything under the disk's lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) random: SplitMix,
    pub(super) names: BTreeMap<String, Node>,
    pub(super) durable_names: BTreeMap<String, Node>,
    /// Changes of names since the last sync of their directory, oldest first.
    pub(super) unsynced_names: Vec<NameChange>,
    /// Raised by each crash; older handles are invalid.
    pub(super) incarnation: u64,
    pub(super) counts: DiskCounts,
    pub(super) fail_at: Option<u64>,
    pub(super) fails_next: FailsNext,
    /// The files of reads that failed on request, until someone asks.
    pub(super) failed_reads: Vec<Arc<Mutex<Inode>>>,
    pub(super) power_off_at: Option<u64>,
    pub(super) capacity_bytes: u64,
    /// Whether the device fails every operation.
    pub(super) is_dead: bool,
    /// Whether the process is out of descriptors.
    pub(super) is_out_of_descriptors: bool,
    /// Paths that cannot be opened, listed or removed, with the system's error code.
    pub(super) broken_paths: BTreeMap<String, i32>,
    /// Files ever created.
    pub(super) inode_count: u64,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: SplitMix(seed),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            incarnation: 0,
            counts: DiskCounts::default(),
            fail_at: None,
            fails_next: FailsNext::default(),
            failed_reads: Vec::new(),
            power_off_at: None,
            capacity_bytes: u64::MAX,
            is_dead: false,
            is_out_of_descriptors: false,
            broken_paths: BTreeMap::new(),
            inode_count: 0,
        }
    }
}

/// The target of a name.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Directory,
    File(Arc<Mutex<Inode>>),
}

/// A creation (link only), a rename (both) or a removal (unlink only).
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    pub(super) unlink: Option<String>,
    pub(super) link: Option<(String, Node)>,
}

/// A file's bytes, whatever its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    /// The file's unique number.
    pub(super) number: u64,
    pub(super) current: Contents,
    pub(super) durable: Contents,
    /// Changes since the last sync, oldest first.
    pub(super) unsynced: Vec<Change>,
    /// Pages that a failed sync has not written; the system caches them and considers them clean.
    pub(super) forgotten: BTreeSet<usize>,
    /// Whether the system cannot drop its cached pages.
    pub(super) keeps_cache: bool,
    /// Whether the next attempt to write dirty pages back before a read of the device fails.
    pub(super) fails_write_back: bool,
    /// Pages that the device cannot read.
    pub(super) unreadable: BTreeSet<usize>,
}

/// Granularity of space and of holes.
const PAGE_BYTES: usize = 4096;

/// A file's contents.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    /// Shared with copies of the disk until one of them changes.
    pub(super) bytes: Arc<Vec<u8>>,
    /// Numbers of the pages that take no space. Invariant: each is all zeros.
    pub(super) holes: BTreeSet<usize>,
}

impl Contents {
    fn page_count(&self) -> usize {
        self.bytes.len().div_ceil(PAGE_BYTES)
    }

    fn used_bytes(&self) -> u64 {
        ((self.page_count() - self.holes.len()) * PAGE_BYTES) as u64
    }

    /// The parts of a range that take space, in order.
    pub(super) fn used(&self, range: ByteRange) -> Vec<ByteRange> {
        let pages = range.offset as usize / PAGE_BYTES..(range.end() as usize).div_ceil(PAGE_BYTES);
        let mut used: Vec<ByteRange> = Vec::new();
        for page in pages.filter(|page| *page < self.page_count() && !self.holes.contains(page)) {
            let whole = ByteRange::new((page * PAGE_BYTES) as u64, PAGE_BYTES as u64);
            let part = whole.intersect(range);
            let part = part.expect("the page is one of the range's");
            match used.last_mut() {
                Some(last) if last.end() == part.offset => last.length += part.length,
                _ => used.push(part),
            }
        }
        used
    }

    /// Cuts the file off, or extends it by a hole.
    fn resize(&mut self, length: usize) {
        let page_count = self.page_count();
        Arc::make_mut(&mut self.bytes).resize(length, 0);
        self.holes.extend(page_count..self.page_count());
        self.holes.split_off(&self.page_count());
    }
}

/// A change of a file's bytes.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
    Allocate { offset: usize, bytes: usize },
    Punch { offset: usize, bytes: usize },
}

/// Small generator with a 64-bit state (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", 2014).
#[derive(Clone, Debug)]
pub(super) struct SplitMix(u64);

impl SplitMix {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

pub(super) fn lock_inode(inode: &Mutex<Inode>) -> MutexGuard<'_, Inode> {
    inode.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The error of a device that cannot carry out a request.
pub(super) fn input_output_error() -> io::Error {
    Errno::IO.into()
}

pub(super) fn powered_off() -> io::Error {
    io::Error::other("the simulated disk has no power")
}

/// The outcome of one operation.
#[derive(PartialEq, Eq)]
pub(super) enum Fate {
    Works,
    Fails,
    /// The power fails: the change is issued, but its outcome is unknown.
    LosesPower,
}

impl State {
    /// Counts an operation and returns its injected fault, if any.
    pub(super) fn step(&mut self) -> Result<Fate, io::Error> {
        if self.is_dead {
            return Err(input_output_error());
        }
        let number = self.counts.operation_count + 1;
        match self.power_off_at {
            Some(at) if number > at => return Err(powered_off()),
            _ => self.counts.operation_count = number,
        }
        if self.power_off_at == Some(number) {
            // The count stops here, so every later operation fails.
            self.power_off_at = Some(number - 1);
            return Ok(Fate::LosesPower);
        }
        if self.fail_at == Some(number) {
            self.fail_at = None;
            return Ok(Fate::Fails);
        }
        Ok(Fate::Works)
    }

    /// Refuses if the power is off or the device is dead.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.is_off() {
            return Err(powered_off());
        }
        if self.is_dead {
            return Err(input_output_error());
        }
        Ok(())
    }

    /// Like [`State::check`], for a read of the device.
    pub(super) fn check_read(&mut self, inode: &Arc<Mutex<Inode>>) -> io::Result<()> {
        self.check()?;
        if std::mem::take(&mut self.fails_next.read) {
            self.failed_reads.push(Arc::clone(inode));
            return Err(input_output_error());
        }
        Ok(())
    }

    /// Cancels all injected faults.
    pub(super) fn forget_faults(&mut self) {
        self.fail_at = None;
        self.fails_next = FailsNext::default();
    }

    /// Like [`State::check`], for an operation that takes a descriptor.
    pub(super) fn check_descriptors(&self) -> io::Result<()> {
        self.check()?;
        if self.is_out_of_descriptors {
            return Err(Errno::MFILE.into());
        }
        Ok(())
    }

    /// Fails for a path that [`SimDisk::break_path`](super::SimDisk::break_path) has named.
    pub(super) fn check_path(&self, path: &str) -> io::Result<()> {
        match self.broken_paths.get(path) {
            Some(&code) => Err(io::Error::from_raw_os_error(code)),
            None => Ok(()),
        }
    }

    pub(super) fn is_off(&self) -> bool {
        self.power_off_at
            .is_some_and(|at| self.counts.operation_count > at)
    }

    pub(super) fn file(&self, path: &str) -> io::Result<Arc<Mutex<Inode>>> {
        match self.names.get(path) {
            Some(Node::File(inode)) => Ok(Arc::clone(inode)),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn has_directory(&self, path: &str) -> bool {
        path.is_empty() || matches!(self.names.get(path), Some(Node::Directory))
    }

    pub(super) fn change_names(&mut self, change: NameChange) -> io::Result<()> {
        let fate = self.step()?;
        self.counts.name_count += 1;
        if fate == Fate::Fails {
            return Err(io::Error::other("injected failure"));
        }
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
        if fate == Fate::LosesPower {
            return Err(powered_off());
        }
        Ok(())
    }

    /// The space that is left for files.
    pub(super) fn available_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.used_bytes())
    }

    fn used_bytes(&self) -> u64 {
        let length = |node: &Node| match node {
            Node::Directory => 0,
            Node::File(inode) => lock_inode(inode).current.used_bytes(),
        };
        self.names.values().map(length).sum()
    }

    /// Whether every crash leaves a file of this name.
    pub(super) fn keeps(&self, path: &str) -> bool {
        let directory = directory_of(path);
        let is_file = matches!(self.durable_names.get(path), Some(Node::File(_)));
        let is_in = directory.is_empty() || self.durable_names.contains_key(directory);
        let may_go = |change: &NameChange| {
            let unlinked = change.unlink.as_deref();
            unlinked == Some(path) || unlinked == Some(directory)
        };
        is_file && is_in && !self.unsynced_names.iter().any(may_go)
    }

    /// The names that survive a crash, and through them the files.
    pub(super) fn survivors(&mut self) -> BTreeMap<String, Node> {
        let mut names = self.durable_names.clone();
        for change in std::mem::take(&mut self.unsynced_names) {
            if self.random.coin() {
                change.apply(&mut names);
            }
        }
        let lost_directory = |names: &BTreeMap<String, Node>, path: &str| {
            let directory = directory_of(path);
            !directory.is_empty() && !names.contains_key(directory)
        };
        // Names sort behind their directory, so one pass also drops nested directories.
        for path in names.keys().cloned().collect::<Vec<_>>() {
            if lost_directory(&names, &path) {
                names.remove(&path);
            }
        }
        for node in names.values() {
            if let Node::File(inode) = node {
                lock_inode(inode).crash(&mut self.random);
            }
        }
        names
    }
}

impl NameChange {
    pub(super) fn apply(&self, names: &mut BTreeMap<String, Node>) {
        if let Some(path) = &self.unlink {
            names.remove(path);
        }
        if let Some((path, node)) = &self.link {
            names.insert(path.clone(), node.clone());
        }
    }

    pub(super) fn touches(&self, directory: &str) -> bool {
        let inside = |path: &String| directory_of(path) == directory;
        self.unlink.as_ref().is_some_and(inside)
            || self.link.as_ref().is_some_and(|(path, _)| inside(path))
    }
}

impl Inode {
    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        let rewritten: Vec<usize> = change
            .pages()
            .filter(|page| self.forgotten.remove(page))
            .collect();
        self.unsynced.push(change);
        // Systems write whole pages, as cached.
        for page in rewritten {
            let offset = page * PAGE_BYTES;
            let end = (offset + PAGE_BYTES).min(self.current.bytes.len());
            let bytes = self.current.bytes[offset.min(end)..end].to_vec();
            self.unsynced.push(Change::Write { offset, bytes });
        }
    }

    /// Loses everything written since the last sync while reads still see it, as page caches do.
    /// The file system's own journal writes may still follow.
    pub(super) fn fail_sync(&mut self) {
        let is_data = |change: &mut Change| matches!(change, Change::Write { .. });
        for lost in self.unsynced.extract_if(.., is_data) {
            self.forgotten.extend(lost.pages());
        }
    }

    /// Writes back dirty pages, and drops the others from the cache.
    fn forget_cached(&mut self) {
        if self.forgotten.is_empty() {
            return;
        }
        self.forgotten.clear();
        self.current.clone_from(&self.durable);
        for change in &self.unsynced {
            change.apply(&mut self.current);
        }
    }

    /// Reads past the cache.
    pub(super) fn read_device(&mut self, output: &mut [u8], offset: u64) -> io::Result<()> {
        if std::mem::take(&mut self.fails_write_back) {
            return Err(CacheFault::WriteBack(input_output_error()).into());
        }
        if self.keeps_cache {
            let end = (offset as usize + output.len()).div_ceil(PAGE_BYTES);
            let pages = offset as usize / PAGE_BYTES..end;
            if self.forgotten.range(pages).next().is_some() {
                return Err(CacheFault::Differs.into());
            }
        } else {
            self.forget_cached();
        }
        self.read(output, offset)
    }

    /// The bytes of a range, if the file is long enough and the device can read them.
    pub(super) fn read(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        let end = usize::try_from(offset)
            .ok()
            .and_then(|start| start.checked_add(output.len()));
        let range = end.map(|end| offset as usize..end);
        let Some(bytes) = range
            .clone()
            .and_then(|range| self.current.bytes.get(range))
        else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        let pages = range.map(|range| range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES));
        if pages.is_some_and(|pages| self.unreadable.range(pages).next().is_some()) {
            return Err(input_output_error());
        }
        output.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            change.apply(&mut self.durable);
        }
    }

    pub(super) fn crash(&mut self, random: &mut SplitMix) {
        for change in std::mem::take(&mut self.unsynced) {
            match (random.next() % 3, change) {
                (0, _) => {}
                (1, Change::Write { offset, bytes }) => {
                    tear(&mut self.durable, offset, &bytes, random);
                }
                (_, change) => change.apply(&mut self.durable),
            }
        }
        self.forgotten.clear();
        self.keeps_cache = false;
        self.current.clone_from(&self.durable);
    }
}

impl Change {
    /// The pages that a change gives space.
    fn pages(&self) -> Range<usize> {
        let (offset, bytes) = match self {
            Self::Length(_) | Self::Punch { .. } => return 0..0,
            Self::Write { offset, bytes } => (*offset, bytes.len()),
            Self::Allocate { offset, bytes } => (*offset, *bytes),
        };
        offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES)
    }

    /// The space that the change adds to the file.
    pub(super) fn growth_bytes(&self, file: &Contents) -> u64 {
        let pages = self.pages();
        let filled_count = file.holes.range(pages.clone()).count();
        let new_count = pages.end.saturating_sub(pages.start.max(file.page_count()));
        ((filled_count + new_count) * PAGE_BYTES) as u64
    }

    pub(super) fn apply(&self, file: &mut Contents) {
        self.apply_bytes(file);
        for page in self.pages() {
            file.holes.remove(&page);
        }
    }

    fn apply_bytes(&self, file: &mut Contents) {
        match self {
            Self::Length(length) => file.resize(*length),
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if file.bytes.len() < end {
                    file.resize(end);
                }
                Arc::make_mut(&mut file.bytes)[*offset..end].copy_from_slice(bytes);
            }
            Self::Allocate { offset, bytes } => {
                if file.bytes.len() < offset + bytes {
                    file.resize(offset + bytes);
                }
            }
            Self::Punch { offset, bytes } => {
                let end = (offset + bytes).min(file.bytes.len());
                Arc::make_mut(&mut file.bytes)[(*offset).min(end)..end].fill(0);
                file.holes
                    .extend(offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES);
            }
        }
    }
}

/// Writes a random choice of the sectors that `bytes` touches.
pub(super) fn tear(file: &mut Contents, offset: usize, bytes: &[u8], random: &mut SplitMix) {
    let sector = SECTOR_BYTES as usize;
    let mut at = offset;
    while at < offset + bytes.len() {
        let end = ((at / sector + 1) * sector).min(offset + bytes.len());
        if random.coin() {
            let part = bytes[at - offset..end - offset].to_vec();
            Change::Write {
                offset: at,
                bytes: part,
            }
            .apply(file);
        }
        at = end;
    }
}
