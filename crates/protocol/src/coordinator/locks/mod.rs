//! Clients' sessions: when one ends, which advisory locks it has, and which files its client has open.
//!
//! Locks are durable, so a restart or a takeover keeps them; a session's last renewal and the requests that wait are
//! in memory. A session that is not renewed ends: first all writes that its client may have begun under its locks are
//! fenced out, then its locks are free.

mod waiting;

use super::client_sessions::Standing;
use super::core::{Answer, Core, Rejection};
use super::files::Files;
use crate::message::{
    Cause, Denial, LONG_CALL_MS, LockAttempt, REPORTED_FILES_MAX, SessionState, ask,
};
use crate::turns::Turns;
use futures::{FutureExt, select_biased};
use gabion_meta::{ClientSessionId, KeyValue, LockKind, LockMode, Locking, Meta, MetaError, PutId};
use std::sync::Arc;
use waiting::{Waiting, Waits};

/// Period of looking for sessions without renewals.
const EXPIRE_EVERY_MS: u64 = 500;
/// Files whose locks change at the same time. Changes of one file come one after another.
const LANE_COUNT: usize = 64;

/// Clients' sessions and locks.
pub(in crate::coordinator) struct Locks<K> {
    core: Arc<Core<K>>,
    files: Arc<Files<K>>,
    waiting: Waiting,
    /// Held from the look at a request's standing to the end of its transaction.
    lanes: [Turns; LANE_COUNT],
}

