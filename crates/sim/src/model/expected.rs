//! The model: names, and byte vectors for them. It answers each operation as the cluster must.

use super::answer::{Answer, FileNumber, InodeKind, Known, Outcome, Status};
use super::entry::{DirectoryModel, Entry};
use super::files::{FileModel, Sizes};
use super::holders::{ClientNumber, Dead, FIRST_MORTAL, Handle, HandleNumber, Sole};
use super::locks::LockTable;
use super::operation::Operation;
use super::options::Wrong;
use super::within::Within;
use gabion_client::Cause;
use gabion_meta::{Attributes, Limit, NewAttributes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of a part of a path, at most.
const PART_BYTES: usize = 255;

/// The expected files and directories, by paths below the directory of the run, and their holders and limits. Clones
/// share the bytes of files until one of them changes.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) files: BTreeMap<FileNumber, Arc<FileModel>>,
    next: FileNumber,
    pub(crate) sizes: Sizes,
    pub(crate) wrong: Option<Wrong>,
    /// The path of the directory of the run, and a `/`.
    base: String,
    pub(crate) locks: LockTable,
    /// The files that one client alone may write.
    pub(crate) sole: BTreeMap<FileNumber, Sole>,
    /// The handles of exclusive opens, also those whose sessions have ended.
    pub(crate) handles: BTreeMap<HandleNumber, Handle>,
    /// The present client of those that do not live as long as the run.
    pub(crate) mortal: ClientNumber,
    /// The last of them that has left locks, until these are free.
    pub(crate) dead: Option<Dead>,
    /// The most files of the pool.
    pub(crate) files_limit: Limit,
    pub(crate) quota_count: u64,
    /// The files of clones of directories, also those that are gone.
    pub(crate) clones: BTreeSet<FileNumber>,
    /// The pool with limited bytes.
    pub(crate) within: Within,
    pub(crate) now_us: u64,
}

impl Expected {
    pub(crate) fn new(base: &str, sizes: Sizes, wrong: Option<Wrong>) -> Self {
        Self {
            entries: BTreeMap::new(),
            files: BTreeMap::new(),
            next: 0,
            sizes,
            wrong,
            base: format!("{base}/"),
            locks: LockTable::default(),
            sole: BTreeMap::new(),
            handles: BTreeMap::new(),
            mortal: FIRST_MORTAL,
            dead: None,
            files_limit: Limit::Unlimited,
            quota_count: 0,
            clones: BTreeSet::new(),
            within: Within::default(),
            now_us: 0,
        }
    }

