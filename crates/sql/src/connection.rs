//! One connection, used by one thread at a time, which drives it: a round trip needs no other thread. Each wait has a
//! deadline, after which the connection is not used again.

use crate::address::DatabaseAddress;
use crate::error::Fault;
use crate::statements::Statements;
use gabion_meta::Row;
use std::cell::Cell;
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connection to one host is made, with its login and its settings, by then: the next host gets its turn.
const HOST_DEADLINE: Duration = Duration::from_secs(4);
/// Answers come by then.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// Settings that all three databases have. A transaction of a process that is gone must not keep its locks, and a
/// statement whose client is gone must end.
const SETTINGS: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '5s'";
/// Settings of `PostgreSQL`'s planner: each statement has one good plan, by the primary key, whatever the statistics
/// say. Databases that do not know them do without.
const PLANNER: [&str; 3] = [
    "SET plan_cache_mode = force_generic_plan",
    "SET enable_seqscan = off",
    "SET enable_bitmapscan = off",
];

/// The term and the number of the last transaction that a query has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub(crate) term: i64,
    pub(crate) sequence: i64,
}

/// A connection with prepared statements.
pub(crate) struct Connection {
    /// Always there until the drop.
    runtime: Option<Runtime>,
    client: Client,
    /// `None` where the tables do not exist yet.
    statements: Option<Statements>,
    is_lost: Cell<bool>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Any other way of ending it would panic in a task of a run-time.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Connection {
    /// Connects to a database with tables.
    pub(crate) fn open(address: &DatabaseAddress) -> Result<Self, Fault> {
        let mut this = Self::open_bare(address)?;
        let prepared = this.run(Statements::prepare(&this.client))?;
        this.statements = Some(prepared);
        Ok(this)
    }

    /// Connects to a database that may have no tables: only [`Connection::simple`] may be used.
    pub(crate) fn open_bare(address: &DatabaseAddress) -> Result<Self, Fault> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Fault::Lost(error.to_string()))?;
        let client = match runtime.block_on(connect_to_any(address)) {
            Ok(client) => client,
            Err(fault) => {
                runtime.shutdown_background();
                return Err(fault);
            }
        };
        Ok(Self {
            runtime: Some(runtime),
            client,
            statements: None,
            is_lost: Cell::new(false),
        })
    }

    /// Whether it may be used again.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_lost.get() && !self.client.is_closed()
    }

    /// Runs statements without parameters; gives the first column of each row, and how many rows the last statement
    /// has touched.
    pub(crate) fn simple(&self, sql: &str) -> Result<(Vec<Vec<String>>, u64), Fault> {
        self.simple_within(sql, ANSWER_DEADLINE)
    }

    /// The same with a shorter deadline.
    pub(crate) fn simple_within(
        &self,
        sql: &str,
        deadline: Duration,
    ) -> Result<(Vec<Vec<String>>, u64), Fault> {
        let messages = self.run_within(self.client.simple_query(sql), deadline)?;
        let mut rows = Vec::new();
        let mut touched = 0;
        for message in messages {
            match message {
                SimpleQueryMessage::Row(row) => {
                    let columns = (0..row.len()).map(|at| row.get(at).unwrap_or_default());
                    rows.push(columns.map(str::to_owned).collect());
                }
                SimpleQueryMessage::CommandComplete(count) => touched = count,
                _ => {}
            }
        }
        Ok((rows, touched))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<(Stamp, Option<Vec<u8>>), Fault> {
        let statement = &self.statements().get;
        let rows = async { self.client.query(statement, &[&key]).await };
        let rows = self.run(rows)?;
        let stamp = stamp_of(&rows)?;
        let value = rows.first().map(|row| row.try_get(2));
        Ok((stamp, value.transpose()?.flatten()))
    }

    pub(crate) fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: usize,
    ) -> Result<(Stamp, Vec<Row>), Fault> {
        let statement = &self.statements().scan;
        self.rows(statement, (start, end), limit)
    }

    /// The last rows below `end`, from the last on.
    pub(crate) fn last(
        &self,
        start: &[u8],
        end: &[u8],
        limit: usize,
    ) -> Result<(Stamp, Vec<Row>), Fault> {
        let statement = &self.statements().last;
        self.rows(statement, (start, end), limit)
    }

    fn rows(
        &self,
        statement: &Statement,
        (start, end): (&[u8], &[u8]),
        limit: usize,
    ) -> Result<(Stamp, Vec<Row>), Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = async { self.client.query(statement, &[&start, &end, &limit]).await };
        let rows = self.run(rows)?;
        let stamp = stamp_of(&rows)?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let key: Option<Vec<u8>> = row.try_get(2)?;
            if let Some(key) = key {
                found.push((key, row.try_get(3)?));
            }
        }
        Ok((stamp, found))
    }

    /// Sets rows in a transaction that has begun.
    pub(crate) fn put(&self, keys: &[&[u8]], values: &[&[u8]]) -> Result<(), Fault> {
        let statement = &self.statements().put;
        let put = async { self.client.execute(statement, &[&keys, &values]).await };
        self.run(put)?;
        Ok(())
    }

    /// Sets and removes rows in a transaction that has begun, and commits it, in one round trip. If one of the
    /// statements fails, the server turns the commit into a rollback.
    pub(crate) fn finish(
        &self,
        (keys, values): (&[&[u8]], &[&[u8]]),
        removed: &[&[u8]],
    ) -> Result<(), Fault> {
        let statements = self.statements();
        // The futures send in the order in which they are polled first, which is this one.
        let all = async {
            let put = async {
                if keys.is_empty() {
                    return Ok(0);
                }
                let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&keys, &values];
                self.client.execute(&statements.put, &parameters).await
            };
            let delete = async {
                if removed.is_empty() {
                    return Ok(0);
                }
                self.client.execute(&statements.delete, &[&removed]).await
            };
            let commit = self.client.batch_execute("COMMIT");
            let (put, delete, commit) = futures::join!(put, delete, commit);
            put.and(delete).and(commit)
        };
        self.run(all)
    }

    fn statements(&self) -> &Statements {
        let statements = self.statements.as_ref();
        statements.expect("rows are used by connections with statements only")
    }

    /// Drives the connection until the answer is there.
    fn run<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Fault> {
        self.run_within(answer, ANSWER_DEADLINE)
    }

    fn run_within<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
        deadline: Duration,
    ) -> Result<T, Fault> {
        let runtime = self.runtime.as_ref().expect("it is taken by the drop only");
        let answered = runtime.block_on(async { timeout(deadline, answer).await });
        let answer = answered.map_err(|_| {
            let seconds = deadline.as_secs_f64();
            Fault::Lost(format!("no answer within {seconds:.0} s"))
        });
        let answer = answer.and_then(|answer| answer.map_err(Fault::from));
        if let Err(Fault::Lost(_)) = answer {
            self.is_lost.set(true);
        }
        answer
    }
}

