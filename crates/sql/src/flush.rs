//! Makes pending changes durable, many transactions by one, and keeps the lease.
//!
//! **Lost answers.** When a connection ends before the answer to COMMIT, the transaction may be durable or not, and may even
//! be under way at the server. So it is sent again, with the same number. It begins by changing the leader's row from the
//! number before, for which it waits until the other try has ended. Either it finds that number: then no other try counts,
//! and this one goes on. Or it finds its own: then the other try was durable, and nothing is done again. Any other number or
//! term ends the leadership.

use crate::address::DatabaseAddress;
use crate::connection::Connection;
use crate::error::{Fault, storage};
use crate::leader::{Leader, LeaderRow, RELIANCE, RENEWAL};
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
/// The code of a fault that ends the leadership.
const DEPOSED: &str = "deposed";

/// Writes to the database, one transaction at a time.
pub(crate) struct Flusher {
    address: DatabaseAddress,
    term: i64,
    /// How long an operation is tried before the store fails.
    patience: Duration,
    state: Mutex<State>,
    changed: Condvar,
    line: Mutex<Line>,
    /// Grows with each connection of `line`.
    era: AtomicU64,
    /// SQL transactions, and tries of them.
    pub(crate) group_count: AtomicU64,
    pub(crate) try_count: AtomicU64,
}

struct State {
    /// All transactions up to this number are durable.
    durable: u64,
    is_flushing: bool,
    /// Why the store takes no more operations.
    failed: Option<MetaError>,
    leader: Leader,
}

/// The connection of commits.
struct Line {
    connection: Option<Connection>,
}

impl Flusher {
    pub(crate) fn new(
        address: DatabaseAddress,
        connection: Connection,
        leader: Leader,
        patience: Duration,
    ) -> Self {
        Self {
            address,
            term: leader.term,
            patience,
            state: Mutex::new(State {
                durable: 0,
                is_flushing: false,
                failed: None,
                leader,
            }),
            changed: Condvar::new(),
            line: Mutex::new(Line {
                connection: Some(connection),
            }),
            era: AtomicU64::new(0),
            group_count: AtomicU64::new(0),
            try_count: AtomicU64::new(0),
        }
    }

    pub(crate) fn term(&self) -> i64 {
        self.term
    }

    /// The number of the last transaction that is known to be durable.
    pub(crate) fn sequence(&self) -> i64 {
        self.lock().leader.sequence
    }

    /// See [`crate::pool`].
    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    /// Refuses everything once the store has failed.
    pub(crate) fn check(&self) -> Result<(), MetaError> {
        self.lock().failed.clone().map_or(Ok(()), Err)
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
        let mut state = self.lock();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.durable >= number && Instant::now() < state.leader.valid_until {
                return Ok(());
            }
            state = self.flush(state, pending);
        }
    }

    /// Renews the lease unless a transaction did so lately.
    pub(crate) fn renew(&self, pending: &Pending) -> Result<(), MetaError> {
        let state = self.lock();
        let is_fresh = state.leader.valid_until + RENEWAL > Instant::now() + RELIANCE;
        if state.failed.is_none() && !is_fresh {
            let state = self.flush(state, pending);
            return state.failed.clone().map_or(Ok(()), Err);
        }
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// Makes all pending changes durable; if another thread does that, waits for its end.
    fn flush<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        pending: &Pending,
    ) -> MutexGuard<'s, State> {
        if state.is_flushing {
            let woken = self.changed.wait(state);
            return woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.is_flushing = true;
        let leader = state.leader;
        drop(state);
        let (number, changes) = pending.copy();
        let committed = self.commit(&leader, &changes);
        if committed.is_ok() {
            pending.retire(number);
        }
        let mut state = self.lock();
        state.is_flushing = false;
        match committed {
            Ok(leader) => {
                state.durable = state.durable.max(number);
                state.leader = leader;
            }
            Err(error) => {
                state.failed.get_or_insert(error);
            }
        }
        self.changed.notify_all();
        state
    }

    /// Commits changes as the transaction behind the leader's last one, whatever becomes of connections meanwhile.
    fn commit(&self, leader: &Leader, changes: &[(Vec<u8>, Change)]) -> Result<Leader, MetaError> {
        self.group_count.fetch_add(1, Ordering::Relaxed);
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        // The lease begins with the try that counts, which is this one or a later one.
        let mut earliest = None;
        self.patiently("commit", || {
            let began = Instant::now();
            let valid_until = *earliest.get_or_insert(began + RELIANCE);
            let connection = match line.connection.take() {
                Some(connection) if connection.is_usable() => connection,
                _ => {
                    let connection = Connection::open(&self.address)?;
                    self.era.fetch_add(1, Ordering::AcqRel);
                    connection
                }
            };
            self.try_count.fetch_add(1, Ordering::Relaxed);
            let is_now = self.attempt(&connection, leader, changes)?;
            line.connection = Some(connection);
            Ok(Leader {
                sequence: leader.sequence + 1,
                valid_until: if is_now {
                    began + RELIANCE
                } else {
                    valid_until
                },
                ..*leader
            })
        })
    }

    /// One try. Returns whether it was this one that counts, and not an earlier one. A connection on which it fails must
    /// be dropped, which ends its transaction.
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
            return Err(self.deposed(&row));
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
                Fault::Final { code, reason } if code == DEPOSED => {
                    let reason = reason.clone();
                    return Err(self.fail(MetaError::Deposed { reason }));
                }
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
    pub(crate) fn deposed(&self, row: &LeaderRow) -> Fault {
        let reason = if row.term == self.term {
            "it lacks transactions that were committed".to_owned()
        } else {
            format!("{} has taken it over", row.holder)
        };
        Fault::Final {
            code: DEPOSED.to_owned(),
            reason: format!("{}: {reason}", self.address),
        }
    }

    /// Ends the lease, if the database answers at once.
    pub(crate) fn release(&self) {
        let leader = self.lock().leader;
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = line.connection.take() {
            // If it fails, the lease expires.
            let _ = connection.simple(&leader.release());
        }
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
