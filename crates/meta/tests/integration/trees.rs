//! Snapshots and clones of directories, against a model: all that is below at one instant, with its names, kinds and
//! attributes, whatever happens to the original and to the copies.

use crate::fixture::{Directories, ticking_clock};
use crate::snapshots::{Change, World};
use gabion_layout::ByteRange;
use gabion_meta::{
    AttributeChange, Existing, Inode, Kind, Limit, MetaError, NewAttributes, QuotaChange,
    SnapshotError, TREE_BYTES_MAX, TREE_ENTRIES_MAX,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The expected inode of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Node {
    Directory {
        mode: u32,
        is_read_only: bool,
    },
    /// A file with an identity: several names may have it.
    File {
        id: u64,
        mode: u32,
        is_read_only: bool,
    },
    Symlink(String),
}

/// The expected tree. The bytes of its files are those of the world.
struct Forest {
    world: World,
    nodes: BTreeMap<String, Node>,
    has_quota: bool,
}

/// The kind of a refusal.
fn kind(error: &MetaError) -> &'static str {
    match error {
        MetaError::Snapshot(SnapshotError::ReadOnlyDirectory(_)) => "read-only directory",
        MetaError::Snapshot(SnapshotError::ReadOnly(_)) => "read-only",
        MetaError::IntoItself(_) => "into itself",
        MetaError::FileExists(_) | MetaError::DirectoryExists(_) | MetaError::IsADirectory(_) => {
            "exists"
        }
        MetaError::NotEmpty(_) => "not empty",
        MetaError::Quota(_) => "quota",
        other => panic!("{other:?}"),
    }
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(above, _)| above)
}

