//! Checks of redundancy over all disks and the committed metadata at once, which no process can see. They
//! run whenever either may have changed:
//!
//! - Each counting chunk survives any crash on its node, unless the metadata mark it stale, or an injected
//!   fault has destroyed it. So redundancy never falls below the pool's promise less the injected losses.
//! - A stripe that begins to count, or whose record has changed, is whole after a loss of all power at that
//!   instant: settled by the recovery rule, its chunks match its code, and its data have every acknowledged
//!   update.
//!
//! The checks read copies of disks, so the run is the same with and without them.

use crate::cells::{CELL_BYTES, cell_count};
use crate::cluster::{Cluster, store_options};
use crate::places::Place;
use crate::world::lock;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, NodeId, Sequence, StripeId, StripeRecord,
};
use gabion_protocol::message::{Holding, PendingRecord};
use gabion_protocol::settle::recovery_rule;
use gabion_store::{AppendedState, Cut, SimDisk, Store, StoreError, StripeState, chunk_path};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state of the checks between two runs.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: Mutex<Seen>,
    /// Files with an injected rotten bit or a failed read, of which the damage is not known to be repaired.
    rotten: Mutex<BTreeSet<String>>,
    /// Nodes whose disks were lost or replaced.
    doubtful: Mutex<BTreeSet<NodeId>>,
    /// No more checks run.
    rests: AtomicBool,
}

/// The state at the last check.
#[derive(Debug, Default)]
struct Seen {
    meta_write_count: u64,
    /// By node with a disk, the number of changed names there.
    name_counts: Vec<(NodeId, u64)>,
    stripes: BTreeMap<StripeId, StripeRecord>,
}

impl Watch {
    /// Ends the checks: a run whose clients know the expected bytes does many more operations without them.
    pub(crate) fn rest(&self) {
        self.rests.store(true, Ordering::Relaxed);
    }

    /// A bit of a file rots.
    pub(crate) fn rots(&self, path: String) {
        lock(&self.rotten).insert(path);
    }

    /// A node's disk dies, or returns to an earlier state.
    pub(crate) fn doubts(&self, node: NodeId) {
        lock(&self.doubtful).insert(node);
    }

    /// All detectable rot is repaired. An unreadable page is not detected where no process reads it, such
    /// as in a reserve whose records are in memory or merged. The next check looks at all nodes.
    pub(crate) fn is_whole(&self, cluster: &Cluster) {
        let disks = cluster.disks();
        let is_left = |path: &String| disks.values().any(|disk| disk.has_lost_pages(path));
        lock(&self.rotten).retain(is_left);
        lock(&self.doubtful).clear();
        lock(&self.seen).name_counts.clear();
    }

    /// Runs the checks, if there is a change. An error ends the run.
    pub(crate) fn look(&self, cluster: &Cluster) {
        if self.rests.load(Ordering::Relaxed) {
            return;
        }
        // A failed read may cost a chunk whose bytes are intact.
        let failed = take_failed_reads(cluster);
        lock(&self.rotten).extend(failed);
        let seen = &mut *lock(&self.seen);
        let name_counts = name_counts(cluster);
        let is_new = |count: &&(NodeId, u64)| !seen.name_counts.contains(count);
        let nodes = name_counts.iter().filter(is_new).map(|&(node, _)| node);
        let nodes: BTreeSet<NodeId> = nodes.collect();
        seen.name_counts = name_counts;
        let mut changed = Vec::new();
        let meta_write_count = cluster.meta_write_count();
        if seen.meta_write_count != meta_write_count {
            seen.meta_write_count = meta_write_count;
            let stripes = cluster.stripes().into_iter();
            let stripes: BTreeMap<_, _> = stripes.map(|stripe| (stripe.id, stripe)).collect();
            let is_new = |stripe: &&StripeRecord| seen.stripes.get(&stripe.id) != Some(stripe);
            changed.extend(stripes.values().filter(is_new).cloned());
            seen.stripes = stripes;
        }
        if nodes.is_empty() && changed.is_empty() {
            return;
        }
        let mut aftermath = Aftermath {
            cluster,
            disks: &cluster.disks(),
            rotten: &lock(&self.rotten),
            doubtful: &lock(&self.doubtful),
            stores: BTreeMap::new(),
            places: OnceCell::new(),
        };
        let there = aftermath.are_there(seen.stripes.values(), |node| nodes.contains(&node));
        let there = there.and_then(|()| aftermath.are_there(changed.iter(), |_| true));
        let mut changed = changed.iter();
        let whole = there.and_then(|()| changed.try_for_each(|stripe| aftermath.is_whole(stripe)));
        if let Err(why) = whole {
            cluster.world.fail(why);
        }
    }
}

