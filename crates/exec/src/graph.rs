//! A part as a graph of values, producers and consumers, made once from what a peer sent and
//! trusted by the executor from then on.

use gabion_codec::kernel::Coefficients;
use gabion_layout::{ChunkIndex, NodeId, Slices};
use gabion_plan::{Log, Part, PartStep, Step, Term, ValueId};
use std::collections::BTreeMap;
use thiserror::Error;

/// The most steps that a part may have.
pub const MAX_STEPS: usize = 65_536;
/// The largest slice that a part may have: a ring of them must fit into memory.
pub const MAX_SLICE_BYTES: u64 = 16 << 20;

/// A part that cannot be run; a peer sent nonsense.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the part's step {step} {reason}")]
pub struct MalformedPart {
    /// The step's number in its plan.
    pub step: u32,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Where a value's slices come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Producer {
    /// Read from a chunk.
    Chunk(ChunkIndex),
    /// Given by the asker.
    Input(ChunkIndex),
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
    /// Numbers of the consumers that take every slice of it.
    pub(crate) consumers: Vec<usize>,
}

/// Where a consumer puts the slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outlet {
    /// To another node.
    Send(NodeId),
    /// Into a chunk.
    Write(ChunkIndex),
    /// Into a log.
    Append(Log, ChunkIndex),
    /// To the asker, as bytes of a chunk.
    Deliver(ChunkIndex),
    /// Into the group with this number.
    Group(usize),
}

/// Something that takes a value slice by slice.
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
    /// Numbers of the values that are combined, in the order of the matrix's columns.
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
    pub(crate) values: Vec<Value>,
    pub(crate) consumers: Vec<Consumer>,
    pub(crate) groups: Vec<Group>,
    pub(crate) by_id: BTreeMap<ValueId, usize>,
}

/// Combine steps on their way to becoming a [`Group`].
struct Sums {
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    rows: Vec<u8>,
}

impl Graph {
    /// Reads a part; everything in it is suspect.
    pub(crate) fn new(part: &Part) -> Result<Self, MalformedPart> {
        let mut graph = Self::default();
        let mut sums: Vec<Sums> = Vec::new();
        for (at, step) in part.steps.iter().enumerate() {
            let malformed = |reason| MalformedPart {
                step: step.id.0,
                reason,
            };
            if at >= MAX_STEPS {
                return Err(malformed("is one too many"));
            }
            graph.step(part, step, &mut sums).map_err(malformed)?;
        }
        for (number, sums) in sums.into_iter().enumerate() {
            graph.close_group(number, sums);
        }
        Ok(graph)
    }

    fn step(
        &mut self,
        part: &Part,
        step: &PartStep,
        sums: &mut Vec<Sums>,
    ) -> Result<(), &'static str> {
        let slices = step.slices;
        if !slices.is_valid() || slices.slice_bytes > MAX_SLICE_BYTES {
            return Err("has a stream of slices that makes no sense");
        }
        let in_chunk = slices.span().end() <= part.chunk_bytes;
        match &step.step {
            Step::Send { from, to, value } if *from == part.node && *to != part.node => {
                let value = self.known(*value, slices)?;
                self.consume(step.id, value, slices, Outlet::Send(*to));
                Ok(())
            }
            Step::Send { from, to, .. } if *to == part.node && *from != part.node => {
                self.produce(step.id, slices, Producer::Incoming(*from))
            }
            Step::Send { .. } => Err("sends neither from nor to this node"),
            other if other.node() != part.node => Err("is another node's"),
            Step::Input { chunk, .. } if in_chunk => {
                self.produce(step.id, slices, Producer::Input(*chunk))
            }
            Step::Read { chunk, .. } if in_chunk => {
                self.produce(step.id, slices, Producer::Chunk(*chunk))
            }
            Step::Combine { terms, .. } => self.combine(step.id, slices, terms, sums),
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
            _ => Err("leaves the chunk"),
        }
    }

    fn combine(
        &mut self,
        id: ValueId,
        slices: Slices,
        terms: &[Term],
        sums: &mut Vec<Sums>,
    ) -> Result<(), &'static str> {
        if terms.is_empty() || terms.len() > MAX_STEPS {
            return Err("combines nothing or too much");
        }
        let mut inputs = Vec::with_capacity(terms.len());
        for term in terms {
            inputs.push(self.known(term.value, slices)?);
        }
        let row = terms.iter().map(|term| term.coefficient);
        // Only the last group may grow: an older one could be an input of something in between.
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
        self.produce(id, slices, Producer::Group(number))
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

    fn produce(
        &mut self,
        id: ValueId,
        slices: Slices,
        producer: Producer,
    ) -> Result<(), &'static str> {
        if self.by_id.insert(id, self.values.len()).is_some() {
            return Err("has the number of an earlier one");
        }
        self.values.push(Value {
            id,
            slices,
            producer,
            consumers: Vec::new(),
        });
        Ok(())
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
        let value = *self
            .by_id
            .get(&id)
            .ok_or("uses a value that no earlier step makes here")?;
        if self.values[value].slices.same_shape(&slices) {
            Ok(value)
        } else {
            Err("uses a value of another shape")
        }
    }
}
