//! The runs of updates: how long the store remembers them, and that it reports each one that it
//! forgets, across crashes.

use crate::{OPTIONS, append, chunk, open, pattern, spec, stamp, write_chunk};
use gabion_layout::{ChunkId, Epoch, Generation, Keeping, RunId, Sequence};
use gabion_store::{ChunkSpec, Piece, Record, RecordKind, RunMemory, SimDisk, Store, StoreError};

const BYTES: u64 = 64 << 10;

/// A few small segments hold this many records of 4 KiB.
const MANY: u64 = 60;

fn prepare(keeping: Keeping) -> (SimDisk, Store, ChunkId) {
    let disk = SimDisk::new(3);
    let (store, _) = open(&disk);
    let id = chunk(1, 4);
    let spec = ChunkSpec {
        keeping,
        ..spec(1, BYTES, 0)
    };
    write_chunk(&store, id, spec, &pattern(1, BYTES as usize)).unwrap();
    (disk, store, id)
}

/// A durable record of some bytes, made by the run with the update's number.
fn record(store: &Store, id: ChunkId, sequence: u64, bytes: usize) {
    let offset = sequence * 4096 % BYTES;
    let delta = pattern(sequence, bytes);
    let kind = RecordKind::ParityDelta;
    let lsn = append(store, id, stamp(1, sequence), kind, offset, &delta).unwrap();
    store.sync(lsn).unwrap();
}

/// Like [`record`], then committed and merged.
fn update(store: &Store, id: ChunkId, sequence: u64) {
    record(store, id, sequence, 4096);
    store.commit(id.stripe, Sequence(sequence)).unwrap();
    store.log_marks().unwrap();
}

fn memory(store: &Store, id: ChunkId, run: u64) -> (Option<u64>, u64) {
    let RunMemory {
        sequence,
        complete_after,
    } = store.run_memory(id, RunId(run)).unwrap();
    (sequence.map(|s| s.0), complete_after.0)
}

#[test]
fn runs_outlive_their_records_and_the_process() {
    let reserve = Keeping::Reserve { bytes: 20 << 10 };
    for keeping in [Keeping::InPlace, Keeping::Log, reserve] {
        let (disk, store, id) = prepare(keeping);
        for sequence in 1..=MANY {
            update(&store, id, sequence);
            store.apply_pending(u64::MAX).unwrap();
        }
        let check = |store: &Store| {
            for run in [1, 7, MANY] {
                assert_eq!(memory(store, id, run), (Some(run), 0), "{keeping:?}");
            }
            assert_eq!(memory(store, id, MANY + 1), (None, 0), "{keeping:?}");
        };
        check(&store);
        drop(store);
        let disk = disk.after_crash(5);
        let (store, _) = open(&disk);
        check(&store);
        // The runs of an emptied reserve are logged nowhere else.
        store.merge(id).unwrap();
        drop(store);
        let (store, _) = open(&disk.after_crash(6));
        check(&store);
    }
}

/// An update of several runs at one chunk, as a batch makes it.
fn record_of(store: &Store, id: ChunkId, sequence: u64, runs: &[u64]) {
    let record = Record {
        chunk: id,
        generation: Generation(1),
        stamp: stamp(1, sequence),
        runs: runs.iter().copied().map(RunId).collect(),
        participants: vec![id.index],
        kind: RecordKind::ParityDelta,
        pieces: vec![Piece {
            data: id.index,
            offset: 0,
            bytes: b"of several",
        }],
    };
    let lsn = store.append(&record).unwrap();
    store.sync(lsn).unwrap();
}

#[test]
fn all_runs_of_a_record_are_remembered_and_dropped_together() {
    let reserve = Keeping::Reserve { bytes: 20 << 10 };
    for keeping in [Keeping::InPlace, Keeping::Log, reserve] {
        let (disk, store, id) = prepare(keeping);
        record_of(&store, id, 1, &[10, 11, 12]);
        record_of(&store, id, 2, &[20, 21]);
        record_of(&store, id, 3, &[30]);
        let found = |store: &Store| [10, 12, 20, 21, 30].map(|run| memory(store, id, run).0);
        let all = [1, 1, 2, 2, 3].map(Some);
        assert_eq!(found(&store), all, "{keeping:?}");
        drop(store);
        let disk = disk.after_crash(1);
        let (store, _) = open(&disk);
        assert_eq!(found(&store), all, "{keeping:?}");
        store
            .resolve(id.stripe, Epoch(2), Sequence(3), &[Sequence(2)])
            .unwrap();
        drop(store);
        let (store, _) = open(&disk.after_crash(2));
        let expected = [Some(1), Some(1), None, None, Some(3)];
        assert_eq!(found(&store), expected, "{keeping:?}");
    }
}

