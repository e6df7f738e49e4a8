//! Makes pending changes durable, many transactions by one, and keeps the lease.
//!
//! **Lost answers.** When a connection ends before the answer to COMMIT, the transaction may be durable or not, and may
//! even be under way at the server. So it is sent again, with the same number. Its first statement changes the leader's
//! row from the previous number; this statement waits until the other try has ended. If it finds the previous number,
//! no other try counts, and this one continues. If it finds its own number, the other try was durable, and nothing is
//! repeated. Any other number or term ends the leadership.

use crate::address::DatabaseAddress;
use crate::connection::{Connection, Stamp};
use crate::error::{Fault, storage};
use crate::last_commit::{Commit, LastCommit};
use crate::leader::{Leader, LeaderRow, RELIANCE, RENEWAL};
use crate::moment::Moment;
use crate::pending::{Change, Pending};
use gabion_meta::MetaError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of the rows of one statement.
const STATEMENT_BYTES: usize = 2 << 20;
/// Rows of one statement.
const STATEMENT_ROWS: usize = 8192;
/// The first pause before another try, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// An operation that waits for another thread's transaction waits for as many times the patience: for that one, and for
/// one that was under way.
const WAIT_FACTOR: u32 = 3;

/// Writes to the database, one transaction at a time.
pub(crate) struct Flusher {
    address: DatabaseAddress,
    identity: String,
    term: i64,
    /// The note of the last commit; none for a store that is opened for one command.
    last_commit: Option<LastCommit>,
    /// Time that an operation is tried before the store fails.
    patience: Duration,
    state: Mutex<State>,
    changed: Condvar,
    /// The connection of commits.
    line: Mutex<Option<Connection>>,
    /// SQL transactions, and tries of them.
    pub(crate) group_count: AtomicU64,
    pub(crate) try_count: AtomicU64,
}

struct State {
    /// All transactions up to this number are durable.
    durable: u64,
    is_flushing: bool,
    /// No further operation begins.
    is_closing: bool,
    /// The cause if the store takes no more operations.
    failed: Option<MetaError>,
    leader: Leader,
}

/// The parts with which a flusher begins.
pub(crate) struct Beginning {
    pub(crate) connection: Connection,
    pub(crate) identity: String,
    pub(crate) leader: Leader,
    pub(crate) last_commit: Option<LastCommit>,
}

