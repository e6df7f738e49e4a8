//! The vocabulary of plans: steps, values, goals.

use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, Geometry, Keeping, NodeId, Slices, StripeId,
};
use serde::{Deserialize, Serialize};

/// The value that the step with this number makes. A value is a stream of slices at one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The number as an index into [`Plan::steps`].
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

/// One summand of a [`Step::Combine`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Term {
    /// Factor in GF(2^8); 1 adds the value unchanged.
    pub coefficient: u8,
    /// The multiplied value.
    pub value: ValueId,
}

/// The destination of a [`Step::Append`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Log {
    /// The data node's log: new bytes, to be applied once committed.
    Journal,
    /// The parity node's parity log: a parity delta, to be added once committed.
    Parity {
        /// The data chunk of the delta; it identifies a resent delta.
        data: ChunkIndex,
    },
    /// The parity node's parity log: one parity delta for all data chunks that the plan changes,
    /// summed on the way. A plan logs at most one for each byte, so its update alone identifies a
    /// resent delta.
    ParitySum,
    /// New bytes of a data chunk on a node that does not hold it, until the next commit: the
    /// interim replica of CAU (section 3.4), the new data of PARIX.
    Replica,
    /// A data chunk's bytes as of the last commit, on a node that does not hold it: the old data of
    /// PARIX, from which a parity node makes the delta itself.
    Original,
}

/// One step. A value is identified by its step's number in the plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Step {
    /// New bytes of a data chunk, given to `node` by the plan's initiator. Makes a value.
    Input {
        /// The node with the bytes.
        node: NodeId,
        /// Their data chunk.
        chunk: ChunkIndex,
        /// The bytes of the chunk.
        slices: Slices,
    },
    /// Stored bytes, read and verified. Makes a value.
    Read {
        /// The node that holds the chunk.
        node: NodeId,
        /// The chunk.
        chunk: ChunkIndex,
        /// The bytes of the chunk.
        slices: Slices,
    },
    /// Bytes of a data chunk that earlier plans appended to a log since the last commit. Makes a
    /// value.
    Recall {
        /// The node that keeps the log.
        node: NodeId,
        /// The log: a journal, replicas or originals.
        log: Log,
        /// Their data chunk.
        chunk: ChunkIndex,
        /// The bytes of the chunk.
        slices: Slices,
    },
    /// The sum of coefficient times value, byte by byte, over GF(2^8). Makes a value.
    Combine {
        /// The node that computes it; all terms must be there.
        node: NodeId,
        /// The summands; their streams have the same shape.
        terms: Vec<Term>,
    },
    /// Moves a value to another node, where it is a new value.
    Send {
        /// The node that has the value.
        from: NodeId,
        /// The node that gets it.
        to: NodeId,
        /// The value.
        value: ValueId,
    },
    /// Writes a value as bytes of a chunk.
    Write {
        /// The node that stores the chunk from then on.
        node: NodeId,
        /// The chunk.
        chunk: ChunkIndex,
        /// The bytes of the chunk.
        slices: Slices,
        /// The value.
        value: ValueId,
    },
    /// Makes a value durable in a log as part of an update's record.
    Append {
        /// The node that keeps the log: the chunk's node, except for replicas and originals.
        node: NodeId,
        /// The log.
        log: Log,
        /// The chunk that the record changes, or whose bytes it keeps.
        chunk: ChunkIndex,
        /// The bytes of the chunk.
        slices: Slices,
        /// The value.
        value: ValueId,
    },
    /// Delivers a value to the plan's initiator as bytes of a chunk.
    Deliver {
        /// The node at which the initiator receives it.
        node: NodeId,
        /// The chunk of the bytes.
        chunk: ChunkIndex,
        /// The bytes of the chunk.
        slices: Slices,
        /// The value.
        value: ValueId,
    },
}

impl Step {
    /// The node with the step's result: the receiver of a send, otherwise the node of the step.
    pub const fn node(&self) -> NodeId {
        match self {
            Self::Input { node, .. }
            | Self::Read { node, .. }
            | Self::Recall { node, .. }
            | Self::Combine { node, .. }
            | Self::Write { node, .. }
            | Self::Append { node, .. }
            | Self::Deliver { node, .. } => *node,
            Self::Send { to, .. } => *to,
        }
    }

    /// Whether the step makes a value for other steps.
    pub const fn makes_value(&self) -> bool {
        matches!(
            self,
            Self::Input { .. }
                | Self::Read { .. }
                | Self::Recall { .. }
                | Self::Combine { .. }
                | Self::Send { .. }
        )
    }
}

/// Bytes of a data chunk that a log keeps until the next commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Logged {
    /// The node that keeps the log.
    pub node: NodeId,
    /// A journal (at the chunk's node), replicas or originals (at any other).
    pub log: Log,
    /// The range of the data chunk.
    pub part: ChunkRange,
}

