//! The reported health of a node's array: its devices, and the medium of its non-volatile memory.
//!
//! The array's thread checks it, so that a status request never waits for the array.

use crate::array::{ArrayConfig, Flash};
use gabion_flash::{FlashCounts, MappedNvram, NvramKind, disk_of};
use gabion_protocol::message::{ArrayMemory, ArrayStatus, DeviceState, DeviceStatus};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Warning where writes cannot be much faster than in place.
const SHARED_MEMORY: &str = "the array's non-volatile memory is a file on a disk of its devices, so every sync waits \
    for their stripes; put it on another disk, or on persistent memory";

/// The array's health at the last check.
#[derive(Clone, Debug)]
pub(crate) struct ArrayWatch(Arc<Watched>);

#[derive(Debug)]
struct Watched {
    paths: Vec<PathBuf>,
    memory: ArrayMemory,
    seen: Mutex<(ArrayStatus, Wear)>,
}

/// The wear of an array since it was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wear {
    pub(crate) counts: FlashCounts,
    pub(crate) free_stripe_count: u32,
    /// Stripes that collection or a rebuild has left because some of their bytes are unreadable.
    pub(crate) unreadable_stripe_count: usize,
    /// Bytes of a stripe on all its devices.
    stripe_bytes: u64,
}

impl Wear {
    /// Bytes of the stripes that were written.
    pub(crate) fn device_bytes(&self) -> u64 {
        (self.counts.flushed_stripes + self.counts.direct_stripes) * self.stripe_bytes
    }
}

impl ArrayWatch {
    /// Checks for the first time, and logs a warning if the memory is on a disk of the devices.
    pub(crate) fn new(config: &ArrayConfig, store: &Flash) -> Self {
        let paths = config.devices.clone();
        let memory = memory_of(config, store.nvram());
        if memory == ArrayMemory::FileOnDevices {
            tracing::warn!(nvram = %config.nvram.display(), "{SHARED_MEMORY}");
        }
        let seen = Mutex::new(look(store, &paths, memory));
        Self(Arc::new(Watched {
            paths,
            memory,
            seen,
        }))
    }

    /// Checks again.
    pub(crate) fn look(&self, store: &Flash) {
        let now = look(store, &self.0.paths, self.0.memory);
        *self.lock() = now;
    }

    /// The result of the last check.
    pub(crate) fn status(&self) -> ArrayStatus {
        self.lock().0.clone()
    }

    /// The wear at the last check.
    pub(crate) fn wear(&self) -> Wear {
        self.lock().1
    }

    fn lock(&self) -> MutexGuard<'_, (ArrayStatus, Wear)> {
        // It is replaced as a whole.
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The medium of an array's non-volatile memory.
fn memory_of(config: &ArrayConfig, nvram: &MappedNvram) -> ArrayMemory {
    if nvram.kind() == NvramKind::Dax {
        return ArrayMemory::Dax;
    }
    let disk = disk_of(&config.nvram);
    let is_same = |path: &PathBuf| disk.is_some() && disk_of(path) == disk;
    if config.devices.iter().any(is_same) {
        ArrayMemory::FileOnDevices
    } else {
        ArrayMemory::File
    }
}

fn look(store: &Flash, paths: &[PathBuf], memory: ArrayMemory) -> (ArrayStatus, Wear) {
    let usage = store.usage();
    let absent = store.absent_devices();
    let lacking = store.lacking_stripes();
    let device = |(index, path): (usize, &PathBuf)| DeviceStatus {
        path: path.display().to_string(),
        state: match lacking[index] {
            _ if absent.contains(&index) => abandoned(path),
            0 => DeviceState::Whole,
            left_stripe_count => DeviceState::Rebuilding { left_stripe_count },
        },
    };
    let geometry = store.geometry();
    let status = ArrayStatus {
        devices: paths.iter().enumerate().map(device).collect(),
        parity_device_count: geometry.parity_devices as u32,
        memory,
        stripe_count: usage.sealed_stripes,
        degraded_stripe_count: usage.degraded_stripes,
    };
    let wear = Wear {
        counts: store.counts(),
        free_stripe_count: usage.free_stripes,
        unreadable_stripe_count: store.unreadable().len(),
        stripe_bytes: geometry.device_count() as u64 * geometry.chunk_bytes,
    };
    (status, wear)
}

/// The reason why the array does not use the device at a path.
fn abandoned(path: &Path) -> DeviceState {
    if path.exists() {
        DeviceState::Failed
    } else {
        DeviceState::Absent
    }
}
