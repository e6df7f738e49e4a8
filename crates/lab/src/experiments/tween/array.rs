//! Shared parts of the experiments on flash: one load on a modelled array, through TWEEN or in
//! place, and its result.

use super::load::{self, Load};
use crate::error::LabError;
use crate::experiment::{Cell, Report, Session, Table};
use gabion_flash::{
    FlashCounts, FlashOptions, FlashStore, Geometry, InPlaceRaid, ModelDevice, ModelNvram,
    PAGE_BYTES, SsdCounts, SsdSpec,
};
use std::sync::Arc;

/// Pages of 4 KiB of an erase block of the model.
const BLOCK_PAGES: u64 = 16;
const BLOCK_BYTES: u64 = BLOCK_PAGES * PAGE_BYTES as u64;
/// Time to store a page in non-volatile memory: a copy and a flush of its lines.
const NVRAM_PAGE_NS: u64 = 1_500;

/// A store on a modelled array.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) data_devices: usize,
    pub(super) parity_devices: usize,
    pub(super) group_count: usize,
    /// Erase blocks of a chunk.
    pub(super) chunk_blocks: u64,
    /// Buffers beyond one a group.
    pub(super) spare_buffers: usize,
    /// Bytes that the SSDs program at once.
    pub(super) ssd_page_bytes: u64,
    /// The volume's share of all data pages, in per cent.
    pub(super) used_pct: u32,
    pub(super) options: FlashOptions,
    /// In the periodic mode a stripe is collected after this many writes, when the store is idle;
    /// none is the active mode.
    pub(super) periodic: Option<u64>,
}

impl Setting {
    /// RAID-5 of five SSDs, four groups, 80 % used.
    pub(super) fn new() -> Self {
        Self {
            data_devices: 4,
            parity_devices: 1,
            group_count: 4,
            chunk_blocks: 1,
            spare_buffers: Geometry::new(4, 1, 0).spare_buffers,
            ssd_page_bytes: PAGE_BYTES as u64,
            used_pct: 80,
            options: FlashOptions::default(),
            periodic: None,
        }
    }

    /// The same with this number of groups, and with as many buffers where that leaves one to
    /// spare.
    pub(super) fn with_groups(group_count: usize) -> Self {
        let usual = Self::new();
        let buffer_count = usual.group_count + usual.spare_buffers;
        Self {
            group_count,
            spare_buffers: buffer_count.saturating_sub(group_count).max(1),
            ..usual
        }
    }

    fn geometry(&self, load: &Load) -> Geometry {
        let mut geometry = Geometry {
            chunk_bytes: self.chunk_blocks * BLOCK_BYTES,
            group_count: self.group_count,
            spare_buffers: self.spare_buffers,
            ..Geometry::new(self.data_devices, self.parity_devices, 0)
        };
        let pages = u64::from(load.pages) * 100 / u64::from(self.used_pct);
        geometry.stripe_count = pages.div_ceil(u64::from(geometry.slot_count())) as u32;
        // At the highest shares, collection needs more working space than is left.
        while geometry.capacity_pages() < u64::from(load.pages) + 2 {
            geometry.stripe_count += 1;
        }
        geometry
    }

    fn devices(&self, count: usize, device_bytes: u64) -> Devices {
        let spec = SsdSpec {
            page_bytes: self.ssd_page_bytes,
            pages_per_block: (BLOCK_BYTES / self.ssd_page_bytes) as u32,
            ..SsdSpec::new((device_bytes / self.ssd_page_bytes) as u32)
        };
        (0..count)
            .map(|_| Arc::new(ModelDevice::new(spec)))
            .collect()
    }
}

/// Upper bound of the ratio of SSD lifetimes to those in place, by erases: without any collection,
/// and with buffers of this size that absorb as much as possible. Blocks that the log has filled
/// and not erased again yet, which are those that were free at first, count for neither side, as in
/// the measurement.
pub(super) fn lifetime_bound(
    setting: &Setting,
    load: &Load,
    in_place: &Outcome,
    tween: &Outcome,
) -> f64 {
    let geometry = setting.geometry(load);
    let memory_pages = geometry.buffer_count() * geometry.slot_count() as usize;
    let stripes = load.leaving_pages(memory_pages) as f64 / f64::from(geometry.slot_count());
    let blocks = stripes * (setting.chunk_blocks * geometry.device_count() as u64) as f64;
    let erased = blocks - (tween.filled_blocks() - tween.erases() as f64).max(0.0);
    in_place.erases() as f64 / erased.max(1.0)
}

