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

impl State {
    /// Asks for a renewal. Returns whether the coordinator has ended the session. A question from before the session
    /// was opened may be answered by a coordinator that does not know it yet, so that refusal means nothing.
    async fn ends_by<E, F>(&self, ask: impl FnOnce() -> F) -> bool
    where
        F: Future<Output = Result<bool, E>>,
    {
        let was_opened = self.opened.load(Ordering::Acquire);
        // A lost answer is replaced by the next.
        let has_ended = matches!(ask().await, Ok(false)) && was_opened;
        if has_ended {
            self.over.store(true, Ordering::Release);
            self.ended.store(true, Ordering::Release);
        }
        has_ended
    }
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
                let ask = || own.ask_coordinator(renew, RENEW_DEADLINE_MS);
                if known.ends_by(ask).await {
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::channel::oneshot;
    use std::pin::pin;

    #[test]
    fn a_refusal_of_a_renewal_from_before_the_open_ends_no_session() {
        let state = State::default();
        let (answer, answered) = oneshot::channel();
        let mut early = pin!(state.ends_by(|| answered));
        assert_eq!(early.as_mut().now_or_never(), None);
        state.opened.store(true, Ordering::Release);
        answer.send(false).expect("it waits");
        assert_eq!(early.now_or_never(), Some(false));
        assert!(!state.over.load(Ordering::Acquire));
        let refused = || std::future::ready(Ok::<_, ()>(false));
        assert_eq!(state.ends_by(refused).now_or_never(), Some(true));
        assert!(state.over.load(Ordering::Acquire));
    }
}
