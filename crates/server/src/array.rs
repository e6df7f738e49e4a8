//! A node's array of SSDs: creating and opening it, and its maintenance thread.
//!
//! Each device has a path. If the file or device at a path is gone or changed, the old device
//! counts as failed. If it is blank, or the old device again, it takes the place and is rebuilt
//! while the node serves. So pulling and inserting disks needs no command, and neither does a start
//! with one replaced. A device with foreign contents is never used.

use crate::array_watch::ArrayWatch;
use crate::error::{ServerError, io_error, random_bytes};
use gabion_flash::{
    Device, FileDevice, FlashError, FlashOptions, FlashStore, Geometry, MappedNvram, Nvram,
    PAGE_BYTES, UnreadableStripe, array_of, is_blank,
};
use gabion_store::{Disk, DiskFile, FlashDisk, free_bytes};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Interval of checking the devices' paths.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval of trying stripes again whose bytes were unreadable.
const RETRY_UNREADABLE_EVERY: Duration = Duration::from_mins(10);

/// Parameters of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayConfig {
    /// Files or raw block devices, in order.
    pub devices: Vec<PathBuf>,
    /// Number of them that hold parity, rotating: 1 is RAID-5, 2 is RAID-6.
    pub parity_devices: usize,
    /// The file of the non-volatile memory; created with the array.
    pub nvram: PathBuf,
    /// Data bytes of a stripe, for a new array.
    pub stripe_bytes: u64,
    /// Size of a device whose file is missing or empty, for a new array.
    pub device_bytes: u64,
}

type FlashArray = FlashDisk<FileDevice, MappedNvram>;
pub(crate) type Flash = FlashStore<FileDevice, MappedNvram>;

/// A node's array, maintained by a thread until it is dropped.
pub(crate) struct Array {
    disk: FlashArray,
    watch: ArrayWatch,
    is_over: Arc<AtomicBool>,
    /// Invariant: runs until it is joined in `drop`.
    keeper: Option<JoinHandle<()>>,
}

impl Array {
    /// Whether the array has been created, or may have been: its memory cannot be read now.
    pub(crate) fn exists(config: &ArrayConfig) -> bool {
        !matches!(
            Memory::open(&config.nvram),
            Ok(Memory::Unmade { .. } | Memory::None)
        )
    }

    /// Opens the array, or creates it if there is no non-volatile memory yet.
    pub(crate) fn open(config: &ArrayConfig) -> Result<Self, ServerError> {
        let store = match Memory::open(&config.nvram)? {
            Memory::Made(nvram) => open_store(config, nvram)?,
            Memory::Unmade { begun } => make_store(config, begun)?,
            Memory::None => make_store(config, None)?,
        };
        let usage = store.usage();
        tracing::info!(?usage, absent = ?store.absent_devices(), "array opened");
        let watch = ArrayWatch::new(config, &store);
        let wake: Arc<OnceLock<Thread>> = Arc::default();
        let woken = Arc::clone(&wake);
        let on_due = move || {
            if let Some(keeper) = woken.get() {
                keeper.unpark();
            }
        };
        let disk = FlashDisk::with_maintenance(store, Box::new(on_due));
        let disk = disk.map_err(io_error("use the array of", &config.nvram))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let slots = config.devices.iter().map(|path| Slot::new(path)).collect();
        let keeper = Keeper {
            disk: disk.clone(),
            is_over: Arc::clone(&is_over),
            slots,
            watch: watch.clone(),
            unreadable: Vec::new(),
        };
        let keeper = thread::Builder::new()
            .name("array".to_owned())
            .spawn(move || keeper.run())
            .map_err(io_error("start a thread for", &config.nvram))?;
        wake.get_or_init(|| keeper.thread().clone());
        Ok(Self {
            disk,
            watch,
            is_over,
            keeper: Some(keeper),
        })
    }

    pub(crate) fn watch(&self) -> &ArrayWatch {
        &self.watch
    }

    /// Its capacity for files, in bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.disk.store().geometry().capacity_pages() * PAGE_BYTES as u64
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(keeper) = self.keeper.take() {
            keeper.thread().unpark();
            let _ = keeper.join();
        }
    }
}

