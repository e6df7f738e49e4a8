//! Refusals, promises and cuts.

use crate::{append, chunk, open, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{ByteRange, ChunkIndex, Epoch, Generation, RunId, Sequence, StripeId};
use gabion_store::RecordKind::{NewBytes, ParityDelta};
use gabion_store::{Cut, Piece, Record, SimDisk, Store, StoreError};

fn with_chunk() -> (SimDisk, Store, Vec<u8>) {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk);
    let bytes = pattern(1, 10_000);
    write_chunk(&store, chunk(1, 0), spec(1, 10_000, 0), &bytes).unwrap();
    (disk, store, bytes)
}

#[test]
fn an_older_epoch_is_refused_also_after_a_crash() {
    let (disk, store, _) = with_chunk();
    store.fence(StripeId(1), Epoch(5), Generation(2)).unwrap();
    store.fence(StripeId(1), Epoch(5), Generation(2)).unwrap();
    drop(store);
    let (store, _) = open(&disk.after_crash(3));
    let refused = append(&store, chunk(1, 0), stamp(4, 1), NewBytes, 0, b"x");
    assert!(matches!(
        refused,
        Err(StoreError::Fenced {
            current: Epoch(5),
            ..
        })
    ));
    let refused = append(&store, chunk(1, 0), stamp(5, 1), NewBytes, 0, b"x");
    assert!(matches!(refused, Err(StoreError::StaleGeneration { .. })));
    let refused = store.fence(StripeId(1), Epoch(4), Generation(2));
    assert!(matches!(refused, Err(StoreError::Fenced { .. })));
    let refused = store.resolve(StripeId(1), Epoch(4), Sequence(1), &[]);
    assert!(matches!(refused, Err(StoreError::Fenced { .. })));
    let refused = store.create(chunk(1, 4), spec(1, 10, 0));
    assert!(matches!(refused, Err(StoreError::StaleGeneration { .. })));
}

#[test]
fn a_removed_stripe_leaves_no_chunk_whatever_it_was_counted_for() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk);
    for id in [chunk(1, 0), chunk(1, 3), chunk(2, 0)] {
        let mut writer = store.create(id, spec(1, 10, 0)).unwrap();
        writer.write_at(0, &[7; 10]).unwrap();
        writer.finish().unwrap();
    }
    store.remove_stripe(StripeId(1)).unwrap();
    store.remove_stripe(StripeId(3)).unwrap();
    for store in [store, open(&disk.after_crash(3)).0] {
        assert_eq!(store.chunk_count(), 1);
        let gone = store.held(StripeId(1));
        assert!(matches!(gone, Err(StoreError::NoSuchStripe { .. })));
        store.held(StripeId(2)).unwrap();
    }
}

#[test]
fn a_chunk_made_in_a_term_is_not_removed_by_late_requests_of_earlier_terms() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk);
    let id = chunk(1, 0);
    let made_in = |epoch, byte: u8| {
        let mut writer = store.create(id, spec(1, 10, 0)).unwrap();
        writer.write_at(0, &[byte; 10]).unwrap();
        writer.finish_in(Epoch(epoch))
    };
    made_in(5, 5).unwrap();
    let (again, _) = open(&disk.after_crash(3));
    for store in [&store, &again] {
        let late = store.discard(id, Epoch(4));
        let current = Epoch(5);
        assert!(matches!(late, Err(StoreError::Fenced { current: it, .. }) if it == current));
        let late = append(store, id, stamp(4, 1), NewBytes, 0, b"x");
        assert!(matches!(late, Err(StoreError::Fenced { .. })));
    }
    assert!(matches!(made_in(4, 4), Err(StoreError::Fenced { .. })));
    let all = |store| read(store, id, 0, 10, Cut::Exactly(Sequence(0)));
    assert_eq!(all(&store).unwrap(), [5; 10]);
    made_in(6, 6).unwrap();
    assert_eq!(all(&store).unwrap(), [6; 10]);
    store.discard(chunk(1, 4), Epoch(1)).unwrap();
    store.discard(id, Epoch(6)).unwrap();
    assert!(matches!(all(&store), Err(StoreError::NoSuchChunk { .. })));
    made_in(0, 0).unwrap();
    assert_eq!(
        store.held(StripeId(1)).unwrap().epoch,
        Epoch(0),
        "a new stripe has no terms yet"
    );
}

