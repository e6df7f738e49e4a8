//! The connections of readers. Each is used by one thread at a time.
//!
//! Each answer carries the leader's row of the same view. So an answer of a server that lacks what this leader has
//! committed, such as the database's former primary after a failover, is never used.

use crate::address::DatabaseAddress;
use crate::connection::{ANSWER_DEADLINE, Connection, Stamp};
use crate::error::Fault;
use crate::flush::Flusher;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most connections of readers.
const READERS_MAX: usize = 8;

/// The connections of readers.
pub(crate) struct Pool {
    address: DatabaseAddress,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    /// Connections in use or being made.
    used_count: usize,
}

/// A place among the connections in use.
struct Place<'p>(&'p Pool);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.lock().used_count -= 1;
        self.0.returned.notify_one();
    }
}

impl Pool {
    pub(crate) fn new(address: DatabaseAddress) -> Self {
        Self {
            address,
            state: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// Runs a query on a connection. A connection on which it fails is dropped, and with it all idle ones: they may
    /// lead to the same server.
    pub(crate) fn query<T>(
        &self,
        flusher: &Flusher,
        query: impl Fn(&Connection) -> Result<(Stamp, T), Fault>,
    ) -> Result<T, Fault> {
        // The caller has laid changes over the rows before this, and those that it has not are durable by this number.
        let needed = flusher.sequence();
        let (place, idle) = self.take()?;
        let connection = match idle {
            Some(idle) => idle,
            None => Connection::open(&self.address)?,
        };
        let answer = query(&connection).and_then(|(stamp, answer)| {
            flusher.vouch(stamp, needed, &connection)?;
            Ok(answer)
        });
        let mut state = self.lock();
        let dropped = if answer.is_err() {
            std::mem::take(&mut state.idle)
        } else {
            Vec::new()
        };
        if answer.is_ok() && connection.is_usable() {
            state.idle.push(connection);
        }
        drop(state);
        drop(dropped);
        drop(place);
        answer
    }

    /// Waits for a place, for as long as an answer may take.
    fn take(&self) -> Result<(Place<'_>, Option<Connection>), Fault> {
        let state = self.lock();
        let is_full = |state: &mut State| state.used_count >= READERS_MAX;
        let waited = self
            .returned
            .wait_timeout_while(state, ANSWER_DEADLINE, is_full);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Fault::Again("all connections are in use".to_owned()));
        }
        state.used_count += 1;
        let idle = state.idle.pop();
        drop(state);
        Ok((Place(self), idle))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
