//! What an executor hears and what it asks for.

use bytes::Bytes;
use gabion_layout::{ByteRange, ChunkIndex, NodeId};
use gabion_plan::{Log, ValueId};

/// Where bytes are fetched from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A stored chunk.
    Chunk(ChunkIndex),
    /// New bytes of a data chunk that the asker gave.
    Input(ChunkIndex),
    /// Bytes of a data chunk in one of this node's logs.
    Log(Log, ChunkIndex),
}

/// Where bytes are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sink {
    /// A chunk.
    Write(ChunkIndex),
    /// The record of an update, for a log.
    Append(Log, ChunkIndex),
    /// The asker's memory.
    Deliver(ChunkIndex),
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A [`Command::Fetch`] has its bytes.
    Fetched {
        /// The step of the command.
        step: ValueId,
        /// The slice of the command.
        slice: u64,
        /// Exactly the bytes asked for.
        bytes: Bytes,
    },
    /// A slice of an incoming value arrived.
    Received {
        /// The sending step.
        value: ValueId,
        /// Number of the slice.
        slice: u64,
        /// Its bytes.
        bytes: Bytes,
    },
    /// The receiver of an outgoing value has room.
    Credited {
        /// The sending step.
        value: ValueId,
        /// For how many more slices.
        slices: u64,
    },
    /// A [`Command::Store`] is done (not necessarily durable; the driver sees to that at the end).
    Stored {
        /// The step of the command.
        step: ValueId,
    },
}

/// What the driver has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Get bytes and answer with [`Event::Fetched`].
    Fetch {
        /// Names the answer.
        step: ValueId,
        /// Names the answer.
        slice: u64,
        /// Where they are.
        source: Source,
        /// Which bytes of the chunk.
        range: ByteRange,
    },
    /// Send a slice.
    Send {
        /// To whom.
        to: NodeId,
        /// The sending step.
        value: ValueId,
        /// Number of the slice.
        slice: u64,
        /// Its bytes.
        bytes: Bytes,
    },
    /// Tell the sender of an incoming value that there is room.
    Grant {
        /// The sender.
        from: NodeId,
        /// The sending step.
        value: ValueId,
        /// For how many more slices.
        slices: u64,
    },
    /// Put bytes somewhere and answer with [`Event::Stored`].
    Store {
        /// Names the answer.
        step: ValueId,
        /// Where they go.
        sink: Sink,
        /// Which bytes of the chunk.
        range: ByteRange,
        /// The bytes.
        bytes: Bytes,
    },
}