#[test]
fn a_record_has_at_most_64_runs() {
    let (_, store, id) = prepare(Keeping::InPlace);
    let runs: Vec<u64> = (0..64).collect();
    record_of(&store, id, 1, &runs);
    assert_eq!(memory(&store, id, 63), (Some(1), 0));
    let record = Record {
        chunk: id,
        generation: Generation(1),
        stamp: stamp(1, 2),
        runs: (0..65).map(RunId).collect(),
        participants: vec![id.index],
        kind: RecordKind::ParityDelta,
        pieces: vec![Piece {
            data: id.index,
            offset: 0,
            bytes: b"too many",
        }],
    };
    let refused = store.append(&record);
    assert!(
        matches!(refused, Err(StoreError::Malformed { .. })),
        "{refused:?}"
    );
}

#[test]
fn the_run_of_a_dropped_update_is_forgotten_and_nothing_else() {
    let (disk, store, id) = prepare(Keeping::InPlace);
    update(&store, id, 1);
    record(&store, id, 2, 100);
    record(&store, id, 3, 100);
    assert_eq!(memory(&store, id, 2), (Some(2), 0));
    let dropped = [Sequence(2)];
    store
        .resolve(id.stripe, Epoch(2), Sequence(3), &dropped)
        .unwrap();
    drop(store);
    let (store, _) = open(&disk.after_crash(1));
    let found = [1, 2, 3].map(|run| memory(&store, id, run));
    assert_eq!(found, [(Some(1), 0), (None, 0), (Some(3), 0)]);
}

#[test]
fn a_replaced_chunk_reports_from_which_update_on_it_knows_runs() {
    let (disk, store, id) = prepare(Keeping::InPlace);
    for sequence in 1..=3 {
        update(&store, id, sequence);
    }
    record(&store, id, 4, 100);
    // For the maker of the chunk, update 4 is another one.
    let made = spec(1, BYTES, 9);
    write_chunk(&store, id, made, &pattern(2, BYTES as usize)).unwrap();
    let other = chunk(2, 0);
    write_chunk(
        &store,
        other,
        spec(1, BYTES, 5),
        &pattern(2, BYTES as usize),
    )
    .unwrap();
    let check = |store: &Store| {
        assert_eq!(memory(store, id, 3), (None, 9));
        assert_eq!(memory(store, id, 4), (None, 9));
        assert_eq!(memory(store, other, 4), (None, 5));
    };
    check(&store);
    drop(store);
    let disk = disk.after_crash(2);
    let (store, _) = open(&disk);
    check(&store);
    store.remove(other).unwrap();
    write_chunk(
        &store,
        other,
        spec(1, BYTES, 0),
        &pattern(2, BYTES as usize),
    )
    .unwrap();
    drop(store);
    let (store, _) = open(&disk.after_crash(3));
    assert_eq!(memory(&store, other, 4), (None, 0), "another chunk");
}

#[test]
fn the_oldest_runs_of_all_chunks_make_room_for_new_ones() {
    let (disk, store, id) = prepare(Keeping::InPlace);
    let count_max = OPTIONS.segment_bytes / 512;
    let quiet = chunk(2, 4);
    write_chunk(
        &store,
        quiet,
        spec(1, BYTES, 0),
        &pattern(1, BYTES as usize),
    )
    .unwrap();
    update(&store, quiet, 1);
    update(&store, quiet, 2);
    for sequence in 1..count_max {
        record(&store, id, sequence, 16);
    }
    assert_eq!(memory(&store, quiet, 1), (None, 1));
    assert_eq!(memory(&store, quiet, 2), (Some(2), 1));
    record(&store, id, count_max, 16);
    record(&store, id, count_max + 1, 16);
    assert_eq!(memory(&store, quiet, 2), (None, 2));
    let first = memory(&store, id, 1);
    assert_eq!(first, (None, 1));
    drop(store);
    let (store, _) = open(&disk.after_crash(4));
    // A start may remember others, and reports that as well.
    for run in 1..=count_max + 1 {
        let (found, complete_after) = memory(&store, id, run);
        assert!(found == Some(run) || complete_after >= run, "run {run}");
    }
}

#[test]
fn runs_of_a_removed_chunk_are_remembered_if_they_are_settled() {
    let (_, store, id) = prepare(Keeping::Log);
    update(&store, id, 1);
    store.remove(id).unwrap();
    assert_eq!(memory(&store, id, 1), (Some(1), 0));
    assert_eq!(memory(&store, id, 2), (None, 0));

    let (_, store, id) = prepare(Keeping::Log);
    record(&store, id, 1, 4096);
    store.remove(id).unwrap();
    let memory = store.run_memory(id, RunId(1));
    assert!(memory.is_err(), "it is undecided: {memory:?}");
}
