//! Where records lie and when they move, for each keeping, and what a pin holds back.

use crate::{append, chunk, open, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Keeping, Sequence, StripeId};
use gabion_store::{ChunkSpec, Cut, RecordKind, SimDisk, Store, StoreError};

const CHUNK_BYTES: u64 = 64 << 10;

/// A store with one chunk that keeps records as told, and the chunk's bytes.
fn store_with(keeping: Keeping) -> (SimDisk, Store<SimDisk>, ChunkId, Vec<u8>) {
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
fn update(store: &Store<SimDisk>, id: ChunkId, sequence: u64) {
    let offset = (sequence - 1) * 4096 % CHUNK_BYTES;
    let delta = pattern(sequence, 4096);
    let kind = RecordKind::ParityDelta;
    let lsn = append(store, id, stamp(1, sequence), kind, offset, &delta).unwrap();
    store.sync(lsn).unwrap();
    store.commit(id.stripe, Sequence(sequence)).unwrap();
}

fn base(store: &Store<SimDisk>, id: ChunkId) -> u64 {
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
