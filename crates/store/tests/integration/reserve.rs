//! Reserves: their cost, and their behaviour when full or resized.

use crate::{OPTIONS, append, chunk, open, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{ChunkId, Epoch, Generation, Keeping, Sequence};
use gabion_store::{
    ChunkSpec, Cut, Decision, Disk as _, Lsn, RealDisk, RecordKind, SimDisk, Store, StoreError,
};
use std::sync::Arc;

pub(crate) const CHUNK_BYTES: u64 = 64 << 10;
/// Room for four records of 4 KiB.
pub(crate) const RESERVE_BYTES: u64 = 20 << 10;
/// Offset of the reserve of a chunk of this size in its file: a page of header, a page of table, the data.
pub(crate) const RESERVE_OFFSET: u64 = (8 << 10) + CHUNK_BYTES;

fn create(store: &Store, id: ChunkId) -> Vec<u8> {
    let bytes = pattern(1, CHUNK_BYTES as usize);
    let keeping = Keeping::Reserve {
        bytes: RESERVE_BYTES,
    };
    let spec = ChunkSpec {
        keeping,
        ..spec(1, CHUNK_BYTES, 0)
    };
    write_chunk(store, id, spec, &bytes).unwrap();
    bytes
}

/// A store with one chunk that has a reserve, and the chunk's bytes.
pub(crate) fn prepare() -> (SimDisk, Store, ChunkId, Vec<u8>) {
    let disk = SimDisk::new(3);
    let (store, _) = open(&disk);
    let id = chunk(1, 4);
    let bytes = create(&store, id);
    (disk, store, id, bytes)
}

pub(crate) fn offset_of(sequence: u64) -> u64 {
    sequence * 4096 % CHUNK_BYTES
}

/// Appends a delta of 4 KiB and makes it durable.
fn append_one(store: &Store, id: ChunkId, sequence: u64) -> Lsn {
    let delta = pattern(sequence, 4096);
    let kind = RecordKind::ParityDelta;
    let stamp = stamp(1, sequence);
    let lsn = append(store, id, stamp, kind, offset_of(sequence), &delta).unwrap();
    store.sync(lsn).unwrap();
    lsn
}

/// One committed update, whose mark is in the journal.
pub(crate) fn update(store: &Store, id: ChunkId, sequence: u64) -> Lsn {
    let lsn = append_one(store, id, sequence);
    store.commit(id.stripe, Sequence(sequence)).unwrap();
    store.log_marks().unwrap();
    lsn
}

/// The chunk's bytes as of an update.
pub(crate) fn expected(initial: &[u8], upto: u64) -> Vec<u8> {
    let mut bytes = initial.to_vec();
    for sequence in 1..=upto {
        let target = &mut bytes[offset_of(sequence) as usize..][..4096];
        for (byte, change) in target.iter_mut().zip(pattern(sequence, 4096)) {
            *byte ^= change;
        }
    }
    bytes
}

pub(crate) fn check(store: &Store, id: ChunkId, initial: &[u8], upto: u64) {
    let cut = Cut::Exactly(Sequence(upto));
    let found = read(store, id, 0, CHUNK_BYTES, cut).unwrap();
    assert!(found == expected(initial, upto), "wrong as of {upto}");
}

/// Bytes of a simulated disk that its files take.
fn used_bytes(disk: &SimDisk) -> u64 {
    let capacity_bytes = u64::MAX;
    disk.set_capacity(capacity_bytes);
    capacity_bytes - disk.available_bytes().unwrap()
}

fn base(store: &Store, id: ChunkId) -> u64 {
    store.chunk_info(id).unwrap().spec.unwrap().base.0
}

pub(crate) fn path_of(disk: &SimDisk) -> String {
    let mut files = disk.files().into_iter();
    files.find(|path| path.starts_with("chunks/")).unwrap()
}

#[test]
fn a_record_is_written_once_with_one_sync_and_little_beside_it() {
    let (disk, store, id, bytes) = prepare();
    // The first record of an epoch also leaves a note in the journal.
    append_one(&store, id, 1);
    let first_bytes = store.reserve(id).unwrap().unwrap().used_bytes;
    let (before, counted) = (disk.counts(), store.counts());
    append_one(&store, id, 2);
    let (after, counts) = (disk.counts(), store.counts());
    let written_bytes = after.written_bytes - before.written_bytes;
    assert!(written_bytes <= 4096 + 64, "{written_bytes} bytes");
    assert_eq!(
        after.write_count - before.write_count,
        1,
        "the record alone"
    );
    assert_eq!(after.sync_count - before.sync_count, 1);
    let record_bytes = counts.reserve_bytes - counted.reserve_bytes;
    assert_eq!(record_bytes, written_bytes);
    assert_eq!(counts.sync_count - counted.sync_count, 1);
    assert_eq!(counts.journal_bytes, counted.journal_bytes);
    assert_eq!(counts.append_count, 2);
    let reserve = store.reserve(id).unwrap().unwrap();
    assert_eq!(reserve.used_bytes, first_bytes + record_bytes);
    assert_eq!(store.reserves().unwrap(), [reserve]);
    check(&store, id, &bytes, 2);
}

#[test]
fn waiters_for_one_reserve_share_a_sync() {
    let (disk, store, id, _) = prepare();
    let kind = RecordKind::ParityDelta;
    let appended: Vec<Lsn> = (1..=4)
        .map(|s| append(&store, id, stamp(1, s), kind, 0, b"delta").unwrap())
        .collect();
    let before = disk.counts().sync_count;
    for lsn in appended.into_iter().rev() {
        store.sync(lsn).unwrap();
    }
    assert_eq!(disk.counts().sync_count - before, 1);
}

#[test]
fn a_full_reserve_is_merged_before_the_next_record_and_counted() {
    let (_, store, id, bytes) = prepare();
    let stalled: Vec<u64> = (1..=12)
        .filter(|&s| update(&store, id, s).has_stalled())
        .collect();
    assert_eq!(stalled, [5, 9]);
    assert_eq!(base(&store, id), 8);
    check(&store, id, &bytes, 12);
    let counts = store.counts();
    assert_eq!(
        (counts.stalled_append_count, counts.stalled_append_bytes),
        (2, 8192)
    );
    assert_eq!(
        (counts.foreground_merge_count, counts.background_merge_count),
        (2, 0)
    );
    assert_eq!(counts.spilled_record_count, 0);
    let reserve = store.reserve(id).unwrap().unwrap();
    assert_eq!((reserve.record_count, reserve.merge_count), (4, 2));
    assert_eq!(
        (reserve.oldest, reserve.newest),
        (Some(Sequence(9)), Some(Sequence(12)))
    );
    assert_eq!(reserve.stalled_append_count, 2);
}

#[test]
fn records_in_a_reserve_are_not_merged_in_the_background_but_on_demand() {
    let (_, store, id, bytes) = prepare();
    for sequence in 1..=3 {
        update(&store, id, sequence);
        store.apply_pending(u64::MAX).unwrap();
    }
    assert_eq!(base(&store, id), 0);
    assert_eq!(store.merge(id).unwrap().record_count, 3);
    assert_eq!(
        (base(&store, id), store.counts().background_merge_count),
        (3, 1)
    );
    assert_eq!(store.reserve(id).unwrap().unwrap().used_bytes, 0);
    check(&store, id, &bytes, 3);
}

#[test]
fn a_merge_keeps_what_is_not_settled_and_a_pinned_chunk_goes_on_taking_records() {
    let (disk, store, id, bytes) = prepare();
    for sequence in 1..=3 {
        update(&store, id, sequence);
    }
    append_one(&store, id, 4);
    store.merge(id).unwrap();
    assert_eq!(store.collect(id.stripe).unwrap().records.len(), 1);
    assert_eq!(base(&store, id), 3);
    store.commit(id.stripe, Sequence(4)).unwrap();
    store.pin(id.stripe, Sequence(4)).unwrap();
    for sequence in 5..=20 {
        update(&store, id, sequence);
    }
    check(&store, id, &bytes, 4);
    check(&store, id, &bytes, 20);
    assert!(base(&store, id) <= 4);
    let (store, _) = open(&disk.after_crash(9));
    check(&store, id, &bytes, 20);
    store.apply(id.stripe).unwrap();
    check(&store, id, &bytes, 20);
}

#[test]
fn a_killed_process_loses_nothing_and_collecting_makes_what_it_left_durable() {
    let (disk, store, id, bytes) = prepare();
    update(&store, id, 1);
    let kind = RecordKind::ParityDelta;
    let delta = pattern(2, 4096);
    append(&store, id, stamp(1, 2), kind, offset_of(2), &delta).unwrap();
    drop(store);
    let (store, _) = open(&disk);
    assert_eq!(store.collect(id.stripe).unwrap().records.len(), 1);
    for outcome in 0..20 {
        let (store, _) = open(&disk.after_crash(outcome));
        check(&store, id, &bytes, 2);
    }
}

#[test]
fn records_of_two_files_of_a_chunk_that_begin_at_one_position_are_distinguished() {
    let (_disk, store, id, bytes) = prepare();
    append_one(&store, id, 1);
    for sequence in 2..=9 {
        // Between two of these files, the journal gets only the records of the earlier one.
        if sequence % 2 == 0 {
            create(&store, id);
        }
        append_one(&store, id, sequence);
        check(&store, id, &bytes, sequence);
    }
}

#[test]
fn a_witness_counts_for_one_file_of_a_chunk() {
    let (disk, store, id, bytes) = prepare();
    update(&store, id, 1);
    store.log_witnesses().unwrap();
    store.merge(id).unwrap();
    drop(store);
    let disk = disk.after_crash(0);
    let (store, _) = open(&disk);
    check(&store, id, &bytes, 1);
    store.remove(id).unwrap();
    create(&store, id);
    drop(store);
    let (store, _) = open(&disk.after_crash(1));
    check(&store, id, &bytes, 0);
}

#[test]
fn a_stale_frame_behind_a_cut_tail_never_comes_back() {
    let mut stale_count = 0;
    for seed in 0..200 {
        let (disk, store, id, _) = prepare();
        let kind = RecordKind::ParityDelta;
        for sequence in 1..=2 {
            let delta = pattern(sequence, 600);
            append(&store, id, stamp(1, sequence), kind, 0, &delta).unwrap();
        }
        let frame_bytes = store.reserve(id).unwrap().unwrap().used_bytes / 2;
        let disk = disk.after_crash(seed);
        let contents = disk.contents(&path_of(&disk)).unwrap();
        let second = (RESERVE_OFFSET + frame_bytes) as usize;
        let is_left = contents[second..][..frame_bytes as usize]
            .iter()
            .any(|byte| *byte != 0);
        let (store, _) = open(&disk);
        if !store.collect(id.stripe).unwrap().records.is_empty() {
            continue;
        }
        stale_count += u64::from(is_left);
        // As long as the first, so that it ends where the second begins.
        let lsn = append(&store, id, stamp(1, 3), kind, 0, &pattern(3, 600)).unwrap();
        store.sync(lsn).unwrap();
        let (store, _) = open(&disk.after_crash(seed));
        let held = store.collect(id.stripe).unwrap().records;
        let numbers: Vec<u64> = held.iter().map(|record| record.stamp.sequence.0).collect();
        assert_eq!(numbers, [3], "seed {seed}");
    }
    assert!(
        stale_count > 20,
        "{stale_count} crashes left the second record"
    );
}

#[test]
fn records_that_come_while_a_reserve_is_merged_or_resized_are_kept() {
    let (disk, store, id, bytes) = prepare();
    let last = 600;
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for sequence in 1..=last {
                update(&store, id, sequence);
            }
            is_done.store(true, std::sync::atomic::Ordering::Release);
        });
        while !is_done.load(std::sync::atomic::Ordering::Acquire) {
            store.merge(id).unwrap();
            store.shrink(id, 8192, 4096).unwrap();
            store.grow(id, RESERVE_BYTES).unwrap();
        }
    });
    check(&store, id, &bytes, last);
    store.sync_all().unwrap();
    let (store, _) = open(&disk.after_crash(1));
    check(&store, id, &bytes, last);
    store.merge(id).unwrap();
    check(&store, id, &bytes, last);
}