/// By node with a disk, the number of changed names there.
fn name_counts(cluster: &Cluster) -> Vec<(NodeId, u64)> {
    let nodes = lock(&cluster.nodes);
    let counted = nodes
        .iter()
        .filter_map(|machine| Some((machine.id?, machine.disk.counts().name_count)));
    counted.collect()
}

/// The files of reads that have failed since the last call.
fn take_failed_reads(cluster: &Cluster) -> Vec<String> {
    let nodes = lock(&cluster.nodes);
    let known = nodes.iter().filter(|machine| machine.id.is_some());
    known
        .flat_map(|machine| machine.disk.take_failed_reads())
        .collect()
}

/// The state after a loss of all power now.
struct Aftermath<'a> {
    cluster: &'a Cluster,
    disks: &'a BTreeMap<NodeId, SimDisk>,
    rotten: &'a BTreeSet<String>,
    doubtful: &'a BTreeSet<NodeId>,
    /// The stores that nodes would find.
    stores: BTreeMap<NodeId, Store>,
    /// The places of all stripes in files.
    places: OnceCell<BTreeMap<StripeId, Place>>,
}

impl Aftermath<'_> {
    /// Whether a chunk may be missing or damaged: it is marked stale, its node's disk is lost, a bit of it
    /// has rotted, or a read of it has failed.
    fn is_excused(&self, stripe: &StripeRecord, index: ChunkIndex) -> bool {
        let chunk = chunk_of(stripe, index);
        stripe.is_stale(index)
            || !self.disks.contains_key(&stripe.nodes[index.at()])
            || self.doubtful.contains(&stripe.nodes[index.at()])
            || !self.rotten.is_empty() && self.rotten.contains(&chunk_path(chunk))
    }

    /// Chunks on these nodes that count are there after a crash.
    fn are_there<'r>(
        &self,
        stripes: impl Iterator<Item = &'r StripeRecord>,
        is_asked: impl Fn(NodeId) -> bool,
    ) -> Result<(), String> {
        for stripe in stripes {
            for (index, &node) in stripe.chunks().zip(&stripe.nodes) {
                if !is_asked(node) || self.is_excused(stripe, index) {
                    continue;
                }
                let chunk = chunk_of(stripe, index);
                if !self.disks[&node].keeps(&chunk_path(chunk)) {
                    return Err(format!(
                        "{chunk} counts, and {node} may not have it after a crash"
                    ));
                }
            }
        }
        Ok(())
    }

    fn is_whole(&mut self, stripe: &StripeRecord) -> Result<(), String> {
        let (code, geometry) = self.cluster.shape_of(stripe);
        let settled = self.settled(stripe);
        let (mark, chunks) = settled.map_err(|error| format!("after a loss of power: {error}"))?;
        let there: Vec<usize> = chunks.keys().map(|index| index.at()).collect();
        if !code.is_sufficient(&there) {
            // The nodes wait for others before they settle the stripe: these few cannot prove what stands.
            return Ok(());
        }
        let stored = |index| chunks.get(&index).map(|chunk| chunk.settled.as_slice());
        let data: Option<Vec<&[u8]>> = geometry.data_chunks().map(stored).collect();
        if let Some(data) = data {
            let mut made = vec![vec![0; stripe.chunk_bytes as usize]; geometry.m()];
            let mut rows: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            let encoded = code.encode(&data, &mut rows);
            encoded.expect("chunks of a stripe have one length");
            for (index, made) in geometry.parity_chunks().zip(&made) {
                if stored(index).is_some_and(|stored| stored != made) {
                    let chunk = chunk_of(stripe, index);
                    return Err(format!(
                        "after a loss of power, as of {mark}: {chunk} is not what the code makes"
                    ));
                }
            }
        }
        let places = self.places.get_or_init(|| self.cluster.places());
        let Some(place) = places.get(&stripe.id).copied() else {
            let others = self.cluster.other_stripes();
            return if others.contains(&stripe.id) {
                Ok(())
            } else {
                Err(format!("{} counts, and no file has it", stripe.id))
            };
        };
        let there = chunks.into_iter();
        let data = there.filter(|&(index, _)| geometry.is_data(index));
        let pieces = data.map(|(index, chunk)| in_file(place, index, chunk.newest));
        let pieces: Vec<(u64, Vec<u8>)> = pieces.collect();
        let read = self.cluster.ledger.check(place.file, &pieces);
        read.map_err(|wrong| format!("{} after a loss of power: {wrong}", stripe.id))
    }

    /// The chunks that count, read after their nodes have settled the stripe among themselves.
    fn settled(
        &mut self,
        stripe: &StripeRecord,
    ) -> Result<(Sequence, BTreeMap<ChunkIndex, Contents>), StoreError> {
        let failed = self.cluster.failed();
        let mut survivors = BTreeMap::new();
        let mut epoch = Epoch(0);
        for (index, node) in stripe.chunks().zip(&stripe.nodes) {
            if failed.contains(node) || self.is_excused(stripe, index) {
                continue;
            }
            let store = self.store(*node)?;
            let state = store.collect(stripe.id)?;
            epoch = epoch.max(Epoch(state.epoch.0 + 1));
            let appended = store.appended(stripe.id)?;
            survivors.insert(index, holding(state, appended));
        }
        let outcome = recovery_rule(&survivors);
        let mut chunks = BTreeMap::new();
        for &index in survivors.keys() {
            let store = self.store(stripe.nodes[index.at()])?;
            store.resolve(stripe.id, epoch, outcome.mark, &outcome.dropped)?;
            let read = |cut| {
                let (mut bytes, whole) = (Vec::new(), ByteRange::new(0, stripe.chunk_bytes));
                let chunk = chunk_of(stripe, index);
                store.read(chunk, whole, cut, &mut bytes).map(|_| bytes)
            };
            let contents = Contents {
                settled: read(Cut::Exactly(outcome.mark))?,
                newest: read(Cut::Newest(outcome.mark))?,
            };
            chunks.insert(index, contents);
        }
        Ok((outcome.mark, chunks))
    }

    /// A node's store at its start after the loss.
    fn store(&mut self, node: NodeId) -> Result<Store, StoreError> {
        if let Some(store) = self.stores.get(&node) {
            return Ok(store.clone());
        }
        let disk = &self.disks[&node];
        // One of the possible results of a crash, a different one each time.
        let left = disk.after_crash(disk.counts().operation_count);
        left.set_capacity(u64::MAX);
        let (store, _) = Store::open(Arc::new(left), store_options())?;
        self.stores.insert(node, store.clone());
        Ok(store)
    }
}

