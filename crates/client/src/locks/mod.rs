//! Advisory locks that hold for all clients of the cluster. The coordinator has them; they belong to the client's
//! session, which it renews in the background.
//!
//! A client relies on its locks only while its lease runs, which ends before the coordinator frees the locks. Until it
//! knows better, operations on files with locks wait; if the locks are lost, they fail ([`ClientError::LocksLost`]) for
//! all handles that were open then. A write that began earlier is fenced out by the coordinator before another owner
//! gets the lock.

mod file_locks;
mod held_ranges;
pub(crate) mod table;

use crate::client::Client;
use crate::error::ClientError;
use crate::sessions::session::ClientSession;
use file_locks::{Ended, FileLocks, Validity};
use gabion_meta::{LockChange, LockHolder, LockOwner, Locking, PutId};
use gabion_protocol::locks::lock;
use gabion_protocol::message::{Cause, LockAttempt, ask};
use std::sync::Arc;

/// Pause before an owner asks again that may wait and was answered at once.
const AGAIN_AFTER_MS: u64 = 50;
/// The outcome of a change of locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOutcome {
    /// It is done.
    Done,
    /// Another owner's lock conflicts.
    Held(LockHolder),
    /// The owner no longer waits.
    Interrupted,
}

/// Whether an owner waits for a lock.
pub enum LockPatience<'f> {
    /// It does not.
    None,
    /// Until the function says that it no longer does, which is called several times a second.
    Until(&'f mut (dyn FnMut() -> bool + Send)),
}

/// The locks of a client in a file, as one handle of the file sees them.
#[derive(Clone)]
pub struct LockHandle {
    client: Client,
    locks: Arc<FileLocks>,
    /// The losses before the handle was opened, which do not concern it.
    known_loss_count: u64,
}

impl std::fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockHandle")
            .field("file", &self.locks.file)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// This client's locks in the file that a put made, for a handle that is opened now. Owners are the client's to
    /// number: each of its handles and processes that lock against each other has its own.
    pub fn locks(&self, file: PutId) -> LockHandle {
        let locks = self.shared.locks.file(file);
        LockHandle {
            client: self.clone(),
            known_loss_count: locks.loss_count(),
            locks,
        }
    }

    /// Frees locks of owners that have closed their files while the coordinator did not answer.
    pub async fn release_owed_locks(&self) {
        let owed = std::mem::take(&mut *lock(&self.shared.locks.owed));
        for (locks, owner) in owed {
            let handle = LockHandle {
                client: self.clone(),
                known_loss_count: locks.loss_count(),
                locks,
            };
            // Failed ones are owed again.
            let _ = handle.unlock_closed(owner).await;
        }
    }
}

impl LockHandle {
    /// Waits until the client knows that it still has the locks that it had in the file.
    ///
    /// # Errors
    /// [`ClientError::LocksLost`] if locks were lost since the handle was opened; [`ClientError::Late`] if the
    /// coordinator does not answer.
    pub async fn check(&self) -> Result<(), ClientError> {
        let ports = self.client.ports();
        let mut attempts = None;
        loop {
            match self.locks.validity(self.known_loss_count, ports.now_ms()) {
                Validity::Valid => return Ok(()),
                Validity::Lost => return Err(ClientError::LocksLost(self.locks.file.to_string())),
                Validity::Unknown => {}
            }
            let attempts = attempts.get_or_insert_with(|| {
                let what = format!("renewing the locks in {}", self.locks.file);
                self.client.attempts(what, 0)
            });
            attempts.pause("the coordinator does not answer").await?;
        }
    }

    /// Whether locks were lost since the handle was opened.
    pub fn are_lost(&self) -> bool {
        self.locks.loss_count() != self.known_loss_count
    }

    /// Changes what an owner holds in the file.
    ///
    /// # Errors
    /// [`ClientError::Refused`] at a limit ([`Cause::NoLocks`]) and when the file is gone; those of
    /// [`LockHandle::check`]; [`ClientError::NoCoordinator`]: the change may be made, and a close undoes it.
    pub async fn set(
        &self,
        change: LockChange,
        mut patience: LockPatience<'_>,
    ) -> Result<LockOutcome, ClientError> {
        // The owner has closed one of its handles, or the kernel has given the number of an owner that is gone to
        // another one.
        self.unlock_closed(change.owner).await?;
        if change.mode.is_none() {
            self.unlock(change).await?;
            return Ok(LockOutcome::Done);
        }
        let begun_ms = self.client.ports().now_ms();
        loop {
            self.check().await?;
            let asked_ms = self.client.ports().now_ms();
            let waited_ms = asked_ms.saturating_sub(begun_ms);
            let attempt = match patience {
                LockPatience::None => LockAttempt::Once,
                LockPatience::Until(_) => LockAttempt::Wait { waited_ms },
            };
            let session = self.client.session().await?;
            match (self.change(&session, change, attempt).await?, &mut patience) {
                (Locking::Done, _) => return Ok(LockOutcome::Done),
                (Locking::Over, _) => {}
                (Locking::Held(holder), LockPatience::None) => {
                    return Ok(LockOutcome::Held(holder));
                }
                (Locking::Held(_), LockPatience::Until(is_over)) => {
                    if is_over() {
                        return Ok(LockOutcome::Interrupted);
                    }
                    if self.client.ports().now_ms() < asked_ms.saturating_add(AGAIN_AFTER_MS) {
                        self.client.ports().sleep_ms(AGAIN_AFTER_MS).await;
                    }
                }
            }
        }
    }

