//! One connection between two processes: calls, flows and their ends.
//!
//! A reader task and a writer task per connection. Calls are multiplexed by number; frames of both
//! directions share the stream. A connection fails as a whole and never recovers: every call that
//! waits on it fails at once with the cause, and [`crate::Peers`] opens a new one on demand.
//!
//! With TLS, the handshake is between the socket and `Connection::establish`, which takes any two byte
//! streams. Each request must come from a role that may send it ([`crate::permission`]).

use gabion_layout::NodeId;
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Flow, NodeReply, NodeRequest,
};
use gabion_protocol::ports::Passage;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::body::{Frame, Rpc};
use crate::certificate_call::CertificateRequest;
use crate::endpoint::Endpoint;
use crate::error::WireError;
use crate::frame::Kind;
use crate::handler::{NotAdmitted, Responder};
use crate::handshake::{exchange_hellos, send_close_reason, set_socket_options};
use crate::hello::{Hello, PeerIdentity};
use crate::permission::{Guarded, Sender};
use crate::reader::FrameReader;
use crate::stream::Stream;
use crate::tls::{Side, secure};
use crate::toll::SliceToll;
use crate::trust::Certified;
use crate::usage::Usage;
use crate::writer::{Lane, Outbox, Writer, queues};

/// A live connection to another process.
///
/// It lives until it is closed by either side or breaks; dropping the last handle does not end it.
pub struct Connection {
    endpoint: Arc<Endpoint>,
    peer: Hello,
    /// The version on which both sides have agreed.
    version: u16,
    /// The contents of the peer's certificate; none without TLS.
    certified: Option<Certified>,
    /// The id that a new node has got on this connection.
    joined: OnceLock<NodeId>,
    /// Whether a request of the peer was refused because of its role.
    has_trespassed: AtomicBool,
    usage: Usage,
    outbox: Outbox,
    next_id: AtomicU64,
    /// Calls without a reply yet; `None` once the connection is closed.
    pending: Mutex<Option<BTreeMap<u64, oneshot::Sender<Frame>>>>,
    /// Room for requests of the peer that are being served.
    served: Arc<Semaphore>,
    /// Room for calls that wait for their replies.
    calls: Semaphore,
    /// The socket as long as it is open; none in memory.
    stream: Weak<Stream>,
    /// The peer's address.
    remote: Option<SocketAddr>,
    /// The reason why the connection is closed, once it is.
    closed: watch::Sender<Option<WireError>>,
}

impl Connection {
    /// Connects to a process that listens at `address` (`host:port`).
    ///
    /// # Errors
    /// [`WireError::Unreachable`] when no process answers there; [`WireError::WrongVersion`] or
    /// [`WireError::WrongCluster`] when the peer has another version or cluster;
    /// [`WireError::DeadlinePassed`], [`WireError::ClosedByPeer`], [`WireError::Corrupt`] or
    /// [`WireError::Io`] when the socket or the exchange of hellos fails.
    pub async fn connect(address: &str, endpoint: &Arc<Endpoint>) -> Result<Arc<Self>, WireError> {
        Self::connect_within(endpoint.options.connect_timeout, address, endpoint).await
    }

    /// [`Connection::connect`], with another time limit for the peer's machine to answer.
    pub(crate) async fn connect_within(
        limit: Duration,
        address: &str,
        endpoint: &Arc<Endpoint>,
    ) -> Result<Arc<Self>, WireError> {
        let unreachable = |source: std::io::Error| WireError::Unreachable {
            address: address.to_owned(),
            source: Arc::new(source),
        };
        let stream = timeout(limit, TcpStream::connect(address))
            .await
            .map_err(|_| unreachable(std::io::ErrorKind::TimedOut.into()))?
            .map_err(unreachable)?;
        Self::open(stream, Side::Opens, endpoint).await
    }

    /// Makes a connection of a stream that a peer opened to this process.
    ///
    /// # Errors
    /// Those of [`Connection::connect`] but for `Unreachable`.
    pub async fn accept(
        stream: TcpStream,
        endpoint: &Arc<Endpoint>,
    ) -> Result<Arc<Self>, WireError> {
        Self::open(stream, Side::Accepts, endpoint).await
    }

