//! A client's session on a file that it has opened exclusively: its token, and its renewal.

use crate::task::Task;
use futures::FutureExt;
use gabion_meta::{FencingToken, PutId, SessionId};
use gabion_protocol::client_ports::ClientPorts;
use gabion_protocol::message::{RENEW_EVERY_MS, ask};
use gabion_protocol::ports::Ask as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Time limit of the coordinator's answer to a renewal or to the end of a session.
const RENEW_DEADLINE_MS: u64 = 2_000;

/// A client's session on a file. It ends with the last handle of the file.
pub(crate) struct Session {
    ports: Arc<dyn ClientPorts>,
    file: PutId,
    id: SessionId,
    token: FencingToken,
    state: Arc<State>,
    /// Ends with the session.
    _renewing: Task<()>,
}

#[derive(Default)]
struct State {
    /// Whether the coordinator has said that the session is the file's.
    opened: AtomicBool,
    /// Whether it may no longer write: another session has displaced it, or it is to end.
    over: AtomicBool,
    /// Whether the coordinator knows that it has ended.
    ended: AtomicBool,
}

impl Session {
    /// Begins to renew a session that is about to be opened.
    pub(crate) fn new(ports: &Arc<dyn ClientPorts>, file: PutId) -> Self {
        let state = Arc::<State>::default();
        let id = SessionId(ports.random());
        let (own, known) = (Arc::clone(ports), Arc::clone(&state));
        let renewing = async move {
            loop {
                own.sleep_ms(RENEW_EVERY_MS).await;
                let renew = ask::RenewExclusive { file, session: id };
                // A lost one is replaced by the next.
                let goes_on = own.ask_coordinator(renew, RENEW_DEADLINE_MS).await;
                if matches!(goes_on, Ok(false)) && known.opened.load(Ordering::Acquire) {
                    known.over.store(true, Ordering::Release);
                    known.ended.store(true, Ordering::Release);
                    return;
                }
            }
        };
        Self {
            ports: Arc::clone(ports),
            file,
            id,
            token: FencingToken::default(),
            state,
            _renewing: Task::spawn(&**ports, renewing),
        }
    }

    /// The session is the file's.
    pub(crate) fn opened(self, token: FencingToken) -> Self {
        self.state.opened.store(true, Ordering::Release);
        let mut opened = self;
        opened.token = token;
        opened
    }

    pub(crate) const fn id(&self) -> SessionId {
        self.id
    }

    /// The token of its writes.
    pub(crate) const fn token(&self) -> FencingToken {
        self.token
    }

    /// Another session has displaced it.
    pub(crate) fn note_over(&self) {
        self.state.over.store(true, Ordering::Release);
    }

    /// The coordinator has ended it.
    pub(crate) fn note_ended(&self) {
        self.state.ended.store(true, Ordering::Release);
    }

    /// Whether it may no longer write.
    pub(crate) fn is_over(&self) -> bool {
        self.state.over.load(Ordering::Acquire)
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
        if !self.state.ended.load(Ordering::Acquire) {
            // If the coordinator does not receive it, others may displace the session after its last renewal.
            let told = self.ports.ask_coordinator(self.close(), RENEW_DEADLINE_MS);
            self.ports.spawn(told.map(|_| ()).boxed());
        }
    }
}
