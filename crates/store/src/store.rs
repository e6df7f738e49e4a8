//! The store: locks, shared syncs, and the latch after a failure.

use crate::counts::{Counters, StoreCounts};
use crate::disk::{Disk, DiskFile};
use crate::error::{IoContext, StoreError};
use crate::identity::{Identity, IdentityFile};
use crate::journal::checkpoint::Room;
use crate::journal::entry::{Entry, Head};
use crate::journal::frame;
use crate::journal::group::GroupCommit;
use crate::journal::segment::Position;
use crate::options::Options;
use crate::paths::segment_path;
use crate::records::lsn::Lsn;
use crate::reserve::sync::ReserveSyncs;
use crate::state::State;
use crate::sync_lock::{SyncLock, SyncLocks};
use gabion_layout::ChunkId;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// One node's durable chunks, records and promises. Clones share one store. All operations block;
/// call them from threads that may.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) counters: Arc<Counters>,
    pub(crate) reserve_syncs: Arc<ReserveSyncs>,
    state: Mutex<State>,
    pub(crate) group: GroupCommit,
    /// The syncs of the journal's current segment.
    tail_syncs: Arc<SyncLock>,
    /// Those of chunks' files.
    chunk_syncs: SyncLocks,
    /// The identity on the disk. Its lock is never held over a wait for the disk.
    identity: Mutex<Identity>,
    /// The file with the identity, locked while the identity there is replaced.
    identity_file: Mutex<IdentityFile>,
    /// The first failure of a required write or sync.
    latch: OnceLock<String>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .field("failed", &self.latch.get())
            .finish_non_exhaustive()
    }
}

const POISONED: &str = "no thread panics while it holds this lock";

impl Shared {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        options: Options,
        (identity, identity_file): (Identity, IdentityFile),
        state: State,
    ) -> Self {
        Self {
            disk,
            options,
            group: GroupCommit::new(state.journal.synced()),
            tail_syncs: state.journal.tail_syncs(),
            chunk_syncs: SyncLocks::default(),
            counters: state.journal.counters(),
            reserve_syncs: state.reserves.syncs(),
            identity: Mutex::new(identity),
            identity_file: Mutex::new(identity_file),
            state: Mutex::new(state),
            latch: OnceLock::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(POISONED)
    }

    fn lock_identity(&self) -> MutexGuard<'_, Identity> {
        // It is replaced whole.
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, unless another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("{POISONED}"),
        }
    }

    /// Refuses when an earlier required write or sync failed.
    pub(crate) fn check_latch(&self) -> Result<(), StoreError> {
        match self.latch.get() {
            None => Ok(()),
            Some(cause) => Err(StoreError::Failed {
                cause: cause.clone(),
            }),
        }
    }

    /// Passes on the outcome of a required write or sync, and latches the store if it failed. A
    /// refusal for lack of space does not latch.
    pub(crate) fn require<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error @ StoreError::Io { .. }) = &outcome {
            // Only the first cause is kept; a second failure changes nothing.
            let _ = self.latch.set(error.to_string());
        }
        outcome
    }

    /// Bytes of the disk available to new chunks.
    fn free_bytes(&self) -> Result<u64, StoreError> {
        let available = self.disk.available_bytes().context("measure", "")?;
        Ok(available.saturating_sub(self.options.free_bytes))
    }

    /// Refuses an operation that needs more than the bytes available to new chunks.
    pub(crate) fn check_free(
        &self,
        operation: &'static str,
        needed_bytes: u64,
    ) -> Result<(), StoreError> {
        if self.free_bytes()? < needed_bytes {
            return Err(StoreError::NoSpace {
                operation,
                needed_bytes,
            });
        }
        Ok(())
    }

    /// Appends an entry, making room first. Latches the store when the disk fails.
    pub(crate) fn append(
        &self,
        state: &mut State,
        entry: &impl Head,
        body: &[&[u8]],
        room: Room,
    ) -> Result<Position, StoreError> {
        self.check_latch()?;
        let head = entry.encode_head();
        let body_bytes = body.iter().map(|part| part.len()).sum();
        let frame_bytes = frame::frame_bytes(head.len(), body_bytes) as u64;
        let made = state.make_room(frame_bytes, room);
        self.require(made)?;
        self.require(state.journal.append(entry.frame_kind(), &head, body))
    }

    /// Returns once everything before `lsn` is durable. One of the waiting callers syncs for all.
    pub(crate) fn sync(&self, lsn: u64) -> Result<(), StoreError> {
        self.group
            .wait(lsn, || self.check_latch(), || self.lead_sync())
    }

    /// Syncs the file of a chunk.
    pub(crate) fn sync_chunk(&self, chunk: ChunkId, file: &dyn DiskFile) -> io::Result<()> {
        self.chunk_syncs.of(chunk.stripe.0).sync(file)
    }

    fn lead_sync(&self) -> Result<(), StoreError> {
        let tail = self.lock().journal.tail();
        let (number, file, end_lsn) =
            tail.expect("a caller that waits for a sync appended to a segment");
        let synced = self.tail_syncs.sync(&*file);
        self.require(synced.context("sync", &segment_path(number)))?;
        self.counters.add(|c| &c.sync_count, 1);
        self.group.reached(end_lsn);
        // No later entry confirms that the last entry of a quiet journal was synced, so damage to
        // it would look like a torn tail. This marker confirms it, from the next sync on.
        let mut state = self.lock();
        let journal = &mut state.journal;
        if (journal.needed_lsn(), journal.end_lsn()) == (end_lsn, end_lsn) {
            self.require(journal.append_if_fits(&Entry::Synced))?;
        }
        Ok(())
    }
}

