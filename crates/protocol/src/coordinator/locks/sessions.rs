//! Sessions of locks, as far as memory is enough: when each was heard, and which of its requests count no more.

use crate::coordinator::core::lock;
use crate::message::{LOCK_SESSION_MS, ask};
use gabion_meta::LockSessionId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Most sessions: each is in memory.
const SESSIONS_MAX: usize = 100_000;
/// Most abandoned requests of a session that are remembered one by one.
const VOIDED_MAX: usize = 4_096;

/// The sessions by their numbers.
#[derive(Debug)]
pub(super) struct LockSessions(Mutex<BTreeMap<LockSessionId, Known>>);

#[derive(Debug)]
struct Known {
    heard_ms: u64,
    /// Its locks are being freed: it gets no more and cannot be renewed.
    is_ending: bool,
    /// Its client waits for no answer to a request below this number.
    oldest: u64,
    /// Requests above `oldest` whose answer its client does not wait for.
    voided: BTreeSet<u64>,
}

impl Known {
    const fn new(heard_ms: u64) -> Self {
        Self {
            heard_ms,
            is_ending: false,
            oldest: 0,
            voided: BTreeSet::new(),
        }
    }
}

/// Whether a request may take effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It may.
    Counts,
    /// Its client does not wait for it any more.
    Abandoned,
    /// Its session has ended.
    Over,
}

impl LockSessions {
    /// Those of an earlier run: each gets the full time.
    pub(super) fn new(sessions: Vec<LockSessionId>, now_ms: u64) -> Self {
        let known = sessions
            .into_iter()
            .map(|session| (session, Known::new(now_ms)));
        Self(Mutex::new(known.collect()))
    }

    /// Whether another session fits.
    pub(super) fn has_room(&self) -> bool {
        lock(&self.0).len() < SESSIONS_MAX
    }

    /// A session has begun.
    pub(super) fn begin(&self, session: LockSessionId, now_ms: u64) {
        lock(&self.0).insert(session, Known::new(now_ms));
    }

    /// The client of a session is alive. Whether the session goes on.
    pub(super) fn renew(&self, session: LockSessionId, now_ms: u64) -> bool {
        match lock(&self.0).get_mut(&session) {
            Some(known) if !known.is_ending => {
                known.heard_ms = now_ms;
                true
            }
            _ => false,
        }
    }

    /// Notes which requests a session's client waits for no longer.
    pub(super) fn note(&self, asked: &ask::SetLock) {
        let mut sessions = lock(&self.0);
        let Some(known) = sessions.get_mut(&asked.session) else {
            return;
        };
        known.oldest = known.oldest.max(asked.oldest);
        known.voided = known.voided.split_off(&known.oldest);
        known
            .voided
            .extend(asked.voids.filter(|&voided| voided >= known.oldest));
        while known.voided.len() > VOIDED_MAX {
            // A lower number is refused, and asked again under a higher one.
            if let Some(lowest) = known.voided.pop_first() {
                known.oldest = known.oldest.max(lowest + 1);
            }
        }
    }

    /// Whether a request may take effect.
    pub(super) fn standing(&self, session: LockSessionId, number: u64) -> Standing {
        match lock(&self.0).get(&session) {
            Some(known) if known.is_ending => Standing::Over,
            None => Standing::Over,
            Some(known) if number < known.oldest || known.voided.contains(&number) => {
                Standing::Abandoned
            }
            Some(_) => Standing::Counts,
        }
    }

    /// The sessions that were not renewed in time, or are ending already. They are ending from now on.
    pub(super) fn end_silent(&self, now_ms: u64) -> Vec<LockSessionId> {
        let mut ending = Vec::new();
        for (&session, known) in lock(&self.0).iter_mut() {
            known.is_ending |= known.heard_ms.saturating_add(LOCK_SESSION_MS) <= now_ms;
            if known.is_ending {
                ending.push(session);
            }
        }
        ending
    }

    /// A session gets no more locks.
    pub(super) fn end(&self, session: LockSessionId) {
        if let Some(known) = lock(&self.0).get_mut(&session) {
            known.is_ending = true;
        }
    }

    /// The locks of a session are free.
    pub(super) fn forget(&self, session: LockSessionId) {
        lock(&self.0).remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::LockAttempt;
    use gabion_meta::{LockChange, LockKind, LockOwner, PutId};

    const SESSION: LockSessionId = LockSessionId(3);

    fn request(number: u64, oldest: u64, voids: Option<u64>) -> ask::SetLock {
        let kind = LockKind::Range;
        ask::SetLock {
            session: SESSION,
            number,
            oldest,
            voids,
            file: PutId(1),
            change: LockChange::unlock(LockOwner { kind, number: 1 }),
            attempt: LockAttempt::Once,
        }
    }

    #[test]
    fn a_request_that_its_client_has_abandoned_counts_no_more() {
        let sessions = LockSessions::new(vec![SESSION], 0);
        sessions.note(&request(1, 0, None));
        assert_eq!(sessions.standing(SESSION, 1), Standing::Counts);
        // The second attempt of the same change; an older request is still awaited.
        sessions.note(&request(2, 0, Some(1)));
        assert_eq!(sessions.standing(SESSION, 0), Standing::Counts);
        assert_eq!(sessions.standing(SESSION, 1), Standing::Abandoned);
        assert_eq!(sessions.standing(SESSION, 2), Standing::Counts);
        sessions.note(&request(4, 4, None));
        assert_eq!(sessions.standing(SESSION, 2), Standing::Abandoned);
        sessions.note(&request(3, 1, None));
        assert_eq!(
            sessions.standing(SESSION, 3),
            Standing::Abandoned,
            "it came late"
        );
    }

    #[test]
    fn a_session_that_ends_is_not_renewed() {
        let sessions = LockSessions::new(vec![SESSION], 0);
        assert!(sessions.renew(SESSION, 5_000));
        assert!(sessions.end_silent(5_000 + LOCK_SESSION_MS - 1).is_empty());
        assert_eq!(sessions.end_silent(5_000 + LOCK_SESSION_MS), [SESSION]);
        assert!(!sessions.renew(SESSION, 5_000 + LOCK_SESSION_MS));
        assert_eq!(sessions.standing(SESSION, 1), Standing::Over);
    }
}
