//! The coordinator, wherever it runs: of several processes that share their metadata, one leads, and only that one
//! listens. A process knows the addresses of all of them, and finds the one that leads.

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::WireError;
use crate::peers::Peers;
use futures::future::select_ok;
use futures::{FutureExt as _, TryFutureExt as _};
use gabion_protocol::message::{CoordinatorReply, CoordinatorRequest};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long an answer may take before the other addresses are tried: the process may be paused or cut off, and
/// another one lead.
const DOUBT_AFTER: Duration = Duration::from_secs(1);

/// The addresses of the coordinator.
#[derive(Debug)]
pub(crate) struct Coordinators {
    /// As `host:port`; at least one.
    addresses: Vec<String>,
    /// The one that led last.
    present: AtomicUsize,
}

impl Coordinators {
    /// Those in a list, separated by commas, or by `+` where commas separate options.
    pub(crate) fn new(list: &str) -> Self {
        let addresses = list.split([',', '+']);
        Self {
            addresses: addresses.map(|one| one.trim().to_owned()).collect(),
            present: AtomicUsize::new(0),
        }
    }

    /// The connection to the one that leads.
    ///
    /// # Errors
    /// Those of [`Peers::coordinator`], of the address that led last, if none can be reached.
    pub(crate) async fn reach(&self, peers: &Peers) -> Result<Arc<Connection>, WireError> {
        self.reach_as(peers).await.map(|(_, connection)| connection)
    }

    async fn reach_as(&self, peers: &Peers) -> Result<(usize, Arc<Connection>), WireError> {
        let present = self.present.load(Ordering::Relaxed);
        let mut reaching = pin!(peers.coordinator(&self.addresses[present]));
        let error = loop {
            tokio::select! {
                reached = &mut reaching => match reached {
                    Ok(connection) => return Ok((present, connection)),
                    Err(error) => break error,
                },
                other = self.other_after(peers, present, DOUBT_AFTER), if self.has_others() => {
                    if let Some(other) = other {
                        return Ok(other);
                    }
                }
            }
        };
        match self.other_after(peers, present, Duration::ZERO).await {
            Some(other) => Ok(other),
            None => Err(error),
        }
    }

    /// The first of the other addresses that can be reached now. From then on it is the present one.
    async fn other_after(
        &self,
        peers: &Peers,
        present: usize,
        delay: Duration,
    ) -> Option<(usize, Arc<Connection>)> {
        sleep(delay).await;
        let others = (0..self.addresses.len()).filter(|&at| at != present);
        let reaching = others.map(|at| {
            let reached = peers.coordinator(&self.addresses[at]);
            reached.map_ok(move |connection| (at, connection)).boxed()
        });
        let reaching: Vec<_> = reaching.collect();
        if reaching.is_empty() {
            return None;
        }
        let (other, _) = select_ok(reaching).await.ok()?;
        self.present.store(other.0, Ordering::Relaxed);
        Some(other)
    }

    fn has_others(&self) -> bool {
        self.addresses.len() > 1
    }

    /// Asks the one that leads. If another one leads before the answer comes, the request may have been carried out.
    ///
    /// # Errors
    /// Those of [`Coordinators::reach`] and [`Connection::call_coordinator`].
    pub(crate) async fn call(
        &self,
        peers: &Peers,
        request: &CoordinatorRequest,
        deadline: Instant,
    ) -> Result<CoordinatorReply, WireError> {
        let (at, connection) = self.reach_as(peers).await?;
        let mut answer = pin!(connection.call_coordinator(request, deadline));
        loop {
            tokio::select! {
                answered = &mut answer => return answered,
                other = self.other_after(peers, at, DOUBT_AFTER), if self.has_others() => {
                    if other.is_some() {
                        let operation = "the answer of a coordinator that leads no more";
                        return Err(WireError::DeadlinePassed { operation });
                    }
                }
            }
        }
    }

    /// A new connection to the one that leads.
    ///
    /// # Errors
    /// Those of [`Connection::connect`], of one of them, if none can be reached.
    pub(crate) async fn connect(
        &self,
        endpoint: &Arc<Endpoint>,
    ) -> Result<Arc<Connection>, WireError> {
        let connecting = self.addresses.iter();
        let connecting = connecting.map(|address| Connection::connect(address, endpoint).boxed());
        select_ok(connecting)
            .await
            .map(|(connection, _)| connection)
    }
}
