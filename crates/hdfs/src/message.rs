//! The bodies of frames. Those that the plugin sends or gets are written as Java's `DataOutput` writes them; those
//! between agents as postcard does.

use crate::block::Checksum;
use crate::error::HdfsError;
use crate::policy::{Codec, Policy};
use bytes::{Buf as _, Bytes};
use gabion_layout::{ByteRange, ChunkIndex, NodeId, RunId};
use gabion_plan::Part;
use gabion_planner::repair::Scheme;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One block of a group, as a `DataNode` names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BlockName {
    /// The block pool.
    pub(crate) pool: String,
    /// The block.
    pub(crate) id: i64,
    /// Its generation stamp.
    pub(crate) stamp: u64,
    /// Its length in bytes.
    pub(crate) length: u64,
}

/// A live block of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    pub(crate) chunk: ChunkIndex,
    /// The agent beside the block's `DataNode`, `host:port`.
    pub(crate) agent: String,
    /// The network location of the `DataNode`.
    pub(crate) location: String,
    /// The permission to read the block, for its `DataNode`. Empty where there are no tokens.
    pub(crate) token: Bytes,
}

/// How the helpers of a rebuild are put in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PathChoice {
    /// The path enters each rack once (`ECPipe` algorithm 1).
    RackAware,
    /// As the sources are listed.
    Listed,
    /// The path whose slowest link is the fastest (`ECPipe` section 4.3), by the rates of links: from each source, to
    /// each source and to the requestor, in Mbit/s. There is no link where the rate is 0.
    Weighted(Vec<Vec<u32>>),
}

/// The plugin's request to rebuild lost blocks of a group.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) policy: Policy,
    /// The group; its length is that of all its data.
    pub(crate) group: BlockName,
    pub(crate) scheme: Scheme,
    pub(crate) slice_bytes: u64,
    /// Time limit of the whole task.
    pub(crate) deadline: Duration,
    /// Longest time without progress of a run.
    pub(crate) stall: Duration,
    /// The network location of this `DataNode`.
    pub(crate) location: String,
    pub(crate) sources: Vec<Source>,
    pub(crate) targets: Vec<ChunkIndex>,
    /// The positions of the lost blocks that are wanted.
    pub(crate) range: ByteRange,
    pub(crate) path: PathChoice,
}

impl Task {
    /// The name of one block of the group.
    pub(crate) fn block(&self, chunk: ChunkIndex) -> BlockName {
        BlockName {
            // Ids of groups leave the lowest four bits to their blocks.
            id: self.group.id.wrapping_add(i64::from(chunk.0)),
            length: self.policy.block_bytes(chunk, self.group.length),
            ..self.group.clone()
        }
    }

    /// Reads the body of a frame.
    ///
    /// # Errors
    /// [`HdfsError::Policy`] or [`HdfsError::Peer`] when it is no valid task.
    pub(crate) fn read(body: Bytes) -> Result<Self, HdfsError> {
        let mut from = Input(body);
        let codec = Codec::named(&from.text()?)?;
        let (k, m) = (usize::from(from.u8()?), usize::from(from.u8()?));
        let policy = Policy::new(codec, k, m, u64::from(from.u32()?))?;
        let group = BlockName {
            pool: from.text()?,
            id: from.u64()?.cast_signed(),
            stamp: from.u64()?,
            length: from.u64()?,
        };
        let scheme = from.text()?.parse();
        let scheme = scheme.map_err(|error: gabion_planner::PlanError| invalid(error))?;
        let slice_bytes = u64::from(from.u32()?);
        let deadline = Duration::from_millis(u64::from(from.u32()?));
        let stall = Duration::from_millis(u64::from(from.u32()?));
        let location = from.text()?;
        let sources = from.several(Input::source)?;
        let targets = from.several(|from| from.u8().map(ChunkIndex))?;
        let range = ByteRange::new(from.u64()?, from.u64()?);
        let path = from.path(sources.len())?;
        let task = Self {
            policy,
            group,
            scheme,
            slice_bytes,
            deadline,
            stall,
            location,
            sources,
            targets,
            range,
            path,
        };
        task.checked()
    }

