//! The engine. Transactions for writing run one after another, those for reading beside each other, never both: so each
//! sees the state that all earlier transactions have left, though these may not be durable yet. An answer is given when
//! all that it rests on is durable and this process is known to lead.

use crate::address::DatabaseAddress;
use crate::cache::Cache;
use crate::connection::Connection;
use crate::error::SqlError;
use crate::flush::Flusher;
use crate::leader::{Leader, RENEWAL};
use crate::pending::Pending;
use crate::pool::Pool;
use crate::schema::{require, unreachable};
use crate::transaction::Transaction;
use gabion_meta::{KeyValue, MetaError, ReadTxn, WriteTxn};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Parameters of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// What other processes are told about the one that uses the metadata, such as `the coordinator at HOST:PORT`.
    pub holder: String,
    /// How long an operation waits for a database that does not answer before it fails, and with it the store.
    pub patience: Duration,
    /// Memory for rows.
    pub cache_bytes: usize,
}

impl StoreOptions {
    /// A minute of patience, and 256 MiB of rows.
    pub fn of(holder: impl Into<String>) -> Self {
        Self {
            holder: holder.into(),
            patience: Duration::from_mins(1),
            cache_bytes: 256 << 20,
        }
    }
}

/// What a store has asked of its database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Queries, each a round trip.
    pub query_count: u64,
    /// SQL transactions, each two round trips or more; renewals of the lease count too.
    pub commit_count: u64,
    /// How often those were sent.
    pub try_count: u64,
}

/// A [`KeyValue`] engine over a database. Its operations block, and panic in a task of a tokio run-time.
pub struct PostgresStore {
    shared: Arc<Shared>,
    /// Its drop ends the thread that renews the lease.
    keeper: Option<(Sender<()>, JoinHandle<()>)>,
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
    /// just been killed, waits up to [`crate::LEASE`] for the end of its lease.
    ///
    /// # Errors
    /// [`SqlError`]; [`SqlError::InUse`] while another process leads.
    ///
    /// # Panics
    /// In a task of a tokio run-time: call it from a thread that may wait.
    pub fn open(address: DatabaseAddress, options: &StoreOptions) -> Result<Self, SqlError> {
        let connection = Connection::open_bare(&address).map_err(unreachable(&address))?;
        require(&connection, &address)?;
        let leader = Leader::acquire(&connection, &options.holder);
        let leader = leader.map_err(|refusal| refusal.of(&address))?;
        drop(connection);
        let connection = Connection::open(&address).map_err(unreachable(&address))?;
        let pool = Pool::new(address.clone());
        let shared = Arc::new(Shared {
            pending: Pending::default(),
            cache: Cache::new(options.cache_bytes),
            flusher: Flusher::new(address, connection, leader, options.patience),
            pool,
            turn: RwLock::new(()),
            query_count: AtomicU64::new(0),
        });
        let (end, ended) = channel::<()>();
        let kept = Arc::clone(&shared);
        let keeper = std::thread::spawn(move || {
            while ended.recv_timeout(RENEWAL / 2) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = kept.flusher.renew(&kept.pending) {
                    tracing::error!(%error, "the metadata can be used no longer");
                    return;
                }
            }
            kept.flusher.release();
        });
        Ok(Self {
            shared,
            keeper: Some((end, keeper)),
        })
    }

    /// What it has asked of its database since it was opened.
    pub fn traffic(&self) -> Traffic {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Traffic {
            query_count: count(&self.shared.query_count),
            commit_count: count(&self.shared.flusher.group_count),
            try_count: count(&self.shared.flusher.try_count),
        }
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        if let Some((end, keeper)) = self.keeper.take() {
            drop(end);
            // A panic of the thread was printed; the lease expires.
            let _ = keeper.join();
        }
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
}
