//! Measures the flash store on this machine's files: synchronous writes of 4 KiB beside an array
//! that is updated in place over as many files of the same size, a start after a crash, and the
//! size of its metadata. `--quick` gives a first estimate; files go below the temporary directory.

use gabion_flash::{
    Device, FileDevice, FileId, FlashError, FlashOptions, FlashStore, Geometry, InPlaceRaid,
    MappedNvram, PAGE_BYTES,
};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAGE: u64 = PAGE_BYTES as u64;
const DEVICE_COUNT: usize = 5;
/// Directory of files in memory.
const MEMORY: &str = "/dev/shm";
/// Set for the process that reopens a store: the store's directory.
const RESTARTED: &str = "GABION_FLASH_RESTARTED";
/// Bytes of data of the reopened store.
const RESTARTED_BYTES: u64 = 10 << 30;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Store<D> = FlashStore<D, MappedNvram>;

fn main() -> Outcome<()> {
    if let Some(directory) = std::env::var_os(RESTARTED) {
        return open_again(Path::new(&directory));
    }
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let (turns, span) = if is_quick {
        (3, Duration::from_millis(300))
    } else {
        (5, Duration::from_secs(1))
    };
    let directory = tempfile::tempdir()?;
    synchronous_writes(directory.path(), turns, span)?;
    restart(directory.path())
}

/// Creates a store whose non-volatile memory is a file of its own.
fn format<D: Device>(
    directory: &Path,
    nvram: &Path,
    geometry: Geometry,
    make: impl Fn(&Path, u64) -> io::Result<D>,
) -> Outcome<Store<D>> {
    std::fs::create_dir(directory)?;
    let device = |index| {
        make(
            &directory.join(format!("tween{index}")),
            geometry.device_bytes(),
        )
    };
    let devices = (0..DEVICE_COUNT)
        .map(device)
        .collect::<io::Result<Vec<D>>>()?;
    let nvram = MappedNvram::create(nvram, geometry.nvram_bytes())?;
    let options = FlashOptions::default();
    Ok(FlashStore::format(geometry, 1, devices, nvram, options)?)
}

/// Compares three stores in turns, on files that are three quarters full, with writers that each
/// wait for their write: in place; TWEEN with its non-volatile memory in a file on the same disk;
/// and TWEEN with it in a file in memory, which is not durable but as fast as durable memory.
fn synchronous_writes(directory: &Path, turns: usize, span: Duration) -> Outcome<()> {
    let geometry = Geometry::new(DEVICE_COUNT - 1, 1, 160);
    let memory = tempfile::tempdir_in(MEMORY)?;
    let make = |name: &str, memory: &Path| {
        let nvram = memory.join(format!("nvram-{name}"));
        format(&directory.join(name), &nvram, geometry, FileDevice::create)
    };
    let stores = [
        make("on-disk", directory)?,
        make("in-memory", memory.path())?,
    ];
    let device = |index| {
        let path = directory.join(format!("in-place{index}"));
        FileDevice::create(&path, geometry.device_bytes())
    };
    let devices = (0..DEVICE_COUNT).map(device);
    let devices = devices.collect::<io::Result<Vec<FileDevice>>>()?;
    let array = InPlaceRaid::new(devices, 1, 64 << 10)?;
    let pages = geometry.capacity_pages() * 3 / 4;
    let block = vec![1; 1 << 20];
    let mut files = Vec::new();
    for store in &stores {
        let file = store.create("volume")?;
        for at in (0..pages * PAGE).step_by(block.len()) {
            store.write_deferred(file, at, &block)?;
        }
        store.sync()?;
        files.push(file);
    }
    for at in (0..pages * PAGE).step_by(block.len()) {
        array.write(at, &block)?;
    }
    array.sync()?;
    println!("synchronous writes of 4 KiB, a second, medians of {turns} turns");
    println!("writers | in place | TWEEN, memory on the disk | ratio | memory in memory | ratio");
    for writers in [1, 4, 8] {
        let mut rates = [vec![], vec![], vec![]];
        for turn in 0..turns {
            let load = Load {
                writers,
                span,
                pages,
                seed: turn as u64 + 1,
            };
            rates[0].push(load.rate(|page, bytes| array.write_durably(page * PAGE, bytes))?);
            for (at, (store, file)) in stores.iter().zip(&files).enumerate() {
                rates[at + 1].push(while_maintained(store, || {
                    load.rate(|page, bytes| store.write(*file, page * PAGE, bytes))
                })?);
            }
        }
        let [in_place, disk, memory] = rates.map(median);
        println!(
            "{writers} | {in_place:.0} | {disk:.0} | {:.2} | {memory:.0} | {:.2}",
            disk / in_place,
            memory / in_place
        );
    }
    for store in &stores {
        println!("{:?}", store.counts());
    }
    Ok(())
}

/// Runs something while a thread flushes and collects, as in a node.
fn while_maintained<D: Device, T>(store: &Store<D>, run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && store.maintain().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let value = run();
        is_over.store(true, Ordering::Relaxed);
        value
    })
}

