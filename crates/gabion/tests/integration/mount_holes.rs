//! Holes of files on a mount, and space that is allocated for them.

use crate::mount::{cluster, errno};
use crate::support::mount::{Mounted, can_mount};
use crate::support::{TestCluster, pattern};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

/// Bytes of a segment of the pool.
const SEGMENT: u64 = 256 << 10;

fn new_file(mounted: &Mounted, name: &str) -> File {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    options.open(mounted.path(name)).expect("a new file")
}

#[test]
fn holes_are_made_found_and_take_no_space() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &[]);
    let file = new_file(&mounted, "f");
    file.set_len(1 << 40).expect("a new size");
    file.write_all_at(b"island", 10 * SEGMENT).expect("a write");
    let find = |from| seek(&file, from).map_err(Errno::raw_os_error);
    assert_eq!(find(SeekFrom::Data(0)), Ok(10 * SEGMENT));
    assert_eq!(find(SeekFrom::Hole(10 * SEGMENT)), Ok(11 * SEGMENT));
    assert_eq!(find(SeekFrom::Hole(0)), Ok(0));
    let behind = Err(Errno::NXIO.raw_os_error());
    assert_eq!(find(SeekFrom::Data(11 * SEGMENT)), behind);
    let known = file.metadata().expect("it is open");
    assert_eq!((known.len(), known.blocks()), (1 << 40, SEGMENT / 512));

    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 10 * SEGMENT, SEGMENT).expect("a hole");
    assert_eq!(find(SeekFrom::Data(0)), behind);
    let mut bytes = [1; 6];
    file.read_exact_at(&mut bytes, 10 * SEGMENT)
        .expect("a read");
    assert_eq!(bytes, [0; 6]);
    file.set_len(5).expect("a new size");
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, SEGMENT).expect("there is room");
    assert_eq!(file.metadata().expect("it is open").len(), 5);
    fallocate(&file, FallocateFlags::empty(), 0, SEGMENT).expect("a new size");
    assert_eq!(file.metadata().expect("it is open").len(), SEGMENT);
    file.write_all_at(b"bytes", 0).expect("a write");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 1, 2 * SEGMENT).expect("zeros");
    let bytes = fs::read(mounted.path("f")).expect("it is there");
    assert!(bytes[0] == b'b' && bytes[1..].iter().all(|byte| *byte == 0));
    assert_eq!(bytes.len() as u64, 2 * SEGMENT + 1);
    let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, SEGMENT);
    assert_eq!(collapse, Err(Errno::OPNOTSUPP));
}

/// The bytes that count against the pool's quota.
fn used_bytes(cluster: &TestCluster) -> u64 {
    let quota = cluster.json(&["pool", "quota", "p"]);
    quota["used_bytes"].as_u64().expect("a number")
}

fn allocate(file: &File, flags: FallocateFlags, at: u64, bytes: u64) -> Result<(), i32> {
    fallocate(file, flags, at, bytes).map_err(Errno::raw_os_error)
}

/// The quota stands for the disks: both are checked when a stripe gets its places.
#[test]
fn writes_to_allocated_space_need_no_room_and_an_allocation_without_room_changes_nothing() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &[]);
    let limit = |bytes: &str| {
        cluster.run(&["pool", "quota", "p", &format!("--bytes={bytes}")]);
    };
    let length = |file: &File| file.metadata().expect("it is open").len();
    let used = || used_bytes(&cluster);
    let grows = FallocateFlags::empty();
    let refused = |number: Errno| Err(number.raw_os_error());

    let file = new_file(&mounted, "f");
    file.write_all_at(b"before", 10).expect("a write");
    // The inline bytes move to the first stripe.
    let end = 5 * SEGMENT + 100;
    assert_eq!(allocate(&file, grows, 0, end), Ok(()));
    assert_eq!(length(&file), end);
    assert_eq!(used(), 5 * SEGMENT + (16 << 10), "the last stripe is short");
    limit(&used().to_string());
    for at in [5, SEGMENT - 3, 3 * SEGMENT, end - 7] {
        file.write_all_at(b"written", at).expect("it has its space");
    }
    let behind = file.write_all_at(b"more", 7 * SEGMENT);
    assert_eq!(errno(behind), Some(Errno::DQUOT.raw_os_error()));
    let mut expected = vec![0; end as usize];
    expected[10..16].copy_from_slice(b"before");
    for at in [5, SEGMENT - 3, 3 * SEGMENT, end - 7] {
        expected[at as usize..at as usize + 7].copy_from_slice(b"written");
    }
    assert!(fs::read(mounted.path("f")).expect("it is there") == expected);
    assert_eq!(allocate(&file, grows, 0, end), Ok(()), "it has it");

    let other = new_file(&mounted, "g");
    assert_eq!(allocate(&other, grows, 0, 9), refused(Errno::DQUOT));
    assert_eq!((length(&other), used()), (0, 5 * SEGMENT + (16 << 10)));
    // An allocation of several steps is refused before the first.
    limit(&(used() + 80 * SEGMENT).to_string());
    let large = allocate(&other, grows, 0, 100 * SEGMENT);
    assert_eq!(large, refused(Errno::DQUOT));
    assert_eq!((length(&other), used()), (0, 5 * SEGMENT + (16 << 10)));
    assert_eq!(allocate(&other, grows, 0, 70 * SEGMENT), Ok(()));
    assert_eq!(length(&other), 70 * SEGMENT);
    assert_eq!(used(), 75 * SEGMENT + (16 << 10));
    other.set_len(0).expect("a new size");
    limit("none");
    // A file of holes keeps its size, and has no space behind its end.
    let keeps = FallocateFlags::KEEP_SIZE;
    other.set_len(3 * SEGMENT + 1).expect("a new size");
    assert_eq!(
        allocate(&other, keeps, SEGMENT, 4 * SEGMENT),
        refused(Errno::OPNOTSUPP)
    );
    assert_eq!(allocate(&other, keeps, SEGMENT, 3 * SEGMENT), Ok(()));
    assert_eq!(length(&other), 3 * SEGMENT + 1);
    limit(&used().to_string());
    other
        .write_all_at(b"written", 3 * SEGMENT + 100)
        .expect("the segment of the last byte has its space");
    let hole = errno(other.write_all_at(b"more", 0));
    assert_eq!(hole, Some(Errno::DQUOT.raw_os_error()));
}

#[test]
fn an_allocation_gives_a_file_stripes_of_its_own_beside_its_snapshot() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let bytes = pattern(3 * SEGMENT as usize, 9);
    cluster.put("f", &bytes);
    cluster.run(&["snapshot", "f", "f@1"]);
    let mounted = Mounted::start(&cluster, "p", &[]);
    let file = File::options()
        .read(true)
        .write(true)
        .open(mounted.path("f"))
        .expect("it is there");
    let keeps = FallocateFlags::KEEP_SIZE;
    fallocate(&file, keeps, SEGMENT, SEGMENT).expect("there is room");
    cluster.run(&["pool", "quota", "p", "--bytes=1"]);
    file.write_all_at(b"own", SEGMENT)
        .expect("it has its space");
    let shared = errno(file.write_all_at(b"own", 0));
    assert_eq!(shared, Some(Errno::DQUOT.raw_os_error()));
    let mut expected = bytes.clone();
    expected[SEGMENT as usize..SEGMENT as usize + 3].copy_from_slice(b"own");
    assert!(cluster.get("f") == expected && cluster.get("f@1") == bytes);
}
