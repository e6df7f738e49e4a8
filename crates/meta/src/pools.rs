//! Pools: their guarantees, checked as far as possible without knowing the code.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::names::check_pool_name;
use crate::pool_spec::PoolSpec;
use crate::records::PoolRecord;
use crate::schema::{Counter, POOL_NAMES, POOLS};
use gabion_layout::{EncodeAfter, Lifecycle, PoolId, ReplicaPlacement};

impl<K: KeyValue> Meta<K> {
    /// Creates a pool. The caller has checked that the codec knows the code, and that the cluster
    /// has enough racks for it.
    ///
    /// # Errors
    /// [`MetaError::PoolName`], [`MetaError::Pool`] when the parameters cannot give the guarantee,
    /// [`MetaError::PoolExists`], [`MetaError::IdsExhausted`].
    pub fn create_pool(&self, spec: &PoolSpec) -> Result<PoolRecord, MetaError> {
        check_spec(spec)?;
        self.change(|txn| enter(txn, spec, None))
    }

    /// Creates a pool whose blocks are replicated at first, and the pool of the stripes that they
    /// become, `encoded`. Both give the same guarantee.
    ///
    /// # Errors
    /// As [`Meta::create_pool`]; [`MetaError::Pool`] unless the first pool's stripes are copies of
    /// one block, of the size of the other's chunks.
    pub fn create_pool_with_lifecycle(
        &self,
        spec: &PoolSpec,
        encoded: &PoolSpec,
        after: EncodeAfter,
        placement: ReplicaPlacement,
    ) -> Result<PoolRecord, MetaError> {
        check_spec(spec)?;
        check_spec(encoded)?;
        let is_block = (spec.k, spec.sub_chunks, spec.chunk_bytes) == (1, 1, encoded.chunk_bytes);
        if !is_block || spec.survive != encoded.survive {
            return Err(MetaError::Pool(format!(
                "blocks of {} bytes that survive {} become chunks of {} that survive {}; they must be \
                 copies, of that size, and survive the same",
                spec.chunk_bytes, spec.survive, encoded.chunk_bytes, encoded.survive
            )));
        }
        self.change(|txn| {
            let encoded = enter(txn, encoded, None)?.id;
            let lifecycle = Lifecycle {
                encoded,
                after,
                placement,
            };
            enter(txn, spec, Some(lifecycle))
        })
    }

    /// The pool with this id.
    ///
    /// # Errors
    /// [`MetaError::UnknownPool`].
    pub fn pool(&self, id: PoolId) -> Result<PoolRecord, MetaError> {
        self.store.read(|txn| pool(txn, id))
    }

    /// The pool with this name.
    ///
    /// # Errors
    /// [`MetaError::UnknownPool`].
    pub fn pool_named(&self, name: &str) -> Result<PoolRecord, MetaError> {
        self.store.read(|txn| {
            let id = POOL_NAMES.get(txn, &name.to_owned())?;
            let id = id.ok_or_else(|| MetaError::UnknownPool(name.to_owned()))?;
            pool(txn, id)
        })
    }

    /// All pools, by id.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn pools(&self) -> Result<Vec<PoolRecord>, MetaError> {
        let rows = self
            .store
            .read(|txn| POOLS.scan(txn, &POOLS.all(), usize::MAX))?;
        rows.into_iter()
            .map(|(id, record)| checked(id, record))
            .collect()
    }
}

/// Adds a new pool.
fn enter(
    txn: &mut dyn WriteTxn,
    spec: &PoolSpec,
    lifecycle: Option<Lifecycle>,
) -> Result<PoolRecord, MetaError> {
    if POOL_NAMES.get(txn, &spec.name)?.is_some() {
        return Err(MetaError::PoolExists(spec.name.clone()));
    }
    let id = Counter::NextPool.take(txn, 1, u64::from(u32::MAX), "pool")?;
    let record = PoolRecord {
        id: PoolId(id as u32),
        spec: spec.clone(),
        lifecycle,
    };
    POOLS.put(txn, &record.id, &record)?;
    POOL_NAMES.put(txn, &spec.name, &record.id)?;
    Ok(record)
}

/// The pool with this id.
pub(crate) fn pool(txn: &dyn ReadTxn, id: PoolId) -> Result<PoolRecord, MetaError> {
    let record = POOLS.get(txn, &id)?;
    let record = record.ok_or_else(|| MetaError::UnknownPool(id.to_string()))?;
    checked(id, record)
}

/// Refuses a record that this crate could not have written.
fn checked(id: PoolId, record: PoolRecord) -> Result<PoolRecord, MetaError> {
    if record.id != id {
        return Err(POOLS.contradiction(&id, format!("the record belongs to {}", record.id)));
    }
    check_pool_name(&record.spec.name)
        .map_err(|error| POOLS.contradiction(&id, error.to_string()))?;
    Ok(record)
}

/// Checks the rules for any code.
fn check_spec(spec: &PoolSpec) -> Result<(), MetaError> {
    check_pool_name(&spec.name)?;
    spec.check().map_err(MetaError::Pool)
}

/// Most chunks of a new stripe of a pool that may be left out: it must still survive the loss of
/// one more.
pub(crate) fn left_out_max(pool: &PoolRecord) -> usize {
    pool.spec.m.saturating_sub(1)
}
