//! Checks that all rows agree. Operations keep them consistent; this finds the effects of damage or
//! a bug.

use crate::directory_quotas;
use crate::directory_rows::{key_of, path_of};
use crate::entering::{self, entered_maps};
use crate::error::MetaError;
use crate::extents::{Found, data_bytes, extents, find};
use crate::former_holders;
use crate::hard_links::{NAMES_MAX, others};
use crate::ids;
use crate::inline_rows::{agrees, inline_files};
use crate::kv::{KeyValue, ReadTxn};
use crate::layers::layers;
use crate::lock_ranges::HeldLock;
use crate::map_records::Extent;
use crate::meta::Meta;
use crate::names::check_user_attributes;
use crate::orphans::{self, is_orphan};
use crate::paths::DirectoryId;
use crate::pending::pending_stripes;
use crate::pool_spec::PoolSpec;
use crate::pools::pool;
use crate::quotas::contradiction;
use crate::records::{ClientSessionId, DirectoryRecord, FileRecord, Inode, MapId, PutId};
use crate::schema::{
    CLIENT_SESSIONS, COPIES, Counter, DIRECTORIES, DROPPED, EXCLUSIVE, EXTENTS, FILES, GARBAGE,
    GROWTHS, HARD_LINKS, LEASES, LOCKED_FILES, LOCKS, MAPS, MAPS_ABOVE, MERGES, MOVES, NAMES,
    NODES, PENDING, PLACED_ANEW, POOL_NAMES, POOLS, PUTS, REMOVED, REPLACEMENTS, STANDINGS,
    STRIPES, STRIPES_ON, USER_ATTRIBUTES,
};
use crate::table::Table;
use crate::written::{self, is_updated_in_place};
use gabion_layout::{NodeId, PoolId, StripeId, StripeRecord};
use std::collections::{BTreeMap, BTreeSet};

impl<K: KeyValue> Meta<K> {
    /// Reads every row in one transaction and returns a sentence for each contradiction, none if
    /// all rows agree. Holds all stripes in memory.
    ///
    /// # Errors
    /// When the store fails or a row cannot be decoded.
    pub fn check(&self) -> Result<Vec<String>, MetaError> {
        check_rows(&self.store)
    }
}

/// As [`Meta::check`], without opening the cluster, which would change rows.
///
/// # Errors
/// When the store fails or a row cannot be decoded.
pub fn check_rows(store: &impl KeyValue) -> Result<Vec<String>, MetaError> {
    store.read(|txn| {
        let mut check = Check::new(txn)?;
        check.stripes()?;
        check.files()?;
        check.copies()?;
        check.puts()?;
        check.replacements()?;
        check.index()?;
        check.leases()?;
        check.pools()?;
        check.standings()?;
        check.moves()?;
        check.rests()?;
        check.locks()?;
        check.uses()?;
        check.faults.extend(ids::contradictions(txn)?);
        check.faults.extend(entering::contradictions(txn)?);
        check.faults.extend(directory_quotas::contradictions(txn)?);
        check.faults.extend(orphans::contradictions(txn)?);
        check.faults.extend(former_holders::contradictions(txn)?);
        check.faults.extend(written::contradictions(txn)?);
        Ok(check.faults)
    })
}

type Stripes = BTreeMap<StripeId, StripeRecord>;

struct Check<'t> {
    txn: &'t dyn ReadTxn,
    nodes: BTreeSet<NodeId>,
    pools: BTreeMap<PoolId, PoolSpec>,
    live: Stripes,
    pending: Stripes,
    garbage: Stripes,
    faults: Vec<String>,
}

impl<'t> Check<'t> {
    fn new(txn: &'t dyn ReadTxn) -> Result<Self, MetaError> {
        let all = |table: &Table<StripeId, StripeRecord>| -> Result<Stripes, MetaError> {
            Ok(table
                .scan(txn, &table.all(), usize::MAX)?
                .into_iter()
                .collect())
        };
        let nodes = NODES.scan(txn, &NODES.all(), usize::MAX)?;
        let mut pools = BTreeMap::new();
        for (id, _) in POOLS.scan(txn, &POOLS.all(), usize::MAX)? {
            pools.insert(id, pool(txn, id)?.spec);
        }
        Ok(Self {
            txn,
            nodes: nodes.into_iter().map(|(id, _)| id).collect(),
            pools,
            live: all(&STRIPES)?,
            pending: all(&PENDING)?,
            garbage: all(&GARBAGE)?,
            faults: Vec::new(),
        })
    }

