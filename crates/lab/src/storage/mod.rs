//! The storage side of a cluster without its network: real stores, driven with planner plans through
//! the interface that servers use, by as many threads as an experiment has clients.
//!
//! Each stripe has a lock in place of its primary. An update is acknowledged when all participants'
//! records are durable, as on a cluster; then its mark is raised, and records move as the update
//! scheme says. The network is left out, and with it leases, failures and settling. Stores
//! record what they ask of their disks.

mod interpreter;
mod recording;

pub use recording::{IoCount, Recorded, Recorder, RecordingDisk, replay, replay_unsynced};

use crate::error::LabError;
use gabion_codec::Code;
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, Generation, Geometry, Keeping, NodeId, RunId, Sequence,
    StripeId, Topology, UpdateScheme,
};
use gabion_planner::Stripe;
use gabion_planner::repair::{self, Scheme};
use gabion_planner::update;
use gabion_store::{
    ChunkSpec, Options, Piece, RealDisk, Record, RecordKind, Store, StoreError, UpdateStamp,
};
use interpreter::{Outcome, Stored};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The generation and epoch of everything: nothing here ever moves or fails.
const GENERATION: Generation = Generation(1);
const EPOCH: Epoch = Epoch(1);
/// Settled bytes that a node collects before it brings them into data chunks.
const APPLY_BYTES: u64 = 4 << 20;

/// The parameters of stripes and stores.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The code.
    pub code: Code,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// The update scheme.
    pub scheme: UpdateScheme,
    /// Bytes reserved behind each parity chunk, for the scheme that reserves.
    pub reserve_bytes: u64,
    /// Nodes. Chunk `j` of stripe `s` is on node `(s + j) mod nodes`.
    pub node_count: u32,
    /// Stripes.
    pub stripe_count: u64,
    /// The options with which each store is opened.
    pub options: Options,
}

impl Shape {
    /// Returns the keeping of a chunk's records.
    fn keeping(&self, chunk: ChunkIndex) -> Keeping {
        let keepings = update::scheme(self.scheme).keepings(self.reserve_bytes);
        if chunk.at() < self.code.k() {
            keepings.data
        } else {
            keepings.parity
        }
    }
}

/// Stores with stripes on them.
#[derive(Debug)]
pub struct Storage {
    shape: Shape,
    geometry: Geometry,
    directory: PathBuf,
    stores: Vec<Store>,
    recorders: Vec<Recorder>,
    stripes: Vec<Mutex<StripeState>>,
    /// Journaled bytes of each node that were not brought into chunks yet.
    unapplied_bytes: Vec<Mutex<u64>>,
}

#[derive(Debug)]
struct StripeState {
    placement: Vec<NodeId>,
    /// The last update; all are settled.
    mark: Sequence,
}

