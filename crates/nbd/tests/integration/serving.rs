//! A server of memory on a Unix socket and on TCP, for the time of a test.

use crate::memory::{Kind, Memory, Shelf};
use gabion_nbd::{Limits, Server, Tls};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::{TcpListener, UnixListener};

/// The size of each export: `vm/disk`, the read-only `vm/old`, and `vm/odd`.
pub(crate) const SIZE: u64 = 64 << 20;

/// A running server.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    pub(crate) server: Server,
    pub(crate) disk: Arc<Memory>,
    pub(crate) odd: Arc<Memory>,
    directory: tempfile::TempDir,
}

impl Serving {
    pub(crate) async fn start(limits: Limits) -> Self {
        Self::start_with(limits, None).await
    }

    /// The same with TLS.
    pub(crate) async fn start_with(limits: Limits, tls: Option<Tls>) -> Self {
        let disk = Memory::new(SIZE, Kind::Usual);
        let (old, odd) = (
            Memory::new(SIZE, Kind::ReadOnly),
            Memory::new(SIZE, Kind::Odd),
        );
        let exports = [
            ("vm/disk", Arc::clone(&disk)),
            ("vm/odd", Arc::clone(&odd)),
            ("vm/old", old),
        ];
        let exports = exports.map(|(name, device)| (name.to_owned(), device));
        let mut server = Server::new(Arc::new(Shelf(exports.into())), limits);
        if let Some(tls) = tls {
            server = server.with_tls(tls);
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let unix = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = tcp.local_addr().expect("an address");
        let (by_tcp, by_unix) = (server.clone(), server.clone());
        tokio::spawn(async move { by_tcp.serve_tcp(tcp).await });
        tokio::spawn(async move { by_unix.serve_unix(unix).await });
        Self {
            address,
            server,
            disk,
            odd,
            directory,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// An export by TCP.
    pub(crate) fn tcp(&self, export: &str) -> String {
        format!("nbd://{}/{export}", self.address)
    }

    /// An export by the Unix socket.
    pub(crate) fn unix(&self, export: &str) -> String {
        let socket = self.path("socket");
        format!("nbd+unix:///{export}?socket={}", socket.display())
    }
}
