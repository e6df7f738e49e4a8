//! A process's side of all its connections: its identity, its handler of messages, and its limits.

use gabion_layout::ClusterId;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::admission::{Admission, ConnectionLimits, Place};
use crate::body::Frame;
use crate::connection::Connection;
use crate::error::WireError;
use crate::handler::Handler;
use crate::hello::Hello;
use crate::intake::Intake;
use crate::link::LinkTable;
use crate::meter::TrafficMeter;
use crate::role::Role;
use crate::trust::Security;
use crate::versions::Versions;

/// Limits of connections, with defaults for a data centre.
#[derive(Clone, Debug)]
pub struct Options {
    /// The versions of the wire that the process speaks. Only tests use others than those of the release.
    pub versions: Versions,
    /// The emulated links that slices and long messages pay for; `None` shapes nothing.
    pub links: Option<Arc<LinkTable>>,
    /// Timeout of connecting, and again of the exchange of hellos.
    pub connect_timeout: Duration,
    /// The connection fails if the peer takes no bytes, or its machine is silent, for this time.
    pub stall_timeout: Duration,
    /// If a call is late and its connection brings no byte for this time, another connection is tried, unless this one
    /// is younger than five times this time.
    pub silence_timeout: Duration,
    /// Bytes of slices and long messages that may wait in one connection before senders wait too.
    /// At most `u32::MAX`.
    pub queue_bytes: usize,
    /// Requests of one peer that are served at the same time; further ones are refused.
    pub max_served_count: usize,
    /// Calls of one connection that wait for their replies at the same time; further ones wait to be sent.
    /// Less than `max_served_count`, since the peer may still serve calls that were abandoned.
    pub max_call_count: usize,
    /// Bytes of long frames that may be half read at one time, of clients and again of members of the cluster.
    pub intake_bytes: usize,
    /// The limits on accepted connections.
    pub connections: ConnectionLimits,
    /// The process's proof of its identity, and its check of its peers.
    pub security: Security,
    /// Interval of looking for changed certificates; the coordinator is asked for revoked ones at each third time.
    pub refresh_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            versions: Versions::CURRENT,
            links: None,
            connect_timeout: Duration::from_secs(3),
            stall_timeout: Duration::from_secs(15),
            silence_timeout: Duration::from_secs(1),
            queue_bytes: 4 << 20,
            max_served_count: 1024,
            max_call_count: 768,
            intake_bytes: 256 << 20,
            connections: ConnectionLimits::default(),
            security: Security::insecure(),
            refresh_interval: Duration::from_secs(5),
        }
    }
}

/// The state that all connections of a process share.
pub struct Endpoint {
    /// Its hello; the cluster in it is in `cluster`.
    pub(crate) hello: Hello,
    /// Its cluster, once it is known.
    cluster: OnceLock<ClusterId>,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) options: Options,
    meter: Arc<TrafficMeter>,
    connections: Mutex<Connections>,
    admission: Arc<Admission>,
    pub(crate) intake: Intake,
}

#[derive(Default)]
struct Connections {
    live: Vec<Weak<Connection>>,
    is_closed: bool,
}

impl Endpoint {
    /// An endpoint that introduces itself with `hello`. If that names no cluster, the endpoint takes
    /// that of the first coordinator to which it connects for its own, and keeps to it. Slices that it
    /// sends are counted in `meter`, which a process may share between endpoints: one before it knows its node id and
    /// one after.
    pub fn new(
        hello: Hello,
        handler: Arc<dyn Handler>,
        options: Options,
        meter: Arc<TrafficMeter>,
    ) -> Arc<Self> {
        let connections = Mutex::default();
        let certified = options.security.name().map(|name| name.cluster);
        let cluster = hello.cluster.or(certified);
        let cluster = cluster.map_or_else(OnceLock::new, OnceLock::from);
        let intake = Intake::new(options.intake_bytes);
        let admission = Admission::new(options.connections);
        Arc::new(Self {
            hello,
            cluster,
            handler,
            options,
            meter,
            connections,
            admission,
            intake,
        })
    }

    /// Its role.
    pub fn role(&self) -> Role {
        self.hello.role
    }

    /// Its proof of its identity, and its check of its peers.
    pub fn security(&self) -> &Security {
        &self.options.security
    }

