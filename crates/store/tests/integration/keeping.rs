//! The location of records and their moves, for each keeping, and the records that a pin holds
//! back.

use crate::{append, chunk, open, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Keeping, Sequence, StripeId};
use gabion_store::{ChunkSpec, Cut, RecordKind, SimDisk, Store, StoreError};
use std::sync::Arc;

const CHUNK_BYTES: u64 = 64 << 10;

/// A store with one chunk of the given keeping, and the chunk's bytes.
fn store_with(keeping: Keeping) -> (SimDisk, Store, ChunkId, Vec<u8>) {
    let disk = SimDisk::new(7);
    let (store, _) = open(&disk);
    let id = chunk(1, 4);
    let bytes = pattern(1, CHUNK_BYTES as usize);
    let spec = ChunkSpec {
        keeping,
        ..spec(1, CHUNK_BYTES, 0)
    };
    write_chunk(&store, id, spec, &bytes).unwrap();
    (disk, store, id, bytes)
}

/// One committed update of 4 KiB at a place of its own.
fn update(store: &Store, id: ChunkId, sequence: u64) {
    let offset = (sequence - 1) * 4096 % CHUNK_BYTES;
    let delta = pattern(sequence, 4096);
    let kind = RecordKind::ParityDelta;
    let lsn = append(store, id, stamp(1, sequence), kind, offset, &delta).unwrap();
    store.sync(lsn).unwrap();
    store.commit(id.stripe, Sequence(sequence)).unwrap();
}

fn base(store: &Store, id: ChunkId) -> u64 {
    store.chunk_info(id).unwrap().spec.unwrap().base.0
}

#[test]
fn at_once_is_never_more_than_one_update_behind() {
    let (_, store, id, _) = store_with(Keeping::AtOnce);
    for sequence in 1..=10 {
        update(&store, id, sequence);
        assert_eq!(base(&store, id), sequence - 1);
    }
}

#[test]
fn a_log_is_merged_in_the_background_only_beyond_its_limit() {
    let (_, store, id, _) = store_with(Keeping::Log);
    // The limit is 20,000 bytes: four records stay below it, a fifth does not.
    for sequence in 1..=4 {
        update(&store, id, sequence);
        store.apply_pending(u64::MAX).unwrap();
        assert_eq!(base(&store, id), 0);
    }
    update(&store, id, 5);
    store.apply_pending(u64::MAX).unwrap();
    assert_eq!(base(&store, id), 5);
    update(&store, id, 6);
    store.apply(id.stripe).unwrap();
    assert_eq!(base(&store, id), 6, "merged on demand");
}

#[test]
fn the_keeping_is_durable() {
    for keeping in [Keeping::AtOnce, Keeping::Log, Keeping::InPlace] {
        let (disk, store, id, _) = store_with(keeping);
        drop(store);
        let (store, _) = open(&disk.after_crash(1));
        let spec = store.chunk_info(id).unwrap().spec.unwrap();
        assert_eq!(spec.keeping, keeping);
    }
}

#[test]
fn a_pin_holds_the_cut_while_updates_and_merges_go_on() {
    for keeping in [Keeping::AtOnce, Keeping::Log, Keeping::InPlace] {
        let (_, store, id, mut bytes) = store_with(keeping);
        for sequence in 1..=3 {
            update(&store, id, sequence);
        }
        let cut = Sequence(3);
        store.pin(id.stripe, cut).unwrap();
        for sequence in 4..=9 {
            update(&store, id, sequence);
            store.apply_pending(u64::MAX).unwrap();
            store.apply(id.stripe).unwrap();
        }
        for (at, byte) in bytes[..3 * 4096].iter_mut().enumerate() {
            *byte ^= pattern(at as u64 / 4096 + 1, 4096)[at % 4096];
        }
        let found = read(&store, id, 0, CHUNK_BYTES, Cut::Exactly(cut)).unwrap();
        assert!(found == bytes, "{keeping:?}");
        assert_eq!(base(&store, id), 3);
        store.unpin(id.stripe, cut);
        store.apply(id.stripe).unwrap();
        assert_eq!(base(&store, id), 9);
        let passed = store.pin(id.stripe, cut);
        assert!(matches!(
            passed,
            Err(StoreError::CutPassed {
                applied: Sequence(9),
                ..
            })
        ));
    }
}