    fn checked(self) -> Result<Self, HdfsError> {
        let n = self.policy.code().n();
        let chunks = self.sources.iter().map(|source| source.chunk);
        let mut chunks: Vec<ChunkIndex> = chunks.chain(self.targets.iter().copied()).collect();
        chunks.sort_unstable();
        let is_distinct = chunks.windows(2).all(|pair| pair[0] < pair[1]);
        let exists = |chunk: &ChunkIndex| {
            chunk.at() < n && self.policy.block_bytes(*chunk, self.group.length) > 0
        };
        if !is_distinct || !chunks.iter().all(exists) || self.targets.is_empty() {
            return Err(invalid("names blocks that the group does not have"));
        }
        let slices = 1..=u64::from(SLICE_BYTES_MAX);
        let row_bytes = self.slice_bytes.saturating_mul(self.targets.len() as u64);
        if self.deadline > DEADLINE_MAX || self.stall > STALL_MAX {
            return Err(invalid(
                "has a deadline above an hour, or a stall above a minute",
            ));
        }
        if !slices.contains(&self.slice_bytes) || row_bytes > u64::from(SLICE_BYTES_MAX) {
            return Err(invalid("has slices of an impossible size"));
        }
        Ok(self)
    }
}

/// Longest task or run.
pub(crate) const DEADLINE_MAX: Duration = Duration::from_hours(1);
/// Longest time without progress.
pub(crate) const STALL_MAX: Duration = Duration::from_mins(1);

/// Time limit for a helper to open its block.
pub(crate) fn prepare_timeout(stall: Duration) -> Duration {
    // Its plugin's answer and the block's files take as long as other steps may.
    stall * 2
}

/// Most bytes of a slice, or of a row of slices of several blocks.
pub(crate) const SLICE_BYTES_MAX: u32 = 4 << 20;

/// The plugin's answer to whether a block may be read: the files.
pub(crate) struct Opened {
    pub(crate) path: String,
    pub(crate) sums_path: String,
}

impl Opened {
    /// Reads the body of a frame.
    ///
    /// # Errors
    /// [`HdfsError::Peer`] when it is no valid answer.
    pub(crate) fn read(body: Bytes) -> Result<Self, HdfsError> {
        let mut from = Input(body);
        Ok(Self {
            path: from.text()?,
            sums_path: from.text()?,
        })
    }
}

/// The body of a frame that asks the plugin for a block.
pub(crate) fn open_body(block: &BlockName, token: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    put_text(&mut body, &block.pool);
    body.extend((block.id as u64).to_be_bytes());
    body.extend(block.stamp.to_be_bytes());
    body.extend(block.length.to_be_bytes());
    body.extend((token.len() as u32).to_be_bytes());
    body.extend(token);
    body
}

/// The body of a frame with the blocks' checksums.
pub(crate) fn checksum_body(checksum: Checksum) -> Vec<u8> {
    let mut body = vec![checksum.kind];
    body.extend(checksum.bytes_per_checksum.to_be_bytes());
    body
}

/// The results and the traffic of a rebuild, for the plugin.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// Bytes that this agent has received from others.
    pub(crate) received_bytes: u64,
    /// Runs that it took.
    pub(crate) run_count: u32,
    /// Blocks that do not match their checksums.
    pub(crate) corrupt: Vec<ChunkIndex>,
}

/// The body of a frame that ends a rebuild; without a reason it has succeeded.
pub(crate) fn end_body(tally: &Tally, reason: &str) -> Vec<u8> {
    let mut body = tally.received_bytes.to_be_bytes().to_vec();
    body.extend(tally.run_count.to_be_bytes());
    body.push(tally.corrupt.len() as u8);
    body.extend(tally.corrupt.iter().map(|chunk| chunk.0));
    put_text(&mut body, reason);
    body
}

