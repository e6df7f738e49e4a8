//! The model against what its drive's data sheet promises.

use super::*;

const MIB: u64 = 1 << 20;
const FILE: FileNumber = FileNumber(1);

fn model() -> DiskModel {
    DiskModel::new(ST1000DM003)
}

fn read(disk: &mut DiskModel, offset: u64, length: u64) -> u64 {
    disk.access(FILE, Access::Read { offset, length })
}

fn write(disk: &mut DiskModel, file: FileNumber, offset: u64, length: u64) {
    assert_eq!(
        disk.access(file, Access::Write { offset, length }),
        0,
        "writes wait"
    );
}

#[test]
fn sequential_reads_run_at_the_transfer_rate() {
    let mut disk = model();
    disk.access(FILE, Access::Allocate { length: 1000 * MIB });
    for at in 0..1000 {
        read(&mut disk, at * MIB, MIB);
    }
    let used = disk.used();
    let rate = used.read_bytes as f64 * 1e9 / used.busy_ns as f64;
    assert!((rate / 144e6 - 1.0).abs() < 0.01, "{rate} B/s");
    assert_eq!(used.seek_count, 0, "the head is at the file's beginning");
}

/// Reads at random over the whole drive take a seek, half a rotation and the transfer: about 79 a
/// second, as such drives do.
#[test]
fn random_reads_take_a_seek_and_half_a_rotation() {
    let mut disk = model();
    let length = 999_000_000_000;
    disk.access(FILE, Access::Allocate { length });
    let mut place = 7_u64;
    let count = 4000;
    for _ in 0..count {
        place = place
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        read(&mut disk, (place >> 8) % (length - 4096), 4096);
    }
    let mean_ms = disk.used().busy_ns as f64 / f64::from(count) / 1e6;
    let expected_ms = 8.5 + 8.333 / 2.0 + 0.03;
    assert!((mean_ms / expected_ms - 1.0).abs() < 0.02, "{mean_ms} ms");
}

#[test]
fn what_was_read_or_written_is_in_memory_until_caches_are_dropped() {
    let mut disk = model();
    write(&mut disk, FILE, 0, 8192);
    assert_eq!(read(&mut disk, 0, 8192), 0);
    assert!(disk.access(FILE, Access::Sync) > 0);
    assert_eq!(
        disk.access(FILE, Access::Sync),
        0,
        "nothing is left to write"
    );
    disk.drop_caches();
    assert!(read(&mut disk, 4096, 4096) > 0);
    assert_eq!(read(&mut disk, 4096, 4096), 0);
    assert!(read(&mut disk, 0, 8192) > 0, "half of it is missing");
}

/// A sync writes what is next to each other in one go, whatever the order in which it came, and only
/// its own file.
#[test]
fn a_sync_sweeps_over_its_own_file() {
    let mut disk = model();
    let other = FileNumber(2);
    disk.access(FILE, Access::Allocate { length: MIB });
    disk.access(other, Access::Allocate { length: MIB });
    for at in [3, 0, 2, 1, 3] {
        write(&mut disk, FILE, at * 4096, 4096);
    }
    write(&mut disk, other, 0, 4096);
    disk.access(FILE, Access::Sync);
    assert_eq!(disk.used().written_bytes, 4 * 4096);
    assert_eq!(disk.used().seek_count, 0, "one run, at the head");
    assert!(disk.access(other, Access::Sync) > 0);
    assert_eq!(disk.used().written_bytes, 5 * 4096);
}

/// Files that grow in turns lie in pieces, files that were allocated do not.
#[test]
fn allocation_decides_whether_a_file_is_in_one_piece() {
    let seeks = |is_allocated: bool| {
        let mut disk = model();
        for file in [1, 2] {
            if is_allocated {
                disk.access(FileNumber(file), Access::Allocate { length: 100 * MIB });
            }
        }
        for at in 0..100 {
            write(&mut disk, FileNumber(1), at * MIB, MIB);
            write(&mut disk, FileNumber(2), at * MIB, MIB);
        }
        disk.drop_caches();
        let before = disk.used();
        read(&mut disk, 0, 100 * MIB);
        disk.used().since(before).seek_count
    };
    assert_eq!((seeks(true), seeks(false)), (1, 100));
}

#[test]
fn space_that_is_given_back_is_used_again_and_needs_no_writing() {
    let mut disk = model();
    write(&mut disk, FILE, 0, 2 * MIB);
    disk.access(
        FILE,
        Access::Punch {
            offset: 0,
            length: MIB,
        },
    );
    disk.access(FILE, Access::Sync);
    assert_eq!(disk.used().written_bytes, MIB);
    write(&mut disk, FileNumber(2), 0, MIB);
    assert_eq!(disk.volume.locate(FileNumber(2), 0, MIB), [(0, MIB)]);
    disk.access(FILE, Access::Truncate { length: MIB + 4096 });
    disk.drop_caches();
    assert!(read(&mut disk, MIB, MIB) > 0);
    assert_eq!(disk.used().read_bytes, 4096, "the rest is gone");
    disk.access(FILE, Access::Remove);
    assert_eq!(read(&mut disk, MIB, MIB), 0);
    write(&mut disk, FileNumber(3), 0, 3 * MIB);
    let all = disk.volume.locate(FileNumber(3), 0, 3 * MIB);
    assert_eq!(
        all,
        [(MIB, 3 * MIB)],
        "all of it is free again, in one piece"
    );
}

#[test]
fn holes_get_a_place_again_when_they_are_written() {
    let mut disk = model();
    write(&mut disk, FILE, 0, 3 * MIB);
    disk.access(
        FILE,
        Access::Punch {
            offset: MIB,
            length: MIB,
        },
    );
    write(&mut disk, FileNumber(2), 0, MIB / 2);
    write(&mut disk, FILE, 0, 3 * MIB);
    let places = disk.volume.locate(FILE, 0, 3 * MIB);
    // The other file took the first half of the hole; the second half is too short for all of it.
    assert_eq!(places, [(0, MIB), (3 * MIB, MIB), (2 * MIB, MIB)]);
}

/// Nothing waits for ever: too many waiting writes are written without being asked for.
#[test]
fn the_page_cache_holds_only_so_much() {
    let mut disk = model();
    for at in 0..=DIRTY_BYTES_MAX / MIB {
        disk.access(
            FILE,
            Access::Write {
                offset: at * MIB,
                length: MIB,
            },
        );
    }
    assert_eq!(disk.used().written_bytes, DIRTY_BYTES_MAX + MIB);
    assert_eq!(disk.dirty_bytes, 0);
}
