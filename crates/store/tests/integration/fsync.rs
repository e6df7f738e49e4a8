//! A failed `fsync` of a real disk: a loop device whose backing file has no space.
//!
//! It needs root, to mount. Where the setup fails, the test prints that and passes.

use crate::{OPTIONS, append, chunk, pattern, spec, stamp, write_chunk};
use gabion_layout::{Keeping, StripeId};
use gabion_store::{ChunkSpec, RealDisk, RecordKind::NewBytes, Store};
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
    let Some(mounts) = Mounts::new() else {
        println!("skipped: this test needs root, loop devices and mkfs.ext4");
        return;
    };
    for keeping in [Keeping::InPlace, Keeping::Reserve { bytes: 12_288 }] {
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
        drop(holder);

        let (store, _) = Store::open(Arc::new(RealDisk::open(&root).unwrap()), OPTIONS).unwrap();
        let state = store.collect(StripeId(1)).unwrap();
        assert_eq!(state.records, [], "{keeping:?}");
    }
}
