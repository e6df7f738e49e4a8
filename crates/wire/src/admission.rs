//! Limits on connections: their number, their peers, and the descriptors that they leave free.
//!
//! Members of the cluster keep places that clients cannot take, so do clients at other addresses, and the
//! process keeps descriptors for its files. A peer that has been silent for some time since it connected gives its
//! place to a new one, so silent peers keep others out for a moment only.

use crate::error::WireError;
use crate::role::Role;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Time that a peer may take for its hello while others wait for its place. A handshake takes some milliseconds.
const SILENT_FOR: Duration = Duration::from_millis(250);

/// The limits on a process's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Of all peers together.
    pub count_max: usize,
    /// Of all clients together, and of peers before their hello.
    pub client_count_max: usize,
    /// Of the clients at one network address, and of such peers there.
    pub address_count_max: usize,
    /// Of all peers before their hello.
    pub nameless_count_max: usize,
    /// Of peers before their hello at one network address.
    pub nameless_address_count_max: usize,
    /// Descriptors that are left to files; a quarter of all where that is less.
    pub kept_descriptors: u64,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            count_max: 8192,
            client_count_max: 6144,
            address_count_max: 2048,
            nameless_count_max: 1024,
            nameless_address_count_max: 512,
            kept_descriptors: 512,
        }
    }
}

/// A limit that refuses a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionLimit {
    /// The descriptors that are left to files.
    Descriptors,
    /// All connections.
    Connections,
    /// Those of clients.
    Clients,
    /// Those of clients at one network address.
    Address,
    /// Those of peers before their hello.
    Nameless,
    /// The time for a hello, while others wait for the place.
    Displaced,
}

impl ConnectionLimit {
    /// All limits.
    pub const ALL: [Self; 6] = [
        Self::Descriptors,
        Self::Connections,
        Self::Clients,
        Self::Address,
        Self::Nameless,
        Self::Displaced,
    ];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Connections => "connections",
            Self::Clients => "client_connections",
            Self::Address => "address_connections",
            Self::Nameless => "unintroduced_connections",
            Self::Displaced => "displaced_connections",
        }
    }

    /// Returns the meaning for a peer, to be read after "it".
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Descriptors => "reserves its last descriptors for its files",
            Self::Connections => "has its maximum number of connections",
            Self::Clients => "has its maximum number of clients",
            Self::Address => "has its maximum number of clients from that address",
            Self::Nameless => "has its maximum number of peers without a hello",
            Self::Displaced => "needed the place for another peer",
        }
    }
}

/// The connections that a process has taken.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: ConnectionLimits,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    client_count: usize,
    /// Peers that have sent no hello yet, in the order in which they have come.
    nameless: BTreeMap<u64, Nameless>,
    /// The number of the next peer.
    next: u64,
    /// Invariant: no empty ones.
    by_address: BTreeMap<IpAddr, Here>,
}

/// A peer that has sent no hello yet.
#[derive(Debug)]
struct Nameless {
    address: IpAddr,
    came: Instant,
    /// Ends its connection.
    displace: oneshot::Sender<()>,
}

/// Places that one network address has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Here {
    client_count: usize,
    nameless_count: usize,
}

/// A connection's place among those that are taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    address: IpAddr,
    /// Whether it counts as a client's.
    is_client: bool,
    /// Its number among the peers that have sent no hello yet.
    number: u64,
    /// Completes when another peer takes the place.
    displaced: oneshot::Receiver<()>,
}

