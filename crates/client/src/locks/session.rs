//! The client's session of locks: its renewal, its lease, and the numbers of its requests.

use crate::task::Task;
use gabion_meta::LockSessionId;
use gabion_protocol::client_ports::ClientPorts;
use gabion_protocol::locks::lock;
use gabion_protocol::message::{LOCK_LEASE_MS, RENEW_EVERY_MS, ask};
use gabion_protocol::ports::{Ask as _, CoordinatorError};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Time limit of the coordinator's answer to a renewal.
const RENEW_DEADLINE_MS: u64 = 2_000;
/// Pause after a renewal without an answer.
const RETRY_AFTER_MS: u64 = 250;

/// A session of locks, which is renewed until it is dropped.
pub(super) struct LockSession {
    id: LockSessionId,
    state: Arc<Mutex<State>>,
    /// Ends with the session.
    _renewing: Task<()>,
}

struct State {
    /// The client may rely on its locks until then.
    leased_until_ms: u64,
    /// Another owner may have its locks.
    is_over: bool,
    next_number: u64,
    /// The numbers of requests that wait for an answer.
    awaited: BTreeSet<u64>,
}

/// A request of the session that waits for an answer, until it is dropped.
pub(super) struct Awaited<'s> {
    session: &'s LockSession,
    /// Its number.
    pub(super) number: u64,
    /// The lowest number that waits.
    pub(super) oldest: u64,
}

impl LockSession {
    /// The session that the coordinator has begun in answer to a request of `asked_ms`.
    pub(super) fn new(ports: &Arc<dyn ClientPorts>, id: LockSessionId, asked_ms: u64) -> Self {
        let state = Arc::new(Mutex::new(State {
            leased_until_ms: asked_ms.saturating_add(LOCK_LEASE_MS),
            is_over: false,
            next_number: 1,
            awaited: BTreeSet::new(),
        }));
        let renewing = renew(Arc::clone(ports), id, Arc::clone(&state));
        Self {
            id,
            state,
            _renewing: Task::spawn(&**ports, renewing),
        }
    }

    pub(super) const fn id(&self) -> LockSessionId {
        self.id
    }

    /// Whether its locks may be another owner's.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// Whether no other owner can have its locks at this moment.
    pub(super) fn is_leased(&self, now_ms: u64) -> bool {
        let state = lock(&self.state);
        !state.is_over && now_ms < state.leased_until_ms
    }

    /// The coordinator has ended it.
    pub(super) fn note_over(&self) {
        lock(&self.state).is_over = true;
    }

    /// Gives a request its number.
    pub(super) fn begin(&self) -> Awaited<'_> {
        let mut state = lock(&self.state);
        let number = state.next_number;
        state.next_number += 1;
        state.awaited.insert(number);
        let oldest = state.awaited.first().copied().unwrap_or(number);
        Awaited {
            session: self,
            number,
            oldest,
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        lock(&self.session.state).awaited.remove(&self.number);
    }
}

async fn renew(ports: Arc<dyn ClientPorts>, id: LockSessionId, state: Arc<Mutex<State>>) {
    let mut pause_ms = RENEW_EVERY_MS;
    loop {
        ports.sleep_ms(pause_ms).await;
        // The lease counts from before the request: the coordinator hears it later.
        let asked_ms = ports.now_ms();
        let renewed = match ports.reach_coordinator(RENEW_DEADLINE_MS).await {
            Ok(()) => {
                let renew = ask::RenewLocks(id);
                ports.ask_coordinator(renew, RENEW_DEADLINE_MS).await
            }
            Err(error) => Err(CoordinatorError::Silent(error)),
        };
        let mut state = lock(&state);
        pause_ms = match renewed {
            Ok(true) if !state.is_over => {
                state.leased_until_ms = asked_ms.saturating_add(LOCK_LEASE_MS);
                RENEW_EVERY_MS
            }
            Ok(_) => {
                state.is_over = true;
                return;
            }
            Err(_) => RETRY_AFTER_MS,
        };
    }
}
