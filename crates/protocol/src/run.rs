//! Runs one part of a plan: drives an [`Executor`] with local bytes and peers' flow frames until all bytes
//! are sent and stored, a peer aborts, or the deadline passes.

use crate::message::{Flow, Purpose, Refusal, RunId};
use crate::ports::{Address, Ports, until_hung};
use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::future::{BoxFuture, Fuse, FusedFuture as _};
use futures::stream::{FusedStream, FuturesUnordered, StreamExt};
use futures::{FutureExt, select_biased};
use gabion_exec::{Command, Event, ExecError, Executor, Sink, Source};
use gabion_layout::{ByteRange, NodeId};
use gabion_plan::{Part, ValueId};
use std::collections::BTreeMap;

/// Time without progress after which a part probes the peers that it waits for, where it has no stall timeout.
const QUIET_MS: u64 = 200;

/// The source and destination of a part's own bytes.
pub trait LocalIo: Send + Sync {
    /// Gets exactly the bytes asked for.
    fn fetch(&self, source: Source, range: ByteRange)
    -> BoxFuture<'static, Result<Bytes, Refusal>>;

    /// Writes bytes; they need not be durable before the whole part is.
    fn store(
        &self,
        sink: Sink,
        range: ByteRange,
        bytes: Bytes,
    ) -> BoxFuture<'static, Result<(), Refusal>>;
}

/// The context of a part's run.
#[derive(Clone, Copy, Debug)]
pub struct RunContext {
    /// The run.
    pub run: RunId,
    /// The receiver of frames to [`NodeId::CLIENT`].
    pub origin: Address,
    /// The purpose of the transfer.
    pub purpose: Purpose,
    /// Spread the part's reads evenly over this time. A node's reads limit its sends, and through credits
    /// and slices that wait for each other the sends of all others.
    pub spread_ms: u64,
    /// Time limit of the run.
    pub deadline_ms: u64,
    /// Abort when no progress is made for this time, and name the nodes that the part waits for.
    pub stall_ms: Option<u64>,
}

/// The most bytes that are read at once where slices that follow each other are asked for together.
const READ_BYTES_MAX: u64 = 256 << 10;

type Work = BoxFuture<'static, Result<Done, Refusal>>;

/// Local work that is done.
enum Done {
    Read(Reads, Bytes),
    Stored(ValueId),
}

/// Consecutive slices of a stored value that are also adjacent in the chunk: one read gets them.
#[derive(Clone, Copy)]
struct Reads {
    step: ValueId,
    source: Source,
    first_slice: u64,
    /// Bytes of all but the last, which may have fewer.
    slice_bytes: u64,
    range: ByteRange,
}

impl Reads {
    /// Takes one more slice if it is the next and there is room.
    fn extend(&mut self, step: ValueId, source: Source, slice: u64, range: ByteRange) -> bool {
        let count = self.range.length.div_ceil(self.slice_bytes);
        let follows = (self.step, self.source, self.first_slice + count) == (step, source, slice)
            && self.range.end() == range.offset
            && self.range.length == count * self.slice_bytes;
        let fits =
            range.length <= self.slice_bytes && self.range.length + range.length <= READ_BYTES_MAX;
        if follows && fits && matches!(source, Source::Chunk(_)) {
            self.range.length += range.length;
            return true;
        }
        false
    }

    /// The bytes as the executor's event; the executor checks their number.
    fn events(self, mut bytes: Bytes) -> impl Iterator<Item = Event> {
        let count = self.range.length.div_ceil(self.slice_bytes);
        (0..count).map(move |at| Event::Fetched {
            step: self.step,
            slice: self.first_slice + at,
            bytes: if at + 1 == count {
                std::mem::take(&mut bytes)
            } else {
                bytes.split_to(bytes.len().min(self.slice_bytes as usize))
            },
        })
    }
}

