//! Directories: a model of paths against the metadata under random operations, and the limits.

use crate::fixture::{Directories as _, cluster, cluster_at};
use gabion_meta::{
    AttributeChange, Attributes, DirectoryEntry, DirectoryId, Existing, Inode, InodeStatus,
    Listing, MemoryStore, Meta, MetaError, NewAttributes, PoolRecord, PutId, RelativePath,
    SeenName, WallClock, WallTime,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

#[derive(Clone, Debug)]
enum Operation {
    Put(String),
    Remove(String),
    Rename(String, String),
    Make(String),
    RemoveDirectory(String),
    RenameDirectory(String, String),
    Exchange(String, String),
    SetMode(String, u32),
    Link(String, String),
    Symlink(String),
}

/// Of files that are put.
const FILE: NewAttributes = NewAttributes {
    mode: 0o640,
    owner: 7,
    group: 8,
    ..NewAttributes::FILE
};
/// Of directories that are made.
const DIRECTORY: NewAttributes = NewAttributes {
    mode: 0o700,
    owner: 9,
    group: 10,
    ..NewAttributes::DIRECTORY
};

/// Paths of up to three names of few letters: many meet, and some sort before or behind `/`.
fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "a-", "a0", "ü"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => path().prop_map(Operation::Put),
        1 => path().prop_map(Operation::Remove),
        2 => (path(), path()).prop_map(|(from, to)| Operation::Rename(from, to)),
        2 => path().prop_map(Operation::Make),
        1 => path().prop_map(Operation::RemoveDirectory),
        3 => (path(), path()).prop_map(|(from, to)| Operation::RenameDirectory(from, to)),
        3 => (path(), path()).prop_map(|(one, other)| Operation::Exchange(one, other)),
        2 => (path(), path()).prop_map(|(from, to)| Operation::Link(from, to)),
        1 => path().prop_map(Operation::Symlink),
        2 => (path(), 0..0o10000u32).prop_map(|(path, mode)| Operation::SetMode(path, mode)),
    ]
}

/// The paths above a path, from the top.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

fn kind(error: &MetaError) -> &'static str {
    match error {
        MetaError::UnknownFile(_) | MetaError::UnknownPath(_) => "no file",
        MetaError::FileExists(_) => "a file is there",
        MetaError::DirectoryExists(_) => "a directory is there",
        MetaError::IsADirectory(_) => "is a directory",
        MetaError::NotADirectory(_) => "is no directory",
        MetaError::NotEmpty(_) => "not empty",
        MetaError::IntoItself(_) => "into itself",
        other => panic!("{other:?}"),
    }
}