#[test]
fn the_report_of_a_collect_survives_a_crash() {
    let (disk, store, _) = with_chunk();
    append(&store, chunk(1, 0), stamp(1, 1), NewBytes, 0, b"not synced").unwrap();
    let told = store.collect(StripeId(1)).unwrap();
    assert_eq!(told.records.len(), 1);
    for seed in 0..20 {
        let (again, _) = open(&disk.after_crash(seed));
        let held = again.held(StripeId(1)).unwrap();
        assert_eq!(held.records, told.records, "seed {seed}");
    }
}

#[test]
fn a_record_of_a_later_epoch_fences_earlier_ones() {
    let (_, store, _) = with_chunk();
    append(&store, chunk(1, 0), stamp(3, 1), NewBytes, 0, b"x").unwrap();
    let refused = append(&store, chunk(1, 0), stamp(2, 2), NewBytes, 0, b"x");
    assert!(matches!(
        refused,
        Err(StoreError::Fenced {
            current: Epoch(3),
            ..
        })
    ));
}

#[test]
fn a_repeated_record_counts_once() {
    let (_, store, bytes) = with_chunk();
    let id = chunk(1, 0);
    let first = append(&store, id, stamp(1, 1), ParityDelta, 0, b"delta").unwrap();
    let again = append(&store, id, stamp(1, 1), ParityDelta, 0, b"delta").unwrap();
    assert_eq!(first, again);
    let taken = append(&store, id, stamp(2, 1), ParityDelta, 0, b"other");
    assert!(matches!(taken, Err(StoreError::SequenceTaken { held, .. }) if held == stamp(1, 1)));
    store.commit(StripeId(1), Sequence(1)).unwrap();
    store.apply(StripeId(1)).unwrap();
    let late = append(&store, id, stamp(1, 1), ParityDelta, 0, b"delta");
    assert!(matches!(late, Err(StoreError::Settled { .. })));
    let found = read(&store, id, 0, 5, Cut::Exactly(Sequence(1))).unwrap();
    let expected: Vec<u8> = bytes.iter().zip(b"delta").map(|(a, b)| a ^ b).collect();
    assert_eq!(found, expected);
    assert_eq!(store.pending_bytes(), 0);
}

#[test]
fn what_was_dropped_stays_dropped() {
    let (disk, store, bytes) = with_chunk();
    let id = chunk(1, 0);
    for sequence in 1..=3 {
        append(
            &store,
            id,
            stamp(1, sequence),
            NewBytes,
            0,
            &[sequence as u8],
        )
        .unwrap();
    }
    store.fence(StripeId(1), Epoch(2), Generation(1)).unwrap();
    // The third is not listed, but its primary is fenced and it lies above the mark.
    store
        .resolve(
            StripeId(1),
            Epoch(2),
            Sequence(1),
            &[Sequence(2), Sequence(4)],
        )
        .unwrap();
    store
        .resolve(
            StripeId(1),
            Epoch(2),
            Sequence(1),
            &[Sequence(2), Sequence(4)],
        )
        .unwrap();
    for disk in [disk.clone(), disk.after_crash(9)] {
        let (store, _) = open(&disk);
        let state = store.collect(StripeId(1)).unwrap();
        assert_eq!((state.mark, state.records), (Sequence(1), vec![]));
        let late = append(&store, id, stamp(2, 4), NewBytes, 0, b"x");
        assert!(matches!(late, Err(StoreError::Dropped { .. })));
        append(&store, id, stamp(2, 3), NewBytes, 1, b"y").unwrap();
        let found = read(&store, id, 0, 3, Cut::Exactly(Sequence(3))).unwrap();
        assert_eq!(found, [1, b'y', bytes[2]]);
    }
}

#[test]
fn a_settled_record_is_never_dropped() {
    let (_, store, _) = with_chunk();
    append(&store, chunk(1, 0), stamp(1, 1), NewBytes, 0, b"x").unwrap();
    store.commit(StripeId(1), Sequence(1)).unwrap();
    let refused = store.resolve(StripeId(1), Epoch(1), Sequence(1), &[Sequence(1)]);
    assert!(matches!(refused, Err(StoreError::Settled { .. })));
}

