//! A server that tests which run at a time share, with a database for each test.

use gabion_meta::{KeyValue, MetaError};
use gabion_sql::{DatabaseAddress, PostgresStore, SqlError, StoreOptions, migrate};
use gabion_testbed::database::{Endurance, LocalDatabase, Relay};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tempfile::TempDir;

/// A server, and the directory that goes away with it.
pub(crate) struct Server {
    pub(crate) database: LocalDatabase,
    directory: TempDir,
    made_count: AtomicU64,
}

impl Server {
    /// A server that other tests use too: for tests that do not stop it. None where no server is installed.
    pub(crate) fn shared() -> Option<Arc<Self>> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        // A test that has failed to start a server leaves none.
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    /// A server of a test's own. None where no server is installed.
    pub(crate) fn start() -> Option<Self> {
        if !LocalDatabase::is_installed() {
            println!("skipped: no PostgreSQL server; install the package postgresql");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        Some(Self {
            database: LocalDatabase::create(directory.path(), Endurance::Processes).unwrap(),
            directory,
            made_count: AtomicU64::new(0),
        })
    }

    /// The name of a new database with tables.
    pub(crate) fn new_database(&self) -> String {
        let number = self.made_count.fetch_add(1, Ordering::Relaxed);
        let name = format!("meta{number}");
        self.database.create_database(&name).unwrap();
        migrate(&self.address(&name)).unwrap();
        name
    }

    pub(crate) fn address(&self, name: &str) -> DatabaseAddress {
        DatabaseAddress::parse(&self.database.url(name)).unwrap()
    }

    pub(crate) fn open(&self, name: &str) -> Result<PostgresStore, SqlError> {
        PostgresStore::open(self.address(name), &StoreOptions::of("a test"))
    }

    /// A directory for a test's files.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn relay(&self) -> Relay {
        let number = self.made_count.fetch_add(1, Ordering::Relaxed);
        let directory = self.directory.path().join(format!("relay{number}"));
        Relay::start(&self.database, &directory).unwrap()
    }
}

/// Opens a store through a relay.
pub(crate) fn open_through(relay: &Relay, name: &str, patience: Duration) -> PostgresStore {
    let address = DatabaseAddress::parse(&relay.url(name)).unwrap();
    let options = StoreOptions {
        patience,
        ..StoreOptions::of("a test")
    };
    PostgresStore::open(address, &options).unwrap()
}

/// Adds one to a number and notes that in a row of its own; gives the number.
pub(crate) fn count_up(store: &impl KeyValue) -> Result<u64, MetaError> {
    store.write(|txn| {
        let before = txn.get(b"count")?.map_or(0, |value| number(&value));
        let after = before + 1;
        txn.put(b"count", &after.to_be_bytes())?;
        txn.put(&[b"n".as_slice(), &after.to_be_bytes()].concat(), b"")?;
        // A row that is always there and always another.
        txn.delete(&[b"last", before.to_be_bytes().as_slice()].concat())?;
        txn.put(&[b"last", after.to_be_bytes().as_slice()].concat(), b"")?;
        Ok(after)
    })
}

/// The number, after a check that the rows beside it agree.
pub(crate) fn counted(store: &impl KeyValue) -> u64 {
    store
        .read(|txn| {
            let count = txn.get(b"count")?.map_or(0, |value| number(&value));
            let notes = txn.scan(b"n", b"o", usize::MAX)?;
            assert_eq!(
                notes.len() as u64,
                count,
                "a transaction was torn or counted twice"
            );
            let last = txn.scan(b"last", b"lasu", usize::MAX)?;
            assert_eq!(last.len() as u64, count.min(1));
            Ok(count)
        })
        .unwrap()
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Another session, which changes the leader's row without a change and keeps it locked.
pub(crate) struct Rival {
    psql: Child,
    said: BufReader<ChildStdout>,
}

/// A program that carries out statements in a database.
fn psql(server: &Server, name: &str) -> Command {
    let host = server.database.socket().display().to_string();
    let mut psql = server.database.program("psql");
    psql.args(["-q", "-U", "gabion", "-h", &host, name]);
    psql
}

/// The database's clock goes back by ten minutes, as far as the leader's lease can tell.
pub(crate) fn put_clock_back(server: &Server, name: &str) {
    let statement = "UPDATE gabion_leader SET expires = expires + interval '10 minutes'";
    let done = psql(server, name).args(["-c", statement]).status();
    assert!(done.unwrap().success());
}

impl Rival {
    pub(crate) fn lock(server: &Server, name: &str) -> Self {
        let mut psql = psql(server, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(psql.stdout.take().unwrap());
        let update = "BEGIN; UPDATE gabion_leader SET holder = holder;\n\\echo locked\n";
        let stdin = psql.stdin.as_mut().unwrap();
        stdin.write_all(update.as_bytes()).unwrap();
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "locked\n");
        Self { psql, said }
    }

    pub(crate) fn commit(mut self) {
        let mut stdin = self.psql.stdin.take().unwrap();
        stdin.write_all(b"COMMIT;\n").unwrap();
        drop(stdin);
        self.said.read_to_string(&mut String::new()).unwrap();
        assert!(self.psql.wait().unwrap().success());
    }
}