/// The result of a load.
#[derive(Clone)]
pub(super) struct Outcome {
    pub(super) user_pages: u64,
    pub(super) ssds: Vec<SsdCounts>,
    /// Pages of 4 KiB in one that the SSDs program.
    ssd_page_pages: u64,
    pub(super) wear_most: u32,
    pub(super) wear_mean: f64,
    pub(super) partial_stripe_writes: u64,
    pub(super) counts: FlashCounts,
    /// The time that a share of writes takes at most, in nanoseconds, for each permille from 0 on.
    latencies_ns: Vec<u64>,
    /// Share of data pages that was used, as it came out, in per cent.
    pub(super) used_pct: f64,
}

impl Outcome {
    fn sum(&self, of: fn(&SsdCounts) -> u64) -> u64 {
        self.ssds.iter().map(of).sum()
    }

    pub(super) fn partial_block_writes(&self) -> u64 {
        self.sum(|ssd| ssd.partial_block_writes)
    }

    pub(super) fn erases(&self) -> u64 {
        self.sum(|ssd| ssd.erase_count)
    }

    /// Pages that the array writes to its SSDs for each page of the user, parity included.
    pub(super) fn array_amplification(&self) -> f64 {
        self.per_user_page(self.sum(|ssd| ssd.host_written_pages))
    }

    fn per_user_page(&self, ssd_pages: u64) -> f64 {
        (ssd_pages * self.ssd_page_pages) as f64 / self.user_pages.max(1) as f64
    }

    /// Pages that collection moved, in per cent of the user's.
    pub(super) fn moved_pct(&self) -> f64 {
        100.0 * self.counts.moved_pages as f64 / self.user_pages.max(1) as f64
    }

    /// Erase blocks filled by the programmed pages.
    fn filled_blocks(&self) -> f64 {
        let pages = self.sum(|ssd| ssd.flash_written_pages) * self.ssd_page_pages;
        pages as f64 / BLOCK_PAGES as f64
    }

    /// Returns the lifetime of the SSDs over that with another, by erases.
    pub(super) fn lifetime_over(&self, other: &Self) -> f64 {
        other.erases() as f64 / self.erases().max(1) as f64
    }

    /// Pages that the log writes for each page of the user: without parity and summaries.
    pub(super) fn log_amplification(&self) -> f64 {
        let counts = &self.counts;
        let pages = counts.written_pages + counts.table_pages + counts.moved_pages;
        (pages - counts.absorbed_pages.min(pages)) as f64 / self.user_pages.max(1) as f64
    }

    pub(super) fn ssd_amplification(&self) -> f64 {
        let host = self.sum(|ssd| ssd.host_written_pages);
        self.sum(|ssd| ssd.flash_written_pages) as f64 / host.max(1) as f64
    }

    pub(super) fn total_amplification(&self) -> f64 {
        self.per_user_page(self.sum(|ssd| ssd.flash_written_pages))
    }

    /// MiB a second, were the busiest SSD the only limit.
    pub(super) fn mib_per_s(&self) -> f64 {
        let busiest = self.ssds.iter().map(|ssd| ssd.busy_ns).max().unwrap_or(0);
        self.user_pages as f64 / 256.0 / (busiest.max(1) as f64 / 1e9)
    }

    /// The time that a share of writes takes at most, in microseconds.
    pub(super) fn latency_us(&self, permille: usize) -> f64 {
        self.latencies_ns[permille] as f64 / 1e3
    }
}

type Devices = Vec<Arc<ModelDevice>>;

/// The longest time that a device was busy since the last call, and the times until now.
fn longest_since(busy_ns: &mut [u64], devices: &Devices) -> u64 {
    let spent = busy_ns.iter_mut().zip(devices).map(|(before, device)| {
        let now = device.busy_ns();
        now - std::mem::replace(before, now)
    });
    spent.max().unwrap_or(0)
}

/// Makes the writes of a load. Each takes as long as the device that was busiest with it: devices of an
/// array work at the same time. Gives the time that a share of writes takes at most, by permille.
fn replay(
    load: &Load,
    devices: &Devices,
    mut write: impl FnMut(u32, u32) -> Result<u64, LabError>,
    mut idle: impl FnMut(u64) -> Result<(), LabError>,
) -> Result<Vec<u64>, LabError> {
    let mut latencies = Vec::with_capacity(load.writes.len() * load.passes as usize);
    let mut busy_ns = vec![0; devices.len()];
    let writes = (0..load.passes).flat_map(|_| &load.writes);
    for (count, &(first, pages)) in (1..).zip(writes) {
        // Collection between writes counts for none.
        longest_since(&mut busy_ns, devices);
        let own_ns = write(first, pages)?;
        latencies.push(own_ns + longest_since(&mut busy_ns, devices));
        idle(count)?;
    }
    latencies.sort_unstable();
    let last = latencies.len().saturating_sub(1);
    let at_most = |permille: usize| latencies.get((latencies.len() * permille / 1000).min(last));
    Ok((0..=1000)
        .map(|permille| at_most(permille).copied().unwrap_or(0))
        .collect())
}

