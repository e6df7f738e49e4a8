//! One slice after another, and for each slice one step after another: `Pipe-S` of `ECPipe` (its
//! section 6.4), a baseline that shows the gain from overlapping the steps of different slices.
//!
//! A slice passes a link while both ends do nothing else. The receiver grants credit twice for
//! each: when it has reached the slice, and when it has received it. The first lets the sender
//! send, the second lets it go on. All nodes go through the steps in the plan's order, so there can
//! be no cycle of waiting nodes: the first step of the first slice missing anywhere has both of its
//! ends ready.

use crate::command::{Command, Event, Sink, Source};
use crate::executor::ExecError;
use crate::graph::Graph;
use bytes::{Bytes, BytesMut};
use gabion_codec::kernel::Coefficients;
use gabion_layout::{NodeId, Slices};
use gabion_plan::{Part, PartStep, Step, Term, ValueId};

/// Credits granted for a slice.
const CREDITS_A_SLICE: u64 = 2;

/// A step's work on each slice. A value is identified by its step's position in the part.
#[derive(Debug)]
enum Operation {
    Fetch(Source),
    Receive(NodeId),
    Sum {
        coefficients: Coefficients,
        values: Vec<usize>,
    },
    Send {
        to: NodeId,
        value: usize,
        /// Credits so far. Invariant: at most one more than two for each slice sent.
        credit_count: u64,
        /// Slices sent.
        sent_count: u64,
    },
    Store {
        sink: Sink,
        value: usize,
    },
}

/// A step, and the current slice of its value.
#[derive(Debug)]
struct Stage {
    id: ValueId,
    slices: Slices,
    operation: Operation,
    bytes: Bytes,
}

/// Runs one part in turn.
#[derive(Debug)]
pub(crate) struct InTurn {
    stages: Vec<Stage>,
    /// The current slice of all stages.
    slice: u64,
    /// The current stage.
    at: usize,
    /// Slices of the longest stream.
    slice_count: u64,
}

impl InTurn {
    /// Creates an executor of `part`, with its first commands.
    ///
    /// # Errors
    /// [`ExecError::Malformed`] when the part is invalid.
    pub(crate) fn new(part: &Part) -> Result<(Self, Vec<Command>), ExecError> {
        // A valid graph is also valid in turn.
        Graph::new(part)?;
        let stages: Vec<Stage> = part.steps.iter().map(|step| stage(part, step)).collect();
        let mut executor = Self {
            slice: 0,
            at: 0,
            slice_count: stages.iter().map(|s| s.slices.count).max().unwrap_or(0),
            stages,
        };
        let mut commands = Vec::new();
        executor.advance(&mut commands);
        Ok((executor, commands))
    }

    /// Whether everything is sent and stored.
    pub(crate) fn is_finished(&self) -> bool {
        self.slice == self.slice_count
    }

    /// The node whose slice or credit is missing.
    pub(crate) fn awaited_peer(&self) -> Option<NodeId> {
        match self.stages.get(self.at)?.operation {
            Operation::Receive(peer) | Operation::Send { to: peer, .. } if !self.is_finished() => {
                Some(peer)
            }
            _ => None,
        }
    }

    /// Processes an event and returns the resulting commands.
    ///
    /// # Errors
    /// [`ExecError::Unexpected`] when the event does not fit the part.
    pub(crate) fn handle(&mut self, event: Event) -> Result<Vec<Command>, ExecError> {
        let mut commands = Vec::new();
        match event {
            Event::Fetched { step, slice, bytes } => {
                let is_fetch = |operation: &Operation| matches!(operation, Operation::Fetch(_));
                self.take(step, slice, bytes, is_fetch)?;
            }
            Event::Received {
                value,
                slice,
                bytes,
            } => {
                let is_receipt = |operation: &Operation| matches!(operation, Operation::Receive(_));
                self.take(value, slice, bytes, is_receipt)?;
                if let Operation::Receive(from) = self.stages[self.at].operation {
                    commands.push(grant(from, value));
                }
            }
            Event::Credited { value, slices } => {
                if !self.credited(value, slices)? {
                    return Ok(commands);
                }
            }
            Event::Stored { step } => {
                self.expect(step, self.slice, |operation| {
                    matches!(operation, Operation::Store { .. })
                })?;
            }
        }
        // The receiver has just become ready, so the send is still to be done.
        if !self.is_ready_to_send() {
            self.at += 1;
        }
        self.advance(&mut commands);
        Ok(commands)
    }

    /// Fails unless this step and slice are the current ones.
    fn expect(
        &self,
        step: ValueId,
        slice: u64,
        is: impl Fn(&Operation) -> bool,
    ) -> Result<(), ExecError> {
        let current = self.stages.get(self.at).filter(|_| !self.is_finished());
        let is_its_turn = current.is_some_and(|stage| stage.id == step && is(&stage.operation));
        if is_its_turn && slice == self.slice {
            return Ok(());
        }
        let reason = "has an event out of turn";
        Err(ExecError::Unexpected { step, reason })
    }

    /// Takes a fetched or received slice.
    fn take(
        &mut self,
        step: ValueId,
        slice: u64,
        bytes: Bytes,
        is: impl Fn(&Operation) -> bool,
    ) -> Result<(), ExecError> {
        self.expect(step, slice, is)?;
        let stage = &mut self.stages[self.at];
        if bytes.len() as u64 != stage.slices.slice(slice).length {
            let reason = "was given a slice of a wrong length";
            return Err(ExecError::Unexpected { step, reason });
        }
        stage.bytes = bytes;
        Ok(())
    }