/// The leader's row of a query's view.
fn stamp_of(rows: &[tokio_postgres::Row]) -> Result<Stamp, Fault> {
    let row = rows.first().ok_or_else(|| Fault::Final {
        code: String::new(),
        reason: "gabion_leader has no row".to_owned(),
    })?;
    Ok(Stamp {
        term: row.try_get(0)?,
        sequence: row.try_get(1)?,
    })
}

/// Connects to the first host that takes writes, beginning with the one that did so last.
async fn connect_to_any(address: &DatabaseAddress) -> Result<Client, Fault> {
    let mut faults = Vec::new();
    for (host, config) in address.hosts() {
        let connected = timeout(HOST_DEADLINE, connect(config, address.tls())).await;
        let fault = match connected {
            Ok(Ok(client)) => {
                address.prefer(host);
                return Ok(client);
            }
            Ok(Err(error)) => Fault::from(error),
            Err(_) => {
                let seconds = HOST_DEADLINE.as_secs();
                Fault::Lost(format!("no answer within {seconds} s"))
            }
        };
        faults.push((host, fault));
    }
    Err(together(address, faults))
}

/// The fault of several hosts: as long as one may answer later, all of them may.
fn together(address: &DatabaseAddress, mut faults: Vec<(usize, Fault)>) -> Fault {
    if faults.len() <= 1 {
        let only = faults.pop().map(|(_, fault)| fault);
        return only.unwrap_or_else(|| Fault::Lost("it has no host".to_owned()));
    }
    let reasons: Vec<String> = faults
        .iter()
        .map(|(host, fault)| format!("{}: {}", address.host_name(*host), fault.reason()))
        .collect();
    let reason = reasons.join("; ");
    let refusal = faults.into_iter().map(|(_, fault)| match fault {
        Fault::Final { code, .. } => Some(code),
        _ => None,
    });
    match refusal.collect::<Option<Vec<String>>>() {
        Some(codes) => Fault::Final {
            code: codes.into_iter().next().unwrap_or_default(),
            reason,
        },
        None => Fault::Lost(reason),
    }
}

/// Connects, lets the run-time drive the connection, and makes the settings.
async fn connect(config: &Config, tls: Option<MakeRustlsConnect>) -> Result<Client, Error> {
    let client = if let Some(tls) = tls {
        let (client, connection) = config.connect(tls).await?;
        // Its end is seen by the next statement.
        tokio::spawn(async { drop(connection.await) });
        client
    } else {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async { drop(connection.await) });
        client
    };
    client.batch_execute(SETTINGS).await?;
    for setting in PLANNER {
        match client.batch_execute(setting).await {
            Err(error) if error.as_db_error().is_none() => return Err(error),
            _ => {}
        }
    }
    require_durable_commits(&client).await?;
    Ok(client)
}

/// A commit that is answered must be on the disks of the server and of its synchronous standbys, whatever an
/// administrator has set for speed, or sets later. The one stronger setting is kept.
async fn require_durable_commits(client: &Client) -> Result<(), Error> {
    let shown = client.simple_query("SHOW synchronous_commit").await?;
    let is_stronger = shown.iter().any(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0) == Some("remote_apply"),
        _ => false,
    });
    let wanted = if is_stronger { "remote_apply" } else { "on" };
    let set = format!("SET synchronous_commit = {wanted}");
    client.batch_execute(&set).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_testbed::database::{Endurance, LocalDatabase};

    #[test]
    fn commits_are_durable_whatever_is_set_for_the_database() {
        if !LocalDatabase::is_installed() {
            println!("skipped: no PostgreSQL server; install the package postgresql");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let server = LocalDatabase::create(directory.path(), Endurance::Processes).unwrap();
        server.create_database("meta").unwrap();
        let address = DatabaseAddress::parse(&server.url("meta")).unwrap();
        for (set, expected) in [
            ("off", "on"),
            ("local", "on"),
            ("remote_write", "on"),
            ("on", "on"),
            ("remote_apply", "remote_apply"),
        ] {
            let alter = format!("ALTER DATABASE meta SET synchronous_commit = {set}");
            server.execute("meta", &alter).unwrap();
            let connection = Connection::open_bare(&address).unwrap();
            // A session's own setting outlives one for all sessions that is made later.
            let source =
                "SELECT setting, source FROM pg_settings WHERE name = 'synchronous_commit'";
            let (rows, _) = connection.simple(source).unwrap();
            assert_eq!(rows, [[expected, "session"]], "{set}");
        }
    }
}
