//! A cluster's metadata: opened or created in a store, changed by counted transactions. Each operation is in the file
//! of its subject.

use crate::attributes::WallTime;
use crate::changed::Observer;
use crate::error::MetaError;
use crate::generations::abandon_moves;
use crate::ids::{Change, Ids, write_with_ids};
use crate::kv::{KeyValue, ReadTxn};
use crate::open_files::{Asked, OpenFiles};
use crate::paths::DirectoryId;
use crate::records::DirectoryRecord;
use crate::schema::{CLUSTER, Counter, DIRECTORIES, FORMAT, FORMATS};
use crate::wall_clock::WallClock;
use gabion_layout::ClusterId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A cluster's metadata in a store.
#[derive(Debug)]
pub struct Meta<K> {
    pub(crate) store: K,
    cluster: ClusterId,
    incarnation: u64,
    /// See [`Meta::change_count`].
    change_count: AtomicU64,
    pub(crate) ids: Ids,
    wall_clock: WallClock,
    observer: Option<Arc<dyn Observer>>,
    open_files: Option<Arc<dyn OpenFiles>>,
}

impl<K: KeyValue> Meta<K> {
    /// Creates a cluster in an empty store. The caller draws `cluster` at random. `wall_clock` stamps files and
    /// directories.
    ///
    /// # Errors
    /// [`MetaError::ClusterExists`] when the store already holds one, even the same; [`MetaError::NotBlank`] when it
    /// holds other rows.
    pub fn create(store: K, cluster: ClusterId, wall_clock: WallClock) -> Result<Self, MetaError> {
        store.write(|txn| {
            check_format(FORMATS.get(txn, &())?)?;
            if let Some(present) = CLUSTER.get(txn, &())? {
                return Err(MetaError::ClusterExists(present));
            }
            require_blank(txn)?;
            FORMATS.put(txn, &(), &FORMAT)?;
            let root = DirectoryRecord::root(wall_clock.now());
            DIRECTORIES.put(txn, &DirectoryId::ROOT, &root)?;
            Counter::LeasedDirectories.reach(txn, DirectoryId::ROOT.0 + 1)?;
            CLUSTER.put(txn, &(), &cluster)
        })?;
        Self::open(store, wall_clock)
    }

    /// Opens a store's cluster, as a new incarnation of its coordinator. Abandons the moves of chunks that an
    /// earlier incarnation has begun.
    ///
    /// # Errors
    /// [`MetaError::NoCluster`] in an empty store; [`MetaError::NewerFormat`] and
    /// [`MetaError::OlderFormat`] when another program wrote it, which is checked before any other row is
    /// read.
    pub fn open(store: K, wall_clock: WallClock) -> Result<Self, MetaError> {
        let (cluster, incarnation, change_count, ids) = store.write(|txn| {
            check_format(FORMATS.get(txn, &())?)?;
            let cluster = CLUSTER.get(txn, &())?.ok_or(MetaError::NoCluster)?;
            let incarnation = Counter::Incarnation.raise(txn, 1)?;
            abandon_moves(txn)?;
            // An opening is no change that nodes could miss, so it does not count as one: the next start would
            // take it for a change of the run before.
            let change_count = Counter::Changes.value(txn)?;
            let ids = Ids::new(txn)?;
            Ok((cluster, incarnation, change_count, ids))
        })?;
        Ok(Self {
            store,
            cluster,
            incarnation,
            change_count: AtomicU64::new(change_count),
            ids,
            wall_clock,
            observer: None,
            open_files: None,
        })
    }

    /// Opens a store's cluster for a process that changes nothing, and writes no row. A copy of an earlier time keeps
    /// the generations that it has: if its unfinished moves were abandoned, a layout that has ended since could get
    /// the generation of the one that has replaced it.
    ///
    /// # Errors
    /// Those of [`Meta::open`].
    pub fn open_to_read(store: K, wall_clock: WallClock) -> Result<Self, MetaError> {
        let (cluster, incarnation, change_count, ids) = store.read(|txn| {
            check_format(FORMATS.get(txn, &())?)?;
            let cluster = CLUSTER.get(txn, &())?.ok_or(MetaError::NoCluster)?;
            let incarnation = Counter::Incarnation.value(txn)?;
            let change_count = Counter::Changes.value(txn)?;
            Ok((cluster, incarnation, change_count, Ids::new(txn)?))
        })?;
        Ok(Self {
            store,
            cluster,
            incarnation,
            change_count: AtomicU64::new(change_count),
            ids,
            wall_clock,
            observer: None,
            open_files: None,
        })
    }

    /// Tells an observer what each transaction from now on changes.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    /// Asks from now on which files are open, when they lose their last names. Without this, none is.
    #[must_use]
    pub fn with_open_files(self, open_files: Arc<dyn OpenFiles>) -> Self {
        Self {
            open_files: Some(open_files),
            ..self
        }
    }

    /// The time now.
    pub(crate) fn wall_time(&self) -> WallTime {
        self.wall_clock.now()
    }

    /// The cluster's id.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The number of this run of the coordinator: each [`Meta::open`] raises it, durably.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the number of transactions that have changed the metadata, all of them durable. A copy of an earlier
    /// time has made fewer.
    pub fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Acquire)
    }

    /// Runs and counts a transaction that changes the metadata.
    pub(crate) fn change<T>(
        &self,
        body: impl Fn(&mut Change<'_>) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        self.change_as(None, body)
    }

    /// The same for a change with a number that its client has drawn.
    pub(crate) fn change_as<T>(
        &self,
        number: Option<u64>,
        body: impl Fn(&mut Change<'_>) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let asked = Asked::new(self.open_files.as_deref());
        let (done, count, changed) = write_with_ids(&self.store, (&self.ids, &asked), |txn| {
            let done = body(txn)?;
            let count = Counter::Changes.raise(txn, 1)?;
            Ok((done, count, txn.take_changed()))
        })?;
        self.change_count.fetch_max(count, Ordering::AcqRel);
        if let Some(observer) = self.observer.as_ref().filter(|_| !changed.is_empty()) {
            observer.changed(number, changed);
        }
        Ok(done)
    }

    /// Whether this process may act on what it knows of the metadata; see [`KeyValue::leads`].
    ///
    /// # Errors
    /// Those of [`KeyValue::leads`].
    pub fn leads(&self) -> Result<(), MetaError> {
        self.store.leads()
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

/// Refuses a store with rows: those of a copy that was not finished, for instance.
pub(crate) fn require_blank(txn: &dyn ReadTxn) -> Result<(), MetaError> {
    if txn.scan(&[0], &[u8::MAX], 1)?.is_empty() {
        Ok(())
    } else {
        Err(MetaError::NotBlank)
    }
}

/// Refuses unknown formats. An empty store has none.
pub(crate) fn check_format(found: Option<u32>) -> Result<(), MetaError> {
    match found {
        None | Some(FORMAT) => Ok(()),
        Some(found) if found > FORMAT => Err(MetaError::NewerFormat {
            found,
            supported: FORMAT,
        }),
        Some(found) => Err(MetaError::OlderFormat {
            found,
            supported: FORMAT,
        }),
    }
}
