//! The position up to which a journal is durable, which reveals a node whose disk was rolled back.

use crate::reserve::{prepare, update};
use crate::{append, chunk, open, pattern, spec, stamp, write_chunk};
use gabion_layout::NodeId;
use gabion_store::{Identity, RecordKind, SimDisk, Store};

/// A member's store with one chunk.
fn member() -> (SimDisk, Store) {
    let disk = SimDisk::new(5);
    let (store, _) = open(&disk);
    let identity = Identity {
        node: Some(NodeId(3)),
        ..Identity::default()
    };
    store.set_identity(&identity).unwrap();
    write_chunk(&store, chunk(1, 0), spec(1, 4096, 0), &pattern(1, 4096)).unwrap();
    (disk, store)
}

fn add(store: &Store, sequence: u64) -> gabion_store::Lsn {
    let (stamp, kind) = (stamp(1, sequence), RecordKind::NewBytes);
    append(store, chunk(1, 0), stamp, kind, 0, b"new").unwrap()
}

#[test]
fn the_position_is_claimed_after_the_sync_and_found_again_after_any_crash() {
    let (disk, store) = member();
    for sequence in 1..=40 {
        let before = store.position();
        let lsn = add(&store, sequence);
        assert_eq!(store.position(), before, "nothing is synced yet");
        store.sync(lsn).unwrap();
        assert!(store.position() > before);
        add(&store, 100 + sequence);
        for seed in 0..4 {
            let (found, _) = open(&disk.after_crash(seed));
            let found = found.identity().found_position.unwrap();
            assert!(found >= store.position(), "update {sequence}, crash {seed}");
        }
    }
}

#[test]
fn a_copy_that_is_opened_again_and_again_shows_no_more_than_it_had() {
    let (disk, store) = member();
    store.sync(add(&store, 1)).unwrap();
    let copy = disk.after_crash(1);
    let position = store.position();
    store.sync(add(&store, 2)).unwrap();
    for attempt in 0..5 {
        let (opened, _) = open(&copy);
        let found = opened.identity().found_position.unwrap();
        assert!(found < store.position(), "attempt {attempt}");
        assert!(found >= position);
        assert!(opened.position() > found, "it has appended since");
    }
    // Once it is admitted, it counts from its own position.
    let (opened, _) = open(&copy);
    let identity = Identity {
        found_position: None,
        ..opened.identity()
    };
    opened.set_identity(&identity).unwrap();
    let reached = opened.position();
    let (next, _) = open(&copy.after_crash(7));
    assert!(next.identity().found_position.unwrap() >= reached);
}

#[test]
fn what_a_reserve_takes_moves_the_position_with_the_next_witness() {
    let (_, store, id, _) = prepare();
    store.log_witnesses().unwrap();
    let before = store.position();
    update(&store, id, 1);
    store.log_witnesses().unwrap();
    assert!(store.position() > before);
}
