//! Room for the bodies of frames while they are read: peers together make a process hold no more than this.
//!
//! Clients and members of the cluster have separate rooms, so that clients cannot hold up nodes. Short bodies need
//! none: the limit on connections bounds them.

use crate::error::WireError;
use crate::role::Role;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The longest body that needs no room.
pub(crate) const SHORT_BYTES: usize = 64 << 10;
/// Bytes for which one permit stands.
const UNIT_BYTES: usize = 4 << 10;
/// The rate at which a body must arrive at least, in bytes a second, beside the stall timeout.
const RATE_MIN: u64 = 256 << 10;

/// The rooms of a process.
#[derive(Debug)]
pub(crate) struct Intake {
    clients: Semaphore,
    members: Semaphore,
    units: usize,
}

impl Intake {
    /// Rooms of `bytes` each.
    pub(crate) fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT_BYTES).max(1);
        Self {
            clients: Semaphore::new(units),
            members: Semaphore::new(units),
            units,
        }
    }

    /// Waits for room for a body of this length from a peer of this role. A body that is longer than the whole room
    /// waits until it has the room for itself.
    pub(crate) async fn room(
        &self,
        role: Role,
        body_bytes: usize,
    ) -> Result<Option<SemaphorePermit<'_>>, WireError> {
        if body_bytes <= SHORT_BYTES {
            return Ok(None);
        }
        let room = match role {
            Role::Client | Role::Operator => &self.clients,
            Role::Node | Role::Coordinator => &self.members,
        };
        let units = body_bytes.div_ceil(UNIT_BYTES).min(self.units) as u32;
        let permit = room.acquire_many(units).await;
        let closed = |_| WireError::Closed("this process is closing".to_owned());
        permit.map(Some).map_err(closed)
    }
}

/// The longest time in which a body may arrive, beside that of a stall.
pub(crate) fn transfer_limit(body_bytes: usize) -> Duration {
    Duration::from_millis(body_bytes as u64 * 1000 / RATE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn long_bodies_wait_for_room_and_clients_do_not_hold_up_nodes() {
        let intake = Intake::new(1 << 20);
        let held = intake.room(Role::Client, 900 << 10).await.unwrap();
        assert!(held.is_some());
        let more = intake.room(Role::Operator, 900 << 10);
        assert!(more.now_or_never().is_none(), "there is no room");
        assert!(
            intake
                .room(Role::Client, SHORT_BYTES)
                .await
                .unwrap()
                .is_none()
        );
        assert!(intake.room(Role::Node, 900 << 10).await.unwrap().is_some());
        drop(held);
        // One longer than all room still comes through, alone.
        assert!(intake.room(Role::Client, 64 << 20).await.unwrap().is_some());
    }
}
