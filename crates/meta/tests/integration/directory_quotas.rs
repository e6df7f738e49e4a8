//! Quotas of directories: random operations against a count of the whole tree, and the limits.

use crate::fixture::cluster;
use gabion_meta::{
    DirectoryId, DirectoryUse, Existing, FILE_BYTES_MAX, FencingToken, Inode, Limit, MemoryStore,
    Meta, MetaError, NewAttributes, PoolRecord, PutId, QUOTA_DIRECTORIES_MAX, QUOTA_ENTRIES_MAX,
    Quota, QuotaChange, QuotaError, Rewrite, SeenName, SizeChange,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Operation {
    Put(String, u64),
    Grow(String, u64),
    Truncate(String, u64),
    Remove(String),
    Make(String),
    RemoveDirectory(String),
    Rename(String, String),
    Link(String, String),
    Exchange(String, String),
    SetQuota(String, Option<u64>, Option<u64>),
    RemoveQuota(String),
}

/// Paths of up to three names of few letters: many meet.
fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn operation() -> impl Strategy<Value = Operation> {
    let size = || 0..1000u64;
    let limit = |most: u64| prop::option::weighted(0.7, 0..most);
    prop_oneof![
        6 => (path(), size()).prop_map(|(path, size)| Operation::Put(path, size)),
        3 => (path(), size()).prop_map(|(path, size)| Operation::Grow(path, size)),
        2 => (path(), size()).prop_map(|(path, size)| Operation::Truncate(path, size)),
        1 => path().prop_map(Operation::Remove),
        3 => path().prop_map(Operation::Make),
        1 => path().prop_map(Operation::RemoveDirectory),
        5 => (path(), path()).prop_map(|(from, to)| Operation::Rename(from, to)),
        3 => (path(), path()).prop_map(|(from, to)| Operation::Link(from, to)),
        3 => (path(), path()).prop_map(|(one, other)| Operation::Exchange(one, other)),
        5 => (path(), limit(3000), limit(8))
            .prop_map(|(path, bytes, files)| Operation::SetQuota(path, bytes, files)),
        1 => path().prop_map(Operation::RemoveQuota),
    ]
}

type Cluster = Meta<MemoryStore>;

/// The tree, and the quotas that were set.
#[derive(Clone, Default)]
struct Tree {
    paths: BTreeMap<String, Inode>,
    sizes: BTreeMap<PutId, u64>,
    quotas: BTreeMap<DirectoryId, Quota>,
}

impl Tree {
    /// The tree as its directories list it.
    fn read(meta: &Cluster, quotas: BTreeMap<DirectoryId, Quota>) -> Self {
        let mut tree = Self {
            quotas,
            ..Self::default()
        };
        let mut open = vec![(String::new(), DirectoryId::ROOT)];
        while let Some((base, id)) = open.pop() {
            let (entries, _) = meta.read_directory(id, None, usize::MAX).expect("there");
            for entry in entries {
                let path = format!("{base}{}", entry.name);
                match entry.status.inode {
                    Inode::File(put) => drop(tree.sizes.insert(put, entry.status.size_bytes)),
                    Inode::Directory(id) => open.push((format!("{path}/"), id)),
                }
                tree.paths.insert(path, entry.status.inode);
            }
        }
        let inodes: BTreeSet<_> = tree.paths.values().copied().collect();
        let is_there = |id: &DirectoryId, _: &mut Quota| inodes.contains(&Inode::Directory(*id));
        tree.quotas.retain(is_there);
        tree
    }

    fn has_own(&self, inode: Inode) -> Option<DirectoryId> {
        match inode {
            Inode::Directory(id) if self.quotas.contains_key(&id) => Some(id),
            _ => None,
        }
    }

    /// The directory with a quota above a path.
    fn above(&self, path: &str) -> Option<DirectoryId> {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        let own = |path| self.paths.get(path).and_then(|inode| self.has_own(*inode));
        above.filter_map(own).next_back()
    }

    /// What is below a directory.
    fn below(&self, id: DirectoryId) -> DirectoryUse {
        let is_below = |path: &&String| self.above(path) == Some(id);
        let inodes: BTreeSet<_> = self
            .paths
            .keys()
            .filter(is_below)
            .map(|path| self.paths[path])
            .collect();
        let size = |inode: &Inode| match inode {
            Inode::File(put) => self.sizes[put],
            Inode::Directory(_) => 0,
        };
        DirectoryUse {
            bytes: inodes.iter().map(size).sum(),
            entries: inodes.len() as u64,
        }
    }

    /// Whether the metadata have counted the same.
    fn compare(&self, meta: &Cluster) {
        assert_eq!(meta.check(), Ok(vec![]));
        for (path, &inode) in &self.paths {
            let (own, above) = (self.has_own(inode), self.above(path));
            assert!(
                own.is_none() || above.is_none(),
                "'{path}' is below another"
            );
            let status = meta.directory_quota(inode).expect("it is there");
            let of = status.as_ref().map(|status| status.directory);
            assert_eq!(of, own.or(above), "{path}");
            if let Some((status, id)) = status.zip(own) {
                assert_eq!((&status.path, status.quota), (path, self.quotas[&id]));
                assert_eq!(status.used, self.below(id), "{path}");
            }
        }
        let all = meta.directory_quotas().expect("rows").into_iter();
        let all: BTreeMap<_, _> = all.map(|known| (known.directory, known.quota)).collect();
        assert_eq!(all, self.quotas);
    }

    /// Nothing grows beyond its quota.
    fn check_limits(&self, before: &Self) {
        for (&id, quota) in &self.quotas {
            let (new, old) = (self.below(id), before.below(id));
            let fits = |limit: Limit, new: u64, old: u64| {
                limit.number().is_none_or(|limit| new <= limit) || new <= old
            };
            assert!(
                fits(quota.bytes, new.bytes, old.bytes),
                "{old:?} {new:?} {quota:?}"
            );
            assert!(
                fits(quota.files, new.entries, old.entries),
                "{old:?} {new:?} {quota:?}"
            );
        }
    }

    /// A file of this size would exceed the quota.
    fn check_has_no_room(&self, path: &str, size: u64) {
        let id = self.above(path).expect("it is below one");
        // A file with other names stays.
        let has_one = |inode: &Inode| self.paths.values().filter(|of| *of == inode).count() == 1;
        let replaced = match self.paths.get(path).filter(|inode| has_one(inode)) {
            Some(Inode::File(put)) => self.sizes[put],
            _ => 0,
        };
        let sum = self.below(id).bytes - replaced + size;
        assert!(sum > self.quotas[&id].bytes.number().expect("a limit"));
    }

    /// A refusal has a reason.
    fn check_refusal(&self, operation: &Operation, refusal: &QuotaError) {
        let count = |path: &String| {
            let inode = self.paths.get(path);
            inode.and_then(|inode| self.has_own(*inode).is_none().then(|| self.above(path))?)
        };
        let crosses = |from: &String, to: &String| self.above(to) != count(from);
        match (operation, refusal) {
            (Operation::Rename(from, to) | Operation::Link(from, to), QuotaError::Border(_)) => {
                assert!(crosses(from, to), "{operation:?}");
            }
            (Operation::Exchange(one, other), QuotaError::Border(_)) => {
                assert!(crosses(one, other) || crosses(other, one), "{operation:?}");
            }
            (
                Operation::Grow(path, size) | Operation::Put(path, size),
                QuotaError::DirectoryBytes { .. },
            ) => self.check_has_no_room(path, *size),
            (
                Operation::Put(path, _)
                | Operation::Make(path)
                | Operation::Rename(_, path)
                | Operation::Link(_, path),
                QuotaError::DirectoryFiles { .. },
            ) => {
                let id = self.above(path).expect("it is below one");
                let most = self.quotas[&id].files.number().expect("a limit");
                let missing = path.match_indices('/').map(|(at, _)| &path[..at]);
                let missing = missing
                    .filter(|path| !self.paths.contains_key(*path))
                    .count();
                assert!(
                    self.below(id).entries + missing as u64 + 1 > most,
                    "{operation:?}"
                );
            }
            (
                Operation::SetQuota(path, ..) | Operation::RemoveQuota(path),
                QuotaError::Nested { .. },
            ) => {
                let own = |inode: &Inode| self.has_own(*inode).is_some();
                let below = format!("{path}/");
                let mut lower = self.paths.range(below.clone()..);
                let has_lower = lower.any(|(path, inode)| path.starts_with(&below) && own(inode));
                assert!(self.above(path).is_some() || has_lower);
            }
            (Operation::SetQuota(path, ..), QuotaError::LinkedOutside { .. }) => {
                let below = |other: &String| other.starts_with(&format!("{path}/"));
                let files = |inside: bool| -> BTreeSet<_> {
                    let paths = self.paths.iter().filter(|(path, _)| below(path) == inside);
                    paths.map(|(_, inode)| *inode).collect()
                };
                assert!(files(true).intersection(&files(false)).next().is_some());
            }
            other => panic!("{other:?}"),
        }
    }
}

fn change(bytes: Option<u64>, files: Option<u64>) -> QuotaChange {
    let limit = |most: Option<u64>| Some(most.map_or(Limit::Unlimited, Limit::AtMost));
    QuotaChange {
        bytes: limit(bytes),
        files: limit(files),
    }
}

fn put(meta: &Cluster, pool: &PoolRecord, path: &str, size: u64) -> Result<(), MetaError> {
    let new = (path, Existing::IsReplaced, NewAttributes::FILE);
    // The whole size counts early, and nothing else before the commit.
    let begun = meta.begin_put(new, pool.id, 0, &[], 0)?;
    let file = meta.commit_put(begun.id, 0)?;
    meta.grow(file.put, size, 0).map(drop)
}

fn directory(meta: &Cluster, path: &str) -> Result<DirectoryId, MetaError> {
    match meta.inode(path)?.inode {
        Inode::Directory(id) => Ok(id),
        Inode::File(_) => Err(MetaError::NotADirectory(path.to_owned())),
    }
}

fn seen(meta: &Cluster, path: &str) -> Result<SeenName, MetaError> {
    let status = meta.inode(path)?;
    Ok(SeenName {
        at: path.into(),
        inode: status.inode,
        generation: status.generation,
    })
}

fn run(meta: &Cluster, pool: &PoolRecord, operation: &Operation) -> Result<(), MetaError> {
    let number = meta.change_count();
    match operation {
        Operation::Put(path, size) => put(meta, pool, path, *size),
        Operation::Grow(path, size) => {
            let file = meta.file(path)?;
            meta.grow(file.put, *size, file.truncation_count).map(drop)
        }
        Operation::Truncate(path, size) => {
            let file = meta.file(path)?;
            let rewrite = Rewrite {
                offsets: Vec::new(),
                displaced: Vec::new(),
                copied: Vec::new(),
                size: SizeChange::Exactly(file.size_bytes.min(*size)),
                inline: None,
                token: FencingToken(0),
            };
            let begun = meta.begin_replacement(file.put, &rewrite, &[], 0)?;
            meta.commit_replacement(begun.id).map(drop)
        }
        Operation::Remove(path) => {
            let file = meta.file(path)?;
            meta.remove_file(path, file.put, (file.generation, number))
        }
        Operation::Make(path) => meta.make_directory(path, NewAttributes::DIRECTORY, number),
        Operation::RemoveDirectory(path) => {
            let name = seen(meta, path)?;
            meta.remove_directory(directory(meta, path)?, (name.generation, number))
        }
        Operation::Rename(from, to) => {
            let name = seen(meta, from)?;
            let version = (name.generation, number);
            match name.inode {
                Inode::File(put) => meta.rename((put, from), version, to, Existing::IsReplaced),
                Inode::Directory(id) => {
                    meta.rename_directory(id, version, to, Existing::IsReplaced)
                }
            }
        }
        Operation::Link(from, to) => {
            let file = meta.file(from)?;
            meta.link(file.put, (file.generation, number), to)
        }
        Operation::Exchange(one, other) => {
            meta.exchange_names(&[seen(meta, one)?, seen(meta, other)?], number)
        }
        Operation::SetQuota(path, bytes, files) => {
            meta.set_directory_quota(directory(meta, path)?, change(*bytes, *files))
        }
        Operation::RemoveQuota(path) => meta.remove_directory_quota(directory(meta, path)?),
    }
}

proptest! {
    #[test]
    fn quotas_count_what_the_tree_has(operations in prop::collection::vec(operation(), 1..60)) {
        let (meta, pool) = cluster();
        let mut tree = Tree::default();
        for operation in operations {
            let done = run(&meta, &pool, &operation);
            let mut quotas = tree.quotas.clone();
            match (&operation, &done) {
                (Operation::SetQuota(path, bytes, files), Ok(())) => {
                    let QuotaChange { bytes, files } = change(*bytes, *files);
                    let id = directory(&meta, path).expect("it has a quota");
                    let (bytes, files) = (bytes.expect("set"), files.expect("set"));
                    match (Quota { bytes, files }) {
                        quota if quota == Quota::default() => quotas.remove(&id),
                        quota => quotas.insert(id, quota),
                    };
                }
                (Operation::RemoveQuota(path), Ok(())) => {
                    quotas.remove(&directory(&meta, path).expect("it is there"));
                }
                (_, Err(MetaError::Quota(refusal))) => tree.check_refusal(&operation, refusal),
                _ => {}
            }
            let after = Tree::read(&meta, quotas);
            after.compare(&meta);
            if !matches!(operation, Operation::SetQuota(..)) {
                after.check_limits(&tree);
            }
            tree = after;
        }
    }
}

#[test]
fn a_put_that_will_not_fit_is_refused_when_it_begins_and_again_at_its_commit() {
    let (meta, pool) = cluster();
    put(&meta, &pool, "d/old", 600).expect("no quota");
    let id = directory(&meta, "d").expect("made");
    meta.set_directory_quota(id, change(Some(1000), None))
        .expect("few entries");
    let begin = |name: &str, size: u64| {
        let new = (name, Existing::IsReplaced, NewAttributes::FILE);
        let place = crate::fixture::place(0);
        meta.begin_put(new, pool.id, size, &[place], 0)
    };
    let refused = QuotaError::DirectoryBytes {
        directory: "d".to_owned(),
        limit: 1000,
        used: 600,
        more: 500,
    };
    assert_eq!(begin("d/new", 500), Err(refused.into()));
    assert!(begin("d/below/new", 401).is_err(), "directories inherit it");
    let old = meta.file("d/old").expect("made");
    let rewrite = Rewrite {
        offsets: vec![0],
        displaced: Vec::new(),
        copied: Vec::new(),
        size: SizeChange::AtLeast(1001),
        inline: old.inline.map(|inline| inline.version),
        token: FencingToken(0),
    };
    let place = [crate::fixture::place(0)];
    let larger = meta.begin_replacement(old.put, &rewrite, &place, 0);
    let is_full = |refused: &MetaError| {
        matches!(refused, MetaError::Quota(QuotaError::DirectoryBytes { .. }))
    };
    assert!(larger.as_ref().is_err_and(is_full), "{larger:?}");
    // The place of the old file counts, and two puts that both fit alone do not fit together.
    let over = begin("d/old", 900).expect("it fits");
    let beside = begin("d/new", 400).expect("it fits");
    meta.commit_put(over.id, 0).expect("it is first");
    let late = meta.commit_put(beside.id, 0);
    assert!(
        matches!(
            late,
            Err(MetaError::Quota(QuotaError::DirectoryBytes { .. }))
        ),
        "{late:?}"
    );
    assert_eq!(meta.abort_put(beside.id), Ok(true));
    assert_eq!(meta.check(), Ok(vec![]));
}

/// Begins a put of `size` bytes in one stripe.
fn begin(meta: &Cluster, pool: &PoolRecord, path: &str, size: u64) -> Result<PutId, MetaError> {
    let new = (path, Existing::IsReplaced, NewAttributes::FILE);
    let place = crate::fixture::place(0);
    let begun = meta.begin_put(new, pool.id, size, &[place], 0);
    begun.map(|put| put.id)
}

fn is_too_large(refused: &Result<PutId, MetaError>) -> bool {
    matches!(
        refused,
        Err(MetaError::Quota(QuotaError::DirectoryBytes { .. }))
    )
}

fn is_too_many(refused: &Result<PutId, MetaError>) -> bool {
    matches!(
        refused,
        Err(MetaError::Quota(QuotaError::DirectoryFiles { .. }))
    )
}

#[test]
fn a_file_that_takes_the_place_of_a_larger_one_is_not_refused_by_a_lowered_quota() {
    let (meta, pool) = cluster();
    put(&meta, &pool, "d/f", 600).expect("no quota");
    let id = directory(&meta, "d").expect("made");
    let set = |bytes: u64, files: u64| {
        meta.set_directory_quota(id, change(Some(bytes), Some(files)))
            .expect("few entries");
    };
    set(1000, 1);
    let larger = begin(&meta, &pool, "d/f", 900).expect("it fits");
    set(100, 0);
    assert!(is_too_large(&begin(&meta, &pool, "d/f", 700)));
    let late = meta.commit_put(larger, 0).map(|file| file.put);
    assert!(is_too_large(&late), "{late:?}");
    assert_eq!(meta.abort_put(larger), Ok(true));
    for size in [600, 500] {
        let smaller = begin(&meta, &pool, "d/f", size).expect("it is no larger");
        meta.commit_put(smaller, 0).expect("it is no larger");
        let status = meta.directory_quota(Inode::Directory(id)).expect("there");
        let used = status.expect("set").used;
        assert_eq!((used.bytes, used.entries), (size, 1));
        assert_eq!(meta.check(), Ok(vec![]));
    }
}

#[test]
fn what_was_made_is_not_refused_when_its_answer_was_lost_and_the_quota_is_lowered() {
    const SEGMENT: u64 = 4096;
    let (meta, pool) = cluster();
    let begun = begin(&meta, &pool, "d/new", SEGMENT).expect("no quota");
    put(&meta, &pool, "d/old", 600).expect("no quota");
    let old = meta.file("d/old").expect("made").put;
    let extend = || {
        let more = [crate::fixture::place(1)];
        let extended = meta.extend_put(begun, (0, 1), 2 * SEGMENT, &more, 2);
        extended.map(|(_, stripes)| stripes.len())
    };
    let grow = || {
        let grown = meta.grow_from(old, (600, 10), (77, 0), FencingToken(0));
        grown.map(|(file, is_done)| (file.size_bytes, is_done))
    };
    assert_eq!(extend(), Ok(2));
    assert_eq!(grow(), Ok((610, true)));
    let id = directory(&meta, "d").expect("made");
    meta.set_directory_quota(id, change(Some(1), None))
        .expect("few entries");
    assert_eq!(extend(), Ok(2));
    assert_eq!(grow(), Ok((610, true)));
}

#[test]
fn a_put_that_brings_directories_or_leaves_the_old_file_is_refused_when_it_begins() {
    let (meta, pool) = cluster();
    put(&meta, &pool, "d/f", 600).expect("no quota");
    let id = directory(&meta, "d").expect("made");
    let set = |bytes: Option<u64>, files: Option<u64>| {
        meta.set_directory_quota(id, change(bytes, files))
            .expect("few entries");
    };
    set(None, Some(3));
    assert!(is_too_many(&begin(&meta, &pool, "d/1/2/new", 1)));
    assert!(begin(&meta, &pool, "d/1/new", 1).is_ok());
    // Its other name keeps the file.
    let file = meta.file("d/f").expect("made");
    meta.link(file.put, (file.generation, 901), "d/g")
        .expect("a free name");
    set(Some(1000), None);
    assert!(is_too_large(&begin(&meta, &pool, "d/f", 500)));
    assert!(begin(&meta, &pool, "d/f", 400).is_ok());
    set(None, Some(1));
    assert!(is_too_many(&begin(&meta, &pool, "d/f", 1)));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn files_whose_sizes_together_exceed_all_numbers_change_theirs() {
    let (meta, pool) = cluster();
    meta.make_directory("d", NewAttributes::DIRECTORY, 1)
        .expect("free");
    let id = directory(&meta, "d").expect("made");
    meta.set_directory_quota(id, change(None, Some(10)))
        .expect("empty");
    let grow = |path: &str, size_bytes: u64| {
        let put = meta.file(path).expect("made").put;
        meta.grow(put, size_bytes, 0)
            .map(|(file, _)| file.size_bytes)
    };
    for path in ["d/a", "d/b", "d/c"] {
        put(&meta, &pool, path, 1).expect("it fits");
    }
    assert_eq!(grow("d/a", FILE_BYTES_MAX), Ok(FILE_BYTES_MAX));
    assert_eq!(grow("d/b", FILE_BYTES_MAX - 9), Ok(FILE_BYTES_MAX - 9));
    assert_eq!(grow("d/b", FILE_BYTES_MAX), Ok(FILE_BYTES_MAX));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_snapshot_counts_where_it_is_made() {
    let (meta, pool) = cluster();
    put(&meta, &pool, "f", 700).expect("no quota");
    meta.make_directory("d", NewAttributes::DIRECTORY, 1)
        .expect("free");
    let id = directory(&meta, "d").expect("made");
    meta.set_directory_quota(id, change(Some(1000), None))
        .expect("empty");
    let file = meta.file("f").expect("made");
    let tokens = meta.freeze(&[file.put]).expect("no session");
    let source = (Inode::File(file.put), &tokens);
    let snapshot = |to: &str, number| meta.snapshot(source, to, true, (number, 0));
    snapshot("d/s", 11).expect("it fits");
    let second = snapshot("d/t", 12);
    assert!(matches!(second, Err(MetaError::Quota(_))), "{second:?}");
    let used = meta
        .directory_quota(Inode::Directory(id))
        .expect("there")
        .expect("set")
        .used;
    assert_eq!(
        used,
        DirectoryUse {
            bytes: 700,
            entries: 1
        }
    );
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_directory_with_too_much_below_it_gets_no_quota() {
    let (meta, _) = cluster();
    let make = |at: usize| {
        let path = format!("d/{}/{at}", at % 7);
        meta.make_directory(path, NewAttributes::DIRECTORY, at as u64)
            .expect("free");
    };
    (0..QUOTA_ENTRIES_MAX - 7).for_each(make);
    let id = directory(&meta, "d").expect("made");
    meta.set_directory_quota(id, change(None, Some(9000)))
        .expect("as many as may be");
    make(QUOTA_ENTRIES_MAX);
    let limit = QUOTA_ENTRIES_MAX;
    let directory = "d".to_owned();
    let refused = QuotaError::TooManyEntries { directory, limit };
    assert_eq!(meta.remove_directory_quota(id), Err(refused.into()));
    // Its limits can still be changed and lifted. Without limits it stays until fewer are below.
    meta.set_directory_quota(id, change(None, None))
        .expect("no row below changes");
    let own = || {
        let status = meta.directory_quota(Inode::Directory(id)).expect("there");
        status.map(|status| (status.quota, status.used.entries))
    };
    assert_eq!(
        own(),
        Some((Quota::default(), QUOTA_ENTRIES_MAX as u64 + 1))
    );
    assert_eq!(meta.check(), Ok(vec![]));
    let path = format!("d/{}/{QUOTA_ENTRIES_MAX}", QUOTA_ENTRIES_MAX % 7);
    remove_directory(&meta, &path);
    meta.set_directory_quota(id, change(None, None))
        .expect("as many as may be");
    assert_eq!(own(), None);
    assert_eq!(meta.check(), Ok(vec![]));
}

fn remove_directory(meta: &Cluster, path: &str) {
    let name = seen(meta, path).expect("it is there");
    let id = directory(meta, path).expect("it is there");
    let removed = meta.remove_directory(id, (name.generation, meta.change_count()));
    removed.expect("it is empty");
}

#[test]
fn a_quota_whose_last_limit_is_lifted_is_gone() {
    let (meta, pool) = cluster();
    put(&meta, &pool, "d/f", 10).expect("no quota");
    put(&meta, &pool, "outside", 10).expect("no quota");
    let id = directory(&meta, "d").expect("made");
    let file = meta.file("outside").expect("made");
    let set = |bytes: Option<Limit>, files: Option<Limit>| {
        meta.set_directory_quota(id, QuotaChange { bytes, files })
            .expect("few entries");
    };
    let has_quota = || {
        let status = meta.directory_quota(Inode::Directory(id)).expect("there");
        assert_eq!(meta.check(), Ok(vec![]));
        status.is_some()
    };
    let crosses = |number: u64| {
        let moved = meta.rename(
            (file.put, "outside"),
            (file.generation, number),
            "d/in",
            Existing::Stays,
        );
        matches!(moved, Err(MetaError::Quota(QuotaError::Border(_))))
    };
    // What has no limit gets no quota.
    set(Some(Limit::Unlimited), None);
    assert!(!has_quota());
    set(Some(Limit::AtMost(100)), Some(Limit::AtMost(5)));
    set(Some(Limit::Unlimited), None);
    assert!(has_quota(), "the limit of files stays");
    assert!(crosses(901));
    set(None, Some(Limit::Unlimited));
    assert!(!has_quota());
    assert!(!crosses(902), "there is no border any more");
    assert_eq!(meta.directory_quotas(), Ok(vec![]));
}

#[test]
fn the_number_of_directories_with_quotas_is_limited() {
    let (meta, _) = cluster();
    for at in 0..=QUOTA_DIRECTORIES_MAX {
        let path = format!("d{at}");
        meta.make_directory(&path, NewAttributes::DIRECTORY, at as u64)
            .expect("free");
        let set = meta.set_directory_quota(
            directory(&meta, &path).expect("made"),
            change(None, Some(9)),
        );
        assert_eq!(set.is_ok(), at < QUOTA_DIRECTORIES_MAX, "{at}: {set:?}");
    }
}