/// The purpose of a plan; the checker compares its steps with this.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Goal {
    /// The data ranges get new bytes, and every parity chunk is updated.
    Update {
        /// The changed ranges; data chunks only, no overlaps.
        ranges: Vec<ChunkRange>,
    },
    /// The data ranges get new bytes in their nodes' journals, and copies on other nodes. Parity is
    /// not updated before a commit.
    Append {
        /// The changed ranges; data chunks only, no overlaps.
        ranges: Vec<ChunkRange>,
        /// Replicas (new bytes) and originals (bytes as of the last commit) that other nodes keep,
        /// all of them within the ranges.
        copies: Vec<Logged>,
    },
    /// Every parity chunk gets the changes since the last commit, and the data chunks get the new
    /// bytes in their journals.
    Commit {
        /// The changed ranges; data chunks only, no overlaps.
        ranges: Vec<ChunkRange>,
        /// The logged bytes of these changes. If they include a journal, the chunk itself still has
        /// its bytes as of the last commit; otherwise these are overwritten, and only logs have
        /// them.
        logged: Vec<Logged>,
    },
    /// All `n` chunks of a new stripe are written at their nodes.
    Encode,
    /// Lost chunks are written whole at the given nodes.
    Repair {
        /// Each lost chunk and the node that gets it.
        chunks: Vec<(ChunkIndex, NodeId)>,
    },
    /// Chunks are written whole at other nodes, unchanged.
    Move {
        /// Each chunk that moves and the node that gets it.
        chunks: Vec<(ChunkIndex, NodeId)>,
    },
    /// Ranges of a chunk that missed updates are written as they should be, at the node with the
    /// rest of the chunk.
    CatchUp {
        /// The node.
        node: NodeId,
        /// The written ranges: of one chunk, without overlaps.
        ranges: Vec<ChunkRange>,
    },
    /// The initiator receives stored bytes.
    Read {
        /// The delivered ranges; no overlaps.
        ranges: Vec<ChunkRange>,
    },
    /// The initiator receives the newest bytes in an append phase: stored ones, as of the last commit, and in their
    /// place the new bytes that logs have.
    ReadAppended {
        /// The delivered ranges; no overlaps.
        ranges: Vec<ChunkRange>,
        /// All that logs have of these ranges since the last commit, the logs of lost nodes included. So no plan can
        /// deliver the stored bytes of a range that was changed.
        logged: Vec<Logged>,
    },
    /// Replicated data chunks become a stripe: all parity chunks are written at their nodes, and so
    /// is each data chunk without a replica at its own node. Replicas elsewhere stay until all of
    /// this is known to be durable; no plan deletes them.
    EncodeReplicas {
        /// Data chunks and nodes that have a whole replica of each.
        replicas: Vec<(ChunkIndex, NodeId)>,
    },
    /// A stripe replaces others with the same data: all of its chunks are written at their nodes,
    /// from chunks of these others.
    Convert {
        /// Data chunks of the new stripe and nodes on which a whole chunk of another has their
        /// bytes.
        sources: Vec<(ChunkIndex, NodeId)>,
    },
}

impl Goal {
    /// The goal of updating one range of one data chunk.
    pub fn update(chunk: ChunkIndex, range: ByteRange) -> Self {
        Self::Update {
            ranges: vec![ChunkRange { chunk, range }],
        }
    }

    /// The goal of reading one range of one chunk.
    pub fn read(chunk: ChunkIndex, range: ByteRange) -> Self {
        Self::Read {
            ranges: vec![ChunkRange { chunk, range }],
        }
    }
}

/// The keeping of a plan's records until they are merged: that of the pool's update scheme. The
/// header of each chunk takes precedence, because reserved space shrinks and grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Keepings {
    /// Of data chunks.
    pub data: Keeping,
    /// Of parity chunks.
    pub parity: Keeping,
}

impl Keepings {
    /// The keeping of the records in a log. Copies for a commit are in the node's log.
    pub const fn of(&self, log: Log) -> Keeping {
        match log {
            Log::Journal => self.data,
            Log::Parity { .. } | Log::ParitySum => self.parity,
            Log::Replica | Log::Original => Keeping::Log,
        }
    }
}

/// The order in which a node processes the slices of its part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum StepOrder {
    /// All steps at once, each as far ahead as its buffers allow.
    #[default]
    Streamed,
    /// One slice after another, and for each slice one step after another: a node that receives
    /// does not read, combine or send at the same time (`Pipe-S`, `ECPipe` section 6.4).
    InTurn,
}

/// A plan for one stripe: steps in an order in which they can be done one after another, though an
/// executor runs all of them at once, slice by slice.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The stripe.
    pub stripe: StripeId,
    /// Its shape.
    pub geometry: Geometry,
    /// `placement[j]` holds chunk `j` before the plan runs.
    pub placement: Vec<NodeId>,
    /// Chunks that cannot be read.
    pub lost: Vec<ChunkIndex>,
    /// Its purpose.
    pub goal: Goal,
    /// The keeping of its records.
    pub keepings: Keepings,
    /// The step order of its nodes.
    pub order: StepOrder,
    /// The steps; a step uses values of earlier ones only.
    pub steps: Vec<Step>,
}

impl Plan {
    /// The same plan with these keepings of records and new chunks.
    #[must_use]
    pub const fn kept(mut self, keepings: Keepings) -> Self {
        self.keepings = keepings;
        self
    }

    /// The same plan with this step order.
    #[must_use]
    pub const fn in_order(mut self, order: StepOrder) -> Self {
        self.order = order;
        self
    }

    /// The stream of each step: positions in a chunk for steps that touch one; a combined or sent
    /// value has those of its (first) source.
    ///
    /// # Panics
    /// If the plan is inconsistent, which [`crate::check`] finds before.
    pub fn streams(&self) -> Vec<Slices> {
        let mut streams: Vec<Slices> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let stream = match step {
                Step::Input { slices, .. }
                | Step::Read { slices, .. }
                | Step::Recall { slices, .. }
                | Step::Write { slices, .. }
                | Step::Append { slices, .. }
                | Step::Deliver { slices, .. } => *slices,
                Step::Combine { terms, .. } => streams[terms[0].value.at()],
                Step::Send { value, .. } => streams[value.at()],
            };
            streams.push(stream);
        }
        streams
    }

    /// All nodes that take part, in the order of their first step.
    pub fn participants(&self) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for step in &self.steps {
            if let Step::Send { from, .. } = step
                && !nodes.contains(from)
            {
                nodes.push(*from);
            }
            if !nodes.contains(&step.node()) {
                nodes.push(step.node());
            }
        }
        nodes
    }
}