    /// A lock of another owner that conflicts with a change, and whether its owner is one of this client.
    ///
    /// # Errors
    /// Those of [`LockHandle::set`].
    pub async fn find(
        &self,
        change: LockChange,
    ) -> Result<Option<(LockHolder, bool)>, ClientError> {
        loop {
            self.check().await?;
            let session = self.client.session().await?;
            match self.change(&session, change, LockAttempt::Find).await? {
                Locking::Done => return Ok(None),
                Locking::Held(holder) => return Ok(Some((holder, holder.session == session.id()))),
                Locking::Over => {}
            }
        }
    }

    /// Unlocks all that an owner has, because it has closed the file. If the coordinator does not answer, it is told
    /// later.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`].
    pub async fn release(&self, owner: LockOwner) -> Result<(), ClientError> {
        if self.locks.has_none(owner) {
            return Ok(());
        }
        self.locks.note_closed(owner);
        self.unlock_closed(owner).await
    }

    /// Unlocks all that an owner had when it closed the file. Does nothing if that is done, because the owner may have
    /// locked anew since.
    async fn unlock_closed(&self, owner: LockOwner) -> Result<(), ClientError> {
        let Some(closing) = self.locks.closing(owner) else {
            return Ok(());
        };
        // An unlock that is still repeated would end locks that the owner gets in the meantime.
        let _turn = closing.lock().await;
        if self.locks.closing(owner).is_none() {
            return Ok(());
        }
        let mut unlocked = self.unlock(LockChange::unlock(owner)).await;
        if unlocked.is_ok() && !self.locks.has_none(owner) {
            // Another change was under way, and may have been made later. It has ended before this close.
            unlocked = self.unlock(LockChange::unlock(owner)).await;
        }
        if unlocked.is_err() {
            let owed = (Arc::clone(&self.locks), owner);
            lock(&self.client.shared.locks.owed).push(owed);
        }
        unlocked
    }

    async fn unlock(&self, change: LockChange) -> Result<(), ClientError> {
        let session = self.client.shared.sessions.present().await;
        match session {
            // An owner without a session has lost its locks, or never had any.
            Some(session) if !self.locks.has_none(change.owner) => self
                .change(&session, change, LockAttempt::Once)
                .await
                .map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Asks for a change in a session. An attempt whose answer is lost is repeated under another number, and has no
    /// effect from then on.
    async fn change(
        &self,
        session: &Arc<ClientSession>,
        change: LockChange,
        attempt: LockAttempt,
    ) -> Result<Locking, ClientError> {
        let voids = self.locks.begin(session, change.owner);
        let _long_call = match attempt {
            LockAttempt::Wait { .. } => Some(self.client.shared.locks.long_call().lock().await),
            LockAttempt::Find | LockAttempt::Once => None,
        };
        let (result, ended) = self.ask_for(session, (change, attempt), voids).await;
        if self.locks.end(session, (&change, attempt), &ended) {
            result
        } else {
            Ok(Locking::Over)
        }
    }

    async fn ask_for(
        &self,
        session: &ClientSession,
        (change, attempt): (LockChange, LockAttempt),
        mut voids: Option<u64>,
    ) -> (Result<Locking, ClientError>, Ended) {
        let what = format!("changing a lock in {}", self.locks.file);
        let mut attempts = self.client.attempts(what, 0);
        let mut lost = None;
        let mut was_stale = false;
        loop {
            let awaited = session.begin();
            let number = awaited.number;
            let call = ask::SetLock {
                session: session.id(),
                number,
                oldest: awaited.oldest,
                voids,
                file: self.locks.file,
                change,
                attempt,
            };
            let error = match self.client.ask(call).await {
                Ok(outcome) => {
                    if outcome == Locking::Over {
                        session.note_over();
                    }
                    return (Ok(outcome), Ended::Answered(outcome));
                }
                Err(error) => error,
            };
            let is_silent =
                matches!(&error, ClientError::NoCoordinator(_)) || error.cause().leaves_doubt();
            // Closes of many files may have overtaken the request. If the file is gone, the second answer is the same.
            if error.cause() == Cause::Stale && !std::mem::replace(&mut was_stale, true) {
                continue;
            }
            if !is_silent {
                // A coordinator whose metadata have failed cannot say whether it has made the change.
                let doubtful = (error.cause() == Cause::Failure).then_some(number);
                let ended = lost.or(doubtful).map_or(Ended::Refused, Ended::Unknown);
                return (Err(error), ended);
            }
            drop(awaited);
            voids = Some(number);
            lost = voids;
            if session.is_over() || attempts.pause(error.to_string().as_str()).await.is_err() {
                return (Err(error), Ended::Unknown(number));
            }
        }
    }
}