/// Runs a part to its end. `flows` has this run's frames from peers.
///
/// # Errors
/// The reason why the part failed. Only a repair may resume from the stored bytes.
pub async fn run_part(
    ports: &dyn Ports,
    io: &dyn LocalIo,
    part: &Part,
    context: RunContext,
    flows: &mut (impl FusedStream<Item = Flow> + Unpin),
) -> Result<(), Refusal> {
    let (mut executor, commands) = Executor::new(part).map_err(|error| refusal(&error))?;
    let mut driver = Driver {
        ports,
        io,
        context,
        pacer: Pacer::new(part, context.spread_ms, ports.now_ms()),
        outgoing: BTreeMap::new(),
        sending: FuturesUnordered::new(),
        work: FuturesUnordered::new(),
    };
    driver.perform(commands);
    let mut deadline = ports.sleep_ms(context.deadline_ms).fuse();
    let mut watch = Watch::new(ports, context.stall_ms);
    let mut hung = Fuse::terminated();
    let late = || Refusal::Unavailable(format!("a peer of run {}", context.run.0));
    while !(executor.is_finished() && driver.work.is_empty()) {
        let event = select_biased! {
            done = driver.work.select_next_some() => match done? {
                Done::Stored(step) => Event::Stored { step },
                Done::Read(reads, bytes) => {
                    watch.event_count += 1;
                    for event in reads.events(bytes) {
                        driver.perform(executor.handle(event).map_err(|error| refusal(&error))?);
                    }
                    continue;
                }
            },
            flow = flows.select_next_some() => match event_of(flow) {
                Some(event) => event,
                None => return Err(aborted(&executor, context)),
            },
            sent = driver.sending.select_next_some() => {
                sent?;
                continue;
            }
            () = deadline => return Err(late()),
            () = &mut watch.ring => {
                match (watch.is_stalled(ports), context.stall_ms) {
                    (false, _) => hung = Fuse::terminated(),
                    (true, Some(_)) => return Err(Refusal::Stalled(executor.awaited_peers())),
                    (true, None) if hung.is_terminated() => {
                        hung = peer_hung(ports, executor.awaited_peers()).fuse();
                    }
                    (true, None) => {}
                }
                continue;
            }
            node = hung => return Err(Refusal::Unavailable(node.to_string())),
        };
        watch.event_count += 1;
        driver.perform(executor.handle(event).map_err(|error| refusal(&error))?);
    }
    // The last frames are still on their way into their connections.
    driver.outgoing.clear();
    while !driver.sending.is_empty() {
        select_biased! {
            sent = driver.sending.select_next_some() => sent?,
            () = deadline => return Err(late()),
        }
    }
    Ok(())
}

/// Detects a stall: it checks periodically whether there was progress.
struct Watch {
    every_ms: u64,
    /// The next check.
    ring: Fuse<BoxFuture<'static, ()>>,
    event_count: u64,
    seen_count: u64,
}

impl Watch {
    /// Checks with the period of a stall timeout, if there is one.
    fn new(ports: &dyn Ports, stall_ms: Option<u64>) -> Self {
        let every_ms = stall_ms.unwrap_or(QUIET_MS);
        Self {
            every_ms,
            ring: ports.sleep_ms(every_ms).fuse(),
            event_count: 1,
            seen_count: 0,
        }
    }

    /// Whether there was no progress since the last check. Schedules the next one.
    fn is_stalled(&mut self, ports: &dyn Ports) -> bool {
        self.ring = ports.sleep_ms(self.every_ms).fuse();
        std::mem::replace(&mut self.seen_count, self.event_count) == self.event_count
    }
}

/// Waits until one of these peers is found silent. The process that began the run may reach all of them, and cannot
/// know that one of them does not reach another.
fn peer_hung(ports: &dyn Ports, mut peers: Vec<NodeId>) -> BoxFuture<'_, NodeId> {
    peers.retain(|&peer| peer != NodeId::CLIENT);
    let hung = async move { until_hung(ports, &peers).await.0 };
    hung.boxed()
}