impl Storage {
    /// Makes empty stores in `directory`, one for each node.
    ///
    /// # Errors
    /// [`LabError::Geometry`] when code and chunk size do not fit; [`LabError::Store`].
    ///
    /// # Panics
    /// When there are fewer nodes than a stripe has chunks.
    pub fn create(directory: &Path, shape: Shape) -> Result<Self, LabError> {
        let code = &shape.code;
        let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), shape.chunk_bytes)?;
        assert!(
            shape.node_count as usize >= geometry.n(),
            "a node for each chunk"
        );
        let (mut stores, mut recorders) = (Vec::new(), Vec::new());
        for node in 0..shape.node_count {
            let recorder = Recorder::default();
            let disk = RealDisk::open(directory.join(node.to_string()))?;
            let disk = RecordingDisk::new(disk, recorder.clone());
            stores.push(Store::open(Arc::new(disk), shape.options)?.0);
            recorders.push(recorder);
        }
        let node = |at: u64| NodeId((at % u64::from(shape.node_count)) as u32);
        let stripe = |s: u64| StripeState {
            placement: (0..geometry.n() as u64).map(|j| node(s + j)).collect(),
            mark: Sequence(0),
        };
        Ok(Self {
            geometry,
            directory: directory.to_owned(),
            stripes: (0..shape.stripe_count)
                .map(|s| Mutex::new(stripe(s)))
                .collect(),
            unapplied_bytes: stores.iter().map(|_| Mutex::new(0)).collect(),
            shape,
            stores,
            recorders,
        })
    }

    /// The shape of its stripes.
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The stores, by node.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// Returns the operations recorded at each node since they were last taken.
    pub fn take_recordings(&self) -> Vec<Vec<Recorded>> {
        self.recorders.iter().map(Recorder::take).collect()
    }

    /// Writes a stripe's data and parity.
    ///
    /// # Errors
    /// [`LabError::Store`].
    ///
    /// # Panics
    /// When `data` has not the bytes of a stripe.
    pub fn put(&self, stripe: u64, data: &[u8]) -> Result<(), LabError> {
        assert_eq!(
            data.len() as u64,
            self.geometry.stripe_bytes(),
            "a whole stripe"
        );
        let chunk_bytes = self.geometry.chunk_bytes() as usize;
        let mut parity = vec![vec![0; chunk_bytes]; self.geometry.m()];
        let sources: Vec<&[u8]> = data.chunks(chunk_bytes).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        let encoded = self.shape.code.encode(&sources, &mut outputs);
        encoded.expect("k and m chunks of one length");
        let chunks = sources.into_iter().chain(parity.iter().map(Vec::as_slice));
        let state = self.stripe(stripe);
        for (index, bytes) in self.geometry.chunks().zip(chunks) {
            let node = state.placement[index.at()];
            self.install(node, stripe, index, Sequence(0), [(0, bytes)])?;
        }
        Ok(())
    }

    /// Overwrites bytes of a stripe, durably. The scheme's immediate work is included.
    ///
    /// # Errors
    /// [`LabError::Store`]; [`LabError::Plan`] and [`LabError::Geometry`] when the bytes are not the
    /// stripe's.
    pub fn update(&self, stripe: u64, offset: u64, bytes: &[u8]) -> Result<(), LabError> {
        let ranges = self
            .geometry
            .split(ByteRange::new(offset, bytes.len() as u64))?;
        let mut inputs = BTreeMap::new();
        let mut rest = bytes;
        for part in &ranges {
            let (first, behind) = rest.split_at(part.range.length as usize);
            inputs.insert((part.chunk, part.range.offset), first);
            rest = behind;
        }
        let mut state = self.stripe(stripe);
        // Racks matter only where chunks are lost.
        let plan = update::delta(
            &self.planned(stripe, &state.placement, &[]),
            &Topology::uniform(1, 1),
            &ranges,
            u64::MAX,
        )?;
        let plans = [plan];
        let stored = Stored::of(&self.stores, &plans, state.mark)?;
        let outcome = interpreter::run(&plans[0], &stored, &inputs);
        let sequence = Sequence(state.mark.0 + 1);
        self.record(stripe, sequence, &outcome)?;
        state.mark = sequence;
        self.settle(stripe, sequence, &outcome)
    }

    /// Reads bytes of a stripe, through the code where a chunk's node is in `failed`.
    ///
    /// # Errors
    /// [`LabError::Store`]; [`LabError::Plan`] when too many nodes failed.
    pub fn read(
        &self,
        stripe: u64,
        range: ByteRange,
        failed: &[NodeId],
    ) -> Result<Vec<u8>, LabError> {
        let ranges = self.geometry.split(range)?;
        let state = self.stripe(stripe);
        let lost = lost(&state.placement, failed);
        let planned = self.planned(stripe, &state.placement, &lost);
        let helpers: Vec<ChunkIndex> = planned.available().collect();
        let scheme = Scheme::Conventional;
        let plan = repair::read(
            &planned,
            &ranges,
            NodeId::CLIENT,
            &helpers,
            scheme,
            u64::MAX,
        )?;
        let plans = [plan];
        let stored = Stored::of(&self.stores, &plans, state.mark)?;
        let outcome = interpreter::run(&plans[0], &stored, &BTreeMap::new());
        // Chunks and offsets in their order are the stripe's bytes in their order.
        let parts: Vec<&[u8]> = outcome
            .delivered
            .values()
            .map(|part| part.as_slice())
            .collect();
        Ok(parts.concat())
    }

    /// Rebuilds a stripe's chunks on failed nodes onto others, and moves them there. Each helper is
    /// read once, however many chunks are rebuilt. The answer is the bytes rebuilt.
    ///
    /// # Errors
    /// [`LabError::Store`]; [`LabError::Plan`] when too many nodes failed.
    ///
    /// # Panics
    /// When there are too few nodes to hold the stripe apart from the failed ones.
    pub fn recover(&self, stripe: u64, failed: &[NodeId]) -> Result<u64, LabError> {
        let mut state = self.stripe(stripe);
        let lost = lost(&state.placement, failed);
        let planned = self.planned(stripe, &state.placement, &lost);
        let helpers: Vec<ChunkIndex> = planned.available().collect();
        let is_free = |node: &NodeId| !failed.contains(node) && !state.placement.contains(node);
        let mut spares = (0..self.shape.node_count).map(NodeId).filter(is_free);
        let mut plans = Vec::new();
        for &index in &lost {
            let node = spares.next().expect("a spare node for each lost chunk");
            let scheme = Scheme::Conventional;
            plans.push(repair::repair(
                &planned,
                index,
                node,
                &helpers,
                scheme,
                u64::MAX,
            )?);
        }
        if plans.is_empty() {
            return Ok(0);
        }
        let stored = Stored::of(&self.stores, &plans, state.mark)?;
        for plan in &plans {
            let outcome = interpreter::run(plan, &stored, &BTreeMap::new());
            for ((node, index), pieces) in &outcome.written {
                let pieces = pieces
                    .iter()
                    .map(|(offset, bytes)| (*offset, bytes.as_slice()));
                self.install(*node, stripe, *index, state.mark, pieces)?;
                state.placement[index.at()] = *node;
            }
        }
        Ok(lost.len() as u64 * self.geometry.chunk_bytes())
    }

    /// Brings everything into its chunk that the scheme does not leave in a log for good.
    ///
    /// # Errors
    /// [`LabError::Store`].
    pub fn apply_in_place(&self) -> Result<(), LabError> {
        for (node, store) in self.stores.iter().enumerate() {
            store.apply_pending(u64::MAX)?;
            *self.unapplied(node) = 0;
        }
        Ok(())
    }

    /// Makes the system forget what it has cached of the stores' files, as far as it can be told to.
    ///
    /// # Errors
    /// [`LabError::File`] when the stores' directory cannot be walked.
    pub fn drop_caches(&self) -> Result<(), LabError> {
        let mut directories = vec![self.directory.clone()];
        while let Some(directory) = directories.pop() {
            let failed = |source| LabError::File {
                operation: "read",
                path: directory.display().to_string(),
                source,
            };
            for entry in fs::read_dir(&directory).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                if path.is_dir() {
                    directories.push(path);
                    continue;
                }
                let file = File::open(&path).map_err(failed)?;
                // Dirty pages stay, so they are written first. Advice that is not taken is no error.
                file.sync_data().map_err(failed)?;
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            }
        }
        Ok(())
    }

    /// Makes an update's records durable at all participants.
    fn record(&self, stripe: u64, sequence: Sequence, outcome: &Outcome) -> Result<(), LabError> {
        let stamp = UpdateStamp {
            epoch: EPOCH,
            sequence,
        };
        let mut participants: Vec<ChunkIndex> = outcome
            .appended
            .keys()
            .map(|&(_, chunk, _)| chunk)
            .collect();
        participants.sort_unstable();
        participants.dedup();
        let mut durable = Vec::new();
        for (&(node, index, is_delta), pieces) in &outcome.appended {
            let pieces = pieces.iter().map(|(data, offset, bytes)| Piece {
                data: *data,
                offset: *offset,
                bytes,
            });
            let record = Record {
                chunk: chunk_id(stripe, index),
                generation: GENERATION,
                stamp,
                runs: vec![RunId(sequence.0)],
                participants: participants.clone(),
                kind: if is_delta {
                    RecordKind::ParityDelta
                } else {
                    RecordKind::NewBytes
                },
                pieces: pieces.collect(),
            };
            let store = &self.stores[node.0 as usize];
            durable.push((store, store.append(&record)?));
        }
        for (store, lsn) in durable {
            store.sync(lsn)?;
        }
        Ok(())
    }

    /// Raises the mark at the participants, and does what each scheme does after an update.
    fn settle(&self, stripe: u64, sequence: Sequence, outcome: &Outcome) -> Result<(), LabError> {
        for (&(node, index, _), pieces) in &outcome.appended {
            let node = node.0 as usize;
            let store = &self.stores[node];
            store.commit(StripeId(stripe), sequence)?;
            if self.shape.keeping(index) == Keeping::AtOnce {
                store.apply(StripeId(stripe))?;
                continue;
            }
            let mut unapplied_bytes = self.unapplied(node);
            *unapplied_bytes += pieces
                .iter()
                .map(|(_, _, bytes)| bytes.len() as u64)
                .sum::<u64>();
            if *unapplied_bytes >= APPLY_BYTES {
                *unapplied_bytes = 0;
                store.apply_pending(u64::MAX)?;
            }
        }
        Ok(())
    }

    fn install<'b>(
        &self,
        node: NodeId,
        stripe: u64,
        index: ChunkIndex,
        base: Sequence,
        pieces: impl IntoIterator<Item = (u64, &'b [u8])>,
    ) -> Result<(), StoreError> {
        let spec = ChunkSpec {
            generation: GENERATION,
            chunk_bytes: self.geometry.chunk_bytes(),
            base,
            keeping: self.shape.keeping(index),
        };
        let mut writer = self.stores[node.0 as usize].create(chunk_id(stripe, index), spec)?;
        for (offset, bytes) in pieces {
            writer.write_at(offset, bytes)?;
        }
        writer.finish()
    }

    fn planned<'a>(
        &'a self,
        stripe: u64,
        placement: &'a [NodeId],
        lost: &'a [ChunkIndex],
    ) -> Stripe<'a> {
        Stripe {
            id: StripeId(stripe),
            code: &self.shape.code,
            geometry: self.geometry,
            placement,
            lost,
        }
    }

    fn stripe(&self, stripe: u64) -> MutexGuard<'_, StripeState> {
        let state = &self.stripes[stripe as usize];
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unapplied(&self, node: usize) -> MutexGuard<'_, u64> {
        self.unapplied_bytes[node]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

const fn chunk_id(stripe: u64, index: ChunkIndex) -> ChunkId {
    ChunkId {
        stripe: StripeId(stripe),
        index,
    }
}

/// The chunks on failed nodes.
fn lost(placement: &[NodeId], failed: &[NodeId]) -> Vec<ChunkIndex> {
    let is_lost = |(_, node): &(usize, &NodeId)| failed.contains(node);
    let chunks = placement.iter().enumerate().filter(is_lost);
    chunks.map(|(at, _)| ChunkIndex::new(at)).collect()
}
