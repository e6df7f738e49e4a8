//! A failed `fsync` of a real disk: a loop device whose backing file has no space.
//!
//! It needs root, to mount. Where the setup fails, the test prints that and passes.

use crate::{OPTIONS, append, chunk, pattern, spec, stamp, write_chunk};
use gabion_flash::{FileDevice, FlashOptions, FlashStore, Geometry, MappedNvram};
use gabion_layout::{Keeping, StripeId};
use gabion_store::{ChunkSpec, FlashDisk, RealDisk, RecordKind::NewBytes, Store};
use memmap2::MmapOptions;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A file system on a loop device on a small file system in memory.
struct Mounts {
    directory: tempfile::TempDir,
}

impl Mounts {
    /// `None` where this cannot be set up.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounts = Self { directory };
        let (below, image, above) = (mounts.at("below"), mounts.at("below/image"), mounts.at("m"));
        fs::create_dir(&below).unwrap();
        fs::create_dir(&above).unwrap();
        let is_set_up = run("mount", &["-t", "tmpfs", "-o", "size=24M", "tmpfs"], &below)
            && run("truncate", &["-s", "256M"], &image)
            // Without a journal of its own it goes on after a failed write of data.
            && run("mkfs.ext4", &["-q", "-O", "^has_journal", "-E", "nodiscard"], &image)
            && Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &above])
                .status()
                .is_ok_and(|status| status.success());
        is_set_up.then_some(mounts)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Fills the space behind the loop device, until the returned file is truncated.
    fn fill(&self) -> fs::File {
        let mut filler = fs::File::create(self.at("below/filler")).unwrap();
        for block_bytes in [1 << 16, 4096] {
            while filler.write_all(&vec![1; block_bytes]).is_ok() {}
        }
        filler
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for name in ["m", "below"] {
            run("umount", &["-q"], &self.at(name));
        }
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) -> bool {
    let status = Command::new(program).args(arguments).arg(path).status();
    status.is_ok_and(|status| status.success())
}

fn newest_segment(store: &Path) -> PathBuf {
    let entries = fs::read_dir(store.join("journal")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .max()
        .unwrap()
}

#[test]
fn a_record_that_only_the_page_cache_has_is_not_durable() {
    for keeping in [Keeping::InPlace, Keeping::Reserve { bytes: 12_288 }] {
        // A new file system for each: freed blocks have space below.
        let Some(mounts) = Mounts::new() else {
            println!("skipped: this test needs root, loop devices and mkfs.ext4");
            return;
        };
        let root = mounts.at("m").join(format!("{keeping:?}").replace(' ', ""));
        let (store, _) = Store::open(Arc::new(RealDisk::open(&root).unwrap()), OPTIONS).unwrap();
        let id = chunk(1, 0);
        let spec = ChunkSpec {
            keeping,
            ..spec(1, 10_000, 0)
        };
        write_chunk(&store, id, spec, &pattern(1, 10_000)).unwrap();
        let new = pattern(2, 9000);
        let filler = mounts.fill();
        let lsn = append(&store, id, stamp(1, 1), NewBytes, 0, &new).unwrap();
        store.sync(lsn).expect_err("the device has no room");
        assert!(store.failure().is_some());
        drop(store);
        filler.set_len(0).unwrap();
        // The premise: the page cache holds the record, and the system syncs it without an error
        // and without a write.
        let holder = match keeping {
            Keeping::Reserve { .. } => root.join(gabion_store::chunk_path(id)),
            _ => newest_segment(&root),
        };
        let holder = fs::File::open(holder).unwrap();
        holder.sync_all().ok();
        let mut cached = vec![0; holder.metadata().unwrap().len() as usize];
        holder.read_exact_at(&mut cached, 0).unwrap();
        assert!(cached.windows(4096).any(|window| window == &new[..4096]));
        // Mapped pages stay in the cache: the device's bytes are hidden, and not damaged.
        let mapped = MmapOptions::new()
            .populate()
            .map_raw_read_only(&holder)
            .unwrap();
        let opened = Store::open(Arc::new(RealDisk::open(&root).unwrap()), OPTIONS);
        let refused = opened.and_then(|(store, _)| store.collect(StripeId(1)));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("the page cache differs"), "{refused}");
        drop((mapped, holder));

        let (store, report) =
            Store::open(Arc::new(RealDisk::open(&root).unwrap()), OPTIONS).unwrap();
        let state = store.collect(StripeId(1)).unwrap();
        assert_eq!(state.records, [], "{keeping:?}");
        assert_eq!((report.damage, report.journal_damage), (vec![], vec![]));
    }
}

