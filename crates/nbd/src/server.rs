//! The server: listeners, connections and their limits.

use crate::budget::Budget;
use crate::device::Exports;
use crate::entering::{Entering, Entry};
use crate::handshake::{self, Agreed, Encryption, greet, negotiate};
use crate::metrics::Metrics;
use crate::patience::{CountedExports, Excused};
use crate::session;
use crate::socket::Socket;
use crate::tls::{Tls, in_words};
use gabion_gateway::{passing, serve_metrics};
use rustix::net::sockopt;
use rustls::pki_types::{CertificateDer, UnixTime};
use std::fmt::Display;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, split,
};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// Bytes of a connection's buffer for requests.
const READ_BUFFER_BYTES: usize = 64 << 10;
/// Time until the system asks a silent peer's machine whether it is there.
const KEEPALIVE: Duration = Duration::from_mins(1);

/// Limits on what peers can make the server hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at a time. Further ones are closed at once. One that has to begin TLS counts when it has.
    pub connection_count: usize,
    /// Connections at a time that have to begin TLS and have not. A new one ends the oldest.
    pub entering_count: usize,
    /// Bytes of all requests in flight. At least the largest request of 32 MiB and 4 KiB.
    pub all_bytes: usize,
    /// Bytes of one connection's requests in flight. At least the largest request.
    pub connection_bytes: usize,
    /// Requests of one connection in flight.
    pub request_count: usize,
    /// Time for the client's part of the handshake. The time in which an export is opened does not count.
    pub handshake: Duration,
    /// Longest time in which a peer sends no byte of a request that it has begun, or takes no byte of a reply. With
    /// TLS, the longest time for the last 64 KiB of a reply. The peer has so much time for the whole of it, too, and a
    /// second more for each 256 KiB.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connection_count: 256,
            entering_count: 64,
            all_bytes: 512 << 20,
            connection_bytes: 96 << 20,
            request_count: 256,
            handshake: Duration::from_secs(30),
            stall: Duration::from_mins(1),
        }
    }
}

/// A server of exports. Clones share its limits.
#[derive(Clone)]
pub struct Server {
    exports: Arc<dyn Exports>,
    limits: Limits,
    budget: Arc<Budget>,
    places: Arc<Semaphore>,
    entering: Arc<Entering>,
    metrics: Arc<Metrics>,
    tls: Option<Arc<Tls>>,
    /// Whether the server has been told to end.
    is_ending: Arc<watch::Sender<bool>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A server that has no listener yet.
    ///
    /// # Panics
    /// If the limits do not allow one request of the largest size.
    pub fn new(exports: Arc<dyn Exports>, limits: Limits) -> Self {
        let budget = Budget::new(
            limits.all_bytes,
            limits.connection_bytes,
            limits.request_count,
        );
        Self {
            exports,
            limits,
            budget: Arc::new(budget),
            places: Arc::new(Semaphore::new(limits.connection_count)),
            entering: Arc::new(Entering::new(limits.entering_count)),
            metrics: Arc::new(Metrics::new()),
            tls: None,
            is_ending: Arc::new(watch::Sender::new(false)),
        }
    }