#[test]
fn cuts_show_one_update_or_refuse() {
    let (_, store, bytes) = with_chunk();
    let id = chunk(1, 0);
    let settled = |mark| Cut::Committed {
        at_least: Sequence(mark),
    };
    append(&store, id, stamp(1, 1), NewBytes, 4090, &[1; 10]).unwrap();
    append(&store, id, stamp(1, 2), NewBytes, 4095, &[2; 10]).unwrap();
    let unsettled = read(&store, id, 4095, 1, settled(1));
    assert!(matches!(
        unsettled,
        Err(StoreError::Unsettled {
            above: Sequence(1),
            first: Sequence(2),
            ..
        })
    ));
    assert_eq!(read(&store, id, 4090, 5, settled(0)).unwrap(), [1; 5]);
    assert_eq!(
        read(&store, id, 4094, 3, Cut::Exactly(Sequence(2))).unwrap(),
        [1, 2, 2]
    );
    assert_eq!(
        read(&store, id, 4094, 3, Cut::Exactly(Sequence(0))).unwrap(),
        bytes[4094..4097]
    );
    store.apply(StripeId(1)).unwrap();
    let passed = read(&store, id, 0, 1, Cut::Exactly(Sequence(0)));
    assert!(matches!(
        passed,
        Err(StoreError::CutPassed {
            applied: Sequence(1),
            ..
        })
    ));
    assert_eq!(
        read(&store, id, 4099, 2, Cut::Exactly(Sequence(1))).unwrap(),
        [1, bytes[4100]]
    );
    assert_eq!(read(&store, id, 4094, 3, settled(2)).unwrap(), [1, 2, 2]);
    assert_eq!(read(&store, id, 10_000, 0, settled(2)).unwrap(), []);
}

#[test]
fn hostile_numbers_are_refused() {
    let (_, store, _) = with_chunk();
    let id = chunk(1, 0);
    for (offset, length) in [
        (u64::MAX, 2),
        (0, u64::MAX),
        (10_000, 1),
        (1 << 63, 1 << 63),
    ] {
        let refused = read(&store, id, offset, length, Cut::Exactly(Sequence(0)));
        assert!(matches!(refused, Err(StoreError::OutOfChunk { .. })));
    }
    for offset in [u64::MAX, 10_000, 9_999] {
        let refused = append(&store, id, stamp(1, 1), NewBytes, offset, b"xy");
        assert!(matches!(refused, Err(StoreError::OutOfChunk { .. })));
    }
    let too_large = append(&store, id, stamp(1, 1), NewBytes, 0, &vec![0; 20_000]);
    assert!(matches!(too_large, Err(StoreError::RecordTooLarge { .. })));
    let unnumbered = append(&store, id, stamp(1, 0), NewBytes, 0, b"x");
    assert!(matches!(unnumbered, Err(StoreError::Malformed { .. })));
    for bytes in [0, u64::MAX] {
        let refused = store.create(chunk(1, 1), spec(1, bytes, 0));
        assert!(matches!(refused, Err(StoreError::Malformed { .. })));
    }
    assert!(matches!(
        store.collect(StripeId(9)),
        Err(StoreError::NoSuchStripe { .. })
    ));
    let last = Cut::Committed {
        at_least: Sequence(u64::MAX),
    };
    assert!(read(&store, id, 0, 1, last).is_ok());
    assert_eq!(store.collect(StripeId(1)).unwrap().records, []);
}