fn refusal(error: &ExecError) -> Refusal {
    match error {
        ExecError::OutOfOrder { .. } => Refusal::Interrupted(error.to_string()),
        ExecError::Malformed(_) | ExecError::Unexpected { .. } => {
            Refusal::Invalid(error.to_string())
        }
    }
}

/// The executor's event for a frame; none for a peer's abort.
fn event_of(flow: Flow) -> Option<Event> {
    match flow {
        Flow::Slice {
            value,
            slice,
            bytes,
            ..
        } => Some(Event::Received {
            value,
            slice,
            bytes,
        }),
        Flow::Credit { value, slices, .. } => Some(Event::Credited { value, slices }),
        Flow::Abort { .. } => None,
    }
}

/// The refusal when the run was aborted elsewhere: with a stall timeout, it names the nodes that this part
/// has waited for.
fn aborted(executor: &Executor, context: RunContext) -> Refusal {
    if context.stall_ms.is_some() {
        Refusal::Stalled(executor.awaited_peers())
    } else {
        Refusal::Unavailable("a peer that aborted the run".to_owned())
    }
}

/// Executes an executor's commands.
struct Driver<'a> {
    ports: &'a dyn Ports,
    io: &'a dyn LocalIo,
    context: RunContext,
    pacer: Pacer,
    /// One queue a receiver, so that frames leave in the order of their commands.
    outgoing: BTreeMap<NodeId, UnboundedSender<Flow>>,
    /// One future a queue; it ends when the queue is closed and empty, or the receiver is gone.
    sending: FuturesUnordered<BoxFuture<'static, Result<(), Refusal>>>,
    work: FuturesUnordered<Work>,
}

impl Driver<'_> {
    fn perform(&mut self, commands: Vec<Command>) {
        let RunContext { run, purpose, .. } = self.context;
        let mut reads: Option<Reads> = None;
        for command in commands {
            match command {
                Command::Fetch {
                    step,
                    slice,
                    source,
                    range,
                } => {
                    let is_more = |reads: &mut Reads| reads.extend(step, source, slice, range);
                    if !reads.as_mut().is_some_and(is_more) {
                        let begun = reads.replace(Reads {
                            step,
                            source,
                            first_slice: slice,
                            slice_bytes: range.length,
                            range,
                        });
                        self.read(begun);
                    }
                }
                Command::Store {
                    step,
                    sink,
                    range,
                    bytes,
                } => {
                    let stored = self.io.store(sink, range, bytes);
                    let done = move |()| Done::Stored(step);
                    self.work
                        .push(stored.map(move |stored| stored.map(done)).boxed());
                }
                Command::Send {
                    to,
                    value,
                    slice,
                    bytes,
                } => {
                    self.send(
                        to,
                        Flow::Slice {
                            run,
                            value,
                            slice,
                            purpose,
                            bytes,
                        },
                    );
                }
                Command::Grant {
                    from,
                    value,
                    slices,
                } => {
                    self.send(from, Flow::Credit { run, value, slices });
                }
            }
        }
        self.read(reads);
    }

    fn read(&mut self, reads: Option<Reads>) {
        let Some(reads) = reads else {
            return;
        };
        let fetched = self.io.fetch(reads.source, reads.range);
        let wait_ms = self.pacer.wait_ms(reads.range.length, self.ports.now_ms());
        let fetched = match wait_ms {
            0 => fetched,
            wait_ms => self.ports.sleep_ms(wait_ms).then(|()| fetched).boxed(),
        };
        let done = move |bytes| Done::Read(reads, bytes);
        self.work
            .push(fetched.map(move |bytes| bytes.map(done)).boxed());
    }

    fn send(&mut self, to: NodeId, flow: Flow) {
        let queue = self.outgoing.entry(to).or_insert_with(|| {
            let (sender, receiver) = unbounded();
            let address = if to == NodeId::CLIENT {
                self.context.origin
            } else {
                Address::Node(to)
            };
            self.sending.push(self.ports.send_flows(address, receiver));
            sender
        });
        // When the receiver is gone, its sending future reports it.
        let _ = queue.unbounded_send(flow);
    }
}