    /// The cluster of the process, once it is known.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster.get().copied()
    }

    /// The hello of the process's next connection.
    pub(crate) fn introduction(&self) -> Hello {
        let cluster = self.cluster();
        Hello {
            cluster,
            ..self.hello
        }
    }

    /// Checks a peer's hello, and learns the cluster of a coordinator.
    pub(crate) fn meet(&self, theirs: &Hello) -> Result<(), WireError> {
        if let (Some(cluster), Role::Coordinator) = (theirs.cluster, theirs.role) {
            self.cluster.get_or_init(|| cluster);
        }
        self.introduction().check(theirs)
    }

    /// The counts of bytes sent on its connections.
    pub fn meter(&self) -> &Arc<TrafficMeter> {
        &self.meter
    }

    /// Accepts connections until the future is dropped or the listener fails permanently.
    ///
    /// Connections that were accepted outlive this future; [`Endpoint::close`] ends them.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) -> WireError {
        let mut handshakes = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        match self.admission.admit(address.ip(), stream.as_fd()) {
                            Ok(place) => {
                                handshakes.spawn(Arc::clone(&self).accept(stream, address, place));
                            }
                            Err(reason) => self.turn_away(&stream, address, &reason),
                        }
                    }
                    Err(error) if is_about_one_connection(&error) => {}
                    Err(error) if is_shortage(&error) => {
                        // An immediate retry would fail again.
                        sleep(Duration::from_millis(50)).await;
                    }
                    Err(error) => return WireError::io("accept connections", error),
                },
                Some(_) = handshakes.join_next() => {}
            }
        }
    }

    async fn accept(self: Arc<Self>, stream: TcpStream, address: SocketAddr, mut place: Place) {
        let accepted = tokio::select! {
            accepted = Connection::accept(stream, &self) => accepted,
            reason = place.displaced() => Err(reason),
        };
        match accepted {
            Ok(connection) => {
                place.is_of(connection.peer_hello().role);
                tokio::spawn(async move {
                    connection.closed().await;
                    drop(place);
                });
            }
            Err(reason) => self.handler.not_accepted(address, &reason),
        }
    }

    /// Refuses a connection without a place. It does not wait for the peer to read the reason: a new
    /// socket's buffer has room for it.
    fn turn_away(&self, stream: &TcpStream, address: SocketAddr, reason: &WireError) {
        if let Some(frame) = Frame::goodbye(reason, self.options.versions.newest()) {
            let _ = stream.try_write(&[&frame.header.encode()[..], &frame.body].concat());
        }
        self.handler.not_accepted(address, reason);
    }

    /// Closes all connections, present and future.
    pub fn close(&self, reason: &str) {
        let live = {
            let mut connections = self
                .connections
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            connections.is_closed = true;
            std::mem::take(&mut connections.live)
        };
        for connection in live.iter().filter_map(Weak::upgrade) {
            connection.close(reason);
        }
    }

    /// Closes the connections of peers whose certificates are revoked by now.
    pub fn close_revoked(&self) {
        let live = {
            let connections = self.connections.lock();
            let connections = connections.unwrap_or_else(PoisonError::into_inner);
            connections.live.clone()
        };
        for connection in live.iter().filter_map(Weak::upgrade) {
            self.close_if_revoked(&connection);
        }
    }

    /// Closes a connection if its peer's certificate is revoked by now.
    pub(crate) fn close_if_revoked(&self, connection: &Connection) {
        let Some(credentials) = self.options.security.credentials() else {
            return;
        };
        let certified = connection.certified();
        if certified.is_some_and(|peer| credentials.has_revoked(&peer.issued)) {
            connection.close("the peer's certificate is revoked");
        }
    }

    /// Keeps a new connection for [`Endpoint::close`].
    pub(crate) fn register(&self, connection: &Arc<Connection>) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if connections.is_closed {
            connection.close("this process is closing");
            return;
        }
        // Dead ones are swept when the list is full. It then has room for as many again, so that
        // sweeping costs little in sum.
        if connections.live.len() == connections.live.capacity() {
            connections.live.retain(|weak| weak.strong_count() > 0);
            let live_count = connections.live.len();
            connections.live.reserve(live_count + 1);
        }
        connections.live.push(Arc::downgrade(connection));
    }
}

/// Whether accepting failed because of the peer.
fn is_about_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}

/// Whether accepting failed because files or memory are short, which is temporary.
fn is_shortage(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    let code = error.raw_os_error();
    shortages
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}
