//! The times of files: which changes set them, and which do not.

use crate::fixture::{Directories as _, cluster_at, one_file, ticking_clock};
use gabion_meta::{
    AttributeChange, Attributes, DirectoryId, Existing, FencingToken, Inode, MemoryStore, Meta,
    PutId, WallClock, WallTime,
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
    meta.rename((put, "f"), (0, 103), "g", Existing::Stays)
        .expect("it is free");
    let renamed = of(&meta, put);
    assert_eq!(renamed.modified, appended.modified);
    assert!(renamed.changed > appended.changed);
    meta.rename((put, "f"), (0, 103), "g", Existing::Stays)
        .expect("it is done");
    assert_eq!(of(&meta, put), renamed, "it was a repetition");
}

#[test]
fn the_times_of_a_directory_are_exact_to_10_ms_whatever_clients_have_set() {
    let ms = Arc::new(AtomicI64::new(1_000));
    let shown = Arc::clone(&ms);
    let at = |ms: i64| WallTime {
        seconds: ms.div_euclid(1_000),
        nanoseconds: (ms.rem_euclid(1_000) * 1_000_000) as u32,
    };
    let clock = WallClock::new(move || at(shown.load(Relaxed)));
    let (meta, pool) = cluster_at(MemoryStore::new(), clock);
    let root = Inode::Directory(DirectoryId::ROOT);
    let times = || {
        let root = meta.inode("").expect("the root").attributes;
        (root.modified, root.changed)
    };
    for (now, modified, changed) in [
        (1_009, 1_000, 1_000),
        (1_010, 1_010, 1_010),
        (1_019, 1_010, 1_010),
        (990, 990, 1_010),
    ] {
        ms.store(now, Relaxed);
        one_file(&meta, &pool, &format!("f{now}"));
        assert_eq!(times(), (at(modified), at(changed)), "{now}");
    }
    for set in [at(-1), at(2_000)] {
        let known = meta.inode("").expect("the root").attributes;
        let change = AttributeChange {
            modified: Some(set),
            ..AttributeChange::default()
        };
        let request = (known.version, known.version + 1);
        meta.set_attributes(root, request, &change)
            .expect("it is there");
        ms.store(1_500, Relaxed);
        one_file(&meta, &pool, &format!("g{}", set.seconds));
        assert_eq!(times(), (at(1_500), at(1_500)), "it was set to {set:?}");
    }
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

#[test]
fn user_attributes_go_with_their_inode() {
    let (meta, pool) = cluster_at(MemoryStore::new(), ticking_clock());
    let file = one_file(&meta, &pool, "d/f");
    let directory = meta.directory("d").expect("it was made").0;
    for (number, inode) in [Inode::File(file.put), Inode::Directory(directory)]
        .into_iter()
        .enumerate()
    {
        let change = AttributeChange {
            user: [("user.a".to_owned(), Some(vec![1]))].into(),
            ..AttributeChange::default()
        };
        let set = meta.set_attributes(inode, (0, number as u64), &change);
        let version = set.expect("it is there").version;
        let (known, user) = meta.user_attributes(inode).expect("it is there");
        assert_eq!(
            (known.version, user),
            (version, [("user.a".to_owned(), vec![1])].into())
        );
    }
    meta.link(file.put, (0, 106), "g").expect("a free name");
    meta.remove_file("d/f", file.put, (1, 101))
        .expect("it is there");
    assert_eq!(
        meta.user_attributes(Inode::File(file.put))
            .map(|(_, user)| user.len()),
        Ok(1)
    );
    meta.remove_file("g", file.put, (2, 102))
        .expect("it is there");
    meta.remove_directory(directory, (0, 105))
        .expect("it is empty");
    assert_eq!(meta.check(), Ok(vec![]), "no row is left of them");
}
