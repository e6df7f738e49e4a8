//! A part as a graph of values, producers and consumers. It is made once from a peer's message and
//! validated; the executor trusts it from then on.

use crate::ring::RING_SLICES;
use gabion_codec::kernel::Coefficients;
use gabion_layout::{ChunkIndex, NodeId, Slices};
use gabion_plan::{Log, Part, PartStep, Step, Term, ValueId};
use thiserror::Error;

/// Most steps of a part.
pub const MAX_STEPS: usize = 65_536;
/// Most terms in the sums of a part. The repair of a chunk of the largest array code has fewer than
/// half as many.
pub const MAX_TERMS: usize = 65_536;
/// Largest slice of a part.
pub const MAX_SLICE_BYTES: u64 = 16 << 20;
/// Most bytes in the rings of a part.
pub const MAX_BUFFER_BYTES: u64 = 2 << 30;

/// A part that cannot be run; a peer sent an invalid one.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the part's step {step} {reason}")]
pub struct MalformedPart {
    /// The step's number in its plan.
    pub step: u32,
    /// The reason.
    pub reason: &'static str,
}

/// The origin of a value's slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Producer {
    /// Read from a chunk.
    Chunk(ChunkIndex),
    /// Given by the initiator.
    Input(ChunkIndex),
    /// Recalled from a log.
    Log(Log, ChunkIndex),
    /// Sent by a node.
    Incoming(NodeId),
    /// Computed by the group with this number.
    Group(usize),
}

/// A stream of slices at this node.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) id: ValueId,
    pub(crate) slices: Slices,
    pub(crate) producer: Producer,
    /// Numbers of the consumers that take each of its slices.
    pub(crate) consumers: Vec<usize>,
}

/// The destination of a consumer's slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outlet {
    /// To another node.
    Send(NodeId),
    /// Into a chunk.
    Write(ChunkIndex),
    /// Into a log.
    Append(Log, ChunkIndex),
    /// To the initiator, as bytes of a chunk.
    Deliver(ChunkIndex),
    /// Into the group with this number.
    Group(usize),
}

/// A consumer takes a value slice by slice.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) id: ValueId,
    /// Number of the value.
    pub(crate) value: usize,
    /// Positions at the outlet.
    pub(crate) slices: Slices,
    pub(crate) outlet: Outlet,
}

/// Combine steps with the same terms' values: all their sums are computed in one pass.
#[derive(Debug)]
pub(crate) struct Group {
    /// Numbers of the combined values, in the order of the matrix's columns.
    pub(crate) inputs: Vec<usize>,
    /// This group's consumer of the first input; the others follow it.
    pub(crate) first_consumer: usize,
    /// Numbers of the sums, in the order of the matrix's rows.
    pub(crate) outputs: Vec<usize>,
    pub(crate) coefficients: Coefficients,
}

/// The whole part.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Invariant: by ascending id.
    pub(crate) values: Vec<Value>,
    /// Invariant: outlets to the outside first, by ascending id; then those of the groups.
    pub(crate) consumers: Vec<Consumer>,
    /// Number of consumers outside the groups.
    pub(crate) outlet_count: usize,
    pub(crate) groups: Vec<Group>,
}

/// Combine steps that will become a [`Group`].
struct Sums {
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    rows: Vec<u8>,
}

/// The state of reading a part, beside the graph.
#[derive(Default)]
struct Reading {
    last_id: Option<ValueId>,
    sums: Vec<Sums>,
    term_count: usize,
    buffer_bytes: u64,
}

impl Graph {
    /// Reads a part; every field of it is untrusted.
    pub(crate) fn new(part: &Part) -> Result<Self, MalformedPart> {
        let mut graph = Self::default();
        let mut reading = Reading::default();
        for (at, step) in part.steps.iter().enumerate() {
            let malformed = |reason| MalformedPart {
                step: step.id.0,
                reason,
            };
            if at >= MAX_STEPS {
                return Err(malformed("exceeds the maximum number of steps of a part"));
            }
            // Plans number their steps, so this also ensures that the numbers are unique.
            if reading.last_id.replace(step.id) >= Some(step.id) {
                return Err(malformed("is out of order"));
            }
            graph.step(part, step, &mut reading).map_err(malformed)?;
        }
        graph.outlet_count = graph.consumers.len();
        for (number, sums) in reading.sums.into_iter().enumerate() {
            graph.close_group(number, sums);
        }
        Ok(graph)
    }

    /// Number of the value with this id.
    pub(crate) fn value(&self, id: ValueId) -> Option<usize> {
        self.values.binary_search_by_key(&id, |v| v.id).ok()
    }

    /// Number of the outlet to the outside with this id.
    pub(crate) fn outlet(&self, id: ValueId) -> Option<usize> {
        let outlets = &self.consumers[..self.outlet_count];
        outlets.binary_search_by_key(&id, |c| c.id).ok()
    }

