//! Appended records: their readers, their lifetime, and their state after crashes.

use crate::{append, chunk, open, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Epoch, Generation, RunId, Sequence, StripeId};
use gabion_store::RecordKind::{Appended, NewBytes, ParityDelta};
use gabion_store::{
    Cut, Piece, Recalled, Record, RecordKind, SimDisk, Store, StoreError, UpdateStamp,
};

const NEW: RecordKind = Appended { original_count: 0 };
const BYTES: u64 = 10_000;

/// A data chunk and a parity chunk of stripe 1.
fn with_chunks() -> (SimDisk, Store) {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk);
    for index in [0, 4] {
        let bytes = pattern(index.into(), BYTES as usize);
        write_chunk(&store, chunk(1, index), spec(1, BYTES, 0), &bytes).unwrap();
    }
    (disk, store)
}

/// A copy of data chunk 0 on the parity chunk's node: its old bytes, if given, then the new ones.
fn copy(store: &Store, stamp: UpdateStamp, offset: u64, old: Option<&[u8]>, new: &[u8]) {
    let piece = |bytes| Piece {
        data: ChunkIndex(0),
        offset,
        bytes,
    };
    let record = Record {
        chunk: chunk(1, 4),
        generation: Generation(1),
        stamp,
        runs: vec![RunId(stamp.sequence.0)],
        participants: vec![ChunkIndex(0), ChunkIndex(4)],
        kind: Appended {
            original_count: u16::from(old.is_some()),
        },
        pieces: old.into_iter().chain([new]).map(piece).collect(),
    };
    let lsn = store.append(&record).unwrap();
    store.sync(lsn).unwrap();
}

fn commit(store: &Store, upto: u64) {
    store.sync_all().unwrap();
    store.commit(StripeId(1), Sequence(upto)).unwrap();
}

