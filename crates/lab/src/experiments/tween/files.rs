//! Synchronous writes of 4 KiB on real files: TWEEN and an array that is updated in place, in turn, over the same
//! number of files of the same size.
//!
//! TWEEN's non-volatile memory is a mapped file beside the devices here, so every write costs a sync of that file. The
//! array in place syncs the data and parity files that it wrote, and does not prevent the write hole.

use crate::error::LabError;
use crate::experiment::{Cell, Goal, Session, Table};
use gabion_flash::{
    FileDevice, FlashError, FlashOptions, FlashStore, Geometry, InPlaceRaid, MappedNvram,
    NvramKind, PAGE_BYTES,
};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Writers of each run.
const WRITERS: [usize; 3] = [1, 4, 8];
/// Times that each contender takes its turn.
const TURNS: usize = 3;
const DEVICE_COUNT: usize = 5;

/// Writes a second and slow writes of one contender.
#[derive(Clone, Default)]
struct Rate {
    writes_per_s: Vec<f64>,
    latencies_us: Vec<f64>,
}

impl Rate {
    fn median(&self) -> f64 {
        let mut sorted = self.writes_per_s.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }

    fn latency_us(&self, percent: usize) -> f64 {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = sorted.len() * percent / 100;
        sorted
            .get(at.min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0.0)
    }
}

/// The measurements.
pub(super) struct Files {
    /// By number of writers: TWEEN, then in place.
    rates: Vec<(usize, [Rate; 2])>,
    kind: NvramKind,
    open_s: f64,
    pages: u64,
}

/// Runs both on files of the session's directory.
pub(super) fn run(session: &Session<'_>) -> Result<Files, LabError> {
    let directory = session.empty_directory("twe-files")?;
    let (stripe_count, span) = session.scale.pick(
        (40, Duration::from_millis(150)),
        (200, Duration::from_secs(2)),
        (1000, Duration::from_secs(10)),
    );
    let geometry = Geometry::new(DEVICE_COUNT - 1, 1, stripe_count);
    let (store, kind) = tween(&directory, geometry)?;
    let array = in_place(&directory, geometry)?;
    // Half of the maximal live data, so that both overwrite and the log collects.
    let pages = geometry.capacity_pages() * 3 / 4;
    let file = store.create("volume")?;
    let block = vec![1; 1 << 20];
    for at in (0..pages * PAGE_BYTES as u64).step_by(block.len()) {
        store.write_deferred(file, at, &block)?;
        array.write(at, &block)?;
    }
    store.sync()?;
    array.sync()?;
    let rates = session.sweep("writers on files", WRITERS, |writers| {
        let mut both = [Rate::default(), Rate::default()];
        for turn in 0..TURNS {
            let seed = session.seed + turn as u64;
            let run = (writers, span, seed, pages);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) && store.maintain().is_ok() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                let done = write(run, &mut both[0], |page, bytes| {
                    store.write(file, page * PAGE_BYTES as u64, bytes)
                });
                is_over.store(true, Ordering::Relaxed);
                done
            })?;
            write(run, &mut both[1], |page, bytes| {
                array.write_durably(page * PAGE_BYTES as u64, bytes)
            })?;
        }
        Ok((writers, both))
    })?;
    drop(store);
    let begun = Instant::now();
    let store = reopen(&directory)?;
    let open_s = begun.elapsed().as_secs_f64();
    drop(store);
    std::fs::remove_dir_all(&directory).map_err(|source| io_failed("remove the files", source))?;
    Ok(Files {
        rates,
        kind,
        open_s,
        pages,
    })
}

fn io_failed(operation: &str, source: io::Error) -> LabError {
    LabError::Flash(FlashError::Io {
        operation: operation.to_owned(),
        source,
    })
}

type Store = FlashStore<FileDevice, MappedNvram>;

fn tween(directory: &Path, geometry: Geometry) -> Result<(Store, NvramKind), LabError> {
    let failed = |source| io_failed("create the files of a store", source);
    let mut devices = Vec::new();
    for index in 0..DEVICE_COUNT {
        let path = directory.join(format!("tween{index}"));
        devices.push(FileDevice::create(&path, geometry.device_bytes()).map_err(failed)?);
    }
    let nvram = MappedNvram::create(&directory.join("nvram"), geometry.nvram_bytes());
    let nvram = nvram.map_err(failed)?;
    let kind = nvram.kind();
    let options = FlashOptions::default();
    Ok((
        FlashStore::format(geometry, 1, devices, nvram, options)?,
        kind,
    ))
}

