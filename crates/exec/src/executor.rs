//! The executor's interface: a part, run in one of two step orders.

use crate::command::{Command, Event};
use crate::graph::MalformedPart;
use crate::in_turn::InTurn;
use crate::streamed::Streamed;
use gabion_layout::NodeId;
use gabion_plan::{Part, StepOrder, ValueId};
use thiserror::Error;

/// Errors that end a part: its plan or a peer is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ExecError {
    /// The part is invalid.
    #[error(transparent)]
    Malformed(#[from] MalformedPart),
    /// An invalid event.
    #[error("step {} {reason}", step.0)]
    Unexpected {
        /// The step in the event.
        step: ValueId,
        /// The reason.
        reason: &'static str,
    },
    /// A slice other than the next one: slices were lost or repeated on the way.
    #[error("step {} arrived out of order", step.0)]
    OutOfOrder {
        /// The step of the slice.
        step: ValueId,
    },
}

/// Runs one part. See the crate's documentation.
#[derive(Debug)]
pub struct Executor {
    way: Way,
}

#[derive(Debug)]
enum Way {
    Streamed(Streamed),
    InTurn(InTurn),
}

impl Executor {
    /// Creates an executor of `part`, with its first commands.
    ///
    /// # Errors
    /// [`ExecError::Malformed`] when the part is invalid.
    pub fn new(part: &Part) -> Result<(Self, Vec<Command>), ExecError> {
        let (way, commands) = match part.order {
            StepOrder::Streamed => {
                let (streamed, commands) = Streamed::new(part)?;
                (Way::Streamed(streamed), commands)
            }
            StepOrder::InTurn => {
                let (in_turn, commands) = InTurn::new(part)?;
                (Way::InTurn(in_turn), commands)
            }
        };
        Ok((Self { way }, commands))
    }

    /// Whether everything is sent and stored.
    pub fn is_finished(&self) -> bool {
        match &self.way {
            Way::Streamed(streamed) => streamed.is_finished(),
            Way::InTurn(in_turn) => in_turn.is_finished(),
        }
    }

    /// The nodes whose slices or credit the executor needs to go on. Empty when only fetches and
    /// stores of this node are missing.
    pub fn awaited_peers(&self) -> Vec<NodeId> {
        match &self.way {
            Way::Streamed(streamed) => streamed.awaited_peers(),
            Way::InTurn(in_turn) => in_turn.awaited_peer().into_iter().collect(),
        }
    }

    /// Processes an event and returns the resulting commands.
    ///
    /// # Errors
    /// [`ExecError::Unexpected`] when the event does not fit the part: a peer is wrong. The
    /// executor must not be used any further.
    pub fn handle(&mut self, event: Event) -> Result<Vec<Command>, ExecError> {
        match &mut self.way {
            Way::Streamed(streamed) => streamed.handle(event),
            Way::InTurn(in_turn) => in_turn.handle(event),
        }
    }
}
