//! All steps at once, slice by slice. An event triggers exactly the work that it makes possible, so
//! it costs the same in a small part and in a large one.

use crate::command::{Command, Event, Sink, Source};
use crate::executor::ExecError;
use crate::graph::{Graph, Outlet, Producer};
use crate::ring::BATCH_SLICES;
use crate::ring::{RING_SLICES, Ring};
use bytes::{Bytes, BytesMut};
use gabion_layout::NodeId;
use gabion_plan::{Part, ValueId};

/// A consumer's progress.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Slices taken.
    taken: u64,
    /// Slices that may be taken: those that the receiver or the sink has finished, plus a ring.
    allowed: u64,
}

/// Work that may be possible now.
#[derive(Clone, Copy, Debug)]
enum Chance {
    /// The outlet with this number may have a slice to take.
    Drain(usize),
    /// The group with this number may have all its terms, and space for the sums.
    Compute(usize),
    /// The ring with this number has slices that all consumers have taken.
    Trim(usize),
}

/// Runs one part, streamed.
#[derive(Debug)]
pub(crate) struct Streamed {
    graph: Graph,
    /// One a value.
    rings: Vec<Ring>,
    /// By value: the slices for which a sender has credit.
    granted: Vec<u64>,
    /// By consumer.
    progress: Vec<Progress>,
    /// By group: the number of its leading inputs that are known to have the next slice.
    ready: Vec<usize>,
    /// Work to check before the event is finished. Invariant: empty between events.
    chances: Vec<Chance>,
    /// Outlets that still have slices to take or stores to wait for.
    unfinished_count: usize,
}

impl Streamed {
    /// Creates an executor of `part`, with its first commands.
    ///
    /// # Errors
    /// [`ExecError::Malformed`] when the part is invalid.
    pub(crate) fn new(part: &Part) -> Result<(Self, Vec<Command>), ExecError> {
        let graph = Graph::new(part)?;
        let rings = graph.values.iter().map(|v| Ring::new(v.consumers.len()));
        let rings: Vec<Ring> = rings.collect();
        let start = Progress {
            taken: 0,
            allowed: RING_SLICES,
        };
        let mut executor = Self {
            progress: vec![start; graph.consumers.len()],
            ready: vec![0; graph.groups.len()],
            granted: vec![RING_SLICES; graph.values.len()],
            chances: Vec::new(),
            unfinished_count: graph.outlet_count,
            rings,
            graph,
        };
        let mut commands = Vec::new();
        for number in 0..executor.rings.len() {
            executor.request(number, &mut commands);
        }
        Ok((executor, commands))
    }

    /// Whether everything is sent and stored.
    pub(crate) fn is_finished(&self) -> bool {
        self.unfinished_count == 0
    }

    /// The nodes whose slices or credit the executor needs to go on. Empty when only fetches and
    /// stores of this node are missing.
    pub(crate) fn awaited_peers(&self) -> Vec<NodeId> {
        let dry = self.graph.values.iter().zip(&self.rings);
        let senders = dry.filter_map(|(value, ring)| match value.producer {
            Producer::Incoming(from) => {
                let is_dry = ring.base() == ring.end() && ring.end() < value.slices.count;
                is_dry.then_some(from)
            }
            _ => None,
        });
        let outlets = self.graph.consumers.iter().zip(&self.progress);
        let receivers = outlets.filter_map(|(consumer, progress)| match consumer.outlet {
            Outlet::Send(to) => {
                let is_held_up =
                    progress.taken == progress.allowed && progress.taken < consumer.slices.count;
                is_held_up.then_some(to)
            }
            _ => None,
        });
        let mut awaited: Vec<NodeId> = senders.chain(receivers).collect();
        awaited.sort_unstable();
        awaited.dedup();
        awaited
    }

    /// Processes an event and returns the resulting commands.
    ///
    /// # Errors
    /// [`ExecError::Unexpected`] when the event does not fit the part: a peer is wrong. The
    /// executor must not be used any further.
    pub(crate) fn handle(&mut self, event: Event) -> Result<Vec<Command>, ExecError> {
        match event {
            Event::Fetched { step, slice, bytes } => self.fetched(step, slice, bytes)?,
            Event::Received {
                value,
                slice,
                bytes,
            } => self.received(value, slice, bytes)?,
            Event::Credited { value, slices } => self.credited(value, slices)?,
            Event::Stored { step } => self.stored(step)?,
        }
        let mut commands = Vec::new();
        while let Some(chance) = self.chances.pop() {
            match chance {
                Chance::Drain(number) => self.drain(number, &mut commands),
                Chance::Compute(number) => self.compute(number),
                Chance::Trim(number) => self.trim(number, &mut commands),
            }
        }
        Ok(commands)
    }

