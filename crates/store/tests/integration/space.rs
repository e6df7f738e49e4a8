//! Full disks and failing ones.

use crate::{OPTIONS, append, chunk, is_segment, open, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{Epoch, Generation, Keeping, Sequence, StripeId};
use gabion_store::{
    ChunkSpec, Cut, Disk as _, Options, RecordKind::NewBytes, SimDisk, Store, StoreError,
};
use std::sync::Arc;

#[test]
fn a_full_disk_refuses_updates_and_still_fences_applies_and_frees() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk);
    let id = chunk(1, 0);
    write_chunk(&store, id, spec(1, 20_000, 0), &pattern(1, 20_000)).unwrap();
    disk.set_capacity(600_000);
    let mut sequence = 0;
    let refusal = loop {
        sequence += 1;
        let bytes = [sequence as u8; 10_000];
        match append(&store, id, stamp(1, sequence), NewBytes, 5000, &bytes) {
            Ok(lsn) => store.sync(lsn).unwrap(),
            Err(error) => break error,
        }
        assert!(sequence < 1000, "the disk never fills up");
    };
    assert!(refusal.is_no_space(), "{refusal}");
    assert!(store.failure().is_none());
    let chunk_refused = write_chunk(&store, chunk(1, 1), spec(1, 400_000, 0), &vec![0; 400_000]);
    assert!(matches!(chunk_refused, Err(StoreError::NoSpace { .. })));
    assert!(disk.files().iter().all(|path| !path.starts_with("tmp/")));
    let last = sequence - 1;
    store.fence(StripeId(1), Epoch(2), Generation(1)).unwrap();
    store.commit(StripeId(1), Sequence(last)).unwrap();
    let summary = store.apply(StripeId(1)).unwrap();
    assert_eq!(summary.record_count, last);
    assert!(summary.segment_count > 0);
    let found = read(&store, id, 5000, 10_000, Cut::Exactly(Sequence(last))).unwrap();
    assert_eq!(found, [last as u8; 10_000]);
    append(
        &store,
        id,
        stamp(2, sequence),
        NewBytes,
        0,
        b"there is room again",
    )
    .unwrap();
}

#[test]
fn a_full_disk_opens_and_reads() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk);
    let id = chunk(1, 0);
    let bytes = pattern(1, 20_000);
    write_chunk(&store, id, spec(1, 20_000, 0), &bytes).unwrap();
    disk.set_capacity(200_000);
    let mut sequence = 1;
    while let Ok(lsn) = append(&store, id, stamp(1, sequence), NewBytes, 0, &[1; 10_000]) {
        store.sync(lsn).unwrap();
        sequence += 1;
    }
    drop(store);
    let (store, _) = open(&disk);
    let last = Cut::Exactly(Sequence(sequence - 1));
    assert_eq!(
        read(&store, id, 10_000, 10_000, last).unwrap(),
        bytes[10_000..]
    );
    store.commit(StripeId(1), Sequence(sequence - 1)).unwrap();
    assert_eq!(store.apply(StripeId(1)).unwrap().record_count, sequence - 1);
}

/// Segments that grow: from 64 KiB to 1 MiB.
const GROWING: Options = Options {
    segment_bytes: 1 << 20,
    ..OPTIONS
};

fn open_growing(disk: &SimDisk) -> Store {
    Store::open(Arc::new(disk.clone()), GROWING).unwrap().0
}

/// The lengths of the journal's files, the spare included.
fn journal_bytes(disk: &SimDisk) -> Vec<usize> {
    let files = disk.files().into_iter();
    let files = files.filter(|path| path.starts_with("journal/"));
    files
        .map(|path| disk.contents(&path).unwrap().len())
        .collect()
}

#[test]
fn journal_segments_begin_small_and_grow_with_use_across_starts() {
    let disk = SimDisk::new(1);
    let store = open_growing(&disk);
    assert_eq!(journal_bytes(&disk), [64 << 10; 2]);
    let id = chunk(1, 0);
    write_chunk(&store, id, spec(1, 20_000, 0), &pattern(1, 20_000)).unwrap();
    for sequence in 1..=200 {
        append(&store, id, stamp(1, sequence), NewBytes, 0, &[1; 10_000]).unwrap();
        store.commit(id.stripe, Sequence(sequence)).unwrap();
        store.apply(id.stripe).unwrap();
    }
    assert!(journal_bytes(&disk).contains(&(1 << 20)));
    drop(store);
    let _store = open_growing(&disk);
    let spare = disk.contents("journal/spare").unwrap();
    assert_eq!(spare.len(), 1 << 20, "the segment's header says it");
}

#[test]
fn a_large_record_enlarges_segments_before_it_is_acknowledged() {
    let large = pattern(2, 200_000);
    for kept in [Keeping::InPlace, Keeping::Reserve { bytes: 256 << 10 }] {
        let disk = SimDisk::new(1);
        let store = open_growing(&disk);
        let id = chunk(1, 0);
        let spec = ChunkSpec {
            keeping: kept,
            ..spec(1, 200_000, 0)
        };
        write_chunk(&store, id, spec, &pattern(1, 200_000)).unwrap();
        let lsn = append(&store, id, stamp(1, 1), NewBytes, 0, &large).unwrap();
        store.sync(lsn).unwrap();
        let disk = disk.after_crash(1);
        let store = open_growing(&disk);
        store.commit(id.stripe, Sequence(1)).unwrap();
        disk.set_capacity(0);
        assert_eq!(store.merge(id).unwrap().record_count, 1, "{kept:?}");
        let found = read(&store, id, 0, 200_000, Cut::Exactly(Sequence(1))).unwrap();
        assert!(found == large, "{kept:?}");
    }
}

