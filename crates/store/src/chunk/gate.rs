//! Separates changes of a chunk from its reads.

use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// The locks that separate changes of a chunk's file from its reads.
///
/// Order of locks: `change`, then `content`, then the store's state.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Held for the whole of an apply, a replacement or a removal of the chunk.
    change: Mutex<()>,
    /// Held shared during reads of the file, exclusively while its bytes change.
    content: RwLock<()>,
}

const POISONED: &str = "no thread panics while it holds a chunk";

impl Gate {
    /// Waits until no other thread changes the chunk.
    pub(crate) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.change.lock().expect(POISONED)
    }

    /// Waits until no thread reads the chunk.
    pub(crate) fn exclude_readers(&self) -> RwLockWriteGuard<'_, ()> {
        self.content.write().expect(POISONED)
    }

    /// Waits until the chunk's bytes are not changing.
    pub(crate) fn begin_read(&self) -> RwLockReadGuard<'_, ()> {
        self.content.read().expect(POISONED)
    }

    /// Like [`Gate::begin_read`], but returns `None` instead of waiting.
    pub(crate) fn try_begin_read(&self) -> Option<RwLockReadGuard<'_, ()>> {
        match self.content.try_read() {
            Ok(shared) => Some(shared),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("{POISONED}"),
        }
    }
}
