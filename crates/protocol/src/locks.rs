//! Mutexes that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after another task has panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds one of these locks panics in the middle of a change; the data that a part has
    // gathered is lost with the part.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