#[test]
fn an_interrupted_merge_ends_with_the_records_in_the_chunk_and_the_reserve_empty() {
    let mut redone_count = 0;
    for number in 1.. {
        let (disk, store, id, bytes) = prepare();
        for sequence in 1..=3 {
            update(&store, id, sequence);
        }
        disk.power_off_at(disk.counts().operation_count + number);
        let is_through = store.merge(id).is_ok();
        for outcome in 0..4 {
            let (store, report) = open(&disk.after_crash(outcome));
            check(&store, id, &bytes, 3);
            if !report.redone.is_empty() {
                let used_bytes = store.reserve(id).unwrap().unwrap().used_bytes;
                assert_eq!((base(&store, id), used_bytes), (3, 0), "crash at {number}");
                redone_count += 1;
            }
        }
        if is_through {
            break;
        }
    }
    assert!(redone_count >= 4, "only {redone_count} merges were redone");
}

#[test]
fn an_epoch_learned_from_a_record_outlives_the_reserve() {
    let (disk, store, id, _) = prepare();
    let kind = RecordKind::ParityDelta;
    let lsn = append(&store, id, stamp(3, 1), kind, 0, b"delta").unwrap();
    store.sync(lsn).unwrap();
    // A mark that comes with a read is not logged.
    let at_least = Sequence(1);
    read(&store, id, 0, 5, Cut::Committed { at_least }).unwrap();
    store.merge(id).unwrap();
    assert_eq!(base(&store, id), 1);
    let (store, _) = open(&disk.after_crash(1));
    let late = append(&store, id, stamp(2, 2), kind, 0, b"late");
    assert!(matches!(late, Err(StoreError::Fenced { .. })));
}