/// A chunk's bytes.
struct Contents {
    /// As parity covers them.
    settled: Vec<u8>,
    /// With appended updates.
    newest: Vec<u8>,
}

/// A data chunk as cells of its file, without the padding behind the file's end.
fn in_file(place: Place, index: ChunkIndex, mut bytes: Vec<u8>) -> (u64, Vec<u8>) {
    let first = place.first_cell + index.at() as u64 * cell_count(bytes.len() as u64);
    let left = place.file_cells.saturating_sub(first) * CELL_BYTES;
    bytes.truncate(left as usize);
    (first, bytes)
}

fn chunk_of(stripe: &StripeRecord, index: ChunkIndex) -> ChunkId {
    let stripe = stripe.id;
    ChunkId { stripe, index }
}

/// A node's answer when a stripe is settled.
fn holding(state: StripeState, appended: AppendedState) -> Holding {
    let records = state.records.into_iter();
    let records = records.map(|record| PendingRecord {
        chunk: record.chunk.index,
        epoch: record.stamp.epoch,
        sequence: record.stamp.sequence,
        participants: record.participants,
    });
    Holding {
        mark: state.mark,
        records: records.collect(),
        appended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parties::Slot;
    use crate::run::start;
    use crate::shape::Shape;
    use crate::workload::create_pool;
    use crate::world::World;
    use gabion_layout::UpdateScheme;
    use gabion_store::{Piece, Record, RecordKind, UpdateStamp};

    /// A cluster with one file. Its parity chunks have reserves.
    fn cluster() -> Arc<Cluster> {
        let world = World::new(1, 0);
        let shape = Shape {
            update: UpdateScheme::Plr,
            append: None,
            lifecycle: None,
            ..world.roll(|dice| Shape::draw(1, dice))
        };
        let cluster = Cluster::new(&world, shape);
        let known = Arc::clone(&cluster);
        world.run(async move {
            let client = start(&known).await;
            create_pool(&known, &client).await;
            while client.put("file", 1).await.is_err() {
                known.world.sleep(100_000).await;
            }
        });
        cluster
    }

    /// A chunk with a reserve, and its machine.
    fn chunk_with_reserve(cluster: &Cluster) -> (Slot, ChunkId) {
        let stripes = cluster.stripes();
        let mut chunks = stripes.iter().flat_map(|stripe| {
            let places = stripe.chunks().zip(&stripe.nodes);
            places.map(|(index, &node)| (node, chunk_of(stripe, index)))
        });
        let found = chunks.find_map(|(node, chunk)| {
            let slot = cluster.slot_of(node)?;
            let reserve = cluster.sound_store(slot)?.reserve(chunk);
            reserve.expect("the disk works").map(|_| (slot, chunk))
        });
        found.expect("parity chunks have reserves")
    }

    /// Appends a record to a chunk and drops it again, while a read fails: the store then loses the chunk.
    fn drop_unread(cluster: &Cluster, slot: Slot, chunk: ChunkId) -> Result<(), StoreError> {
        let store = cluster.sound_store(slot).expect("no node has failed");
        let state = store.collect(chunk.stripe)?;
        let (epoch, sequence) = (Epoch(state.epoch.0 + 1), Sequence(state.mark.0 + 1));
        let lsn = store.append(&Record {
            chunk,
            generation: state.generation,
            stamp: UpdateStamp { epoch, sequence },
            runs: Vec::new(),
            participants: vec![chunk.index],
            kind: RecordKind::ParityDelta,
            pieces: vec![Piece {
                data: chunk.index,
                offset: 0,
                bytes: b"delta",
            }],
        })?;
        store.sync(lsn)?;
        cluster.disk(slot).fail_next_read();
        store.resolve(chunk.stripe, Epoch(epoch.0 + 1), state.mark, &[sequence])
    }

    #[test]
    fn a_failed_read_in_a_settlement_costs_no_chunk() {
        let cluster = cluster();
        let (slot, chunk) = chunk_with_reserve(&cluster);
        let look = || {
            Watch::default().look(&cluster);
            cluster.world.failure()
        };
        assert_eq!(look(), None);
        drop_unread(&cluster, slot, chunk).unwrap();
        // The first look is told of the failed read, and would excuse a lost chunk. The second one is not.
        assert_eq!(look(), None);
        assert_eq!(look(), None);
        cluster.world.end();
        cluster.network.clear();
    }
}