/// The result of an operation, and the expected one.
type Outcomes = (Result<(), MetaError>, Result<(), &'static str>);

/// Paths, each with what has it, and the attributes of all inodes.
#[derive(Clone)]
struct Model(BTreeMap<String, Inode>, BTreeMap<Inode, Attributes>);

impl Model {
    fn find(&self, path: &str) -> Result<Option<Inode>, &'static str> {
        for path in above(path) {
            match self.0.get(path) {
                Some(Inode::Directory(_)) => {}
                Some(Inode::File(_)) => return Err("is no directory"),
                None => return Ok(None),
            }
        }
        Ok(self.0.get(path).copied())
    }

    fn file(&self, path: &str) -> Result<PutId, &'static str> {
        match self.find(path)? {
            Some(Inode::File(put)) => Ok(put),
            Some(Inode::Directory(_)) => Err("is a directory"),
            None => Err("no file"),
        }
    }

    fn directory(&self, path: &str) -> Result<DirectoryId, &'static str> {
        match self.find(path)? {
            Some(Inode::Directory(id)) => Ok(id),
            Some(Inode::File(_)) => Err("is no directory"),
            None => Err("no file"),
        }
    }

    /// Whether a file may get the path, if none that is there may be replaced.
    fn check_name(&self, path: &str) -> Result<(), &'static str> {
        match self.find(path)? {
            None => Ok(()),
            Some(Inode::Directory(_)) => Err("is a directory"),
            Some(Inode::File(_)) => Err("a file is there"),
        }
    }

    fn check_free(&self, path: &str) -> Result<(), &'static str> {
        match self.find(path)? {
            None => Ok(()),
            Some(Inode::Directory(_)) => Err("a directory is there"),
            Some(Inode::File(_)) => Err("a file is there"),
        }
    }

    /// Gives a path, and asks the metadata which directories it has made above.
    fn insert(&mut self, meta: &Meta<MemoryStore>, path: &str, known: Inode) {
        for path in above(path) {
            let id = || Inode::Directory(meta.directory(path).expect("it is made").0);
            self.0.entry(path.to_owned()).or_insert_with(id);
        }
        self.0.insert(path.to_owned(), known);
    }

    fn is_below(path: &str, directory: &str) -> bool {
        let rest = path.strip_prefix(directory);
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// The same operation here and there.
    fn run(&mut self, meta: &Meta<MemoryStore>, pool: &PoolRecord, operation: &Operation) {
        let (found, expected) = match operation {
            Operation::Put(path) => self.put(meta, pool, path),
            Operation::Remove(path) => self.remove(meta, path),
            Operation::Rename(from, to) => self.rename(meta, from, to),
            Operation::Make(path) => self.make(meta, path),
            Operation::RemoveDirectory(path) => self.remove_directory(meta, path),
            Operation::RenameDirectory(from, to) => self.rename_directory(meta, from, to),
            Operation::Exchange(one, other) => self.exchange(meta, one, other),
            Operation::SetMode(path, mode) => self.set_mode(meta, path, *mode),
            Operation::Link(from, to) => self.link(meta, from, to),
            Operation::Symlink(path) => self.symlink(meta, pool, path),
        };
        assert_eq!(
            found.map_err(|error| kind(&error)),
            expected,
            "{operation:?}"
        );
    }

    /// The names in each directory. The root's path is empty.
    fn names(&self) -> BTreeMap<Inode, BTreeMap<&str, Inode>> {
        let mut names = BTreeMap::from([(ROOT, BTreeMap::new())]);
        for (path, &inode) in &self.0 {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let parent = self.0.get(above).copied().unwrap_or(ROOT);
            names
                .entry(parent)
                .or_insert_with(BTreeMap::new)
                .insert(name, inode);
        }
        names
    }

    /// Notes the expected attributes after an operation that has changed the names since `before`.
    fn note_times(&mut self, before: &Self, operation: &Operation, now: WallTime) {
        let (old, new) = (before.names(), self.names());
        let places = |names: &BTreeMap<Inode, BTreeMap<&str, Inode>>, inode: Inode| {
            let mut places = BTreeSet::new();
            for (parent, names) in names {
                let its = names.iter().filter(|(_, other)| **other == inode);
                places.extend(its.map(|(name, _)| (*parent, (*name).to_owned())));
            }
            places
        };
        let made_above = |of: &str| {
            let moved = before.0.get(of).map(|inode| before.1[inode]);
            moved.map_or((0, 0), |moved| (moved.owner, moved.group))
        };
        let mut attributes = BTreeMap::new();
        for inode in self.0.values().copied().chain([ROOT]) {
            let born = || {
                let attributes = match (operation, inode) {
                    (Operation::Put(_) | Operation::Symlink(_), Inode::File(_)) => FILE,
                    (Operation::Make(_), _) => DIRECTORY,
                    (Operation::Put(_) | Operation::Symlink(_), _) => {
                        above_with((FILE.owner, FILE.group))
                    }
                    (
                        Operation::Rename(from, _)
                        | Operation::RenameDirectory(from, _)
                        | Operation::Link(from, _),
                        _,
                    ) => above_with(made_above(from)),
                    other => panic!("{other:?} makes nothing"),
                };
                Attributes::new(attributes, now)
            };
            let mut expected = before.1.get(&inode).copied().unwrap_or_else(born);
            if old.get(&inode) != new.get(&inode) {
                (expected.modified, expected.changed) = (now, now);
            }
            if places(&old, inode) != places(&new, inode) {
                expected.changed = now;
            }
            attributes.insert(inode, expected);
        }
        if let Operation::SetMode(path, mode) = operation
            && let Some(set) = self.0.get(path).and_then(|inode| attributes.get_mut(inode))
        {
            (set.mode, set.changed) = (*mode, now);
            set.version += 1;
        }
        self.1 = attributes;
    }

    fn set_mode(&mut self, meta: &Meta<MemoryStore>, path: &str, mode: u32) -> Outcomes {
        let expected = self.find(path).and_then(|found| found.ok_or("no file"));
        let change = AttributeChange {
            mode: Some(mode),
            ..AttributeChange::default()
        };
        let found = meta.inode(path);
        let set = found.and_then(
            |InodeStatus {
                 inode,
                 attributes: known,
                 ..
             }| {
                let request = (known.version, meta.change_count());
                let attributes = meta.set_attributes(inode, request, &change)?;
                // A request that arrives again changes nothing.
                let again = meta.set_attributes(inode, request, &change);
                assert_eq!(again, Ok(attributes));
                again
            },
        );
        (set.map(drop), expected.map(drop))
    }

    fn put(&mut self, meta: &Meta<MemoryStore>, pool: &PoolRecord, path: &str) -> Outcomes {
        let expected = self.check_name(path);
        let new = (self.at(path), Existing::Stays, FILE);
        let begun = meta.begin_put(new, pool.id, 0, &[], 0);
        let made = begun.and_then(|put| meta.commit_put(put.id, 0));
        if let Ok(file) = &made {
            self.insert(meta, path, Inode::File(file.put));
        }
        (made.map(drop), expected)
    }

    fn remove(&mut self, meta: &Meta<MemoryStore>, path: &str) -> Outcomes {
        let file = self.file(path);
        let found = meta.file(path);
        if let Ok(put) = file {
            let generation = meta.file_of(put).expect("it is there").generation;
            let number = meta.change_count();
            let remove = || meta.remove_file(self.at(path), put, (generation, number));
            remove().expect("it is there");
            self.0.remove(path);
            // A repetition changes nothing, whether or not the file has other names.
            let again = meta.remove_file(self.at(path), put, (generation, number));
            assert_eq!(again, Ok(()), "a lost answer");
        }
        (found.map(drop), file.map(drop))
    }

    fn rename(&mut self, meta: &Meta<MemoryStore>, from: &str, to: &str) -> Outcomes {
        let Ok(put) = self.file(from) else {
            return (Ok(()), Ok(()));
        };
        let expected = if from == to {
            Ok(())
        } else {
            self.check_name(to)
        };
        let generation = meta.file_of(put).expect("it is there").generation;
        let version = (generation, meta.change_count());
        let rename = || {
            let (from, to) = ((put, self.at(from)), self.at(to));
            meta.rename(from, version, to, Existing::Stays)
        };
        let renamed = rename();
        if expected.is_ok() {
            assert_eq!(rename(), Ok(()), "a lost answer");
            // Two names of one file are left as they are if one may replace the other.
            for name in self
                .0
                .keys()
                .filter(|name| self.0[*name] == Inode::File(put))
            {
                let generation = meta.file_of(put).expect("it is there").generation;
                let to = if from == to { name } else { to };
                let version = (generation, meta.change_count());
                let same = meta.rename((put, to), version, to, Existing::IsReplaced);
                assert_eq!(same, Ok(()));
            }
        }
        if expected.is_ok() && from != to {
            self.0.remove(from);
            self.insert(meta, to, Inode::File(put));
        }
        (renamed.map(drop), expected)
    }

    fn link(&mut self, meta: &Meta<MemoryStore>, from: &str, to: &str) -> Outcomes {
        let Ok(put) = self.file(from) else {
            return (Ok(()), Ok(()));
        };
        let expected = self.check_free(to);
        let generation = meta.file_of(put).expect("it is there").generation;
        let number = meta.change_count();
        let linked = meta.link(put, (generation, number), self.at(to));
        if expected.is_ok() {
            let again = meta.link(put, (generation, number), self.at(to));
            assert_eq!(again, Ok(()), "a lost answer");
            self.insert(meta, to, Inode::File(put));
        }
        (linked, expected)
    }

    fn symlink(&mut self, meta: &Meta<MemoryStore>, pool: &PoolRecord, path: &str) -> Outcomes {
        let expected = self.check_free(path);
        let number = meta.change_count();
        let ask = || meta.make_symlink(self.at(path), path, (pool.id, FILE), (number, 0));
        let made = ask();
        if made.is_ok() {
            assert_eq!(ask(), Ok(()), "a lost answer");
            let put = meta.file(path).expect("it was made").put;
            assert_eq!(meta.target(put), Ok(Some(path.to_owned())));
            self.insert(meta, path, Inode::File(put));
        }
        (made.map(drop), expected)
    }

    /// A path from the root on, or from the deepest directory on that is above it.
    fn at(&self, path: &str) -> RelativePath {
        if path.len().is_multiple_of(2) {
            return path.into();
        }
        let mut deepest = RelativePath::from(path);
        for above in above(path) {
            if let Ok(Some(Inode::Directory(id))) = self.find(above) {
                deepest = RelativePath::new(id, &path[above.len() + 1..]);
            }
        }
        deepest
    }

    fn make(&mut self, meta: &Meta<MemoryStore>, path: &str) -> Outcomes {
        let expected = self.check_free(path);
        let number = meta.change_count();
        let ask = || meta.make_directory(self.at(path), DIRECTORY, number);
        let made = ask();
        if made.is_ok() {
            assert_eq!(ask(), Ok(()), "a lost answer");
            let id = meta.directory(path).expect("it was made").0;
            self.insert(meta, path, Inode::Directory(id));
        }
        (made.map(drop), expected)
    }

    fn remove_directory(&mut self, meta: &Meta<MemoryStore>, path: &str) -> Outcomes {
        let expected = self
            .directory(path)
            .and_then(|_| self.is_empty(path).then_some(()).ok_or("not empty"));
        if expected.is_ok() {
            self.0.remove(path);
        }
        let found = meta.directory(self.at(path));
        let removed = found.and_then(|(id, generation)| {
            meta.remove_directory(id, (generation, meta.change_count()))
        });
        (removed, expected)
    }

    fn rename_directory(&mut self, meta: &Meta<MemoryStore>, from: &str, to: &str) -> Outcomes {
        let Ok(id) = self.directory(from) else {
            return (Ok(()), Ok(()));
        };
        let expected = if from == to {
            Ok(())
        } else if Self::is_below(to, from) {
            Err("into itself")
        } else if self.is_empty(to) {
            Ok(())
        } else {
            match self.check_free(to) {
                Err("a directory is there") => Err("not empty"),
                other => other,
            }
        };
        let (_, generation) = meta.directory(from).expect("it is there");
        let (at, existing) = (self.at(to), Existing::IsReplaced);
        let version = (generation, meta.change_count());
        let renamed = meta.rename_directory(id, version, at, existing);
        if expected.is_ok() && from != to {
            self.0.remove(to);
            self.insert(meta, to, Inode::Directory(id));
            self.0.remove(from);
            let below = self.0.keys().filter(|path| Self::is_below(path, from));
            for path in below.cloned().collect::<Vec<_>>() {
                let known = self.0.remove(&path).expect("it was found");
                self.0.insert(format!("{to}{}", &path[from.len()..]), known);
            }
        }
        (renamed, expected)
    }

    fn exchange(&mut self, meta: &Meta<MemoryStore>, one: &str, other: &str) -> Outcomes {
        let inode = |path| self.find(path).and_then(|found| found.ok_or("no file"));
        let expected = inode(one).and_then(|first| Ok((first, inode(other)?)));
        let expected = expected.and_then(|(first, second)| {
            let is_below = Self::is_below(one, other) || Self::is_below(other, one);
            if is_below && first != second {
                return Err("into itself");
            }
            Ok((first, second))
        });
        let seen = |path| seen(meta, path, self.at(path));
        let number = meta.change_count();
        let exchanged = seen(one).and_then(|first| {
            let names = [first, seen(other)?];
            meta.exchange_names(&names, number)?;
            let again = meta.exchange_names(&names, number);
            assert_eq!(again, Ok(()), "a lost answer");
            let is_same = names[0].inode == names[1].inode;
            let late = meta.exchange_names(&names, number + 1);
            assert_eq!(late.is_ok(), is_same, "another client's: {late:?}");
            Ok(())
        });
        if let Ok((first, second)) = expected
            && first != second
        {
            let moved = |path: &String| {
                for (from, to) in [(one, other), (other, one)] {
                    if path == from || Self::is_below(path, from) {
                        return format!("{to}{}", &path[from.len()..]);
                    }
                }
                path.clone()
            };
            self.0 = self
                .0
                .iter()
                .map(|(path, &inode)| (moved(path), inode))
                .collect();
        }
        (exchanged, expected.map(drop))
    }

    /// Whether it is the path of an empty directory.
    fn is_empty(&self, path: &str) -> bool {
        let is_empty = || !self.0.keys().any(|other| Self::is_below(other, path));
        self.directory(path).is_ok() && is_empty()
    }

    /// A page as the model sees it: all entries behind `after`, and the first of them.
    fn page(&self, prefix: &str, after: Option<&str>, joins: bool, limit: usize) -> Vec<String> {
        let mut entries: Vec<String> = Vec::new();
        for (path, known) in &self.0 {
            let whole = match known {
                Inode::File(_) => path.clone(),
                // A directory shows itself only where names are joined.
                Inode::Directory(_) if joins => format!("{path}/"),
                Inode::Directory(_) => continue,
            };
            let Some(rest) = whole.strip_prefix(prefix) else {
                continue;
            };
            let end = rest.find('/').filter(|_| joins);
            let entry = end.map_or(whole.clone(), |at| whole[..=prefix.len() + at].to_owned());
            // The directory that a prefix names is not in itself.
            if entry == prefix && prefix.ends_with('/') {
                continue;
            }
            entries.push(entry);
        }
        entries.sort();
        entries.dedup();
        let behind = entries
            .into_iter()
            .filter(|entry| after.is_none_or(|after| entry.as_str() > after));
        behind.take(limit).collect()
    }
}

const ROOT: Inode = Inode::Directory(DirectoryId::ROOT);

fn above_with((owner, group): (u32, u32)) -> NewAttributes {
    NewAttributes {
        owner,
        group,
        ..NewAttributes::DIRECTORY
    }
}

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
fn seen(
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

fn put(meta: &Meta<MemoryStore>, pool: &PoolRecord, path: &str) -> PutId {
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