#[test]
fn a_drop_outlives_what_was_in_the_reserve() {
    for outcome in 0..10 {
        let (disk, store, id, bytes) = prepare();
        update(&store, id, 1);
        for sequence in 2..=3 {
            append_one(&store, id, sequence);
        }
        let epoch = gabion_layout::Epoch(2);
        let dropped = [Sequence(3)];
        store
            .resolve(id.stripe, epoch, Sequence(2), &dropped)
            .unwrap();
        let (store, _) = open(&disk.after_crash(outcome));
        // The mark passes the number of the dropped update.
        store.commit(id.stripe, Sequence(7)).unwrap();
        let cut = Cut::Exactly(Sequence(7));
        let found = read(&store, id, 0, CHUNK_BYTES, cut).unwrap();
        assert!(found == expected(&bytes, 2));
        store.apply(id.stripe).unwrap();
        assert!(read(&store, id, 0, CHUNK_BYTES, cut).unwrap() == expected(&bytes, 2));
    }
}

#[test]
fn shrinking_gives_whole_units_back_and_growing_takes_them() {
    let (disk, store, id, bytes) = prepare();
    for sequence in 1..=3 {
        update(&store, id, sequence);
    }
    assert_eq!(
        store.shrink(id, 5000, 8192).unwrap(),
        8192,
        "what is left is 12 KiB"
    );
    assert_eq!(store.counts().punched_bytes, 8192);
    assert_eq!(base(&store, id), 3, "three records take more than is left");
    assert!(matches!(
        store.shrink(id, 0, 1000),
        Err(StoreError::Malformed { .. })
    ));
    assert_eq!(store.shrink(id, 0, 4096).unwrap(), 12 << 10);
    for sequence in 4..=6 {
        // Each append waits for the merge of the one before it, which the growth decision sees.
        assert_eq!(update(&store, id, sequence).has_stalled(), sequence > 4);
        assert_eq!(base(&store, id), sequence - 1, "as in place");
    }
    store.grow(id, RESERVE_BYTES).unwrap();
    for sequence in 7..=9 {
        update(&store, id, sequence);
    }
    assert!(store.reserve(id).unwrap().unwrap().record_count >= 3);
    let (store, _) = open(&disk.after_crash(1));
    check(&store, id, &bytes, 9);
    let keeping = store.chunk_info(id).unwrap().spec.unwrap().keeping;
    assert_eq!(
        keeping,
        Keeping::Reserve {
            bytes: RESERVE_BYTES
        }
    );
}