#[test]
fn two_pins_of_a_stripe_hold_the_lower_cut_until_both_are_gone() {
    let (_, store, id, _) = store_with(Keeping::InPlace);
    update(&store, id, 1);
    for (cut, times) in [(1, 2), (2, 1)] {
        for _ in 0..times {
            store.pin(StripeId(1), Sequence(cut)).unwrap();
        }
        update(&store, id, cut + 1);
    }
    for (unpinned, expected) in [(1, 1), (1, 2), (2, 3)] {
        store.unpin(StripeId(1), Sequence(unpinned));
        store.apply(StripeId(1)).unwrap();
        assert_eq!(base(&store, id), expected);
    }
}

#[test]
fn what_was_missed_is_told_until_it_is_merged() {
    let (_, store, id, _) = store_with(Keeping::InPlace);
    for sequence in 1..=3 {
        update(&store, id, sequence);
    }
    let data = ChunkIndex(0);
    let since = |from| store.missed_since(id, Sequence(from)).unwrap();
    assert_eq!(since(1), Some(vec![(data, ByteRange::new(4096, 8192))]));
    assert_eq!(since(3), Some(vec![]));
    store.apply(id.stripe).unwrap();
    assert_eq!(since(2), None);
    assert_eq!(since(3), Some(vec![]));
}

/// A log of several hundred small updates, some of them after others were merged, and its bytes.
fn long_log(store: &Store, id: ChunkId, bytes: &mut [u8], sequences: std::ops::Range<u64>) {
    for sequence in sequences {
        let offset = sequence * 97 % (CHUNK_BYTES - 100);
        let delta = pattern(sequence, 100);
        let kind = RecordKind::ParityDelta;
        append(store, id, stamp(1, sequence), kind, offset, &delta).unwrap();
        store.commit(id.stripe, Sequence(sequence)).unwrap();
        for (byte, change) in bytes[offset as usize..].iter_mut().zip(&delta) {
            *byte ^= change;
        }
    }
}

#[test]
fn a_long_log_reads_merges_and_comes_back_as_a_short_one_does() {
    let disk = SimDisk::new(7);
    // Nothing is merged early.
    let options = gabion_store::Options {
        log_bytes: 1 << 30,
        segment_count_max: 100,
        ..crate::OPTIONS
    };
    let (store, _) = Store::open(Arc::new(disk.clone()), options).unwrap();
    let id = chunk(1, 4);
    let mut bytes = pattern(1, CHUNK_BYTES as usize);
    let spec = ChunkSpec {
        keeping: Keeping::Log,
        ..spec(1, CHUNK_BYTES, 0)
    };
    write_chunk(&store, id, spec, &bytes).unwrap();
    long_log(&store, id, &mut bytes, 1..600);
    let early = bytes.clone();
    store.pin(id.stripe, Sequence(599)).unwrap();
    long_log(&store, id, &mut bytes, 600..900);
    store.apply_pending(u64::MAX).unwrap();
    assert_eq!(base(&store, id), 0);
    let whole = |store: &Store, cut| {
        let cut = Cut::Exactly(Sequence(cut));
        read(store, id, 0, CHUNK_BYTES, cut).unwrap()
    };
    assert!(whole(&store, 599) == early && whole(&store, 899) == bytes);
    assert_eq!(store.scrub(id).unwrap(), []);
    // Merging up to the pin leaves a part of the lists behind.
    store.merge(id).unwrap();
    assert_eq!(base(&store, id), 599);
    assert!(whole(&store, 599) == early && whole(&store, 899) == bytes);
    store.sync_all().unwrap();
    let (again, _) = Store::open(Arc::new(disk.after_crash(1)), options).unwrap();
    assert!(whole(&again, 599) == early && whole(&again, 899) == bytes);
    store.unpin(id.stripe, Sequence(599));
    long_log(&store, id, &mut bytes, 900..1200);
    assert!(whole(&store, 1199) == bytes);
    let merged = store.merge(id).unwrap();
    assert_eq!((base(&store, id), store.pending_bytes()), (1199, 0));
    assert!(merged.segment_count > 0, "nothing keeps the log's segments");
    assert!(whole(&store, 1199) == bytes);
}

#[test]
fn a_long_log_frees_old_segments_and_is_removed_with_its_chunk() {
    let (_, store, id, mut bytes) = store_with(Keeping::Log);
    // More records than the log may have, and more segments: the oldest are merged.
    for from in (1..4000).step_by(200) {
        long_log(&store, id, &mut bytes, from..from + 200);
        store.apply_pending(1).unwrap();
    }
    let cut = Cut::Exactly(Sequence(4000));
    assert!(read(&store, id, 0, CHUNK_BYTES, cut).unwrap() == bytes);
    store.remove(id).unwrap();
    assert_eq!(store.pending_bytes(), 0);
}
