//! Advisory locks: the kernel asks for each, and tells when an owner closes a file. The cluster has them.

use crate::errno::Errno;
use crate::gateway::Gateway;
use crate::handles::Handle;
use crate::lock_request::LockCall;
use crate::signals::Waiter;
use fuser::FileHandle;
use gabion_client::{LockOutcome, LockPatience};
use gabion_meta::{LockChange, LockKind, LockMode, LockOwner, LockRange};

/// Linux's numbers of the modes of locks.
const READ_LOCK: i32 = 0;
const WRITE_LOCK: i32 = 1;
pub(crate) const UNLOCK: i32 = 2;
/// The last byte of a range without an end, for Linux.
const LAST_BYTE: u64 = i64::MAX as u64;

/// A lock for the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoundLock {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) mode: i32,
    pub(crate) process: u32,
}

impl LockCall {
    fn change(&self, kind: LockKind) -> Result<LockChange, Errno> {
        let mode = match self.mode {
            READ_LOCK => Some(LockMode::Shared),
            WRITE_LOCK => Some(LockMode::Exclusive),
            UNLOCK => None,
            _ => return Err(Errno::Invalid),
        };
        let number = self.owner.0;
        Ok(LockChange {
            owner: LockOwner { kind, number },
            mode,
            range: LockRange {
                first: self.first,
                last: if self.last >= LAST_BYTE {
                    u64::MAX
                } else {
                    self.last
                },
            },
            process: self.process,
        })
    }
}

impl Gateway {
    /// Changes a lock. A waiter waits for it.
    pub(crate) async fn set_lock(
        &self,
        call: LockCall,
        kind: LockKind,
        waiter: Option<Waiter>,
    ) -> Result<(), Errno> {
        let open = self.handles.get(call.handle)?;
        let change = call.change(kind)?;
        // The next process that gets the lock reads what was written under it.
        self.store_all(&open.shared).await;
        if kind == LockKind::Range && change.mode.is_some() {
            open.note_range_owner(call.owner.0);
        }
        let mut is_interrupted = || waiter.is_some_and(Waiter::has_signal);
        let patience = match waiter {
            Some(_) => LockPatience::Until(&mut is_interrupted),
            None => LockPatience::None,
        };
        match open.locks.set(change, patience).await? {
            LockOutcome::Done => {
                if change.mode.is_some() {
                    self.forget_bytes(&open).await;
                }
                Ok(())
            }
            LockOutcome::Held(_) => Err(Errno::Again),
            LockOutcome::Interrupted => Err(Errno::Interrupted),
        }
    }

    /// Makes the kernel and this mount look again for what others have written before they released the lock.
    async fn forget_bytes(&self, open: &Handle) {
        open.shared.forget_checked();
        // It waits for pages that are being read, by requests that take other places than this one's.
        if let Some(forgetting) = self.forget_pages_later(open.shared.put) {
            let _ = forgetting.await;
        }
    }

    /// A lock that conflicts with a range lock; names its process if that is one of this machine.
    pub(crate) async fn find_lock(&self, call: LockCall) -> Result<FoundLock, Errno> {
        let open = self.handles.get(call.handle)?;
        let found = open.locks.find(call.change(LockKind::Range)?).await?;
        Ok(match found {
            None => FoundLock {
                first: call.first,
                last: call.last,
                mode: UNLOCK,
                process: 0,
            },
            Some((holder, is_own)) => FoundLock {
                first: holder.lock.range.first.min(LAST_BYTE),
                last: holder.lock.range.last.min(LAST_BYTE),
                mode: match holder.lock.mode {
                    LockMode::Shared => READ_LOCK,
                    LockMode::Exclusive => WRITE_LOCK,
                },
                process: if is_own { holder.lock.process } else { 0 },
            },
        })
    }

    /// A process closes a file by one of its handles, which ends all its range locks in the file.
    pub(crate) async fn close_owner(&self, handle: &Handle, owner: u64) -> Result<(), Errno> {
        handle.forget_range_owner(owner);
        release(handle, LockKind::Range, owner).await;
        if handle.locks.are_lost() {
            return Err(Errno::Io);
        }
        Ok(())
    }

    /// A handle is closed for good: its whole-file lock ends, and range locks that belong to the handle and to no
    /// process.
    pub(crate) async fn close_handle_locks(&self, handle: FileHandle, flock_owner: Option<u64>) {
        let Ok(handle) = self.handles.get(handle) else {
            return;
        };
        for owner in handle.take_range_owners() {
            self.store_all(&handle.shared).await;
            release(&handle, LockKind::Range, owner).await;
        }
        if let Some(owner) = flock_owner {
            self.store_all(&handle.shared).await;
            release(&handle, LockKind::Whole, owner).await;
        }
    }
}

/// Unlocks all that an owner has in a file. If the cluster does not answer, it is told later, and the close succeeds.
async fn release(handle: &Handle, kind: LockKind, number: u64) {
    let released = handle.locks.release(LockOwner { kind, number }).await;
    if let Err(error) = released {
        tracing::warn!(%error, "locks of a closed file are released later");
    }
}
