//! The row of the leader: the only process that uses the rows.
//!
//! A leader has a *term*, higher than all before, and a lease that runs by the database's clock. Each of its
//! transactions changes the row where its term and the number of the last transaction are still there. So a process that
//! was deposed commits nothing, a transaction counts once however often it is sent, and a row lock orders transactions and
//! takeovers. A process takes over when the lease has expired.

use crate::address::DatabaseAddress;
use crate::connection::Connection;
use crate::error::{Fault, SqlError};
use crate::schema::failed;
use std::time::{Duration, Instant};

/// How long a leader that has stopped keeps others out.
pub const LEASE: Duration = Duration::from_secs(3);
/// A leader relies on its lease for this long: clocks may run 10 % apart over a lease.
pub(crate) const RELIANCE: Duration = Duration::from_millis(2_700);
/// A leader renews its lease when its last transaction is as old as this.
pub(crate) const RENEWAL: Duration = Duration::from_secs(1);
/// A process that asks for the leadership watches a living leader for as long as this: a lease, and a renewal.
const WATCH: Duration = Duration::from_millis(4_500);
const WATCH_PAUSE: Duration = Duration::from_millis(100);

/// The row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeaderRow {
    pub(crate) term: i64,
    pub(crate) sequence: i64,
    pub(crate) holder: String,
    pub(crate) is_alive: bool,
}

impl LeaderRow {
    pub(crate) fn read(connection: &Connection) -> Result<Self, Fault> {
        let (rows, _) = connection.simple(
            "SELECT term, sequence, holder, expires > now() FROM gabion_leader WHERE id = 1",
        )?;
        let row = rows.first().and_then(|row| {
            let [term, sequence, holder, is_alive] = row.as_slice() else {
                return None;
            };
            Some(Self {
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
}

/// A term of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leader {
    pub(crate) term: i64,
    /// The number of the last transaction.
    pub(crate) sequence: i64,
    /// Until when the lease may be relied on.
    pub(crate) valid_until: Instant,
}

/// Why the leadership was not acquired.
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
                holder,
            },
            Self::Failed(fault) => failed(address, "give this process the leadership")(fault),
        }
    }
}

impl Leader {
    /// Begins a term. Waits until the lease of an earlier leader has expired, but not if that leader lives.
    pub(crate) fn acquire(connection: &Connection, holder: &str) -> Result<Self, Refusal> {
        let first = LeaderRow::read(connection)?;
        let began = Instant::now();
        let mut row = first.clone();
        loop {
            if row.is_alive {
                let is_living = (row.term, row.sequence) != (first.term, first.sequence);
                if is_living || began.elapsed() > WATCH {
                    let holder = row.holder;
                    return Err(Refusal::Held { holder });
                }
                std::thread::sleep(WATCH_PAUSE);
            } else if let Some(leader) = Self::take_over(connection, &row, holder)? {
                return Ok(leader);
            }
            row = LeaderRow::read(connection)?;
        }
    }

    /// Begins the term after that of an expired lease, unless another process was faster.
    fn take_over(
        connection: &Connection,
        row: &LeaderRow,
        holder: &str,
    ) -> Result<Option<Self>, Fault> {
        let (before, term) = (row.term, row.term + 1);
        let asked = Instant::now();
        let taken = connection.simple(&format!(
            "UPDATE gabion_leader SET term = {term}, holder = '{}', expires = {} WHERE id = 1 AND term = {before} AND \
             expires <= now()",
            quoted(holder),
            expiry()
        ));
        match taken {
            Ok((_, 1)) => {}
            Ok(_) | Err(Fault::Again(_)) => return Ok(None),
            Err(fault) => return Err(fault),
        }
        // The earlier leader commits nothing any more, so its last number stands.
        let sequence = LeaderRow::read(connection)?.sequence;
        Ok(Some(Self {
            term,
            sequence,
            valid_until: asked + RELIANCE,
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

    /// Ends the lease.
    pub(crate) fn release(&self) -> String {
        let term = self.term;
        format!("UPDATE gabion_leader SET expires = now() WHERE id = 1 AND term = {term}")
    }
}

fn expiry() -> String {
    format!("now() + interval '{} milliseconds'", LEASE.as_millis())
}

/// The inside of a text in SQL. Backslashes would mean something to servers with old settings.
fn quoted(text: &str) -> String {
    text.replace('\\', "/").replace('\'', "''")
}