impl<K: KeyValue + Send + Sync + 'static> Locks<K> {
    /// Sessions of an earlier run continue.
    pub(in crate::coordinator) fn new(core: &Arc<Core<K>>, files: &Arc<Files<K>>) -> Self {
        Self {
            core: Arc::clone(core),
            files: Arc::clone(files),
            waiting: Waiting::default(),
            lanes: std::array::from_fn(|_| Turns::default()),
        }
    }

    /// Begins a session.
    pub(in crate::coordinator) async fn open(&self) -> Answer<ClientSessionId> {
        if !self.core.sessions.has_room() {
            let sentence =
                "too many clients have open files or advisory locks; unmount some of them";
            return Err(Denial::new(Cause::NoLocks, sentence).into());
        }
        let session = self.core.with_meta(Meta::open_session).await?;
        self.core.sessions.begin(session, self.core.ports.now_ms());
        Ok(session)
    }

    /// Notes that a session's client is alive.
    pub(in crate::coordinator) fn renew(&self, session: ClientSessionId) -> Answer<SessionState> {
        let now_ms = self.core.ports.now_ms();
        self.while_leading(self.core.sessions.renew(session, now_ms))
    }

    /// Notes which files a session's client has open and has closed.
    pub(in crate::coordinator) fn report(&self, asked: &ask::ReportFiles) -> Answer<SessionState> {
        let ask::ReportFiles {
            opener,
            open,
            part,
            closed,
            abandoned,
        } = asked;
        if [open.len(), closed.len(), abandoned.len()]
            .into_iter()
            .any(|count| count > REPORTED_FILES_MAX)
        {
            let sentence = format!("a report has at most {REPORTED_FILES_MAX} files; divide it");
            return Err(Denial::new(Cause::Invalid, sentence).into());
        }
        let (sessions, now_ms) = (&self.core.sessions, self.core.ports.now_ms());
        self.while_leading(sessions.report(
            (*opener, now_ms),
            (open, *part),
            (closed, abandoned),
        )?)
    }

    /// Tells the state of a session. If another leader has begun since, the reply is a refusal: that leader gives each
    /// session its full time from its start on, and waits for its report.
    fn while_leading(&self, state: SessionState) -> Answer<SessionState> {
        self.core.check_may_answer().map(|()| state)
    }

    /// Ends a session at its client's request. The client has ended its writes.
    pub(in crate::coordinator) async fn close(&self, session: ClientSessionId) -> Answer<()> {
        self.core.sessions.end(session);
        Ok(self.free(session).await?)
    }

    /// Changes what an owner holds in a file. If it may wait and another lock conflicts, the answer comes when the
    /// lock is free, or after some time.
    pub(in crate::coordinator) async fn set(&self, asked: ask::SetLock) -> Answer<Locking> {
        if !asked.change.range.is_valid() {
            let sentence = "the last locked byte lies before the first; ask for a range with bytes";
            return Err(Denial::new(Cause::Invalid, sentence).into());
        }
        let ports = &self.core.ports;
        self.core
            .sessions
            .note(asked.session, asked.oldest, asked.voids);
        let begun_ms = ports.now_ms();
        let place = match (asked.attempt, asked.change.wanted()) {
            (LockAttempt::Wait { waited_ms }, Some(wanted)) => {
                let since_ms = begun_ms.saturating_sub(waited_ms);
                let waiter = (asked.session, wanted);
                Some(self.waiting.enter(asked.file, waiter, since_ms))
            }
            _ => None,
        };
        loop {
            let woken = place.as_ref().map(Waits::listen);
            let outcome = self.attempt(&asked, place.as_ref()).await?;
            let left_ms = (begun_ms + LONG_CALL_MS).saturating_sub(ports.now_ms());
            match (outcome, woken) {
                (Locking::Held(_), Some(woken)) if left_ms > 0 => select_biased! {
                    _ = woken.fuse() => {}
                    () = ports.sleep_ms(left_ms).fuse() => {}
                },
                (outcome, _) => return Ok(outcome),
            }
        }
    }

    async fn attempt(
        &self,
        asked: &ask::SetLock,
        place: Option<&Waits>,
    ) -> Result<Locking, Denial> {
        let &ask::SetLock {
            session,
            number,
            file,
            change,
            ..
        } = asked;
        let _turn = self.lane(file).wait().await;
        match self.core.sessions.standing(session, number) {
            Standing::Counts => {}
            Standing::Over => return Ok(Locking::Over),
            Standing::Abandoned => {
                let sentence = "a later request has taken the place of this one";
                return Err(Denial::new(Cause::Stale, sentence));
            }
        }
        let now_ms = self.core.ports.now_ms();
        if let Some(first) = place.and_then(|place| place.lets_pass(now_ms)) {
            return Ok(Locking::Held(first));
        }
        if asked.attempt == LockAttempt::Find {
            let find = move |meta: &Meta<K>| meta.find_lock(session, file, &change);
            let found = self.core.with_meta(find).await?;
            return Ok(found.map_or(Locking::Done, Locking::Held));
        }
        let set = move |meta: &Meta<K>| meta.set_lock(session, file, &change);
        let outcome = self.core.with_meta(set).await?;
        let may_free = match outcome {
            Locking::Done => change.mode != Some(LockMode::Exclusive),
            // The lock that its owner wanted to convert.
            Locking::Held(_) => change.owner.kind == LockKind::Whole,
            Locking::Over => false,
        };
        if may_free {
            self.waiting.wake(file);
        }
        Ok(outcome)
    }

    /// Ends sessions without renewals, until the metadata store fails.
    pub(in crate::coordinator) async fn expire(self: Arc<Self>) {
        loop {
            let late_ms = self.core.sleep_late_ms(EXPIRE_EVERY_MS).await;
            if self.core.is_broken() {
                return;
            }
            if late_ms > 0 {
                self.core.sessions.give_time(late_ms);
                continue;
            }
            // While this process may not lead, it cannot end sessions, and clients may talk to another one. It hears
            // renewals, but takes no reports.
            if self.core.check_leads().is_err() {
                self.core.sessions.excuse_reports(EXPIRE_EVERY_MS);
                continue;
            }
            for session in self.core.sessions.end_silent(self.core.ports.now_ms()) {
                let ended = self.end_silent(session).await;
                if let Err(Rejection::Busy(why) | Rejection::Refused(why)) = ended {
                    let sentence = format!("the locks of a silent client are not free yet: {why}");
                    self.core.note_error(sentence);
                }
            }
        }
    }

    /// Ends a session whose client may still believe that it has its locks: its writes are refused before any of its
    /// locks is free.
    async fn end_silent(&self, session: ClientSessionId) -> Answer<()> {
        let find = move |meta: &Meta<K>| meta.locked_files(session);
        for file in self.core.with_meta(find).await? {
            self.files.fence_writers(file).await?;
        }
        Ok(self.free(session).await?)
    }

    async fn free(&self, session: ClientSessionId) -> Result<(), MetaError> {
        let close = move |meta: &Meta<K>| meta.close_session(session);
        let files = self.core.with_meta(close).await?;
        self.core.sessions.forget(session);
        for file in files {
            self.waiting.wake(file);
        }
        Ok(())
    }

    fn lane(&self, file: PutId) -> &Turns {
        &self.lanes[(file.0 % LANE_COUNT as u64) as usize]
    }
}
