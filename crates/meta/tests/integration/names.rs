//! Names of files: lists, renames, and files that take the name of another.

use crate::fixture::{cluster, discard_all, one_file, place, segments};
use gabion_meta::{Existing, Listing, MemoryStore, Meta, MetaError, NewAttributes, StripeStatus};

/// Returns the contents of a page: files, common beginnings, and whether more follow.
fn shown(listing: &Listing) -> (Vec<&str>, Vec<&str>, bool) {
    let files = listing.files.iter().map(|file| file.name.as_str());
    let prefixes = listing.prefixes.iter().map(String::as_str);
    (files.collect(), prefixes.collect(), listing.is_cut)
}

#[test]
fn a_list_is_a_page_and_joins_what_lies_behind_a_delimiter() {
    let (meta, pool) = cluster();
    for name in ["a", "b/1", "b/2/x", "b/2/y", "b/3", "b0", "ü/1"] {
        one_file(&meta, &pool, name);
    }
    let list = |prefix: &str, after: Option<&str>, limit| {
        meta.list(prefix, after, Some("/"), limit).unwrap()
    };
    assert_eq!(
        shown(&list("", None, 9)),
        (vec!["a", "b0"], vec!["b/", "ü/"], false)
    );
    assert_eq!(
        shown(&list("b/", None, 9)),
        (vec!["b/1", "b/3"], vec!["b/2/"], false)
    );
    // Each page goes on behind the last entry of the one before, however many names that one covers.
    let (mut pages, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = list("", after.as_deref(), 1);
        pages.extend(page.last().map(str::to_owned));
        after = page.last().map(str::to_owned);
        if !page.is_cut {
            break;
        }
    }
    assert_eq!(pages, ["a", "b/", "b0", "ü/"]);
    // A name behind the delimiter that is no entry hides nothing.
    assert_eq!(
        shown(&list("", Some("b/2"), 9)),
        (vec!["b0"], vec!["b/", "ü/"], false)
    );
    let flat = meta.list("b", Some("b/1"), None, 2).unwrap();
    assert_eq!(shown(&flat), (vec!["b/2/x", "b/2/y"], vec![], true));
    assert_eq!(meta.list("none", None, None, 2), Ok(Listing::default()));
}

