//! A model of paths: each has an inode, and each operation runs on the model and on the metadata.

use super::{DIRECTORY, ROOT, seen};
use crate::fixture::Directories as _;
use gabion_meta::{
    AttributeChange, Attributes, DirectoryId, Existing, Inode, InodeStatus, MemoryStore, Meta,
    MetaError, NewAttributes, PoolRecord, PutId, RelativePath, WallTime,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
#[derive(Clone, Debug)]
pub(super) enum Operation {
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
/// Paths of up to three names of few letters: many meet, and some sort before or behind `/`.
fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "a-", "a0", "ü"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

pub(super) fn operation() -> impl Strategy<Value = Operation> {
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
pub(super) struct Model(
    pub(super) BTreeMap<String, Inode>,
    pub(super) BTreeMap<Inode, Attributes>,
);

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
    pub(super) fn run(
        &mut self,
        meta: &Meta<MemoryStore>,
        pool: &PoolRecord,
        operation: &Operation,
    ) {
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
    pub(super) fn names(&self) -> BTreeMap<Inode, BTreeMap<&str, Inode>> {
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
    pub(super) fn note_times(&mut self, before: &Self, operation: &Operation, now: WallTime) {
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
    pub(super) fn at(&self, path: &str) -> RelativePath {
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
    pub(super) fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        joins: bool,
        limit: usize,
    ) -> Vec<String> {
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

fn above_with((owner, group): (u32, u32)) -> NewAttributes {
    NewAttributes {
        owner,
        group,
        ..NewAttributes::DIRECTORY
    }
}