impl Store {
    /// Makes the record appended at `lsn` durable, and all earlier ones in the same log. Callers
    /// that wait for the journal, or for the same chunk's reserve, share one sync.
    ///
    /// # Errors
    /// [`StoreError::Io`] and [`StoreError::Failed`]: it is unknown what is durable.
    pub fn sync(&self, lsn: Lsn) -> Result<(), StoreError> {
        match lsn.place() {
            (None, behind) => self.shared.sync(behind),
            (Some(chunk), behind) => self.shared.sync_reserve(chunk, behind),
        }
    }

    /// Makes everything appended so far durable, with marks, which may otherwise be lost. A store
    /// closed this way starts with nothing torn.
    ///
    /// # Errors
    /// As [`Store::sync`].
    pub fn sync_all(&self) -> Result<(), StoreError> {
        self.log_marks()?;
        let end_lsn = self.shared.lock().journal.end_lsn();
        self.shared.sync(end_lsn)?;
        self.shared.sync_reserves()
    }

    /// The position up to which the journal is durable. No crash lowers it: when the store is
    /// reopened, the journal ends there or later, unless the directory is an older copy or the disk
    /// has lost synced bytes. Records in reserves raise it once a witness covers them.
    pub fn position(&self) -> u64 {
        self.shared.group.synced_lsn()
    }

    /// Counters since the store was opened.
    pub fn counts(&self) -> StoreCounts {
        self.shared.counters.read()
    }

    /// Bytes of the disk available to new chunks.
    ///
    /// # Errors
    /// If the disk does not report them.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        self.shared.free_bytes()
    }

    /// Journal bytes of pending records, without records in reserves.
    pub fn pending_bytes(&self) -> u64 {
        self.shared.lock().records.pending_bytes()
    }

    /// Proves that the store still accepts writes, with a marker in the journal and a sync. Failed
    /// reads do not latch; after one, this distinguishes a bad page from a dead disk.
    ///
    /// # Errors
    /// As [`Store::sync`]; [`StoreError::NoSpace`] and [`StoreError::Busy`], which prove nothing.
    pub fn prove_writable(&self) -> Result<(), StoreError> {
        let lsn = {
            let mut state = self.shared.lock();
            let marker = Entry::Synced;
            let position = self
                .shared
                .append(&mut state, &marker, &[], Room::Reserved)?;
            position.end_lsn()
        };
        self.shared.sync(lsn)
    }

    /// The store's identity. Does not wait for a replacement that waits for the disk.
    pub fn identity(&self) -> Identity {
        self.shared.lock_identity().clone()
    }

    /// Replaces the store's identity durably. On most file systems this takes no space.
    ///
    /// # Errors
    /// [`StoreError::Io`] with nothing changed, or with the store latched; [`StoreError::Failed`].
    pub fn set_identity(&self, identity: &Identity) -> Result<(), StoreError> {
        let file = self.shared.identity_file.lock();
        // A replacement that did not end is made again in the same slot.
        let mut file = file.unwrap_or_else(PoisonError::into_inner);
        if *self.shared.lock_identity() == *identity {
            return Ok(());
        }
        self.shared.check_latch()?;
        let require = |outcome| self.shared.require(outcome);
        file.replace(identity, require)?;
        self.shared.lock_identity().clone_from(identity);
        Ok(())
    }

    /// Writes the identity once more and syncs it, to find out whether the disk answers. Waits for no other work of
    /// the store but replacements of the identity.
    ///
    /// # Errors
    /// As [`Store::set_identity`].
    pub fn try_disk(&self) -> Result<(), StoreError> {
        let file = self.shared.identity_file.lock();
        let mut file = file.unwrap_or_else(PoisonError::into_inner);
        self.shared.check_latch()?;
        let identity = self.identity();
        file.replace(&identity, |outcome| self.shared.require(outcome))
    }

    /// The first failure of a required write or sync, if any. A thread that has panicked within a change is a failure
    /// too: what it has left is unknown, and no later call works.
    pub fn failure(&self) -> Option<String> {
        let is_torn = self.shared.state.is_poisoned();
        let torn =
            || is_torn.then(|| "a thread has panicked within a change of the store".to_owned());
        self.shared.latch.get().cloned().or_else(torn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;

    #[test]
    fn a_panic_within_a_change_is_a_failure() {
        let disk = Arc::new(SimDisk::new(1));
        let (store, _) = Store::open(disk, Options::default()).expect("the disk works");
        assert_eq!(store.failure(), None);
        let shared = Arc::clone(&store.shared);
        let change = std::thread::spawn(move || {
            let _state = shared.lock();
            panic!("a bug");
        });
        assert!(change.join().is_err());
        assert!(store.failure().is_some());
    }
}
