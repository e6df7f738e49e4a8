//! Requirements of engines: atomic transactions, refusal of damage, and clear errors.

use crate::fixture::{cluster, cluster_in, one_file, segments};
use crate::transactions::keeps_transactions_whole;
use gabion_meta::{
    ClusterId, Existing, FORMAT, KeyValue, MemoryStore, Meta, MetaError, NewAttributes, RedbStore,
    WallClock, WallTime,
};
use std::path::Path;

fn clock() -> WallClock {
    WallClock::stopped(WallTime::default())
}

#[test]
fn in_memory() {
    keeps_transactions_whole(&MemoryStore::new());
}

#[test]
fn on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta.redb");
    let store = RedbStore::create(&path).unwrap();
    keeps_transactions_whole(&store);
    drop(store);
    let store = RedbStore::create(&path).unwrap();
    let rows = store.read(|txn| txn.scan(b"", b"\xff", 9)).unwrap();
    assert_eq!(rows.len(), 2, "creating again opens what is there");
}

#[test]
fn a_cut_creation_is_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta.redb");
    let leftover = directory.path().join("meta.redb.unfinished");
    std::fs::write(&leftover, b"half a store").unwrap();
    let store = RedbStore::create(&path).unwrap();
    assert!(!leftover.exists());
    assert_eq!(Meta::open(store, clock()).err(), Some(MetaError::NoCluster));
    let store = RedbStore::create(&path).unwrap();
    assert!(Meta::create(store, ClusterId(1), clock()).is_ok());
}

#[test]
fn stores_that_cannot_be_opened_say_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta.redb");
    let refusal = |path: &Path| RedbStore::open(path).err().unwrap();
    assert!(matches!(refusal(&path), MetaError::NoStore { .. }));
    let store = RedbStore::create(&path).unwrap();
    assert!(matches!(refusal(&path), MetaError::Locked { .. }));
    drop(store);
    for content in [vec![], b"no store".to_vec(), vec![0; 65536]] {
        std::fs::write(&path, content).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, MetaError::Damaged { .. }), "{error}");
    }
    let error = refusal(directory.path());
    assert!(matches!(error, MetaError::Storage { .. }), "{error}");
}

#[test]
fn a_flipped_bit_is_refused_or_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta.redb");
    let (meta, pool) = cluster_in(RedbStore::create(&path).unwrap());
    let files: Vec<_> = ["a", "b", "c"]
        .map(|name| one_file(&meta, &pool, name))
        .into();
    let nodes = meta.nodes().unwrap();
    drop(meta);
    let intact = std::fs::read(&path).unwrap();
    let mut refused = 0;
    // Every bit would take minutes. Odd steps visit all positions within words and pages; the short
    // header, which identifies the last commit, gets the smaller step.
    let header = (0..320 * 8).step_by(61);
    let pages = (320 * 8..intact.len() * 8).step_by(10_007);
    for bit in header.chain(pages) {
        let mut damaged = intact.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &damaged).unwrap();
        match RedbStore::open(&path).and_then(|store| Meta::open(store, clock())) {
            Ok(meta) => {
                assert_eq!(meta.files("", None, 9).unwrap(), files, "bit {bit}");
                assert_eq!(meta.nodes().unwrap(), nodes, "bit {bit}");
                assert_eq!(meta.check(), Ok(vec![]), "bit {bit}");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0, "no flip hit anything that matters");
}

#[test]
fn a_newer_format_is_refused_before_anything_is_read() {
    let (meta, _) = cluster();
    let store = meta.into_store();
    // The format's row: tag 0; version 1; the number. Behind it, rows of an unknown shape.
    let newer = u8::try_from(FORMAT).unwrap() + 1;
    store
        .write(|txn| {
            txn.put(&[0], &[1, newer])?;
            txn.put(&[1], b"\xff what a newer program writes here")
        })
        .unwrap();
    let expected = MetaError::NewerFormat {
        found: FORMAT + 1,
        supported: FORMAT,
    };
    assert_eq!(Meta::open(store, clock()).err(), Some(expected));
}

#[test]
fn any_damaged_row_is_an_error_and_never_a_panic() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "a");
    meta.begin_put(
        ("b", Existing::Stays, NewAttributes::FILE),
        pool.id,
        4096,
        &[crate::fixture::place(1)],
        0,
    )
    .unwrap();
    one_file(&meta, &pool, "c");
    let put = meta.file("c").unwrap().put;
    meta.remove_file("c", put, (0, 128)).unwrap();
    let stripe = segments(&meta, &file)[0];
    let holder = gabion_meta::Holder::Coordinator { incarnation: 1 };
    let membership = crate::fixture::membership();
    meta.acquire(stripe, holder, &membership, 0).unwrap();
    let store = meta.into_store();
    let mut noticed = 0;
    for (key, value) in store.rows() {
        for at in 0..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 0xff;
            store.write(|txn| txn.put(&key, &damaged)).unwrap();
            // Any answer is allowed, but no panic: most flips break a row, others give another
            // valid one.
            let sound = Meta::<&MemoryStore>::open(&store, clock()).is_ok_and(|meta| {
                let _ = (meta.nodes(), meta.topology(), meta.pools(), meta.puts());
                let _ = (
                    meta.files("", None, 9),
                    meta.layout("a"),
                    meta.stripe(stripe),
                );
                let _ = (
                    meta.stripes_on(gabion_layout::NodeId(0), None, 9),
                    meta.garbage(None, 9),
                );
                let _ = meta.lease(stripe);
                meta.check() == Ok(vec![])
            });
            noticed += u32::from(!sound);
            store.write(|txn| txn.put(&key, &value)).unwrap();
        }
    }
    assert!(noticed > 100, "{noticed}");
}
