//! Restores a lost chunk file from other chunk files of its stripe, which lie in directories of this machine.
//!
//! The plan is a degraded read whose chunks all lie at the reader, so it has one part and no sends. It is proven
//! before it runs, and runs by the executor of Gabion's nodes. A chunk that the plan does not need proves that the
//! given order, the code and the result are right: it must follow from the restored chunk and the others.

use crate::error::HdfsError;
use crate::flows::Flows;
use crate::stored::{Format, NewChunk, StoredChunk};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use gabion_codec::Code;
use gabion_exec::{Sink, Source};
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, RunId, StripeId};
use gabion_plan::{Plan, Step, check};
use gabion_planner::repair::{Scheme, read};
use gabion_planner::{PlanError, Stripe};
use gabion_protocol::message::Refusal;
use gabion_protocol::run::LocalIo;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes that are read and combined at a time.
const SLICE_BYTES: u64 = 256 << 10;
/// Longest time of a restoration, and longest time without progress.
const DEADLINE: Duration = Duration::from_hours(24);
const STALL: Duration = Duration::from_mins(10);
/// The one node, which has all chunks.
const HERE: NodeId = NodeId(0);

/// A chunk to restore.
#[derive(Clone, Debug)]
pub struct Restoration {
    /// The system that the files belong to.
    pub format: Format,
    /// The code of the stripe.
    pub code: Code,
    /// The stripe's chunk files in the code's order, data first; none for those that are lost.
    pub chunks: Vec<Option<PathBuf>>,
    /// The one to restore.
    pub lost: ChunkIndex,
    /// Its new file, with the name that its format asks for.
    pub out: PathBuf,
    /// Its bytes; as many as the longest other chunk has if it is not known.
    pub length: Option<u64>,
}

/// A restored chunk.
#[derive(Clone, Debug)]
pub struct Restored {
    /// Its bytes, without headers and checksums.
    pub length: u64,
    /// Bytes that were read for it from other chunks.
    pub read_bytes: u64,
    /// The chunk that was not needed and follows from it; none if there was none left.
    pub proven_by: Option<ChunkIndex>,
}

impl Restoration {
    /// Restores the chunk. Its file appears when it is whole, durable, and read back.
    ///
    /// # Errors
    /// [`HdfsError::Policy`] when the chunks are not a stripe of the code or too few; [`HdfsError::Name`],
    /// [`HdfsError::Corrupt`] and [`HdfsError::Io`] of a file; [`HdfsError::Order`] when a chunk contradicts the
    /// result.
    pub async fn run(&self) -> Result<Restored, HdfsError> {
        let chunks = self.open()?;
        let longest = chunks.longest();
        let length = self.length.unwrap_or(longest);
        if length == 0 || length > longest {
            return Err(HdfsError::Policy(format!(
                "{length} bytes cannot be restored; the longest chunk has {longest} bytes, so choose 1 to {longest}"
            )));
        }
        let beside = self.chunks.iter().flatten().next();
        let beside = beside.ok_or_else(|| HdfsError::Policy("no chunk is left".to_owned()))?;
        let helpers: Vec<ChunkIndex> = chunks.0.keys().copied().collect();
        let plan = self.plan((self.lost, length), longest, &helpers)?;
        let used = used(&plan);
        let new: Arc<dyn NewChunk> = Arc::from(self.format.create(&self.out, length, beside)?);
        let writer = Arc::clone(&new);
        let write = move |offset, bytes: &Bytes| writer.write(offset, bytes);
        chunks.run(&plan, Arc::new(write)).await?;
        let sealing = Arc::clone(&new);
        let restored = blocking(move || sealing.seal()).await?;
        let proven_by = self.prove(chunks, Arc::from(restored), &used).await?;
        blocking(move || new.publish()).await?;
        Ok(Restored {
            length,
            read_bytes: used.len() as u64 * length,
            proven_by,
        })
    }
}

impl Restoration {
    /// Opens the chunks that are there.
    fn open(&self) -> Result<Chunks, HdfsError> {
        let n = self.code.n();
        let is_lost = self.chunks.get(self.lost.at()).is_some_and(Option::is_none);
        if self.chunks.len() != n || !is_lost {
            let reason = format!(
                "a stripe of {} has {n} chunks; name {n} files, with - in the place of the chunk to restore ({} are named)",
                self.code,
                self.chunks.len()
            );
            return Err(HdfsError::Policy(reason));
        }
        let mut sources = BTreeMap::new();
        let mut files = BTreeMap::new();
        for (at, path) in self.chunks.iter().enumerate() {
            if let Some(path) = path {
                // A file that cannot be looked at is reported when it is opened.
                let id = std::fs::metadata(path)
                    .ok()
                    .map(|file| (file.dev(), file.ino()));
                if let Some(other) = id.and_then(|id| files.insert(id, at)) {
                    return Err(HdfsError::Policy(format!(
                        "chunks {other} and {at} are the same file, {}; name a different file for each position",
                        path.display()
                    )));
                }
                let chunk = Arc::from(self.format.open(path)?);
                sources.insert(ChunkIndex::new(at), chunk);
            }
        }
        Ok(Chunks(sources))
    }

