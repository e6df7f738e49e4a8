//! The engine. Write transactions run one after another; read transactions run concurrently, but never with a write
//! transaction. So each sees the result of all earlier transactions, although these may not be durable yet. An answer
//! is given when everything that it depends on is durable and this process is known to lead.

use crate::address::DatabaseAddress;
use crate::cache::Cache;
use crate::connection::Connection;
use crate::error::{SqlError, failed, unreachable};
use crate::flush::{Beginning, Flusher};
use crate::last_commit::LastCommit;
use crate::leader::{COMMAND_WATCH, LEASE, Leader, LeaderRow, RENEWAL};
use crate::pending::Pending;
use crate::pool::Pool;
use crate::schema::require;
use crate::transaction::Transaction;
use gabion_meta::{KeyValue, MetaError, ReadTxn, WriteTxn};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Parameters of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The description of the process that uses the metadata, for other processes, such as `the coordinator at
    /// HOST:PORT`.
    pub holder: String,
    /// Time that an operation waits for a database that does not answer before it fails, and with it the store.
    pub patience: Duration,
    /// Maximum wait of the start for a database that cannot be reached. One that refuses the user is not waited for.
    pub start_patience: Duration,
    /// Time that the row of a leader whose lease has expired must stay as it is before this process takes over.
    pub watch: Duration,
    /// The file in which the number of the last commit is noted, so that a later start recognises a database that has
    /// lost it.
    pub last_commit: Option<PathBuf>,
    /// Memory for rows.
    pub cache_bytes: usize,
}

impl StoreOptions {
    /// Time that a command watches: longer than a leader that lives needs for a renewal after an outage of its
    /// database, since a command must not end a coordinator.
    pub const COMMAND_WATCH: Duration = COMMAND_WATCH;

    /// Those of a coordinator: a minute of patience, also at the start, the watch of a lease, no note of the last
    /// commit, and 256 MiB of rows.
    pub fn of(holder: impl Into<String>) -> Self {
        Self {
            holder: holder.into(),
            patience: Duration::from_mins(1),
            start_patience: Duration::from_mins(1),
            watch: LEASE,
            last_commit: None,
            cache_bytes: 256 << 20,
        }
    }

    /// Those of a command, which waits for no database and for no coordinator that lives.
    pub fn of_command(holder: impl Into<String>) -> Self {
        Self {
            start_patience: Duration::ZERO,
            watch: Self::COMMAND_WATCH,
            ..Self::of(holder)
        }
    }
}

/// The requests of a store to its database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Queries, each a round trip.
    pub query_count: u64,
    /// SQL transactions, each two round trips or more; renewals of the lease count too.
    pub commit_count: u64,
    /// The number of times those were sent.
    pub try_count: u64,
}

/// Maximum wait of the end of a store for the database. The lease has expired by then.
const RELEASE_DEADLINE: Duration = LEASE;
/// The first pause before the start tries again, and the longest.
const START_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// A [`KeyValue`] engine over a database. Its operations block, and panic in a task of a tokio run-time.
pub struct PostgresStore {
    shared: Arc<Shared>,
    /// Its drop ends the thread that renews the lease.
    _keeper: Sender<()>,
}

/// The leadership of a store, by which its process ends it although others still hold the store.
pub struct Leadership(Arc<Shared>);

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").finish_non_exhaustive()
    }
}

impl Leadership {
    /// Ends all use of the store, and then its lease: another process may lead at once. Operations under way end first
    /// or fail. Waits for the database up to 3 s; behind that the lease expires by itself. Returns whether it was
    /// ended.
    ///
    /// # Panics
    /// In a task of a tokio run-time: call it from a thread that may wait.
    pub fn release(&self) -> bool {
        self.0.flusher.release(RELEASE_DEADLINE)
    }
}

pub(crate) struct Shared {
    pub(crate) pending: Pending,
    pub(crate) cache: Cache,
    pub(crate) flusher: Flusher,
    pub(crate) pool: Pool,
    /// Held by readers together, by a writer alone.
    turn: RwLock<()>,
    query_count: AtomicU64,
}