/// Devices that work, in `directory`, with the memory in the file `nvram`.
struct ArrayFiles {
    directory: tempfile::TempDir,
    nvram: PathBuf,
}

impl ArrayFiles {
    fn geometry() -> Geometry {
        Geometry {
            chunk_bytes: 64 << 10,
            ..Geometry::new(3, 1, 40)
        }
    }

    fn device(&self, index: usize) -> PathBuf {
        self.directory.path().join(index.to_string())
    }

    /// Makes the array. The memory's file has holes, so that its first writes take space.
    fn make(&self) -> Store {
        let geometry = Self::geometry();
        let file = fs::File::create(&self.nvram).unwrap();
        file.set_len(geometry.nvram_bytes()).unwrap();
        let devices = (0..geometry.device_count())
            .map(|index| FileDevice::create(&self.device(index), geometry.device_bytes()).unwrap());
        let nvram = MappedNvram::open(&self.nvram).unwrap();
        let options = FlashOptions::default();
        Self::store(FlashStore::format(geometry, 7, devices.collect(), nvram, options).unwrap())
    }

    /// Opens it as a node's start does.
    fn open(&self) -> Store {
        let devices = (0..Self::geometry().device_count())
            .map(|index| Some(FileDevice::open(&self.device(index)).unwrap()));
        let nvram = MappedNvram::open(&self.nvram).unwrap();
        let options = FlashOptions::default();
        Self::store(FlashStore::open(devices.collect(), nvram, options).unwrap())
    }

    fn store(flash: FlashStore<FileDevice, MappedNvram>) -> Store {
        let disk = Arc::new(FlashDisk::new(flash).unwrap());
        Store::open(disk, OPTIONS).unwrap().0
    }
}

#[test]
fn a_record_that_only_the_page_cache_has_is_not_durable_on_an_array() {
    let Some(mounts) = Mounts::new() else {
        println!("skipped: this test needs root, loop devices and mkfs.ext4");
        return;
    };
    let array = ArrayFiles {
        directory: tempfile::tempdir().unwrap(),
        nvram: mounts.at("m").join("nvram"),
    };
    let store = array.make();
    let id = chunk(1, 0);
    write_chunk(&store, id, spec(1, 10_000, 0), &pattern(1, 10_000)).unwrap();
    let filler = mounts.fill();
    // The first records may be put where the memory's file has space already.
    let is_refused = |&sequence: &u64| {
        let bytes = pattern(sequence, 9000);
        let lsn = append(&store, id, stamp(1, sequence), NewBytes, 0, &bytes);
        lsn.and_then(|lsn| store.sync(lsn)).is_err()
    };
    let refused = (1..50).find(is_refused).expect("the device has no room");
    drop(store);
    filler.set_len(0).unwrap();
    // The premise, as above. The memory's pages need not be in order.
    let holder = fs::File::open(&array.nvram).unwrap();
    holder.sync_all().ok();
    let mut cached = vec![0; holder.metadata().unwrap().len() as usize];
    holder.read_exact_at(&mut cached, 0).unwrap();
    let bytes = pattern(refused, 9000);
    let mut parts = bytes.chunks_exact(512);
    assert!(parts.any(|part| cached.windows(512).any(|window| window == part)));
    drop(holder);

    let store = array.open();
    let state = store.collect(StripeId(1)).unwrap();
    let found = state.records.iter().map(|record| record.stamp);
    let acknowledged = (1..refused).map(|sequence| stamp(1, sequence));
    assert_eq!(found.collect::<Vec<_>>(), acknowledged.collect::<Vec<_>>());
}
