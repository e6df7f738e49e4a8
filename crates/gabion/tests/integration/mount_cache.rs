//! Mounts with `cache=SIZE`: bytes reach the cluster when a file is synced or closed, and what programs see is the
//! same.

use crate::support::mount::{Mounted, can_mount};
use crate::support::{TestCluster, pattern, wait_for};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File, FileTimes};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

const KIB: usize = 1024;
const CACHED: [&str; 2] = ["-o", "cache=16MiB"];
const NODES: [&str; 6] = ["node-0", "node-1", "node-2", "node-3", "node-4", "node-5"];

/// A cluster with a pool whose segments have 256 KiB, and that keeps no bytes in the metadata.
fn cluster() -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    let pool = [
        "pool",
        "create",
        "p",
        "--code=rs(4,2)",
        "--chunk=64KiB",
        "--inline=0",
    ];
    cluster.run(&pool);
    cluster
}

fn both(path: &Path) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true);
    options.open(path).expect("it is opened or made")
}

#[test]
fn writes_do_not_wait_for_nodes_and_a_sync_does() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &CACHED);
    let (bytes, more) = (pattern(700 * KIB, 1), pattern(300 * KIB, 2));
    let mut file = both(&mounted.path("f"));
    // No node can store a byte, so these writes can only return because they wait for none.
    for node in NODES {
        cluster.signal(node, Signal::STOP);
    }
    file.write_all(&bytes).expect("it is gathered");
    assert_eq!(
        file.metadata().expect("it is open").len(),
        bytes.len() as u64
    );
    let by_name = fs::metadata(mounted.path("f")).expect("it is there");
    assert_eq!(by_name.len(), bytes.len() as u64);
    // Programs that copy files take one without blocks for a hole, and do not read it.
    assert!(by_name.blocks() * 512 >= bytes.len() as u64);
    for node in NODES {
        cluster.signal(node, Signal::CONT);
    }
    file.sync_all().expect("nodes store again");
    assert!(cluster.get("f") == bytes);

    // A close makes the rest durable.
    file.write_all(&more).expect("it is gathered");
    drop(file);
    assert!(cluster.get("f") == [bytes, more].concat());
}

#[test]
fn a_killed_mount_loses_nothing_that_was_synced() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mut mounted = Mounted::start(&cluster, "p", &CACHED);
    let (synced, through) = (pattern(900 * KIB, 3), pattern(40 * KIB, 4));
    let mut file = both(&mounted.path("synced"));
    file.write_all(&synced).expect("it is gathered");
    file.sync_data().expect("it is stored");
    let mut options = File::options();
    options.write(true).create(true);
    options.custom_flags(rustix::fs::OFlags::DSYNC.bits().cast_signed());
    let mut direct = options.open(mounted.path("through")).expect("a new file");
    direct.write_all(&through).expect("it is stored");
    file.write_all(b"this may be lost").expect("it is gathered");
    mounted.signal(Signal::KILL);
    mounted.wait();
    assert!(cluster.get("synced")[..synced.len()] == synced);
    assert!(
        cluster.get("through") == through,
        "O_DSYNC waits for each write"
    );
}

#[test]
fn other_handles_other_mounts_and_holders_of_locks_see_what_was_written() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let [one, other] = [(), ()].map(|()| Mounted::start(&cluster, "p", &CACHED));
    let file = both(&one.path("f"));
    file.write_all_at(b"first", 0).expect("it is gathered");
    // Another handle of the same mount.
    assert_eq!(fs::read(one.path("f")).expect("it is there"), b"first");
    let mut log = File::options().append(true).open(one.path("f"));
    let log = log.as_mut().expect("it is there");
    log.write_all(b" and last").expect("it is appended");
    assert_eq!(
        cluster.get("f"),
        b"first and last",
        "an append comes after all earlier writes"
    );

    // The holder of a lock, in another mount that has had the file open all the time.
    let there = both(&other.path("f"));
    flock(&file, FlockOperation::LockExclusive).expect("it is free");
    file.write_all_at(b"LOCKS", 0).expect("it is gathered");
    flock(&file, FlockOperation::Unlock).expect("it is ours");
    flock(&there, FlockOperation::LockExclusive).expect("it is free again");
    let mut found = [0; 5];
    there.read_exact_at(&mut found, 0).expect("a read");
    assert_eq!(&found, b"LOCKS");
    flock(&there, FlockOperation::Unlock).expect("it is ours");

    // A time that the program chooses is later than its writes.
    let chosen = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.write_all_at(b"before the time", 0)
        .expect("it is gathered");
    file.set_times(FileTimes::new().set_modified(chosen))
        .expect("it is ours");
    drop(file);
    let seconds = fs::metadata(other.path("f")).expect("it is there").mtime();
    assert_eq!(seconds, 1_000_000_000);
}