/// The thread that runs a transaction. Its drop lets the next one begin.
struct Turn<'f>(&'f Flusher);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_flushing = false;
        if std::thread::panicking() {
            let reason = "its thread panicked, which is a bug";
            state.failed.get_or_insert(storage("commit", reason));
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Flusher {
    pub(crate) fn new(address: DatabaseAddress, beginning: Beginning, patience: Duration) -> Self {
        let Beginning {
            connection,
            identity,
            leader,
            last_commit,
        } = beginning;
        Self {
            address,
            identity,
            term: leader.term,
            last_commit,
            patience,
            state: Mutex::new(State {
                durable: 0,
                is_flushing: false,
                is_closing: false,
                failed: None,
                leader,
            }),
            changed: Condvar::new(),
            line: Mutex::new(Some(connection)),
            group_count: AtomicU64::new(0),
            try_count: AtomicU64::new(0),
        }
    }

    /// The number of the last transaction that is known to be durable.
    pub(crate) fn sequence(&self) -> i64 {
        self.lock().leader.sequence
    }

    /// Refuses what a statement has read if it lacks the transaction `needed`, or is another leader's.
    pub(crate) fn vouch(
        &self,
        stamp: Stamp,
        needed: i64,
        connection: &Connection,
    ) -> Result<(), Fault> {
        if stamp.term == self.term && stamp.sequence >= needed {
            return Ok(());
        }
        if stamp.term > self.term {
            return Err(self.superseded(&LeaderRow::read(connection)?));
        }
        let reason = "the server lacks transactions that were committed";
        Err(Fault::Again(reason.to_owned()))
    }

    /// See [`gabion_meta::KeyValue::leads`].
    pub(crate) fn leads(&self) -> Result<(), MetaError> {
        self.check()?;
        if self.lock().leader.valid_until.is_ahead() {
            return Ok(());
        }
        let reason = self.address.to_string();
        Err(MetaError::Away { reason })
    }

    /// Refuses everything once the store has failed or is being closed.
    pub(crate) fn check(&self) -> Result<(), MetaError> {
        let state = self.lock();
        match &state.failed {
            Some(error) => Err(error.clone()),
            None if state.is_closing => Err(MetaError::Closed),
            None => Ok(()),
        }
    }

    /// Ends all further operations. Returns the first reason.
    pub(crate) fn fail(&self, error: MetaError) -> MetaError {
        let mut state = self.lock();
        let first = state.failed.get_or_insert(error).clone();
        drop(state);
        self.changed.notify_all();
        first
    }

    /// Waits until all transactions up to this number are durable, and until this process is known to have been the
    /// leader at some moment of the call.
    pub(crate) fn wait(&self, number: u64, pending: &Pending) -> Result<(), MetaError> {
        let began = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.durable >= number && state.leader.valid_until.is_ahead() {
                return Ok(());
            }
            let limit = self.patience * WAIT_FACTOR;
            let Some(left) = limit.checked_sub(began.elapsed()) else {
                drop(state);
                return Err(self.fail(storage("commit", "it has waited too long for its turn")));
            };
            state = self.flush(state, left, pending);
        }
    }

    /// Renews the lease unless a transaction did so lately.
    pub(crate) fn renew(&self, pending: &Pending) -> Result<(), MetaError> {
        let state = self.lock();
        let is_fresh = state.leader.valid_until.plus(RENEWAL) > Moment::now().plus(RELIANCE);
        let state = if state.failed.is_none() && !is_fresh {
            self.flush(state, self.patience, pending)
        } else {
            state
        };
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// Makes all pending changes durable; if another thread does that, waits for its end, but not longer than `limit`.
    fn flush<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        limit: Duration,
        pending: &Pending,
    ) -> MutexGuard<'s, State> {
        if state.is_flushing {
            let woken = self.changed.wait_timeout(state, limit);
            return woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_flushing = true;
        let leader = state.leader;
        drop(state);
        let turn = Turn(self);
        let (number, changes) = pending.copy();
        let committed = self.commit(&leader, &changes).and_then(|leader| {
            self.note(&leader, &changes)?;
            Ok(leader)
        });
        let mut state = self.lock();
        match committed {
            Ok(leader) => {
                state.durable = state.durable.max(number);
                state.leader = leader;
                // After the leader's number: a reader that misses the changes here asks for a server that has them.
                pending.retire(number);
            }
            Err(error) => {
                state.failed.get_or_insert(error);
            }
        }
        drop(state);
        drop(turn);
        self.lock()
    }

    /// Notes on this machine that changes were committed.
    fn note(&self, leader: &Leader, changes: &[(Vec<u8>, Change)]) -> Result<(), MetaError> {
        let Some(last_commit) = self.last_commit.as_ref().filter(|_| !changes.is_empty()) else {
            return Ok(());
        };
        let commit = Commit {
            identity: self.identity.clone(),
            term: leader.term,
            sequence: leader.sequence,
        };
        last_commit.note(&commit).map_err(|error| {
            let path = last_commit.path().display();
            storage("note its last commit", format!("{path}: {error}"))
        })
    }

    /// Commits changes as the transaction behind the leader's last one, even if connections fail during it.
    fn commit(&self, leader: &Leader, changes: &[(Vec<u8>, Change)]) -> Result<Leader, MetaError> {
        self.group_count.fetch_add(1, Ordering::Relaxed);
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        self.patiently("commit", || {
            let connection = match line.take() {
                Some(connection) if connection.is_usable() => connection,
                _ => Connection::open(&self.address)?,
            };
            let asked = Moment::now();
            self.try_count.fetch_add(1, Ordering::Relaxed);
            let is_now = self.attempt(&connection, leader, changes)?;
            *line = Some(connection);
            Ok(Leader {
                sequence: leader.sequence + 1,
                // A server shows a commit whose wait for its standbys was cut short. A dependent transaction
                // waits for a later commit, which waits for all before it.
                valid_until: if is_now { asked.plus(RELIANCE) } else { asked },
                ..*leader
            })
        })
    }

    /// One try. Returns whether it was this one that counts, and not an earlier one. A connection on which it fails
    /// must be dropped, which ends its transaction.
    fn attempt(
        &self,
        connection: &Connection,
        leader: &Leader,
        changes: &[(Vec<u8>, Change)],
    ) -> Result<bool, Fault> {
        let (_, touched) = connection.simple(&leader.begin())?;
        if touched != 1 {
            connection.simple("ROLLBACK")?;
            let row = LeaderRow::read(connection)?;
            if (row.term, row.sequence) == (leader.term, leader.sequence + 1) {
                return Ok(false);
            }
            return Err(self.superseded(&row));
        }
        let mut statements = Batches::of(changes);
        let mut next = statements.next().unwrap_or_default();
        for after in statements {
            connection.put(&next.keys, &next.values)?;
            next = after;
        }
        let removed = changes.iter().filter(|(_, change)| change.is_none());
        let removed: Vec<&[u8]> = removed.map(|(key, _)| key.as_slice()).collect();
        connection.finish((&next.keys, &next.values), &removed)?;
        Ok(true)
    }

    /// Tries again after faults that pass, until patience ends. The error ends the store.
    pub(crate) fn patiently<T>(
        &self,
        operation: &'static str,
        mut work: impl FnMut() -> Result<T, Fault>,
    ) -> Result<T, MetaError> {
        let began = Instant::now();
        let mut pause = PAUSES.0;
        loop {
            let fault = match work() {
                Ok(done) => return Ok(done),
                Err(fault) => fault,
            };
            match &fault {
                Fault::Superseded(error) => return Err(self.fail(*error.clone())),
                Fault::Lost(_) | Fault::Again(_) if began.elapsed() < self.patience => {}
                _ => {
                    let reason = format!("{}: {}", self.address, fault.reason());
                    return Err(self.fail(storage(operation, reason)));
                }
            }
            tracing::warn!(
                operation,
                reason = fault.reason(),
                "the metadata's database did not answer; trying again"
            );
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
            self.check()?;
        }
    }

    /// The fault for a leader's row that is not as this process has left it.
    fn superseded(&self, row: &LeaderRow) -> Fault {
        let address = &self.address;
        let known = self.sequence();
        let error = if row.term > self.term {
            let holder = if row.holder.is_empty() {
                "another process"
            } else {
                &row.holder
            };
            let reason = format!("{address}: {holder} has taken it over");
            MetaError::Deposed { reason }
        } else {
            let (found, term) = (row.sequence, row.term);
            let proof = format!(
                "the last commit in {address} is {found} of term {term}, and {known} of term {} was committed",
                self.term
            );
            MetaError::WentBack { proof }
        };
        Fault::Superseded(Box::new(error))
    }

    /// Ends the use of the store, and the lease, if the database answers within `limit`; otherwise the lease expires.
    /// Returns whether it was ended; a second call does nothing.
    pub(crate) fn release(&self, limit: Duration) -> bool {
        let began = Instant::now();
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_closing, true) {
            return false;
        }
        // Operations under way may still be acknowledged.
        while state.is_flushing {
            let Some(left) = limit.checked_sub(began.elapsed()) else {
                return false;
            };
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_whole = state.failed.is_none();
        state.failed.get_or_insert(MetaError::Closed);
        self.changed.notify_all();
        let leader = state.leader;
        drop(state);
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(connection), Some(left)) = (line.take(), limit.checked_sub(began.elapsed()))
        else {
            return false;
        };
        let released = connection.simple_within(&leader.release(), left);
        is_whole && matches!(released, Ok((_, 1)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every step, even if a caller panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows to set, in parts of one statement each.
struct Batches<'c> {
    changes: std::iter::Peekable<std::slice::Iter<'c, (Vec<u8>, Change)>>,
}

#[derive(Default)]
struct Batch<'c> {
    keys: Vec<&'c [u8]>,
    values: Vec<&'c [u8]>,
}

impl<'c> Batches<'c> {
    fn of(changes: &'c [(Vec<u8>, Change)]) -> Self {
        Self {
            changes: changes.iter().peekable(),
        }
    }
}

impl<'c> Iterator for Batches<'c> {
    type Item = Batch<'c>;

    fn next(&mut self) -> Option<Batch<'c>> {
        self.changes.peek()?;
        let mut batch = Batch::default();
        let mut bytes = 0;
        while batch.keys.len() < STATEMENT_ROWS
            && bytes < STATEMENT_BYTES
            && let Some((key, change)) = self.changes.next()
        {
            if let Some(value) = change {
                bytes += key.len() + value.len();
                batch.keys.push(key);
                batch.values.push(value);
            }
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_testbed::database::{Endurance, LocalDatabase};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_in_a_transaction_ends_the_store_and_leaves_nothing_waiting() {
        if !LocalDatabase::is_installed() {
            println!("skipped: no PostgreSQL server; install the package postgresql");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let server = LocalDatabase::create(directory.path(), Endurance::Processes).unwrap();
        let address = DatabaseAddress::parse(&server.url("postgres")).unwrap();
        let beginning = Beginning {
            connection: Connection::open_bare(&address).unwrap(),
            identity: String::new(),
            leader: Leader {
                term: 1,
                sequence: 0,
                valid_until: Moment::now(),
            },
            last_commit: None,
        };
        let flusher = Flusher::new(address, beginning, Duration::from_mins(1));
        flusher.lock().is_flushing = true;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _turn = Turn(&flusher);
            panic!("a bug");
        }));
        assert!(panicked.is_err());
        // A thread that found the transaction under way would wait for its end.
        let waited = flusher.wait(1, &Pending::default());
        assert!(
            matches!(waited, Err(MetaError::Storage { .. })),
            "{waited:?}"
        );
        assert!(!flusher.lock().is_flushing);
    }
}