    /// Notes credit, and returns whether it lets the current stage go on.
    fn credited(&mut self, step: ValueId, slices: u64) -> Result<bool, ExecError> {
        let unexpected = |reason| ExecError::Unexpected { step, reason };
        let found = self.stages.binary_search_by_key(&step, |stage| stage.id);
        let number = found.map_err(|_| unexpected("is not a step of this part"))?;
        let Operation::Send {
            credit_count,
            sent_count,
            ..
        } = &mut self.stages[number].operation
        else {
            return Err(unexpected("sends nothing"));
        };
        *credit_count = credit_count.saturating_add(slices);
        if *credit_count > *sent_count * CREDITS_A_SLICE + 1 {
            return Err(unexpected("was given credit for slices that were not sent"));
        }
        Ok(number == self.at)
    }

    /// Whether the current stage is a send whose receiver is ready.
    fn is_ready_to_send(&self) -> bool {
        match self.stages.get(self.at).map(|stage| &stage.operation) {
            Some(Operation::Send {
                credit_count,
                sent_count,
                ..
            }) => *sent_count == self.slice && *credit_count > self.slice * CREDITS_A_SLICE,
            _ => false,
        }
    }

    /// Goes on until it has to wait.
    fn advance(&mut self, commands: &mut Vec<Command>) {
        while self.slice < self.slice_count {
            if self.at == self.stages.len() {
                self.at = 0;
                self.slice += 1;
                continue;
            }
            let slice = self.slice;
            let stage = &self.stages[self.at];
            if slice >= stage.slices.count {
                self.at += 1;
                continue;
            }
            let (id, range) = (stage.id, stage.slices.slice(slice));
            match &stage.operation {
                Operation::Sum { .. } => {
                    let sum = self.sum(range.length as usize);
                    self.stages[self.at].bytes = sum;
                    self.at += 1;
                    continue;
                }
                Operation::Fetch(source) => commands.push(Command::Fetch {
                    step: id,
                    slice,
                    source: *source,
                    range,
                }),
                Operation::Receive(from) => commands.push(grant(*from, id)),
                Operation::Store { sink, value } => commands.push(Command::Store {
                    step: id,
                    sink: *sink,
                    range,
                    bytes: self.stages[*value].bytes.clone(),
                }),
                Operation::Send { .. } => self.send(commands),
            }
            return;
        }
    }

    /// Sends the current stage's slice if its receiver is ready.
    fn send(&mut self, commands: &mut Vec<Command>) {
        if !self.is_ready_to_send() {
            return;
        }
        let stage = &mut self.stages[self.at];
        let id = stage.id;
        if let Operation::Send {
            to,
            value,
            sent_count,
            ..
        } = &mut stage.operation
        {
            *sent_count += 1;
            let (to, value) = (*to, *value);
            commands.push(Command::Send {
                to,
                value: id,
                slice: self.slice,
                bytes: self.stages[value].bytes.clone(),
            });
        }
    }

    /// The current stage's sum.
    fn sum(&self, length: usize) -> Bytes {
        let mut sum = BytesMut::zeroed(length);
        if let Operation::Sum {
            coefficients,
            values,
        } = &self.stages[self.at].operation
        {
            let sources = values
                .iter()
                .map(|&value| self.stages[value].bytes.as_ref());
            let sources: Vec<&[u8]> = sources.collect();
            coefficients.combine(&sources, &mut [&mut sum]);
        }
        sum.freeze()
    }
}

fn grant(from: NodeId, value: ValueId) -> Command {
    Command::Grant {
        from,
        value,
        slices: 1,
    }
}

/// A step of a valid part.
fn stage(part: &Part, step: &PartStep) -> Stage {
    let position = |value: ValueId| {
        let found = part.steps.binary_search_by_key(&value, |step| step.id);
        found.expect("a valid part uses only values that it makes")
    };
    let store = |sink, value| Operation::Store {
        sink,
        value: position(value),
    };
    let operation = match &step.step {
        Step::Read { chunk, .. } => Operation::Fetch(Source::Chunk(*chunk)),
        Step::Input { chunk, .. } => Operation::Fetch(Source::Input(*chunk)),
        Step::Recall { log, chunk, .. } => Operation::Fetch(Source::Log(*log, *chunk)),
        Step::Send { from, .. } if *from != part.node => Operation::Receive(*from),
        Step::Send { to, value, .. } => Operation::Send {
            to: *to,
            value: position(*value),
            credit_count: 0,
            sent_count: 0,
        },
        Step::Combine { terms, .. } => Operation::Sum {
            coefficients: row(terms),
            values: terms.iter().map(|term| position(term.value)).collect(),
        },
        Step::Write { chunk, value, .. } => store(Sink::Write(*chunk), *value),
        Step::Append {
            log, chunk, value, ..
        } => store(Sink::Append(*log, *chunk), *value),
        Step::Deliver { chunk, value, .. } => store(Sink::Deliver(*chunk), *value),
    };
    Stage {
        id: step.id,
        slices: step.slices,
        operation,
        bytes: Bytes::new(),
    }
}

fn row(terms: &[Term]) -> Coefficients {
    let elements: Vec<u8> = terms.iter().map(|term| term.coefficient).collect();
    Coefficients::new(1, elements.len(), &elements)
}