impl Disk for Array {
    gabion_store::pass_on! { disk:
        fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;
        fn create_directory(&self, path: &str) -> io::Result<()>;
        fn rename(&self, from: &str, to: &str) -> io::Result<()>;
        fn remove(&self, path: &str) -> io::Result<()>;
        fn list(&self, directory: &str) -> io::Result<Vec<String>>;
        fn sync_directory(&self, directory: &str) -> io::Result<()>;
        fn available_bytes(&self) -> io::Result<u64>;
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Disk::open(&self.disk, path)
    }
}

/// The state of an array's non-volatile memory.
enum Memory {
    /// It belongs to an array.
    Made(MappedNvram),
    /// It belongs to none.
    Unmade {
        /// The identity of the array that an attempt was about to create on blank devices, if that left it.
        begun: Option<u64>,
    },
    /// It does not exist.
    None,
}

/// Place in a new memory for the identity of the array that is about to be created, then for [`BEGUN_MARK`]. The
/// array's superblock is written over both at the end.
const BEGUN_AT: u64 = 8;
/// Sets a memory whose array is about to be created apart from a file of others that begins with zeros.
const BEGUN_MARK: [u8; 8] = *b"GABINVRM";

impl Memory {
    fn open(path: &Path) -> Result<Self, ServerError> {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::None),
            Err(error) => return Err(io_error("open", path)(error)),
            Ok(found) if !found.is_file() => {
                return Err(ServerError::MemoryNotAFile {
                    path: path.to_owned(),
                });
            }
            // An empty file cannot be mapped.
            Ok(found) if found.len() == 0 => return Ok(Self::Unmade { begun: None }),
            Ok(_) => {}
        }
        let nvram = MappedNvram::open(path).map_err(io_error("open", path))?;
        let mut head = [0; 24];
        let head_bytes = head.len().min(nvram.length_bytes() as usize);
        let read = nvram.read(0, &mut head[..head_bytes]);
        read.map_err(io_error("read", path))?;
        // The superblock is written last.
        if head[..8] != [0; 8] {
            return Ok(Self::Made(nvram));
        }
        if head[16..] == BEGUN_MARK {
            let begun = u64::from_le_bytes(std::array::from_fn(|at| head[8 + at]));
            return Ok(Self::Unmade { begun: Some(begun) });
        }
        if is_zero(&nvram).map_err(io_error("read", path))? {
            return Ok(Self::Unmade { begun: None });
        }
        Err(ServerError::ForeignMemory {
            path: path.to_owned(),
        })
    }
}

/// Whether a memory has zeros only.
fn is_zero(nvram: &MappedNvram) -> io::Result<bool> {
    let mut bytes = vec![0; 1 << 20];
    let mut at = 0;
    while at < nvram.length_bytes() {
        let length = (nvram.length_bytes() - at).min(bytes.len() as u64) as usize;
        nvram.read(at, &mut bytes[..length])?;
        if bytes[..length].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += length as u64;
    }
    Ok(true)
}

/// Creates an array of devices that are blank, or have only the writes of an earlier attempt to create the array with
/// the identity `begun`.
fn make_store(config: &ArrayConfig, begun: Option<u64>) -> Result<Flash, ServerError> {
    check_named_once(config)?;
    check_space(config)?;
    let mut devices = Vec::new();
    let mut capacity_bytes = u64::MAX;
    for path in &config.devices {
        let device = FileDevice::open_or_create(path, config.device_bytes);
        let device = device.map_err(io_error("open", path))?;
        let found = is_blank(&device).and_then(|is_blank| Ok((is_blank, array_of(&device)?)));
        let (is_blank, array) = found.map_err(io_error("read", path))?;
        if !is_blank && (begun.is_none() || array != begun) {
            return Err(ServerError::UsedDevice {
                path: path.clone(),
                nvram: config.nvram.clone(),
            });
        }
        let bytes = device.capacity_bytes();
        capacity_bytes = capacity_bytes.min(bytes.map_err(io_error("measure", path))?);
        devices.push(device);
    }
    let data_devices = devices.len().saturating_sub(config.parity_devices);
    let page_bytes = PAGE_BYTES as u64;
    let chunk_bytes = config.stripe_bytes / data_devices.max(1) as u64;
    let geometry = Geometry {
        chunk_bytes: (chunk_bytes / page_bytes * page_bytes).max(page_bytes),
        ..Geometry::new(data_devices, config.parity_devices, 0)
    };
    let geometry = geometry.filling(capacity_bytes);
    let identity = match begun {
        Some(identity) => identity,
        None => u64::from_le_bytes(random_bytes()?).max(1),
    };
    let nvram = make_memory(&config.nvram, geometry.nvram_bytes(), identity)?;
    let options = FlashOptions::default();
    let made = FlashStore::format(geometry, identity, devices, nvram, options)?;
    Ok(made)
}

