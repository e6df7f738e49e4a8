//! Checks of redundancy over all disks and the committed metadata at once, which no process sees. They run
//! whenever either may have changed:
//!
//! - Each chunk of each stripe that counts is where any crash leaves it, unless the metadata say that it does not
//!   count, or what was injected has taken it. So no fewer losses are survived than the pool promises and those
//!   that were injected leave.
//! - A stripe that begins to count, or whose record is another than before, is whole on what a loss of all
//!   power at that instant would leave: settled by the recovery rule, its chunks are what the code makes of its
//!   data, and its data have every update that was acknowledged.
//!
//! What is read back are copies of disks, so the run is the same with it as without.

use crate::cells::{CELL_BYTES, cell_count};
use crate::cluster::{Cluster, Place, store_options};
use crate::world::lock;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, NodeId, Sequence, StripeId, StripeRecord,
};
use gabion_protocol::message::{Holding, PendingRecord};
use gabion_protocol::settle::recovery_rule;
use gabion_store::{AppendedState, Cut, SimDisk, Store, StoreError, StripeState, chunk_path};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;

/// The state of the checks between two of them.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: Mutex<Seen>,
    /// Files with a bit that was made to rot, and is not known to be mended.
    rotten: Mutex<BTreeSet<String>>,
    /// Nodes whose disks are not what they were.
    doubtful: Mutex<BTreeSet<NodeId>>,
}

/// What there was when it was looked last.
#[derive(Debug, Default)]
struct Seen {
    meta_write_count: u64,
    /// By node with a disk, how often names have changed there.
    name_counts: BTreeMap<NodeId, u64>,
    stripes: BTreeMap<StripeId, StripeRecord>,
}

impl Watch {
    /// A bit of a file rots.
    pub(crate) fn rots(&self, path: String) {
        lock(&self.rotten).insert(path);
    }

    /// A node's disk dies, or is what it was at an earlier instant.
    pub(crate) fn doubts(&self, node: NodeId) {
        lock(&self.doubtful).insert(node);
    }

    /// Nothing that can be found is rotten any more. A page that cannot be read is not found where nothing
    /// reads it, such as in a reserve whose records are in memory or merged.
    pub(crate) fn is_whole(&self, cluster: &Cluster) {
        let disks = cluster.disks();
        let is_left = |path: &String| disks.values().any(|disk| disk.has_lost_pages(path));
        lock(&self.rotten).retain(is_left);
        lock(&self.doubtful).clear();
    }

    /// Looks, if there is anything new to see. What is wrong ends the run.
    pub(crate) fn look(&self, cluster: &Cluster) {
        let disks = cluster.disks();
        let name_counts = disks.iter().map(|(&node, disk)| (node, disk.counts()));
        let name_counts = name_counts.map(|(node, counts)| (node, counts.name_count));
        let name_counts: BTreeMap<NodeId, u64> = name_counts.collect();
        let meta_write_count = cluster.meta_write_count();
        let seen = &mut *lock(&self.seen);
        let mut changed = Vec::new();
        if seen.meta_write_count != meta_write_count {
            seen.meta_write_count = meta_write_count;
            let stripes = cluster.stripes().into_iter();
            let stripes: BTreeMap<_, _> = stripes.map(|stripe| (stripe.id, stripe)).collect();
            let is_new = |stripe: &&StripeRecord| seen.stripes.get(&stripe.id) != Some(stripe);
            changed.extend(stripes.values().filter(is_new).cloned());
            if seen.stripes == stripes && seen.name_counts == name_counts {
                return;
            }
            seen.stripes = stripes;
        } else if seen.name_counts == name_counts {
            return;
        }
        seen.name_counts = name_counts;
        let mut aftermath = Aftermath {
            cluster,
            disks: &disks,
            rotten: &lock(&self.rotten),
            doubtful: &lock(&self.doubtful),
            stores: BTreeMap::new(),
        };
        let there = seen
            .stripes
            .values()
            .try_for_each(|stripe| aftermath.is_there(stripe));
        let mut whole = changed.iter();
        let whole = there.and_then(|()| whole.try_for_each(|stripe| aftermath.is_whole(stripe)));
        if let Err(why) = whole {
            cluster.world.fail(why);
        }
    }
}

/// What a loss of all power would leave now.
struct Aftermath<'a> {
    cluster: &'a Cluster,
    disks: &'a BTreeMap<NodeId, SimDisk>,
    rotten: &'a BTreeSet<String>,
    doubtful: &'a BTreeSet<NodeId>,
    /// The stores that nodes would find.
    stores: BTreeMap<NodeId, Store>,
}

impl Aftermath<'_> {
    /// Whether a chunk may be missing or damaged: it is marked stale, its node's disk is
    /// lost, or a bit of it has rotted.
    fn is_excused(&self, stripe: &StripeRecord, index: ChunkIndex) -> bool {
        let chunk = chunk_of(stripe, index);
        stripe.is_stale(index)
            || !self.disks.contains_key(&stripe.nodes[index.at()])
            || self.doubtful.contains(&stripe.nodes[index.at()])
            || self.rotten.contains(&chunk_path(chunk))
    }

    fn is_there(&self, stripe: &StripeRecord) -> Result<(), String> {
        for (index, node) in stripe.chunks().zip(&stripe.nodes) {
            let chunk = chunk_of(stripe, index);
            if !self.is_excused(stripe, index) && !self.disks[node].keeps(&chunk_path(chunk)) {
                return Err(format!(
                    "{chunk} counts, and {node} may not have it after a crash"
                ));
            }
        }
        Ok(())
    }

    fn is_whole(&mut self, stripe: &StripeRecord) -> Result<(), String> {
        let (code, geometry) = self.cluster.shape_of(stripe);
        let settled = self.settled(stripe);
        let (mark, chunks) = settled.map_err(|error| format!("after a loss of power: {error}"))?;
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
        let Some(place) = self.cluster.places().get(&stripe.id).copied() else {
            return Err(format!("{} counts, and no file has it", stripe.id));
        };
        let there = chunks.into_iter();
        let data = there.filter(|&(index, _)| geometry.is_data(index));
        let pieces = data.map(|(index, chunk)| in_file(place, index, chunk.newest));
        let pieces: Vec<(u64, Vec<u8>)> = pieces.collect();
        let read = self.cluster.ledger.check(place.file, &pieces);
        read.map_err(|wrong| format!("{} after a loss of power: {wrong}", stripe.id))
    }

    /// The chunks that count, read when the nodes that have them have settled the stripe among themselves.
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

    /// What a node's store is when it starts after the loss.
    fn store(&mut self, node: NodeId) -> Result<Store, StoreError> {
        if let Some(store) = self.stores.get(&node) {
            return Ok(store.clone());
        }
        let disk = &self.disks[&node];
        // One of the ways in which a crash can end, and another each time.
        let left = disk.after_crash(disk.counts().operation_count);
        left.set_capacity(u64::MAX);
        let (store, _) = Store::open(Arc::new(left), store_options())?;
        self.stores.insert(node, store.clone());
        Ok(store)
    }
}

/// A chunk's bytes.
struct Contents {
    /// As the code knows them.
    settled: Vec<u8>,
    /// With what parity is to follow.
    newest: Vec<u8>,
}

/// A data chunk as cells of its file, and without what is behind the file's end.
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

/// What a node says of a stripe when it is settled.
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
