//! The crash tests' interface to a disk that loses power: the simulated one, and an array of SSDs.

use gabion_flash::{
    FlashOptions, FlashStore, Geometry, HotnessOptions, Power, SimDevice, SimNvram,
};
use gabion_store::{Disk, DiskFile, FlashDisk, SimDisk};
use std::io;
use std::sync::Arc;

/// A disk that loses power at any of its operations, reproducibly from a seed.
pub(crate) trait CrashDisk: Disk + Clone {
    /// An empty one.
    fn fresh(seed: u64) -> Self;
    /// Number of operations that changed it, or made a change durable.
    fn operation_count(&self) -> u64;
    /// Cuts the power during that operation.
    fn power_off_at(&self, number: u64);
    fn has_lost_power(&self) -> bool;
    /// A possible state after a crash now.
    fn after_crash(&self, seed: u64) -> Self;
}

impl CrashDisk for SimDisk {
    fn fresh(seed: u64) -> Self {
        Self::new(seed)
    }

    fn operation_count(&self) -> u64 {
        self.counts().operation_count
    }

    fn power_off_at(&self, number: u64) {
        SimDisk::power_off_at(self, number);
    }

    fn has_lost_power(&self) -> bool {
        SimDisk::has_lost_power(self)
    }

    fn after_crash(&self, seed: u64) -> Self {
        SimDisk::after_crash(self, seed)
    }
}

/// An array of four SSDs and its memory on one power supply.
#[derive(Clone)]
pub(crate) struct SimFlash {
    power: Power,
    devices: Vec<SimDevice>,
    nvram: SimNvram,
    disk: FlashDisk<SimDevice, SimNvram>,
}

/// Pages that a stripe takes of a device.
const STRIPE_PAGES: usize = 4;

/// Stripes of 11 pages, and room for about twice what the model writes.
fn geometry() -> Geometry {
    Geometry {
        chunk_bytes: 16 << 10,
        group_count: 2,
        ..Geometry::new(3, 1, 60)
    }
}

const OPTIONS: FlashOptions = FlashOptions {
    hotness: HotnessOptions {
        alpha: 0.3,
        beta: 0.02,
        unit_pages: 1,
        scale: gabion_flash::HotnessScale::Logarithmic,
    },
    victims: gabion_flash::Victims::Greedy,
    active_permille: 5,
    discards: true,
};

impl SimFlash {
    /// An array whose devices are files with holes, on file systems with space for `stripe_count`
    /// stripes.
    pub(crate) fn with_room_for(stripe_count: usize) -> Self {
        Self::on(1, |device| device.leave_room(stripe_count * STRIPE_PAGES))
    }

    /// Gives their file systems space for `stripe_count` stripes more.
    pub(crate) fn leave_room(&self, stripe_count: usize) {
        for device in &self.devices {
            device.leave_room(stripe_count * STRIPE_PAGES);
        }
    }

    fn on(seed: u64, prepare: impl Fn(&SimDevice)) -> Self {
        let power = Power::on();
        let geometry = geometry();
        let device = |_| SimDevice::new(&power, geometry.device_bytes() as usize);
        let devices: Vec<SimDevice> = (0..4).map(device).collect();
        devices.iter().for_each(prepare);
        // Memory that tears between words, as mapped, or between sectors, as a file.
        let granule_bytes = if seed.is_multiple_of(2) { 8 } else { 512 };
        let nvram = SimNvram::new(&power, geometry.nvram_bytes() as usize, granule_bytes);
        let store = FlashStore::format(geometry, 5, devices.clone(), nvram.clone(), OPTIONS);
        Self {
            power,
            devices,
            nvram,
            disk: FlashDisk::new(store.unwrap()).unwrap(),
        }
    }

    /// The array without one device, as after a start without it.
    pub(crate) fn without_device(&self, index: usize) -> Self {
        let devices = self.devices.iter().cloned().enumerate();
        let devices = devices.map(|(at, device)| (at != index).then_some(device));
        let store = FlashStore::open(devices.collect(), self.nvram.clone(), OPTIONS).unwrap();
        Self {
            disk: FlashDisk::new(store).unwrap(),
            ..self.clone()
        }
    }

    /// The flash store.
    pub(crate) fn store(&self) -> &FlashStore<SimDevice, SimNvram> {
        self.disk.store()
    }
}

impl CrashDisk for SimFlash {
    fn fresh(seed: u64) -> Self {
        Self::on(seed, |_| {})
    }

    fn operation_count(&self) -> u64 {
        self.power.operation_count()
    }

    fn power_off_at(&self, number: u64) {
        self.power.off_at(number);
    }

    fn has_lost_power(&self) -> bool {
        self.power.is_off()
    }

    fn after_crash(&self, seed: u64) -> Self {
        let power = Power::on();
        let survivors = self.devices.iter().zip(seed..);
        let devices: Vec<SimDevice> = survivors
            .map(|(device, seed)| device.after_crash(&power, seed))
            .collect();
        let nvram = self.nvram.after_crash(&power, seed ^ 0xa5a5);
        let given = devices.iter().cloned().map(Some).collect();
        let store = FlashStore::open(given, nvram.clone(), OPTIONS).unwrap();
        Self {
            power,
            devices,
            nvram,
            disk: FlashDisk::new(store).unwrap(),
        }
    }
}

impl Disk for SimFlash {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(path)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path)
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        self.disk.create_directory(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.disk.list(directory)
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        self.disk.sync_directory(directory)
    }

    fn available_bytes(&self) -> io::Result<u64> {
        self.disk.available_bytes()
    }
}
