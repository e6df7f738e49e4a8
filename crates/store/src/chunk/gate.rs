//! Keeping changes of a chunk apart from reads of it.

use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// What keeps changes of a chunk's file apart from reads of it.
///
/// Order of locks: `change`, then `content`, then the store's state.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Held by whoever applies to, replaces or removes the chunk, from beginning to end.
    change: Mutex<()>,
    /// Held shared while the file is read, alone while its bytes change.
    content: RwLock<()>,
}

const POISONED: &str = "no thread panics while it holds a chunk";

impl Gate {
    /// Waits until nobody else changes the chunk.
    pub(crate) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.change.lock().expect(POISONED)
    }

    /// Waits until nobody reads the chunk.
    pub(crate) fn exclude_readers(&self) -> RwLockWriteGuard<'_, ()> {
        self.content.write().expect(POISONED)
    }

    /// Waits until the chunk's bytes are at rest.
    pub(crate) fn begin_read(&self) -> RwLockReadGuard<'_, ()> {
        self.content.read().expect(POISONED)
    }

    /// The same, unless the bytes are not at rest.
    pub(crate) fn try_begin_read(&self) -> Option<RwLockReadGuard<'_, ()>> {
        match self.content.try_read() {
            Ok(shared) => Some(shared),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("{POISONED}"),
        }
    }
}
