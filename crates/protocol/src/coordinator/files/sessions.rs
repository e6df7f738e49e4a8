//! The last renewals of the sessions of exclusively opened files.

use crate::locks::lock;
use crate::message::RENEW_EVERY_MS;
use gabion_meta::{PutId, SessionId};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Time that a session may not be displaced after its last renewal, in milliseconds: five times the period of these.
const SESSION_MS: u64 = 5 * RENEW_EVERY_MS;
/// Most files with a session: each is in memory.
pub(super) const SESSIONS_MAX: usize = 100_000;

/// When the clients of sessions were last heard of, by file.
#[derive(Debug)]
pub(super) struct Sessions(Mutex<BTreeMap<PutId, Heard>>);

#[derive(Clone, Copy, Debug)]
struct Heard {
    session: SessionId,
    at_ms: u64,
}

impl Sessions {
    /// The sessions of an earlier run.
    pub(super) fn new(open: Vec<(PutId, SessionId)>, now_ms: u64) -> Self {
        let at_ms = now_ms;
        let heard = |(file, session)| (file, Heard { session, at_ms });
        Self(Mutex::new(open.into_iter().map(heard).collect()))
    }

    /// For how much longer no other session may displace this one; none once it may.
    pub(super) fn left_ms(&self, file: PutId, session: SessionId, now_ms: u64) -> Option<u64> {
        let heard = lock(&self.0).get(&file).copied();
        let heard = heard.filter(|heard| heard.session == session)?;
        let left_ms = (heard.at_ms + SESSION_MS).saturating_sub(now_ms);
        (left_ms > 0).then_some(left_ms)
    }

    /// Whether the session of another file fits. Forgets sessions without renewals if there are too many.
    pub(super) fn has_room(&self, file: PutId, now_ms: u64) -> bool {
        let mut heard = lock(&self.0);
        if heard.len() >= SESSIONS_MAX {
            heard.retain(|_, heard| now_ms < heard.at_ms + SESSION_MS);
        }
        heard.len() < SESSIONS_MAX || heard.contains_key(&file)
    }

    /// A session has begun, in the place of any other.
    pub(super) fn begin(&self, file: PutId, session: SessionId, at_ms: u64) {
        lock(&self.0).insert(file, Heard { session, at_ms });
    }

    /// The client of a session is alive. Does nothing if another session has begun since.
    pub(super) fn renew(&self, file: PutId, session: SessionId, at_ms: u64) {
        let mut heard = lock(&self.0);
        let heard = heard.entry(file).or_insert(Heard { session, at_ms });
        if heard.session == session {
            heard.at_ms = at_ms;
        }
    }

    /// A session has ended.
    pub(super) fn forget(&self, file: PutId, session: SessionId) {
        let mut heard = lock(&self.0);
        if heard
            .get(&file)
            .is_some_and(|heard| heard.session == session)
        {
            heard.remove(&file);
        }
    }
}