    /// The whole path of one below the directory of the run.
    pub(crate) fn absolute(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    pub(crate) fn file_paths(&self) -> Vec<String> {
        let files = self.entries.iter();
        let files = files.filter(|(_, entry)| matches!(entry, Entry::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    /// The names of a file.
    pub(crate) fn paths_of(&self, file: FileNumber) -> Vec<&String> {
        let names = self.entries.iter();
        let its = names.filter(|(_, entry)| **entry == Entry::File(file));
        its.map(|(path, _)| path).collect()
    }

    /// The file at a path, if there is one and it is no symbolic link.
    pub(crate) fn file_at(&self, path: &str) -> Option<FileNumber> {
        match self.entries.get(path)? {
            Entry::File(file) if self.files[file].target.is_none() => Some(*file),
            _ => None,
        }
    }

    pub(crate) fn size_at(&self, path: &str) -> u64 {
        let file = self.file_at(path);
        file.map_or(0, |file| self.files[&file].bytes.len() as u64)
    }

    /// Carries out an operation. A refusal changes nothing.
    pub(crate) fn apply(&mut self, operation: &Operation) -> Outcome {
        let mut after = self.clone();
        let answer = after.change(operation)?;
        if self.wrong != Some(Wrong::QuotasAreIgnored) {
            after.check_room(self)?;
        }
        *self = after;
        Ok(answer)
    }

    /// Carries out an operation whatever quotas say. After a refusal, this is no state of the model.
    fn change(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Put {
                path,
                content,
                replaces,
                ..
            } => self.put(path, content.bytes(), *replaces),
            Operation::MakeDirectory(path) => self.make_directory(path),
            Operation::RemoveDirectory(path) => self.remove_directory(path),
            Operation::Remove(path) => self.remove(path),
            Operation::Rename { from, to, replaces } => self.rename((from, to), *replaces),
            Operation::Exchange(one, other) => self.exchange(one, other),
            Operation::Link(path, to) => self.link(path, to),
            Operation::Symlink(at, target) => self.symlink(at, target),
            Operation::ReadLink(path) => self.read_link(path),
            Operation::Share {
                path,
                to,
                is_read_only,
            } => self.share((path, to), *is_read_only),
            Operation::ShareTree {
                path,
                to,
                is_read_only,
            } => self.share_tree((path, to), *is_read_only),
            Operation::Look(path) => self.get(path).map(|entry| self.status(entry)),
            Operation::List {
                prefix,
                after,
                limit,
                is_directory,
            } => {
                let after = after.as_deref();
                Ok(self.list((prefix, after), *limit, *is_directory))
            }
            Operation::File { path, access, .. } => {
                let file = self.open(path)?;
                self.access((file, None), access)
            }
            Operation::UseRemoved(_) => Err(Cause::Stale),
            other => self.change_attributes(other),
        }
    }

    /// Carries out an operation on attributes, limits, locks or sessions.
    fn change_attributes(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::SetMode(path, mode) => {
                let known = self.known_mut(path)?;
                if *mode > Attributes::MODE_MAX {
                    return Err(Cause::Invalid);
                }
                known.mode = *mode;
            }
            Operation::SetUserAttribute {
                path,
                name,
                value,
                is_there,
            } => return self.set_user_attribute(path, (name, *value), *is_there),
            Operation::Lock(lock) => return self.lock(lock),
            Operation::Alone(alone) => return self.use_alone(alone),
            Operation::KillClient => self.kill_client(),
            // Whether the locks are lost is another outcome.
            Operation::CutOff { ms } => {
                self.cut_off(*ms);
                return Ok(Answer::Leased(true));
            }
            Operation::Quota { path, change } => return self.set_quota(path, *change),
            Operation::LimitFiles(limit) => self.files_limit = *limit,
            Operation::Within(within) => return self.within.apply(within, self.sizes),
            Operation::Wait { .. } => {}
            other => unreachable!("{other:?} is carried out elsewhere"),
        }
        Ok(Answer::Done)
    }

    fn put(&mut self, path: &str, bytes: Vec<u8>, replaces: bool) -> Outcome {
        check_name(path)?;
        self.make_way(path, replaces)?;
        self.check_place(path)?;
        self.make_parents(path);
        let known = Known::new(NewAttributes::FILE);
        let file = FileModel::new(bytes, known, self.sizes);
        self.add(path, file);
        Ok(Answer::Done)
    }

    fn make_directory(&mut self, path: &str) -> Outcome {
        self.check_new(path)?;
        self.check_place(path)?;
        self.make_parents(path);
        self.entries.insert(path.to_owned(), Entry::new_directory());
        Ok(Answer::Done)
    }

    fn remove(&mut self, path: &str) -> Outcome {
        match self.get(path)? {
            Entry::Directory(_) => Err(Cause::IsADirectory),
            Entry::File(file) if self.sole.contains_key(file) => Err(Cause::InUse),
            Entry::File(_) => {
                self.take(path);
                Ok(Answer::Done)
            }
        }
    }

    fn read_link(&self, path: &str) -> Outcome {
        match self.get(path)? {
            Entry::Directory(_) => Ok(Answer::Done),
            Entry::File(file) => {
                let target = self.files[file].target.clone();
                target.map(Answer::Target).ok_or(Cause::Invalid)
            }
        }
    }

    fn remove_directory(&mut self, path: &str) -> Outcome {
        match self.get(path)? {
            Entry::File(_) => Err(Cause::NotADirectory),
            Entry::Directory(_) if self.has_any_below(path) => Err(Cause::NotEmpty),
            Entry::Directory(_) => {
                self.entries.remove(path);
                Ok(Answer::Done)
            }
        }
    }

    fn rename(&mut self, (from, to): (&str, &str), replaces: bool) -> Outcome {
        let entry = self.get(from)?.clone();
        check_name(to)?;
        if from == to {
            return Ok(Answer::Done);
        }
        match entry {
            Entry::File(_) => {
                if replaces && self.entries.get(to) == Some(&entry) {
                    // Two names of one file stay.
                    return Ok(Answer::Done);
                }
                self.make_way(to, replaces)?;
            }
            Entry::Directory(_) => {
                if is_below(to, from) {
                    return Err(Cause::Invalid);
                }
                match self.find(to)? {
                    Some(Entry::Directory(_)) if replaces && self.has_any_below(to) => {
                        return Err(Cause::NotEmpty);
                    }
                    Some(Entry::Directory(_)) if replaces => {
                        self.entries.remove(to);
                    }
                    Some(_) => return Err(Cause::Exists),
                    None => {}
                }
            }
        }
        self.check_border(from, to)?;
        self.check_place(to)?;
        self.make_parents(to);
        let keeps = self.wrong == Some(Wrong::RenameKeepsTheOldName);
        let kept = self.entries.get(from).cloned().filter(|_| keeps);
        for (rest, entry) in self.take_tree(from) {
            self.entries.insert(format!("{to}{rest}"), entry);
        }
        if let Some(kept) = kept {
            self.entries.insert(from.to_owned(), kept);
        }
        Ok(Answer::Done)
    }

    fn exchange(&mut self, one: &str, other: &str) -> Outcome {
        let (first, second) = (self.get(one)?, self.get(other)?);
        if one == other || matches!(first, Entry::File(_)) && first == second {
            return Ok(Answer::Done);
        }
        if is_below(one, other) || is_below(other, one) {
            return Err(Cause::Invalid);
        }
        self.check_border(one, other)?;
        self.check_place(one)?;
        self.check_place(other)?;
        let (first, second) = (self.take_tree(one), self.take_tree(other));
        for (to, tree) in [(other, first), (one, second)] {
            for (rest, entry) in tree {
                self.entries.insert(format!("{to}{rest}"), entry);
            }
        }
        Ok(Answer::Done)
    }

    fn link(&mut self, path: &str, to: &str) -> Outcome {
        let entry = self.get(path)?.clone();
        if matches!(entry, Entry::Directory(_)) {
            return Ok(Answer::Done);
        }
        self.check_new(to)?;
        self.check_border(path, to)?;
        self.check_place(to)?;
        self.make_parents(to);
        self.entries.insert(to.to_owned(), entry);
        Ok(Answer::Done)
    }

    fn symlink(&mut self, at: &str, target: &str) -> Outcome {
        if target.is_empty() {
            return Err(Cause::Invalid);
        }
        self.check_new(at)?;
        self.check_place(at)?;
        self.make_parents(at);
        let known = Known::new(NewAttributes::FILE);
        let link = FileModel {
            target: Some(target.to_owned()),
            ..FileModel::new(Vec::new(), known, self.sizes)
        };
        self.add(at, link);
        Ok(Answer::Done)
    }

    fn share(&mut self, (path, to): (&str, &str), is_read_only: bool) -> Outcome {
        let file = match self.get(path)? {
            Entry::Directory(_) => return Ok(Answer::Done),
            Entry::File(file) => Arc::clone(&self.files[file]),
        };
        check_name(to)?;
        if file.target.is_some() {
            return Err(Cause::IsASymlink);
        }
        self.check_free(to)?;
        self.check_place(to)?;
        self.make_parents(to);
        let copy = FileModel {
            is_read_only,
            ..(*file).clone()
        };
        self.add(to, copy);
        Ok(Answer::Done)
    }

    fn set_user_attribute(
        &mut self,
        path: &str,
        (name, value): (&str, Option<u8>),
        is_there: Option<bool>,
    ) -> Outcome {
        let user = &mut self.known_mut(path)?.user;
        match (is_there, user.contains_key(name)) {
            (Some(true), false) => return Err(Cause::NotFound),
            (Some(false), true) => return Err(Cause::Exists),
            _ => {}
        }
        match value {
            Some(value) => drop(user.insert(name.to_owned(), vec![value])),
            None => drop(user.remove(name)),
        }
        Ok(Answer::Done)
    }

    pub(crate) fn list(
        &self,
        (prefix, after): (&str, Option<&str>),
        limit: u64,
        is_directory: bool,
    ) -> Answer {
        let after = after.unwrap_or_default();
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        // Keys of directories end with `/`, so that all are in the order of whole paths.
        let keys = self.entries.iter().map(|(path, entry)| match entry {
            Entry::Directory(_) => (format!("{path}/"), true),
            Entry::File(_) => (path.clone(), false),
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort();
        let above = prefix.rfind('/').map_or("", |at| &prefix[..=at]);
        let is_listed = |key: &str, is_of_directory: bool| {
            let is_here = || {
                let rest = key
                    .strip_prefix(above)
                    .map(|rest| rest.trim_end_matches('/'));
                rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
            };
            if is_directory {
                is_here()
            } else {
                !is_of_directory
            }
        };
        for (key, is_of_directory) in keys {
            let is_wanted = key.starts_with(prefix) && key.as_str() > after;
            if !is_wanted || !is_listed(&key, is_of_directory) {
                continue;
            }
            if (files.len() + directories.len()) as u64 >= limit {
                let is_cut = true;
                return Answer::Listing {
                    files,
                    directories,
                    is_cut,
                };
            }
            let path = self.absolute(&key);
            if is_of_directory {
                directories.push(path);
            } else {
                files.push(path);
            }
        }
        Answer::Listing {
            files,
            directories,
            is_cut: false,
        }
    }

    /// The file that an open finds.
    pub(crate) fn open(&self, path: &str) -> Result<FileNumber, Cause> {
        match self.get(path)? {
            Entry::Directory(_) => Err(Cause::IsADirectory),
            Entry::File(file) if self.files[file].target.is_some() => Err(Cause::IsASymlink),
            Entry::File(file) => Ok(*file),
        }
    }

    /// What has a path, if anything has.
    fn find(&self, path: &str) -> Result<Option<&Entry>, Cause> {
        for (end, _) in path.match_indices('/') {
            match self.entries.get(&path[..end]) {
                None => return Ok(None),
                Some(Entry::File(_)) => return Err(Cause::NotADirectory),
                Some(Entry::Directory(_)) => {}
            }
        }
        Ok(self.entries.get(path))
    }

    pub(crate) fn get(&self, path: &str) -> Result<&Entry, Cause> {
        self.find(path)?.ok_or(Cause::NotFound)
    }

    pub(crate) fn check_free(&self, path: &str) -> Result<(), Cause> {
        match self.find(path)? {
            None => Ok(()),
            Some(_) => Err(Cause::Exists),
        }
    }

    fn check_new(&self, path: &str) -> Result<(), Cause> {
        check_name(path)?;
        self.check_free(path)
    }

    /// Frees a name for a file.
    fn make_way(&mut self, path: &str, replaces: bool) -> Result<(), Cause> {
        match self.find(path)? {
            None => Ok(()),
            Some(Entry::Directory(_)) => Err(Cause::IsADirectory),
            Some(Entry::File(file)) if replaces && self.sole.contains_key(file) => {
                Err(Cause::InUse)
            }
            Some(Entry::File(_)) if replaces || self.wrong == Some(Wrong::NamesAreNeverTaken) => {
                self.take(path);
                Ok(())
            }
            Some(Entry::File(_)) => Err(Cause::Exists),
        }
    }

    pub(crate) fn make_parents(&mut self, path: &str) {
        for (end, _) in path.match_indices('/') {
            let above = path[..end].to_owned();
            let made = self.entries.entry(above);
            made.or_insert_with(Entry::new_directory);
        }
    }

    fn add(&mut self, path: &str, file: FileModel) {
        let number = self.add_file(file);
        self.entries.insert(path.to_owned(), Entry::File(number));
    }

    /// Adds a file without a name.
    pub(crate) fn add_file(&mut self, file: FileModel) -> FileNumber {
        let number = self.next;
        self.next += 1;
        self.files.insert(number, Arc::new(file));
        number
    }

    /// Takes a file's name away, and the file with its last one.
    fn take(&mut self, path: &str) {
        if let Some(Entry::File(file)) = self.entries.remove(path)
            && self.paths_of(file).is_empty()
        {
            self.files.remove(&file);
            self.locks.forget_file(file);
            self.sole.remove(&file);
            self.handles.retain(|_, handle| handle.file != file);
        }
    }

    pub(crate) fn has_any_below(&self, path: &str) -> bool {
        self.entries.keys().any(|other| is_below(other, path))
    }

    /// Takes out what has a path or lies below it, each with the rest of its path.
    fn take_tree(&mut self, path: &str) -> Vec<(String, Entry)> {
        let is_in = |other: &String, _: &mut Entry| other == path || is_below(other, path);
        let taken = self.entries.extract_if(.., is_in);
        taken
            .map(|(other, entry)| (other[path.len()..].to_owned(), entry))
            .collect()
    }

    fn known_mut(&mut self, path: &str) -> Result<&mut Known, Cause> {
        self.get(path)?;
        match self.entries.get_mut(path) {
            Some(Entry::Directory(directory)) => Ok(&mut directory.known),
            Some(Entry::File(file)) => {
                let file = self.files.get_mut(file);
                Ok(&mut Arc::make_mut(file.expect("its name is there")).known)
            }
            None => Err(Cause::NotFound),
        }
    }

    /// The attributes of what has a path.
    pub(crate) fn known(&self, entry: &Entry) -> Known {
        match entry {
            Entry::Directory(directory) => directory.known.clone(),
            Entry::File(file) => self.files[file].known.clone(),
        }
    }

    pub(crate) fn status(&self, entry: &Entry) -> Answer {
        let known = self.known(entry);
        let (kind, size_bytes, link_count, is_read_only) = match entry {
            Entry::Directory(DirectoryModel { is_read_only, .. }) => {
                (InodeKind::Directory, 0, 1, *is_read_only)
            }
            Entry::File(number) => {
                let file = &self.files[number];
                let (kind, size) = match &file.target {
                    Some(target) => (InodeKind::Symlink, target.len()),
                    None => (InodeKind::File, file.bytes.len()),
                };
                let link_count = self.paths_of(*number).len() as u64;
                (kind, size as u64, link_count, file.is_read_only)
            }
        };
        Answer::Status(Status {
            kind,
            size_bytes,
            link_count,
            mode: known.mode,
            is_read_only,
        })
    }
}

/// The directories above a path, the nearest first.
pub(crate) fn directories_above(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(end, _)| &path[..end])
}

pub(crate) fn is_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

pub(crate) fn check_name(path: &str) -> Result<(), Cause> {
    if path.split('/').any(str::is_empty) {
        return Err(Cause::Invalid);
    }
    if path.split('/').any(|part| part.len() > PART_BYTES) {
        return Err(Cause::NameTooLong);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_in_a_tree() {
        let sizes = Sizes {
            stripe_bytes: 100,
            inline_bytes: 0,
        };
        let mut expected = Expected::new("base", sizes, None);
        let put = |expected: &mut Expected, path| expected.put(path, vec![1], false);
        assert_eq!(put(&mut expected, "a/b"), Ok(Answer::Done));
        assert_eq!(put(&mut expected, "a/b"), Err(Cause::Exists));
        assert_eq!(put(&mut expected, "a"), Err(Cause::IsADirectory));
        assert_eq!(put(&mut expected, "a/b/c"), Err(Cause::NotADirectory));
        assert_eq!(expected.rename(("a", "a/d"), true), Err(Cause::Invalid));
        assert_eq!(expected.rename(("a", "c/a"), true), Ok(Answer::Done));
        assert_eq!(expected.paths(), ["c", "c/a", "c/a/b"]);
        assert_eq!(expected.link("c/a/b", "d"), Ok(Answer::Done));
        assert_eq!(expected.exchange("c/a", "d"), Ok(Answer::Done));
        assert_eq!(expected.paths(), ["c", "c/a", "d", "d/b"]);
        let cut = expected.list(("", Some("c")), 1, false);
        let files = vec!["base/c/a".to_owned()];
        let listing = |is_cut| Answer::Listing {
            files: files.clone(),
            directories: Vec::new(),
            is_cut,
        };
        assert_eq!(cut, listing(true));
        assert_eq!(expected.list(("c", None), 1, false), listing(false));
    }
}
