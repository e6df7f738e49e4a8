//! The executor as its drivers see it: a part, and one of two ways through its slices.

use crate::command::{Command, Event};
use crate::graph::MalformedPart;
use crate::in_turn::InTurn;
use crate::streamed::Streamed;
use gabion_layout::NodeId;
use gabion_plan::{Part, StepOrder, ValueId};
use thiserror::Error;

/// Why a part cannot go on: its plan or a peer is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ExecError {
    /// The part makes no sense.
    #[error(transparent)]
    Malformed(#[from] MalformedPart),
    /// An event that does not belong here.
    #[error("step {} {reason}", step.0)]
    Unexpected {
        /// The step that the event names.
        step: ValueId,
        /// Why it does not belong.
        reason: &'static str,
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
    /// An executor of `part` and its first commands.
    ///
    /// # Errors
    /// [`ExecError::Malformed`] when the part makes no sense.
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

    /// The nodes without whose slices or credit nothing more can happen here, as far as peers are to
    /// blame. Empty when only fetches and stores of this node are missing.
    pub fn awaited_peers(&self) -> Vec<NodeId> {
        match &self.way {
            Way::Streamed(streamed) => streamed.awaited_peers(),
            Way::InTurn(in_turn) => in_turn.awaited_peer().into_iter().collect(),
        }
    }

    /// Takes an event and gives the commands that follow from it.
    ///
    /// # Errors
    /// [`ExecError::Unexpected`] when the event does not belong to the part: a peer is wrong. The
    /// executor must not be used further.
    pub fn handle(&mut self, event: Event) -> Result<Vec<Command>, ExecError> {
        match &mut self.way {
            Way::Streamed(streamed) => streamed.handle(event),
            Way::InTurn(in_turn) => in_turn.handle(event),
        }
    }
}