    /// The same with TLS: clients by TCP have to begin it before anything else, those of this machine may.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        let tls = Some(Arc::new(tls));
        Self { tls, ..self }
    }

    /// Serves TCP connections until the listener fails permanently, and returns its error. Connections that were
    /// accepted outlive this future.
    pub async fn serve_tcp(&self, listener: TcpListener) -> io::Error {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    if let Err(error) = set_socket_options(&stream) {
                        tracing::warn!(%address, %error, "a connection is closed");
                        continue;
                    }
                    match self.tls.clone() {
                        None => self.accept(stream, Encryption::None, address.to_string()),
                        Some(tls) => self.admit(stream, tls, &address.to_string()),
                    }
                }
                Err(error) => match passing(error).await {
                    Ok(()) => {}
                    Err(error) => return error,
                },
            }
        }
    }

    /// The same for connections of this machine.
    pub async fn serve_unix(&self, listener: UnixListener) -> io::Error {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let encryption = self.tls.clone();
                    let encryption = encryption.map_or(Encryption::None, Encryption::Offered);
                    self.accept(stream, encryption, "the Unix socket".to_owned());
                }
                Err(error) => match passing(error).await {
                    Ok(()) => {}
                    Err(error) => return error,
                },
            }
        }
    }

    /// Serves one connection in memory, without TLS, until it ends: for clients in this process, such as fuzzers. A
    /// server with all places taken closes it at once.
    pub async fn serve_in_memory(&self, stream: DuplexStream) {
        let peer = "this process";
        match self.place() {
            Ok(place) => {
                let turn = Turn::Placed(place);
                let server = self.clone();
                let connection = server.connection(stream, Encryption::None, peer.to_owned(), turn);
                connection.await;
            }
            Err(why) => closed(peer, why),
        }
    }

    /// Serves the server's metrics by HTTP, as `GET /metrics`, until the listener fails permanently, and returns its
    /// error.
    pub async fn serve_metrics(&self, listener: TcpListener) -> io::Error {
        serve_metrics(listener, self.metrics.requests()).await
    }

    /// Answers no further request. Waits until all connections have ended, each with its requests in flight, but at
    /// most for `limit`. Clients learn as little of these requests as if the server had been killed.
    pub async fn end(&self, limit: Duration) {
        self.is_ending.send_replace(true);
        let all = u32::try_from(self.limits.connection_count).unwrap_or(u32::MAX);
        // After the limit, the process ends anyway.
        let _ = timeout(limit, self.places.acquire_many(all)).await;
    }

    /// Waits until the server is told to end. Returns this cause.
    async fn ends(&self) -> String {
        // The server has the sender as long as it waits.
        let _ = self
            .is_ending
            .subscribe()
            .wait_for(|is_ending| *is_ending)
            .await;
        "the server ends".to_owned()
    }

    /// Serves a new connection in the background, if there is a place.
    fn accept(&self, socket: impl Socket, encryption: Encryption, peer: String) {
        match self.place() {
            Ok(place) => drop(tokio::spawn(self.clone().connection(
                socket,
                encryption,
                peer,
                Turn::Placed(place),
            ))),
            Err(why) => closed(&peer, why),
        }
    }

    /// Serves a new connection in the background, which has to begin TLS before it gets a place.
    fn admit(&self, socket: impl Socket, tls: Arc<Tls>, peer: &str) {
        let ends_oldest = self.entering.add(|entry| {
            let turn = Turn::Enters(entry);
            let connection =
                self.clone()
                    .connection(socket, Encryption::Required(tls), peer.to_owned(), turn);
            tokio::spawn(connection).abort_handle()
        });
        if ends_oldest {
            let limit = self.limits.entering_count;
            tracing::warn!(
                peer,
                "the oldest of {limit} connections that have not begun TLS is closed for a new one"
            );
        }
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, String> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let limit = self.limits.connection_count;
        place.map_err(|_| format!("{limit} connections are open already"))
    }

    async fn connection(
        self,
        socket: impl Socket,
        encryption: Encryption,
        peer: String,
        mut turn: Turn,
    ) {
        let excused = Excused::default();
        let handshake = self.handshake(socket, encryption, (&mut turn, &excused));
        let opened = tokio::select! {
            opened = excused.within(self.limits.handshake, handshake) => opened,
            why = self.ends() => return closed(&peer, why),
        };
        match opened {
            Some(Ok(Opened::Plain(reader, writer, agreed))) => {
                self.serve(reader, writer, (agreed, &peer), pending()).await;
            }
            Some(Ok(Opened::Encrypted(reader, writer, agreed, client))) => {
                let barred = client.barred();
                self.serve(reader, writer, (agreed, &peer), barred).await;
            }
            Some(Err(handshake::Ended::Broken(why))) => closed(&peer, why),
            Some(Err(handshake::Ended::Left | handshake::Ended::BeginsTls(_))) => {}
            None => closed(&peer, "its handshake took too long"),
        }
        drop(turn);
    }

    /// Runs the handshake. If the client begins TLS, it starts anew within it.
    async fn handshake<S: Socket>(
        &self,
        socket: S,
        encryption: Encryption,
        (turn, excused): (&mut Turn, &Excused),
    ) -> Result<Opened<S>, handshake::Ended> {
        let exports = CountedExports {
            exports: &*self.exports,
            excused,
        };
        let (reader, mut writer) = socket.halves();
        let mut reader = buffered(reader);
        let has_padding = greet(&mut reader, &mut writer).await?;
        let negotiated = negotiate(
            &mut reader,
            &mut writer,
            &exports,
            (encryption, has_padding),
        );
        let tls = match negotiated.await {
            Ok(agreed) => return Ok(Opened::Plain(reader, writer, agreed)),
            Err(handshake::Ended::BeginsTls(tls)) => tls,
            Err(ended) => return Err(ended),
        };
        // Anyone on the way may have put in bytes that are not encrypted.
        if !reader.buffer().is_empty() {
            let why = "bytes came between STARTTLS and TLS".to_owned();
            return Err(handshake::Ended::Broken(why));
        }
        let socket = S::whole(reader.into_inner(), writer);
        let accepted = tls.acceptor().await.accept(socket).await;
        let stream = accepted.map_err(|error| handshake::Ended::Broken(in_words(&error)))?;
        let chain = stream.get_ref().1.peer_certificates();
        let chain = chain.map(<[_]>::to_vec).unwrap_or_default();
        let as_of = UnixTime::now();
        let client = TlsClient { tls, chain, as_of };
        if let Turn::Enters(_) = turn {
            *turn = Turn::Placed(self.place().map_err(handshake::Ended::Broken)?);
        }
        let (reader, mut writer) = split(stream);
        let mut reader = buffered(reader);
        let begun = (Encryption::Begun, has_padding);
        match negotiate(&mut reader, &mut writer, &exports, begun).await {
            Ok(agreed) => Ok(Opened::Encrypted(reader, writer, agreed, client)),
            Err(ended) => {
                // The client can tell the end of TLS from a connection that was cut.
                let _ = writer.shutdown().await;
                Err(ended)
            }
        }
    }

    /// Serves the requests of a connection until it ends or `barred` is done.
    async fn serve<R, W>(
        &self,
        reader: R,
        writer: W,
        (agreed, peer): (Agreed, &str),
        barred: impl Future<Output = String>,
    ) where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let export = agreed.name.clone();
        tracing::info!(peer, export, "attached");
        let share = self.budget.share();
        let attached = self.metrics.attached();
        let means = (self.limits.stall, Arc::clone(&self.metrics));
        let barred = async {
            tokio::select! {
                why = barred => why,
                why = self.ends() => why,
            }
        };
        match session::serve(reader, writer, agreed, share, means, barred).await {
            session::Ended::Disconnected => tracing::info!(peer, export, "detached"),
            session::Ended::Gone => tracing::info!(peer, export, "the client has vanished"),
            session::Ended::Broken(why) => closed(peer, why),
        }
        drop(attached);
    }
}