fn outcome(
    (setting, load): (&Setting, &Load),
    devices: &Devices,
    latencies_ns: Vec<u64>,
    used_pct: f64,
) -> Outcome {
    let wear: Vec<_> = devices.iter().map(|device| device.wear()).collect();
    Outcome {
        user_pages: load.written_pages(),
        ssds: devices.iter().map(|device| device.counts()).collect(),
        ssd_page_pages: setting.ssd_page_bytes / PAGE_BYTES as u64,
        wear_most: wear.iter().map(|wear| wear.most).max().unwrap_or(0),
        wear_mean: wear.iter().map(|wear| wear.mean).sum::<f64>() / wear.len().max(1) as f64,
        partial_stripe_writes: 0,
        counts: FlashCounts::default(),
        latencies_ns,
        used_pct,
    }
}

/// A way to write a load to an array.
pub(super) type Way = fn(&Setting, &Load) -> Result<Outcome, LabError>;

/// A load through TWEEN. The volume is one file, filled before anything counts.
pub(super) fn tween(setting: &Setting, load: &Load) -> Result<Outcome, LabError> {
    let geometry = setting.geometry(load);
    let devices = setting.devices(geometry.device_count(), geometry.device_bytes());
    let nvram = ModelNvram::new(geometry.nvram_bytes());
    let store = FlashStore::format(geometry, 1, devices.clone(), nvram, setting.options)?;
    let file = store.create("volume")?;
    let zeros = vec![0; 1 << 20];
    let volume_bytes = u64::from(load.pages) * PAGE_BYTES as u64;
    store.set_length(file, volume_bytes)?;
    let mut at = 0;
    while at < volume_bytes {
        let part = (volume_bytes - at).min(zeros.len() as u64) as usize;
        store.write(file, at, &zeros[..part])?;
        store.maintain()?;
        at += part as u64;
    }
    for device in &devices {
        device.reset_counts();
    }
    let before = store.counts();
    let latencies = replay(
        load,
        &devices,
        |first, count| {
            let bytes = count as usize * PAGE_BYTES;
            let offset = u64::from(first) * PAGE_BYTES as u64;
            if bytes <= zeros.len() {
                store.write(file, offset, &zeros[..bytes])?;
            } else {
                store.write(file, offset, &vec![0; bytes])?;
            }
            Ok(u64::from(count) * NVRAM_PAGE_NS)
        },
        |count| {
            match setting.periodic {
                None => store.maintain()?,
                Some(every) if count % every == 0 => _ = store.collect()?,
                Some(_) => {}
            }
            Ok(())
        },
    )?;
    let slots = u64::from(geometry.stripe_count) * u64::from(geometry.slot_count());
    let used_pct = 100.0 * f64::from(load.pages) / slots as f64;
    let now = store.counts();
    let mut outcome = outcome((setting, load), &devices, latencies, used_pct);
    outcome.counts = FlashCounts {
        written_pages: now.written_pages - before.written_pages,
        table_pages: now.table_pages - before.table_pages,
        absorbed_pages: now.absorbed_pages - before.absorbed_pages,
        moved_pages: now.moved_pages - before.moved_pages,
        flushed_stripes: now.flushed_stripes - before.flushed_stripes,
        direct_stripes: now.direct_stripes - before.direct_stripes,
        collected_stripes: now.collected_stripes - before.collected_stripes,
        stall_count: now.stall_count - before.stall_count,
    };
    Ok(outcome)
}

/// The same load on the same SSDs, updated in place. Strips have 64 KiB.
pub(super) fn in_place(setting: &Setting, load: &Load) -> Result<Outcome, LabError> {
    let geometry = setting.geometry(load);
    let logical_pages = geometry.device_bytes() / PAGE_BYTES as u64;
    let devices = setting.devices(geometry.device_count(), geometry.device_bytes());
    let array = InPlaceRaid::new(devices.clone(), setting.parity_devices, 64 << 10)?;
    let row_bytes = setting.data_devices as u64 * (64 << 10);
    let zeros = vec![0; row_bytes as usize];
    let volume_bytes = (u64::from(load.pages) * PAGE_BYTES as u64).next_multiple_of(row_bytes);
    let mut at = 0;
    while at < volume_bytes {
        array.write(at, &zeros)?;
        at += row_bytes;
    }
    for device in &devices {
        device.reset_counts();
    }
    let before = array.counts();
    let latencies = replay(
        load,
        &devices,
        |first, count| {
            let bytes = count as usize * PAGE_BYTES;
            let offset = u64::from(first) * PAGE_BYTES as u64;
            if bytes <= zeros.len() {
                array.write(offset, &zeros[..bytes])?;
            } else {
                array.write(offset, &vec![0; bytes])?;
            }
            Ok(0)
        },
        |_| Ok(()),
    )?;
    let all = logical_pages * setting.data_devices as u64;
    let used_pct = 100.0 * f64::from(load.pages) / all as f64;
    let mut outcome = outcome((setting, load), &devices, latencies, used_pct);
    let counts = array.counts();
    outcome.partial_stripe_writes = counts.partial_stripe_writes - before.partial_stripe_writes;
    Ok(outcome)
}