    fn step(
        &mut self,
        part: &Part,
        step: &PartStep,
        reading: &mut Reading,
    ) -> Result<(), &'static str> {
        let slices = step.slices;
        if !slices.is_valid() || slices.slice_bytes > MAX_SLICE_BYTES {
            return Err("has an invalid stream of slices");
        }
        if step.step.makes_value() && step.step.node() == part.node {
            reading.buffer_bytes += slices.slice_bytes * slices.count.min(RING_SLICES);
            if reading.buffer_bytes > MAX_BUFFER_BYTES {
                return Err("exceeds a part's memory limit for slices");
            }
        }
        if own_slices(&step.step).is_some_and(|own| own != slices) {
            return Err("gives two ranges of its chunk");
        }
        let in_chunk = slices.span().end() <= part.chunk_bytes;
        match &step.step {
            Step::Send { from, to, value } if *from == part.node && *to != part.node => {
                let value = self.known(*value, slices)?;
                self.consume(step.id, value, slices, Outlet::Send(*to));
                Ok(())
            }
            Step::Send { from, to, .. } if *to == part.node && *from != part.node => {
                self.produce(step.id, slices, Producer::Incoming(*from));
                Ok(())
            }
            Step::Send { .. } => Err("sends neither from nor to this node"),
            other if other.node() != part.node => Err("belongs to another node"),
            Step::Input { chunk, .. } if in_chunk => {
                self.produce(step.id, slices, Producer::Input(*chunk));
                Ok(())
            }
            Step::Read { chunk, .. } if in_chunk => {
                self.produce(step.id, slices, Producer::Chunk(*chunk));
                Ok(())
            }
            Step::Recall { log, chunk, .. } if in_chunk => {
                self.produce(step.id, slices, Producer::Log(*log, *chunk));
                Ok(())
            }
            Step::Combine { terms, .. } => self.combine(step.id, slices, terms, reading),
            Step::Write { chunk, value, .. } if in_chunk => {
                let value = self.known(*value, slices)?;
                self.consume(step.id, value, slices, Outlet::Write(*chunk));
                Ok(())
            }
            Step::Append {
                log, chunk, value, ..
            } if in_chunk => {
                let value = self.known(*value, slices)?;
                self.consume(step.id, value, slices, Outlet::Append(*log, *chunk));
                Ok(())
            }
            Step::Deliver { chunk, value, .. } if in_chunk => {
                let value = self.known(*value, slices)?;
                self.consume(step.id, value, slices, Outlet::Deliver(*chunk));
                Ok(())
            }
            _ => Err("exceeds the chunk"),
        }
    }

    fn combine(
        &mut self,
        id: ValueId,
        slices: Slices,
        terms: &[Term],
        reading: &mut Reading,
    ) -> Result<(), &'static str> {
        reading.term_count += terms.len();
        if terms.is_empty() || reading.term_count > MAX_TERMS {
            return Err("combines no terms or too many");
        }
        let sums = &mut reading.sums;
        let mut inputs = Vec::with_capacity(terms.len());
        for term in terms {
            inputs.push(self.known(term.value, slices)?);
        }
        let row = terms.iter().map(|term| term.coefficient);
        // Only the last group may grow: an older one could be an input of a step between.
        let number = match sums.last_mut() {
            Some(last) if last.inputs == inputs => {
                last.rows.extend(row);
                sums.len() - 1
            }
            _ => {
                sums.push(Sums {
                    inputs,
                    outputs: Vec::new(),
                    rows: row.collect(),
                });
                sums.len() - 1
            }
        };
        sums[number].outputs.push(self.values.len());
        self.produce(id, slices, Producer::Group(number));
        Ok(())
    }

    fn close_group(&mut self, number: usize, sums: Sums) {
        let first_consumer = self.consumers.len();
        for &input in &sums.inputs {
            let (id, slices) = (self.values[input].id, self.values[input].slices);
            self.consume(id, input, slices, Outlet::Group(number));
        }
        let Sums {
            inputs,
            outputs,
            rows,
        } = sums;
        let coefficients = Coefficients::new(outputs.len(), inputs.len(), &rows);
        self.groups.push(Group {
            inputs,
            first_consumer,
            outputs,
            coefficients,
        });
    }

    fn produce(&mut self, id: ValueId, slices: Slices, producer: Producer) {
        self.values.push(Value {
            id,
            slices,
            producer,
            consumers: Vec::new(),
        });
    }

    fn consume(&mut self, id: ValueId, value: usize, slices: Slices, outlet: Outlet) {
        self.values[value].consumers.push(self.consumers.len());
        self.consumers.push(Consumer {
            id,
            value,
            slices,
            outlet,
        });
    }

    fn known(&self, id: ValueId, slices: Slices) -> Result<usize, &'static str> {
        let value = self
            .value(id)
            .ok_or("uses a value that no earlier step makes here")?;
        if self.values[value].slices.same_shape(&slices) {
            Ok(value)
        } else {
            Err("uses a value of another shape")
        }
    }
}

/// The bytes of a chunk that a step touches by its own fields.
fn own_slices(step: &Step) -> Option<Slices> {
    match step {
        Step::Input { slices, .. }
        | Step::Read { slices, .. }
        | Step::Recall { slices, .. }
        | Step::Write { slices, .. }
        | Step::Append { slices, .. }
        | Step::Deliver { slices, .. } => Some(*slices),
        Step::Combine { .. } | Step::Send { .. } => None,
    }
}
