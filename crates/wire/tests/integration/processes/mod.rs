//! Processes for tests: they answer some requests, keep others, and note what happens to them.

#![allow(clippy::unwrap_used)] // Clippy sees that this is a test in `#[test]` functions only.

use gabion_layout::{NodeId, RackId, Sequence, StripeId};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Flow, Liveness, NodeReply, NodeRequest, NodeStatus, ask,
};
use gabion_wire::frame::HEADER_BYTES;
use gabion_wire::{
    Connection, Endpoint, Frame, Handler, Hello, Options, Responder, TrafficMeter, Versions,
    WireError,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::Instant;

/// Longest wait for what should happen at once. It ends a test that hangs, and is no measure: a loaded machine may take
/// many times what an idle one does.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A deadline that no correct test reaches, in milliseconds.
pub(crate) const FAR_MS: u64 = 4 * PATIENCE.as_secs() * 1_000;

/// The same from now on.
pub(crate) fn far() -> Instant {
    Instant::now() + Duration::from_millis(FAR_MS)
}

/// The usual options, but with patience in handshakes.
pub(crate) fn patient() -> Options {
    Options {
        connect_timeout: PATIENCE / 2,
        ..Options::default()
    }
}

/// A deadline for what never happens.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_millis(100)
}

/// Returns the result of a future that completes well before [`far`].
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, future).await;
    result.expect("what should happen at once does not happen")
}

/// A request that a [`Process`] answers at once with [`answer`].
pub(crate) fn ask(number: u64) -> NodeRequest {
    NodeRequest::Attest(ask::Attest {
        stripe: StripeId(number),
    })
}

/// The answer to [`ask`].
pub(crate) fn answer(number: u64) -> NodeReply {
    NodeReply::Updated {
        sequence: Sequence(number),
    }
}

/// A request that a [`Process`] keeps until [`Process::answer_the_unanswered`].
pub(crate) fn keep() -> NodeRequest {
    NodeRequest::Meter
}

/// The notes of a process.
struct Notes {
    flows: UnboundedSender<Flow>,
    accepted: UnboundedSender<Arc<Connection>>,
    closed: UnboundedSender<String>,
    not_accepted: UnboundedSender<String>,
    unanswered: watch::Sender<Vec<Responder<NodeRequest>>>,
    last_stage: Mutex<Option<NodeRequest>>,
}

impl Handler for Notes {
    fn node_request(
        &self,
        _: &Arc<Connection>,
        request: NodeRequest,
        responder: Responder<NodeRequest>,
    ) {
        match request {
            NodeRequest::Attest(ask::Attest { stripe }) => responder.reply(&answer(stripe.0)),
            NodeRequest::Stage { .. } => {
                *self.last_stage.lock().unwrap() = Some(request);
                responder.reply(&NodeReply::Done);
            }
            NodeRequest::Meter => self.unanswered.send_modify(|kept| kept.push(responder)),
            _ => drop(responder),
        }
    }

    fn coordinator_request(
        &self,
        connection: &Arc<Connection>,
        _: CoordinatorRequest,
        responder: Responder<CoordinatorRequest>,
    ) {
        self.accepted.send(Arc::clone(connection)).unwrap();
        responder.reply(&CoordinatorReply::Nodes(vec![NodeStatus {
            node: NodeId(9),
            rack: RackId(2),
            address: "somewhere:1".to_owned(),
            liveness: Liveness::Suspect,
            departure: gabion_meta::Departure::None,
        }]));
    }

    fn flow(&self, _: &Arc<Connection>, flow: Flow) {
        let _ = self.flows.send(flow);
    }

    fn closed(&self, _: &Arc<Connection>, reason: &WireError) {
        let _ = self.closed.send(reason.to_string());
    }

    fn not_accepted(&self, _: SocketAddr, reason: &WireError) {
        let _ = self.not_accepted.send(reason.to_string());
    }
}

type Inbox<T> = tokio::sync::Mutex<UnboundedReceiver<T>>;

/// A process of a test. Its tasks end with the test's run-time.
pub(crate) struct Process {
    pub(crate) endpoint: Arc<Endpoint>,
    notes: Arc<Notes>,
    address: Option<SocketAddr>,
    flows: Inbox<Flow>,
    accepted: Inbox<Arc<Connection>>,
    closed: Inbox<String>,
    not_accepted: Inbox<String>,
}

