//! The frames that move a plan's slices from node to node, and the credit that comes back. `gabion-exec`
//! decides which frame may be sent when.

use super::purpose::Purpose;
use bytes::Bytes;
use gabion_layout::RunId;
use gabion_plan::ValueId;

/// A piece of a plan's data on its way from one node to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Flow {
    /// One slice of a sent value.
    Slice {
        /// The run.
        run: RunId,
        /// The step of the plan that sends.
        value: ValueId,
        /// The slice's index.
        slice: u64,
        /// The purpose of the transfer.
        purpose: Purpose,
        /// The bytes.
        bytes: Bytes,
    },
    /// The receiver has room for more slices of a value.
    Credit {
        /// The run.
        run: RunId,
        /// The step of the plan that sends.
        value: ValueId,
        /// The number of further slices.
        slices: u64,
    },
    /// The sender has aborted the run; the receiver should abort it too.
    Abort {
        /// The run.
        run: RunId,
    },
}

impl Flow {
    /// The run that the frame belongs to.
    pub const fn run(&self) -> RunId {
        match self {
            Self::Slice { run, .. } | Self::Credit { run, .. } | Self::Abort { run } => *run,
        }
    }
}
