//! Files that clients have open stay when they lose their last names, and end when no client has them open any more.

use crate::fixture::{Directories, cluster, discard_all, one_file, place, spec};
use gabion_layout::PoolId;
use gabion_meta::{
    DirectoryId, Existing, FencingToken, FileRecord, Inode, Limit, MemoryStore, Meta, MetaError,
    NewAttributes, OpenFiles, PoolSpec, PutId, QuotaChange, QuotaError, SessionId, WallClock,
    WallTime,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a coordinator knows of open files.
#[derive(Debug, Default)]
struct Opened(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    open: BTreeSet<PutId>,
    /// Any file may be open.
    any_may_be_open: bool,
    /// Files that were denied and not settled yet.
    ending: Vec<PutId>,
    made: Vec<(u64, PutId)>,
}

impl OpenFiles for Opened {
    fn keeps(&self, file: PutId) -> bool {
        let mut known = self.known();
        let is_kept = known.any_may_be_open || known.open.contains(&file);
        if !is_kept {
            known.ending.push(file);
        }
        is_kept
    }

    fn made(&self, number: u64, file: PutId) {
        self.known().made.push((number, file));
    }

    fn settled(&self, files: Vec<PutId>) {
        let mut known = self.known();
        for file in files {
            let at = known.ending.iter().position(|ending| *ending == file);
            known.ending.remove(at.expect("it was denied before"));
        }
    }
}

impl Opened {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no test panics with it")
    }

    fn set(&self, file: PutId, is_open: bool) {
        let open = &mut self.known().open;
        if is_open {
            open.insert(file);
        } else {
            open.remove(&file);
        }
    }

    fn are_settled(&self) -> bool {
        self.known().ending.is_empty()
    }
}

type Cluster = Meta<MemoryStore>;

/// A cluster, what is known of its open files, and a pool of stripes and one of inline files.
fn furnished() -> (Cluster, Arc<Opened>, [PoolId; 2]) {
    let (meta, pool) = cluster();
    let inline = PoolSpec {
        name: "inline".to_owned(),
        inline_bytes: 4096,
        ..spec()
    };
    let inline = meta.create_pool(&inline).expect("a pool");
    let opened = Arc::new(Opened::default());
    let meta = meta.with_open_files(Arc::clone(&opened) as _);
    (meta, opened, [pool.id, inline.id])
}

fn file(meta: &Cluster, name: &str) -> FileRecord {
    let pool = meta.pools().expect("pools")[0].clone();
    one_file(meta, &pool, name)
}

fn inline(meta: &Cluster, pool: PoolId, name: &str, number: u64) -> PutId {
    let new = (name, Existing::IsReplaced, NewAttributes::FILE);
    let stored = meta.put_inline(new, pool, b"bytes", (number, 1));
    stored.expect("a file").0
}

fn remove(meta: &Cluster, name: &str, number: u64) {
    let file = meta.file(name).expect("it is there");
    let removed = meta.remove_file(name, file.put, (file.generation, number));
    assert_eq!(removed, Ok(()));
}

fn link_count(meta: &Cluster, put: PutId) -> Option<u64> {
    let status = meta.inode_status(Inode::File(put));
    status.ok().map(|status| status.link_count)
}