impl Shared {
    pub(crate) fn count_query(&self) {
        self.query_count.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the store in a database whose tables `migrate` has made, and becomes its leader. If a process that led has
    /// just been killed, waits for the end of its lease and for `watch`.
    ///
    /// # Errors
    /// [`SqlError`]; [`SqlError::InUse`] while another process leads; [`SqlError::LostCommits`] if the database is an
    /// older state of the one whose last commit is noted.
    ///
    /// # Panics
    /// In a task of a tokio run-time: call it from a thread that may wait.
    pub fn open(address: DatabaseAddress, options: &StoreOptions) -> Result<Self, SqlError> {
        let connection = reached(&address, options.start_patience)?;
        require(&connection, &address)?;
        let last_commit = options.last_commit.as_deref().map(last_commit);
        let last_commit = last_commit.transpose()?;
        let row = LeaderRow::read(&connection);
        let row = row.map_err(failed(&address, "read the row of its leader"))?;
        refuse_older(&address, &row, last_commit.as_ref())?;
        let leader = Leader::acquire(&connection, &options.holder, options.watch);
        let leader = leader.map_err(|refusal| refusal.of(&address))?;
        drop(connection);
        let beginning = Beginning {
            connection: Connection::open(&address).map_err(unreachable(&address))?,
            identity: row.identity,
            leader,
            last_commit,
        };
        let pool = Pool::new(address.clone());
        let shared = Arc::new(Shared {
            pending: Pending::default(),
            cache: Cache::new(options.cache_bytes),
            flusher: Flusher::new(address, beginning, options.patience),
            pool,
            turn: RwLock::new(()),
            query_count: AtomicU64::new(0),
        });
        let (keeper, ended) = channel::<()>();
        let kept = Arc::clone(&shared);
        std::thread::spawn(move || {
            while ended.recv_timeout(RENEWAL / 2) == Err(RecvTimeoutError::Timeout) {
                match kept.flusher.renew(&kept.pending) {
                    Ok(()) => {}
                    Err(MetaError::Closed) => return,
                    // The coordinator sees it when it asks whether the store leads.
                    Err(error) => {
                        tracing::error!(%error, "the metadata cannot be used any longer");
                        return;
                    }
                }
            }
        });
        Ok(Self {
            shared,
            _keeper: keeper,
        })
    }

    /// Its leadership.
    pub fn leadership(&self) -> Leadership {
        Leadership(Arc::clone(&self.shared))
    }

    /// Returns its requests to its database since it was opened.
    pub fn traffic(&self) -> Traffic {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Traffic {
            query_count: count(&self.shared.query_count),
            commit_count: count(&self.shared.flusher.group_count),
            try_count: count(&self.shared.flusher.try_count),
        }
    }
}

/// Connects to a database, and waits until it can be reached.
fn reached(address: &DatabaseAddress, patience: Duration) -> Result<Connection, SqlError> {
    let began = Instant::now();
    let mut pause = START_PAUSES.0;
    loop {
        let fault = match Connection::open_bare(address) {
            Ok(connection) => return Ok(connection),
            Err(fault) => fault,
        };
        if !fault.is_passing() || began.elapsed() >= patience {
            return Err(unreachable(address)(fault));
        }
        let left_s = patience.saturating_sub(began.elapsed()).as_secs();
        tracing::warn!(%address, reason = fault.reason(), left_s, "the metadata's database cannot be reached; trying again");
        std::thread::sleep(pause);
        pause = (pause * 2).min(START_PAUSES.1);
    }
}

fn last_commit(path: &Path) -> Result<LastCommit, SqlError> {
    LastCommit::open(path).map_err(|error| SqlError::LastCommit {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// Refuses a database that has lost the last commit that was noted.
fn refuse_older(
    address: &DatabaseAddress,
    row: &LeaderRow,
    noted: Option<&LastCommit>,
) -> Result<(), SqlError> {
    let Some((noted, last)) = noted.and_then(|noted| Some((noted, noted.last()?))) else {
        return Ok(());
    };
    let is_older = row.sequence < last.sequence || row.term < last.term;
    if last.identity != row.identity || !is_older {
        return Ok(());
    }
    Err(SqlError::LostCommits {
        address: address.to_string(),
        found: row.sequence,
        needed: last.sequence,
        noted: noted.path().to_owned(),
    })
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // In a thread, since a store may end in a task of a run-time. If the database does not answer, the lease
        // expires.
        let leadership = self.leadership();
        let _ = std::thread::spawn(move || leadership.release()).join();
    }
}

impl KeyValue for PostgresStore {
    fn read<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let shared = &*self.shared;
        shared.flusher.check()?;
        let turn = shared.turn.read().unwrap_or_else(PoisonError::into_inner);
        let result = body(&Transaction::new(shared));
        let seen = shared.pending.numbered();
        drop(turn);
        shared.flusher.wait(seen, &shared.pending)?;
        result
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let shared = &*self.shared;
        shared.flusher.check()?;
        // A transaction that panicked has changed nothing: changes are kept apart until the end.
        let turn = shared.turn.write().unwrap_or_else(PoisonError::into_inner);
        let mut transaction = Transaction::new(shared);
        let result = body(&mut transaction);
        let number = if result.is_ok() && !transaction.changes.is_empty() {
            for (key, change) in &transaction.changes {
                shared.cache.put(key, change.clone());
            }
            shared.pending.apply(transaction.changes)
        } else {
            shared.pending.numbered()
        };
        drop(turn);
        shared.flusher.wait(number, &shared.pending)?;
        result
    }

    fn leads(&self) -> Result<(), MetaError> {
        self.shared.flusher.leads()
    }
}