fn reopen(directory: &Path) -> Result<Store, LabError> {
    let failed = |source| io_failed("open the files of a store", source);
    let mut devices = Vec::new();
    for index in 0..DEVICE_COUNT {
        let path = directory.join(format!("tween{index}"));
        devices.push(Some(FileDevice::open(&path).map_err(failed)?));
    }
    let nvram = MappedNvram::open(&directory.join("nvram")).map_err(failed)?;
    Ok(FlashStore::open(devices, nvram, FlashOptions::default())?)
}

fn in_place(directory: &Path, geometry: Geometry) -> Result<InPlaceRaid<FileDevice>, LabError> {
    let mut devices = Vec::new();
    for index in 0..DEVICE_COUNT {
        let path = directory.join(format!("in-place{index}"));
        let device = FileDevice::create(&path, geometry.device_bytes());
        devices.push(device.map_err(|source| io_failed("create the files of an array", source))?);
    }
    Ok(InPlaceRaid::new(devices, 1, 64 << 10)?)
}

/// Lets writers write pages at random for a while, one after another each.
fn write(
    (writers, span, seed, pages): (usize, Duration, u64, u64),
    rate: &mut Rate,
    write: impl Fn(u64, &[u8]) -> Result<(), FlashError> + Sync,
) -> Result<(), LabError> {
    let begun = Instant::now();
    let write = &write;
    let one = |writer: usize| -> Result<Vec<f64>, FlashError> {
        let mut random = (seed * 1000 + writer as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut latencies = Vec::new();
        let bytes = vec![writer as u8; PAGE_BYTES];
        // At least once each, however late a writer comes to its turn.
        while latencies.is_empty() || begun.elapsed() < span {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Four of five writes go to a fifth of the volume.
            let range = if random >> 60 < 13 { pages / 5 } else { pages };
            let start = Instant::now();
            write((random >> 8) % range, &bytes)?;
            latencies.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(latencies)
    };
    let ends: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| scope.spawn(move || one(writer)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("writers do not panic"))
            .collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let mut count = 0;
    for end in ends {
        let latencies = end?;
        count += latencies.len();
        rate.latencies_us.extend(latencies);
    }
    rate.writes_per_s.push(count as f64 / seconds);
    Ok(())
}

impl Files {
    pub(super) fn table(&self) -> Table {
        let columns = [
            "writers",
            "TWEEN /s",
            "in place /s",
            "ratio",
            "TWEEN p50 us",
            "in place p50 us",
            "TWEEN p99 us",
            "in place p99 us",
        ];
        let mut table = Table::new("Synchronous writes of 4 KiB on files", &columns);
        for (writers, [tween, in_place]) in &self.rates {
            table.row([
                Cell::Count(*writers as u64),
                tween.median().into(),
                in_place.median().into(),
                (tween.median() / in_place.median()).into(),
                tween.latency_us(50).into(),
                in_place.latency_us(50).into(),
                tween.latency_us(99).into(),
                in_place.latency_us(99).into(),
            ]);
        }
        table
    }

    pub(super) fn goals(&self) -> impl Iterator<Item = Goal> {
        self.rates.iter().map(|(writers, [tween, in_place])| {
            let ratio = tween.median() / in_place.median();
            let what = format!("synchronous writes on files over in place, {writers} writers");
            Goal::at_least(what, ratio, "x", 3.0).because(
                "without a DAX file system each write still waits for one sync of the disk; in place waits for two",
            )
        })
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let kind = match self.kind {
            NvramKind::Dax => "is on a DAX file system",
            NvramKind::File => {
                "is an ordinary file, made durable by a sync for each group of writes"
            }
        };
        vec![
            format!("the non-volatile memory of the store on files {kind}"),
            format!(
                "opening the store of {:.2} GiB of data again took {:.2} s",
                self.pages as f64 / 262_144.0,
                self.open_s
            ),
            format!("medians of {TURNS} rounds, with TWEEN and in place alternating"),
        ]
    }

    pub(super) fn categories(&self) -> Vec<String> {
        self.rates
            .iter()
            .map(|(writers, _)| writers.to_string())
            .collect()
    }

    pub(super) fn series(&self) -> Vec<(String, Vec<f64>)> {
        let of = |name: &str, at: usize| {
            let values = self.rates.iter().map(|(_, both)| both[at].median());
            (name.to_owned(), values.collect())
        };
        vec![of("TWEEN", 0), of("in place", 1)]
    }
}