/// A load through TWEEN and in place.
pub(super) fn both(setting: &Setting, load: &Load) -> Result<[Outcome; 2], LabError> {
    Ok([tween(setting, load)?, in_place(setting, load)?])
}

/// The same load on one SSD, straight.
pub(super) fn straight(setting: &Setting, load: &Load) -> Result<Outcome, LabError> {
    use gabion_flash::Device;
    let geometry = setting.geometry(load);
    let logical_pages = geometry.device_bytes() / PAGE_BYTES as u64;
    let devices = setting.devices(1, geometry.device_bytes());
    let failed = |source| {
        LabError::Flash(gabion_flash::FlashError::Io {
            operation: "write to the modelled SSD".to_owned(),
            source,
        })
    };
    let write = |first: u32, count: u32| {
        let bytes = vec![0; count as usize * PAGE_BYTES];
        devices[0].write_at(u64::from(first) * PAGE_BYTES as u64, &bytes)
    };
    for page in 0..load.pages {
        write(page, 1).map_err(failed)?;
    }
    devices[0].reset_counts();
    let latencies = replay(
        load,
        &devices,
        |first, count| write(first, count).map(|()| 0).map_err(failed),
        |_| Ok(()),
    )?;
    let used_pct = 100.0 * f64::from(load.pages) / logical_pages as f64;
    Ok(outcome((setting, load), &devices, latencies, used_pct))
}

/// Columns that most tables of these experiments have.
pub(super) const COLUMNS: [&str; 10] = [
    "partial stripes",
    "partial blocks",
    "log WA",
    "array WA",
    "SSD WA",
    "total WA",
    "erases",
    "most worn / mean",
    "MiB/s",
    "p99 us",
];

/// A table with these columns after `first`.
pub(super) fn table(title: &str, first: &[&str]) -> Table {
    let columns: Vec<&str> = first.iter().copied().chain(COLUMNS).collect();
    Table::new(title, &columns)
}

/// A row of such a table.
pub(super) fn row<const N: usize>(
    table: &mut Table,
    (load, first): (&Load, [Cell; N]),
    outcome: &Outcome,
) {
    let wear = f64::from(outcome.wear_most) / outcome.wear_mean.max(f64::MIN_POSITIVE);
    let log: Cell = if outcome.counts.written_pages == 0 {
        "-".into()
    } else {
        outcome.log_amplification().into()
    };
    let cells = [
        outcome.partial_stripe_writes.into(),
        outcome.partial_block_writes().into(),
        log,
        outcome.array_amplification().into(),
        outcome.ssd_amplification().into(),
        outcome.total_amplification().into(),
        outcome.erases().into(),
        wear.min(1e6).into(),
        outcome.mib_per_s().into(),
        outcome.latency_us(990).into(),
    ];
    let volume: Cell = load.name.clone().into();
    table.row([volume].into_iter().chain(first).chain(cells));
}

/// Returns the setting of all of them.
fn setting_words() -> Vec<String> {
    vec![
        "modelled SSDs: 4 KiB pages unless a table says otherwise, page-mapped, greedy collection, 7 % \
        over-provisioning, 50 us to read a \
         page, 200 us to program one, 1.5 ms to erase, 8 channels; the real store runs on them, not a model of the \
         store"
            .to_owned(),
        "log WA: pages of the log for each page of the user, with collection and without pages that buffers absorbed; \
        array WA: also with parity and summaries; total WA: programmed pages for each page of the user"
            .to_owned(),
        "MiB/s: the limit of the busiest SSD; a write takes as long as its busiest device"
            .to_owned(),
    ]
}

/// A report with the shared and the experiment's own description.
pub(super) fn begun(session: &Session<'_>, loads: &[Load], setting: &str) -> Report {
    let mut words = setting_words();
    words.push(setting.to_owned());
    Report {
        setting: words,
        scaled: load::scaled(session, loads),
        ..Report::default()
    }
}
