//! Stripe leases: the right to serialise a stripe's updates, under an epoch. An epoch is durable
//! before it is issued and is never issued twice. So nodes that refuse lower epochs than they have
//! seen fence every former holder, whether or not it knows that it is one. A node uses a stripe's
//! lease only while its own membership lease is valid (`membership.rs`).

use crate::error::MetaError;
use crate::generations::abandon_move;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::membership::{Membership, NodeState};
use crate::meta::Meta;
use crate::predecessors::is_alone;
use crate::records::{Holder, Lease, LeaseRecord, PutId};
use crate::schema::{FILES, LEASES};
use crate::stripe_rows::live_stripe;
use crate::written::{forget_written, note_written};
use gabion_layout::{Epoch, Sequence, StripeId};

impl<K: KeyValue> Meta<K> {
    /// Grants the lease of a stripe.
    ///
    /// It is granted under the next epoch when it is free, when the asker holds it, when its holder
    /// may no longer serve, when an earlier incarnation of the asker or of the coordinator holds it,
    /// and always to the coordinator itself: the higher epoch fences the holder. A holder that asks
    /// again settles the stripe anew, perhaps without a node that knows its last epoch, so it gets
    /// another.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`]; [`MetaError::NodeNotLive`] when the asker is a node
    /// without a valid membership lease; [`MetaError::Held`].
    pub fn acquire(
        &self,
        stripe: StripeId,
        holder: Holder,
        membership: &Membership,
        now_ms: u64,
    ) -> Result<Lease, MetaError> {
        check_asker(holder, membership, now_ms)?;
        self.change(|txn| self.grant(txn, stripe, holder, membership, now_ms))
    }

    /// The same for a node that is to update the stripe in place as one of this file. Notes that too, if the file's
    /// writers update it in place now.
    ///
    /// # Errors
    /// Those of [`Meta::acquire`].
    pub fn acquire_to_write(
        &self,
        (file, stripe): (PutId, StripeId),
        holder: Holder,
        membership: &Membership,
        now_ms: u64,
    ) -> Result<Lease, MetaError> {
        check_asker(holder, membership, now_ms)?;
        self.change(|txn| {
            let lease = self.grant(txn, stripe, holder, membership, now_ms)?;
            if let Some(file) = FILES.get(txn, &file)? {
                note_written(txn, &file, stripe)?;
            }
            Ok(lease)
        })
    }

    /// Grants the leases of many stripes in one transaction, for a node that takes over another's:
    /// one wait for the disk in all. Answers are in the order of `stripes`; a held or unknown
    /// stripe does not affect the others.
    ///
    /// # Errors
    /// [`MetaError::NodeNotLive`], or when the store fails or a row is corrupt; no lease is granted
    /// then.
    pub fn acquire_all(
        &self,
        stripes: &[StripeId],
        holder: Holder,
        membership: &Membership,
        now_ms: u64,
    ) -> Result<Vec<Result<Lease, MetaError>>, MetaError> {
        check_asker(holder, membership, now_ms)?;
        self.change(|txn| {
            let mut answers = Vec::with_capacity(stripes.len());
            for &stripe in stripes {
                match self.grant(txn, stripe, holder, membership, now_ms) {
                    Err(error @ (MetaError::Held { .. } | MetaError::UnknownStripe(_))) => {
                        answers.push(Err(error));
                    }
                    other => answers.push(Ok(other?)),
                }
            }
            Ok(answers)
        })
    }

