//! Snapshots and clones: every file keeps its own bytes whatever happens to the files that it shares stripes with, and
//! all stripes are given back.

use crate::fixture::{cluster, membership, place};
use gabion_layout::StripeId;
use gabion_meta::{
    Displaced, Existing, FileRecord, Holder, Inode, KeyValue, MemoryStore, Meta, MetaError,
    NewAttributes, PoolRecord, PutId, Rewrite, SizeChange, SnapshotError,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a segment of the test's pool.
const SEGMENT: u64 = 4096;

/// The expected files.
pub(crate) struct World {
    pub(crate) meta: Meta<MemoryStore>,
    pub(crate) pool: PoolRecord,
    /// The content of each file's segments, by name.
    pub(crate) files: BTreeMap<String, BTreeMap<u64, u64>>,
    /// The content of each stripe.
    contents: BTreeMap<StripeId, u64>,
    /// The files that have had each stripe, also those that are removed: clients may read them by what they knew.
    had: BTreeMap<StripeId, BTreeSet<PutId>>,
    count: u64,
}

/// A change of some segments of a file.
pub(crate) struct Change {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) writes: bool,
    pub(crate) truncates: bool,
}

impl World {
    pub(crate) fn new() -> Self {
        let (meta, pool) = cluster();
        Self {
            meta,
            pool,
            files: BTreeMap::new(),
            contents: BTreeMap::new(),
            had: BTreeMap::new(),
            count: 0,
        }
    }

    /// One with a file of some segments. Returns the file's name and put, too.
    fn with_file(count: u64) -> (Self, String, PutId) {
        let mut world = Self::new();
        world.put(count);
        let name = world.pick(0).expect("one file");
        let put = world.meta.file(&name).expect("it is known").put;
        (world, name, put)
    }