#[test]
fn a_failure_is_reported_by_the_sync_and_stops_further_writes_until_then() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    cluster.run(&["pool", "quota", "p", "--bytes=1MiB"]);
    let mounted = Mounted::start(&cluster, "p", &CACHED);
    let quota = Some(Errno::DQUOT.raw_os_error());
    let mut file = both(&mounted.path("f"));
    file.write_all(&pattern(512 * KIB, 1))
        .expect("it is gathered");
    file.sync_all().expect("there is room");
    file.write_all(&pattern(1024 * KIB, 2))
        .expect("it is gathered");
    let refused = file.sync_all().expect_err("the quota is full");
    assert_eq!(refused.raw_os_error(), quota);
    file.sync_all().expect("it was reported");
    assert!(cluster.get("f")[..512 * KIB] == pattern(512 * KIB, 1));

    // A failure that no sync has reported yet stops writes.
    file.write_all_at(&pattern(1024 * KIB, 2), 512 * KIB as u64)
        .expect("it is gathered");
    let is_refused = || {
        let written = file.write_all_at(b"more", 0);
        written.err().and_then(|error| error.raw_os_error()) == quota
    };
    wait_for("the gathered bytes are stored and refused", is_refused);
    // The new process closes its copy of the handle, and no program hears what that returns.
    cluster.run(&["pool", "quota", "p", "--bytes=none"]);
    assert_eq!(
        file.sync_all().expect_err("it is reported").raw_os_error(),
        quota
    );
    file.write_all_at(&pattern(1024 * KIB, 3), 0)
        .expect("it is gathered");
    file.sync_all().expect("there is room");
    assert!(cluster.get("f")[..1024 * KIB] == pattern(1024 * KIB, 3));
}

#[test]
fn random_changes_of_a_cached_file_do_what_a_vector_of_bytes_does() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mut mounted = Mounted::start(&cluster, "p", &CACHED);
    let mut random = ChaCha8Rng::seed_from_u64(77);
    let mut expected: Vec<u8> = Vec::new();
    let mut file = both(&mounted.path("f"));
    for step in 0..600_u64 {
        let offset = random.random_range(0..3 * 1024 * KIB);
        match random.random_range(0..20) {
            0..=11 => {
                // Half of them follow the last byte, as those of most programs.
                let offset = if random.random_bool(0.5) {
                    expected.len()
                } else {
                    offset
                };
                let bytes = pattern(random.random_range(1..200 * KIB), step);
                let end = offset + bytes.len();
                expected.resize(expected.len().max(end), 0);
                expected[offset..end].copy_from_slice(&bytes);
                file.write_all_at(&bytes, offset as u64).expect("a write");
            }
            12..=15 => {
                let length = expected.len().saturating_sub(offset).min(100 * KIB);
                let mut found = vec![0; length];
                file.read_exact_at(&mut found, offset as u64)
                    .expect("a read");
                assert!(
                    found == expected[offset.min(expected.len())..][..length],
                    "step {step}"
                );
            }
            16 => {
                expected.resize(offset, 0);
                file.set_len(offset as u64).expect("a truncation");
            }
            17 => file.sync_all().expect("a sync"),
            18 => {
                let end = file.seek(SeekFrom::End(0)).expect("an open file");
                assert_eq!(end, expected.len() as u64, "step {step}");
            }
            _ => {
                file = both(&mounted.path("f"));
                let size = file.metadata().expect("it is open").len();
                assert_eq!(size, expected.len() as u64, "step {step}");
            }
        }
    }
    // The end of the mount, too, stores what is left.
    mounted.signal(Signal::TERM);
    mounted.wait();
    drop(file);
    assert!(cluster.get("f") == expected);
}
