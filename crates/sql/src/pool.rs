//! The connections of readers. Each is used by one thread at a time, and checked when it is made: it leads to a server
//! that has all that this leader has committed.
//!
//! When the connection of commits is made anew, another server may be the database's primary. Readers then drop the
//! connections that were made before: those may lead to the old one.

use crate::address::DatabaseAddress;
use crate::connection::Connection;
use crate::error::Fault;
use crate::flush::Flusher;
use crate::leader::LeaderRow;
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
    /// With the era in which each was made.
    idle: Vec<(u64, Connection)>,
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

    /// Runs a query on a connection. A connection on which it fails is dropped.
    pub(crate) fn query<T>(
        &self,
        flusher: &Flusher,
        query: impl Fn(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (place, idle) = self.take(flusher.era());
        let (era, connection) = match idle {
            Some(idle) => idle,
            None => self.open(flusher)?,
        };
        let answer = query(&connection)?;
        if connection.is_usable() {
            self.lock().idle.push((era, connection));
        }
        drop(place);
        Ok(answer)
    }

    /// Waits for a place. The waiting time is bounded by the deadlines of those that have the places.
    fn take(&self, era: u64) -> (Place<'_>, Option<(u64, Connection)>) {
        let state = self.lock();
        let state = self
            .returned
            .wait_while(state, |state| state.used_count >= READERS_MAX);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.used_count += 1;
        let older = state.idle.extract_if(.., |(of, _)| *of != era);
        let older: Vec<_> = older.collect();
        let idle = state.idle.pop();
        drop(state);
        drop(older);
        (Place(self), idle)
    }

    fn open(&self, flusher: &Flusher) -> Result<(u64, Connection), Fault> {
        // Before the check, so that a connection that is made meanwhile is not taken for one of a later era.
        let era = flusher.era();
        let needed = flusher.sequence();
        let connection = Connection::open(&self.address)?;
        let row = LeaderRow::read(&connection)?;
        if row.term == flusher.term() && row.sequence < needed {
            return Err(Fault::Again(
                "the server lacks transactions that were committed".to_owned(),
            ));
        }
        if row.term != flusher.term() {
            return Err(flusher.deposed(&row));
        }
        Ok((era, connection))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
