//! Advisory locks of clients: which session has which, and when a session ends.
//!
//! Locks are durable, so a restart or a takeover keeps them; a session's last renewal and the requests that wait are
//! in memory. A session that is not renewed ends: first all writes that its client may have begun under its locks are
//! fenced out, then its locks are free.

mod sessions;
mod waiting;

use super::core::{Answer, Core, refused_for_now};
use super::files::Files;
use crate::message::{
    Cause, CoordinatorReply, CoordinatorRequest as Ask, Denial, LONG_CALL_MS, LockAttempt, ask,
};
use crate::turns::Turns;
use futures::{FutureExt, select_biased};
use gabion_meta::{KeyValue, LockKind, LockMode, LockSessionId, Locking, Meta, MetaError, PutId};
use sessions::{LockSessions, Standing};
use std::sync::Arc;
use waiting::{Waiting, Waits};

/// Period of looking for sessions without renewals.
const EXPIRE_EVERY_MS: u64 = 500;
/// Files whose locks change at the same time. Changes of one file come one after another.
const LANE_COUNT: usize = 64;

/// Clients' locks.
pub(in crate::coordinator) struct Locks<K> {
    core: Arc<Core<K>>,
    files: Arc<Files<K>>,
    sessions: LockSessions,
    waiting: Waiting,
    /// Held from the look at a request's standing to the end of its transaction.
    lanes: [Turns; LANE_COUNT],
}

impl<K: KeyValue + Send + Sync + 'static> Locks<K> {
    /// Sessions of an earlier run continue. Waits for the disk.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(in crate::coordinator) fn new(
        core: &Arc<Core<K>>,
        files: &Arc<Files<K>>,
    ) -> Result<Self, MetaError> {
        let sessions = core.meta.lock_sessions()?;
        Ok(Self {
            core: Arc::clone(core),
            files: Arc::clone(files),
            sessions: LockSessions::new(sessions, core.ports.now_ms()),
            waiting: Waiting::default(),
            lanes: std::array::from_fn(|_| Turns::default()),
        })
    }

    /// Answers a request about locks.
    pub(in crate::coordinator) async fn answer(&self, request: Ask) -> Answer {
        match request {
            Ask::OpenLocks => self.open().await,
            Ask::RenewLocks(session) => self.renew(session),
            Ask::CloseLocks(session) => self.close(session).await,
            Ask::SetLock(asked) => self.set(asked).await,
            other => Err(format!("{} is no request about locks", other.name()).into()),
        }
    }

    /// Begins a session.
    async fn open(&self) -> Answer {
        if !self.sessions.has_room() {
            let sentence = "too many clients hold advisory locks; unmount some of them";
            return Err(Denial::new(Cause::NoLocks, sentence));
        }
        let session = self.core.with_meta(Meta::open_locks).await?;
        self.sessions.begin(session, self.core.ports.now_ms());
        Ok(CoordinatorReply::LockSession(session))
    }

    /// Notes that a session's client is alive.
    fn renew(&self, session: LockSessionId) -> Answer {
        let goes_on = self.sessions.renew(session, self.core.ports.now_ms());
        // Another leader may have begun meanwhile, which gives each session its time from then on.
        match self.core.check_leads() {
            Ok(()) => Ok(CoordinatorReply::Renewed(goes_on)),
            Err(error) => refused_for_now(error),
        }
    }

    /// Ends a session at its client's request. The client has ended its writes.
    async fn close(&self, session: LockSessionId) -> Answer {
        self.sessions.end(session);
        self.free(session).await?;
        Ok(CoordinatorReply::Done)
    }

    /// Changes what an owner holds in a file. If it may wait and another lock is in the way, the answer comes when the
    /// lock is free, or after some time.
    async fn set(&self, asked: ask::SetLock) -> Answer {
        if !asked.change.range.is_valid() {
            let sentence = "the last locked byte lies before the first; ask for a range with bytes";
            return Err(Denial::new(Cause::Invalid, sentence));
        }
        let ports = &self.core.ports;
        self.sessions.note(&asked);
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
                (outcome, _) => return Ok(CoordinatorReply::Locking(outcome)),
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
        match self.sessions.standing(session, number) {
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
            self.core.ports.sleep_ms(EXPIRE_EVERY_MS).await;
            if self.core.is_broken() {
                return;
            }
            // While this process may not lead, it cannot end sessions, and clients may talk to another one.
            if self.core.check_leads().is_err() {
                continue;
            }
            for session in self.sessions.end_silent(self.core.ports.now_ms()) {
                if let Err(denial) = self.end_silent(session).await {
                    let sentence =
                        format!("the locks of a silent client are not free yet: {denial}");
                    self.core.note_error(sentence);
                }
            }
        }
    }

    /// Ends a session whose client may still believe that it has its locks: its writes are refused before any of its
    /// locks is free.
    async fn end_silent(&self, session: LockSessionId) -> Result<(), Denial> {
        let find = move |meta: &Meta<K>| meta.locked_files(session);
        for file in self.core.with_meta(find).await? {
            self.files.fence_writers(file).await?;
        }
        Ok(self.free(session).await?)
    }

    async fn free(&self, session: LockSessionId) -> Result<(), MetaError> {
        let close = move |meta: &Meta<K>| meta.close_locks(session);
        let files = self.core.with_meta(close).await?;
        self.sessions.forget(session);
        for file in files {
            self.waiting.wake(file);
        }
        Ok(())
    }

    fn lane(&self, file: PutId) -> &Turns {
        &self.lanes[(file.0 % LANE_COUNT as u64) as usize]
    }
}
