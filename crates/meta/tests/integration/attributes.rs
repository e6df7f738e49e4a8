//! The times of files: which changes set them, and which do not.

use crate::fixture::{cluster_at, one_file, ticking_clock};
use gabion_meta::{
    AttributeChange, Attributes, Existing, FencingToken, Inode, MemoryStore, Meta, PutId,
    WallClock, WallTime,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

fn of(meta: &Meta<MemoryStore>, put: PutId) -> Attributes {
    meta.file_of(put).expect("it is there").attributes
}

#[test]
fn growth_sets_the_times_and_a_repetition_or_a_rename_does_not() {
    let (meta, pool) = cluster_at(MemoryStore::new(), ticking_clock());
    let put = one_file(&meta, &pool, "f").put;
    let made = of(&meta, put);
    meta.grow(put, 5_000, 0).expect("it grows");
    let grown = of(&meta, put);
    assert!(grown.modified > made.modified && grown.changed > made.changed);
    assert_eq!(
        (grown.created, grown.accessed),
        (made.created, made.accessed)
    );
    meta.grow(put, 4_500, 0).expect("it is that large");
    assert_eq!(of(&meta, put), grown, "nothing has changed");
    let append = || meta.grow_from(put, (5_000, 10), (77, 0), FencingToken::default());
    assert_eq!(append().map(|(_, done)| done), Ok(true));
    let appended = of(&meta, put);
    assert!(appended.modified > grown.modified);
    assert_eq!(append().map(|(_, done)| done), Ok(true));
    assert_eq!(of(&meta, put), appended, "it was a repetition");
    meta.rename(put, 0, "g", Existing::Stays)
        .expect("it is free");
    let renamed = of(&meta, put);
    assert_eq!(renamed.modified, appended.modified);
    assert!(renamed.changed > appended.changed);
    meta.rename(put, 0, "g", Existing::Stays)
        .expect("it is done");
    assert_eq!(of(&meta, put), renamed, "it was a repetition");
}

#[test]
fn a_clock_that_steps_back_takes_no_change_back() {
    let seconds = Arc::new(AtomicI64::new(100));
    let shown = Arc::clone(&seconds);
    let at = |seconds| WallTime {
        seconds,
        nanoseconds: 0,
    };
    let clock = WallClock::new(move || at(shown.load(Relaxed)));
    let (meta, pool) = cluster_at(MemoryStore::new(), clock);
    let put = one_file(&meta, &pool, "f").put;
    seconds.store(50, Relaxed);
    let change = AttributeChange {
        modified: Some(at(-7)),
        ..AttributeChange::default()
    };
    let set = meta.set_attributes(Inode::File(put), (0, 1), &change);
    let set = set.expect("it is there");
    assert_eq!((set.modified, set.changed), (at(-7), at(100)));
    meta.grow(put, 5_000, 0).expect("it grows");
    let grown = of(&meta, put);
    assert_eq!((grown.modified, grown.changed), (at(50), at(100)));
}