    fn demand(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(fault());
        }
    }

    /// Each stripe is in one table, has its pool's shape, and its own id.
    fn stripes(&mut self) -> Result<(), MetaError> {
        let count = Counter::StripeCount.value(self.txn)?;
        let live = self.live.len();
        self.demand(count == live as u64, || {
            format!("{live} stripes are live, but the counter says {count}")
        });
        let tables = [&self.live, &self.pending, &self.garbage];
        let mut seen = BTreeSet::new();
        let mut faults = Vec::new();
        for (&id, stripe) in tables.into_iter().flatten() {
            if !seen.insert(id) {
                faults.push(format!("{id} is in two of live, pending and garbage"));
            }
            if stripe.id != id {
                faults.push(format!("{id} has a record of {}", stripe.id));
            }
            let distinct: BTreeSet<_> = stripe.nodes.iter().collect();
            let shape = self.pools.get(&stripe.pool).is_some_and(|spec| {
                distinct.len() == spec.k + spec.m && stripe.chunk_bytes <= spec.chunk_bytes
            });
            if !shape || distinct.len() != stripe.nodes.len() {
                faults.push(format!("{id} does not have the shape of {}", stripe.pool));
            }
            if distinct.iter().any(|node| !self.nodes.contains(node)) {
                faults.push(format!("{id} is on an unknown node"));
            }
            let sorted = stripe.stale.is_sorted_by(|a, b| a.chunk < b.chunk);
            if !sorted
                || stripe
                    .stale
                    .iter()
                    .any(|s| s.chunk.at() >= stripe.nodes.len())
            {
                faults.push(format!("{id} has an invalid list of stale chunks"));
            }
        }
        self.faults.append(&mut faults);
        Ok(())
    }

    /// Each directory has one name, in a directory that lies below the root, and counts the levels below it. Takes
    /// their names away.
    fn directories(
        &mut self,
        names: &mut BTreeMap<(DirectoryId, String), Inode>,
    ) -> Result<(), MetaError> {
        let rows = DIRECTORIES.scan(self.txn, &DIRECTORIES.all(), usize::MAX)?;
        let mut has_root = false;
        for (id, row) in rows {
            let DirectoryRecord {
                parent,
                name,
                level_count,
                ..
            } = row;
            if id == DirectoryId::ROOT {
                has_root = parent == id && name.is_empty();
                continue;
            }
            let of_name = names.remove(&(parent, key_of(&name)));
            let is_its_own = of_name == Some(Inode::Directory(id));
            self.demand(is_its_own, || {
                format!("directory '{name}' and its name do not agree")
            });
            let is_below_root = path_of(self.txn, parent, &name).is_ok();
            self.demand(is_below_root, || format!("directory '{name}' lies nowhere"));
            let above = DIRECTORIES.get(self.txn, &parent)?;
            let counts = parent == DirectoryId::ROOT
                || above.is_some_and(|above| above.level_count > level_count);
            self.demand(counts, || {
                format!("directory '{name}' is too deep for the one above")
            });
        }
        self.demand(has_root, || "the root directory is missing".to_owned());
        for (parent, name) in names.keys() {
            let is_free = NAMES.get(self.txn, &(*parent, key_of(name)))?.is_none();
            self.demand(is_free, || {
                format!("'{name}' is the name of a file and of a directory")
            });
            let is_held = DIRECTORIES.get(self.txn, parent)?.is_some();
            self.demand(is_held, || {
                format!("'{name}' lies in a directory that is not there")
            });
        }
        Ok(())
    }

    /// Pools use what their stripes and files take.
    fn uses(&mut self) -> Result<(), MetaError> {
        let stripes = self.live.values().chain(self.pending.values());
        let fault = contradiction(self.txn, stripes)?;
        self.faults.extend(fault);
        Ok(())
    }

    /// Files refer to each live stripe once.
    fn files(&mut self) -> Result<(), MetaError> {
        let mut unclaimed: BTreeSet<StripeId> = self.live.keys().copied().collect();
        let mut faults = Vec::new();
        let names = NAMES.scan(self.txn, &NAMES.all(), usize::MAX)?;
        let mut names: BTreeMap<(DirectoryId, String), Inode> = names.into_iter().collect();
        self.directories(&mut names)?;
        let mut maps = self.maps()?;
        for (put, file) in FILES.scan(self.txn, &FILES.all(), usize::MAX)? {
            let name = &file.name;
            maps.insert(file.map);
            let mut keys = others(self.txn, put)?;
            if !is_orphan(&file) {
                keys.push((file.directory, name.clone()));
            }
            let of_names: Vec<_> = keys.iter().map(|key| names.remove(key)).collect();
            let are_its_own = of_names
                .iter()
                .all(|&inode| inode == Some(Inode::File(put)));
            let are_counted = file.link_count == keys.len() as u64 && keys.len() <= NAMES_MAX;
            if !(are_its_own && are_counted && file.put == put) {
                faults.push(format!("file '{name}' and its names do not agree"));
            }
            let is_empty = file.size_bytes == 0 && file.stripe_count == 0;
            if !(file.symlink.is_none() || is_empty) {
                faults.push(format!("'{name}' is a symbolic link with bytes"));
            }
            let extents = extents(self.txn, file.map)?;
            if !self.fills_segments(&file, &extents)? {
                faults.push(format!("the blocks of file '{name}' do not form segments"));
            }
            if !self.fit(&file, &extents)? {
                faults.push(format!("file '{name}' has extents that do not fit"));
            }
            if !agrees(self.txn, &file, !extents.is_empty())? {
                faults.push(format!("file '{name}' and its inline bytes differ"));
            }
            if !self.shares(&file, &extents)? {
                faults.push(format!(
                    "file '{name}' does not know which of its stripes other files share"
                ));
            }
        }
        let removed = REMOVED.scan(self.txn, &REMOVED.all(), usize::MAX)?;
        maps.extend(removed.into_iter().map(|(map, ())| map));
        maps.extend(entered_maps(self.txn)?);
        for ((map, offset), row) in EXTENTS.scan(self.txn, &EXTENTS.all(), usize::MAX)? {
            self.demand(maps.contains(&map), || {
                format!("{map} belongs to no file, but has extents")
            });
            let Some(Extent { stripe, .. }) = row else {
                let hidden = find(self.txn, &layers(self.txn, map)?[1..], offset)?;
                self.demand(hidden.is_some(), || {
                    format!("{map} hides byte {offset} of a map below it, which has nothing there")
                });
                continue;
            };
            self.demand(unclaimed.remove(&stripe), || {
                format!("{map} refers to {stripe}, which is not its own")
            });
        }
        for (_, name) in names.into_keys() {
            faults.push(format!("'{name}' is the name of no file or directory"));
        }
        for id in unclaimed {
            self.faults
                .push(format!("{id} is live, but no file refers to it"));
        }
        self.faults.append(&mut faults);
        Ok(())
    }

    /// Copies of shared stripes are live.
    fn copies(&mut self) -> Result<(), MetaError> {
        for (copy, ()) in COPIES.scan(self.txn, &COPIES.all(), usize::MAX)? {
            self.demand(self.live.contains_key(&copy), || {
                format!("{copy} is not live, but a copy of a shared stripe")
            });
        }
        Ok(())
    }

    /// All maps that are below others. Each agrees with the table of the maps above it, and has several above it, or
    /// one that takes it in.
    fn maps(&mut self) -> Result<BTreeSet<MapId>, MetaError> {
        let rows = MAPS.scan(self.txn, &MAPS.all(), usize::MAX)?;
        let above = MAPS_ABOVE.scan(self.txn, &MAPS_ABOVE.all(), usize::MAX)?;
        let above: BTreeSet<_> = above.into_iter().map(|(key, ())| key).collect();
        let expected: BTreeSet<_> = rows.iter().map(|(map, row)| (row.below, *map)).collect();
        self.demand(above == expected, || {
            "the order of maps and its index differ".to_owned()
        });
        for (map, row) in &rows {
            let file = row
                .file
                .map(|file| FILES.get(self.txn, &file))
                .transpose()?;
            let is_its = file.is_none_or(|file| file.is_some_and(|file| file.map == *map));
            let is_alone = expected
                .iter()
                .filter(|(below, _)| *below == row.below)
                .count()
                == 1;
            let ends =
                MERGES.get(self.txn, map)?.is_some() || REMOVED.get(self.txn, map)?.is_some();
            self.demand(is_its && (ends || !is_alone), || {
                format!("{map} does not belong to its file, or does not take in the map below it")
            });
        }
        Ok(rows.into_iter().map(|(_, row)| row.below).collect())
    }

    /// Whether a file counts the stripes that other files may have, and updates none of these in place.
    fn shares(&self, file: &FileRecord, extents: &[Found]) -> Result<bool, MetaError> {
        let is_own = |found: &&Found| found.map == file.map;
        let own_count = extents.iter().filter(is_own).count() as u64;
        let shared_count = extents.len() as u64 - own_count;
        let mut knows = true;
        for Found { extent, map, .. } in extents {
            knows &= *map == file.map || !is_updated_in_place(self.txn, file, extent.stripe)?;
        }
        let row = MAPS.get(self.txn, &file.map)?;
        let is_its = row.is_none_or(|row| row.file == Some(file.put));
        Ok(shared_count == file.shared_stripe_count && knows && is_its)
    }

    /// Whether a file's replicated blocks match the chunks that they will become, in number for
    /// each segment and in size.
    fn fills_segments(&self, file: &FileRecord, extents: &[Found]) -> Result<bool, MetaError> {
        let Some(lifecycle) = pool(self.txn, file.pool)?.lifecycle else {
            return Ok(true);
        };
        let wanted = self.pools.get(&lifecycle.encoded).map_or(0, |spec| spec.k);
        let stripes = extents
            .iter()
            .filter_map(|found| self.live.get(&found.extent.stripe));
        let kinds: Vec<_> = stripes
            .map(|s| (s.pool == file.pool, s.chunk_bytes))
            .collect();
        let runs = kinds.chunk_by(|a, b| a == b);
        let mut replicated = runs.filter(|run| run[0].0);
        Ok(wanted > 0 && replicated.all(|run| run.len().is_multiple_of(wanted)))
    }

    /// Whether a file's extents are as long as their stripes, do not overlap, and each begins where a segment
    /// does, within the file. Blocks that are replicated at first leave no holes.
    fn fit(&self, file: &FileRecord, extents: &[Found]) -> Result<bool, MetaError> {
        let record = pool(self.txn, file.pool)?;
        let is_free = record.lifecycle.is_none();
        let segment = is_free.then(|| record.spec.segment_bytes());
        let (mut end, mut fits) = (0, extents.len() as u64 == file.stripe_count);
        for Found { offset, extent, .. } in extents {
            let length = match self.live.get(&extent.stripe) {
                Some(stripe) => data_bytes(self.txn, stripe)?,
                None => extent.length_bytes,
            };
            fits &= extent.length_bytes == length;
            fits &= match segment {
                Some(segment) => {
                    offset.is_multiple_of(segment) && *offset >= end && *offset < file.size_bytes
                }
                None => *offset == end,
            };
            end = offset.saturating_add(length);
        }
        Ok(fits && (segment.is_some() || end >= file.size_bytes))
    }

    /// Each pending stripe belongs to one put, and so does each re-placed one.
    fn puts(&mut self) -> Result<(), MetaError> {
        let anew = PLACED_ANEW.scan(self.txn, &PLACED_ANEW.all(), usize::MAX)?;
        let mut anew: BTreeSet<StripeId> = anew.into_iter().map(|(first, _)| first).collect();
        let mut unclaimed: BTreeSet<StripeId> = self.pending.keys().copied().collect();
        for (id, put) in PUTS.scan(self.txn, &PUTS.all(), usize::MAX)? {
            for stripe in pending_stripes(self.txn, &put)? {
                self.demand(unclaimed.remove(&stripe.id), || {
                    format!("{id} has {}, which is not its own", stripe.id)
                });
            }
            anew.retain(|first| !put.runs.iter().any(|run| run.contains(*first)));
        }
        for first in anew {
            self.faults
                .push(format!("{first} was placed again, but belongs to no put"));
        }
        for id in unclaimed {
            self.faults
                .push(format!("{id} is pending, but belongs to no put"));
        }
        Ok(())
    }

    /// Each replacement is a put with one stripe for each displaced one.
    fn replacements(&mut self) -> Result<(), MetaError> {
        for (id, record) in REPLACEMENTS.scan(self.txn, &REPLACEMENTS.all(), usize::MAX)? {
            let put = PUTS.get(self.txn, &id)?;
            let count = (record.rewrite.offsets.len() + record.rewrite.copied.len()) as u64;
            let reserved = put.map(|put| put.runs.iter().map(|run| run.count).sum());
            self.demand(reserved == Some(count), || {
                format!("{id} brings {count} stripes, but its put does not match")
            });
        }
        Ok(())
    }

    /// The index by node matches the records of the live stripes.
    fn index(&mut self) -> Result<(), MetaError> {
        let rows = STRIPES_ON.scan(self.txn, &STRIPES_ON.all(), usize::MAX)?;
        let indexed: BTreeSet<_> = rows.into_iter().map(|(key, ())| key).collect();
        let on_node = |stripe: &StripeRecord| {
            let id = stripe.id;
            stripe.nodes.clone().into_iter().map(move |node| (node, id))
        };
        let recorded: BTreeSet<_> = self.live.values().flat_map(on_node).collect();
        for (node, stripe) in indexed.symmetric_difference(&recorded) {
            let fault =
                format!("the index and the record of {stripe} contradict each other about {node}");
            self.faults.push(fault);
        }
        Ok(())
    }

    /// Only live stripes have leases.
    fn leases(&mut self) -> Result<(), MetaError> {
        for (id, lease) in LEASES.scan(self.txn, &LEASES.all(), usize::MAX)? {
            let sound = self.live.contains_key(&id) && lease.epoch.0 > 0;
            self.demand(sound, || {
                format!("{id} is not live, but has a lease in {}", lease.epoch)
            });
        }
        Ok(())
    }

    /// Only known nodes have standings.
    fn standings(&mut self) -> Result<(), MetaError> {
        for (id, _) in STANDINGS.scan(self.txn, &STANDINGS.all(), usize::MAX)? {
            let is_known = self.nodes.contains(&id);
            self.demand(is_known, || format!("{id} is unknown, but has a standing"));
        }
        Ok(())
    }

    /// Dropped stripes, growths and fencing tokens belong to files.
    fn rests(&mut self) -> Result<(), MetaError> {
        let dropped = DROPPED.scan(self.txn, &DROPPED.all(), usize::MAX)?;
        let growths = GROWTHS.scan(self.txn, &GROWTHS.all(), usize::MAX)?;
        let dropped = dropped.into_iter().map(|((file, _), ())| file);
        let growths = growths.into_iter().map(|(file, _)| file);
        let exclusive = EXCLUSIVE.scan(self.txn, &EXCLUSIVE.all(), usize::MAX)?;
        let exclusive = exclusive.into_iter().map(|(file, _)| file);
        let links = HARD_LINKS.scan(self.txn, &HARD_LINKS.all(), usize::MAX)?;
        let links = links.into_iter().map(|(file, _)| file);
        let links = links.chain(inline_files(self.txn)?);
        self.attributes()?;
        for file in dropped.chain(growths).chain(exclusive).chain(links) {
            let is_known = FILES.get(self.txn, &file)?.is_some();
            self.demand(is_known, || {
                format!("{file} made no file, but has names, dropped stripes, growths or a fencing token")
            });
        }
        Ok(())
    }

    /// Locks belong to files and sessions, do not conflict, and are counted.
    fn locks(&mut self) -> Result<(), MetaError> {
        let rows = LOCKS.scan(self.txn, &LOCKS.all(), usize::MAX)?;
        let index = LOCKED_FILES.scan(self.txn, &LOCKED_FILES.all(), usize::MAX)?;
        let sessions = CLIENT_SESSIONS.scan(self.txn, &CLIENT_SESSIONS.all(), usize::MAX)?;
        let mut counts: BTreeMap<ClientSessionId, u64> = BTreeMap::new();
        let mut locks: BTreeMap<PutId, Vec<(ClientSessionId, HeldLock)>> = BTreeMap::new();
        for ((file, session), held) in &rows {
            let is_known = FILES.get(self.txn, file)?.is_some();
            self.demand(is_known && !held.is_empty(), || {
                format!("{file} made no file, but has a row of locks")
            });
            *counts.entry(*session).or_default() += held.len() as u64;
            let of_file = locks.entry(*file).or_default();
            of_file.extend(held.iter().map(|&lock| (*session, lock)));
        }
        let expected: BTreeSet<_> = rows
            .iter()
            .map(|((file, session), _)| (*session, *file))
            .collect();
        let indexed: BTreeSet<_> = index.into_iter().map(|(key, ())| key).collect();
        self.demand(expected == indexed, || {
            "locks and their index by session differ".to_owned()
        });
        let total: u64 = counts.values().sum();
        let count = Counter::LockCount.value(self.txn)?;
        self.demand(total == count, || {
            format!("there are {total} locks, and {count} are counted")
        });
        for (session, count) in sessions {
            let own = counts.remove(&session).unwrap_or_default();
            self.demand(own == count, || {
                format!("{session:?} has {own} locks and counts {count}")
            });
        }
        self.demand(counts.is_empty(), || "locks have no session".to_owned());
        for (file, held) in locks {
            for (place, (session, lock)) in held.iter().enumerate() {
                let clashes = held[..place].iter().any(|(other, earlier)| {
                    (other, earlier.owner) != (session, lock.owner) && earlier.conflicts_with(lock)
                });
                self.demand(!clashes, || {
                    format!("locks of two owners in {file} conflict")
                });
            }
        }
        Ok(())
    }

    /// Attributes belong to inodes.
    fn attributes(&mut self) -> Result<(), MetaError> {
        let user = USER_ATTRIBUTES.scan(self.txn, &USER_ATTRIBUTES.all(), usize::MAX)?;
        for (inode, all) in user {
            let is_known = match inode {
                Inode::File(put) => FILES.get(self.txn, &put)?.is_some(),
                Inode::Directory(id) => DIRECTORIES.get(self.txn, &id)?.is_some(),
            };
            let is_valid = is_known && check_user_attributes(&all).is_ok();
            self.demand(is_valid, || {
                format!("{inode:?} cannot have its user attributes")
            });
        }
        Ok(())
    }

    /// A move that has begun belongs to a live stripe, and its generation is to come.
    fn moves(&mut self) -> Result<(), MetaError> {
        for (id, told) in MOVES.scan(self.txn, &MOVES.all(), usize::MAX)? {
            let record = self.live.get(&id);
            let is_next = record.is_some_and(|record| told > record.generation);
            self.demand(is_next, || format!("{id} cannot move to generation {told}"));
        }
        Ok(())
    }

    /// Pools match their names.
    fn pools(&mut self) -> Result<(), MetaError> {
        let names = POOL_NAMES.scan(self.txn, &POOL_NAMES.all(), usize::MAX)?;
        let by_id: BTreeMap<_, _> = names.into_iter().map(|(name, id)| (id, name)).collect();
        let recorded: BTreeMap<_, _> = self
            .pools
            .iter()
            .map(|(&id, spec)| (id, spec.name.clone()))
            .collect();
        self.demand(by_id == recorded, || {
            "the pools' names and records contradict each other".to_owned()
        });
        Ok(())
    }
}