impl Process {
    pub(crate) fn new(hello: Hello) -> Self {
        Self::with(hello, patient())
    }

    pub(crate) fn with(hello: Hello, options: Options) -> Self {
        let (flows, flows_in) = unbounded_channel();
        let (accepted, accepted_in) = unbounded_channel();
        let (closed, closed_in) = unbounded_channel();
        let (not_accepted, not_accepted_in) = unbounded_channel();
        let notes = Arc::new(Notes {
            flows,
            accepted,
            closed,
            not_accepted,
            unanswered: watch::Sender::new(Vec::new()),
            last_stage: Mutex::new(None),
        });
        let handler: Arc<dyn Handler> = notes.clone();
        let meter = Arc::<TrafficMeter>::default();
        Self {
            endpoint: Endpoint::new(hello, handler, options, meter),
            notes,
            address: None,
            flows: flows_in.into(),
            accepted: accepted_in.into(),
            closed: closed_in.into(),
            not_accepted: not_accepted_in.into(),
        }
    }

    pub(crate) async fn listen(hello: Hello) -> Self {
        Self::listen_with(hello, patient()).await
    }

    pub(crate) async fn listen_with(hello: Hello, options: Options) -> Self {
        Self::with(hello, options).bind("127.0.0.1:0").await
    }

    pub(crate) async fn listen_at(hello: Hello, address: &str) -> Self {
        Self::new(hello).bind(address).await
    }

    async fn bind(mut self, address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        self.address = Some(listener.local_addr().unwrap());
        tokio::spawn(Arc::clone(&self.endpoint).serve(listener));
        self
    }

    pub(crate) fn address(&self) -> String {
        self.address.expect("the process listens").to_string()
    }

    pub(crate) async fn connect(&self, server: &Self) -> Arc<Connection> {
        Connection::connect(&server.address(), &self.endpoint)
            .await
            .unwrap()
    }

    pub(crate) async fn next_flow(&self) -> Flow {
        within(async { self.flows.lock().await.recv().await.unwrap() }).await
    }

    pub(crate) fn try_next_flow(&self) -> Option<Flow> {
        self.flows.try_lock().unwrap().try_recv().ok()
    }

    /// The next connection that sent a request to this process as the coordinator.
    pub(crate) async fn accepted(&self) -> Arc<Connection> {
        within(async { self.accepted.lock().await.recv().await.unwrap() }).await
    }

    /// The cause for which the next connection closed.
    pub(crate) async fn next_closed(&self) -> String {
        within(async { self.closed.lock().await.recv().await.unwrap() }).await
    }

    /// The cause for which the next connection was not accepted.
    pub(crate) async fn next_not_accepted(&self) -> String {
        within(async { self.not_accepted.lock().await.recv().await.unwrap() }).await
    }

    pub(crate) fn last_stage(&self) -> Option<NodeRequest> {
        self.notes.last_stage.lock().unwrap().clone()
    }

    pub(crate) async fn wait_for_unanswered(&self, count: usize) {
        let mut unanswered = self.notes.unanswered.subscribe();
        within(unanswered.wait_for(|kept| kept.len() >= count))
            .await
            .unwrap();
    }

    pub(crate) fn answer_the_unanswered(&self) {
        for responder in self.notes.unanswered.send_replace(Vec::new()) {
            responder.reply(&NodeReply::Done);
        }
    }
}

/// A connection of `process` whose other side is a bare socket that has said hello.
pub(crate) async fn raw_connection(process: &Process) -> (TcpStream, Arc<Connection>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accept = async {
        let (mut raw, _) = listener.accept().await.unwrap();
        let hello = Hello::client().frame(Versions::CURRENT).unwrap();
        raw.write_all(&[&hello.header.encode()[..], &hello.body].concat())
            .await
            .unwrap();
        let mut theirs = vec![0; HEADER_BYTES + hello.body.len()];
        raw.read_exact(&mut theirs).await.unwrap();
        raw
    };
    let connect = Connection::connect(&address, &process.endpoint);
    let (raw, connection) = tokio::join!(accept, connect);
    (raw, connection.unwrap())
}

/// The bytes of a frame that its sender encodes in this version.
pub(crate) fn bytes_in_version(version: u16, mut frame: Frame) -> Vec<u8> {
    frame.header.version = version;
    [&frame.header.encode()[..], &frame.body].concat()
}
