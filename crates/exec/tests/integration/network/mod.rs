//! Nodes, disks and links in memory: runs all parts of a plan, each on an executor of its own, with
//! events in an order drawn from a seed. Links keep their order, as connections do; disks answer in
//! any order. It asserts throughout that no value has more slices in flight than a ring, and that a
//! node that runs in turn does one thing at a time.

use crate::setting::bytes::Chunks;
use bytes::Bytes;
use gabion_exec::{Command, Event, Executor, RING_SLICES, Sink, Source};
use gabion_layout::{ByteRange, ChunkIndex, NodeId};
use gabion_plan::{LinkBytes, Log, Plan, StepOrder, ValueId};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, VecDeque};

/// Bytes by position, so that a byte stored twice or not at all is noticed.
pub(crate) type Image = BTreeMap<u64, u8>;

/// The result of a run.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) written: BTreeMap<(NodeId, ChunkIndex), Image>,
    pub(crate) delivered: BTreeMap<ChunkIndex, Image>,
    /// Stored chunks with journals applied and logged deltas added.
    pub(crate) merged: Chunks,
    /// Payload bytes by sender and receiver.
    pub(crate) sent: BTreeMap<(NodeId, NodeId), u64>,
    /// Slices that each step asked for.
    pub(crate) fetched: BTreeMap<ValueId, u64>,
    /// Nodes whose part did not finish.
    pub(crate) unfinished: Vec<NodeId>,
}

impl Outcome {
    /// Bytes by link, in the form of a plan's cost.
    pub(crate) fn links(&self) -> Vec<LinkBytes> {
        let link = |(&(from, to), &bytes): (&(NodeId, NodeId), &u64)| LinkBytes { from, to, bytes };
        self.sent.iter().map(link).collect()
    }

    /// The bytes written to a chunk at a node, if it was the whole chunk.
    pub(crate) fn whole(&self, node: NodeId, chunk: ChunkIndex) -> Option<Vec<u8>> {
        let image = self.written.get(&(node, chunk))?;
        let is_whole = image
            .keys()
            .copied()
            .eq(0..self.merged[chunk.at()].len() as u64);
        is_whole.then(|| image.values().copied().collect())
    }
}

/// A slow disk or connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slow {
    /// All have the same speed.
    NoNode,
    /// This node gets its events last.
    Node(NodeId),
    /// This node's stores are never confirmed.
    Stuck(NodeId),
}

/// Counters of one value or outlet, which give the number of buffered slices.
#[derive(Default)]
struct Tally {
    begun: u64,
    ended: u64,
}

impl Tally {
    fn begin(&mut self) {
        self.begun += 1;
        assert!(
            self.begun - self.ended <= RING_SLICES,
            "more than a ring under way"
        );
    }

    fn end(&mut self, count: u64) {
        self.ended += count;
        assert!(self.ended <= self.begun, "what ends has begun");
    }
}

/// See the top of the file.
pub(crate) struct Network<'a> {
    stored: &'a Chunks,
    new: &'a Chunks,
    rng: ChaCha8Rng,
    slow: Slow,
    order: StepOrder,
    executors: BTreeMap<NodeId, Executor>,
    /// Events on their way from node to node.
    links: BTreeMap<(NodeId, NodeId), VecDeque<Event>>,
    /// Pending answers of disks.
    disks: BTreeMap<NodeId, Vec<Event>>,
    /// Slices sent and credited.
    flows: BTreeMap<ValueId, Tally>,
    /// Slices given to sinks and stored.
    stores: BTreeMap<ValueId, Tally>,
    outcome: Outcome,
}

impl<'a> Network<'a> {
    /// Runs `plan` on a stripe's `stored` chunks and the initiator's `new` ones until no event
    /// remains.
    pub(crate) fn run(
        plan: &Plan,
        stored: &'a Chunks,
        new: &'a Chunks,
        slow: Slow,
        seed: u64,
    ) -> Outcome {
        let mut network = Self {
            stored,
            new,
            rng: ChaCha8Rng::seed_from_u64(seed),
            slow,
            order: plan.order,
            executors: BTreeMap::new(),
            links: BTreeMap::new(),
            disks: BTreeMap::new(),
            flows: BTreeMap::new(),
            stores: BTreeMap::new(),
            outcome: Outcome {
                merged: stored.clone(),
                ..Outcome::default()
            },
        };
        // In reality slices may arrive before a part does, and the driver buffers them; here all
        // parts come first.
        let mut first = Vec::new();
        for node in plan.participants() {
            let (executor, commands) = Executor::new(&plan.part(node)).expect("planners' parts");
            network.executors.insert(node, executor);
            first.push((node, commands));
        }
        for (node, commands) in first {
            network.perform(node, commands);
        }
        while let Some((node, event)) = network.next() {
            let executor = network.executors.get_mut(&node).expect("a participant");
            let commands = executor.handle(event).expect("honest peers");
            network.perform(node, commands);
        }
        let unfinished = network.executors.iter().filter(|(_, e)| !e.is_finished());
        network.outcome.unfinished = unfinished.map(|(&node, _)| node).collect();
        network.outcome
    }