/// Writers of random pages, four of five of them in a fifth of the volume.
#[derive(Clone, Copy)]
struct Load {
    writers: usize,
    span: Duration,
    pages: u64,
    seed: u64,
}

impl Load {
    /// Writes a second of all writers.
    fn rate(
        self,
        write: impl Fn(u64, &[u8]) -> Result<(), FlashError> + Sync,
    ) -> Result<f64, FlashError> {
        // Sync first, so that data of the previous run in the disk's caches does not delay this
        // one.
        std::thread::sleep(self.span / 2);
        let begun = Instant::now();
        let write = &write;
        let one = move |writer: usize| {
            let mut random = (self.seed * 1000 + writer as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let bytes = vec![writer as u8; PAGE_BYTES];
            let mut count = 0;
            while begun.elapsed() < self.span {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let is_hot = random >> 60 < 13;
                let range = if is_hot { self.pages / 5 } else { self.pages };
                write((random >> 8) % range, &bytes)?;
                count += 1;
            }
            Ok(count)
        };
        let counts: Vec<Result<u64, FlashError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.writers)
                .map(|writer| scope.spawn(move || one(writer)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("writers do not panic"))
                .collect()
        });
        let seconds = begun.elapsed().as_secs_f64();
        let count = counts.into_iter().sum::<Result<u64, FlashError>>()?;
        Ok(count as f64 / seconds)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A file that stays a hole where only zeros are written: the store handles pages of zeros like any
/// others, and here they need no disk space.
struct SparseDevice(FileDevice);

impl SparseDevice {
    fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        std::fs::File::create_new(path)?.set_len(bytes)?;
        FileDevice::open(path).map(Self)
    }
}

impl Device for SparseDevice {
    fn capacity_bytes(&self) -> io::Result<u64> {
        self.0.capacity_bytes()
    }

    fn read_at(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, output)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (at, page) in (offset..).step_by(PAGE_BYTES).zip(bytes.chunks(PAGE_BYTES)) {
            if page.iter().any(|byte| *byte != 0) {
                self.0.write_at(at, page)?;
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.discard(offset, bytes)
    }
}

/// Opens a store of 10 GiB in files of 64 MiB as a process does after its predecessor was killed,
/// with nothing of its files cached.
fn restart(directory: &Path) -> Outcome<()> {
    let directory = directory.join("restarted");
    let geometry = Geometry::new(DEVICE_COUNT - 1, 1, 1400);
    let nvram = directory.join("nvram");
    let store = format(&directory, &nvram, geometry, SparseDevice::create)?;
    let block = vec![0; 1 << 20];
    let file_bytes = 64 << 20;
    for number in 0..RESTARTED_BYTES / file_bytes {
        let file: FileId = store.create(&format!("file{number}"))?;
        for at in (0..file_bytes).step_by(block.len()) {
            store.write_deferred(file, at, &block)?;
        }
    }
    store.sync()?;
    drop(store);
    // Another process opens it, with an empty heap.
    let opened = std::process::Command::new(std::env::current_exe()?)
        .env(RESTARTED, &directory)
        .status()?;
    if !opened.success() {
        return Err("the store could not be opened".into());
    }
    let in_nvram = geometry.nvram_metadata_bytes() as f64;
    let slots = f64::from(geometry.stripe_count) * f64::from(geometry.slot_count());
    println!(
        "metadata in the non-volatile memory: {:.2} bytes a page",
        in_nvram / slots
    );
    Ok(())
}

/// Work of the process that reopens the store.
fn open_again(directory: &Path) -> Outcome<()> {
    let nvram_path = directory.join("nvram");
    let mut paths = vec![nvram_path.clone()];
    paths.extend((0..DEVICE_COUNT).map(|index| directory.join(format!("tween{index}"))));
    for path in &paths {
        let file = std::fs::File::open(path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    let before_bytes = resident_bytes()?;
    let begun = Instant::now();
    let devices = paths[1..]
        .iter()
        .map(|path| FileDevice::open(path).map(Some));
    let devices = devices.collect::<io::Result<Vec<Option<FileDevice>>>>()?;
    let nvram = MappedNvram::open(&nvram_path)?;
    let store = FlashStore::open(devices, nvram, FlashOptions::default())?;
    let seconds = begun.elapsed().as_secs_f64();
    let live_pages = store.usage().live_pages as f64;
    println!(
        "start of a store of {:.2} GiB in {} files: {seconds:.2} s",
        live_pages * PAGE as f64 / f64::from(1 << 30),
        store.list("").len()
    );
    let in_memory = resident_bytes()?.saturating_sub(before_bytes) as f64;
    println!(
        "metadata in ordinary memory: {:.2} bytes a page",
        in_memory / live_pages
    );
    Ok(())
}

/// Ordinary memory of this process, without mapped files.
fn resident_bytes() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kib = kib.ok_or("the system does not report the memory of a process")?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}