    fn fetched(&mut self, step: ValueId, slice: u64, bytes: Bytes) -> Result<(), ExecError> {
        let unexpected = |reason| ExecError::Unexpected { step, reason };
        let number = self
            .graph
            .value(step)
            .ok_or(unexpected("was never fetched"))?;
        if !self.rings[number].is_awaited(slice) {
            return Err(unexpected("was fetched without a request"));
        }
        if bytes.len() as u64 != self.graph.values[number].slices.slice(slice).length {
            return Err(unexpected("was fetched with a wrong length"));
        }
        self.rings[number].fill(slice, bytes);
        self.offer(number);
        Ok(())
    }

    fn received(&mut self, id: ValueId, slice: u64, bytes: Bytes) -> Result<(), ExecError> {
        let unexpected = |reason| ExecError::Unexpected { step: id, reason };
        let number = self
            .graph
            .value(id)
            .ok_or(unexpected("is not an incoming value"))?;
        let value = &self.graph.values[number];
        let ring = &mut self.rings[number];
        if !matches!(value.producer, Producer::Incoming(_)) {
            return Err(unexpected("is not an incoming value"));
        }
        if slice != ring.end() || slice >= value.slices.count {
            return Err(ExecError::OutOfOrder { step: id });
        }
        if !ring.has_room() {
            return Err(unexpected("arrived without credit"));
        }
        if bytes.len() as u64 != value.slices.slice(slice).length {
            return Err(unexpected("arrived with a wrong length"));
        }
        ring.push(Some(bytes));
        self.offer(number);
        Ok(())
    }

    /// A receiver grants credit for slices that it has received and used, so more credit is
    /// invalid; accepting it would queue a whole chunk in memory.
    fn credited(&mut self, id: ValueId, slices: u64) -> Result<(), ExecError> {
        let is_send = |outlet| matches!(outlet, Outlet::Send(_));
        let number = self.outlet(id, is_send)?;
        let progress = &mut self.progress[number];
        let due = progress.taken + RING_SLICES - progress.allowed;
        if slices > due {
            return Err(ExecError::Unexpected {
                step: id,
                reason: "was given credit for slices that were not sent",
            });
        }
        progress.allowed += slices;
        self.chances.push(Chance::Drain(number));
        Ok(())
    }

    fn stored(&mut self, step: ValueId) -> Result<(), ExecError> {
        let is_sink = |outlet| !matches!(outlet, Outlet::Send(_));
        let number = self.outlet(step, is_sink)?;
        let count = self.graph.consumers[number].slices.count;
        let progress = &mut self.progress[number];
        let stored = progress.allowed - RING_SLICES + 1;
        if stored > progress.taken {
            return Err(ExecError::Unexpected {
                step,
                reason: "was stored without a request",
            });
        }
        progress.allowed += 1;
        if stored == count {
            self.unfinished_count -= 1;
        }
        self.chances.push(Chance::Drain(number));
        Ok(())
    }

    fn outlet(&self, id: ValueId, is: impl Fn(Outlet) -> bool) -> Result<usize, ExecError> {
        let found = self.graph.outlet(id);
        found
            .filter(|&number| is(self.graph.consumers[number].outlet))
            .ok_or(ExecError::Unexpected {
                step: id,
                reason: "is not a step of that kind here",
            })
    }

    /// Offers a new slice of a value to its consumers.
    fn offer(&mut self, number: usize) {
        if self.rings[number].is_front_taken() {
            // The value has no consumer.
            self.chances.push(Chance::Trim(number));
        }
        for &consumer in &self.graph.values[number].consumers {
            self.chances
                .push(match self.graph.consumers[consumer].outlet {
                    Outlet::Group(group) => Chance::Compute(group),
                    _ => Chance::Drain(consumer),
                });
        }
    }

    /// Counts a slice as taken by a consumer.
    fn take(&mut self, consumer: usize) {
        let number = self.graph.consumers[consumer].value;
        let progress = &mut self.progress[consumer];
        let ring = &mut self.rings[number];
        ring.take(progress.taken);
        if progress.taken == ring.base() && ring.is_front_taken() {
            self.chances.push(Chance::Trim(number));
        }
        progress.taken += 1;
    }

