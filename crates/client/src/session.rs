//! A client's session on a file that it has opened for itself alone: its token, and its signs of life.

use crate::task::Task;
use futures::FutureExt;
use gabion_meta::{FencingToken, PutId, SessionId};
use gabion_protocol::client_ports::ClientPorts;
use gabion_protocol::message::{RENEW_EVERY_MS, ask};
use gabion_protocol::ports::Ask as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Time limit of the coordinator's answer to a sign of life.
const RENEW_DEADLINE_MS: u64 = 2_000;

/// A client's session on a file. It ends with the last handle of the file.
pub(crate) struct Session {
    ports: Arc<dyn ClientPorts>,
    file: PutId,
    id: SessionId,
    pub(crate) token: FencingToken,
    /// Whether another session has displaced it, or it has ended.
    is_over: Arc<AtomicBool>,
    /// Ends with the session.
    _renewing: Task<()>,
}

impl Session {
    /// Begins to give signs of life.
    pub(crate) fn new(
        ports: &Arc<dyn ClientPorts>,
        file: PutId,
        id: SessionId,
        token: FencingToken,
    ) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let (own, over) = (Arc::clone(ports), Arc::clone(&is_over));
        let renewing = async move {
            loop {
                own.sleep_ms(RENEW_EVERY_MS).await;
                let renew = ask::RenewExclusive { file, session: id };
                // A lost one is replaced by the next.
                if let Ok(false) = own.ask_coordinator(renew, RENEW_DEADLINE_MS).await {
                    over.store(true, Ordering::Release);
                    return;
                }
            }
        };
        Self {
            ports: Arc::clone(ports),
            file,
            id,
            token,
            is_over,
            _renewing: Task::spawn(&**ports, renewing),
        }
    }

    /// Another session has displaced it.
    pub(crate) fn note_over(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether it may no longer write.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The request that ends it; it does not write from now on.
    pub(crate) fn close(&self) -> ask::CloseExclusive {
        self.note_over();
        ask::CloseExclusive {
            file: self.file,
            session: self.id,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_over() {
            let told = self.ports.ask_coordinator(self.close(), RENEW_DEADLINE_MS);
            self.ports.spawn(told.map(|_| ()).boxed());
        }
    }
}
