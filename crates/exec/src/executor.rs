//! The state machine: rings of slices between producers and consumers.

use crate::RING_SLICES;
use crate::graph::{Graph, MalformedPart, Outlet, Producer};
use bytes::Bytes;
use gabion_layout::{ByteRange, ChunkIndex, NodeId};
use gabion_plan::{Log, Part, ValueId};
use std::collections::VecDeque;
use thiserror::Error;

/// Where bytes are fetched from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A stored chunk.
    Chunk(ChunkIndex),
    /// New bytes of a data chunk that the asker gave.
    Input(ChunkIndex),
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

/// The slices of a value that not all consumers have taken yet.
#[derive(Debug, Default)]
struct Ring {
    /// Number of the front slice.
    base: u64,
    /// Slices from `base` on; none where one is still being fetched.
    slots: VecDeque<Option<Bytes>>,
}

impl Ring {
    fn get(&self, slice: u64) -> Option<&Bytes> {
        self.slots
            .get(usize::try_from(slice.checked_sub(self.base)?).ok()?)?
            .as_ref()
    }

    /// Number of the slice after the last one that has a slot.
    fn end(&self) -> u64 {
        self.base + self.slots.len() as u64
    }
}

/// How far a consumer is.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Slices taken.
    taken: u64,
    /// Slices that may be taken: an outgoing value's credit.
    allowed: u64,
}

/// Runs one part. See the crate's documentation.
#[derive(Debug)]
pub struct Executor {
    graph: Graph,
    /// One a value.
    rings: Vec<Ring>,
    /// One a consumer.
    progress: Vec<Progress>,
    /// Consumers that still have slices to take or stores to wait for.
    unfinished: usize,
}

impl Executor {
    /// An executor of `part` and its first commands.
    ///
    /// # Errors
    /// [`ExecError::Malformed`] when the part makes no sense.
    pub fn new(part: &Part) -> Result<(Self, Vec<Command>), ExecError> {
        let graph = Graph::new(part)?;
        let rings = graph.values.iter().map(|_| Ring::default()).collect();
        let allowed = |outlet| match outlet {
            Outlet::Group(_) => u64::MAX,
            _ => RING_SLICES,
        };
        let progress = graph
            .consumers
            .iter()
            .map(|c| Progress {
                taken: 0,
                allowed: allowed(c.outlet),
            })
            .collect();
        let unfinished = graph
            .consumers
            .iter()
            .filter(|c| !matches!(c.outlet, Outlet::Group(_)))
            .count();
        let mut executor = Self {
            graph,
            rings,
            progress,
            unfinished,
        };
        let mut commands = Vec::new();
        executor.advance(&mut commands);
        Ok((executor, commands))
    }

    /// Whether everything is sent and stored.
    pub fn is_finished(&self) -> bool {
        self.unfinished == 0
    }

    /// Takes an event and gives the commands that follow from it.
    ///
    /// # Errors
    /// [`ExecError::Unexpected`] when the event does not belong to the part: a peer is wrong. The
    /// executor must not be used further.
    pub fn handle(&mut self, event: Event) -> Result<Vec<Command>, ExecError> {
        match event {
            Event::Fetched { step, slice, bytes } => self.fetched(step, slice, bytes)?,
            Event::Received {
                value,
                slice,
                bytes,
            } => self.received(value, slice, bytes)?,
            Event::Credited { value, slices } => {
                let consumer = self.consumer(value, |o| matches!(o, Outlet::Send(_)))?;
                let progress = &mut self.progress[consumer];
                progress.allowed = progress.allowed.saturating_add(slices);
            }
            Event::Stored { step } => self.stored(step)?,
        }
        let mut commands = Vec::new();
        self.advance(&mut commands);
        Ok(commands)
    }

    fn fetched(&mut self, step: ValueId, slice: u64, bytes: Bytes) -> Result<(), ExecError> {
        let unexpected = |reason| ExecError::Unexpected { step, reason };
        let number = *self
            .graph
            .by_id
            .get(&step)
            .ok_or(unexpected("was never fetched"))?;
        let value = &self.graph.values[number];
        let ring = &mut self.rings[number];
        let at = slice
            .checked_sub(ring.base)
            .and_then(|at| usize::try_from(at).ok());
        let slot = at.and_then(|at| ring.slots.get_mut(at));
        match slot {
            Some(slot) if slot.is_none() => {
                if bytes.len() as u64 != value.slices.slice(slice).length {
                    return Err(unexpected("was fetched with a wrong length"));
                }
                *slot = Some(bytes);
                Ok(())
            }
            _ => Err(unexpected("was fetched without being asked for")),
        }
    }

    fn received(&mut self, id: ValueId, slice: u64, bytes: Bytes) -> Result<(), ExecError> {
        let unexpected = |reason| ExecError::Unexpected { step: id, reason };
        let number = *self
            .graph
            .by_id
            .get(&id)
            .ok_or(unexpected("is no incoming value"))?;
        let value = &self.graph.values[number];
        let ring = &mut self.rings[number];
        if !matches!(value.producer, Producer::Incoming(_)) {
            return Err(unexpected("is no incoming value"));
        }
        if slice != ring.end() || slice >= value.slices.count {
            return Err(unexpected("arrived out of order"));
        }
        if ring.slots.len() as u64 >= RING_SLICES {
            return Err(unexpected("arrived without credit"));
        }
        if bytes.len() as u64 != value.slices.slice(slice).length {
            return Err(unexpected("arrived with a wrong length"));
        }
        ring.slots.push_back(Some(bytes));
        Ok(())
    }