    pub(crate) fn fresh(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// The name of one of the files.
    fn pick(&self, which: u64) -> Option<String> {
        let count = self.files.len().max(1);
        self.files.keys().nth(which as usize % count).cloned()
    }

    fn put(&mut self, count: u64) {
        let name = format!("f{}", self.fresh());
        self.put_at(name, count).expect("a free name");
    }

    /// Stores a file of some segments.
    pub(crate) fn put_at(&mut self, name: String, count: u64) -> Result<(), MetaError> {
        let places = vec![place(0); count as usize];
        let target = (name.as_str(), Existing::Stays, NewAttributes::FILE);
        let size_bytes = count * SEGMENT;
        let put = self
            .meta
            .begin_put(target, self.pool.id, size_bytes, &places, 1)?;
        self.meta.commit_put(put.id, 2)?;
        let mut segments = BTreeMap::new();
        for (at, stripe) in put.stripes.iter().enumerate() {
            let content = self.fresh();
            self.contents.insert(stripe.id, content);
            segments.insert(at as u64 * SEGMENT, content);
        }
        self.files.insert(name, segments);
        Ok(())
    }

    fn snapshot(&mut self, of: &str, is_read_only: bool) -> Result<String, MetaError> {
        let number = self.fresh();
        let to = format!("{}{number}", if is_read_only { "s" } else { "c" });
        let source = self.meta.file(of)?.put;
        let tokens = self.meta.freeze(&[source])?;
        let named = (Inode::File(source), &tokens);
        let made = self
            .meta
            .snapshot(named, to.as_str(), is_read_only, (number, 3));
        self.meta.thaw(&[source])?;
        made?;
        let repeated = self
            .meta
            .snapshot(named, to.as_str(), is_read_only, (number, 3));
        assert_eq!(repeated, Ok(()), "a lost answer leads to a second request");
        self.files.insert(to.clone(), self.files[of].clone());
        Ok(to)
    }

    fn lease(&self, stripe: StripeId) -> Displaced {
        let incarnation = self.meta.incarnation();
        let holder = Holder::Coordinator { incarnation };
        let lease = self.meta.acquire(stripe, holder, &membership(), 1000);
        let epoch = lease.expect("it has no other holder").epoch;
        Displaced { stripe, epoch }
    }

    pub(crate) fn change(&mut self, name: &str, change: &Change) -> Result<(), MetaError> {
        let (file, stripes) = self.meta.layout(name)?;
        let end = change.first + change.count;
        let is_within = |offset: u64| {
            let at = offset / SEGMENT;
            at >= change.first && (at < end || change.truncates)
        };
        let within = stripes.iter().filter(|(offset, _)| is_within(*offset));
        let old: Vec<(u64, StripeId)> = within.map(|(at, stripe)| (*at, stripe.id)).collect();
        let shared = self.meta.shared_of(file.put, &old)?;
        let written = change.first..if change.writes { end } else { change.first };
        let offsets: Vec<u64> = written.map(|at| at * SEGMENT).collect();
        let size = match (change.writes, change.truncates) {
            (true, _) => SizeChange::AtLeast(end * SEGMENT),
            (false, true) => SizeChange::Exactly(file.size_bytes.min(change.first * SEGMENT)),
            (false, false) => SizeChange::AtLeast(0),
        };
        let rewrite = Rewrite {
            inline: None,
            displaced: old.iter().map(|&(at, id)| (at, self.lease(id))).collect(),
            offsets: offsets.clone(),
            copied: shared.iter().map(|(at, _)| *at).collect(),
            size,
            token: self.meta.exclusive(file.put)?.token,
        };
        let places = vec![place(1); offsets.len() + shared.len()];
        let begun = self
            .meta
            .begin_replacement(file.put, &rewrite, &places, 5)?;
        // Replacements and merges may meet.
        self.meta.merge_maps(1)?;
        match self.meta.commit_replacement(begun.id) {
            Ok(_) => {}
            Err(MetaError::FileChanged(_)) => {
                self.meta.abort_put(begun.id)?;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let (new, copies) = begun.stripes.split_at(offsets.len());
        for ((at, _), copy) in shared.iter().zip(copies) {
            let original = old.iter().find(|(offset, _)| offset == at);
            let content = self.contents[&original.expect("it is displaced").1];
            self.contents.insert(copy.id, content);
        }
        for (at, _) in &old {
            self.files.get_mut(name).expect("it is known").remove(at);
        }
        for (at, stripe) in offsets.iter().zip(new) {
            let content = self.fresh();
            self.contents.insert(stripe.id, content);
            let segments = self.files.get_mut(name).expect("it is known");
            segments.insert(*at, content);
        }
        Ok(())
    }

    /// A client has updated a stripe of a file in place.
    pub(crate) fn note_in_place(&mut self, name: &str, at: u64, stripe: StripeId, content: u64) {
        self.contents.insert(stripe, content);
        let segments = self.files.get_mut(name).expect("it is known");
        segments.insert(at, content);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let file = self.meta.file(name).expect("it is known");
        let version = (file.generation, self.fresh());
        let removed = self.meta.remove_file(name, file.put, version);
        removed.expect("it is known");
        self.files.remove(name);
    }

    /// No node serves garbage any more.
    pub(crate) fn reclaim(&self) {
        for stripe in self.meta.garbage(None, usize::MAX).expect("it is readable") {
            self.meta.reclaimed(stripe.id).expect("the store works");
        }
    }

    pub(crate) fn check(&mut self) {
        assert_eq!(self.meta.check(), Ok(vec![]));
        for name in self.files.keys() {
            let (file, stripes) = self.meta.layout(name).expect("it is known");
            for (_, stripe) in stripes {
                self.had.entry(stripe.id).or_default().insert(file.put);
            }
        }
        for (name, segments) in &self.files {
            let (file, stripes) = self.meta.layout(name).expect("it is known");
            let present = stripes.iter().map(|(at, s)| (*at, self.contents[&s.id]));
            let present: BTreeMap<u64, u64> = present.collect();
            assert_eq!(&present, segments, "the bytes of {name}");
            self.check_parts(&file, segments);
        }
    }

    /// Look-ups of parts agree with the whole.
    fn check_parts(&self, file: &FileRecord, segments: &BTreeMap<u64, u64>) {
        for at in 0..8 {
            let range = gabion_layout::ByteRange::new(at * SEGMENT, 2 * SEGMENT);
            let (_, part) = self
                .meta
                .layout_within(file.put, range)
                .expect("it is known");
            let within = segments.range(range.offset..range.end());
            let present: Vec<u64> = part.stripes.iter().map(|(at, _)| *at).collect();
            assert_eq!(present, within.map(|(at, _)| *at).collect::<Vec<_>>());
            let before = segments.range(..range.offset).next_back();
            let behind = segments.range(range.end()..).next();
            let expected = (before.map(|(at, _)| *at), behind.map(|(at, _)| *at));
            assert_eq!((part.before, part.behind), expected);
            for (at, stripe) in &part.stripes {
                let is_shared = part.shared.contains(&stripe.id);
                let written = self.meta.token_to_update(file.put, stripe.id);
                assert_eq!(
                    written.is_err(),
                    is_shared,
                    "byte {at} of {}: {written:?}",
                    file.name
                );
                let is_alone = self.had[&stripe.id] == BTreeSet::from([file.put]);
                assert!(is_shared || is_alone, "byte {at} of {}", file.name);
            }
        }
    }

    fn step(&mut self, (kind, which, first, count): (u8, u64, u64, u64)) {
        let Some(name) = self.pick(which).filter(|_| kind > 0) else {
            return self.put(count);
        };
        let (writes, truncates) = (kind < 5, kind == 6);
        let done = match kind {
            1 | 2 => self.snapshot(&name, kind == 1).map(drop),
            3..=6 => self.change(
                &name,
                &Change {
                    first,
                    count,
                    writes,
                    truncates,
                },
            ),
            7 => {
                self.remove(&name);
                Ok(())
            }
            8 => self.meta.discard_removed(1).map(drop),
            _ => self.meta.merge_maps(1).map(drop),
        };
        match done {
            Err(MetaError::Snapshot(SnapshotError::ReadOnly(_))) if name.starts_with('s') => {}
            // The coordinator has its leases yet.
            Err(error) => panic!("{kind} of {name}: {error:?}"),
            Ok(()) => {}
        }
        self.release();
        self.reclaim();
    }

    /// The coordinator gives its leases back.
    pub(crate) fn release(&self) {
        for id in self.contents.keys() {
            if let Ok(Some(lease)) = self.meta.lease(*id) {
                self.meta.release(*id, lease.epoch).expect("it is held");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn files_keep_their_bytes_and_give_all_stripes_back(
        steps in prop::collection::vec((0u8..11, 0u64..8, 0u64..6, 1u64..4), 1..40)
    ) {
        let mut world = World::new();
        world.put(4);
        for step in steps {
            world.step(step);
            world.check();
        }
        while let Some(name) = world.pick(0) {
            world.remove(&name);
        }
        while world.meta.discard_removed(2).expect("it works")
            || world.meta.merge_maps(2).expect("it works") {}
        world.check();
        prop_assert_eq!(world.meta.stripe_count(), Ok(0));
        // No row of maps and extents is left.
        for tag in [34u8, 38, 51, 52, 53, 54] {
            let rows = world.meta.store().read(|txn| txn.scan(&[tag], &[tag + 1], 10));
            prop_assert_eq!(rows.expect("it is readable").len(), 0, "rows of table {}", tag);
        }
    }
}

#[test]
fn a_snapshot_is_refused_where_it_cannot_be_made_and_changes_nothing() {
    let (mut world, name, source) = World::with_file(2);
    let early = world.meta.exclusive(source).expect("it is readable").token;
    let inode = Inode::File(source);
    let one = |token| BTreeMap::from([(source, token)]);
    let made = world
        .meta
        .snapshot((inode, &one(early)), "s", true, (91, 3));
    assert!(
        matches!(made, Err(MetaError::Superseded { .. })),
        "writers have not been stopped: {made:?}"
    );
    let tokens = world.meta.freeze(&[source]).expect("it is known");
    let token = tokens[&source];
    let over_itself = world
        .meta
        .snapshot((inode, &tokens), name.as_str(), true, (92, 3));
    assert_eq!(over_itself, Err(MetaError::FileExists(name.clone())));
    let first = world.meta.layout(&name).expect("it is known").1[0].1.id;
    assert_eq!(
        world.meta.token_to_update(source, first),
        Err(SnapshotError::Frozen(source).into())
    );
    let grown = world.meta.grow(source, 1 << 20, 0);
    assert!(matches!(grown, Err(MetaError::Superseded { .. })));
    world.meta.thaw(&[source]).expect("it is known");
    let late = world.meta.snapshot((inode, &tokens), "s", true, (93, 3));
    assert!(matches!(late, Err(MetaError::Superseded { .. })));
    assert_eq!(world.meta.token_to_update(source, first), Ok(token));
    world.check();
}

#[test]
fn a_stripe_that_a_removed_file_had_is_not_updated_in_place() {
    let (mut world, name, _) = World::with_file(2);
    let clone = world.snapshot(&name, false).expect("it is known");
    let write = Change {
        first: 0,
        count: 1,
        writes: true,
        truncates: false,
    };
    // The clone has a copy of the first stripe, and the second stripe itself.
    world.change(&name, &write).expect("it is a file");
    world.check();
    world.remove(&name);
    while world.meta.discard_removed(9).expect("it works")
        || world.meta.merge_maps(9).expect("it works")
    {}
    world.release();
    world.reclaim();
    world.check();
    let file = world.meta.file(&clone).expect("it is known");
    assert_eq!(file.shared_stripe_count, 0);
    let (_, stripes) = world.meta.layout(&clone).expect("it is known");
    for (_, stripe) in stripes {
        let refused = Err(SnapshotError::Shared(stripe.id).into());
        assert_eq!(world.meta.token_to_update(file.put, stripe.id), refused);
    }
    // A write stores the stripe anew, which is the clone's alone.
    world.change(&clone, &write).expect("it is a file");
    let (_, stripes) = world.meta.layout(&clone).expect("it is known");
    let token = world
        .meta
        .exclusive(file.put)
        .expect("it is readable")
        .token;
    let own = world.meta.token_to_update(file.put, stripes[0].1.id);
    assert_eq!(own, Ok(token));
    world.check();
}

#[test]
fn a_session_keeps_its_file_and_gets_the_new_token() {
    let (mut world, name, source) = World::with_file(1);
    let session = gabion_meta::SessionId(7);
    let seen = world.meta.exclusive(source).expect("it is readable").token;
    let token = world.meta.open_exclusive(source, session, seen);
    let token = token.expect("it is free");
    world.snapshot(&name, true).expect("it is known");
    let present = world.meta.exclusive(source).expect("it is readable");
    assert_eq!(present.session, Some(session));
    assert!(present.token > token, "writes from before are refused");
}

#[test]
fn a_restarted_coordinator_lets_clients_write_again() {
    let (world, name, source) = World::with_file(1);
    let stripe = world.meta.layout(&name).expect("it is known").1[0].1.id;
    let tokens = world.meta.freeze(&[source]).expect("it is known");
    let token = tokens[&source];
    let store = world.meta.into_store();
    let clock = gabion_meta::WallClock::stopped(gabion_meta::WallTime::default());
    let meta = Meta::open(store, clock).expect("it is a cluster");
    assert_eq!(meta.token_to_update(source, stripe), Ok(token));
    let late = meta.snapshot((Inode::File(source), &tokens), "s", true, (9, 3));
    assert!(matches!(late, Err(MetaError::Superseded { .. })));
}

#[test]
fn a_file_has_a_limited_number_of_snapshots_and_says_so() {
    let (mut world, name, _) = World::with_file(1);
    let write = Change {
        first: 0,
        count: 1,
        writes: true,
        truncates: false,
    };
    let mut made = 0;
    let refused = loop {
        match world.snapshot(&name, true) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        world.change(&name, &write).expect("it is a file");
        world.release();
        world.reclaim();
    };
    assert!(matches!(
        refused,
        MetaError::Snapshot(SnapshotError::TooMany { .. })
    ));
    assert_eq!(made, 511);
    let oldest = world.files.keys().find(|name| name.starts_with('s'));
    world.remove(&oldest.cloned().expect("there are many"));
    while world.meta.discard_removed(9).expect("it works")
        || world.meta.merge_maps(9).expect("it works")
    {}
    world.snapshot(&name, true).expect("there is room again");
    world.check();
}
