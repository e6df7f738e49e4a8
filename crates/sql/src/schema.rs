//! The tables and their versions: a table of rows, the row of the leader, and the row of the version.

use crate::address::DatabaseAddress;
use crate::connection::Connection;
use crate::error::{Fault, SqlError, failed, unreachable};
use crate::leader::{COMMAND_WATCH, Leader};
use crate::randomness::random_bytes;

/// The statements that lead from each version of the tables to the next. Version 0 is none.
const MIGRATIONS: [&[&str]; 1] = [&[
    "CREATE TABLE gabion_rows (key bytea PRIMARY KEY, value bytea NOT NULL)",
    // `sequence` counts the transactions of all leaders.
    "CREATE TABLE gabion_leader (id bigint PRIMARY KEY, term bigint NOT NULL, sequence bigint NOT NULL, \
     holder text NOT NULL, expires timestamptz NOT NULL, identity text NOT NULL)",
    "INSERT INTO gabion_leader (id, term, sequence, holder, expires, identity) VALUES (1, 0, 0, '', now(), '')",
    "CREATE TABLE gabion_schema (id bigint PRIMARY KEY, version bigint NOT NULL)",
    "INSERT INTO gabion_schema (id, version) VALUES (1, 0)",
]];

/// The version that this program uses.
pub(crate) const VERSION: i64 = 1;
const _: () = assert!(VERSION as usize == MIGRATIONS.len());

/// The result of a migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migration {
    /// The version of the tables before; 0 without tables.
    pub from: i64,
    /// Their version now.
    pub to: i64,
}

/// Creates the tables, or brings those of an older version up to date, in one transaction. Does nothing if they are of
/// this program's version.
///
/// # Errors
/// [`SqlError::Unreachable`]; [`SqlError::InUse`] while a process uses older tables; [`SqlError::OtherSchema`] if they
/// are newer; [`SqlError::Failed`].
pub fn migrate(address: &DatabaseAddress) -> Result<Migration, SqlError> {
    let connection = Connection::open_bare(address).map_err(unreachable(address))?;
    let from = version(&connection).map_err(failed(address, "read the version of its tables"))?;
    let migration = Migration { from, to: VERSION };
    if from > VERSION {
        return Err(other(address, from));
    }
    if from == VERSION {
        return Ok(migration);
    }
    let pending = MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0));
    let mut steps: Vec<String> = pending
        .flat_map(|steps| steps.iter().map(|&step| step.to_owned()))
        .collect();
    steps.push(format!(
        "UPDATE gabion_schema SET version = {VERSION} WHERE id = 1"
    ));
    let attempt = if from > 0 {
        // Nothing writes rows during the migration: each transaction changes the leader's row.
        let holder = "gabion metadata migrate";
        let taken = Leader::acquire(&connection, holder, COMMAND_WATCH);
        Attempt::ByLeader(taken.map_err(|error| error.of(address))?)
    } else {
        let identity = random_identity().map_err(failed(address, "draw an identity"))?;
        steps.push(format!("UPDATE gabion_leader SET identity = '{identity}'"));
        Attempt::OfNothing
    };
    attempt
        .make(&connection, &steps)
        .map_err(failed(address, "make the tables"))?;
    Ok(migration)
}

/// The way in which the steps of a migration are made.
enum Attempt {
    /// Without tables: of two processes that make them at once, one fails.
    OfNothing,
    /// As a leader's transaction.
    ByLeader(Leader),
}

impl Attempt {
    fn make(&self, connection: &Connection, steps: &[String]) -> Result<(), Fault> {
        let changed = |sql: &str| match connection.simple(sql)? {
            (_, 1) => Ok(()),
            _ => Err(Fault::Again(
                "another process has taken the metadata over".to_owned(),
            )),
        };
        match self {
            Self::OfNothing => drop(connection.simple("BEGIN ISOLATION LEVEL SERIALIZABLE")?),
            Self::ByLeader(leader) => {
                changed(&leader.begin())?;
                changed(&leader.release())?;
            }
        }
        connection.simple(&steps.join("; "))?;
        connection.simple("COMMIT")?;
        Ok(())
    }
}

/// An identity for a new database.
fn random_identity() -> Result<String, Fault> {
    let identity = u128::from_le_bytes(random_bytes()?);
    Ok(format!("{identity:032x}"))
}

/// Refuses a database whose tables are missing or of another version.
pub(crate) fn require(connection: &Connection, address: &DatabaseAddress) -> Result<(), SqlError> {
    let found = version(connection);
    match found.map_err(failed(address, "read the version of its tables"))? {
        VERSION => Ok(()),
        0 => Err(SqlError::NoSchema {
            address: address.to_string(),
        }),
        found => Err(other(address, found)),
    }
}

/// The version of the tables; 0 without tables.
fn version(connection: &Connection) -> Result<i64, Fault> {
    match connection.simple("SELECT version FROM gabion_schema WHERE id = 1") {
        Ok((rows, _)) => {
            let version = rows.first().and_then(|row| row.first()?.parse().ok());
            version.ok_or_else(|| Fault::Final {
                code: String::new(),
                reason: "gabion_schema has no version".to_owned(),
            })
        }
        Err(fault) if fault.is_no_table() => Ok(0),
        Err(fault) => Err(fault),
    }
}

fn other(address: &DatabaseAddress, found: i64) -> SqlError {
    let address = address.to_string();
    let advice = if found > VERSION {
        "use a newer program".to_owned()
    } else {
        format!("run gabion metadata migrate --to '{address}'")
    };
    SqlError::OtherSchema {
        address,
        found,
        needed: VERSION,
        advice,
    }
}