#[test]
fn a_full_disk_refuses_to_grow_and_still_merges() {
    let (disk, store, id, bytes) = prepare();
    update(&store, id, 1);
    let freed = store.shrink(id, 8192, 4096).unwrap();
    assert_eq!(freed, 12 << 10);
    disk.set_capacity(used_bytes(&disk) + freed - 4096);
    let refused = store.grow(id, RESERVE_BYTES);
    assert!(matches!(refused, Err(StoreError::NoSpace { .. })));
    store.grow(id, 16 << 10).unwrap();
    for sequence in 2..=12 {
        update(&store, id, sequence);
    }
    assert!(store.counts().foreground_merge_count > 1);
    check(&store, id, &bytes, 12);
}

#[test]
fn a_reserve_takes_space_from_its_first_record_on() {
    let (disk, store, id, bytes) = prepare();
    // The first record of an epoch also leaves a note in the journal, which makes a spare.
    store.fence(id.stripe, Epoch(1), Generation(1)).unwrap();
    let empty_bytes = used_bytes(&disk);
    append_one(&store, id, 1);
    assert_eq!(used_bytes(&disk), empty_bytes + RESERVE_BYTES);
    disk.set_capacity(used_bytes(&disk));
    for sequence in 2..=4 {
        append_one(&store, id, sequence);
    }
    assert_eq!(store.counts().spilled_record_count, 0);
    let (store, _) = open(&disk);
    store.commit(id.stripe, Sequence(4)).unwrap();
    check(&store, id, &bytes, 4);
    append(&store, id, stamp(1, 5), RecordKind::ParityDelta, 0, b"x").unwrap();
    assert_eq!(store.counts().spilled_record_count, 0, "it still has space");
}

