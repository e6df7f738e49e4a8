//! The executor's events and commands.

use bytes::Bytes;
use gabion_layout::{ByteRange, ChunkIndex, NodeId};
use gabion_plan::{Log, ValueId};

/// Source of fetched bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A stored chunk.
    Chunk(ChunkIndex),
    /// New bytes of a data chunk from the initiator.
    Input(ChunkIndex),
    /// Bytes of a data chunk in one of this node's logs.
    Log(Log, ChunkIndex),
}

/// Destination of stored bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sink {
    /// A chunk.
    Write(ChunkIndex),
    /// The record of an update, for a log.
    Append(Log, ChunkIndex),
    /// The initiator's memory.
    Deliver(ChunkIndex),
}

/// Input to the executor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A [`Command::Fetch`] has its bytes.
    Fetched {
        /// The step of the command.
        step: ValueId,
        /// The slice of the command.
        slice: u64,
        /// Exactly the requested bytes.
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
    /// The receiver of an outgoing value grants credit.
    Credited {
        /// The sending step.
        value: ValueId,
        /// Number of further slices.
        slices: u64,
    },
    /// A [`Command::Store`] is done (not necessarily durable; the driver ensures that at the end).
    Stored {
        /// The step of the command.
        step: ValueId,
    },
}

/// Work for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Fetch bytes and answer with [`Event::Fetched`].
    Fetch {
        /// Identifies the answer.
        step: ValueId,
        /// Identifies the answer.
        slice: u64,
        /// Their source.
        source: Source,
        /// The bytes of the chunk.
        range: ByteRange,
    },
    /// Send a slice.
    Send {
        /// The receiver.
        to: NodeId,
        /// The sending step.
        value: ValueId,
        /// Number of the slice.
        slice: u64,
        /// Its bytes.
        bytes: Bytes,
    },
    /// Grant credit to the sender of an incoming value.
    Grant {
        /// The sender.
        from: NodeId,
        /// The sending step.
        value: ValueId,
        /// Number of further slices.
        slices: u64,
    },
    /// Store bytes and answer with [`Event::Stored`].
    Store {
        /// Identifies the answer.
        step: ValueId,
        /// Their destination.
        sink: Sink,
        /// The bytes of the chunk.
        range: ByteRange,
        /// The bytes.
        bytes: Bytes,
    },
}