impl Admission {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Self { limits, taken })
    }

    /// Gives a connection that has just been accepted a place. Before its hello it counts as a client's.
    ///
    /// # Errors
    /// [`WireError::Full`].
    pub(crate) fn admit(
        self: &Arc<Self>,
        address: IpAddr,
        socket: BorrowedFd<'_>,
    ) -> Result<Place, WireError> {
        let number = u64::from(socket.as_raw_fd().unsigned_abs());
        if self.is_scarce(number, getrlimit(Resource::Nofile).current) {
            return Err(WireError::Full(ConnectionLimit::Descriptors));
        }
        let mut taken = self.lock();
        if taken.count >= self.limits.count_max {
            return Err(WireError::Full(ConnectionLimit::Connections));
        }
        if taken.client_count >= self.limits.client_count_max {
            return Err(WireError::Full(ConnectionLimit::Clients));
        }
        let here = taken.by_address.get(&address).copied().unwrap_or_default();
        if here.client_count >= self.limits.address_count_max {
            return Err(WireError::Full(ConnectionLimit::Address));
        }
        let is_full_here = here.nameless_count >= self.limits.nameless_address_count_max;
        let is_full = is_full_here || taken.nameless.len() >= self.limits.nameless_count_max;
        if is_full && !taken.displace(is_full_here.then_some(address)) {
            return Err(WireError::Full(ConnectionLimit::Nameless));
        }
        taken.count += 1;
        taken.client_count += 1;
        let number = taken.next;
        taken.next += 1;
        let (displace, displaced) = oneshot::channel();
        let nameless = Nameless {
            address,
            came: Instant::now(),
            displace,
        };
        taken.nameless.insert(number, nameless);
        let here = taken.by_address.entry(address).or_default();
        here.client_count += 1;
        here.nameless_count += 1;
        drop(taken);
        Ok(Place {
            admission: Arc::clone(self),
            address,
            is_client: true,
            number,
            displaced,
        })
    }

    /// Whether a socket of this number is too near the last descriptor. The system gives the lowest free
    /// number, so all numbers below it are in use.
    fn is_scarce(&self, number: u64, limit: Option<u64>) -> bool {
        limit.is_some_and(|limit| number + self.limits.kept_descriptors.min(limit / 4) >= limit)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn forget_client(&mut self, address: IpAddr) {
        self.client_count -= 1;
        self.change(address, |here| here.client_count -= 1);
    }

    fn forget_nameless(&mut self, number: u64) {
        if let Some(nameless) = self.nameless.remove(&number) {
            self.change(nameless.address, |here| here.nameless_count -= 1);
        }
    }

    /// Ends the connection of the peer that has been silent longest, of those at an address if one is given. Returns
    /// whether there is one that has had time enough.
    fn displace(&mut self, address: Option<IpAddr>) -> bool {
        let is_there = |(_, one): &(&u64, &Nameless)| address.is_none_or(|at| one.address == at);
        let oldest = self.nameless.iter().find(is_there);
        let silent = oldest.filter(|(_, oldest)| oldest.came.elapsed() >= SILENT_FOR);
        let Some((&number, &Nameless { address, .. })) = silent else {
            return false;
        };
        if let Some(oldest) = self.nameless.remove(&number) {
            self.change(address, |here| here.nameless_count -= 1);
            // It may have ended already.
            let _ = oldest.displace.send(());
        }
        true
    }

    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Here)) {
        if let Some(here) = self.by_address.get_mut(&address) {
            change(here);
            if *here == Here::default() {
                self.by_address.remove(&address);
            }
        }
    }
}

impl Place {
    /// Waits until another peer has taken the place, which cannot happen after the peer's hello.
    pub(crate) async fn displaced(&mut self) -> WireError {
        match (&mut self.displaced).await {
            Ok(()) => WireError::Full(ConnectionLimit::Displaced),
            Err(_) => std::future::pending().await,
        }
    }

    /// The peer has sent its hello. Members of the cluster leave clients their places.
    pub(crate) fn is_of(&mut self, role: Role) {
        let mut taken = self.admission.lock();
        taken.forget_nameless(self.number);
        let is_member = matches!(role, Role::Node | Role::Coordinator);
        if is_member && std::mem::take(&mut self.is_client) {
            taken.forget_client(self.address);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.admission.lock();
        taken.count -= 1;
        taken.forget_nameless(self.number);
        if self.is_client {
            taken.forget_client(self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connection_takes_the_descriptors_that_are_kept_for_files() {
        let admission = Admission::new(ConnectionLimits::default());
        let is_scarce = |number, limit| admission.is_scarce(number, Some(limit));
        assert!(!is_scarce(9_487, 10_000) && is_scarce(9_488, 10_000));
        // If there are few, a quarter is kept.
        assert!(!is_scarce(74, 100) && is_scarce(75, 100));
        assert!(!admission.is_scarce(1 << 20, None));
    }
}