#[test]
fn a_disk_without_room_for_larger_segments_refuses_large_records_only() {
    let disk = SimDisk::new(1);
    let store = open_growing(&disk);
    let id = chunk(1, 0);
    write_chunk(&store, id, spec(1, 200_000, 0), &pattern(1, 200_000)).unwrap();
    append(&store, id, stamp(1, 1), NewBytes, 0, b"small").unwrap();
    let used_bytes = u64::MAX - disk.available_bytes().unwrap();
    disk.set_capacity(used_bytes + (100 << 10));
    let refused = append(&store, id, stamp(1, 2), NewBytes, 0, &pattern(2, 200_000));
    assert!(matches!(refused, Err(StoreError::NoSpace { .. })));
    assert!(store.failure().is_none());
    for sequence in 2..=100 {
        append(&store, id, stamp(1, sequence), NewBytes, 0, &[1; 10_000]).unwrap();
        store.commit(id.stripe, Sequence(sequence)).unwrap();
        store.apply(id.stripe).unwrap();
    }
    assert_eq!(journal_bytes(&disk), [64 << 10; 2], "it did not grow");
}

#[test]
fn new_chunks_leave_the_reserve_free() {
    let disk = SimDisk::new(1);
    disk.set_capacity(400_000);
    let options = Options {
        free_bytes: 200_000,
        ..OPTIONS
    };
    let (store, _) = Store::open(Arc::new(disk), options).unwrap();
    let refused = store.create(chunk(1, 0), spec(1, 110_000, 0));
    assert!(matches!(refused, Err(StoreError::NoSpace { .. })));
    assert!(store.create(chunk(1, 0), spec(1, 20_000, 0)).is_ok());
}

#[test]
fn a_failure_at_any_operation_latches_or_changes_nothing() {
    let id = chunk(1, 0);
    let old = pattern(1, 20_000);
    let (mut latched_count, mut unknown_count) = (0, 0);
    for number in 1..80 {
        let disk = SimDisk::new(number);
        let (store, _) = open(&disk);
        write_chunk(&store, id, spec(1, 20_000, 0), &old).unwrap();
        disk.fail_operation(disk.counts().operation_count + number);
        let mut acknowledged = 0;
        for sequence in 1..=8 {
            let appended = append(
                &store,
                id,
                stamp(1, sequence),
                NewBytes,
                0,
                &[sequence as u8; 9000],
            );
            let Ok(()) = appended.and_then(|lsn| store.sync(lsn)) else {
                break;
            };
            acknowledged = sequence;
            let mark = Sequence(sequence);
            let settled = store.commit(StripeId(1), mark);
            if settled.and_then(|()| store.apply(StripeId(1))).is_err() {
                break;
            }
        }
        if store.failure().is_some() {
            latched_count += 1;
            let refused = append(&store, id, stamp(1, 99), NewBytes, 0, b"x");
            assert!(matches!(refused, Err(StoreError::Failed { .. })));
            // The disk's state of an unfinished chunk is known after a restart, and sound.
            let newest = Cut::Committed {
                at_least: Sequence(0),
            };
            match read(&store, id, 0, 20_000, newest) {
                Ok(_) | Err(StoreError::Unsettled { .. }) => {}
                Err(StoreError::Failed { .. }) => unknown_count += 1,
                Err(other) => panic!("failure at {number}: {other}"),
            }
        }
        let (store, report) = open(&disk.after_crash(number));
        assert_eq!(report.damage, []);
        let found = read(&store, id, 0, 20_000, Cut::Exactly(Sequence(8))).unwrap();
        let version = u64::from(found[0]);
        let is_whole = found[..9000].iter().all(|byte| u64::from(*byte) == version);
        let is_new = is_whole && version >= acknowledged && version <= acknowledged + 1;
        assert!(
            is_new || (acknowledged == 0 && found == old),
            "failure at {number}"
        );
        assert_eq!(found[9000..], old[9000..]);
    }
    assert!(latched_count > 40, "only {latched_count} failures latched");
    assert!(unknown_count > 5, "only {unknown_count} in place");
}

#[test]
fn one_unsettled_record_does_not_block_the_journal() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk);
    for stripe in 1..=2 {
        write_chunk(
            &store,
            chunk(stripe, 0),
            spec(1, 20_000, 0),
            &pattern(1, 20_000),
        )
        .unwrap();
    }
    append(
        &store,
        chunk(2, 0),
        stamp(1, 1),
        NewBytes,
        0,
        b"never settled yet",
    )
    .unwrap();
    for sequence in 1..=100 {
        append(
            &store,
            chunk(1, 0),
            stamp(1, sequence),
            NewBytes,
            0,
            &[1; 10_000],
        )
        .unwrap();
        store.commit(StripeId(1), Sequence(sequence)).unwrap();
        store.apply(StripeId(1)).unwrap();
    }
    let segment_count = disk.files().iter().filter(|path| is_segment(path)).count();
    assert!(
        segment_count <= OPTIONS.segment_count_max + 1,
        "{segment_count} segments"
    );
    let (store, _) = open(&disk.after_crash(1));
    let found = read(&store, chunk(2, 0), 0, 17, Cut::Exactly(Sequence(1))).unwrap();
    assert_eq!(found, b"never settled yet");
}