    /// Requests as many slices of a stored or given value as its ring has space for, if these are a
    /// batch or the last.
    fn request(&mut self, number: usize, commands: &mut Vec<Command>) {
        let value = &self.graph.values[number];
        let ring = &mut self.rings[number];
        let source = match value.producer {
            Producer::Chunk(chunk) => Source::Chunk(chunk),
            Producer::Input(chunk) => Source::Input(chunk),
            Producer::Log(log, chunk) => Source::Log(log, chunk),
            Producer::Incoming(_) | Producer::Group(_) => return,
        };
        let room = ring.base() + RING_SLICES - ring.end();
        let missing = value.slices.count - ring.end();
        if room < missing.min(BATCH_SLICES) {
            return;
        }
        for slice in ring.end()..ring.end() + room.min(missing) {
            commands.push(Command::Fetch {
                step: value.id,
                slice,
                source,
                range: value.slices.slice(slice),
            });
            ring.push(None);
        }
    }

    /// Computes a group's next sums while their terms are present and they have space.
    fn compute(&mut self, number: usize) {
        loop {
            let group = &self.graph.groups[number];
            let slice = self.rings[group.outputs[0]].end();
            // An input keeps the slice until the group takes it, so none is checked twice.
            let is_there = |&&input: &&usize| self.rings[input].get(slice).is_some();
            let waiting = &group.inputs[self.ready[number]..];
            self.ready[number] += waiting.iter().take_while(is_there).count();
            let has_room = group.outputs.iter().all(|&o| self.rings[o].has_room());
            if self.ready[number] < group.inputs.len() || !has_room {
                return;
            }
            self.ready[number] = 0;
            self.sum(number, slice);
        }
    }

    /// Computes one slice of all of a group's sums.
    fn sum(&mut self, number: usize, slice: u64) {
        let group = &self.graph.groups[number];
        let first = group.outputs[0];
        let length = self.graph.values[first].slices.slice(slice).length as usize;
        let blanks = group.outputs.iter().map(|&o| self.rings[o].blank(length));
        let mut sums: Vec<BytesMut> = blanks.collect();
        let here = |&input: &usize| self.rings[input].get(slice).expect("all terms are there");
        let sources: Vec<&[u8]> = group.inputs.iter().map(|i| here(i).as_ref()).collect();
        let mut outputs: Vec<&mut [u8]> = sums.iter_mut().map(AsMut::as_mut).collect();
        group.coefficients.combine(&sources, &mut outputs);
        let (inputs, first_consumer) = (group.inputs.len(), group.first_consumer);
        for (at, sum) in sums.into_iter().enumerate() {
            let output = self.graph.groups[number].outputs[at];
            self.rings[output].push(Some(sum.freeze()));
            self.offer(output);
        }
        for consumer in first_consumer..first_consumer + inputs {
            self.take(consumer);
        }
    }

    /// Sends or stores every slice of a value that is present and allowed.
    fn drain(&mut self, number: usize, commands: &mut Vec<Command>) {
        let consumer = &self.graph.consumers[number];
        let (step, slices, outlet) = (consumer.id, consumer.slices, consumer.outlet);
        let value = consumer.value;
        while self.progress[number].taken < self.progress[number].allowed {
            let slice = self.progress[number].taken;
            let Some(bytes) = self.rings[value].get(slice).cloned() else {
                return;
            };
            self.take(number);
            let range = slices.slice(slice);
            let sink = match outlet {
                Outlet::Send(to) => {
                    commands.push(Command::Send {
                        to,
                        value: step,
                        slice,
                        bytes,
                    });
                    if slice + 1 == slices.count {
                        self.unfinished_count -= 1;
                    }
                    continue;
                }
                Outlet::Write(chunk) => Sink::Write(chunk),
                Outlet::Append(log, chunk) => Sink::Append(log, chunk),
                Outlet::Deliver(chunk) => Sink::Deliver(chunk),
                Outlet::Group(_) => unreachable!("groups are computed, not drained"),
            };
            commands.push(Command::Store {
                step,
                sink,
                range,
                bytes,
            });
        }
    }

    /// Drops slices that all consumers have taken, and lets the producer fill the space.
    fn trim(&mut self, number: usize, commands: &mut Vec<Command>) {
        let value = &self.graph.values[number];
        let ring = &mut self.rings[number];
        let is_sum = matches!(value.producer, Producer::Group(_));
        ring.trim(is_sum);
        match value.producer {
            Producer::Chunk(_) | Producer::Input(_) | Producer::Log(..) => {
                self.request(number, commands);
            }
            Producer::Group(group) => self.chances.push(Chance::Compute(group)),
            Producer::Incoming(from) => {
                // A sender needs no credit beyond the end.
                let sendable = value.slices.count.min(ring.base() + RING_SLICES);
                let due = sendable.saturating_sub(self.granted[number]);
                if due >= BATCH_SLICES || (due > 0 && sendable == value.slices.count) {
                    self.granted[number] = sendable;
                    commands.push(Command::Grant {
                        from,
                        value: value.id,
                        slices: due,
                    });
                }
            }
        }
    }
}
