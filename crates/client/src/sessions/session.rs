//! A session of this client: its lease, and the numbers of its requests.

use gabion_meta::ClientSessionId;
use gabion_protocol::locks::lock;
use gabion_protocol::message::{CLIENT_LEASE_MS, Opener};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// A session, which the client renews.
pub(crate) struct ClientSession {
    id: ClientSessionId,
    state: Mutex<State>,
}

struct State {
    /// The client may rely on its locks until then.
    leased_until_ms: u64,
    /// Another owner may have its locks, and its files may be closed.
    is_over: bool,
    /// The coordinator does not know which files this client has open.
    is_unreported: bool,
    next_number: u64,
    /// The numbers of requests that wait for an answer.
    awaited: BTreeSet<u64>,
}

/// A request of the session that waits for an answer, until it is dropped.
pub(crate) struct Awaited<'s> {
    session: &'s ClientSession,
    /// Its number.
    pub(crate) number: u64,
    /// The lowest number that waits.
    pub(crate) oldest: u64,
}

impl ClientSession {
    /// The session that the coordinator has begun in answer to a request of `asked_ms`. Its numbers follow those of
    /// the one before.
    pub(super) fn new(
        id: ClientSessionId,
        asked_ms: u64,
        before: Option<&Self>,
        is_unreported: bool,
    ) -> Self {
        Self {
            id,
            state: Mutex::new(State {
                leased_until_ms: asked_ms.saturating_add(CLIENT_LEASE_MS),
                is_over: false,
                is_unreported,
                next_number: before.map_or(1, |before| lock(&before.state).next_number),
                awaited: BTreeSet::new(),
            }),
        }
    }

    pub(crate) const fn id(&self) -> ClientSessionId {
        self.id
    }

    /// Whether its locks may be another owner's.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// Whether no other owner can have its locks at this moment.
    pub(crate) fn is_leased(&self, now_ms: u64) -> bool {
        let state = lock(&self.state);
        !state.is_over && now_ms < state.leased_until_ms
    }

    /// The coordinator has ended it.
    pub(crate) fn note_over(&self) {
        lock(&self.state).is_over = true;
    }

    /// The coordinator has renewed it in answer to a request of `asked_ms`.
    pub(super) fn note_renewed(&self, asked_ms: u64) {
        // The lease counts from before the request: the coordinator hears it later.
        let until_ms = asked_ms.saturating_add(CLIENT_LEASE_MS);
        let mut state = lock(&self.state);
        state.leased_until_ms = state.leased_until_ms.max(until_ms);
    }

    /// Whether the coordinator is to be told all open files.
    pub(super) fn is_unreported(&self) -> bool {
        lock(&self.state).is_unreported
    }

    /// Notes whether the coordinator is to be told all open files.
    pub(super) fn note_unreported(&self, is_unreported: bool) {
        lock(&self.state).is_unreported = is_unreported;
    }

    /// Gives a request its number.
    pub(crate) fn begin(&self) -> Awaited<'_> {
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

impl Awaited<'_> {
    /// It as a request about open files.
    pub(super) const fn opener(&self) -> Opener {
        Opener {
            session: self.session.id,
            number: self.number,
            oldest: self.oldest,
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        lock(&self.session.state).awaited.remove(&self.number);
    }
}