fn recall(
    store: &Store,
    holder: ChunkId,
    is_original: bool,
    (offset, length): (u64, u64),
    upto: u64,
) -> Option<Vec<u8>> {
    let wanted = Recalled {
        data: ChunkIndex(0),
        is_original,
        range: ByteRange::new(offset, length),
    };
    let mut bytes = Vec::new();
    match store.recall(holder, wanted, Sequence(upto), &mut bytes) {
        Ok(()) => Some(bytes),
        Err(StoreError::Malformed { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The numbers of the appended records, after what the code covers.
fn waiting(store: &Store) -> (u64, Vec<u64>) {
    let state = store.appended(StripeId(1)).unwrap();
    let numbers = state.records.iter().map(|r| r.stamp.sequence.0);
    (state.covered.0, numbers.collect())
}

const NEWEST: Cut = Cut::Committed {
    at_least: Sequence(0),
};

#[test]
fn readers_of_data_see_appended_bytes_and_the_code_does_not() {
    let (_, store) = with_chunks();
    let data = chunk(1, 0);
    append(&store, data, stamp(1, 1), NEW, 100, b"first").unwrap();
    append(&store, data, stamp(1, 2), NEW, 103, b"next").unwrap();
    let unsettled = read(&store, data, 100, 9, NEWEST);
    assert!(matches!(unsettled, Err(StoreError::Unsettled { .. })));
    commit(&store, 2);
    let old = &pattern(0, BYTES as usize)[100..107];
    let at = |cut| read(&store, data, 100, 7, cut).unwrap();
    assert_eq!(at(NEWEST), b"firnext");
    assert_eq!(at(Cut::Newest(Sequence(1)))[..5], *b"first");
    assert_eq!(at(Cut::Newest(Sequence(0))), old);
    assert_eq!(at(Cut::Exactly(Sequence(2))), old);
    assert_eq!(store.missed_since(data, Sequence(0)).unwrap(), Some(vec![]));
    assert_eq!(waiting(&store), (0, vec![1, 2]));
    assert_eq!(store.appended_stripes(), [StripeId(1)]);
}

#[test]
fn a_copy_of_another_chunk_is_no_part_of_the_node_s_own() {
    let (_, store) = with_chunks();
    copy(&store, stamp(1, 1), 100, Some(b"before"), b"behind");
    let parity = &pattern(4, BYTES as usize)[100..106];
    let at = |cut| read(&store, chunk(1, 4), 100, 6, cut).unwrap();
    assert_eq!(
        at(NEWEST),
        parity,
        "not even unsettled for the node's own chunk"
    );
    commit(&store, 1);
    assert_eq!(
        (at(NEWEST), at(Cut::Exactly(Sequence(1)))),
        (parity.to_vec(), parity.to_vec())
    );
}

#[test]
fn recalled_is_what_is_newest_or_what_was_there_first_since_the_last_commit() {
    let (_, store) = with_chunks();
    let parity = chunk(1, 4);
    copy(&store, stamp(1, 1), 10, Some(b"aaaa"), b"bbbb");
    copy(&store, stamp(1, 2), 12, None, b"cc");
    copy(&store, stamp(1, 3), 14, Some(b"dd"), b"ee");
    assert_eq!(
        recall(&store, parity, false, (10, 6), 3).unwrap(),
        b"bbccee"
    );
    assert_eq!(recall(&store, parity, true, (10, 6), 3).unwrap(), b"aaaadd");
    assert_eq!(recall(&store, parity, false, (11, 2), 1).unwrap(), b"bb");
    assert_eq!(
        recall(&store, parity, false, (10, 6), 2),
        None,
        "14 is not there yet"
    );
    assert_eq!(recall(&store, parity, false, (9, 2), 3), None);
    // The commit's own record, and an update of the same bytes after it.
    append(&store, parity, stamp(1, 4), ParityDelta, 10, b"delta!").unwrap();
    copy(&store, stamp(1, 5), 12, Some(b"cc"), b"ff");
    commit(&store, 5);
    assert_eq!(waiting(&store), (4, vec![5]));
    assert_eq!(recall(&store, parity, true, (12, 2), 5).unwrap(), b"cc");
    assert_eq!(recall(&store, parity, false, (10, 2), 5), None, "committed");
}

/// A reader that got its cut before a commit must not take what is left of the logs for all that there was.
#[test]
fn a_recall_as_of_an_update_before_a_merged_commit_asks_for_a_newer_cut() {
    let (_, store) = with_chunks();
    let parity = chunk(1, 4);
    copy(&store, stamp(1, 1), 10, None, b"bbbb");
    append(&store, parity, stamp(1, 2), ParityDelta, 10, b"sums").unwrap();
    copy(&store, stamp(1, 3), 10, None, b"cc");
    commit(&store, 3);
    let earlier = || recall(&store, parity, false, (10, 4), 1);
    assert_eq!(earlier().unwrap(), b"bbbb", "the commit is not merged yet");
    store.apply(StripeId(1)).unwrap();
    let wanted = Recalled {
        data: ChunkIndex(0),
        is_original: false,
        range: ByteRange::new(10, 4),
    };
    let recalled = store.recall(parity, wanted, Sequence(1), &mut Vec::new());
    let passed =
        matches!(recalled, Err(StoreError::CutPassed { applied, .. }) if applied == Sequence(2));
    assert!(passed, "{recalled:?}");
    assert_eq!(recall(&store, parity, false, (10, 2), 3).unwrap(), b"cc");
}

#[test]
fn a_merge_takes_no_appended_bytes_and_ends_what_a_commit_has_taken_in() {
    let (disk, store) = with_chunks();
    let data = chunk(1, 0);
    append(&store, data, stamp(1, 1), NEW, 0, b"one").unwrap();
    commit(&store, 1);
    assert_eq!(store.apply(StripeId(1)).unwrap().record_count, 0);
    append(&store, data, stamp(1, 2), NewBytes, 0, b"one").unwrap();
    append(&store, data, stamp(1, 3), NEW, 1, b"2").unwrap();
    commit(&store, 3);
    let merged = store.apply(StripeId(1)).unwrap();
    assert_eq!((merged.record_count, waiting(&store)), (1, (2, vec![3])));
    store.sync_all().unwrap();
    drop(store);
    let (store, _) = open(&disk.after_crash(9));
    assert_eq!(waiting(&store).1, [3]);
    commit(&store, 3);
    assert_eq!(read(&store, data, 0, 3, NEWEST).unwrap(), b"o2e");
    assert_eq!(
        read(&store, data, 0, 3, Cut::Exactly(Sequence(3))).unwrap(),
        b"one"
    );
}

#[test]
fn what_a_settlement_drops_is_not_appended_after_a_crash_either() {
    let (disk, store) = with_chunks();
    let data = chunk(1, 0);
    append(&store, data, stamp(1, 1), NEW, 0, b"stands").unwrap();
    append(&store, data, stamp(1, 2), NEW, 0, b"goes").unwrap();
    store.fence(StripeId(1), Epoch(2), Generation(1)).unwrap();
    let held = store.collect(StripeId(1)).unwrap();
    assert_eq!(held.records.len(), 2);
    let dropped = [Sequence(2)];
    store
        .resolve(StripeId(1), Epoch(2), Sequence(1), &dropped)
        .unwrap();
    drop(store);
    let (store, _) = open(&disk.after_crash(4));
    assert_eq!(waiting(&store), (0, vec![1]));
    assert_eq!(read(&store, data, 0, 6, NEWEST).unwrap(), b"stands");
}

#[test]
fn appended_records_outlive_the_journal_segments_in_which_they_were_written() {
    let (disk, store) = with_chunks();
    let data = chunk(1, 0);
    append(&store, data, stamp(1, 1), NEW, 7, b"waits for long").unwrap();
    commit(&store, 1);
    let other = chunk(2, 0);
    write_chunk(
        &store,
        other,
        spec(1, BYTES, 0),
        &pattern(7, BYTES as usize),
    )
    .unwrap();
    let mut removed = 0;
    for sequence in 1..200 {
        append(&store, other, stamp(1, sequence), NewBytes, 0, &[7; 9_000]).unwrap();
        store.sync_all().unwrap();
        store.commit(StripeId(2), Sequence(sequence)).unwrap();
        removed += store.apply_pending(u64::MAX).unwrap().segment_count;
    }
    assert!(removed > 10, "{removed} segments went");
    drop(store);
    let (store, report) = open(&disk.after_crash(2));
    assert_eq!((report.damage, report.journal_damage), (vec![], vec![]));
    assert_eq!(
        recall(&store, data, false, (7, 14), 1).unwrap(),
        b"waits for long"
    );
}

#[test]
fn a_record_that_says_more_originals_than_it_has_pieces_is_refused() {
    let (_, store) = with_chunks();
    let kind = Appended { original_count: 2 };
    let refused = append(&store, chunk(1, 0), stamp(1, 1), kind, 0, b"x");
    assert!(matches!(refused, Err(StoreError::Malformed { .. })));
}