    /// Plans to bring the first bytes of a chunk here from others, and proves the plan.
    fn plan(
        &self,
        wanted: (ChunkIndex, u64),
        chunk_bytes: u64,
        helpers: &[ChunkIndex],
    ) -> Result<Plan, HdfsError> {
        let impossible = |error: &dyn std::fmt::Display| HdfsError::Policy(error.to_string());
        let code = &self.code;
        let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), chunk_bytes);
        let geometry = geometry.map_err(|error| impossible(&error))?;
        let lost: Vec<ChunkIndex> = geometry.chunks().filter(|c| !helpers.contains(c)).collect();
        let placement = vec![HERE; code.n()];
        let stripe = Stripe {
            id: StripeId(0),
            code,
            geometry,
            placement: &placement,
            lost: &lost,
        };
        let (chunk, length) = wanted;
        let range = ByteRange::new(0, length);
        let ranges = [ChunkRange { chunk, range }];
        let plan = read(
            &stripe,
            &ranges,
            HERE,
            helpers,
            Scheme::Conventional,
            SLICE_BYTES,
        );
        let plan = plan.map_err(|error: PlanError| impossible(&error))?;
        check(&plan, code).map_err(|error| impossible(&error))?;
        Ok(plan)
    }

    /// Compares a chunk that was not used with what follows from the restored one and the others.
    async fn prove(
        &self,
        mut chunks: Chunks,
        restored: Arc<dyn StoredChunk>,
        used: &[ChunkIndex],
    ) -> Result<Option<ChunkIndex>, HdfsError> {
        let longest = chunks.longest();
        chunks.0.insert(self.lost, restored);
        let unused: Vec<ChunkIndex> = chunks
            .0
            .keys()
            .copied()
            .filter(|c| *c != self.lost && !used.contains(c))
            .collect();
        for spare in unused {
            // All that were used but one, so that the restored one is needed.
            let mut helpers = used[1..].to_vec();
            helpers.push(self.lost);
            let Ok(plan) = self.plan((spare, longest), longest, &helpers) else {
                continue;
            };
            let Some(stored) = chunks.0.get(&spare).cloned() else {
                continue;
            };
            let compare = move |offset, bytes: &Bytes| {
                let expected = stored.read(ByteRange::new(offset, bytes.len() as u64))?;
                if expected == *bytes {
                    return Ok(());
                }
                Err(HdfsError::Order(spare))
            };
            chunks.run(&plan, Arc::new(compare)).await?;
            return Ok(Some(spare));
        }
        Ok(None)
    }
}

/// The chunks that a plan reads.
fn used(plan: &Plan) -> Vec<ChunkIndex> {
    let mut used: Vec<ChunkIndex> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Read { chunk, .. } => Some(*chunk),
            _ => None,
        })
        .collect();
    used.sort_unstable();
    used.dedup();
    used
}

/// A function that takes the bytes that a plan delivers.
type Take = dyn Fn(u64, &Bytes) -> Result<(), HdfsError> + Send + Sync;

/// The open chunks.
struct Chunks(BTreeMap<ChunkIndex, Arc<dyn StoredChunk>>);

impl Chunks {
    /// Bytes of the longest chunk.
    fn longest(&self) -> u64 {
        self.0
            .values()
            .map(|chunk| chunk.length())
            .max()
            .unwrap_or(0)
    }

    /// Runs a plan.
    async fn run(&self, plan: &Plan, take: Arc<Take>) -> Result<(), HdfsError> {
        let io = LocalChunks {
            chunks: self.0.clone(),
            take,
            failed: Arc::default(),
        };
        let mut flows = Flows::of(RunId(0));
        let ran = flows.run(&plan.part(HERE), &io, DEADLINE, STALL).await;
        let mut failed = io.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match (ran, failed.take()) {
            (_, Some(error)) => Err(error),
            (Err(refusal), None) => Err(HdfsError::Policy(refusal.to_string())),
            (Ok(()), None) => Ok(()),
        }
    }
}

/// The part's own bytes: all chunks, and what takes the result.
struct LocalChunks {
    chunks: BTreeMap<ChunkIndex, Arc<dyn StoredChunk>>,
    take: Arc<Take>,
    /// The first error.
    failed: Arc<Mutex<Option<HdfsError>>>,
}

impl LocalChunks {
    /// Runs work on a file, and keeps its error.
    fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, HdfsError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Refusal>> {
        let failed = Arc::clone(&self.failed);
        async move {
            blocking(work).await.map_err(|error| {
                let refusal = Refusal::Failed(error.to_string());
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert(error);
                refusal
            })
        }
        .boxed()
    }
}

impl LocalIo for LocalChunks {
    fn fetch(
        &self,
        source: Source,
        range: ByteRange,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let chunk = match source {
            Source::Chunk(chunk) => self.chunks.get(&chunk).cloned(),
            _ => None,
        };
        self.work(move || {
            let none =
                || HdfsError::Policy("the plan reads a chunk that is not available".to_owned());
            chunk.ok_or_else(none)?.read(range)
        })
    }

    fn store(
        &self,
        _: Sink,
        range: ByteRange,
        bytes: Bytes,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let take = Arc::clone(&self.take);
        self.work(move || take(range.offset, &bytes))
    }
}

/// Runs work that waits for a disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HdfsError> + Send + 'static,
) -> Result<T, HdfsError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(HdfsError::Policy(error.to_string())))
}