#[test]
fn on_a_full_disk_records_go_to_the_journal_until_the_reserve_gets_space() {
    let (disk, store, id, bytes) = prepare();
    store.fence(id.stripe, Epoch(1), Generation(1)).unwrap();
    disk.set_capacity(used_bytes(&disk) + RESERVE_BYTES - 4096);
    for sequence in 1..=2 {
        update(&store, id, sequence);
    }
    assert_eq!(store.counts().spilled_record_count, 2);
    assert_eq!(store.reserve(id).unwrap().unwrap().record_count, 0);
    store.apply(id.stripe).unwrap();
    assert_eq!(base(&store, id), 2);
    disk.set_capacity(u64::MAX);
    update(&store, id, 3);
    assert_eq!(store.reserve(id).unwrap().unwrap().record_count, 1);
    check(&store, id, &bytes, 3);
}

#[test]
fn a_crash_while_a_reserve_gets_space_loses_no_acknowledged_record() {
    for (number, plan) in (1..20).flat_map(|number| [0, 1, 2].map(|plan| (number, plan))) {
        let (disk, store, id, bytes) = prepare();
        // As in the header, smaller, larger.
        let planned_bytes = [RESERVE_BYTES, 12 << 10, 64 << 10][plan];
        store.plan_reserves(&[(id, planned_bytes)]).unwrap();
        disk.power_off_at(disk.counts().operation_count + number);
        let kind = RecordKind::ParityDelta;
        let mut acknowledged = 0;
        for sequence in 1..=2 {
            let delta = pattern(sequence, 4096);
            let at = offset_of(sequence);
            let appended = append(&store, id, stamp(1, sequence), kind, at, &delta);
            let Ok(()) = appended.and_then(|lsn| store.sync(lsn)) else {
                break;
            };
            acknowledged = sequence;
        }
        let disk = disk.after_crash(number);
        let (store, report) = open(&disk);
        assert_eq!(report.damage, []);
        let state = store.collect(id.stripe).unwrap();
        let kept = state.records.len() as u64;
        assert!(kept >= acknowledged, "crash at {number}: {kept} records");
        store.commit(id.stripe, Sequence(kept)).unwrap();
        update(&store, id, kept + 1);
        check(&store, id, &bytes, kept + 1);
    }
}