    fn stored(&mut self, step: ValueId) -> Result<(), ExecError> {
        let consumer = self.consumer(step, |o| !matches!(o, Outlet::Send(_) | Outlet::Group(_)))?;
        let count = self.graph.consumers[consumer].slices.count;
        let progress = &mut self.progress[consumer];
        // A sink's credit is what its disk has finished, plus a ring.
        let stored = progress.allowed - RING_SLICES + 1;
        if stored > progress.taken {
            return Err(ExecError::Unexpected {
                step,
                reason: "was stored without being asked",
            });
        }
        progress.allowed += 1;
        if stored == count {
            self.unfinished -= 1;
        }
        Ok(())
    }

    fn consumer(&self, id: ValueId, is: impl Fn(Outlet) -> bool) -> Result<usize, ExecError> {
        self.graph
            .consumers
            .iter()
            .position(|c| c.id == id && is(c.outlet))
            .ok_or(ExecError::Unexpected {
                step: id,
                reason: "is no step of that kind here",
            })
    }

    /// Does all that can be done now. Steps come in the plan's order, in which values flow, so one
    /// sweep suffices unless rings got room on the way.
    fn advance(&mut self, commands: &mut Vec<Command>) {
        loop {
            let computed = self.compute();
            self.drain(commands);
            let trimmed = self.trim(commands);
            self.request(commands);
            if !computed && !trimmed {
                return;
            }
        }
    }

    /// Asks for as many slices of stored and given bytes as rings have room for.
    fn request(&mut self, commands: &mut Vec<Command>) {
        for (value, ring) in self.graph.values.iter().zip(&mut self.rings) {
            let source = match value.producer {
                Producer::Chunk(chunk) => Source::Chunk(chunk),
                Producer::Input(chunk) => Source::Input(chunk),
                Producer::Incoming(_) | Producer::Group(_) => continue,
            };
            while (ring.slots.len() as u64) < RING_SLICES && ring.end() < value.slices.count {
                let slice = ring.end();
                let range = value.slices.slice(slice);
                commands.push(Command::Fetch {
                    step: value.id,
                    slice,
                    source,
                    range,
                });
                ring.slots.push_back(None);
            }
        }
    }

    /// Computes every sum whose terms are there and that has room. Says whether there was any.
    fn compute(&mut self) -> bool {
        let mut computed = false;
        for group in &self.graph.groups {
            let output = group.outputs[0];
            loop {
                let slice = self.rings[output].end();
                let has_room = group
                    .outputs
                    .iter()
                    .all(|&o| (self.rings[o].slots.len() as u64) < RING_SLICES);
                let sources: Option<Vec<&[u8]>> = group
                    .inputs
                    .iter()
                    .map(|&input| self.rings[input].get(slice).map(AsRef::as_ref))
                    .collect();
                let (true, Some(sources)) = (has_room, sources) else {
                    break;
                };
                let mut sums = vec![vec![0; sources[0].len()]; group.outputs.len()];
                let mut outputs: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
                group.coefficients.combine(&sources, &mut outputs);
                for (&output, sum) in group.outputs.iter().zip(sums) {
                    self.rings[output].slots.push_back(Some(sum.into()));
                }
                for input in 0..group.inputs.len() {
                    self.progress[group.first_consumer + input].taken += 1;
                }
                computed = true;
            }
        }
        computed
    }

    /// Sends and stores every slice that is there and allowed.
    fn drain(&mut self, commands: &mut Vec<Command>) {
        for (consumer, progress) in self.graph.consumers.iter().zip(&mut self.progress) {
            if matches!(consumer.outlet, Outlet::Group(_)) {
                continue;
            }
            while progress.taken < progress.allowed {
                let slice = progress.taken;
                let Some(bytes) = self.rings[consumer.value].get(slice).cloned() else {
                    break;
                };
                progress.taken += 1;
                let step = consumer.id;
                let range = consumer.slices.slice(slice);
                let sink = match consumer.outlet {
                    Outlet::Send(to) => {
                        commands.push(Command::Send {
                            to,
                            value: step,
                            slice,
                            bytes,
                        });
                        if progress.taken == consumer.slices.count {
                            self.unfinished -= 1;
                        }
                        continue;
                    }
                    Outlet::Write(chunk) => Sink::Write(chunk),
                    Outlet::Append(log, chunk) => Sink::Append(log, chunk),
                    Outlet::Deliver(chunk) => Sink::Deliver(chunk),
                    Outlet::Group(_) => continue,
                };
                commands.push(Command::Store {
                    step,
                    sink,
                    range,
                    bytes,
                });
            }
        }
    }

    /// Drops slices that all consumers have taken, and grants senders room for new ones. Says
    /// whether any ring got room.
    fn trim(&mut self, commands: &mut Vec<Command>) -> bool {
        let mut trimmed = false;
        for (value, ring) in self.graph.values.iter().zip(&mut self.rings) {
            let taken = value
                .consumers
                .iter()
                .map(|&c| self.progress[c].taken)
                .min();
            let mut freed = 0;
            while matches!(ring.slots.front(), Some(Some(_)))
                && taken.is_none_or(|taken| ring.base < taken)
            {
                ring.slots.pop_front();
                ring.base += 1;
                freed += 1;
            }
            trimmed |= freed > 0;
            // The sender has credit for the first ring already, and needs none past the end.
            let granted = (ring.base + RING_SLICES).min(value.slices.count)
                - (ring.base - freed + RING_SLICES).min(value.slices.count);
            if let Producer::Incoming(from) = value.producer
                && granted > 0
            {
                commands.push(Command::Grant {
                    from,
                    value: value.id,
                    slices: granted,
                });
            }
        }
        trimmed
    }
}
