//! The pools of the cluster.

use gabion_client::{Client, ClientError};
use gabion_layout::PoolId;
use gabion_meta::PoolRecord;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The pools that are known. Pools never change.
#[derive(Debug)]
pub(crate) struct Pools(Mutex<BTreeMap<PoolId, PoolRecord>>);

impl Pools {
    /// These pools.
    pub(crate) fn new(pools: Vec<PoolRecord>) -> Self {
        Self(Mutex::new(by_id(pools)))
    }

    /// A pool, as far as it is known.
    pub(crate) fn known(&self, id: PoolId) -> Option<PoolRecord> {
        self.lock().get(&id).cloned()
    }

    /// A pool, which may have been made since the mount.
    pub(crate) async fn get(
        &self,
        client: &Client,
        id: PoolId,
    ) -> Result<Option<PoolRecord>, ClientError> {
        if let Some(pool) = self.known(id) {
            return Ok(Some(pool));
        }
        let pools = client.pools().await?;
        *self.lock() = by_id(pools);
        Ok(self.known(id))
    }

    /// The pool of a name, as far as it is known.
    pub(crate) fn named(&self, name: &str) -> Option<PoolRecord> {
        let pools = self.lock();
        pools.values().find(|pool| pool.spec.name == name).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PoolId, PoolRecord>> {
        // It is replaced as a whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn by_id(pools: Vec<PoolRecord>) -> BTreeMap<PoolId, PoolRecord> {
    pools.into_iter().map(|pool| (pool.id, pool)).collect()
}