/// Creates the file of a memory. It names the array before a device of the array is written: an attempt that a crash
/// ended can be repeated, and no device of another array is taken for one of the attempt.
fn make_memory(path: &Path, length_bytes: u64, identity: u64) -> Result<MappedNvram, ServerError> {
    let mut making = path.as_os_str().to_owned();
    making.push(".new");
    let making = PathBuf::from(making);
    match Memory::open(&making)? {
        Memory::None => {}
        // An earlier attempt left it.
        Memory::Unmade { .. } => fs::remove_file(&making).map_err(io_error("remove", &making))?,
        Memory::Made(_) => return Err(ServerError::ForeignMemory { path: making }),
    }
    let create = || {
        let nvram = MappedNvram::create(&making, length_bytes)?;
        nvram.write(BEGUN_AT, &identity.to_le_bytes())?;
        nvram.write(BEGUN_AT + 8, &BEGUN_MARK)?;
        nvram.persist(std::slice::from_ref(&(0..PAGE_BYTES as u64)))?;
        fs::rename(&making, path)?;
        fs::File::open(directory_of(path))?.sync_all()?;
        Ok(nvram)
    };
    create().map_err(io_error("create", path))
}

/// The directory of a file.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Refuses a device that is named twice, also by another path or another name of its file. Nothing is written before.
fn check_named_once(config: &ArrayConfig) -> Result<(), ServerError> {
    let mut paths = BTreeSet::new();
    let mut files = BTreeSet::new();
    for path in &config.devices {
        let is_new = match fs::metadata(path) {
            Ok(found) => files.insert((found.dev(), found.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = directory_of(path).canonicalize();
                let directory = directory.map_err(io_error("open", path))?;
                paths.insert((directory, path.file_name()))
            }
            Err(error) => return Err(io_error("open", path)(error)),
        };
        if !is_new {
            return Err(ServerError::SameDevice { path: path.clone() });
        }
    }
    Ok(())
}

/// Refuses new devices that do not fit on their disks: their files are allocated whole.
fn check_space(config: &ArrayConfig) -> Result<(), ServerError> {
    let mut needed = BTreeMap::new();
    for path in &config.devices {
        if fs::metadata(path).is_ok_and(|found| !found.is_file() || found.len() > 0) {
            continue;
        }
        let directory = directory_of(path);
        let disk = fs::metadata(directory).map_err(io_error("open", directory))?;
        let needed = needed.entry(disk.dev()).or_insert((directory, 0_u64));
        needed.1 = needed.1.saturating_add(config.device_bytes);
    }
    for (directory, needed) in needed.into_values() {
        let free = free_bytes(directory);
        let free = free.map_err(io_error("query the free space of", directory))?;
        if needed > free {
            return Err(ServerError::NoSpace {
                directory: directory.to_owned(),
                needed,
                free,
            });
        }
    }
    Ok(())
}

/// Opens an array with the present devices. A blank one takes its place later.
fn open_store(config: &ArrayConfig, nvram: MappedNvram) -> Result<Flash, ServerError> {
    let mut devices = Vec::new();
    for path in &config.devices {
        let device = match FileDevice::open(path) {
            Ok(device) => (!is_blank(&device).map_err(io_error("read", path))?).then_some(device),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a device of the array is missing");
                None
            }
        };
        devices.push(device);
    }
    Ok(FlashStore::open(devices, nvram, FlashOptions::default())?)
}

/// A device's place: a path, and its last known file.
struct Slot {
    path: PathBuf,
    /// The number of the file system and of the file on it.
    seen: Option<(u64, u64)>,
    /// Whether the array treats it as absent.
    is_absent: bool,
}

