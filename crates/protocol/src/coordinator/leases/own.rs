//! Leases that the coordinator takes itself, which fence the stripes' primaries.

use super::Leases;
use gabion_layout::{Epoch, StripeId};
use gabion_meta::{Displaced, Holder, KeyValue, Meta, MetaError};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Leases<K> {
    /// The lease's term. None when the stripe is gone.
    pub(in crate::coordinator) async fn take_lease(
        self: &Arc<Self>,
        id: StripeId,
    ) -> Result<Option<Epoch>, MetaError> {
        let holder = Holder::Coordinator {
            incarnation: self.core.meta.incarnation(),
        };
        let membership = self.nodes.membership();
        let now_ms = self.core.ports.now_ms();
        let acquire = move |meta: &Meta<K>| meta.acquire(id, holder, &membership, now_ms);
        match self.core.with_meta(acquire).await {
            Ok(lease) => Ok(Some(lease.epoch)),
            Err(MetaError::UnknownStripe(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The leases of all stripes, or of none.
    pub(in crate::coordinator) async fn take_leases(
        &self,
        stripes: &[StripeId],
    ) -> Result<Vec<Displaced>, MetaError> {
        let incarnation = self.core.meta.incarnation();
        let holder = Holder::Coordinator { incarnation };
        let membership = self.nodes.membership();
        let now_ms = self.core.ports.now_ms();
        let stripes = stripes.to_vec();
        let take = move |meta: &Meta<K>| {
            let leases = meta.acquire_all(&stripes, holder, &membership, now_ms)?;
            let (mut taken, mut refused) = (Vec::new(), None);
            for lease in leases {
                match lease {
                    Ok(lease) => taken.push(Displaced {
                        stripe: lease.stripe,
                        epoch: lease.epoch,
                    }),
                    Err(error) => refused = Some(error),
                }
            }
            let Some(error) = refused else {
                return Ok(taken);
            };
            release_all(meta, &taken)?;
            Err(error)
        };
        self.core.with_meta(take).await
    }

    /// Releases the lease of a term. `is_settled` says whether the stripe was settled in it, so that no earlier update
    /// is on its way.
    pub(in crate::coordinator) async fn release_lease(
        &self,
        id: StripeId,
        epoch: Epoch,
        is_settled: bool,
    ) -> Result<bool, MetaError> {
        let release = move |meta: &Meta<K>| {
            if is_settled {
                meta.release_settled(id, epoch)
            } else {
                meta.release(id, epoch)
            }
        };
        self.core.with_meta(release).await
    }

    pub(in crate::coordinator) async fn release_leases(
        &self,
        leases: Vec<Displaced>,
    ) -> Result<(), MetaError> {
        self.core
            .with_meta(move |meta| release_all(meta, &leases))
            .await
    }
}

fn release_all<K: KeyValue>(meta: &Meta<K>, leases: &[Displaced]) -> Result<(), MetaError> {
    let mut leases = leases.iter();
    leases.try_for_each(|old| meta.release(old.stripe, old.epoch).map(|_| ()))
}