    /// Secures a socket, if this process's connections are secured, and makes a connection of it.
    async fn open(
        stream: TcpStream,
        side: Side,
        endpoint: &Arc<Endpoint>,
    ) -> Result<Arc<Self>, WireError> {
        let stream = set_socket_options(&stream, endpoint.options.stall_timeout)
            .and_then(|()| Stream::new(stream))
            .map_err(|error| WireError::io("set up the connection's socket", error))?;
        let (reader, writer) = stream.halves();
        let socket = Arc::downgrade(&stream);
        let Some(credentials) = endpoint.options.security.credentials() else {
            return Self::establish(reader, writer, (socket, None), endpoint).await;
        };
        let securing = secure(reader, side, &credentials);
        let secured = timeout(endpoint.options.connect_timeout, securing).await;
        let (stream, certified) = secured.unwrap_or(Err(WireError::DeadlinePassed {
            operation: "agreeing on TLS with the peer",
        }))?;
        let (reader, writer) = split(stream);
        Self::establish(reader, writer, (socket, Some(certified)), endpoint).await
    }

    /// Exchanges hellos over any byte stream and starts the connection's tasks. `stream` is the socket that
    /// both directions belong to, `certified` what the peer has proven on it.
    async fn establish<R, W>(
        reader: R,
        mut writer: W,
        (stream, certified): (Weak<Stream>, Option<Certified>),
        endpoint: &Arc<Endpoint>,
    ) -> Result<Arc<Self>, WireError>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let options = &endpoint.options;
        let mut reader = FrameReader::new(reader, options.stall_timeout);
        let (introduction, meet) = (endpoint.introduction(), |hello: &Hello| {
            endpoint.meet(hello)
        });
        let own = (&introduction, meet);
        let versions = options.versions;
        let hellos = exchange_hellos(&mut reader, &mut writer, certified.as_ref(), versions, own);
        let exchanged = timeout(options.connect_timeout, hellos)
            .await
            .unwrap_or(Err(WireError::DeadlinePassed {
                operation: "the peer's hello",
            }));
        let (peer, version) = match exchanged {
            Ok(agreed) => agreed,
            Err(reason) => {
                send_close_reason(&mut writer, &reason, versions).await;
                return Err(reason);
            }
        };
        let (outbox, outgoing) = queues(options.queue_bytes, version);
        let connection = Arc::new(Self {
            endpoint: Arc::clone(endpoint),
            peer,
            version,
            certified,
            joined: OnceLock::new(),
            has_trespassed: AtomicBool::new(false),
            usage: Usage::new(),
            outbox,
            next_id: AtomicU64::new(1),
            pending: Mutex::new(Some(BTreeMap::new())),
            served: Arc::new(Semaphore::new(options.max_served_count)),
            calls: Semaphore::new(options.max_call_count),
            remote: stream.upgrade().and_then(|stream| stream.remote()),
            stream,
            closed: watch::Sender::new(None),
        });
        endpoint.register(&connection);
        // The handshake may have begun before the peer's certificate was revoked.
        endpoint.close_if_revoked(&connection);
        let toll = SliceToll {
            meter: Arc::clone(endpoint.meter()),
            links: options.links.clone(),
            own: endpoint.hello.identity,
            peer: peer.identity,
        };
        let writer = Writer {
            stream: writer,
            outgoing,
            toll,
            stall_timeout: options.stall_timeout,
        };
        tokio::spawn(Self::write(Arc::clone(&connection), writer));
        tokio::spawn(Self::read(Arc::clone(&connection), reader));
        Ok(connection)
    }

    /// The peer's hello.
    pub fn peer_hello(&self) -> &Hello {
        &self.peer
    }

    /// The version of the wire in which both sides talk. A message or a frame that a later version has added must not
    /// be sent.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The peer's position in the topology.
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer.identity
    }

    /// Returns the contents of the peer's certificate; none without TLS.
    pub fn certified(&self) -> Option<&Certified> {
        self.certified.as_ref()
    }

    /// The node at the other end, if this end of the connection may mean that the node has ended: no other connection
    /// has taken its place.
    pub fn lost_node(&self, reason: &WireError) -> Option<NodeId> {
        self.peer.identity.node.filter(|_| !reason.is_replacement())
    }

    /// The peer's address; none if the system did not say.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// The sender of the peer's requests.
    pub fn sender(&self) -> Sender {
        let sender = Sender::new(&self.peer, self.certified.as_ref());
        Sender {
            node: sender.node.or(self.joined.get().copied()),
            ..sender
        }
    }

    /// Notes the id that the new node at the other end has got: from now on it speaks for that node.
    pub fn note_joined(&self, node: NodeId) {
        // A node that asks twice gets the same id.
        let _ = self.joined.set(node);
    }

    /// Sends a request and waits for its reply until `deadline`.
    ///
    /// Requests may overtake each other and may be overtaken by flow frames: wait for the reply
    /// where order matters.
    ///
    /// # Errors
    /// [`WireError::Unsupported`] and [`WireError::TooLarge`] before anything is sent; [`WireError::DeadlinePassed`];
    /// [`WireError::NoReply`] when the peer abandons the request; the connection's own reason when
    /// it closes first. Except after the first two errors, the request may have been carried out.
    pub async fn call<R: Rpc>(
        &self,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Reply, WireError> {
        self.has(request.since())?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let frame = Frame::message(R::REQUEST, id, request, request.size_hint_bytes())?;
        let _room = self.room_for_call(deadline).await?;
        let lane = if request.carries_data() {
            Lane::Bulk
        } else {
            Lane::of(&frame)
        };
        let (sender, receiver) = oneshot::channel();
        self.with_pending(|pending| pending.insert(id, sender))
            .ok_or_else(|| self.reason())?;
        let _forget = ForgetCall {
            connection: self,
            id,
        };
        let exchange = async {
            self.outbox
                .send(frame, lane)
                .await
                .map_err(|_| self.reason())?;
            receiver.await.map_err(|_| self.reason())
        };
        let reply =
            timeout_at(deadline, exchange)
                .await
                .map_err(|_| WireError::DeadlinePassed {
                    operation: "the peer's reply",
                })??;
        if reply.header.kind == Kind::NoReply {
            return Err(WireError::NoReply(reply.decode_words()));
        }
        let decoded = if reply.header.kind == R::REPLY {
            reply.decode_message()
        } else {
            Err(WireError::Corrupt(
                "the reply is to another kind of request",
            ))
        };
        decoded.inspect_err(|error| self.fail(error))
    }

    /// Whether the connection's version has what came with version `needed`.
    ///
    /// # Errors
    /// [`WireError::Unsupported`].
    fn has(&self, needed: u16) -> Result<(), WireError> {
        let agreed = self.version;
        if needed <= agreed {
            Ok(())
        } else {
            Err(WireError::Unsupported { needed, agreed })
        }
    }

    /// Waits until there is room for one more call that waits for its reply.
    async fn room_for_call(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, WireError> {
        let operation = "calls to the peer before this one";
        match timeout_at(deadline, self.calls.acquire()).await {
            Ok(room) => room.map_err(|_| self.reason()),
            Err(_) => Err(WireError::DeadlinePassed { operation }),
        }
    }

    /// [`Connection::call`] to a node.
    ///
    /// # Errors
    /// Those of [`Connection::call`].
    pub async fn call_node(
        &self,
        request: &NodeRequest,
        deadline: Instant,
    ) -> Result<NodeReply, WireError> {
        self.call(request, deadline).await
    }

    /// [`Connection::call`] to the coordinator.
    ///
    /// # Errors
    /// Those of [`Connection::call`].
    pub async fn call_coordinator(
        &self,
        request: &CoordinatorRequest,
        deadline: Instant,
    ) -> Result<CoordinatorReply, WireError> {
        self.call(request, deadline).await
    }

    /// Queues a flow frame, waiting while the queue is full. The wait ends when the peer takes more bytes,
    /// or when the connection closes because the peer takes none for the stall timeout.
    ///
    /// Slices arrive in the order in which they were queued. Credits and aborts may overtake them.
    /// Cancel safe: the frame is queued whole or not at all.
    ///
    /// # Errors
    /// [`WireError::TooLarge`], or the connection's reason when it is closed.
    pub async fn send_flow(&self, flow: Flow) -> Result<(), WireError> {
        let frame = Frame::flow(flow)?;
        let lane = Lane::of(&frame);
        self.outbox
            .send(frame, lane)
            .await
            .map_err(|_| self.reason())
    }

    /// Closes the connection and tells the peer the reason, if it listens. Frames that are not sent yet are
    /// dropped.
    pub fn close(&self, reason: &str) {
        self.fail(&WireError::Closed(reason.to_owned()));
    }

    /// Whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Waits until the connection is closed; returns the reason.
    pub async fn closed(&self) -> WireError {
        let mut closed = self.closed.subscribe();
        // The wait fails only if the sender is gone, and `self` keeps the sender.
        let _ = closed.wait_for(Option::is_some).await;
        self.reason()
    }

    /// Whether both connections are with one process, as far as certificates and addresses tell.
    pub(crate) fn is_of_same_process(&self, other: &Self) -> bool {
        let serial = |one: &Self| one.certified.as_ref().and_then(|known| known.serial);
        let address = |one: &Self| one.stream.upgrade().and_then(|stream| stream.remote());
        match (serial(self), serial(other)) {
            (Some(one), Some(other)) => one == other,
            _ => address(self).is_some_and(|one| address(other) == Some(one)),
        }
    }

    /// The progress of the connection; after its end, the progress at its start.
    pub(crate) fn passage(&self) -> Passage {
        let stream = self.stream.upgrade();
        stream.map_or_else(Passage::default, |stream| stream.passage())
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Whether calls wait for their replies, streams have not ended, or bytes are on their way.
    pub(crate) fn is_in_use(&self) -> bool {
        let has_calls = self.with_pending(|pending| !pending.is_empty());
        has_calls.unwrap_or(false) || self.usage.has_streams() || self.passage().waiting_bytes > 0
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// The reason why the connection is closed or about to be, if known.
    fn reason(&self) -> WireError {
        let reason = self.closed.borrow().clone();
        reason.unwrap_or_else(|| WireError::Closed("it is closing".to_owned()))
    }

    /// Runs `change` on the pending calls; `None` when the connection is closed.
    fn with_pending<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<u64, oneshot::Sender<Frame>>) -> T,
    ) -> Option<T> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.as_mut().map(change)
    }

    /// Closes the connection for `reason`. The first reason counts.
    fn fail(&self, reason: &WireError) {
        let is_first = self.closed.send_if_modified(|closed| {
            let is_first = closed.is_none();
            closed.get_or_insert_with(|| reason.clone());
            is_first
        });
        if is_first {
            self.outbox.close();
            self.calls.close();
            // Dropping the senders fails the calls; they find the reason set.
            *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// The writer task.
    async fn write<W: AsyncWrite + Unpin>(self: Arc<Self>, writer: Writer<W, SliceToll>) {
        let closing = async {
            let reason = self.closed().await;
            Frame::goodbye(&reason, self.version)
        };
        let reason = writer.run(closing).await;
        self.fail(&reason);
    }

    /// The reader task.
    async fn read<R: AsyncRead + Unpin>(self: Arc<Self>, mut reader: FrameReader<R>) {
        let ended = ReaderEnded(self);
        let connection = &ended.0;
        let reason = tokio::select! {
            biased;
            reason = connection.closed() => reason,
            reason = connection.read_frames(&mut reader) => reason,
        };
        connection.fail(&reason);
    }

    async fn read_frames<R: AsyncRead + Unpin>(
        self: &Arc<Self>,
        reader: &mut FrameReader<R>,
    ) -> WireError {
        loop {
            let role = self.sender().role;
            let room = async |bytes| self.endpoint.intake.room(role, bytes).await;
            let (frame, _room) = match reader.next_in(room).await {
                Ok(Some(next)) => next,
                Ok(None) => return WireError::ClosedByPeer("it gave no reason".to_owned()),
                Err(error) => return error,
            };
            if let Err(error) = self.take(frame).await {
                return error;
            }
        }
    }

    /// Handles a frame.
    async fn take(self: &Arc<Self>, frame: Frame) -> Result<(), WireError> {
        let handler = &self.endpoint.handler;
        let id = frame.header.id;
        match frame.header.kind {
            Kind::Slice | Kind::Credit | Kind::Abort => {
                let flow = frame.decode_flow()?;
                if self.permits(&flow).is_ok() {
                    handler.flow(self, flow);
                }
            }
            Kind::NodeRequest => {
                let request = frame.decode_message()?;
                if let Some(responder) = self.admit(id, &request).await? {
                    handler.node_request(self, request, responder);
                }
            }
            Kind::CoordinatorRequest => {
                let request = frame.decode_message()?;
                if let Some(responder) = self.admit(id, &request).await? {
                    handler.coordinator_request(self, request, responder);
                }
            }
            Kind::CertificateRequest => {
                let request: CertificateRequest = frame.decode_message()?;
                if let Some(responder) = self.admit(id, &request).await? {
                    handler.certificate_request(self, request, responder);
                }
            }
            Kind::NodeReply | Kind::CoordinatorReply | Kind::CertificateReply | Kind::NoReply => {
                // The reply to a call that its caller abandoned is dropped.
                if let Some(Some(caller)) = self.with_pending(|pending| pending.remove(&id)) {
                    let _ = caller.send(frame);
                }
            }
            Kind::Goodbye => return Err(WireError::ClosedByPeer(frame.decode_words())),
            Kind::Hello => return Err(WireError::Corrupt("a second hello")),
        }
        Ok(())
    }

    /// Whether the peer may send this. The first refusal of a connection is logged.
    fn permits(&self, request: &impl Guarded) -> Result<(), String> {
        let sender = self.sender();
        request.may_come_from(&sender).inspect_err(|reason| {
            if !self.has_trespassed.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    ?sender,
                    reason,
                    "a request is refused because of its sender"
                );
            }
        })
    }

    /// Finds a request a place among those being served, or refuses it.
    async fn admit<R: Rpc + Guarded>(
        self: &Arc<Self>,
        id: u64,
        request: &R,
    ) -> Result<Option<Responder<R>>, WireError> {
        let (why, reason) = if let Err(reason) = self.permits(request) {
            (NotAdmitted::Sender, reason)
        } else {
            if let Ok(place) = Arc::clone(&self.served).try_acquire_owned() {
                return Ok(Some(Responder::new(Arc::clone(self), id, Some(place))));
            }
            let reason = "it serves as many requests as it can".to_owned();
            (NotAdmitted::ServedRequests, reason)
        };
        self.endpoint.handler.not_admitted(self, why);
        let is_user = self.sender().is_user();
        let denied = R::denied(&reason).filter(|_| is_user && why == NotAdmitted::Sender);
        let refusal = match denied {
            Some(reply) => Frame::message(R::REPLY, id, &reply, 128)?,
            None => Frame::words(Kind::NoReply, id, &reason),
        };
        // Unlike replies, refusals are not bounded in number, so they wait for room: while a peer
        // does not read them, this side does not read its requests.
        self.outbox.send(refusal, Lane::Control).await?;
        Ok(None)
    }
}

/// Forgets a call that was answered, abandoned or dropped.
struct ForgetCall<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for ForgetCall<'_> {
    fn drop(&mut self) {
        self.connection
            .with_pending(|pending| pending.remove(&self.id));
    }
}

/// Closes the connection however the reader task ends, even if by a panic in the handler.
struct ReaderEnded(Arc<Connection>);

impl Drop for ReaderEnded {
    fn drop(&mut self) {
        self.0
            .fail(&WireError::Closed("its reader failed".to_owned()));
        self.0.endpoint.handler.closed(&self.0, &self.0.reason());
    }
}
