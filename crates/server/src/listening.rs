//! The addresses at which a process listens or will listen.

use crate::complaint::Complaint;
use crate::error::ServerError;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::Instant;

/// Maximum wait of a process for a port in use.
const LISTEN_PATIENCE: Duration = Duration::from_secs(5);
const LISTEN_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Connections that the system completes before the process accepts them, as the standard library has it.
const BACKLOG: u32 = 1024;

/// Checks that a process may listen on an address; waits briefly for a port in use. Call it before
/// a directory is made for a new node.
///
/// # Errors
/// [`ServerError::Listen`] when it may not.
pub async fn check_listen(address: &str) -> Result<(), ServerError> {
    listen_on(address).await.map(drop)
}

/// Listens. A killed process holds its port until its last thread has ended, which may be after its
/// successor has started; so a port in use is retried for some time.
pub(crate) async fn listen_on(address: &str) -> Result<TcpListener, ServerError> {
    let deadline = Instant::now() + LISTEN_PATIENCE;
    let mut complaint = Complaint::default();
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                if complaint.is_due("in use", Instant::now()) {
                    tracing::warn!(address, "waiting for the port, which is in use");
                }
                tokio::time::sleep(LISTEN_AGAIN_AFTER).await;
            }
            Err(source) => {
                return Err(listen_error(&address)(source));
            }
            Ok(listener) => return Ok(listener),
        }
    }
}

/// An address at which a process will listen. Until then the system refuses connections there, and gives the port to
/// no other process.
#[derive(Debug)]
pub(crate) struct KeptAddress {
    address: SocketAddr,
    /// `None` while connections of an earlier process still close there; until then any process may take the port.
    bound: Option<TcpSocket>,
}

/// A socket that has an address to itself.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.bind(address)?;
    Ok(socket)
}

impl KeptAddress {
    /// The address of a listener, which ends.
    pub(crate) fn of(listener: TcpListener, address: SocketAddr) -> Self {
        drop(listener);
        let bound = bound(address);
        if let Err(error) = &bound {
            tracing::warn!(%address, %error, "cannot keep the port while this process stands by");
        }
        Self {
            address,
            bound: bound.ok(),
        }
    }

    /// The address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens.
    ///
    /// # Errors
    /// [`ServerError::Listen`].
    pub(crate) async fn listen(self) -> Result<TcpListener, ServerError> {
        let Some(socket) = self.bound else {
            return listen_on(&self.address.to_string()).await;
        };
        // The connections inherit it: a later process may listen here while some of them still close.
        let listening = socket.set_reuseaddr(true);
        let listening = listening.and_then(|()| socket.listen(BACKLOG));
        listening.map_err(listen_error(&self.address))
    }
}

/// The error of an address at which a process cannot listen.
pub(crate) fn listen_error(address: &impl ToString) -> impl FnOnce(io::Error) -> ServerError {
    let address = address.to_string();
    move |source| ServerError::Listen { address, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn a_port_in_use_is_retried_until_it_is_free() {
        let held = listen_on("127.0.0.1:0").await.unwrap();
        let address = held.local_addr().unwrap();
        let listening = tokio::spawn(async move { listen_on(&address.to_string()).await });
        // It is still in use at the first attempt, or free: both must succeed.
        tokio::task::yield_now().await;
        drop(held);
        let listener = listening.await.unwrap().unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn a_kept_address_refuses_connections_and_is_given_to_no_other_process() {
        let listener = listen_on("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let kept = KeptAddress::of(listener, address);
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let taken = TcpListener::bind(address).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        let listener = kept.listen().await.unwrap();
        // The side that closes first keeps the port for a minute, which no successor must wait for.
        close_first(address, &listener).await;
        drop(listener);
        let listener = listen_on(&address.to_string()).await.unwrap();
        close_first(address, &listener).await;
        let listener = KeptAddress::of(listener, address).listen().await.unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
    }

    async fn close_first(address: SocketAddr, listener: &TcpListener) {
        let (opened, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        drop(accepted.unwrap());
        drop(opened.unwrap());
    }
}