/// The schedule of a part's reads that are spread over some time.
#[derive(Clone, Copy, Debug)]
struct Pacer {
    began_ms: u64,
    spread_ms: u64,
    /// Bytes of all reads.
    total_bytes: u64,
    /// Bytes of the reads so far.
    asked_bytes: u64,
}

impl Pacer {
    fn new(part: &Part, spread_ms: u64, began_ms: u64) -> Self {
        let read_bytes = |step: &gabion_plan::PartStep| match &step.step {
            gabion_plan::Step::Read { slices, .. } => slices.bytes(),
            _ => 0,
        };
        Self {
            began_ms,
            spread_ms,
            total_bytes: part.steps.iter().map(read_bytes).sum(),
            asked_bytes: 0,
        }
    }

    /// The wait before the next read.
    fn wait_ms(&mut self, bytes: u64, now_ms: u64) -> u64 {
        if self.spread_ms == 0 || self.total_bytes == 0 {
            return 0;
        }
        let share = u128::from(self.spread_ms) * u128::from(self.asked_bytes);
        let due_ms = u64::try_from(share / u128::from(self.total_bytes)).unwrap_or(u64::MAX);
        self.asked_bytes = self.asked_bytes.saturating_add(bytes).min(self.total_bytes);
        self.began_ms.saturating_add(due_ms).saturating_sub(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_spread_evenly_and_late_ones_are_not_held_up() {
        let mut pacer = Pacer {
            began_ms: 1_000,
            spread_ms: 400,
            total_bytes: 100,
            asked_bytes: 0,
        };
        assert_eq!(pacer.wait_ms(25, 1_000), 0);
        assert_eq!(pacer.wait_ms(50, 1_000), 100);
        assert_eq!(pacer.wait_ms(25, 1_250), 50);
        assert_eq!(pacer.wait_ms(25, 2_000), 0, "it is late");
        pacer.spread_ms = 0;
        assert_eq!(pacer.wait_ms(1, 0), 0);
    }

    #[test]
    fn slices_that_follow_each_other_are_one_read() {
        let source = Source::Chunk(gabion_layout::ChunkIndex(0));
        let (step, other) = (ValueId(1), ValueId(2));
        let range = ByteRange::new;
        let mut reads = Reads {
            step,
            source,
            first_slice: 3,
            slice_bytes: 4,
            range: range(12, 4),
        };
        assert!(!reads.extend(other, source, 4, range(16, 4)));
        assert!(!reads.extend(step, source, 5, range(16, 4)), "not the next");
        assert!(
            !reads.extend(step, source, 4, range(20, 4)),
            "apart in the chunk"
        );
        assert!(reads.extend(step, source, 4, range(16, 4)));
        assert!(reads.extend(step, source, 5, range(20, 2)), "the last");
        assert!(
            !reads.extend(step, source, 6, range(22, 4)),
            "nothing follows it"
        );
        let given = |bytes: &'static [u8]| {
            let slice = |event| match event {
                Event::Fetched { slice, bytes, .. } => (slice, bytes.len()),
                other => panic!("{other:?} is no answer to a read"),
            };
            let events = reads.events(Bytes::from_static(bytes));
            events.map(slice).collect::<Vec<_>>()
        };
        assert_eq!(given(b"aaaabbbbcc"), [(3, 4), (4, 4), (5, 2)]);
        // The executor refuses a slice that is too long or too short.
        assert_eq!(given(b"aaaabbbbccc"), [(3, 4), (4, 4), (5, 3)]);
        assert_eq!(given(b"aaaabb"), [(3, 4), (4, 2), (5, 0)]);
    }
}
