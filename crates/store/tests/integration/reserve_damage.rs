//! Damage to a reserve is noticed and reported, and repaired by replacing the chunk.

use crate::reserve::{
    CHUNK_BYTES, RESERVE_BYTES, RESERVE_OFFSET, check, expected, offset_of, path_of, prepare,
    update,
};
use crate::{append, chunk, open, read, spec, stamp, write_chunk};
use gabion_layout::{ByteRange, ChunkId, Epoch, Generation, Keeping, Sequence};
use gabion_store::{ChunkSpec, Cut, Damage, RecordKind, SimDisk, Store, StoreError, chunk_path};
use rustix::io::Errno;

#[test]
fn every_flipped_bit_of_a_reserve_is_noticed() {
    let (disk, store, id, bytes) = prepare();
    for sequence in 1..=3 {
        update(&store, id, sequence);
    }
    let used_bytes = store.reserve(id).unwrap().unwrap().used_bytes;
    drop(store);
    let (store, _) = open(&disk);
    check(&store, id, &bytes, 3);
    store.sync_all().unwrap();
    store.log_witnesses().unwrap();
    drop(store);
    let (mut range_count, mut whole_count) = (0, 0);
    for bit in (0..used_bytes * 8).step_by(409) {
        let rotten = disk.after_crash(0);
        rotten.flip_bit(&path_of(&rotten), RESERVE_OFFSET * 8 + bit);
        let (store, _) = open(&rotten);
        let frame = bit / 8 / (used_bytes / 3) + 1;
        let scrubbed = store.scrub(id).unwrap();
        let cut = Cut::Exactly(Sequence(3));
        match read(&store, id, 0, CHUNK_BYTES, cut) {
            Err(StoreError::Corrupt { range, .. }) if range == Damage::WHOLE => {
                assert_eq!(scrubbed, [Damage { chunk: id, range }]);
                whole_count += 1;
            }
            Err(StoreError::Corrupt { range, .. }) => {
                assert_eq!(range, ByteRange::new(offset_of(frame), 4096));
                assert_eq!(scrubbed, [Damage { chunk: id, range }]);
                // All other bytes are served.
                let other = offset_of(frame + 4);
                assert!(read(&store, id, other, 4096, cut).is_ok());
                assert_eq!(store.merge(id).unwrap().damage, scrubbed);
                range_count += 1;
            }
            Err(error) => panic!("bit {bit}: {error}"),
            Ok(_) => panic!("bit {bit} was not noticed"),
        }
    }
    assert!(range_count > 150 && whole_count > 0);
}

/// Replaces the chunk by one whose own bytes include all updates up to `base`.
fn make_anew(store: &Store, id: ChunkId, base: u64, bytes: &[u8]) -> Result<(), StoreError> {
    let keeping = Keeping::Reserve {
        bytes: RESERVE_BYTES,
    };
    let spec = ChunkSpec {
        keeping,
        ..spec(1, CHUNK_BYTES, base)
    };
    write_chunk(store, id, spec, &expected(bytes, base))
}

#[test]
fn an_unreadable_reserve_does_not_prevent_replacing_its_chunk() {
    let is_corrupt = |outcome: Result<(), StoreError>| {
        assert!(
            matches!(outcome, Err(StoreError::Corrupt { .. })),
            "{outcome:?}"
        );
    };
    for is_restarted in [false, true] {
        let (disk, mut store, id, bytes) = prepare();
        for sequence in 1..=3 {
            update(&store, id, sequence);
        }
        disk.lose_page(&path_of(&disk), RESERVE_OFFSET);
        if is_restarted {
            drop(store);
            store = open(&disk).0;
        }
        let whole = || read(&store, id, 0, CHUNK_BYTES, Cut::Exactly(Sequence(3)));
        is_corrupt(whole().map(drop));
        if !is_restarted {
            // It would lose the third update, whose record exists nowhere else. The store marks the
            // chunk as damaged, and accepts no records that would seem to follow that one.
            is_corrupt(make_anew(&store, id, 2, &bytes));
            let kind = RecordKind::ParityDelta;
            is_corrupt(append(&store, id, stamp(1, 4), kind, 0, b"late").map(drop));
        }
        make_anew(&store, id, 3, &bytes).unwrap();
        check(&store, id, &bytes, 3);
        update(&store, id, 4);
        drop(store);
        let (store, _) = open(&disk.after_crash(1));
        check(&store, id, &bytes, 4);
    }
}