/// A store with two updates in a reserve, of which a resolution drops the second one.
fn with_update_to_drop() -> (SimDisk, Store, ChunkId, Vec<u8>) {
    let (disk, store, id, bytes) = prepare();
    append_one(&store, id, 1);
    append_one(&store, id, 2);
    assert_eq!(store.reserve(id).unwrap().unwrap().record_count, 2);
    store.fence(id.stripe, Epoch(2), Generation(1)).unwrap();
    (disk, store, id, bytes)
}

#[test]
fn one_failed_read_of_a_reserve_costs_no_chunk_when_updates_are_dropped() {
    let (disk, store, id, bytes) = with_update_to_drop();
    disk.fail_next_read();
    let dropped = [Sequence(2)];
    store
        .resolve(id.stripe, Epoch(2), Sequence(1), &dropped)
        .unwrap();
    assert_eq!(disk.take_failed_reads().len(), 1);
    check(&store, id, &bytes, 1);
}

/// Damages the first of two updates in a reserve, which stays when the second one is dropped.
fn damage_kept_update(disk: &SimDisk) {
    let path = path_of(disk);
    let (contents, kept) = (disk.contents(&path).unwrap(), pattern(1, 4096));
    let at = contents.windows(4096).rposition(|bytes| bytes == kept);
    disk.flip_bit(&path, at.unwrap() as u64 * 8 + 9);
}

#[test]
fn decisions_report_the_chunk_that_they_cost() {
    let (disk, store, id, _) = with_update_to_drop();
    damage_kept_update(&disk);
    let decision = Decision {
        stripe: id.stripe,
        epoch: Epoch(2),
        generation: Generation(1),
        stands: vec![(Epoch(1), Sequence(1))],
    };
    let adopt = || store.adopt_decisions(std::slice::from_ref(&decision));
    assert_eq!(adopt().unwrap(), [id]);
    assert_eq!(adopt().unwrap(), [], "it costs no chunk twice");
    // The decision is durable, and the next report leaves the chunk out.
    for store in [store, open(&disk.after_crash(3)).0] {
        let state = store.held(id.stripe).unwrap();
        assert_eq!((state.mark, state.records), (Sequence(1), vec![]));
        let page = store.held_page(None, 9).unwrap();
        assert!(page.stripes.iter().all(|held| held.chunks.is_empty()));
    }
}

#[test]
fn a_resolution_reports_the_chunk_that_it_costs() {
    let (disk, store, id, _) = with_update_to_drop();
    damage_kept_update(&disk);
    let resolve = || store.resolve(id.stripe, Epoch(2), Sequence(1), &[Sequence(2)]);
    let reported = resolve();
    assert!(
        matches!(&reported, Err(StoreError::Corrupt { chunk, .. }) if *chunk == id),
        "{reported:?}"
    );
    resolve().unwrap();
    // The outcome is durable, and the chunk does not come back.
    for store in [store, open(&disk.after_crash(3)).0] {
        let state = store.held(id.stripe).unwrap();
        assert_eq!((state.mark, state.records), (Sequence(1), vec![]));
        assert_eq!(state.lost, Some(id));
        let found = read(&store, id, 0, CHUNK_BYTES, Cut::Newest(Sequence(1)));
        assert!(found.is_err());
    }
}

