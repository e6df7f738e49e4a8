//! Locks as rows: they belong to a session and a file, and end with either.

use crate::fixture::{cluster, one_file};
use gabion_meta::{
    FILE_LOCKS_MAX, FileRecord, LockChange, LockKind, LockMode, LockOwner, LockRange, Locking,
    MemoryStore, Meta, MetaError,
};

const ONE: LockOwner = LockOwner {
    kind: LockKind::Whole,
    number: 1,
};
const OTHER: LockOwner = LockOwner { number: 2, ..ONE };

fn lock(owner: LockOwner, mode: LockMode) -> LockChange {
    LockChange {
        mode: Some(mode),
        ..LockChange::unlock(owner)
    }
}

fn byte(number: u64, at: u64) -> LockChange {
    let kind = LockKind::Range;
    LockChange {
        range: LockRange {
            first: at,
            last: at,
        },
        ..lock(LockOwner { kind, number }, LockMode::Exclusive)
    }
}

fn is_held(outcome: &Result<Locking, MetaError>) -> bool {
    matches!(outcome, Ok(Locking::Held(_)))
}

fn remove(meta: &Meta<MemoryStore>, file: &FileRecord) {
    let removed = meta.remove_file(file.name.as_str(), file.put, (file.generation, 77));
    removed.expect("it is there");
}

#[test]
fn owners_of_any_session_exclude_each_other() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f").put;
    let (first, second) = (meta.open_session().unwrap(), meta.open_session().unwrap());
    let set = |session, change| meta.set_lock(session, file, &change);
    assert_eq!(set(first, lock(ONE, LockMode::Shared)), Ok(Locking::Done));
    assert_eq!(set(first, lock(OTHER, LockMode::Shared)), Ok(Locking::Done));
    // The same number at another client is another owner.
    assert!(is_held(&set(second, lock(ONE, LockMode::Exclusive))));
    assert_eq!(set(first, LockChange::unlock(OTHER)), Ok(Locking::Done));
    assert!(is_held(&set(second, lock(ONE, LockMode::Exclusive))));
    let change = lock(ONE, LockMode::Exclusive);
    let holder = meta.find_lock(second, file, &change).unwrap();
    assert_eq!(holder.map(|holder| holder.session), Some(first));
    assert_eq!(meta.find_lock(first, file, &change), Ok(None));
    assert_eq!(meta.check(), Ok(vec![]));
    assert_eq!(meta.close_session(first), Ok(vec![file]));
    assert_eq!(set(first, lock(ONE, LockMode::Shared)), Ok(Locking::Over));
    assert_eq!(
        set(second, lock(ONE, LockMode::Exclusive)),
        Ok(Locking::Done)
    );
    assert_eq!(meta.close_session(first), Ok(vec![]));
    assert_eq!(meta.client_sessions(), Ok(vec![second]));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_whole_file_lock_that_cannot_be_converted_is_lost_as_on_linux() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f").put;
    let session = meta.open_session().unwrap();
    let set = |change| meta.set_lock(session, file, &change);
    for owner in [ONE, OTHER] {
        assert_eq!(set(lock(owner, LockMode::Shared)), Ok(Locking::Done));
    }
    // Two that convert at once do not wait for each other for ever.
    assert!(is_held(&set(lock(ONE, LockMode::Exclusive))));
    assert_eq!(set(lock(OTHER, LockMode::Exclusive)), Ok(Locking::Done));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_refused_change_writes_nothing() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f").put;
    let session = meta.open_session().unwrap();
    meta.set_lock(session, file, &byte(1, 5)).unwrap();
    let before = meta.store().rows();
    assert!(is_held(&meta.set_lock(session, file, &byte(2, 5))));
    assert_eq!(meta.set_lock(session, file, &byte(1, 5)), Ok(Locking::Done));
    let change = LockChange::unlock(OTHER);
    assert_eq!(meta.set_lock(session, file, &change), Ok(Locking::Done));
    assert!(meta.store().rows() == before);
}

#[test]
fn locks_of_a_removed_file_are_gone() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let session = meta.open_session().unwrap();
    let change = lock(ONE, LockMode::Shared);
    meta.set_lock(session, file.put, &change).unwrap();
    remove(&meta, &file);
    assert_eq!(meta.locked_files(session), Ok(vec![]));
    assert_eq!(meta.check(), Ok(vec![]));
    let gone = meta.set_lock(session, file.put, &change);
    assert!(matches!(gone, Err(MetaError::FileGone(_))), "{gone:?}");
    let unlocked = meta.set_lock(session, file.put, &LockChange::unlock(ONE));
    assert_eq!(unlocked, Ok(Locking::Done));
}

#[test]
fn locks_of_a_file_are_limited() {
    let (meta, pool) = cluster();
    let session = meta.open_session().unwrap();
    let file = one_file(&meta, &pool, "f").put;
    for at in 0..FILE_LOCKS_MAX as u64 {
        let set = meta.set_lock(session, file, &byte(1, 2 * at));
        assert_eq!(set, Ok(Locking::Done));
    }
    let refused = meta.set_lock(session, file, &byte(2, 1_000_000));
    assert!(
        matches!(
            &refused,
            Err(MetaError::TooManyLocks {
                what: "this file",
                ..
            })
        ),
        "{refused:?}"
    );
    // One that joins two others leaves room.
    for change in [byte(1, 1), byte(2, 1_000_000)] {
        assert_eq!(meta.set_lock(session, file, &change), Ok(Locking::Done));
    }
    assert_eq!(meta.check(), Ok(vec![]));
}
