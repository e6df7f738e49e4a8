//! Directories: a model of paths against the metadata under random operations, and the limits.

mod model;

use self::model::{Model, operation};
use crate::fixture::{Directories as _, cluster, cluster_at};
use gabion_meta::{
    DirectoryEntry, DirectoryId, Existing, Inode, Listing, MemoryStore, Meta, MetaError,
    NewAttributes, PoolRecord, PutId, RelativePath, SeenName, WallClock, WallTime,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

pub(crate) const ROOT: Inode = Inode::Directory(DirectoryId::ROOT);

/// Of directories that are made.
pub(crate) const DIRECTORY: NewAttributes = NewAttributes {
    mode: 0o700,
    owner: 9,
    group: 10,
    ..NewAttributes::DIRECTORY
};

/// The entries of a page in their order.
fn entries(listing: &Listing) -> Vec<String> {
    let files = listing.files.iter().map(|file| file.name.clone());
    let mut all: Vec<String> = files.chain(listing.prefixes.iter().cloned()).collect();
    all.sort();
    all
}

fn compare(meta: &Meta<MemoryStore>, model: &Model) {
    assert_eq!(meta.check(), Ok(vec![]));
    for (path, inode) in model.0.iter().chain([(&String::new(), &ROOT)]) {
        let status = meta.inode(model.at(path)).expect("it is there");
        assert_eq!(
            (status.inode, status.attributes),
            (*inode, model.1[inode]),
            "the attributes of '{path}'"
        );
        assert_eq!(meta.inode_status(*inode), Ok(status.clone()));
        if let Inode::File(_) = inode {
            let names = model.0.values().filter(|other| *other == inode);
            assert_eq!(status.link_count, names.count() as u64);
        }
    }
    read_directories(meta, model);
    for (path, known) in &model.0 {
        match *known {
            Inode::File(put) => {
                let first = meta.file_of(put).expect("it is there").name;
                assert_eq!(model.0.get(&first), Some(known), "one of its names");
                assert_eq!(meta.file(path).map(|file| file.put), Ok(put));
            }
            Inode::Directory(id) => assert_eq!(meta.directory(path).map(|(id, _)| id), Ok(id)),
        }
    }
    for prefix in ["", "a", "a/", "a/b", "b/a-/", "none/"] {
        for delimiter in [None, Some("/")] {
            let joins = delimiter.is_some();
            let whole = meta
                .list(prefix, None, delimiter, usize::MAX)
                .expect("a list");
            let expected = model.page(prefix, None, joins, usize::MAX);
            assert_eq!(entries(&whole), expected, "{prefix} {delimiter:?}");
            assert!(!whole.is_cut);
            // By pages of one entry, and behind names that are no entries.
            let mut after = None;
            for entry in &expected {
                let page = meta
                    .list(prefix, after.as_deref(), delimiter, 1)
                    .expect("a page");
                assert_eq!(
                    entries(&page),
                    std::slice::from_ref(entry),
                    "{prefix} behind {after:?}"
                );
                assert_eq!(page.is_cut, entry != expected.last().expect("there is one"));
                after = Some(entry.clone());
            }
            let last = meta
                .list(prefix, after.as_deref(), delimiter, 1)
                .expect("a page");
            assert!(expected.is_empty() || entries(&last).is_empty(), "{last:?}");
        }
        let flat = |after: &str| meta.files(prefix, Some(after), usize::MAX).expect("files");
        for after in ["0", "a", "a-/", "a/", "a/b/ü", "b", "z", "ü/ü"] {
            let names: Vec<String> = flat(after).into_iter().map(|file| file.name).collect();
            assert_eq!(
                names,
                model.page(prefix, Some(after), false, usize::MAX),
                "{prefix} behind {after}"
            );
        }
    }
}

/// Reads every directory in pages of two names.
fn read_directories(meta: &Meta<MemoryStore>, model: &Model) {
    for (directory, names) in model.names() {
        let Inode::Directory(id) = directory else {
            panic!("names lie in directories");
        };
        let (mut found, mut after) = (BTreeMap::new(), None);
        loop {
            let (page, is_cut) = meta
                .read_directory(id, after.as_deref(), 2)
                .expect("it is there");
            after = page.last().map(DirectoryEntry::place);
            found.extend(page.into_iter().map(|entry| (entry.name, entry.status)));
            if !is_cut {
                break;
            }
        }
        let inodes: BTreeMap<&str, Inode> = found
            .iter()
            .map(|(name, status)| (name.as_str(), status.inode))
            .collect();
        assert_eq!(inodes, names);
        for status in found.into_values() {
            assert_eq!(meta.inode_status(status.inode), Ok(status));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn directories_are_as_a_model_of_paths_has_them(operations in prop::collection::vec(operation(), 1..60)) {
        let time = Arc::new(AtomicI64::new(0));
        let now = move |time: &AtomicI64| WallTime { seconds: time.load(Relaxed), nanoseconds: 5 };
        let clock = Arc::clone(&time);
        let (meta, pool) = cluster_at(MemoryStore::new(), WallClock::new(move || now(&clock)));
        let root = meta.inode("").expect("the root").attributes;
        let mut model = Model(BTreeMap::new(), BTreeMap::from([(ROOT, root)]));
        for operation in &operations {
            time.fetch_add(1, Relaxed);
            let before = model.clone();
            model.run(&meta, &pool, operation);
            model.note_times(&before, operation, now(&time));
            compare(&meta, &model);
        }
    }
}

/// A name as a client sees it now.
pub(crate) fn seen(
    meta: &Meta<MemoryStore>,
    path: &str,
    at: impl Into<RelativePath>,
) -> Result<SeenName, MetaError> {
    let status = meta.inode(path)?;
    Ok(SeenName {
        at: at.into(),
        inode: status.inode,
        generation: status.generation,
    })
}

pub(crate) fn put(meta: &Meta<MemoryStore>, pool: &PoolRecord, path: &str) -> PutId {
    let begun = meta.begin_put(
        (path, Existing::Stays, NewAttributes::FILE),
        pool.id,
        0,
        &[],
        0,
    );
    let put = begun.expect("a free path").id;
    meta.commit_put(put, 0).expect("a free path").put
}

#[test]
fn a_directory_is_renamed_by_one_transaction_however_much_is_below() {
    let (meta, pool) = cluster();
    let first = put(&meta, &pool, "old/0/f");
    for at in 1..500 {
        put(&meta, &pool, &format!("old/{at}/f"));
    }
    let (id, generation) = meta.directory("old").expect("it was made");
    let before = meta.change_count();
    meta.rename_directory(id, (generation, 114), "new/place", Existing::Stays)
        .expect("a free path");
    assert_eq!(meta.change_count(), before + 1);
    assert_eq!(
        meta.rename_directory(id, (generation, 114), "new/place", Existing::Stays),
        Ok(()),
        "a lost answer"
    );
    let names = meta.files("", None, usize::MAX).expect("files");
    assert_eq!(names.len(), 500);
    assert!(names.iter().all(|file| file.name.starts_with("new/place/")));
    assert_eq!(
        meta.file_of(first).map(|file| file.name),
        Ok("new/place/0/f".to_owned())
    );
    assert!(matches!(
        meta.file("old/0/f"),
        Err(MetaError::UnknownFile(_))
    ));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_path_has_at_most_64_parts_also_after_renames() {
    let (meta, pool) = cluster();
    let deep = |count| vec!["d"; count].join("/");
    put(&meta, &pool, &deep(64));
    assert!(matches!(
        meta.make_directory(deep(65), DIRECTORY, 901),
        Err(MetaError::NameTooLong { .. })
    ));
    // The directory that moves has 39 levels below it, and a file in the last.
    put(&meta, &pool, &format!("e/{}/f", deep(39)));
    let (moved, target) = (
        meta.directory("e").expect("made").0,
        format!("g/{}", deep(23)),
    );
    meta.make_directory(&target, DIRECTORY, 902)
        .expect("24 levels");
    let too_deep = meta.rename_directory(moved, (0, 116), format!("{target}/e"), Existing::Stays);
    assert!(
        matches!(too_deep, Err(MetaError::TooDeep(_))),
        "{too_deep:?}"
    );
    let fits = format!("h/{}", deep(23));
    meta.rename_directory(moved, (0, 117), &fits, Existing::Stays)
        .expect("24 parts, 39 below, and the file's");
    let deepest = format!("{fits}/{}/f", deep(39));
    assert!(meta.file(&deepest).is_ok(), "it has 64 parts");
    assert!(matches!(
        meta.make_directory(format!("i/{}", deep(63)), DIRECTORY, 903),
        Err(MetaError::TooDeep(_))
    ));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_put_that_has_begun_is_refused_at_its_commit_if_a_directory_has_the_name_by_then() {
    let (meta, pool) = cluster();
    let begin = |path| {
        meta.begin_put(
            (path, Existing::IsReplaced, NewAttributes::FILE),
            pool.id,
            0,
            &[],
            0,
        )
        .expect("free")
    };
    let (taken, below) = (begin("a"), begin("b/c"));
    meta.make_directory("a", DIRECTORY, 904).expect("free");
    put(&meta, &pool, "b");
    let refused = meta.commit_put(taken.id, 0);
    assert_eq!(refused, Err(MetaError::IsADirectory("a".to_owned())));
    let refused = meta.commit_put(below.id, 0);
    assert_eq!(refused, Err(MetaError::NotADirectory("b".to_owned())));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_late_message_about_a_directory_changes_nothing_after_a_later_rename() {
    let (meta, pool) = cluster();
    put(&meta, &pool, "a/f");
    let (id, first) = meta.directory("a").expect("made");
    meta.rename_directory(id, (first, 118), "b", Existing::Stays)
        .expect("free");
    let (_, second) = meta.directory("b").expect("renamed");
    meta.rename_directory(id, (second, 119), "c", Existing::Stays)
        .expect("free");
    let is_late = |moved| moved == Err(MetaError::DirectoryRenamed("c".to_owned()));
    assert!(
        is_late(meta.rename_directory(id, (first, 120), "b", Existing::Stays)),
        "a repetition of the first rename"
    );
    assert!(is_late(meta.remove_directory(id, (second, 123))));
    assert_eq!(meta.file("c/f").map(|file| file.name), Ok("c/f".to_owned()));
    // A repeated removal leaves the next directory of the name alone.
    let (_, third) = meta.directory("c").expect("renamed");
    let file = meta.file("c/f").expect("it is there").put;
    let moved = meta.remove_file("a/f", file, (0, 111));
    assert_eq!(
        moved.map(drop),
        Err(MetaError::FileRenamed("c/f".to_owned()))
    );
    meta.remove_file("c/f", file, (0, 112))
        .expect("it is there");
    meta.remove_directory(id, (third, 124)).expect("empty");
    meta.make_directory("c", DIRECTORY, 905).expect("free");
    assert_eq!(meta.remove_directory(id, (third, 124)), Ok(()));
    assert_eq!(
        meta.remove_directory(id, (third, 125)),
        Err(MetaError::DirectoryGone(id)),
        "another client's"
    );
    assert!(meta.directory("c").is_ok());
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn pages_by_puts_miss_no_file_of_a_directory_that_moves_between_them() {
    let (meta, pool) = cluster();
    let puts: Vec<PutId> = ["m/1", "n/1", "z/1", "z/2"]
        .map(|path| put(&meta, &pool, path))
        .into();
    let first = meta.files_by_put(None, 2).expect("a page");
    let (z, generation) = meta.directory("z").expect("made");
    meta.rename_directory(z, (generation, 121), "a", Existing::Stays)
        .expect("free");
    let second = meta.files_by_put(Some(first[1].put), 9).expect("a page");
    let seen: Vec<PutId> = first.iter().chain(&second).map(|file| file.put).collect();
    assert_eq!(seen, puts);
    assert_eq!(second[0].name, "a/1");
}
