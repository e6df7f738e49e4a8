//! Stores that are driven with plans hold what they must under every scheme, and record what they do.

use gabion_lab::disk_model::{Access, DiskModel, FileNumber, ST1000DM003};
use gabion_lab::storage::{IoCount, Recorder, RecordingDisk, Shape, Storage, replay};
use gabion_layout::{ByteRange, NodeId, UpdateScheme};
use gabion_store::{Disk, Options, SimDisk};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CHUNK: u64 = 64 << 10;
const STRIPES: u64 = 3;

fn shape(code: &str, scheme: UpdateScheme, node_count: u32) -> Shape {
    Shape {
        code: code.parse().unwrap(),
        chunk_bytes: CHUNK,
        scheme,
        reserve_bytes: CHUNK,
        node_count,
        stripe_count: STRIPES,
        options: Options {
            segment_bytes: 1 << 20,
            free_bytes: 0,
            ..Options::default()
        },
    }
}

/// Random updates against bytes in memory, then two nodes fail.
fn check(code: &str, scheme: UpdateScheme) {
    let directory = tempfile::tempdir().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let storage = Storage::create(directory.path(), shape(code, scheme, 9)).unwrap();
    let stripe_bytes = storage.geometry().stripe_bytes();
    let mut expected = vec![vec![0; stripe_bytes as usize]; STRIPES as usize];
    for (stripe, data) in expected.iter_mut().enumerate() {
        rng.fill_bytes(data);
        storage.put(stripe as u64, data).unwrap();
    }
    for _ in 0..150 {
        let stripe = rng.random_range(0..STRIPES);
        let offset = rng.random_range(0..stripe_bytes);
        let length = rng.random_range(1..=9000.min(stripe_bytes - offset));
        let mut new = vec![0; length as usize];
        rng.fill_bytes(&mut new);
        storage.update(stripe, offset, &new).unwrap();
        expected[stripe as usize][offset as usize..][..new.len()].copy_from_slice(&new);
    }
    let all = ByteRange::new(0, stripe_bytes);
    let compare = |failed: &[NodeId], when: &str| {
        for (stripe, data) in expected.iter().enumerate() {
            let found = storage.read(stripe as u64, all, failed).unwrap();
            assert!(found == *data, "{code} {scheme}: stripe {stripe} {when}");
        }
    };
    compare(&[], "as updated");
    let failed = [NodeId(1), NodeId(3)];
    compare(&failed, "with two nodes away");
    storage.drop_caches().unwrap();
    let mut recovered_bytes = 0;
    for stripe in 0..STRIPES {
        recovered_bytes += storage.recover(stripe, &failed).unwrap();
    }
    // Stripe s is on nodes s to s + 5: nodes 1 and 3 hold one or two chunks of each.
    assert_eq!(recovered_bytes, 5 * CHUNK, "{code}");
    compare(&failed, "once rebuilt");
    storage.apply_in_place().unwrap();
    compare(
        &[NodeId(0), NodeId(2)],
        "once applied, with two other nodes away",
    );
}

#[test]
fn every_scheme_keeps_what_was_written_with_reed_solomon() {
    for scheme in UpdateScheme::BY_DELTA {
        check("rs(4,2)", scheme);
    }
}

#[test]
fn every_scheme_keeps_what_was_written_with_rdp() {
    for scheme in UpdateScheme::BY_DELTA {
        check("rdp(4)", scheme);
    }
}

/// Full logging leaves data chunks alone, and full overwrite leaves nothing to be done.
#[test]
fn schemes_differ_in_what_they_write_and_when() {
    let written = |scheme: UpdateScheme| {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::create(directory.path(), shape("rs(4,2)", scheme, 6)).unwrap();
        for stripe in 0..STRIPES {
            storage.put(stripe, &vec![1; 4 * CHUNK as usize]).unwrap();
        }
        storage.take_recordings();
        for _ in 0..20 {
            storage.update(0, 4096, &[7; 4096]).unwrap();
        }
        let count = |storage: &Storage| {
            let mut count = IoCount::default();
            for operations in storage.take_recordings() {
                count.add(&operations);
            }
            count
        };
        let during = count(&storage);
        storage.apply_in_place().unwrap();
        (during, count(&storage))
    };
    let (fo, overwritten_after) = written(UpdateScheme::Fo);
    let (fl, logged_after) = written(UpdateScheme::Fl);
    let (pl, later) = written(UpdateScheme::Pl);
    assert_eq!(
        (overwritten_after.written_bytes, logged_after.written_bytes),
        (0, 0)
    );
    assert!(
        later.written_bytes > 0,
        "data chunks are brought up to date later"
    );
    assert!(fo.written_bytes > 2 * fl.written_bytes, "{fo:?} {fl:?}");
    assert!(
        fo.syncs > fl.syncs && fl.syncs == pl.syncs,
        "{fo:?} {fl:?} {pl:?}"
    );
    assert!(
        fl.syncs >= 3 * 20,
        "each update is durable at three nodes: {fl:?}"
    );
}

#[test]
fn a_recording_has_every_operation_and_follows_renames() {
    let recorder = Recorder::default();
    let disk = RecordingDisk::new(SimDisk::new(1), recorder.clone());
    let file = disk.create("new").unwrap();
    file.allocate(0, 1 << 20).unwrap();
    file.write_all_at(&[1; 4096], 8192).unwrap();
    disk.rename("new", "old").unwrap();
    file.sync().unwrap();
    let mut bytes = [0; 100];
    disk.open("old")
        .unwrap()
        .read_exact_at(&mut bytes, 8192)
        .unwrap();
    assert!(disk.open("new").is_err());
    disk.remove("old").unwrap();
    let (offset, length) = (8192, 4096);
    let expected = [
        Access::Allocate { length: 1 << 20 },
        Access::Write { offset, length },
        Access::Sync,
        Access::Read {
            offset,
            length: 100,
        },
        Access::Remove,
    ];
    let operations = recorder.take();
    assert!(
        operations.iter().all(|r| r.file == FileNumber(0)),
        "{operations:?}"
    );
    assert_eq!(
        operations.iter().map(|r| r.access).collect::<Vec<_>>(),
        expected
    );
    assert!(recorder.take().is_empty());
    let mut model = DiskModel::new(ST1000DM003);
    let busy_ns = replay(&mut model, &operations);
    // One transfer of 4 KiB, 8 KiB behind the head, and nothing to read again.
    assert_eq!(busy_ns, model.used().busy_ns);
    assert_eq!(
        (model.used().written_bytes, model.used().read_bytes),
        (4096, 0)
    );
}