#[test]
fn a_planned_reserve_takes_its_size_with_its_first_record() {
    for planned_bytes in [8 << 10, 64 << 10] {
        let (disk, store, id, bytes) = prepare();
        store.fence(id.stripe, Epoch(1), Generation(1)).unwrap();
        store
            .plan_reserves(&[(id, planned_bytes), (chunk(9, 0), 4096)])
            .unwrap();
        let empty_bytes = used_bytes(&disk);
        assert_eq!(
            store.reserve(id).unwrap().unwrap().reserved_bytes,
            RESERVE_BYTES
        );
        update(&store, id, 1);
        assert_eq!(used_bytes(&disk), empty_bytes + planned_bytes);
        let reserve = store.reserve(id).unwrap().unwrap();
        let (reserved_bytes, backed_bytes) = (reserve.reserved_bytes, reserve.backed_bytes);
        assert_eq!(
            (reserved_bytes, backed_bytes),
            (planned_bytes, planned_bytes)
        );
        // Its size now follows its own use.
        store.plan_reserves(&[(id, 4096)]).unwrap();
        store.merge(id).unwrap();
        for sequence in 2..=9 {
            update(&store, id, sequence);
        }
        let (store, _) = open(&disk.after_crash(1));
        let reserve = store.reserve(id).unwrap().unwrap();
        assert_eq!(
            (reserve.reserved_bytes, reserve.is_new),
            (planned_bytes, false)
        );
        check(&store, id, &bytes, 9);
    }
}

#[test]
fn a_planned_reserve_takes_the_first_record_whatever_its_size_and_growth_ends_the_plan() {
    let kind = RecordKind::ParityDelta;
    for has_grown in [false, true] {
        let (_, store, id, _) = prepare();
        store.fence(id.stripe, Epoch(1), Generation(1)).unwrap();
        store.plan_reserves(&[(id, 4 << 10)]).unwrap();
        let large = RESERVE_BYTES + (4 << 10);
        if has_grown {
            store.grow(id, large).unwrap();
        }
        let delta = pattern(1, 12 << 10);
        append(&store, id, stamp(1, 1), kind, 0, &delta).unwrap();
        let reserve = store.reserve(id).unwrap().unwrap();
        let expected = if has_grown { large } else { 16 << 10 };
        assert_eq!((reserve.record_count, reserve.backed_bytes), (1, expected));
    }
}

#[test]
fn reserves_without_a_plan_or_with_a_wrong_one_keep_the_size_of_their_header() {
    let (_, store, id, _) = prepare();
    for wrong in [0, (256 << 20) + 1] {
        let refused = store.plan_reserves(&[(id, 4096), (id, wrong)]);
        assert!(matches!(refused, Err(StoreError::Malformed { .. })));
    }
    append_one(&store, id, 1);
    assert_eq!(
        store.reserve(id).unwrap().unwrap().backed_bytes,
        RESERVE_BYTES
    );
    store.shrink(id, 0, 4096).unwrap();
    store.plan_reserves(&[(id, 8192)]).unwrap();
    update(&store, id, 2);
    assert_eq!(
        store.reserve(id).unwrap().unwrap().backed_bytes,
        0,
        "in place"
    );
}

#[test]
fn a_disk_without_room_for_a_large_plan_gives_the_size_of_the_header() {
    let (disk, store, id, _) = prepare();
    store.fence(id.stripe, Epoch(1), Generation(1)).unwrap();
    store.plan_reserves(&[(id, 1 << 20)]).unwrap();
    disk.set_capacity(used_bytes(&disk) + RESERVE_BYTES);
    append_one(&store, id, 1);
    let reserve = store.reserve(id).unwrap().unwrap();
    assert_eq!(
        (reserve.backed_bytes, reserve.record_count),
        (RESERVE_BYTES, 1)
    );
}

