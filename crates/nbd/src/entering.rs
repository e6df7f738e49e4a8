//! Connections that have to begin TLS, and to show a certificate if clients need one, and have not. They are few, and
//! a new one ends the oldest. So peers without a certificate take no place of an attached client, and a client that
//! shows one in time gets in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// The connections, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Entering {
    count_max: usize,
    waiting: Mutex<Waiting>,
}

/// A connection and its task, as soon as that has begun.
type Numbered = (u64, Option<AbortHandle>);

#[derive(Debug, Default)]
struct Waiting {
    arrived_count: u64,
    connections: VecDeque<Numbered>,
}

/// A connection's number among them. Dropped, it is none of them any more.
#[derive(Debug)]
pub(crate) struct Entry {
    entering: Arc<Entering>,
    number: u64,
}

impl Entering {
    pub(crate) fn new(count_max: usize) -> Self {
        Self {
            count_max,
            waiting: Mutex::default(),
        }
    }

    /// Adds a connection, whose task `start` begins. Returns whether the oldest one was ended for it.
    pub(crate) fn add(self: &Arc<Self>, start: impl FnOnce(Entry) -> AbortHandle) -> bool {
        let (number, is_full) = self.enter();
        // A task may end at once, and its entry with it, so no lock is held here.
        let entering = Arc::clone(self);
        let task = start(Entry { entering, number });
        let mut waiting = self.lock();
        let own = waiting.connections.iter_mut().find(|(n, _)| *n == number);
        // Without one, it has ended or begun TLS already.
        if let Some((_, known)) = own {
            *known = Some(task);
        }
        is_full
    }

    /// Returns the number of a new connection, and whether it has ended the oldest one.
    fn enter(&self) -> (u64, bool) {
        let mut waiting = self.lock();
        let number = waiting.arrived_count;
        waiting.arrived_count += 1;
        let is_full = waiting.connections.len() >= self.count_max;
        if is_full && let Some((_, Some(task))) = waiting.connections.pop_front() {
            // With the lock, so that it cannot begin TLS in between. Its entry is dropped later, by the runtime.
            task.abort();
        }
        waiting.connections.push_back((number, None));
        (number, is_full)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut waiting = self.entering.lock();
        waiting
            .connections
            .retain(|(number, _)| *number != self.number);
    }
}
