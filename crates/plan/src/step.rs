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
    /// Factor in GF(2^8); 1 adds the value as it is.
    pub coefficient: u8,
    /// The value that is multiplied.
    pub value: ValueId,
}

/// Where a [`Step::Append`] puts its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Log {
    /// The data node's log: new bytes, to be applied once committed.
    Journal,
    /// The parity node's parity log: a parity delta, to be added once committed.
    Parity {
        /// The data chunk whose change the delta carries; it makes a resent delta recognisable.
        data: ChunkIndex,
    },
    /// The parity node's parity log: one parity delta for all data chunks that the plan changes,
    /// summed on the way. A plan logs at most one for each byte, so its update alone makes a resent
    /// delta recognisable.
    ParitySum,
    /// New bytes of a data chunk on a node that does not hold it, until the next commit: the
    /// interim replica of CAU (section 3.4), the new data of PARIX.
    Replica,
    /// The bytes that a data chunk had at the last commit, on a node that does not hold it: the old
    /// data of PARIX, from which a parity node makes the delta itself.
    Original,
}

/// One step. Steps that make a value are named by their number in the plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Step {
    /// New bytes of a data chunk, as the asker of the plan gave them to `node`. Makes a value.
    Input {
        /// Where the bytes are.
        node: NodeId,
        /// The data chunk that they belong to.
        chunk: ChunkIndex,
        /// Which bytes of the chunk.
        slices: Slices,
    },
    /// Stored bytes, read and verified. Makes a value.
    Read {
        /// The node that holds the chunk.
        node: NodeId,
        /// The chunk.
        chunk: ChunkIndex,
        /// Which bytes of the chunk.
        slices: Slices,
    },
    /// Bytes of a data chunk that earlier plans appended to a log since the last commit. Makes a
    /// value.
    Recall {
        /// The node that keeps the log.
        node: NodeId,
        /// Which log: a journal, replicas or originals.
        log: Log,
        /// The data chunk whose bytes they are.
        chunk: ChunkIndex,
        /// Which bytes of the chunk.
        slices: Slices,
    },
    /// The sum of coefficient times value, byte by byte, over GF(2^8). Makes a value.
    Combine {
        /// Where it is computed; all terms must be there.
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
        /// What is sent.
        value: ValueId,
    },
    /// Writes a value as bytes of a chunk.
    Write {
        /// The node that stores the chunk from now on.
        node: NodeId,
        /// The chunk.
        chunk: ChunkIndex,
        /// Which bytes of the chunk.
        slices: Slices,
        /// What is written.
        value: ValueId,
    },
    /// Makes a value durable in a log as part of an update's record.
    Append {
        /// The node that keeps the log: the chunk's, but for replicas and originals another.
        node: NodeId,
        /// Which log.
        log: Log,
        /// The chunk that the record changes, or whose bytes it keeps.
        chunk: ChunkIndex,
        /// Which bytes of the chunk.
        slices: Slices,
        /// What is appended.
        value: ValueId,
    },
    /// Hands a value to the asker of the plan as bytes of a chunk.
    Deliver {
        /// Where the asker takes it.
        node: NodeId,
        /// The chunk whose bytes they are.
        chunk: ChunkIndex,
        /// Which bytes of the chunk.
        slices: Slices,
        /// What is handed over.
        value: ValueId,
    },
}

impl Step {
    /// The node where the step's result is: the receiver of a send, the worker otherwise.
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

    /// Whether other steps can use what this one makes.
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
    /// Which bytes of which data chunk.
    pub part: ChunkRange,
}