#[test]
fn an_open_file_that_loses_its_last_name_stays_until_it_is_closed() {
    let (meta, opened, [pool, _]) = furnished();
    let record = file(&meta, "d/f");
    let put = record.put;
    opened.set(put, true);
    meta.link(put, (0, 1), "d/g").expect("a further name");
    remove(&meta, "d/f", 2);
    assert_eq!(link_count(&meta, put), Some(1));
    remove(&meta, "d/g", 3);
    assert_eq!(link_count(&meta, put), Some(0));
    assert_eq!(meta.orphans(None, 9), Ok(vec![put]));
    assert_eq!(meta.files("", None, 9), Ok(vec![]));
    // The directory in which it lay may go.
    let (directory, generation) = meta.directory("d").expect("it is there");
    assert_eq!(meta.remove_directory(directory, (generation, 4)), Ok(()));
    assert_eq!(meta.check(), Ok(vec![]));

    // All goes on that names the file by its put.
    let (present, stripes) = meta.layout_of(put).expect("it is open");
    assert_eq!((present.name.as_str(), stripes.len()), ("g", 1));
    let grown = meta.grow(put, 10_000, 0).expect("it is open");
    assert_eq!(grown.0.size_bytes, 10_000);
    let (_, used) = meta.quota(pool).expect("a pool");
    assert_eq!((used.files, used.bytes), (1, 4096));
    // But it gets no name.
    let generation = meta.file_of(put).expect("it is open").generation;
    let linked = meta.link(put, (generation, 5), "again");
    assert_eq!(linked, Err(MetaError::FileGone(put)));
    let exclusive = meta.open_exclusive(put, SessionId(1), FencingToken(0));
    assert_eq!(exclusive, Err(MetaError::FileGone(put)));
    assert_eq!(meta.free_orphans(&[put]), Ok(0), "it is open");
    assert_eq!(link_count(&meta, put), Some(0));

    opened.set(put, false);
    assert_eq!(meta.free_orphans(&[put]), Ok(1));
    assert_eq!(meta.free_orphans(&[put]), Ok(0));
    assert_eq!(link_count(&meta, put), None);
    discard_all(&meta);
    let (_, used) = meta.quota(pool).expect("a pool");
    assert_eq!((used.files, used.bytes), (0, 0));
    assert_eq!(meta.garbage(None, 9).map(|garbage| garbage.len()), Ok(1));
    assert!(opened.are_settled());
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn an_open_file_outlives_each_way_to_lose_its_name() {
    let (meta, opened, [pool, inline_pool]) = furnished();
    let lost: Vec<PutId> = (0..4)
        .map(|at| file(&meta, &format!("f{at}")).put)
        .collect();
    let lost_inline = inline(&meta, inline_pool, "f4", 100);
    for put in lost.iter().chain([&lost_inline]) {
        opened.set(*put, true);
    }
    // A removal, a rename, the commit of a put, an inline put over stripes and one over inline bytes.
    remove(&meta, "f0", 1);
    let other = file(&meta, "other");
    let renamed = meta.rename((other.put, "other"), (0, 2), "f1", Existing::IsReplaced);
    assert_eq!(renamed, Ok(()));
    let new = ("f2", Existing::IsReplaced, NewAttributes::FILE);
    let begun = meta.begin_put(new, pool, 0, &[], 1).expect("places");
    meta.commit_put(begun.id, 2).expect("a file");
    inline(&meta, inline_pool, "f3", 101);
    inline(&meta, inline_pool, "f4", 102);
    for put in lost.iter().chain([&lost_inline]) {
        assert_eq!(link_count(&meta, *put), Some(0), "{put}");
    }
    let mut all = lost.clone();
    all.push(lost_inline);
    assert_eq!(meta.orphans(None, 9), Ok(all.clone()));
    let bytes = meta.inline_bytes(lost_inline).expect("it is open");
    assert_eq!(bytes.as_deref(), Some(&b"bytes"[..]));
    assert_eq!(meta.check(), Ok(vec![]));
    opened.known().open.clear();
    assert_eq!(meta.free_orphans(&all), Ok(5));
    assert_eq!(meta.orphans(None, 9), Ok(vec![]));
    assert_eq!(meta.check(), Ok(vec![]));
    assert!(opened.are_settled());
}

/// A client has no symbolic link open, and no transaction that fails leaves a file that cannot be opened.
#[test]
fn what_is_not_open_ends_at_once_and_a_refused_removal_ends_nothing() {
    let (meta, opened, [pool, _]) = furnished();
    opened.known().any_may_be_open = true;
    let new = (pool, NewAttributes::FILE);
    meta.make_symlink("link", "f", new, (1, 1)).expect("a link");
    let link = meta.inode("link").expect("it is there").inode;
    let Inode::File(put) = link else {
        panic!("{link:?}")
    };
    let removed = meta.remove_file("link", put, (0, 2));
    assert_eq!(removed, Ok(()));
    assert_eq!(meta.orphans(None, 9), Ok(vec![]));
    opened.known().any_may_be_open = false;

    let (kept, moved) = (file(&meta, "kept"), file(&meta, "quota/moved"));
    let quota = meta.directory("quota").expect("it is there").0;
    let change = QuotaChange {
        bytes: Some(Limit::AtMost(1 << 20)),
        files: None,
    };
    meta.set_directory_quota(quota, change).expect("a quota");
    let crossed = meta.rename(
        (moved.put, "quota/moved"),
        (0, 3),
        "kept",
        Existing::IsReplaced,
    );
    assert!(matches!(crossed, Err(MetaError::Quota(_))), "{crossed:?}");
    assert_eq!(link_count(&meta, kept.put), Some(1));
    assert!(opened.are_settled());
}

#[test]
fn an_open_file_without_a_name_counts_in_its_quota_as_long_as_that_exists() {
    let (meta, opened, _) = furnished();
    let large = QuotaChange {
        bytes: Some(Limit::AtMost(1 << 20)),
        files: None,
    };
    let mut orphans = Vec::new();
    for (name, ends_first) in [("a", true), ("b", false)] {
        let path = format!("{name}/f");
        orphans.push(file(&meta, &path).put);
        let (directory, generation) = meta.directory(name).expect("it is there");
        meta.set_directory_quota(directory, large).expect("a quota");
        opened.set(orphans[orphans.len() - 1], true);
        remove(&meta, &path, 10 + u64::from(ends_first));
        assert_eq!(used_by(&meta, directory), Some((4096, 1)));
        if ends_first {
            assert_eq!(meta.remove_directory_quota(directory), Ok(()));
            assert_eq!(quotas(&meta), Vec::<String>::new());
            let kept = meta.directory_quota(Inode::File(orphans[0]));
            assert_eq!(kept, Ok(None), "the quota has ended");
            let grown = meta.grow(orphans[0], 5000, 0).expect("nothing limits it");
            assert_eq!(grown.0.size_bytes, 5000);
            assert_eq!(meta.check(), Ok(vec![]));
            // A later quota of the same directory counts it again.
            meta.set_directory_quota(directory, large).expect("a quota");
            assert_eq!(used_by(&meta, directory), Some((5000, 1)));
        } else {
            assert_eq!(meta.remove_directory(directory, (generation, 20)), Ok(()));
        }
        assert_eq!(meta.check(), Ok(vec![]));
    }
    opened.known().open.clear();
    assert_eq!(meta.free_orphans(&orphans), Ok(2));
    let (directory, _) = meta.directory("a").expect("it is there");
    assert_eq!(used_by(&meta, directory), Some((0, 0)));
    assert_eq!(meta.check(), Ok(vec![]));
}

/// The bytes and entries that the quota of a directory counts.
fn used_by(meta: &Cluster, directory: DirectoryId) -> Option<(u64, u64)> {
    let status = meta.directory_quota(Inode::Directory(directory));
    let used = status.expect("it is there").map(|status| status.used);
    used.map(|used| (used.bytes, used.entries))
}

/// The directories with quotas, as they are shown.
fn quotas(meta: &Cluster) -> Vec<String> {
    let all = meta.directory_quotas().expect("rows").into_iter();
    all.map(|status| status.path).collect()
}

/// No transaction changes the rows of all of them.
#[test]
fn a_quota_ends_however_many_open_files_without_names_it_counts() {
    const COUNT: u64 = 5000;
    let (meta, opened, [_, pool]) = furnished();
    let limits = QuotaChange {
        bytes: Some(Limit::AtMost(1 << 20)),
        files: None,
    };
    let mut orphans = Vec::new();
    for name in ["removed", "kept"] {
        meta.make_directory(name, NewAttributes::DIRECTORY, orphans.len() as u64)
            .expect("a free name");
        let (directory, _) = meta.directory(name).expect("it is there");
        meta.set_directory_quota(directory, limits)
            .expect("a quota");
        for at in 0..COUNT {
            let number = 100_000 + 2 * orphans.len() as u64;
            let path = format!("{name}/{at}");
            let put = inline(&meta, pool, &path, number);
            opened.set(put, true);
            remove(&meta, &path, number + 1);
            orphans.push(put);
        }
        inline(
            &meta,
            pool,
            &format!("{name}/last"),
            50 + orphans.len() as u64,
        );
        assert_eq!(used_by(&meta, directory), Some((COUNT * 5 + 5, COUNT + 1)));
    }
    let (kept, _) = meta.directory("kept").expect("it is there");
    assert_eq!(meta.remove_directory_quota(kept), Ok(()));
    remove(&meta, "removed/last", 90);
    let (removed, generation) = meta.directory("removed").expect("it is there");
    assert_eq!(meta.remove_directory(removed, (generation, 91)), Ok(()));
    assert_eq!(quotas(&meta), Vec::<String>::new());
    assert_eq!(meta.check(), Ok(vec![]));
    // The parent may get a quota, which does not count them.
    let root = DirectoryId::ROOT;
    meta.set_directory_quota(root, limits).expect("a quota");
    assert_eq!(used_by(&meta, root), Some((5, 2)));
    assert_eq!(quotas(&meta), ["/"]);
    opened.known().open.clear();
    assert_eq!(meta.free_orphans(&orphans), Ok(2 * COUNT));
    assert_eq!(used_by(&meta, root), Some((5, 2)));
    assert_eq!(meta.check(), Ok(vec![]));
}

/// It keeps what it counts, so the new file needs room beside it.
#[test]
fn a_put_over_an_open_file_that_has_no_room_is_refused_when_it_begins() {
    let (meta, opened, [pool, _]) = furnished();
    let old = file(&meta, "d/f");
    let (directory, _) = meta.directory("d").expect("it is there");
    let begin = |path: &str| {
        let new = (path, Existing::IsReplaced, NewAttributes::FILE);
        meta.begin_put(new, pool, 4096, &[place(0)], 1).map(drop)
    };
    let change = |bytes: u64, files: u64| QuotaChange {
        bytes: Some(Limit::AtMost(bytes)),
        files: Some(Limit::AtMost(files)),
    };
    for (bytes, files, has_room) in [(8191, 9, false), (8192, 1, false), (8192, 2, true)] {
        meta.set_directory_quota(directory, change(bytes, files))
            .expect("few entries");
        opened.set(old.put, false);
        assert_eq!(begin("d/f"), Ok(()), "the old one ends");
        opened.set(old.put, true);
        let outcome = begin("d/f");
        assert_eq!(outcome.is_ok(), has_room, "{outcome:?}");
    }
    meta.remove_directory_quota(directory).expect("few entries");
    for (files, has_room) in [(1, false), (2, true)] {
        let change = QuotaChange {
            bytes: None,
            files: Some(Limit::AtMost(files)),
        };
        meta.set_quota("main", change).expect("it is there");
        opened.set(old.put, false);
        assert_eq!(begin("d/f"), Ok(()), "the old one ends");
        opened.set(old.put, true);
        let outcome = begin("d/f");
        assert_eq!(outcome.is_ok(), has_room, "{outcome:?}");
    }
    assert!(opened.are_settled());
}

#[test]
fn a_put_that_makes_a_file_tells_it_before_anyone_can_remove_it() {
    let (meta, opened, [_, pool]) = furnished();
    let put = inline(&meta, pool, "f", 77);
    assert_eq!(opened.known().made, [(77, put)]);
    // A repeated request finds the same file.
    assert_eq!(inline(&meta, pool, "f", 77), put);
    assert_eq!(opened.known().made, [(77, put), (77, put)]);
}

#[derive(Clone, Debug)]
enum Operation {
    Put {
        name: usize,
        is_inline: bool,
    },
    Link {
        name: usize,
        to: usize,
    },
    Rename {
        name: usize,
        to: usize,
    },
    Remove {
        name: usize,
    },
    Open {
        name: usize,
    },
    Close {
        pick: usize,
    },
    /// Of the directory of a name.
    Quota {
        name: usize,
        kind: usize,
    },
    Free,
    Restart,
    Report,
}

fn operation() -> impl Strategy<Value = Operation> {
    let name = || 0..4usize;
    prop_oneof![
        4 => (name(), any::<bool>()).prop_map(|(name, is_inline)| Operation::Put { name, is_inline }),
        2 => (name(), name()).prop_map(|(name, to)| Operation::Link { name, to }),
        2 => (name(), name()).prop_map(|(name, to)| Operation::Rename { name, to }),
        3 => name().prop_map(|name| Operation::Remove { name }),
        4 => name().prop_map(|name| Operation::Open { name }),
        3 => (0..4usize).prop_map(|pick| Operation::Close { pick }),
        3 => (name(), 0..3usize).prop_map(|(name, kind)| Operation::Quota { name, kind }),
        2 => Just(Operation::Free),
        1 => Just(Operation::Restart),
        2 => Just(Operation::Report),
    ]
}

/// The names, the files that clients have open, and those without names that are to be there.
#[derive(Default)]
struct Expected {
    names: BTreeMap<String, PutId>,
    /// What clients have open, whatever the coordinator knows.
    open: BTreeSet<PutId>,
    orphans: BTreeSet<PutId>,
    any_may_be_open: bool,
}

impl Expected {
    /// Orphans that no client has open end.
    fn free(&mut self, freed_count: u64) {
        let before = self.orphans.len() as u64;
        if !self.any_may_be_open {
            let open = &self.open;
            self.orphans.retain(|put| open.contains(put));
        }
        assert_eq!(before - self.orphans.len() as u64, freed_count);
    }

    /// A name leads to another file, or to none.
    fn set(&mut self, name: &str, put: Option<PutId>) {
        let before = match put {
            Some(put) => self.names.insert(name.to_owned(), put),
            None => self.names.remove(name),
        };
        if let Some(before) = before
            && !self.names.values().any(|put| *put == before)
            && (self.any_may_be_open || self.open.contains(&before))
        {
            self.orphans.insert(before);
        }
    }
}

fn path(name: usize) -> String {
    format!("d{}/f{name}", name % 2)
}

/// Frees all orphans that no client has open. Returns how many.
fn free_all(meta: &Cluster) -> u64 {
    let all = meta.orphans(None, 99).expect("rows");
    meta.free_orphans(&all).expect("a transaction")
}

/// Puts an empty file, inline or not.
fn put(
    meta: &Cluster,
    [pool, inline_pool]: [PoolId; 2],
    is_inline: bool,
    (path, number): (&str, u64),
) -> PutId {
    if is_inline {
        return inline(meta, inline_pool, path, number);
    }
    let new = (path, Existing::IsReplaced, NewAttributes::FILE);
    let begun = meta.begin_put(new, pool, 0, &[], 1).expect("places");
    meta.commit_put(begun.id, 2).expect("a file").put
}

/// Returns whether the file has the name.
fn rename(meta: &Cluster, file: &FileRecord, (name, to): (usize, usize), number: u64) -> bool {
    let (from, seen) = ((file.put, path(name)), (file.generation, number));
    is_made(&meta.rename(from, seen, path(to), Existing::IsReplaced))
}

/// Whether a name was given: the border of a quota may be in the way.
fn is_made(given: &Result<(), MetaError>) -> bool {
    let is_refused = matches!(given, Err(MetaError::Quota(QuotaError::Border(_))));
    assert!(given.is_ok() || is_refused, "{given:?}");
    given.is_ok()
}

/// Sets or removes the quota of the directory of a name, or removes the directory.
fn change_quota(meta: &Cluster, (name, kind): (usize, usize), number: u64) {
    let Ok((directory, generation)) = meta.directory(format!("d{}", name % 2)) else {
        return;
    };
    let large = QuotaChange {
        bytes: Some(Limit::AtMost(1 << 40)),
        files: None,
    };
    let done = match kind {
        0 => meta.set_directory_quota(directory, large),
        1 => meta.remove_directory_quota(directory),
        _ => meta.remove_directory(directory, (generation, number)),
    };
    let is_refused = match &done {
        Err(MetaError::Quota(QuotaError::LinkedOutside { .. })) => kind == 0,
        Err(MetaError::NotEmpty(_)) => kind == 2,
        _ => false,
    };
    assert!(done.is_ok() || is_refused, "{done:?}");
}

/// Carries operations out on a cluster and on the model, and compares the two after each.
fn run(operations: &[Operation]) {
    let (mut meta, mut opened, [pool, inline_pool]) = furnished();
    let mut expected = Expected::default();
    for (number, operation) in (1000..).zip(operations) {
        let known = |name: usize| meta.file(&path(name)).ok();
        match *operation {
            Operation::Put { name, is_inline } => {
                let put = put(&meta, [pool, inline_pool], is_inline, (&path(name), number));
                expected.set(&path(name), Some(put));
            }
            Operation::Link { name, to } => {
                if let (Some(file), None) = (known(name), known(to)) {
                    let linked = meta.link(file.put, (file.generation, number), path(to));
                    if is_made(&linked) {
                        expected.set(&path(to), Some(file.put));
                    }
                }
            }
            Operation::Rename { name, to } => {
                let is_same = known(name).map(|file| file.put) == known(to).map(|file| file.put);
                if let Some(file) = known(name).filter(|_| !is_same)
                    && rename(&meta, &file, (name, to), number)
                {
                    expected.set(&path(to), Some(file.put));
                    expected.set(&path(name), None);
                }
            }
            Operation::Remove { name } => {
                if known(name).is_some() {
                    remove(&meta, &path(name), number);
                    expected.set(&path(name), None);
                }
            }
            Operation::Open { name } => {
                if let Some(file) = known(name) {
                    opened.set(file.put, true);
                    expected.open.insert(file.put);
                }
            }
            Operation::Close { pick } => {
                if let Some(put) = expected.open.iter().nth(pick).copied() {
                    opened.set(put, false);
                    expected.open.remove(&put);
                }
            }
            Operation::Quota { name, kind } => change_quota(&meta, (name, kind), number),
            Operation::Free => {
                expected.free(free_all(&meta));
            }
            Operation::Restart => {
                // The next coordinator knows of no open file: any may be open.
                opened = Arc::new(Opened::default());
                opened.known().any_may_be_open = true;
                let clock = WallClock::stopped(WallTime::default());
                let next = Meta::open(meta.into_store(), clock).expect("the cluster");
                meta = next.with_open_files(Arc::clone(&opened) as _);
                expected.any_may_be_open = true;
            }
            Operation::Report => {
                let mut known = opened.known();
                known.open.clone_from(&expected.open);
                known.any_may_be_open = false;
                expected.any_may_be_open = false;
            }
        }
        compare(&meta, &expected);
        assert!(opened.are_settled());
    }
}

fn compare(meta: &Cluster, expected: &Expected) {
    assert_eq!(meta.check(), Ok(vec![]));
    let files = meta.files("", None, 99).expect("files");
    let names = files.into_iter().map(|file| (file.name, file.put));
    assert_eq!(names.collect::<BTreeMap<_, _>>(), expected.names);
    let orphans = meta.orphans(None, 99).expect("rows");
    assert!(orphans.iter().eq(&expected.orphans), "{orphans:?}");
    for put in &expected.open {
        assert!(link_count(meta, *put).is_some(), "{put} is open and gone");
    }
    let all = meta.files_by_put(None, 99).expect("files");
    let puts: BTreeSet<PutId> = expected
        .names
        .values()
        .chain(&expected.orphans)
        .copied()
        .collect();
    assert!(all.iter().map(|file| &file.put).eq(&puts));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_open_file_is_lost_and_no_closed_one_stays(
        operations in prop::collection::vec(operation(), 1..60)
    ) {
        run(&operations);
    }
}