fn is_below(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

impl Forest {
    fn new() -> Self {
        let mut forest = Self {
            world: World::new(),
            nodes: BTreeMap::new(),
            has_quota: false,
        };
        for path in ["d", "d/e", "d/e/f", "g"] {
            forest.make_directory(path).expect("free");
        }
        for path in ["d/a", "d/e/b", "g/c"] {
            forest.put(path, 2).expect("free");
        }
        forest
    }

    /// Checks an outcome. One that a quota refuses changes nothing.
    fn expect(&self, done: Result<(), MetaError>, expected: Result<(), &'static str>) -> bool {
        let done = done.map_err(|error| kind(&error));
        if done == Err("quota") && self.has_quota {
            return false;
        }
        assert_eq!(done, expected);
        done.is_ok()
    }

    /// The reason why nothing may be made at a path.
    fn place(&self, path: &str) -> Result<(), &'static str> {
        if self.nodes.contains_key(path) {
            return Err("exists");
        }
        match parent(path).map(|above| &self.nodes[above]) {
            Some(Node::Directory {
                is_read_only: true, ..
            }) => Err("read-only directory"),
            _ => Ok(()),
        }
    }

    fn make_directory(&mut self, path: &str) -> Result<(), MetaError> {
        let number = self.world.fresh();
        let new = NewAttributes::DIRECTORY;
        let done = self.world.meta.make_directory(path, new, number);
        if self.expect(done.clone(), self.place(path)) {
            let node = Node::Directory {
                mode: new.mode,
                is_read_only: false,
            };
            self.nodes.insert(path.to_owned(), node);
        }
        done
    }

    fn put(&mut self, path: &str, count: u64) -> Result<(), MetaError> {
        let expected = self.place(path);
        let done = self.world.put_at(path.to_owned(), count);
        if self.expect(done.clone(), expected) {
            let node = Node::File {
                id: self.world.fresh(),
                mode: NewAttributes::FILE.mode,
                is_read_only: false,
            };
            self.nodes.insert(path.to_owned(), node);
        }
        done
    }

    fn make_symlink(&mut self, path: &str) {
        let times = (self.world.fresh(), 3);
        let target = format!("target{}", times.0);
        let new = (self.world.pool.id, NewAttributes::FILE);
        let done = self.world.meta.make_symlink(path, &target, new, times);
        if self.expect(done, self.place(path)) {
            self.nodes.insert(path.to_owned(), Node::Symlink(target));
        }
    }

    fn link(&mut self, of: &str, path: &str) {
        let number = self.world.fresh();
        let file = self.world.meta.file(of).expect("it is known");
        let version = (file.generation, number);
        let done = self.world.meta.link(file.put, version, path);
        if self.expect(done, self.place(path)) {
            let segments = self.world.files[of].clone();
            self.world.files.insert(path.to_owned(), segments);
            self.nodes.insert(path.to_owned(), self.nodes[of].clone());
        }
    }

    fn set_mode(&mut self, path: &str, mode: u32) {
        let status = self.world.meta.inode(path).expect("it is known");
        let change = AttributeChange {
            mode: Some(mode),
            ..AttributeChange::default()
        };
        let request = (status.attributes.version, self.world.fresh());
        let set = self
            .world
            .meta
            .set_attributes(status.inode, request, &change);
        set.expect("it is known");
        let node = self.nodes[path].clone();
        for (_, other) in self.nodes.iter_mut().filter(|(_, other)| **other == node) {
            match other {
                Node::Directory { .. } | Node::Symlink(_) => {}
                Node::File { mode: known, .. } => *known = mode,
            }
        }
        if let Some(Node::Directory { mode: known, .. }) = self.nodes.get_mut(path) {
            *known = mode;
        }
    }

    /// Writes a segment of a file, in place if the coordinator allows that.
    fn write(&mut self, path: &str, at: u64) {
        let Node::File {
            id, is_read_only, ..
        } = self.nodes[path]
        else {
            return;
        };
        let (file, stripes) = self.world.meta.layout(path).expect("it is known");
        let stripe = stripes.iter().find(|(offset, _)| *offset == at * 4096);
        let may = |stripe| self.world.meta.token_to_update(file.put, stripe).is_ok();
        match stripe.map(|(_, stripe)| stripe.id) {
            Some(stripe) if may(stripe) => {
                assert!(!is_read_only);
                let content = self.world.fresh();
                self.world.note_in_place(path, at * 4096, stripe, content);
            }
            _ => {
                let change = Change {
                    first: at,
                    count: 1,
                    writes: true,
                    truncates: false,
                };
                let done = self.world.change(path, &change);
                let expected = if is_read_only {
                    Err("read-only")
                } else {
                    Ok(())
                };
                self.expect(done, expected);
            }
        }
        let segments = self.world.files[path].clone();
        for (other, node) in &self.nodes {
            if matches!(node, Node::File { id: its, .. } if *its == id) {
                self.world.files.insert(other.clone(), segments.clone());
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let number = self.world.fresh();
        let meta = &self.world.meta;
        let status = meta.inode(from).expect("it is known");
        let version = (status.generation, number);
        let into_itself = is_below(to, from);
        let done = match status.inode {
            Inode::File(put) => meta.rename((put, from), version, to, Existing::Stays),
            Inode::Directory(id) => meta.rename_directory(id, version, to, Existing::Stays),
        };
        let expected = match self.place(to) {
            _ if from == to => Ok(()),
            _ if into_itself => Err("into itself"),
            placed => placed,
        };
        if matches!(status.inode, Inode::File(_)) && self.are_one(from, to) {
            return forgive(done);
        }
        if self.expect(done, expected) && from != to {
            self.move_below(from, to);
        }
    }

    fn are_one(&self, one: &str, other: &str) -> bool {
        let id = |path| match self.nodes.get(path) {
            Some(Node::File { id, .. }) => Some(*id),
            _ => None,
        };
        id(one).is_some() && id(one) == id(other)
    }

    fn move_below(&mut self, from: &str, to: &str) {
        let moved = |path: &String| path == from || is_below(path, from);
        for path in self.nodes.keys().cloned().collect::<Vec<_>>() {
            if moved(&path) {
                let new = format!("{to}{}", &path[from.len()..]);
                let node = self.nodes.remove(&path).expect("it is known");
                self.nodes.insert(new.clone(), node);
                if let Some(segments) = self.world.files.remove(&path) {
                    self.world.files.insert(new, segments);
                }
            }
        }
    }

    fn remove(&mut self, path: &str) {
        let number = self.world.fresh();
        let status = self.world.meta.inode(path).expect("it is known");
        match status.inode {
            Inode::Directory(id) => {
                let version = (status.generation, number);
                let done = self.world.meta.remove_directory(id, version);
                let is_empty = !self.nodes.keys().any(|other| is_below(other, path));
                let expected = if is_empty { Ok(()) } else { Err("not empty") };
                if self.expect(done, expected) {
                    self.nodes.remove(path);
                }
            }
            Inode::File(put) => {
                let version = (status.generation, number);
                let removed = self.world.meta.remove_file(path, put, version);
                removed.expect("it is known");
                self.world.files.remove(path);
                self.nodes.remove(path);
            }
        }
    }

    fn set_quota(&mut self, path: &str, files: u64) {
        let (id, _) = self.world.meta.directory(path).expect("a directory");
        let change = QuotaChange {
            bytes: None,
            files: Some(Limit::AtMost(files)),
        };
        let set = self.world.meta.set_directory_quota(id, change);
        self.has_quota |= set.is_ok();
    }

    /// Makes a snapshot or a clone as the coordinator does.
    fn share(&mut self, of: &str, to: &str, is_read_only: bool) -> Result<(), MetaError> {
        let number = self.world.fresh();
        let meta = &self.world.meta;
        let source = meta.inode(of)?.inode;
        let made = meta.check_snapshot(source, to, number).and_then(|written| {
            let written: Vec<_> = written.expect("it is new").into_keys().collect();
            let tokens = meta.freeze(&written)?;
            let made = meta.snapshot((source, &tokens), to, is_read_only, (number, 3));
            meta.thaw(&written)?;
            if made.is_ok() {
                let again = meta.snapshot((source, &tokens), to, is_read_only, (number, 3));
                assert_eq!(again, Ok(()), "a lost answer leads to a second request");
            }
            made
        });
        let expected = match self.place(to) {
            _ if to == of || is_below(to, of) => Err("into itself"),
            placed => placed,
        };
        let expected = if to == of { Err("exists") } else { expected };
        if !self.expect(made.clone(), expected) {
            return made;
        }
        let mut ids: BTreeMap<u64, u64> = BTreeMap::new();
        for (path, node) in self.nodes.clone() {
            if path != of && !is_below(&path, of) {
                continue;
            }
            let copy = match node {
                Node::Directory { mode, .. } => Node::Directory { mode, is_read_only },
                Node::File { id, mode, .. } => {
                    let fresh = self.world.fresh();
                    let id = *ids.entry(id).or_insert(fresh);
                    Node::File {
                        id,
                        mode,
                        is_read_only,
                    }
                }
                Node::Symlink(target) => Node::Symlink(target),
            };
            let new = format!("{to}{}", &path[of.len()..]);
            if let Some(segments) = self.world.files.get(&path).cloned() {
                self.world.files.insert(new.clone(), segments);
            }
            self.nodes.insert(new, copy);
        }
        made
    }

    /// The tree is the expected one.
    fn check(&mut self) {
        self.world.check();
        let mut found: BTreeMap<String, Node> = BTreeMap::new();
        let mut names: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut open = vec![String::new()];
        let meta = &self.world.meta;
        while let Some(path) = open.pop() {
            let id = match path.as_str() {
                "" => gabion_meta::DirectoryId::ROOT,
                path => meta.directory(path).expect("a directory").0,
            };
            let (entries, is_cut) = meta.read_directory(id, None, 1000).expect("it is there");
            assert!(!is_cut);
            for entry in entries {
                let path = if path.is_empty() {
                    entry.name
                } else {
                    format!("{path}/{}", entry.name)
                };
                let (mode, is_read_only) =
                    (entry.status.attributes.mode, entry.status.is_read_only);
                let node = match (entry.status.kind, entry.status.inode) {
                    (Kind::Directory, _) => {
                        open.push(path.clone());
                        Node::Directory { mode, is_read_only }
                    }
                    (Kind::Symlink, Inode::File(put)) => {
                        let target = meta.target(put).expect("it is there");
                        Node::Symlink(target.expect("a symbolic link"))
                    }
                    (_, Inode::File(put)) => {
                        names.insert(path.clone(), (put.0, entry.status.link_count));
                        // The names that have the file tell its identity.
                        let id = match self.nodes.get(&path) {
                            Some(Node::File { id, .. }) => *id,
                            _ => 0,
                        };
                        Node::File {
                            id,
                            mode,
                            is_read_only,
                        }
                    }
                    (_, Inode::Directory(_)) => panic!("{path} is a directory"),
                };
                found.insert(path, node);
            }
        }
        assert_eq!(found, self.nodes);
        let mut groups: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for (path, node) in &self.nodes {
            if let Node::File { id, .. } = node {
                groups.entry(*id).or_default().insert(names[path].0);
                *counts.entry(*id).or_default() += 1;
            }
        }
        let puts: BTreeSet<u64> = groups.values().flatten().copied().collect();
        assert_eq!(puts.len(), groups.len(), "each file is one put: {groups:?}");
        for (path, node) in &self.nodes {
            if let Node::File { id, .. } = node {
                assert_eq!(names[path].1, counts[id], "the number of names of {path}");
            }
        }
    }

    fn pick(&self, which: u64, wanted: impl Fn(&Node) -> bool) -> Option<String> {
        let some: Vec<&String> = self
            .nodes
            .iter()
            .filter(|(_, node)| wanted(node))
            .map(|(path, _)| path)
            .collect();
        let count = some.len().max(1);
        some.get(which as usize % count).map(|path| (*path).clone())
    }

    /// A new path in some directory.
    fn new_path(&self, which: u64, name: u64) -> String {
        let is_directory = |node: &Node| matches!(node, Node::Directory { .. });
        let name = format!("n{}", name % 4);
        match self.pick(which, is_directory) {
            Some(above) if !which.is_multiple_of(5) && above.matches('/').count() < 4 => {
                format!("{above}/{name}")
            }
            _ => name,
        }
    }

    fn step(&mut self, (step, one, other, more): (u8, u64, u64, u64)) {
        let any = self.pick(one, |_| true);
        let directory = self.pick(one, |node| matches!(node, Node::Directory { .. }));
        let file = self.pick(one, |node| matches!(node, Node::File { .. }));
        let path = self.new_path(other, more);
        let (Some(any), Some(directory)) = (any, directory) else {
            return drop(self.make_directory("d"));
        };
        match step {
            0 => drop(self.make_directory(&path)),
            1 => drop(self.put(&path, 1 + more % 2)),
            2 => self.make_symlink(&path),
            3 => self.set_mode(&any, 0o600 + (more % 8) as u32),
            4 => self.rename(&any, &path),
            5 => self.remove(&any),
            6 => self.set_quota(&directory, 20 + more),
            7..10 if self.nodes.len() < 60 => {
                drop(self.share(&directory, &path, step == 7));
            }
            10 => drop(self.world.meta.discard_removed(2).expect("it works")),
            11 => drop(self.world.meta.merge_maps(1).expect("it works")),
            12 if file.is_some() => self.link(&file.expect("some"), &path),
            _ => {
                if let Some(file) = file {
                    self.write(&file, other % 3);
                }
            }
        }
        self.world.release();
        self.world.reclaim();
    }
}

/// Two names of one file stay.
fn forgive(done: Result<(), MetaError>) {
    let done = done.map_err(|error| kind(&error));
    assert!(matches!(done, Ok(()) | Err("exists")), "{done:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn trees_are_of_one_instant_and_change_apart_from_each_other(
        steps in prop::collection::vec((0u8..18, any::<u64>(), any::<u64>(), 0u64..64), 1..40)
    ) {
        let mut forest = Forest::new();
        for step in steps {
            forest.step(step);
            forest.check();
        }
        // The last ones first, so that directories are empty: the order of the trees is any.
        while let Some(path) = forest.nodes.keys().next_back().cloned() {
            forest.remove(&path);
        }
        let meta = &forest.world.meta;
        while meta.discard_removed(2).expect("it works") || meta.merge_maps(2).expect("it works") {}
        forest.check();
        prop_assert_eq!(forest.world.meta.stripe_count(), Ok(0));
    }
}

#[test]
fn a_tree_keeps_links_times_and_attributes_of_users() {
    let (meta, pool) = crate::fixture::cluster_at(gabion_meta::MemoryStore::new(), ticking_clock());
    crate::fixture::one_file(&meta, &pool, "d/e/a");
    let file = meta.file("d/e/a").expect("it is stored");
    for (number, to) in [(1, "d/b"), (2, "outside")] {
        let generation = meta.file_of(file.put).expect("it is there").generation;
        meta.link(file.put, (generation, number), to)
            .expect("a free name");
    }
    for (number, path) in [(3, "d/e"), (4, "d/e/a")] {
        let status = meta.inode(path).expect("it is there");
        let change = AttributeChange {
            mode: Some(0o4711),
            owner: Some(7),
            user: [("user.color".to_owned(), Some(path.as_bytes().to_vec()))].into(),
            ..AttributeChange::default()
        };
        let seen = (status.attributes.version, number);
        meta.set_attributes(status.inode, seen, &change)
            .expect("no other client changes them");
    }
    let source = meta.inode("d").expect("it is there").inode;
    let tokens = meta.freeze(&[file.put]).expect("it is there");
    meta.snapshot((source, &tokens), "s/d", true, (5, 9))
        .expect("a free name");
    for path in ["d", "d/e", "d/e/a"] {
        let (old, new) = (meta.inode(path), meta.inode(format!("s/{path}").as_str()));
        let (old, new) = (old.expect("it is there"), new.expect("it was made"));
        assert_ne!(old.inode, new.inode);
        let of = |status: &gabion_meta::InodeStatus| {
            let known = status.attributes;
            let times = (known.accessed, known.modified);
            (
                known.mode,
                known.owner,
                known.group,
                times,
                status.size_bytes,
            )
        };
        assert_eq!(of(&old), of(&new), "{path}");
        assert!(new.attributes.created > old.attributes.created, "{path}");
        let user = |inode| meta.user_attributes(inode).expect("it is there").1;
        assert_eq!(user(old.inode), user(new.inode), "{path}");
    }
    let (a, b) = (meta.file("s/d/e/a"), meta.file("s/d/b"));
    let (a, b) = (a.expect("it was made"), b.expect("it was made"));
    assert_eq!((a.put, a.link_count), (b.put, 2), "the third is outside");
    let count = meta.file_of(file.put).expect("it is there").link_count;
    assert_eq!(count, 3);
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_file_that_becomes_writable_during_the_freeze_is_not_shared_until_it_is_frozen() {
    let mut forest = Forest::new();
    let source = forest.world.meta.inode("d").expect("it is there").inode;
    let number = forest.world.fresh();
    let check = |forest: &Forest| {
        let written = forest.world.meta.check_snapshot(source, "s", number);
        let written = written.expect("a free name").expect("it is new");
        written.into_keys().collect::<Vec<_>>()
    };
    let mut tokens = forest.world.meta.freeze(&check(&forest)).expect("it works");
    forest.put("d/e/late", 1).expect("a free name");
    let late = forest
        .world
        .meta
        .file("d/e/late")
        .expect("it is stored")
        .put;
    let rows = forest.world.meta.store().rows();
    let made = forest
        .world
        .meta
        .snapshot((source, &tokens), "s", true, (number, 3));
    assert_eq!(made, Err(SnapshotError::NotFrozen(late).into()));
    assert_eq!(
        forest.world.meta.store().rows(),
        rows,
        "nothing is half done"
    );
    tokens.extend(forest.world.meta.freeze(&[late]).expect("it works"));
    // A raise of a token since then may mean that a client writes.
    let mut old = tokens.clone();
    old.insert(late, gabion_meta::FencingToken(0));
    let made = forest
        .world
        .meta
        .snapshot((source, &old), "s", true, (number, 3));
    assert!(
        matches!(made, Err(MetaError::Superseded { .. })),
        "{made:?}"
    );
    forest
        .world
        .meta
        .snapshot((source, &tokens), "s", true, (number, 3))
        .expect("all are frozen");
    forest.world.meta.file("s/e/late").expect("it is in it");
}

#[test]
fn an_open_put_is_not_in_a_tree() {
    let mut forest = Forest::new();
    let meta = &forest.world.meta;
    let new = ("d/open", Existing::Stays, NewAttributes::FILE);
    let places = [crate::fixture::place(0)];
    let open = meta
        .begin_put(new, forest.world.pool.id, 4096, &places, 1)
        .expect("a free name");
    forest.share("d", "s", true).expect("a free name");
    let meta = &forest.world.meta;
    meta.commit_put(open.id, 2).expect("its name is free");
    assert_eq!(meta.inode("s/open").map_err(|error| error.to_string()), {
        let error = MetaError::UnknownPath("s/open".to_owned());
        Err(error.to_string())
    });
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn nothing_is_made_in_a_snapshot_and_a_put_is_refused_before_its_bytes_are_stored() {
    let mut forest = Forest::new();
    forest.share("d", "s", true).expect("a free name");
    for path in ["s/new", "s/e/new"] {
        let made = forest.make_directory(path);
        assert!(made.is_err(), "{path}");
    }
    forest.rename("d/a", "s/new");
    forest.link("d/a", "s/new");
    forest.make_symlink("s/new");
    let meta = &forest.world.meta;
    for path in ["s/new", "s/e/new", "s/e/more/new"] {
        let new = (path, Existing::Stays, NewAttributes::FILE);
        let places = [crate::fixture::place(0)];
        let refused = meta.begin_put(new, forest.world.pool.id, 4096, &places, 1);
        let refused = refused.map(|put| put.id);
        assert!(
            matches!(&refused, Err(MetaError::Snapshot(SnapshotError::ReadOnlyDirectory(at))) if path.starts_with(at)),
            "{path}: {refused:?}"
        );
    }
    // Names are taken away, so that a snapshot is removed as any tree is.
    for path in ["s/a", "s/e/b", "s/e/f", "s/e", "s"] {
        forest.remove(path);
    }
    forest.check();
}

#[test]
fn a_tree_of_too_many_entries_is_refused_and_nothing_is_made() {
    let mut forest = Forest::new();
    for at in 0..TREE_ENTRIES_MAX {
        let path = format!("big/{}/{at}", at % 7);
        let number = forest.world.fresh();
        let made = forest
            .world
            .meta
            .make_directory(path, NewAttributes::DIRECTORY, number);
        made.expect("a free name");
        if at + 7 == TREE_ENTRIES_MAX - 1 {
            let source = forest.world.meta.inode("big").expect("it is there").inode;
            let tokens = BTreeMap::new();
            let numbers = (forest.world.fresh(), 3);
            let made = forest
                .world
                .meta
                .snapshot((source, &tokens), "full", true, numbers);
            assert_eq!(made, Ok(()), "as many as may be");
        }
    }
    let rows = forest.world.meta.store().rows();
    let source = forest.world.meta.inode("big").expect("it is there").inode;
    let refused = SnapshotError::TooManyEntries {
        directory: "big".to_owned(),
        limit: TREE_ENTRIES_MAX,
    };
    let (tokens, number) = (BTreeMap::new(), forest.world.fresh());
    let meta = &forest.world.meta;
    let checked = meta.check_snapshot(source, "s", number);
    assert_eq!(checked, Err(refused.clone().into()));
    let made = meta.snapshot((source, &tokens), "s", true, (number, 3));
    assert_eq!(made, Err(refused.into()));
    assert_eq!(meta.store().rows(), rows);
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn the_targets_of_symbolic_links_count_among_the_bytes_of_a_tree() {
    const DIRECTORIES: u64 = 240;
    const LINKS: u64 = 300;
    let (meta, pool) = crate::fixture::cluster();
    let (value, target) = (vec![7; 65_000], "t".repeat(4_095));
    for number in 0..DIRECTORIES {
        let path = format!("big/{number}");
        let made = meta.make_directory(path.as_str(), NewAttributes::DIRECTORY, number);
        made.expect("a free name");
        let status = meta.inode(path.as_str()).expect("it is there");
        let change = AttributeChange {
            user: [("user.x".to_owned(), Some(value.clone()))].into(),
            ..AttributeChange::default()
        };
        let seen = (status.attributes.version, 1_000 + number);
        meta.set_attributes(status.inode, seen, &change)
            .expect("no other client changes them");
    }
    let source = meta.inode("big").expect("it is there").inode;
    let checked = meta.check_snapshot(source, "s", 9_000);
    assert_eq!(checked, Ok(Some(BTreeMap::new())));
    for number in 0..LINKS {
        let (path, new) = (format!("big/link{number}"), NewAttributes::FILE);
        let made = meta.make_symlink(path.as_str(), &target, (pool.id, new), (2_000 + number, 3));
        made.expect("a free name");
    }
    let refused = SnapshotError::TooManyBytes {
        directory: "big".to_owned(),
        bytes: DIRECTORIES * (65_000 + 6) + LINKS * 4_095,
        limit: TREE_BYTES_MAX,
    };
    let checked = meta.check_snapshot(source, "s", 9_000);
    assert_eq!(checked, Err(refused.into()));
}

#[test]
fn a_snapshot_of_a_tree_fails_as_a_whole_at_every_step() {
    let mut steps = 0;
    loop {
        let mut forest = Forest::new();
        let number = forest.world.fresh();
        let meta = &forest.world.meta;
        let source = meta.inode("d").expect("it is there").inode;
        let written = meta.check_snapshot(source, "s", number);
        let written = written.expect("a free name").expect("it is new");
        let written: Vec<_> = written.into_keys().collect();
        let tokens = meta.freeze(&written).expect("it works");
        let rows = meta.store().rows();
        meta.store().fail_after(steps);
        let made = meta.snapshot((source, &tokens), "s", true, (number, 3));
        meta.store().heal();
        if made.is_ok() {
            assert!(steps > 50, "it takes more operations: {steps}");
            return;
        }
        assert_eq!(meta.store().rows(), rows, "after {steps} operations");
        let again = meta.snapshot((source, &tokens), "s", true, (number, 3));
        assert_eq!(again, Ok(()), "after {steps} operations");
        let range = ByteRange::new(0, 4096);
        let copy = meta.file("s/e/b").expect("it is made").put;
        let (_, part) = meta.layout_within(copy, range).expect("it is made");
        assert_eq!(part.stripes.len(), 1);
        assert_eq!(meta.check(), Ok(vec![]));
        steps += 1;
    }
}
