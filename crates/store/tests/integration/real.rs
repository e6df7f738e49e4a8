//! The same store on a real directory.

use crate::{OPTIONS, append, chunk, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{ByteRange, Sequence, StripeId};
use gabion_store::{Cut, RealDisk, RecordKind::NewBytes, Store, StoreError};
use std::sync::Arc;

#[test]
fn a_store_on_a_directory_comes_back_as_it_was_left() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("node");
    let mut bytes = pattern(1, 300_000);
    let id = chunk(3, 0);
    {
        let (store, report) =
            Store::open(Arc::new(RealDisk::open(&root).unwrap()), OPTIONS).unwrap();
        assert!(report.is_new);
        write_chunk(&store, id, spec(1, 300_000, 0), &bytes).unwrap();
        let mut unfinished = store.create(chunk(3, 1), spec(1, 5000, 0)).unwrap();
        unfinished.write_at(0, b"never finished").unwrap();
        for sequence in 1..=20 {
            let offset = sequence * 9001;
            let new = pattern(sequence, 10_000);
            let lsn = append(&store, id, stamp(1, sequence), NewBytes, offset, &new).unwrap();
            store.sync(lsn).unwrap();
            bytes[offset as usize..][..10_000].copy_from_slice(&new);
        }
        store.commit(StripeId(3), Sequence(15)).unwrap();
        assert_eq!(store.apply(StripeId(3)).unwrap().record_count, 15);
        store.sync_all().unwrap();
    }
    let (store, report) = Store::open(Arc::new(RealDisk::open(&root).unwrap()), OPTIONS).unwrap();
    assert_eq!((report.chunk_count, report.pending_count), (1, 5));
    assert_eq!((report.damage.len(), report.torn_bytes), (0, 0));
    let found = read(&store, id, 0, 300_000, Cut::Exactly(Sequence(20))).unwrap();
    assert!(found == bytes);
    // These bytes were just read, so they are cached; but not every file system reports that.
    let (range, cut) = (ByteRange::new(0, 4096), Cut::Exactly(Sequence(20)));
    let mut at_once = Vec::new();
    if let Some(as_of) = store.read_now(id, range, cut, &mut at_once) {
        assert_eq!(as_of, Sequence(20));
        assert!(at_once == bytes[..4096]);
    }
    assert_eq!(store.scrub(id).unwrap(), []);
    assert_eq!(store.scrub_journal().unwrap(), []);
    store.remove(id).unwrap();
    assert_eq!(store.chunks().unwrap(), []);
}

#[test]
fn one_directory_cannot_be_opened_twice() {
    let directory = tempfile::tempdir().unwrap();
    let first = RealDisk::open(directory.path()).unwrap();
    let second = RealDisk::open(directory.path());
    assert!(matches!(second, Err(StoreError::Locked { .. })));
    drop(first);
    assert!(RealDisk::open(directory.path()).is_ok());
}

#[test]
fn a_foreign_directory_is_left_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("journal")).unwrap();
    std::fs::write(directory.path().join("journal/diary"), b"dear diary").unwrap();
    let disk = RealDisk::open(directory.path()).unwrap();
    let refused = Store::open(Arc::new(disk), OPTIONS);
    assert!(matches!(refused, Err(StoreError::UnknownFormat { .. })));
}