    /// Releases a lease. Returns whether the stripe was still held under `epoch`: a former holder
    /// changes nothing.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn release(&self, stripe: StripeId, epoch: Epoch) -> Result<bool, MetaError> {
        self.release_as(stripe, epoch, false)
    }

    /// The same for a holder that has settled the stripe under `epoch` and made no update.
    ///
    /// # Errors
    /// Those of [`Meta::release`].
    pub fn release_settled(&self, stripe: StripeId, epoch: Epoch) -> Result<bool, MetaError> {
        self.release_as(stripe, epoch, true)
    }

    fn release_as(
        &self,
        stripe: StripeId,
        epoch: Epoch,
        is_settled: bool,
    ) -> Result<bool, MetaError> {
        self.change(|txn| match LEASES.get(txn, &stripe)? {
            Some(last) if last.epoch == epoch && last.holder.is_some() => {
                let holder = None;
                let record = LeaseRecord {
                    epoch,
                    holder,
                    is_settled,
                    committed: last.committed,
                };
                LEASES.put(txn, &stripe, &record)?;
                if is_settled {
                    forget_written(txn, stripe)?;
                }
                Ok(true)
            }
            _ => Ok(false),
        })
    }

    /// The lease of a stripe as last granted, unless it was released. Its holder may have failed.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`].
    pub fn lease(&self, stripe: StripeId) -> Result<Option<Lease>, MetaError> {
        self.store.read(|txn| {
            let generation = live_stripe(txn, stripe)?.generation;
            let last = LEASES.get(txn, &stripe)?;
            Ok(last.and_then(|last| {
                last.holder.map(|holder| Lease {
                    stripe,
                    epoch: last.epoch,
                    generation,
                    holder,
                })
            }))
        })
    }

    /// The last term of a stripe, current or over; 0 before the first.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`].
    pub fn last_epoch(&self, stripe: StripeId) -> Result<Epoch, MetaError> {
        self.store.read(|txn| {
            live_stripe(txn, stripe)?;
            let last = LEASES.get(txn, &stripe)?;
            Ok(last.map_or(Epoch(0), |last| last.epoch))
        })
    }

    /// Grants the lease of one stripe to a asker that may serve.
    fn grant(
        &self,
        txn: &mut dyn WriteTxn,
        stripe: StripeId,
        holder: Holder,
        membership: &Membership,
        now_ms: u64,
    ) -> Result<Lease, MetaError> {
        let mut layout = live_stripe(txn, stripe)?;
        let last = LEASES.get(txn, &stripe)?;
        if matches!(holder, Holder::Node { .. }) && !is_alone(txn, stripe)? {
            let incarnation = self.incarnation();
            return Err(MetaError::Held {
                stripe,
                holder: Holder::Coordinator { incarnation },
                epoch: last.map_or(Epoch(0), |last| last.epoch),
            });
        }
        if let Some(error) = self.refusal(stripe, last, holder, membership, now_ms) {
            return Err(error);
        }
        let epoch = next_epoch(last)?;
        let record = LeaseRecord {
            epoch,
            holder: Some(holder),
            is_settled: false,
            committed: Sequence::default(),
        };
        LEASES.put(txn, &stripe, &record)?;
        // A move belongs to one term of the coordinator.
        abandon_move(txn, &mut layout)?;
        Ok(Lease {
            stripe,
            epoch,
            generation: layout.generation,
            holder,
        })
    }

    /// The reason to refuse the lease, if any.
    fn refusal(
        &self,
        stripe: StripeId,
        last: Option<LeaseRecord>,
        asker: Holder,
        membership: &Membership,
        now_ms: u64,
    ) -> Option<MetaError> {
        let LeaseRecord { epoch, holder, .. } = last?;
        let holder = holder?;
        let stays = match (holder, asker) {
            (
                Holder::Coordinator { incarnation: held },
                Holder::Coordinator { incarnation: asks },
            ) => held > asks,
            (Holder::Coordinator { incarnation }, Holder::Node { .. }) => {
                incarnation >= self.incarnation()
            }
            (Holder::Node { .. }, Holder::Coordinator { .. }) => false,
            (
                Holder::Node {
                    node: holding,
                    incarnation: held,
                },
                Holder::Node {
                    node: asking,
                    incarnation: asks,
                },
            ) if holding == asking => held > asks,
            (Holder::Node { node, incarnation }, Holder::Node { .. }) => {
                membership.may_serve(node, incarnation, now_ms)
            }
        };
        stays.then_some(MetaError::Held {
            stripe,
            holder,
            epoch,
        })
    }
}

/// Refuses a request of a past term, in the transaction that would make it durable. Returns the lease.
///
/// # Errors
/// [`MetaError::TermOver`]; [`MetaError::UnknownStripe`].
pub(crate) fn check_term(
    txn: &dyn ReadTxn,
    stripe: StripeId,
    epoch: Epoch,
) -> Result<LeaseRecord, MetaError> {
    live_stripe(txn, stripe)?;
    match LEASES.get(txn, &stripe)? {
        Some(last) if last.epoch == epoch && last.holder.is_some() => Ok(last),
        _ => Err(MetaError::TermOver { stripe, epoch }),
    }
}

/// Refuses a node that must not serve by its own clock, or that has a later run.
fn check_asker(holder: Holder, membership: &Membership, now_ms: u64) -> Result<(), MetaError> {
    if let Holder::Node { node, incarnation } = holder {
        let up = membership.state(node, now_ms) == Some(NodeState::Up);
        if !up || !membership.may_serve(node, incarnation, now_ms) {
            return Err(MetaError::NodeNotLive(node));
        }
    }
    Ok(())
}

/// The epoch after the last one; the first is 1.
fn next_epoch(last: Option<LeaseRecord>) -> Result<Epoch, MetaError> {
    let last = last.map_or(0, |last| last.epoch.0);
    let next = last.checked_add(1);
    Ok(Epoch(next.ok_or(MetaError::IdsExhausted("epoch"))?))
}
