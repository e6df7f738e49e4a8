//! Finds the coordinator: among several processes that share their metadata, one leads, and only the leader accepts
//! connections. A process knows all addresses, and finds the leader.
//!
//! A paused coordinator still has its connections, so an open connection proves nothing. If an answer takes long, or if
//! the process answers that it may not lead, new connections try the other addresses; a paused coordinator does not
//! complete them.

use crate::body::Rpc;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::WireError;
use crate::peers::{Peers, as_coordinator};
use futures::future::select_ok;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// Time for an answer before the other addresses are tried.
const DOUBT_AFTER: Duration = Duration::from_secs(1);

/// Pause before the other addresses are tried again, after none of them has answered.
const PAUSE: Duration = Duration::from_millis(200);

/// The addresses in a list of coordinators, separated by commas, or by `+` where commas separate options.
pub fn coordinator_addresses(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', '+']).map(str::trim)
}

/// The number of an address, the delay before it was tried, and the connection.
type Attempt = (usize, Duration, Result<Arc<Connection>, WireError>);

/// The addresses of the coordinator.
#[derive(Debug)]
pub(crate) struct Coordinators {
    /// As `host:port`; at least one.
    addresses: Vec<String>,
    /// The one that led last.
    present: AtomicUsize,
    /// The time of the last trial of the other addresses that failed, and its errors. Locked during a trial.
    tried: Mutex<Option<(Instant, Vec<WireError>)>>,
}

impl Coordinators {
    /// Those in a list.
    pub(crate) fn new(list: &str) -> Self {
        Self {
            addresses: coordinator_addresses(list).map(str::to_owned).collect(),
            present: AtomicUsize::new(0),
            tried: Mutex::default(),
        }
    }

    /// A connection to the one that leads, as far as is known.
    ///
    /// # Errors
    /// Those of [`Peers::coordinator`], if none can be reached. One that cannot pass comes first: a list with an
    /// address of another cluster is wrong.
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
                other = self.other_than(peers, present, DOUBT_AFTER), if self.has_others() => {
                    if let Ok(other) = other {
                        return Ok(other);
                    }
                }
            }
        };
        if !self.has_others() {
            return Err(error);
        }
        let mut errors = vec![error];
        match self.other_than(peers, present, Duration::ZERO).await {
            Ok(other) => return Ok(other),
            Err(others) => errors.extend(others),
        }
        let at = errors.iter().position(WireError::is_lasting);
        Err(errors.swap_remove(at.unwrap_or(0)))
    }

    /// The address of the one that led when last asked.
    pub(crate) fn present(&self) -> &str {
        &self.addresses[self.present.load(Ordering::Relaxed)]
    }

    /// Whether there is more than one address.
    pub(crate) fn has_others(&self) -> bool {
        self.addresses.len() > 1
    }

    /// After a delay, one of the other addresses at which a coordinator takes a new connection. From then on it is the
    /// present one.
    ///
    /// # Errors
    /// Those of all of them, if there is none.
    async fn other_than(
        &self,
        peers: &Peers,
        present: usize,
        delay: Duration,
    ) -> Result<(usize, Arc<Connection>), Vec<WireError>> {
        sleep(delay).await;
        let mut tried = self.tried.lock().await;
        let now = self.present.load(Ordering::Relaxed);
        if now != present {
            // Another caller has found it.
            let reached = peers.coordinator(&self.addresses[now]).await;
            return reached.map(|one| (now, one)).map_err(|error| vec![error]);
        }
        if let Some((at, errors)) = &*tried
            && at.elapsed() < PAUSE
        {
            return Err(errors.clone());
        }
        let others = (0..self.addresses.len()).filter(|&at| at != present);
        let mut reaching: FuturesUnordered<_> = others
            .map(|at| self.reach_anew(peers, at, Duration::ZERO))
            .collect();
        // Those that have not failed yet.
        let mut silent_count = reaching.len();
        let mut errors = Vec::new();
        while silent_count > 0
            && let Some((at, delay, reached)) = reaching.next().await
        {
            let error = match reached {
                Ok(connection) => {
                    peers.adopt(&self.addresses[at], &connection).await;
                    self.present.store(at, Ordering::Relaxed);
                    return Ok((at, connection));
                }
                Err(error) => error,
            };
            if !error.is_lasting() {
                // It may begin to lead before a silent one has failed.
                reaching.push(self.reach_anew(peers, at, PAUSE));
            }
            silent_count -= usize::from(delay.is_zero());
            if delay.is_zero() || error.is_lasting() {
                errors.push(error);
            }
        }
        *tried = Some((Instant::now(), errors.clone()));
        Err(errors)
    }

    /// After a delay, a new connection to the coordinator at an address.
    async fn reach_anew(&self, peers: &Peers, at: usize, delay: Duration) -> Attempt {
        sleep(delay).await;
        let reached = peers.coordinator_anew(&self.addresses[at]).await;
        (at, delay, reached)
    }

    /// Asks the one that leads. If another one leads before the answer comes, the request may have been carried out.
    ///
    /// # Errors
    /// Those of [`Coordinators::reach`] and [`Connection::call`].
    pub(crate) async fn call<R: Rpc>(
        &self,
        peers: &Peers,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Reply, WireError> {
        let (at, connection) = self.reach_as(peers).await?;
        let half = deadline.saturating_duration_since(Instant::now()) / 2;
        let doubt_after = DOUBT_AFTER.min(half);
        let mut answer = pin!(connection.call(request, deadline));
        loop {
            tokio::select! {
                answered = &mut answer => {
                    let is_elsewhere = answered.as_ref().is_ok_and(R::is_elsewhere);
                    if !is_elsewhere || !self.has_others() {
                        return answered;
                    }
                    let Ok((_, other)) = self.other_than(peers, at, Duration::ZERO).await else {
                        return answered;
                    };
                    return if connection.is_of_same_process(&other) {
                        answered
                    } else {
                        self.leave(peers, at)
                    };
                }
                other = self.other_than(peers, at, doubt_after), if self.has_others() => {
                    let Ok((_, other)) = other else { continue };
                    if connection.is_of_same_process(&other) {
                        // It has two addresses, and takes its time.
                        return answer.await;
                    }
                    return self.leave(peers, at);
                }
            }
        }
    }

    /// Leaves a coordinator without its answer.
    fn leave<T>(&self, peers: &Peers, at: usize) -> Result<T, WireError> {
        peers.leave(&self.addresses[at]);
        let operation = "the answer of a coordinator that no longer leads";
        Err(WireError::DeadlinePassed { operation })
    }

    /// A new connection to the one that leads.
    ///
    /// # Errors
    /// Those of [`Connection::connect`], of one of them, if none can be reached; [`WireError::Untrusted`] when the
    /// certificate there is not a coordinator's.
    pub(crate) async fn connect(
        &self,
        endpoint: &Arc<Endpoint>,
    ) -> Result<Arc<Connection>, WireError> {
        let connecting = self.addresses.iter();
        let connecting = connecting.map(|address| Connection::connect(address, endpoint).boxed());
        let (connection, _) = select_ok(connecting).await?;
        as_coordinator(connection)
    }
}
