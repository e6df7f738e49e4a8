//! Pools: what their files are promised, checked as far as it can be without knowing the code.

use crate::kv::{KeyValue, ReadTxn};
use crate::names::check_pool_name;
use crate::schema::{Counter, POOL_NAMES, POOLS};
use crate::{Meta, MetaError, PoolRecord, PoolSpec};
use gabion_layout::{PoolId, Survive};

/// Most bytes of a code's text form.
const CODE_BYTES: usize = 64;

impl<K: KeyValue> Meta<K> {
    /// Makes a pool. That the code's text is one the codec knows, and that the cluster has the
    /// racks for it, the caller has checked.
    ///
    /// # Errors
    /// [`MetaError::PoolName`], [`MetaError::Pool`] when the numbers cannot hold the promise,
    /// [`MetaError::PoolExists`], [`MetaError::IdsExhausted`].
    pub fn create_pool(&self, spec: &PoolSpec) -> Result<PoolRecord, MetaError> {
        check_spec(spec)?;
        self.store.write(|txn| {
            if POOL_NAMES.get(txn, &spec.name)?.is_some() {
                return Err(MetaError::PoolExists(spec.name.clone()));
            }
            let id = Counter::NextPool.take(txn, 1, u64::from(u32::MAX), "pool")?;
            let id = PoolId(id as u32);
            let record = PoolRecord {
                id,
                spec: spec.clone(),
            };
            POOLS.put(txn, &id, &record)?;
            POOL_NAMES.put(txn, &spec.name, &id)?;
            Ok(record)
        })
    }

    /// The pool of an id.
    ///
    /// # Errors
    /// [`MetaError::UnknownPool`].
    pub fn pool(&self, id: PoolId) -> Result<PoolRecord, MetaError> {
        self.store.read(|txn| pool(txn, id))
    }

    /// The pool of a name.
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

/// The pool of an id.
pub(crate) fn pool(txn: &dyn ReadTxn, id: PoolId) -> Result<PoolRecord, MetaError> {
    let record = POOLS.get(txn, &id)?;
    let record = record.ok_or_else(|| MetaError::UnknownPool(id.to_string()))?;
    checked(id, record)
}

/// Refuses a record that this crate could not have written.
fn checked(id: PoolId, record: PoolRecord) -> Result<PoolRecord, MetaError> {
    if record.id != id {
        return Err(POOLS.contradiction(&id, format!("the record is that of {}", record.id)));
    }
    check_spec(&record.spec).map_err(|error| POOLS.contradiction(&id, error.to_string()))?;
    Ok(record)
}

/// What must hold for any code: `m` lost chunks are the most that it can rebuild.
fn check_spec(spec: &PoolSpec) -> Result<(), MetaError> {
    check_pool_name(&spec.name)?;
    let code = &spec.code;
    let printable = code.chars().all(|c| c.is_ascii_graphic());
    if code.is_empty() || code.len() > CODE_BYTES || !printable {
        return Err(MetaError::Pool(format!(
            "'{}' names no code; use a text such as rs(6,3)",
            code.escape_default()
        )));
    }
    let geometry = spec
        .geometry()
        .map_err(|error| MetaError::Pool(error.to_string()))?;
    let per_rack = spec.chunks_per_rack;
    if per_rack == 0 || per_rack > geometry.n() {
        return Err(MetaError::Pool(format!(
            "a rack may hold 1 to {} chunks of a stripe, not {per_rack}",
            geometry.n()
        )));
    }
    let (lost, failure) = match spec.survive {
        Survive::Nodes(count) => (count as usize, "nodes"),
        Survive::Racks(count) => ((count as usize).saturating_mul(per_rack), "racks"),
    };
    if lost == 0 || lost > geometry.m() {
        return Err(MetaError::Pool(format!(
            "to survive {} it must rebuild {lost} chunks of a stripe, and it has {} parity chunks; \
             use more parity chunks, fewer chunks a rack or fewer {failure}",
            spec.survive,
            geometry.m(),
        )));
    }
    Ok(())
}
