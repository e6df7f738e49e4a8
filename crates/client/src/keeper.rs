//! Renews a put or a replacement, and aborts it if its client drops it.

use crate::client::COORDINATOR_DEADLINE_MS;
use crate::task::Task;
use futures::FutureExt;
use gabion_protocol::client_ports::ClientPorts;
use gabion_protocol::message::{CLIENT_SESSION_MS, OpenPut, RENEW_EVERY_MS, ask};
use gabion_protocol::ports::{Ask as _, CoordinatorError};
use std::sync::Arc;

/// Time limit of the coordinator's answer to a renewal.
const RENEW_DEADLINE_MS: u64 = 2_000;
/// Pause after a renewal without an answer.
const RETRY_AFTER_MS: u64 = 250;

// Two renewals in a row may get lost.
const _: () = assert!(
    RENEW_EVERY_MS + 2 * (RENEW_DEADLINE_MS + RETRY_AFTER_MS) + RENEW_DEADLINE_MS
        < CLIENT_SESSION_MS
);

/// Keeps a put alive, and aborts it unless it is released.
pub(crate) struct Keeper {
    ports: Arc<dyn ClientPorts>,
    put: OpenPut,
    /// Ends with the keeper.
    _touching: Task<()>,
    is_owed: bool,
}

impl Keeper {
    /// Renews the put as often as a client's session.
    pub(crate) fn new(ports: Arc<dyn ClientPorts>, put: OpenPut) -> Self {
        let touching = Arc::clone(&ports);
        let touching = Task::spawn(&*ports, async move {
            let mut pause_ms = RENEW_EVERY_MS;
            loop {
                touching.sleep_ms(pause_ms).await;
                pause_ms = touch(&*touching, put).await;
            }
        });
        Self {
            ports,
            put,
            _touching: touching,
            is_owed: true,
        }
    }

    /// Releases a committed put.
    pub(crate) fn release(&mut self) {
        self.is_owed = false;
    }

    /// Aborts the put, and waits briefly until the coordinator knows.
    pub(crate) async fn abort(&mut self) {
        self.is_owed = false;
        let abort = ask::AbortPut(self.put);
        // If the coordinator does not receive this, it aborts the put at its timeout.
        let _ = self.ports.ask_coordinator(abort, 1_000).await;
    }
}

/// Renews a put. Returns the pause before the next renewal.
async fn touch(ports: &dyn ClientPorts, put: OpenPut) -> u64 {
    let touched = ports.ask_coordinator(ask::TouchPut(put), RENEW_DEADLINE_MS);
    match touched.await {
        Err(CoordinatorError::Silent(_) | CoordinatorError::Busy(_)) => RETRY_AFTER_MS,
        // If the put is gone, its commit reports that.
        _ => RENEW_EVERY_MS,
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.is_owed {
            let abort = ask::AbortPut(self.put);
            let told = self.ports.ask_coordinator(abort, COORDINATOR_DEADLINE_MS);
            self.ports.spawn(told.map(|_| ()).boxed());
        }
    }
}