/// An update that all others hold would seem not to stand.
#[test]
fn a_store_that_has_lost_its_chunk_does_not_tell_the_records_of_the_stripe() {
    let (disk, store, id, bytes) = prepare();
    let kind = RecordKind::ParityDelta;
    let lsn = append(&store, id, stamp(1, 1), kind, 0, b"acknowledged").unwrap();
    store.sync(lsn).unwrap();
    drop(store);
    let refuses = |store: &Store| {
        store.fence(id.stripe, Epoch(1), Generation(1)).unwrap();
        let told = store.collect(id.stripe);
        assert!(
            matches!(told, Err(StoreError::Corrupt { chunk, .. }) if chunk == id),
            "{told:?}"
        );
        assert_eq!(store.held(id.stripe).unwrap().lost, Some(id));
    };
    let (store, _) = open(&disk);
    assert_eq!(store.collect(id.stripe).unwrap().records.len(), 1);
    disk.break_path(&path_of(&disk), Errno::IO.raw_os_error());
    let lost = read(&store, id, 0, 1, Cut::Exactly(Sequence(0)));
    assert!(matches!(lost, Err(StoreError::Corrupt { .. })), "{lost:?}");
    refuses(&store);
    drop(store);
    let (store, _) = open(&disk);
    refuses(&store);
    disk.mend_path(&path_of(&disk));
    make_anew(&store, id, 0, &bytes).unwrap();
    store.collect(id.stripe).unwrap();
}

#[test]
fn a_damaged_leftover_does_not_hold_up_a_settlement() {
    let (disk, store, id, bytes) = prepare();
    let leftover = chunk(1, 0);
    write_chunk(&store, leftover, spec(1, CHUNK_BYTES, 0), &bytes).unwrap();
    drop(store);
    disk.lose_page(&chunk_path(leftover), 0);
    let (store, _) = open(&disk);
    assert_eq!(store.chunk_info(leftover).unwrap().spec, None);
    assert_eq!(store.collect(id.stripe).unwrap().lost, None);
}

#[test]
fn a_reserve_that_a_new_file_includes_is_not_read_when_the_file_replaces_it() {
    let (disk, store, id, bytes) = prepare();
    for sequence in 1..=2 {
        update(&store, id, sequence);
    }
    disk.lose_page(&path_of(&disk), RESERVE_OFFSET);
    make_anew(&store, id, 2, &bytes).unwrap();
    check(&store, id, &bytes, 2);
}

#[test]
fn a_scrub_finds_an_unreadable_page_without_records_that_would_lose_the_chunk_at_the_next_start() {
    let (disk, store, id, _) = prepare();
    update(&store, id, 1);
    disk.lose_page(&path_of(&disk), RESERVE_OFFSET + RESERVE_BYTES - 1);
    let damage = Damage {
        chunk: id,
        range: Damage::WHOLE,
    };
    assert_eq!(store.scrub(id).unwrap(), [damage]);
    drop(store);
    let (store, _) = open(&disk);
    let lost = read(&store, id, 0, CHUNK_BYTES, Cut::Exactly(Sequence(1)));
    assert!(matches!(lost, Err(StoreError::Corrupt { .. })), "{lost:?}");
}

#[test]
fn damage_to_the_last_record_is_recognized_at_every_later_start() {
    let (disk, store, id, _) = prepare();
    update(&store, id, 1);
    let used_bytes = store.reserve(id).unwrap().unwrap().used_bytes;
    let rot = |disk: &SimDisk, at| disk.flip_bit(&path_of(disk), (RESERVE_OFFSET + at) * 8);
    let cut = Cut::Exactly(Sequence(1));

    // Without a witness, the damaged record looks like one that was never synced.
    let rotten = disk.after_crash(0);
    rot(&rotten, 4);
    let (cut_off, _) = open(&rotten);
    assert_eq!(cut_off.reserve(id).unwrap().unwrap().used_bytes, 0);

    store.log_witnesses().unwrap();
    let sync_count = disk.counts().sync_count;
    store.log_witnesses().unwrap();
    assert_eq!(disk.counts().sync_count, sync_count, "there is nothing new");
    for at in [4, used_bytes - 100] {
        let mut rotten = disk.after_crash(0);
        rot(&rotten, at);
        // Each start begins a segment, and earlier ones are removed.
        for number in 0..4 {
            let (store, _) = open(&rotten);
            let found = read(&store, id, offset_of(1), 4096, cut);
            let is_corrupt = matches!(found, Err(StoreError::Corrupt { .. }));
            assert!(is_corrupt, "byte {at}, start {number}");
            drop(store);
            rotten = rotten.after_crash(number);
        }
    }
}
