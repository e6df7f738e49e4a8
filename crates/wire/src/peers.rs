//! The connections that a process has opened, by address.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::{REPLACED, WireError};
use crate::role::Role;
use gabion_layout::NodeId;
use gabion_protocol::ports::Passage;

/// After a failed attempt, further ones fail at once for this time.
const BACK_OFF: Duration = Duration::from_millis(200);

/// Connections by address, made on demand and shared.
///
/// All callers of one address share one attempt at a time. A connection that closed is replaced
/// when it is next asked for. This type retries nothing: only the caller knows whether a request
/// may be sent again.
pub struct Peers {
    endpoint: Arc<Endpoint>,
    slots: StdMutex<BTreeMap<String, Arc<Mutex<Slot>>>>,
}

/// The state of one address.
#[derive(Default)]
enum Slot {
    #[default]
    Empty,
    Open(Arc<Connection>),
    Failed {
        retry_at: Instant,
        error: WireError,
    },
}

impl Peers {
    /// No connections yet; later ones belong to `endpoint`.
    pub fn new(endpoint: Arc<Endpoint>) -> Self {
        Self {
            endpoint,
            slots: StdMutex::default(),
        }
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// The connection to `address` (`host:port`), made if there is none. An attempt takes at
    /// most twice [`crate::Options::connect_timeout`]; a caller with less time sets its own
    /// timeout.
    ///
    /// # Errors
    /// Those of [`Connection::connect`]; for a short time after a failure the same one again.
    pub async fn get(&self, address: &str) -> Result<Arc<Connection>, WireError> {
        let slot = self.slot(address);
        // Other callers wait here while one of them connects; if that one is cancelled, the next tries.
        let mut slot = slot.lock().await;
        match &*slot {
            Slot::Open(connection) if !connection.is_closed() => return Ok(Arc::clone(connection)),
            Slot::Failed { retry_at, error } if Instant::now() < *retry_at => {
                return Err(error.clone());
            }
            _ => {}
        }
        let connected = Connection::connect(address, &self.endpoint).await;
        *slot = match &connected {
            Ok(connection) => Slot::Open(Arc::clone(connection)),
            Err(error) => Slot::Failed {
                retry_at: Instant::now() + BACK_OFF,
                error: error.clone(),
            },
        };
        connected
    }

    /// The connection to the coordinator, which should be at `address`.
    ///
    /// # Errors
    /// Those of [`Peers::get`]; [`WireError::Untrusted`] when the certificate there is not a coordinator's.
    pub async fn coordinator(&self, address: &str) -> Result<Arc<Connection>, WireError> {
        as_coordinator(self.get(address).await?)
    }

    /// A new connection to the coordinator at `address`: an open one would not show that it still answers.
    ///
    /// # Errors
    /// Those of [`Peers::coordinator`].
    pub(crate) async fn coordinator_anew(
        &self,
        address: &str,
    ) -> Result<Arc<Connection>, WireError> {
        as_coordinator(Connection::connect(address, &self.endpoint).await?)
    }

    /// Uses a connection for `address` from now on, and closes an earlier one.
    pub(crate) async fn adopt(&self, address: &str, connection: &Arc<Connection>) {
        let slot = self.slot(address);
        let open = Slot::Open(Arc::clone(connection));
        let earlier = std::mem::replace(&mut *slot.lock().await, open);
        if let Slot::Open(earlier) = earlier {
            earlier.close(REPLACED);
        }
    }

    /// The open connection to `address`, unless another one is being made.
    pub(crate) fn open_to(&self, address: &str) -> Option<Arc<Connection>> {
        let slot = self.slot(address);
        // While the slot is locked, its holder connects.
        match slot.try_lock().as_deref() {
            Ok(Slot::Open(connection)) if !connection.is_closed() => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    /// Uses a connection for `address` in place of another one, which stays open. If that one is not in use any more,
    /// the new one is closed. Returns whether it is in use.
    pub(crate) async fn put_in_place_of(
        &self,
        (address, earlier): (&str, &Arc<Connection>),
        new: &Arc<Connection>,
    ) -> bool {
        let slot = self.slot(address);
        let mut slot = slot.lock().await;
        let is_in_use = matches!(&*slot, Slot::Open(open) if Arc::ptr_eq(open, earlier));
        if is_in_use {
            *slot = Slot::Open(Arc::clone(new));
        } else {
            new.close(REPLACED);
        }
        is_in_use
    }

    /// Closes the connection to `address`, if there is one.
    pub(crate) fn leave(&self, address: &str) {
        // While the slot is locked, its holder connects.
        if let Ok(mut slot) = self.slot(address).try_lock()
            && let Slot::Open(connection) = std::mem::take(&mut *slot)
        {
            connection.close("another coordinator leads");
        }
    }

    /// The connection to `node`, which should be at `address`. Another node may have its address by now, or
    /// the same node's successor with an empty disk, whose answers must not be taken for those of `node`.
    ///
    /// # Errors
    /// Those of [`Peers::get`]; [`WireError::WrongNode`].
    pub async fn reach(&self, node: NodeId, address: &str) -> Result<Arc<Connection>, WireError> {
        let connection = self.get(address).await?;
        let found = connection.peer().node;
        if found != Some(node) {
            return Err(WireError::WrongNode {
                wanted: node,
                found,
            });
        }
        Ok(connection)
    }

    /// The progress of the connection to `address`; none without a connection.
    pub fn passage(&self, address: &str) -> Passage {
        let open = self.open_to(address);
        open.map_or_else(Passage::default, |connection| connection.passage())
    }

    fn slot(&self, address: &str) -> Arc<Mutex<Slot>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(address) {
            return Arc::clone(slot);
        }
        let slot = Arc::<Mutex<Slot>>::default();
        slots.insert(address.to_owned(), Arc::clone(&slot));
        slot
    }
}

/// The connection, unless its peer's certificate is that of another process than a coordinator.
pub(crate) fn as_coordinator(connection: Arc<Connection>) -> Result<Arc<Connection>, WireError> {
    match connection.certified() {
        Some(certified) if certified.name.role != Role::Coordinator => {
            let holder = certified.name.holder();
            let reason = format!("the coordinator's address is that of {holder}");
            Err(WireError::Untrusted(reason))
        }
        _ => Ok(connection),
    }
}