impl Slot {
    fn new(path: &Path) -> Self {
        let path = path.to_owned();
        let mut slot = Self {
            path,
            seen: None,
            is_absent: false,
        };
        slot.seen = slot.look();
        slot
    }

    fn look(&self) -> Option<(u64, u64)> {
        let found = fs::metadata(&self.path).ok()?;
        Some((found.dev(), found.ino()))
    }
}

/// Maintains an array: flushes and collects when due, removes failed devices and adds new ones.
struct Keeper {
    disk: FlashArray,
    is_over: Arc<AtomicBool>,
    slots: Vec<Slot>,
    watch: ArrayWatch,
    /// The stripes with unreadable bytes at the last check.
    unreadable: Vec<UnreadableStripe>,
}

impl Keeper {
    fn run(mut self) {
        // Devices that are blank or back at the start are added at once.
        for index in self.store().absent_devices() {
            self.take_in(index);
        }
        let mut look_at = Instant::now() + LOOK_EVERY;
        let mut retry_at = Instant::now() + RETRY_UNREADABLE_EVERY;
        while !self.is_over.load(Ordering::Acquire) {
            let is_rebuilding = self.keep();
            let now = Instant::now();
            if now >= look_at {
                self.look();
                self.look_for_unreadable();
                self.watch.look(self.store());
                look_at = now + LOOK_EVERY;
            }
            if now >= retry_at {
                self.store().retry_unreadable();
                retry_at = now + RETRY_UNREADABLE_EVERY;
            }
            if !is_rebuilding {
                thread::park_timeout(look_at.saturating_duration_since(now));
            }
        }
    }

    fn store(&self) -> &Flash {
        self.disk.store()
    }