/// What a plan is for; the checker holds its steps against this.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Goal {
    /// The data ranges get new bytes, and every parity chunk follows.
    Update {
        /// What changes; data chunks only, no overlaps.
        ranges: Vec<ChunkRange>,
    },
    /// The data ranges get new bytes in their nodes' journals, and copies on other nodes. Parity
    /// does not follow before a commit.
    Append {
        /// What changes; data chunks only, no overlaps.
        ranges: Vec<ChunkRange>,
        /// Replicas (new bytes) and originals (bytes as of the last commit) that other nodes keep,
        /// all of them within the ranges.
        copies: Vec<Logged>,
    },
    /// Every parity chunk follows what changed since the last commit, and the data chunks themselves get
    /// what their journals keep of it.
    Commit {
        /// What changed; data chunks only, no overlaps.
        ranges: Vec<ChunkRange>,
        /// What logs keep of it. Where a journal is among them, the chunk itself still has its
        /// bytes as of the last commit; elsewhere they are overwritten, and only logs have them.
        logged: Vec<Logged>,
    },
    /// All `n` chunks of a new stripe are written at their places.
    Encode,
    /// Lost chunks are written whole at the given nodes.
    Repair {
        /// Each lost chunk and the node that gets it.
        chunks: Vec<(ChunkIndex, NodeId)>,
    },
    /// Chunks are written whole at other nodes, as they are.
    Move {
        /// Each chunk that moves and the node that gets it.
        chunks: Vec<(ChunkIndex, NodeId)>,
    },
    /// Ranges of a chunk that missed updates are written as they should be, at the node that has the
    /// rest of it.
    CatchUp {
        /// The node.
        node: NodeId,
        /// What is written: ranges of one chunk, without overlaps.
        ranges: Vec<ChunkRange>,
    },
    /// The asker receives stored bytes.
    Read {
        /// What it receives; no overlaps.
        ranges: Vec<ChunkRange>,
    },
    /// Replicated data chunks become a stripe: all parity chunks are written at their places, and so is
    /// each data chunk that has no replica at its own. Replicas elsewhere stay until somebody has seen
    /// that all of this is durable; no plan deletes them.
    EncodeReplicas {
        /// Data chunks and nodes that have a whole replica of each.
        replicas: Vec<(ChunkIndex, NodeId)>,
    },
    /// A stripe takes the place of others that have the same data: all of its chunks are written at
    /// their places, from chunks of these others.
    Convert {
        /// Data chunks of the new stripe and nodes on which a whole chunk of another has their bytes.
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

/// How the records that a plan appends are kept until they are in their chunks: what the pool's update
/// scheme says. The header of each chunk has the last word, because reserved space shrinks and grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Keepings {
    /// Of data chunks.
    pub data: Keeping,
    /// Of parity chunks.
    pub parity: Keeping,
}

impl Keepings {
    /// That of the records in a log. Copies that wait for a commit are in the node's log.
    pub const fn of(&self, log: Log) -> Keeping {
        match log {
            Log::Journal => self.data,
            Log::Parity { .. } | Log::ParitySum => self.parity,
            Log::Replica | Log::Original => Keeping::Log,
        }
    }
}

/// How a node goes through the slices of its part of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum StepOrder {
    /// All steps at once, each as far ahead as its buffers allow.
    #[default]
    Streamed,
    /// One slice after another, and of each slice one step after another: a node that receives does not
    /// read, combine or send meanwhile (`Pipe-S`, `ECPipe` section 6.4).
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
    /// What the plan is for.
    pub goal: Goal,
    /// How its records are kept.
    pub keepings: Keepings,
    /// How nodes go through its slices.
    pub order: StepOrder,
    /// The steps; a step uses values of earlier ones only.
    pub steps: Vec<Step>,
}

impl Plan {
    /// The same plan, whose records and new chunks are kept as the pool's update scheme says.
    #[must_use]
    pub const fn kept(mut self, keepings: Keepings) -> Self {
        self.keepings = keepings;
        self
    }

    /// The same plan, through whose slices nodes go in this order.
    #[must_use]
    pub const fn in_order(mut self, order: StepOrder) -> Self {
        self.order = order;
        self
    }

    /// The bytes that flow through each step: positions in a chunk for the steps that touch one; a
    /// combined or sent value lies where its (first) source does.
    ///
    /// # Panics
    /// When the plan does not hold together, which [`crate::check`] finds out before.
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
