//! Exchanges of two names: of files, of directories, and of one of each.

use crate::directories::{DIRECTORY, ROOT, put, seen};
use crate::fixture::{Directories as _, cluster};
use gabion_meta::{Existing, MetaError, SeenName};

#[test]
fn an_exchange_keeps_the_limit_of_levels_on_both_sides() {
    let (meta, pool) = cluster();
    let deep = |count| vec!["d"; count].join("/");
    put(&meta, &pool, &format!("e/{}/f", deep(39)));
    let (near, far) = (format!("g/{}", deep(23)), format!("h/{}", deep(24)));
    for path in [&near, &far] {
        meta.make_directory(path, DIRECTORY, path.len() as u64)
            .expect("a free path");
    }
    let names = |paths: [&str; 2]| paths.map(|path| seen(&meta, path, path).expect("it is there"));
    for paths in [["e", &*far], [&*far, "e"]] {
        let too_deep = meta.exchange_names(&names(paths), 701);
        assert!(
            matches!(too_deep, Err(MetaError::TooDeep(_))),
            "{too_deep:?}"
        );
    }
    meta.exchange_names(&names(["e", &near]), 702)
        .expect("24 parts, 39 below, and the file's");
    let deepest = format!("{near}/{}/f", deep(39));
    assert!(meta.file(&deepest).is_ok(), "it has 64 parts");
    // The directories above it count its levels.
    let (moved, _) = meta.directory("g").expect("made");
    let below = meta.rename_directory(moved, (0, 703), "i/g", Existing::Stays);
    assert!(matches!(below, Err(MetaError::TooDeep(_))), "{below:?}");
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_late_exchange_changes_nothing_after_the_names_were_exchanged_back() {
    let (meta, pool) = cluster();
    let (file, _) = (put(&meta, &pool, "f"), put(&meta, &pool, "a/g"));
    let names = || ["f", "a"].map(|path| seen(&meta, path, path).expect("it is there"));
    let first = names();
    meta.exchange_names(&first, 1).expect("both are there");
    let [one, other] = names();
    meta.exchange_names(&[other, one], 2)
        .expect("both are there");
    assert_eq!(meta.exchange_names(&first, 1), Ok(()), "a late copy");
    let late = meta.exchange_names(&first, 3);
    assert_eq!(late, Err(MetaError::FileRenamed("f".to_owned())));
    assert_eq!(meta.file("f").map(|file| file.put), Ok(file));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn the_root_is_not_exchanged() {
    let (meta, pool) = cluster();
    put(&meta, &pool, "a/f");
    let root = SeenName {
        at: "".into(),
        inode: ROOT,
        generation: 0,
    };
    let names = [seen(&meta, "a", "a").expect("made"), root];
    assert_eq!(meta.exchange_names(&names, 1), Err(MetaError::Root));
}
