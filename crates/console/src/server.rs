//! The console's connections, and their limits.

use crate::api;
use crate::app::App;
use crate::places::{Places, Seat};
use crate::session::Sessions;
use crate::stream::Timed;
use crate::watch::{Latest, Tail};
use axum::Router;
use gabion_client::Client;
use gabion_metrics::passing;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// Longest wait for the head of a request, also between two requests of a connection.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// Longest time in which a peer reads nothing of its answer.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// Longest life of a connection.
const CONNECTION_LIMIT: Duration = Duration::from_mins(10);
/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// An operator's options of a console.
pub struct ConsoleOptions {
    /// Host names beside loopback's by which browsers reach it through a proxy with TLS.
    pub hosts: Vec<String>,
    /// Is told each one-time password from the moment at which it is valid; the one before it is spent.
    pub announce: Box<dyn Fn(&str) + Send + Sync>,
}

/// A console that listens.
pub struct Console {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
}

impl Console {
    /// A console of the client's cluster, whose first password is announced at once.
    ///
    /// # Errors
    /// If the listener's address is not one of loopback, or the system gives no random numbers.
    pub fn new(client: Client, listener: TcpListener, options: ConsoleOptions) -> io::Result<Self> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(io::Error::other(format!(
                "{address} is not a loopback address, and the console itself does not encrypt; listen on 127.0.0.1, \
                and use a tunnel or a proxy with TLS"
            )));
        }
        let no_randomness = |_| io::Error::other("the system gives no random numbers");
        let sessions = Sessions::new(options.announce, Instant::now()).map_err(no_randomness)?;
        let app = App {
            client,
            sessions,
            cookie: format!("gabion_console_{}", address.port()),
            hosts: options.hosts,
            limits: Mutex::new(()),
            status: Latest::new(),
            traffic: Latest::new(),
            events: Tail::default(),
        };
        Ok(Self {
            listener,
            address,
            router: api::router(Arc::new(app)),
        })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the listener fails permanently, and returns its error.
    pub async fn serve(self) -> io::Error {
        let places = Arc::new(Places::default());
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => match passing(error).await {
                    Ok(()) => continue,
                    Err(error) => return error,
                },
            };
            let seat = loop {
                match places.take(Instant::now()) {
                    Ok(seat) => break seat,
                    Err(wait) => sleep(wait).await,
                }
            };
            let (places, router) = (Arc::clone(&places), self.router.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = serve(stream, router, &seat) => {}
                    () = seat.replaced() => {}
                }
                places.leave(&seat);
            });
        }
    }
}

/// Serves a connection until the peer has its answers, or has gone, or was too slow.
async fn serve(stream: TcpStream, router: Router, seat: &Arc<Seat>) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(seat));
        router.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Timed::new(stream, WRITE_LIMIT)), service);
    let _ = timeout(CONNECTION_LIMIT, served).await;
}