#[test]
fn a_renamed_file_keeps_its_stripes_and_frees_its_name() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "a");
    let stripes = segments(&meta, &file);
    meta.rename((file.put, "a"), (0, 132), "d/b", Existing::Stays)
        .unwrap();
    let renamed = meta.file_of(file.put).unwrap();
    assert_eq!((renamed.name.as_str(), renamed.put), ("d/b", file.put));
    assert_eq!(segments(&meta, &renamed), stripes);
    assert!(matches!(meta.file("a"), Err(MetaError::UnknownFile(_))));
    // The answer was lost, and another file has the old name since.
    one_file(&meta, &pool, "a");
    assert_eq!(
        meta.rename((file.put, "a"), (0, 132), "d/b", Existing::Stays),
        Ok(())
    );
    assert_eq!(meta.file_of(file.put), Ok(renamed));
    let other = meta.rename((file.put, "a"), (0, 133), "c", Existing::Stays);
    assert_eq!(other, Err(MetaError::FileRenamed("d/b".to_owned())));
    // A late message of the first rename changes nothing, though the file has its first name again.
    let first = meta.file("a").unwrap();
    meta.rename((first.put, "a"), (0, 134), "b", Existing::Stays)
        .unwrap();
    meta.rename((file.put, "d/b"), (1, 135), "a", Existing::Stays)
        .unwrap();
    let late = meta.rename((file.put, "a"), (0, 136), "d/b", Existing::Stays);
    assert_eq!(late, Err(MetaError::FileRenamed("a".to_owned())));
    let invalid = meta.rename((file.put, "a"), (2, 137), "", Existing::Stays);
    assert!(matches!(invalid, Err(MetaError::FileName { .. })));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_rename_replaces_a_file_only_if_it_may() {
    let (meta, pool) = cluster();
    let (old, new) = (one_file(&meta, &pool, "old"), one_file(&meta, &pool, "new"));
    let gone = segments(&meta, &old)[0];
    let rename = |existing| meta.rename((new.put, "new"), (0, 138), "old", existing);
    assert_eq!(
        rename(Existing::Stays),
        Err(MetaError::FileExists("old".to_owned()))
    );
    assert_eq!(
        rename(Existing::IsReplacedIf(new.put)),
        Err(MetaError::FileReplaced("old".to_owned()))
    );
    assert_eq!(meta.file("old").map(|file| file.put), Ok(old.put));
    assert_eq!(rename(Existing::IsReplacedIf(old.put)), Ok(()));
    assert_eq!(meta.file("old").map(|file| file.put), Ok(new.put));
    discard_all(&meta);
    assert_eq!(meta.stripe_status(gone), Ok(StripeStatus::Garbage));
    assert_eq!(meta.layout_of(old.put), Err(MetaError::FileGone(old.put)));
    assert_eq!(meta.files("", None, 9).map(|files| files.len()), Ok(1));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_put_takes_the_name_of_the_file_that_it_replaces_when_it_is_committed() {
    let (meta, pool) = cluster();
    let old = one_file(&meta, &pool, "f");
    let gone = segments(&meta, &old)[0];
    let begin = |existing| {
        meta.begin_put(
            ("f", existing, NewAttributes::FILE),
            pool.id,
            4096,
            &[place(1)],
            0,
        )
    };
    assert_eq!(
        begin(Existing::Stays),
        Err(MetaError::FileExists("f".to_owned()))
    );
    let (put, late) = (
        begin(Existing::IsReplacedIf(old.put)).unwrap(),
        begin(Existing::IsReplacedIf(old.put)).unwrap(),
    );
    assert_eq!(
        meta.file("f").map(|file| file.put),
        Ok(old.put),
        "until then"
    );
    assert_eq!(meta.commit_put(put.id, 5).map(|file| file.put), Ok(put.id));
    discard_all(&meta);
    assert_eq!(meta.stripe_status(gone), Ok(StripeStatus::Garbage));
    assert_eq!(
        meta.commit_put(late.id, 6),
        Err(MetaError::FileReplaced("f".to_owned())),
        "it was to replace another"
    );
    assert_eq!(meta.abort_put(late.id), Ok(true));
    let any = begin(Existing::IsReplaced).unwrap();
    assert_eq!(meta.commit_put(any.id, 7).map(|file| file.put), Ok(any.id));
    discard_all(&meta);
    assert_eq!(meta.stripe_count(), Ok(1));
    assert_eq!(meta.check(), Ok(vec![]));
    commits_whole_or_not(&meta, &pool);
}

/// A commit that replaces a file and fails at any row changes nothing.
fn commits_whole_or_not(meta: &Meta<MemoryStore>, pool: &gabion_meta::PoolRecord) {
    let existing = Existing::IsReplaced;
    let put = meta.begin_put(
        ("f", existing, NewAttributes::FILE),
        pool.id,
        4096,
        &[place(0)],
        0,
    );
    let (put, before) = (
        put.expect("the file may be replaced").id,
        meta.store().rows(),
    );
    let mut number = 0;
    loop {
        meta.store().fail_after(number);
        if meta.commit_put(put, 9).is_ok() {
            break;
        }
        meta.store().heal();
        assert_eq!(meta.store().rows(), before, "row {number}");
        number += 1;
    }
    meta.store().heal();
    assert!(number > 5);
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_file_of_several_names_keeps_those_that_are_not_changed() {
    let (meta, pool) = cluster();
    let put = one_file(&meta, &pool, "a").put;
    for (number, name) in [(1, "b"), (2, "c")] {
        meta.link(put, (number - 1, number), name).unwrap();
    }
    let names = || {
        assert_eq!(meta.check(), Ok(vec![]));
        let files = meta.files("", None, 9).unwrap();
        assert!(files.iter().all(|file| file.put == put));
        files.into_iter().map(|file| file.name).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["a", "b", "c"]);
    meta.rename((put, "b"), (2, 3), "d/b", Existing::Stays)
        .unwrap();
    assert_eq!(names(), ["a", "c", "d/b"]);
    meta.rename((put, "a"), (3, 4), "e", Existing::Stays)
        .unwrap();
    assert_eq!(names(), ["c", "d/b", "e"]);
    // The first name goes, and then another one.
    meta.remove_file("e", put, (4, 5)).unwrap();
    assert_eq!(names(), ["c", "d/b"]);
    meta.remove_file("d/b", put, (5, 6)).unwrap();
    assert_eq!(names(), ["c"]);
}