/// A request to take part in a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Help {
    pub(crate) run: RunId,
    pub(crate) part: Part,
    pub(crate) chunk: ChunkIndex,
    pub(crate) block: BlockName,
    pub(crate) token: Bytes,
    /// The node that asks.
    pub(crate) requestor: NodeId,
    /// The addresses of the helpers that this one connects to.
    pub(crate) connect: Vec<(NodeId, String)>,
    /// The helpers that connect to this one.
    pub(crate) expect: Vec<NodeId>,
    pub(crate) deadline_ms: u64,
    pub(crate) stall_ms: u64,
}

/// The first frame on a connection between two helpers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Join {
    pub(crate) run: RunId,
    pub(crate) from: NodeId,
}

/// Errors of a helper's part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Trouble {
    /// Its block does not match its checksums.
    Corrupt(String),
    /// It cannot read its block, or serve at all.
    Unable(String),
    /// The connection to another node has ended.
    Lost(NodeId),
    /// There was no progress; these nodes' slices or credit are missing.
    Stalled(Vec<NodeId>),
}

/// The end of a helper's part.
pub(crate) type End = Result<(), Trouble>;

/// A message between agents as the body of a frame.
pub(crate) fn body_of<T: Serialize>(message: &T) -> Bytes {
    let body = postcard::to_stdvec(message).expect("plain data in memory can be written");
    Bytes::from(body)
}

/// A message between agents from the body of a frame.
///
/// # Errors
/// [`HdfsError::Peer`] when it is none.
pub(crate) fn message_of<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, HdfsError> {
    postcard::from_bytes(body).map_err(invalid)
}

pub(crate) fn put_text(body: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    body.extend((end as u16).to_be_bytes());
    body.extend(&text.as_bytes()[..end]);
}

pub(crate) fn invalid(reason: impl std::fmt::Display) -> HdfsError {
    HdfsError::Peer {
        peer: "the message".to_owned(),
        reason: reason.to_string(),
    }
}

/// Fields from a body.
pub(crate) struct Input(pub(crate) Bytes);

impl Input {
    fn take(&mut self, length: usize) -> Result<Bytes, HdfsError> {
        if self.0.len() < length {
            return Err(invalid("ends too soon"));
        }
        Ok(self.0.split_to(length))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, HdfsError> {
        self.take(1).map(|mut bytes| bytes.get_u8())
    }

    fn u32(&mut self) -> Result<u32, HdfsError> {
        self.take(4).map(|mut bytes| bytes.get_u32())
    }

    pub(crate) fn u16(&mut self) -> Result<u16, HdfsError> {
        self.take(2).map(|mut bytes| bytes.get_u16())
    }

    pub(crate) fn u64(&mut self) -> Result<u64, HdfsError> {
        self.take(8).map(|mut bytes| bytes.get_u64())
    }

    /// As many of one kind as the next byte says.
    fn several<T>(
        &mut self,
        one: impl Fn(&mut Self) -> Result<T, HdfsError>,
    ) -> Result<Vec<T>, HdfsError> {
        let count = self.u8()?;
        (0..count).map(|_| one(self)).collect()
    }

    /// A choice of the path, with the rates of the links among this number of sources and to the requestor.
    fn path(&mut self, source_count: usize) -> Result<PathChoice, HdfsError> {
        match self.u8()? {
            0 => Ok(PathChoice::RackAware),
            1 => Ok(PathChoice::Listed),
            2 => {
                let row = |from: &mut Self| (0..=source_count).map(|_| from.u32()).collect();
                let rows = (0..source_count).map(|_| row(self));
                rows.collect::<Result<_, _>>().map(PathChoice::Weighted)
            }
            other => Err(invalid(format!("has a path of kind {other}"))),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, HdfsError> {
        let length = self.u16()?;
        let bytes = self.take(usize::from(length))?;
        String::from_utf8(bytes.to_vec()).map_err(invalid)
    }

    fn source(&mut self) -> Result<Source, HdfsError> {
        let chunk = ChunkIndex(self.u8()?);
        let agent = self.text()?;
        let location = self.text()?;
        let length = self.u32()? as usize;
        let token = self.take(length)?;
        Ok(Source {
            chunk,
            agent,
            location,
            token,
        })
    }
}
