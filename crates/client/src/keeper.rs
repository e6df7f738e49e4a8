//! Signs of life of a put or a replacement, and its abort when its client gives it up.

use crate::client::COORDINATOR_DEADLINE_MS;
use crate::task::Task;
use futures::FutureExt;
use gabion_protocol::client_ports::ClientPorts;
use gabion_protocol::message::{OpenPut, ask};
use gabion_protocol::ports::Ask as _;
use std::sync::Arc;

/// Keeps a put alive, and aborts it unless it is released.
pub(crate) struct Keeper {
    ports: Arc<dyn ClientPorts>,
    put: OpenPut,
    /// Ends with the keeper.
    _touching: Task<()>,
    is_owed: bool,
}

impl Keeper {
    /// Sends a sign of life of the put at this interval.
    pub(crate) fn new(ports: Arc<dyn ClientPorts>, put: OpenPut, touch_every_ms: u64) -> Self {
        let touching = Arc::clone(&ports);
        let touching = Task::spawn(&*ports, async move {
            loop {
                touching.sleep_ms(touch_every_ms).await;
                // A lost one is replaced by the next; if the put is gone, its commit reports that.
                let touch = ask::TouchPut(put);
                let _ = touching
                    .ask_coordinator(touch, COORDINATOR_DEADLINE_MS)
                    .await;
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

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.is_owed {
            let abort = ask::AbortPut(self.put);
            let told = self.ports.ask_coordinator(abort, COORDINATOR_DEADLINE_MS);
            self.ports.spawn(told.map(|_| ()).boxed());
        }
    }
}
