//! Mutexes that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after another task has panicked with it. No code that holds one of these locks may panic in the
/// middle of a change: each change is complete when the lock is released, or its data is lost with the task.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
