//! The row of the leader: the only process that uses the rows.
//!
//! A leader has a *term*, higher than all before, and a lease that runs by the database's clock. Each of its
//! transactions changes the row, on condition that the row still has the leader's term and the number of the last
//! transaction. So a deposed process commits nothing, a transaction counts once although it may be sent several times,
//! and a row lock orders transactions and takeovers. A process takes over when the lease has expired and it has seen no
//! change of the row for some time: after an outage of the database, a live leader has this time to renew its lease. If
//! the database's clock has gone back, the lease does not expire for long; then the process relies on its own clock.

use crate::address::DatabaseAddress;
use crate::connection::Connection;
use crate::error::{Fault, SqlError, failed};
use crate::moment::Moment;
use crate::randomness::random_bytes;
use std::time::Duration;

/// Time that a leader that has stopped keeps others out.
pub const LEASE: Duration = Duration::from_secs(3);
/// A leader relies on its lease for this long: clocks may run 10 % apart over a lease.
pub(crate) const RELIANCE: Duration = Duration::from_millis(2_700);
/// A leader renews its lease when its last transaction is as old as this.
pub(crate) const RENEWAL: Duration = Duration::from_secs(1);
/// Time that a command watches the row of a leader whose lease has expired.
pub(crate) const COMMAND_WATCH: Duration = Duration::from_secs(15);
/// Asking for the leadership ends this long after the row could have been taken.
const ACQUIRE_MARGIN: Duration = Duration::from_secs(5);
/// Time without a change of the row after which its lease is over whatever the database's clock says: a leader that
/// lives changes the row each second.
const ABANDONED: Duration = Duration::from_secs(6);
const WATCH_PAUSE: Duration = Duration::from_millis(100);

/// The row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeaderRow {
    /// Drawn when the tables were made. Copies of the database's files share it.
    pub(crate) identity: String,
    pub(crate) term: i64,
    pub(crate) sequence: i64,
    /// Empty before the first term, and when the last leader has ended its lease itself.
    pub(crate) holder: String,
    pub(crate) is_alive: bool,
}

impl LeaderRow {
    pub(crate) fn read(connection: &Connection) -> Result<Self, Fault> {
        let (rows, _) = connection.simple(
            "SELECT identity, term, sequence, holder, expires > now() FROM gabion_leader WHERE id = 1",
        )?;
        let row = rows.first().and_then(|row| {
            let [identity, term, sequence, holder, is_alive] = row.as_slice() else {
                return None;
            };
            Some(Self {
                identity: identity.clone(),
                term: term.parse().ok()?,
                sequence: sequence.parse().ok()?,
                holder: holder.clone(),
                is_alive: is_alive.starts_with('t'),
            })
        });
        row.ok_or_else(|| Fault::Final {
            code: String::new(),
            reason: "gabion_leader has no valid row".to_owned(),
        })
    }

    /// Whether the row has not changed since it was read.
    fn is_same(&self, other: &Self) -> bool {
        (self.term, self.sequence, &self.holder) == (other.term, other.sequence, &other.holder)
    }
}

/// A term of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leader {
    pub(crate) term: i64,
    /// The number of the last transaction.
    pub(crate) sequence: i64,
    /// Time until which the lease may be relied on.
    pub(crate) valid_until: Moment,
}

/// Causes for which the leadership was not acquired.
pub(crate) enum Refusal {
    Held { holder: String },
    Failed(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

impl Refusal {
    pub(crate) fn of(self, address: &DatabaseAddress) -> SqlError {
        match self {
            Self::Held { holder } => SqlError::InUse {
                address: address.to_string(),
                holder: if holder.is_empty() {
                    "another process".to_owned()
                } else {
                    holder
                },
            },
            Self::Failed(fault) => failed(address, "give this process the leadership")(fault),
        }
    }
}

impl Leader {
    /// Begins a term. Waits until the lease of an earlier leader has expired and the row has not changed for `watch`,
    /// but not if that leader lives. An earlier leader that has ended its lease itself is not waited for.
    pub(crate) fn acquire(
        connection: &Connection,
        holder: &str,
        watch: Duration,
    ) -> Result<Self, Refusal> {
        let began = Moment::now();
        let mut seen_since = began;
        let mut row = LeaderRow::read(connection)?;
        loop {
            let unchanged_for = seen_since.elapsed();
            let has_expired = !row.is_alive || unchanged_for >= ABANDONED;
            let is_free = row.holder.is_empty() || (has_expired && unchanged_for >= watch);
            if is_free && let Some(leader) = Self::take_over(connection, &row, holder)? {
                return Ok(leader);
            }
            if began.elapsed() > watch.max(ABANDONED) + ACQUIRE_MARGIN {
                return Err(Refusal::Held { holder: row.holder });
            }
            std::thread::sleep(WATCH_PAUSE);
            let now = LeaderRow::read(connection)?;
            if !now.is_same(&row) {
                if now.is_alive {
                    return Err(Refusal::Held { holder: now.holder });
                }
                seen_since = Moment::now();
            }
            row = now;
        }
    }

    /// Begins the term after that of a lease that is over, unless the row has changed since it was read.
    fn take_over(
        connection: &Connection,
        row: &LeaderRow,
        holder: &str,
    ) -> Result<Option<Self>, Fault> {
        let (before, sequence) = (row.term, row.sequence);
        // Two processes that lead copies of one database, such as both sides of a failover, have different terms.
        let step = u32::from_le_bytes(random_bytes()?) >> 1;
        let term = before
            .checked_add(1 + i64::from(step))
            .ok_or_else(|| Fault::Final {
                code: String::new(),
                reason: format!("no term follows on {before} in the leader's row"),
            })?;
        let asked = Moment::now();
        let taken = connection.simple(&format!(
            "UPDATE gabion_leader SET term = {term}, holder = '{}', expires = {} WHERE id = 1 AND term = {before} AND \
             sequence = {sequence}",
            quoted(holder),
            expiry()
        ));
        match taken {
            Ok((_, 1)) => {}
            Ok(_) | Err(Fault::Again(_)) => return Ok(None),
            Err(fault) => return Err(fault),
        }
        Ok(Some(Self {
            term,
            sequence,
            valid_until: asked.plus(RELIANCE),
        }))
    }

    /// Begins a transaction with the number after the last, which also renews the lease. It touches no row if the term
    /// or the number is another.
    pub(crate) fn begin(&self) -> String {
        let (term, last) = (self.term, self.sequence);
        format!(
            "BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE gabion_leader SET sequence = {}, expires = {} WHERE id = 1 \
             AND term = {term} AND sequence = {last}",
            last + 1,
            expiry()
        )
    }

    /// Ends the lease. It touches no row if the term is another.
    pub(crate) fn release(&self) -> String {
        let term = self.term;
        format!(
            "UPDATE gabion_leader SET expires = now(), holder = '' WHERE id = 1 AND term = {term}"
        )
    }
}

fn expiry() -> String {
    format!("now() + interval '{} milliseconds'", LEASE.as_millis())
}

/// The inside of a text in SQL. Backslashes would mean something to servers with old settings.
fn quoted(text: &str) -> String {
    text.replace('\\', "/").replace('\'', "''")
}