#[test]
fn a_record_that_is_larger_than_its_reserve_asks_for_growth() {
    let (_, store, id, _) = prepare();
    store.plan_reserves(&[(id, 4096)]).unwrap();
    let kind = RecordKind::ParityDelta;
    append(&store, id, stamp(1, 1), kind, 0, b"small").unwrap();
    for sequence in 2..=3 {
        assert!(
            !append_one(&store, id, sequence).has_stalled(),
            "it waits for no merge"
        );
    }
    let reserve = store.reserve(id).unwrap().unwrap();
    assert_eq!((reserve.record_count, reserve.stalled_append_count), (1, 2));
    assert_eq!(store.counts().spilled_record_count, 2);
}

#[test]
fn on_a_file_system_a_reserve_lies_in_one_piece_and_a_hole_frees_it() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("node");
    let (store, _) = Store::open(Arc::new(RealDisk::open(&root).unwrap()), OPTIONS).unwrap();
    let id = chunk(1, 4);
    let bytes = create(&store, id);
    let file = std::fs::read_dir(root.join("chunks"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let file = std::fs::read_dir(file.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let blocks = || file.metadata().unwrap().blocks();
    let new = blocks();
    for sequence in 1..=3 {
        update(&store, id, sequence);
    }
    match store.fragments(id) {
        Ok(found) => assert!(found.total_count <= found.chunk_count + 1, "{found:?}"),
        Err(StoreError::Io { .. }) => {
            eprintln!("this file system does not report the location of files");
        }
        Err(error) => panic!("{error}"),
    }
    let before = blocks();
    assert!(new <= before - RESERVE_BYTES / 512, "{new} blocks when new");
    store.shrink(id, 0, 4096).unwrap();
    assert!(blocks() < before, "{before} blocks before");
    check(&store, id, &bytes, 3);
    store.grow(id, RESERVE_BYTES).unwrap();
    for sequence in 4..=9 {
        update(&store, id, sequence);
    }
    drop(store);
    let (store, _) = Store::open(Arc::new(RealDisk::open(&root).unwrap()), OPTIONS).unwrap();
    check(&store, id, &bytes, 9);
    assert_eq!(store.scrub(id).unwrap(), []);
}

#[test]
fn records_in_the_log_lie_apart_from_their_chunk() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk);
    let ids = [chunk(1, 4), chunk(2, 4)];
    for id in ids {
        let keeping = Keeping::Log;
        let spec = ChunkSpec {
            keeping,
            ..spec(1, CHUNK_BYTES, 0)
        };
        write_chunk(&store, id, spec, &pattern(1, CHUNK_BYTES as usize)).unwrap();
    }
    for sequence in 1..=3 {
        for id in ids {
            // Large enough for the records of the other chunk to lie between.
            let delta = pattern(sequence, 12_000);
            let kind = RecordKind::ParityDelta;
            append(&store, id, stamp(1, sequence), kind, 0, &delta).unwrap();
        }
    }
    let fragments = store.fragments(ids[0]).unwrap();
    assert_eq!((fragments.chunk_count, fragments.total_count), (1, 4));
}

#[test]
fn reserved_bytes_of_a_stripe_are_those_with_disk_space() {
    let (_disk, store, id, _) = prepare();
    let unused = chunk(2, 4);
    create(&store, unused);
    let stripes = [unused.stripe, id.stripe, chunk(3, 0).stripe];
    assert_eq!(store.reserved_bytes(&stripes), [], "no update yet");
    update(&store, id, 1);
    let expected = [(id.stripe, RESERVE_BYTES)];
    assert_eq!(store.reserved_bytes(&stripes), expected);
    store.merge(id).unwrap();
    store.shrink(id, 4096, RESERVE_BYTES - 4096).unwrap();
    assert_eq!(store.reserved_bytes(&stripes), [(id.stripe, 4096)]);
}