    /// Runs due maintenance and rebuilds one stripe. A failure of one does not stop the other. Returns
    /// whether there may be more to rebuild.
    fn keep(&self) -> bool {
        if let Err(error) = self.store().maintain() {
            tracing::error!(%error, "cannot maintain the array");
        }
        self.rebuild().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot rebuild stripes of the array");
            false
        })
    }

    /// Logs stripes whose bytes were found to be unreadable since the last check.
    fn look_for_unreadable(&mut self) {
        let now = self.store().unreadable();
        for found in now.iter().filter(|found| !self.unreadable.contains(found)) {
            let stripe = found.stripe;
            if let Some(page) = &found.page {
                let file = page.file.as_deref().unwrap_or("");
                let page = page.page;
                tracing::error!(stripe, file, page, "a page of the array is unreadable");
            } else {
                tracing::error!(stripe, "a stripe of the array cannot be rebuilt");
            }
        }
        self.unreadable = now;
    }

    /// Rebuilds one stripe that lacks a chunk. Returns whether there may be more.
    fn rebuild(&self) -> Result<bool, FlashError> {
        if !self.store().rebuild()? {
            return Ok(false);
        }
        self.say_if_whole();
        Ok(true)
    }

    /// Logs that nothing is left to rebuild, if so.
    fn say_if_whole(&self) {
        if self.store().usage().degraded_stripes == 0 {
            self.watch.look(self.store());
            tracing::warn!("the array is whole again");
        }
    }

    /// Compares the files at the devices' paths with the last known ones.
    fn look(&mut self) {
        for index in 0..self.slots.len() {
            let (seen, now) = (self.slots[index].seen, self.slots[index].look());
            self.slots[index].seen = now;
            if seen != now && !self.is_absent(index) {
                let removed = self.store().remove_device(index);
                if let Err(error) = removed {
                    let path = self.slots[index].path.display();
                    tracing::error!(index, %path, %error, "a required device is missing");
                    continue;
                }
            }
            let is_absent = self.is_absent(index);
            let slot = &mut self.slots[index];
            if is_absent && !slot.is_absent {
                let path = slot.path.display();
                tracing::warn!(index, %path, "a device of the array is gone or has failed");
            }
            slot.is_absent = is_absent;
            if is_absent && seen != now && now.is_some() {
                self.take_in(index);
            }
        }
    }

    fn is_absent(&self, index: usize) -> bool {
        self.store().absent_devices().contains(&index)
    }

    /// Adds the device at a path to the array, if allowed.
    fn take_in(&mut self, index: usize) {
        let path = self.slots[index].path.clone();
        if !path.exists() {
            return;
        }
        let device_bytes = self.store().geometry().device_bytes();
        let taken = FileDevice::open_or_create(&path, device_bytes)
            .map_err(|error| error.to_string())
            .and_then(|device| {
                let is_blank = is_blank(&device).map_err(|error| error.to_string())?;
                if !is_blank && !self.store().is_own_device(index, &device) {
                    return Err(
                        "it holds other data; overwrite its first and last MiB with zeros to use it".to_owned()
                    );
                }
                let replaced = self.store().replace_device(index, device);
                replaced.map_err(|error| error.to_string())
            });
        let path = path.display();
        self.slots[index].is_absent = taken.is_err();
        match taken {
            Ok(()) => {
                tracing::warn!(index, %path, "a device was added and is being rebuilt");
                // All its future contents may still be in buffers.
                self.say_if_whole();
            }
            Err(why) => tracing::error!(index, %path, why, "cannot add a device"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(directory: &Path) -> ArrayConfig {
        let device = |index| directory.join(format!("device-{index}"));
        ArrayConfig {
            devices: (0..4).map(device).collect(),
            parity_devices: 1,
            nvram: directory.join("nvram"),
            stripe_bytes: 192 << 10,
            device_bytes: 4 << 20,
        }
    }

    /// Waits until the maintenance thread has reached a state.
    fn wait_until(array: &Array, is_so: impl Fn(&Flash) -> bool) {
        let begun = Instant::now();
        while !is_so(array.disk.store()) {
            assert!(begun.elapsed() < Duration::from_mins(1), "waited a minute");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn check(array: &Array, bytes: &[u8]) {
        let file = array.disk.open("file").unwrap();
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == bytes);
    }

    #[test]
    fn devices_are_removed_and_added_by_their_paths() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 31 / 32) as u8).collect();
        let array = Array::open(&config).unwrap();
        let file = array.disk.create("file").unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        for index in [2, 0] {
            fs::remove_file(&config.devices[index]).unwrap();
            wait_until(&array, |store| store.absent_devices() == [index]);
            check(&array, &bytes);
            fs::File::create(&config.devices[index]).unwrap();
            wait_until(&array, |store| {
                store.absent_devices().is_empty() && store.usage().degraded_stripes == 0
            });
            check(&array, &bytes);
        }
        // A device with other data is left unchanged.
        fs::write(&config.devices[1], vec![7; 8192]).unwrap();
        let other = directory.path().join("other");
        fs::write(&other, vec![7; 8192]).unwrap();
        fs::rename(&other, &config.devices[1]).unwrap();
        wait_until(&array, |store| store.absent_devices() == [1]);
        drop((file, array));
        assert_eq!(fs::read(&config.devices[1]).unwrap(), vec![7; 8192]);
        // A start with a blank device in its place.
        fs::remove_file(&config.devices[1]).unwrap();
        fs::File::create(&config.devices[1]).unwrap();
        let array = Array::open(&config).unwrap();
        wait_until(&array, |store| {
            store.absent_devices().is_empty() && store.usage().degraded_stripes == 0
        });
        check(&array, &bytes);
    }

    #[test]
    fn devices_that_do_not_fit_are_refused_before_one_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let config = ArrayConfig {
            device_bytes: 1 << 50,
            ..config(directory.path())
        };
        let refused = Array::open(&config).map(drop).unwrap_err();
        assert!(matches!(refused, ServerError::NoSpace { .. }), "{refused}");
        let left = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 0, "files are left");
    }

    #[test]
    fn data_behind_empty_pages_are_foreign_and_a_device_counts_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path());
        // Where file systems and arrays of other systems have their marks.
        for at in [4096, 32 << 10, 64 << 10, (1 << 20) - 1, (4 << 20) - 4096] {
            let mut foreign = vec![0; 4 << 20];
            foreign[at] = 7;
            fs::write(&config.devices[1], &foreign).unwrap();
            let refused = Array::open(&config).map(drop).unwrap_err();
            assert!(
                matches!(refused, ServerError::UsedDevice { .. }),
                "{refused}"
            );
            assert!(fs::read(&config.devices[1]).unwrap() == foreign);
        }
        for device in &config.devices {
            fs::remove_file(device).ok();
        }
        config.devices[3] = directory.path().join(".").join("device-1");
        let refused = Array::open(&config).map(drop).unwrap_err();
        assert!(
            matches!(refused, ServerError::SameDevice { .. }),
            "{refused}"
        );
        assert!(!config.devices[0].exists(), "nothing is made before");
        fs::write(&config.devices[1], []).unwrap();
        config.devices[3] = directory.path().join("another-name");
        fs::hard_link(&config.devices[1], &config.devices[3]).unwrap();
        let refused = Array::open(&config).map(drop).unwrap_err();
        assert!(
            matches!(refused, ServerError::SameDevice { .. }),
            "{refused}"
        );
    }

    #[test]
    fn an_array_is_created_once_and_never_over_another() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        fs::write(&config.nvram, vec![0; 4096]).unwrap();
        assert!(!Array::exists(&config));
        drop(Array::open(&config).unwrap());
        assert!(Array::exists(&config));
        let lost = directory.path().join("lost");
        fs::rename(&config.nvram, &lost).unwrap();
        // Its place may be a file that is not mounted, or one that another program has made or emptied.
        for in_its_place in [None, Some(0), Some(4096)] {
            if let Some(bytes) = in_its_place {
                fs::write(&config.nvram, vec![0; bytes]).unwrap();
            }
            assert!(!Array::exists(&config));
            let refused = Array::open(&config).map(drop).unwrap_err();
            assert!(
                matches!(refused, ServerError::UsedDevice { .. }),
                "{refused}"
            );
        }
        fs::rename(&lost, &config.nvram).unwrap();
        drop(Array::open(&config).unwrap());
    }

    #[test]
    fn an_attempt_to_create_an_array_is_repeated_on_its_own_devices_only() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        drop(Array::open(&config).unwrap());
        let device = FileDevice::open(&config.devices[0]).unwrap();
        let identity = array_of(&device).unwrap().expect("it has a header");
        drop(device);
        // The end of an attempt that had written some headers, and not the memory's superblock.
        let attempt = |identity: u64| {
            let mut memory = vec![0; 4096];
            memory[8..16].copy_from_slice(&identity.to_le_bytes());
            memory[16..24].copy_from_slice(&BEGUN_MARK);
            fs::write(&config.nvram, memory).unwrap();
        };
        attempt(identity ^ 1);
        let refused = Array::open(&config).map(drop).unwrap_err();
        assert!(
            matches!(refused, ServerError::UsedDevice { .. }),
            "{refused}"
        );
        attempt(identity);
        fs::write(&config.devices[3], []).unwrap();
        let array = Array::open(&config).unwrap();
        assert!(array.disk.store().absent_devices().is_empty());
    }

    #[test]
    fn files_of_others_are_never_taken_for_a_memory() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let new = directory.path().join("nvram.new");
        // File systems begin with zeros: ext4 has 1 KiB of them, btrfs 64 KiB.
        for at in [8, 1024, 64 << 10, (2 << 20) - 1] {
            for place in [&config.nvram, &new] {
                let mut foreign = vec![0; 2 << 20];
                foreign[at] = 7;
                fs::write(place, &foreign).unwrap();
                let refused = Array::open(&config).map(drop).unwrap_err();
                assert!(
                    matches!(&refused, ServerError::ForeignMemory { path } if path == place),
                    "{refused}"
                );
                assert!(fs::read(place).unwrap() == foreign);
                fs::remove_file(place).unwrap();
            }
        }
        // A crash may leave any part of a new memory's zeros.
        fs::write(&new, vec![0; 4096]).unwrap();
        drop(Array::open(&config).unwrap());
        assert!(!new.exists());
    }

    #[test]
    fn a_memory_that_is_no_regular_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let config = ArrayConfig {
            nvram: PathBuf::from("/dev/null"),
            ..config(directory.path())
        };
        let refused = Array::open(&config).map(drop).unwrap_err();
        assert!(
            matches!(refused, ServerError::MemoryNotAFile { .. }),
            "{refused}"
        );
    }
}
