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
    /// The last renewal; none once the client has left.
    at_ms: Option<u64>,
    /// Whether all earlier writes had ended, which a coordinator that was restarted does not know.
    has_begun: bool,
}

impl Heard {
    const fn new(session: SessionId, now_ms: u64) -> Self {
        Self {
            session,
            at_ms: Some(now_ms),
            has_begun: false,
        }
    }

    fn until_ms(&self) -> u64 {
        self.at_ms.map_or(0, |at_ms| at_ms + SESSION_MS)
    }

    fn note_life(&mut self, session: SessionId, now_ms: u64) {
        if self.session == session && self.at_ms.is_some() {
            self.at_ms = Some(now_ms);
        }
    }
}

impl Sessions {
    /// The sessions of an earlier run.
    pub(super) fn new(open: Vec<(PutId, SessionId)>, now_ms: u64) -> Self {
        let heard = |(file, session)| (file, Heard::new(session, now_ms));
        Self(Mutex::new(open.into_iter().map(heard).collect()))
    }

    /// For how much longer no other session may displace this one; none once it may.
    pub(super) fn left_ms(&self, file: PutId, session: SessionId, now_ms: u64) -> Option<u64> {
        let heard = lock(&self.0).get(&file).copied();
        let heard = heard.filter(|heard| heard.session == session)?;
        let left_ms = heard.until_ms().saturating_sub(now_ms);
        (left_ms > 0).then_some(left_ms)
    }

    /// Whether the session of another file fits. Forgets sessions without renewals if there are too many.
    pub(super) fn has_room(&self, file: PutId, now_ms: u64) -> bool {
        let mut heard = lock(&self.0);
        if heard.len() >= SESSIONS_MAX {
            heard.retain(|_, heard| now_ms < heard.until_ms());
        }
        heard.len() < SESSIONS_MAX || heard.contains_key(&file)
    }

    /// A session takes the place of any other. It begins when all earlier writes have ended.
    pub(super) fn take_over(&self, file: PutId, session: SessionId, now_ms: u64) {
        lock(&self.0).insert(file, Heard::new(session, now_ms));
    }

    /// All earlier writes have ended. Does nothing if another session has come since.
    pub(super) fn begin(&self, file: PutId, session: SessionId) {
        if let Some(heard) = lock(&self.0).get_mut(&file)
            && heard.session == session
        {
            heard.has_begun = true;
        }
    }

    /// The client of a session is alive. Does nothing if it has left, or if another session has come since.
    pub(super) fn renew(&self, file: PutId, session: SessionId, now_ms: u64) {
        let mut heard = lock(&self.0);
        let heard = heard.entry(file).or_insert(Heard::new(session, now_ms));
        heard.note_life(session, now_ms);
    }

    /// The same before it is known whether the session is still the file's.
    pub(super) fn note_life(&self, file: PutId, session: SessionId, now_ms: u64) {
        if let Some(heard) = lock(&self.0).get_mut(&file) {
            heard.note_life(session, now_ms);
        }
    }

    /// The client of a session has left. Returns whether the session may end: if it has not begun, an earlier client
    /// may still write, so the session stays until another one displaces it.
    pub(super) fn leave(&self, file: PutId, session: SessionId) -> bool {
        let mut heard = lock(&self.0);
        let heard = heard.entry(file).or_insert(Heard::new(session, 0));
        if heard.session == session {
            heard.at_ms = None;
        }
        heard.session != session || heard.has_begun
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
