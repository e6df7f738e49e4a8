//! A simulated machine with a small store, and a generator of random numbers for its workload.

use gabion_flash::{
    FlashError, FlashOptions, FlashStore, Geometry, HotnessOptions, Power, SimDevice, SimNvram,
    Victims,
};

pub(crate) type Store = FlashStore<SimDevice, SimNvram>;

/// Devices and memory that outlive a store.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) power: Power,
    pub(crate) devices: Vec<SimDevice>,
    pub(crate) nvram: SimNvram,
    pub(crate) geometry: Geometry,
    pub(crate) options: FlashOptions,
}

/// Stripes of 11 slots, so that a few dozen writes reach every case.
pub(crate) fn geometry(parity_devices: usize) -> Geometry {
    Geometry {
        chunk_bytes: 16 << 10,
        group_count: 2,
        ..Geometry::new(3, parity_devices, 24)
    }
}

impl Machine {
    pub(crate) fn new(geometry: Geometry, granule_bytes: usize) -> Self {
        let power = Power::on();
        let device = |_| SimDevice::new(&power, geometry.device_bytes() as usize);
        let devices = (0..geometry.device_count()).map(device).collect();
        let nvram = SimNvram::new(&power, geometry.nvram_bytes() as usize, granule_bytes);
        Self {
            devices,
            nvram,
            power,
            geometry,
            options: FlashOptions {
                hotness: HotnessOptions {
                    unit_pages: 1,
                    ..HotnessOptions::default()
                },
                ..FlashOptions::default()
            },
        }
    }

    pub(crate) fn with_victims(mut self, victims: Victims) -> Self {
        self.options.victims = victims;
        self
    }

    pub(crate) fn format(&self) -> Store {
        let devices = self.devices.clone();
        FlashStore::format(self.geometry, 99, devices, self.nvram.clone(), self.options)
            .expect("a fresh machine works")
    }

    pub(crate) fn open(&self, absent: Option<usize>) -> Result<Store, FlashError> {
        FlashStore::open(self.given(absent), self.nvram.clone(), self.options)
    }

    pub(crate) fn given(&self, absent: Option<usize>) -> Vec<Option<SimDevice>> {
        let devices = self.devices.iter().cloned().enumerate();
        devices
            .map(|(index, device)| (Some(index) != absent).then_some(device))
            .collect()
    }

    /// Its state after a power failure.
    pub(crate) fn after_crash(&self, seed: u64) -> Self {
        let power = Power::on();
        let devices = self.devices.iter().zip(seed..);
        Self {
            devices: devices
                .map(|(device, seed)| device.after_crash(&power, seed))
                .collect(),
            nvram: self.nvram.after_crash(&power, seed ^ 0xa5a5),
            power,
            ..self.clone()
        }
    }
}

/// Draws from a seed.
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    /// A number below a bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}