/// A connection's share of the server's limits, until it is dropped.
enum Turn {
    /// It has to begin TLS first.
    Enters(#[expect(dead_code, reason = "its end gives the turn back")] Entry),
    /// A place of its own.
    Placed(#[expect(dead_code, reason = "its end gives the place back")] OwnedSemaphorePermit),
}

/// A connection whose client has chosen an export.
enum Opened<S: Socket> {
    Plain(BufReader<S::Reader>, S::Writer, Agreed),
    Encrypted(
        BufReader<ReadHalf<TlsStream<S>>>,
        WriteHalf<TlsStream<S>>,
        Agreed,
        TlsClient,
    ),
}

/// A client that has begun TLS.
struct TlsClient {
    tls: Arc<Tls>,
    /// Its certificate, with those between it and its authority behind it; empty if it has none.
    chain: Vec<CertificateDer<'static>>,
    /// When the certificates were checked.
    as_of: UnixTime,
}

impl TlsClient {
    /// Waits until it may not be attached any more. Returns the cause.
    async fn barred(&self) -> String {
        self.tls.barred(&self.chain, self.as_of).await
    }
}

fn buffered<R: AsyncRead>(reader: R) -> BufReader<R> {
    BufReader::with_capacity(READ_BUFFER_BYTES, reader)
}

/// Logs why a connection was closed.
fn closed(peer: &str, why: impl Display) {
    tracing::warn!(peer, "a connection is closed: {why}");
}

/// Sends small replies without delay, and notices that a silent peer's machine has gone.
fn set_socket_options(stream: &TcpStream) -> io::Result<()> {
    const PROBE_COUNT: u32 = 3;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE / PROBE_COUNT)?;
    sockopt::set_tcp_keepcnt(stream, PROBE_COUNT)?;
    Ok(())
}
