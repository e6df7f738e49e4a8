//! The metadata state machine over an ordered key-value trait: nodes, pools, files, stripes and
//! leases, each operation one transaction, and the membership of nodes.
//!
//! It takes decisions that must be durable before they take effect. It has no clock (every `now_ms`
//! is an argument, from a clock that does not jump), no sockets and no threads; it does not place
//! chunks, and does not talk to nodes. Operations block on the disk: a server with an event loop
//! calls them from a thread that may wait. docs/metadata.md describes every table and the effects
//! of a crash.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod check;
mod conversions;
mod error;
mod exclusions;
mod files;
mod former_holders;
mod inventory;
mod kv;
mod leases;
mod membership;
mod memory_store;
mod names;
mod nodes;
mod phases;
mod placed_anew;
mod pools;
mod progress;
mod puts;
mod records;
mod redb_store;
mod replacements;
mod schema;
mod standings;
mod starts;
mod stripes;
mod table;
mod wishes;

pub use error::MetaError;
pub use exclusions::{Exclusion, Held, StoodUpdate, Verdict};
pub use gabion_layout::ClusterId;
pub use inventory::{FactsPage, StripeFacts};
pub use kv::{KeyValue, ReadTxn, Row, WriteTxn};
pub use membership::{Heartbeat, Membership, NodeState, Timing, Transition};
pub use memory_store::MemoryStore;
pub use names::FILE_NAME_BYTES;
pub use progress::Progress;
pub use puts::Put;
pub use records::{
    Departure, Displaced, FileRecord, Holder, Lease, NodeRecord, Placement, PoolRecord, PoolSpec,
    PutId, PutRecord, RepairSettings, ReplacementRecord, Standing, StripeStatus, Wish, WishRecord,
};
pub use redb_store::RedbStore;
pub use schema::FORMAT;

use schema::{CLUSTER, Counter, FORMATS};
use std::sync::atomic::{AtomicU64, Ordering};

/// A cluster's metadata in a store.
#[derive(Debug)]
pub struct Meta<K> {
    store: K,
    cluster: ClusterId,
    incarnation: u64,
    /// See [`Meta::change_count`].
    change_count: AtomicU64,
}

impl<K: KeyValue> Meta<K> {
    /// Creates a cluster in an empty store. The caller draws `cluster` at random.
    ///
    /// # Errors
    /// [`MetaError::ClusterExists`] when the store already holds one, even the same.
    pub fn create(store: K, cluster: ClusterId) -> Result<Self, MetaError> {
        store.write(|txn| {
            check_format(FORMATS.get(txn, &())?)?;
            if let Some(present) = CLUSTER.get(txn, &())? {
                return Err(MetaError::ClusterExists(present));
            }
            FORMATS.put(txn, &(), &FORMAT)?;
            CLUSTER.put(txn, &(), &cluster)
        })?;
        Self::open(store)
    }

    /// Opens a store's cluster, as a new incarnation of its coordinator.
    ///
    /// # Errors
    /// [`MetaError::NoCluster`] in an empty store; [`MetaError::NewerFormat`] when a newer program
    /// wrote it, which is checked before any other row is read.
    pub fn open(store: K) -> Result<Self, MetaError> {
        let (cluster, incarnation, change_count) = store.write(|txn| {
            check_format(FORMATS.get(txn, &())?)?;
            let cluster = CLUSTER.get(txn, &())?.ok_or(MetaError::NoCluster)?;
            let incarnation = Counter::Incarnation.raise(txn, 1)?;
            Ok((cluster, incarnation, Counter::Changes.raise(txn, 1)?))
        })?;
        Ok(Self {
            store,
            cluster,
            incarnation,
            change_count: AtomicU64::new(change_count),
        })
    }

    /// The cluster's id.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The number of this run of the coordinator: each [`Meta::open`] raises it, durably.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// How many transactions have changed the metadata, all of them durable. A copy of an earlier time has made
    /// fewer.
    pub fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Acquire)
    }

    /// Runs and counts a transaction that changes the metadata.
    fn change<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let (done, count) = self.store.write(|txn| {
            let done = body(txn)?;
            Ok((done, Counter::Changes.raise(txn, 1)?))
        })?;
        self.change_count.fetch_max(count, Ordering::AcqRel);
        Ok(done)
    }

    /// The store, for backups and for tests. Rows written directly are not checked.
    pub fn store(&self) -> &K {
        &self.store
    }

    /// Returns the store.
    pub fn into_store(self) -> K {
        self.store
    }
}

/// Refuses unknown formats. An empty store has none.
fn check_format(found: Option<u32>) -> Result<(), MetaError> {
    match found {
        None | Some(FORMAT) => Ok(()),
        Some(found) if found > FORMAT => Err(MetaError::NewerFormat {
            found,
            supported: FORMAT,
        }),
        Some(older) => Err(FORMATS.contradiction(&(), format!("format {older} never existed"))),
    }
}