    /// Draws the next event. None if there is none.
    fn next(&mut self) -> Option<(NodeId, Event)> {
        let slow = self.slow;
        let is_late = |node| slow == Slow::Node(node);
        let links = self.links.iter().filter(|(_, queue)| !queue.is_empty());
        let arrivals = links.map(|(&(from, to), _)| (Some(from), to));
        let disks = self.disks.iter().filter(|(_, owed)| !owed.is_empty());
        let answers = disks.map(|(&node, _)| (None, node));
        let mut choices: Vec<(Option<NodeId>, NodeId)> = arrivals.chain(answers).collect();
        if choices.iter().any(|&(_, node)| !is_late(node)) {
            choices.retain(|&(_, node)| !is_late(node));
        }
        if choices.is_empty() {
            return None;
        }
        let (from, node) = choices[self.rng.random_range(0..choices.len())];
        let event = if let Some(from) = from {
            let queue = self.links.get_mut(&(from, node)).expect("a choice");
            queue.pop_front().expect("no empty queue is a choice")
        } else {
            let owed = self.disks.get_mut(&node).expect("a choice");
            owed.swap_remove(self.rng.random_range(0..owed.len()))
        };
        if let Event::Stored { step } = event {
            self.stores.entry(step).or_default().end(1);
        }
        Some((node, event))
    }

    /// Whether a slice is on its way to this node, or its disk has a pending answer.
    fn is_busy(&self, node: NodeId) -> bool {
        let into = self.links.iter().filter(|((_, to), _)| *to == node);
        let is_slice = |event: &Event| matches!(event, Event::Received { .. });
        let mut queues = into.map(|(_, queue)| queue);
        let has_answer = self.disks.get(&node).is_some_and(|owed| !owed.is_empty());
        has_answer || queues.any(|queue| queue.iter().any(is_slice))
    }

    fn perform(&mut self, node: NodeId, commands: Vec<Command>) {
        for command in commands {
            if self.order == StepOrder::InTurn && !matches!(command, Command::Grant { .. }) {
                assert!(!self.is_busy(node), "one thing at a time");
            }
            match command {
                Command::Fetch {
                    step,
                    slice,
                    source,
                    range,
                } => {
                    let chunk = match source {
                        Source::Chunk(chunk) | Source::Log(Log::Original, chunk) => {
                            &self.stored[chunk.at()]
                        }
                        Source::Input(chunk) | Source::Log(_, chunk) => &self.new[chunk.at()],
                    };
                    let bytes = Bytes::copy_from_slice(part_of(chunk, range));
                    *self.outcome.fetched.entry(step).or_default() += 1;
                    let owed = self.disks.entry(node).or_default();
                    owed.push(Event::Fetched { step, slice, bytes });
                }
                Command::Send {
                    to,
                    value,
                    slice,
                    bytes,
                } => {
                    if self.order == StepOrder::Streamed {
                        self.flows.entry(value).or_default().begin();
                    } else {
                        assert!(!self.is_busy(to), "a receiver does nothing else");
                    }
                    *self.outcome.sent.entry((node, to)).or_default() += bytes.len() as u64;
                    let event = Event::Received {
                        value,
                        slice,
                        bytes,
                    };
                    self.links.entry((node, to)).or_default().push_back(event);
                }
                Command::Grant {
                    from,
                    value,
                    slices,
                } => {
                    if self.order == StepOrder::Streamed {
                        self.flows.entry(value).or_default().end(slices);
                    }
                    let event = Event::Credited { value, slices };
                    self.links.entry((node, from)).or_default().push_back(event);
                }
                Command::Store {
                    step,
                    sink,
                    range,
                    bytes,
                } => {
                    self.stores.entry(step).or_default().begin();
                    self.store(node, sink, range, &bytes);
                    if self.slow != Slow::Stuck(node) {
                        let owed = self.disks.entry(node).or_default();
                        owed.push(Event::Stored { step });
                    }
                }
            }
        }
    }

    fn store(&mut self, node: NodeId, sink: Sink, range: ByteRange, bytes: &Bytes) {
        assert_eq!(
            range.length,
            bytes.len() as u64,
            "a store has all its bytes"
        );
        let image = match sink {
            Sink::Write(chunk) => self.outcome.written.entry((node, chunk)).or_default(),
            Sink::Deliver(chunk) => self.outcome.delivered.entry(chunk).or_default(),
            Sink::Append(log, chunk) => {
                let merged = &mut self.outcome.merged[chunk.at()][span(range)];
                for (merged, byte) in merged.iter_mut().zip(bytes) {
                    *merged = match log {
                        Log::Journal => *byte,
                        Log::Parity { .. } | Log::ParitySum => *merged ^ byte,
                        Log::Replica | Log::Original => *merged,
                    };
                }
                return;
            }
        };
        for (at, &byte) in (range.offset..).zip(bytes) {
            assert_eq!(image.insert(at, byte), None, "no byte is stored twice");
        }
    }
}

fn span(range: ByteRange) -> std::ops::Range<usize> {
    range.offset as usize..range.end() as usize
}

fn part_of(chunk: &[u8], range: ByteRange) -> &[u8] {
    &chunk[span(range)]
}
