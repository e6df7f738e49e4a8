//! Runs one part of a plan: drives an [`Executor`] with local bytes and peers' flow frames until
//! everything is sent and stored, a peer gives up, or the deadline passes.

use crate::message::{Flow, Purpose, Refusal, RunId};
use crate::ports::{Address, CallError, Ports};
use bytes::Bytes;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, select_biased};
use gabion_exec::{Command, Event, Executor, Sink, Source};
use gabion_layout::{ByteRange, NodeId};
use gabion_plan::Part;

/// Where a part's own bytes come from and go to.
pub trait LocalIo: Send + Sync {
    /// Gets exactly the bytes asked for.
    fn fetch(&self, source: Source, range: ByteRange)
    -> BoxFuture<'static, Result<Bytes, Refusal>>;

    /// Puts bytes away; they need not be durable before the whole part is.
    fn store(
        &self,
        sink: Sink,
        range: ByteRange,
        bytes: Bytes,
    ) -> BoxFuture<'static, Result<(), Refusal>>;
}

/// What a part's run needs to know beside the part.
#[derive(Clone, Copy, Debug)]
pub struct RunContext {
    /// The run.
    pub run: RunId,
    /// Who gets what is sent to [`NodeId::CLIENT`].
    pub origin: Address,
    /// Why bytes move.
    pub purpose: Purpose,
    /// Give up after so long.
    pub deadline_ms: u64,
}

type Work = BoxFuture<'static, Result<Option<Event>, Refusal>>;

/// Runs a part to its end. `flows` has this run's frames from peers.
///
/// # Errors
/// Why the part could not be done; what it stored so far must be thrown away.
pub async fn run_part(
    ports: &dyn Ports,
    io: &dyn LocalIo,
    part: &Part,
    context: RunContext,
    flows: &mut UnboundedReceiver<Flow>,
) -> Result<(), Refusal> {
    let invalid = |error: gabion_exec::ExecError| Refusal::Invalid(error.to_string());
    let (mut executor, commands) = Executor::new(part).map_err(invalid)?;
    let mut work: FuturesUnordered<Work> = FuturesUnordered::new();
    let driver = Driver { ports, io, context };
    work.extend(commands.into_iter().map(|command| driver.perform(command)));
    let mut deadline = ports.sleep_ms(context.deadline_ms).fuse();
    while !(executor.is_finished() && work.is_empty()) {
        let event = select_biased! {
            done = work.select_next_some() => done?,
            flow = flows.select_next_some() => Some(event_of(flow)?),
            () = deadline => return Err(Refusal::Unavailable(
                format!("a peer of run {}", context.run.0)
            )),
        };
        if let Some(event) = event {
            let commands = executor.handle(event).map_err(invalid)?;
            work.extend(commands.into_iter().map(|command| driver.perform(command)));
        }
    }
    Ok(())
}

fn event_of(flow: Flow) -> Result<Event, Refusal> {
    match flow {
        Flow::Slice {
            value,
            slice,
            bytes,
            ..
        } => Ok(Event::Received {
            value,
            slice,
            bytes,
        }),
        Flow::Credit { value, slices, .. } => Ok(Event::Credited { value, slices }),
        Flow::Abort { .. } => Err(Refusal::Unavailable("a peer that gave up".to_owned())),
    }
}

struct Driver<'a> {
    ports: &'a dyn Ports,
    io: &'a dyn LocalIo,
    context: RunContext,
}

impl Driver<'_> {
    fn perform(&self, command: Command) -> Work {
        let RunContext { run, purpose, .. } = self.context;
        match command {
            Command::Fetch {
                step,
                slice,
                source,
                range,
            } => self
                .io
                .fetch(source, range)
                .map(move |bytes| bytes.map(|bytes| Some(Event::Fetched { step, slice, bytes })))
                .boxed(),
            Command::Store {
                step,
                sink,
                range,
                bytes,
            } => self
                .io
                .store(sink, range, bytes)
                .map(move |stored| stored.map(|()| Some(Event::Stored { step })))
                .boxed(),
            Command::Send {
                to,
                value,
                slice,
                bytes,
            } => self.send(
                to,
                Flow::Slice {
                    run,
                    value,
                    slice,
                    purpose,
                    bytes,
                },
            ),
            Command::Grant {
                from,
                value,
                slices,
            } => self.send(from, Flow::Credit { run, value, slices }),
        }
    }

    fn send(&self, to: NodeId, flow: Flow) -> Work {
        let to = if to == NodeId::CLIENT {
            self.context.origin
        } else {
            Address::Node(to)
        };
        let gone = |error: CallError| Refusal::Unavailable(error.peer);
        self.ports
            .send_flow(to, flow)
            .map(move |sent| sent.map(|()| None).map_err(gone))
            .boxed()
    }
}