#[test]
fn a_new_chunk_replaces_none() {
    let (_, store, _) = with_chunk();
    let id = chunk(2, 0);
    let written = |seed| {
        let mut writer = store.create(id, spec(1, 9000, 0)).unwrap();
        writer.write_at(0, &pattern(seed, 9000)).unwrap();
        writer
    };
    let is_there = |refused: Result<(), StoreError>| matches!(refused, Err(StoreError::ChunkExists { chunk }) if chunk == id);
    // All of them find no chunk at first.
    let others: Vec<_> = (6..10).map(written).collect();
    written(5).finish_new().unwrap();
    for other in others {
        assert!(is_there(other.finish_new()));
    }
    let last = Cut::Committed {
        at_least: Sequence(u64::MAX),
    };
    assert_eq!(read(&store, id, 0, 9000, last).unwrap(), pattern(5, 9000));
    // One at the same time.
    store.remove(id).unwrap();
    let stored = std::thread::scope(|scope| {
        let writers: Vec<_> = (6..10).map(written).collect();
        let writers = writers.into_iter().map(|w| scope.spawn(|| w.finish_new()));
        let writers: Vec<_> = writers.collect();
        writers
            .into_iter()
            .filter_map(|w| w.join().unwrap().ok())
            .count()
    });
    assert_eq!(stored, 1);
    // A term that was promised while the bytes were written.
    let mut late = store.create(chunk(3, 0), spec(1, 9000, 0)).unwrap();
    late.write_at(0, &pattern(12, 9000)).unwrap();
    store.fence(StripeId(3), Epoch(5), Generation(1)).unwrap();
    let fenced = late.finish_new();
    assert!(
        matches!(fenced, Err(StoreError::Fenced { .. })),
        "{fenced:?}"
    );
    // One that replaces another on purpose still may.
    written(11).finish().unwrap();
    assert_eq!(read(&store, id, 0, 9000, last).unwrap(), pattern(11, 9000));
}

#[test]
fn a_chunk_takes_each_byte_once_and_all_of_them() {
    let (_, store, _) = with_chunk();
    let bytes = pattern(5, 9000);
    let mut writer = store.create(chunk(2, 0), spec(1, 9000, 0)).unwrap();
    for (from, to) in [(4000, 4100), (8999, 9000), (0, 1), (1, 4000), (4100, 8192)] {
        writer.write_at(from as u64, &bytes[from..to]).unwrap();
    }
    let twice = writer.write_at(4099, b"xy");
    assert!(matches!(twice, Err(StoreError::Overlap { .. })));
    let outside = writer.write_at(8999, b"xy");
    assert!(matches!(outside, Err(StoreError::OutOfChunk { .. })));
    let missing = ByteRange::new(8192, 807);
    assert!(
        matches!(writer.finish(), Err(StoreError::Incomplete { missing: found, .. }) if found == missing)
    );
    assert!(matches!(
        store.chunk_info(chunk(2, 0)),
        Err(StoreError::NoSuchChunk { .. })
    ));
    let mut writer = store.create(chunk(2, 0), spec(1, 9000, 0)).unwrap();
    for (from, to) in [(8192, 9000), (4000, 4100), (0, 1), (1, 4000), (4100, 8192)] {
        writer.write_at(from as u64, &bytes[from..to]).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(
        read(&store, chunk(2, 0), 0, 9000, Cut::Exactly(Sequence(0))).unwrap(),
        bytes
    );
    assert_eq!(store.scrub(chunk(2, 0)).unwrap(), []);
}

#[test]
fn a_record_costs_at_most_72_bytes_more_than_its_bytes() {
    let (_, store, _) = with_chunk();
    let bytes = [7; 4096];
    let mut sequence = 1 << 35;
    for index in [0, 13] {
        let id = chunk(u64::MAX, index);
        let epoch = (1 << 21) - 1;
        write_chunk(&store, id, spec(epoch, 10_000, 0), &pattern(1, 10_000)).unwrap();
        let before = store.pending_bytes();
        sequence -= 1;
        store
            .append(&Record {
                chunk: id,
                generation: Generation(epoch),
                stamp: stamp(epoch, sequence),
                runs: vec![RunId(u64::MAX)],
                participants: (0..14).map(ChunkIndex).collect(),
                kind: NewBytes,
                pieces: vec![Piece {
                    data: ChunkIndex(0),
                    offset: 5904,
                    bytes: &bytes,
                }],
            })
            .unwrap();
        let overhead = store.pending_bytes() - before - 4096;
        assert!(overhead <= 72, "{overhead} bytes of overhead");
    }
}

#[test]
fn callers_that_wait_together_share_syncs() {
    let (disk, store, _) = with_chunk();
    let before = disk.counts().sync_count;
    let lsns: Vec<_> = (1..=100)
        .map(|sequence| append(&store, chunk(1, 0), stamp(1, sequence), NewBytes, 0, b"x").unwrap())
        .collect();
    for lsn in lsns.into_iter().rev() {
        store.sync(lsn).unwrap();
    }
    assert_eq!(disk.counts().sync_count - before, 1);
}
