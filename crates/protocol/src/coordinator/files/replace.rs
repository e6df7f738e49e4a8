//! Writes that span stripes: the coordinator's half of a replacement. It keeps everybody else from
//! updating the old stripes, settles them so that the client can read what it does not overwrite,
//! and makes room for new ones; the commit swaps them in one transaction.
//!
//! A write is acknowledged when no node serves the old chunks any more: a reader with an old layout
//! must not see, after the acknowledgement, what was there before it.

use super::places::{find_places, needed_bytes, survives_without, too_few};
use super::pools::PoolFacts;
use crate::coordinator::Coordinator;
use crate::coordinator::core::{Answer, Denied, lock};
use crate::coordinator::repair::survey::Setback;
use crate::message::{CoordinatorReply, SettledStripe};
use futures::future::join_all;
use gabion_layout::{Epoch, NodeId, PoolId, StripeId, Topology};
use gabion_meta::{Displaced, Holder, KeyValue, Meta, MetaError, Put, PutId, StripeStatus};
use gabion_planner::update;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// How many stripes are settled at a time.
const SETTLE_PARALLEL_COUNT: usize = 16;
/// A replacement holds other writers up, so its client must be heard of so many times as often as
/// that of a put.
const REPLACEMENT_HASTE: u64 = 6;

/// Stripes that are being repaired or replaced: never both, since both hold the stripe's lease as
/// the same holder.
#[derive(Clone, Debug, Default)]
pub(in crate::coordinator) struct Occupied(Arc<Mutex<BTreeSet<StripeId>>>);

impl Occupied {
    /// Occupies all of the stripes, each named once, or none.
    ///
    /// # Errors
    /// The first stripe that is occupied already.
    pub(in crate::coordinator) fn occupy(
        &self,
        stripes: Vec<StripeId>,
    ) -> Result<Occupation, StripeId> {
        let mut taken = lock(&self.0);
        let mut new = BTreeSet::new();
        for &stripe in &stripes {
            if taken.contains(&stripe) || !new.insert(stripe) {
                return Err(stripe);
            }
        }
        taken.append(&mut new);
        let all = self.clone();
        Ok(Occupation { all, stripes })
    }
}

/// Stripes that are occupied until this is dropped.
#[derive(Debug)]
pub(in crate::coordinator) struct Occupation {
    all: Occupied,
    stripes: Vec<StripeId>,
}

impl Drop for Occupation {
    fn drop(&mut self) {
        let mut taken = lock(&self.all.0);
        for stripe in &self.stripes {
            taken.remove(stripe);
        }
    }
}

/// A put whose client was heard of.
#[derive(Debug)]
pub(in crate::coordinator) struct LivePut {
    pub(in crate::coordinator) heard_ms: u64,
    /// The stripes that it is to replace, if that was begun in this run of the coordinator. Those of
    /// an earlier run need no guard: whoever takes one of their leases ends the replacement.
    pub(in crate::coordinator) occupation: Option<Occupation>,
}

impl LivePut {
    /// How long its client may be silent.
    pub(in crate::coordinator) fn timeout_ms(&self, put_timeout_ms: u64) -> u64 {
        match self.occupation {
            Some(_) => put_timeout_ms / REPLACEMENT_HASTE,
            None => put_timeout_ms,
        }
    }
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Begins to replace stripes of a file. All of them are taken or none, so that two writers never
    /// wait for each other.
    pub(in crate::coordinator) async fn begin_replace(
        self: &Arc<Self>,
        name: String,
        file: PutId,
        stripes: Vec<StripeId>,
    ) -> Answer {
        let occupation = match self.occupied.occupy(stripes.clone()) {
            Ok(occupation) => occupation,
            Err(stripe) => {
                return Ok(CoordinatorReply::Busy(format!(
                    "{stripe} is being repaired or rewritten; try again"
                )));
            }
        };
        let leases = match self.take_leases(&stripes).await {
            Ok(leases) => leases,
            Err(error) => return Hindrance::from(error).answer(),
        };
        let begun = self.begin_leased(name, file, &leases).await;
        let (put, settled) = match begun {
            Ok(begun) => begun,
            Err(hindrance) => {
                self.release_leases(leases).await?;
                self.leave(occupation).await?;
                return hindrance.answer();
            }
        };
        let live = LivePut {
            heard_ms: self.core.ports.now_ms(),
            occupation: Some(occupation),
        };
        lock(&self.puts).insert(put.id, live);
        Ok(CoordinatorReply::Replacement {
            put: put.id,
            settled,
            stripes: put.stripes,
            nodes: self.statuses(),
        })
    }

    /// The leases of all stripes, or of none.
    pub(in crate::coordinator) async fn take_leases(
        &self,
        stripes: &[StripeId],
    ) -> Result<Vec<Displaced>, MetaError> {
        let incarnation = self.core.meta.incarnation();
        let holder = Holder::Coordinator { incarnation };
        let membership = lock(&self.roster).membership();
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

    pub(in crate::coordinator) async fn release_leases(
        &self,
        leases: Vec<Displaced>,
    ) -> Result<(), MetaError> {
        self.core
            .with_meta(move |meta| release_all(meta, &leases))
            .await
    }

    /// Leaves stripes that were not replaced to others. Settling them may have found chunks to
    /// repair, and repairs may have waited for this.
    pub(in crate::coordinator) async fn leave(
        self: &Arc<Self>,
        occupation: Occupation,
    ) -> Result<(), MetaError> {
        let ids = occupation.stripes.clone();
        drop(occupation);
        let find = move |meta: &Meta<K>| {
            let mut stripes = Vec::new();
            for id in ids {
                match meta.stripe(id) {
                    Ok(stripe) => stripes.push(stripe),
                    Err(MetaError::UnknownStripe(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(stripes)
        };
        let stripes = self.core.with_meta(find).await?;
        self.add_repairs(stripes).await?;
        self.retry_repairs();
        Ok(())
    }

    /// Settles the old stripes and makes room for the new ones.
    async fn begin_leased(
        self: &Arc<Self>,
        name: String,
        file: PutId,
        leases: &[Displaced],
    ) -> Result<(Put, Vec<SettledStripe>), Hindrance> {
        let mut settled = Vec::with_capacity(leases.len());
        for some in leases.chunks(SETTLE_PARALLEL_COUNT) {
            let settling = some
                .iter()
                .map(|old| self.settle_old(old.stripe, old.epoch));
            for one in join_all(settling).await {
                settled.push(one?);
            }
        }
        let nodes = self.new_places(&settled).await?;
        let now_ms = self.core.ports.now_ms();
        let displaced = leases.to_vec();
        let begin =
            move |meta: &Meta<K>| meta.begin_replacement(&name, file, &displaced, &nodes, now_ms);
        Ok((self.core.with_meta(begin).await?, settled))
    }

    pub(in crate::coordinator) async fn settle_old(
        self: &Arc<Self>,
        id: StripeId,
        epoch: Epoch,
    ) -> Result<SettledStripe, Hindrance> {
        let gone = || Hindrance::Passing(MetaError::UnknownStripe(id).to_string());
        let (outcome, absent) = self.settle(id, epoch).await?.ok_or_else(gone)?;
        let stripe = self.survey(id).await?.ok_or_else(gone)?.stripe;
        Ok(SettledStripe {
            epoch,
            mark: outcome.mark,
            unsettled: absent
                .iter()
                .filter_map(|&node| stripe.chunk_on(node))
                .collect(),
            stripe,
        })
    }

    /// Nodes for a new stripe in the place of each old one.
    async fn new_places(
        self: &Arc<Self>,
        settled: &[SettledStripe],
    ) -> Result<Vec<Vec<NodeId>>, Hindrance> {
        let pools: Vec<PoolId> = settled.iter().map(|settled| settled.stripe.pool).collect();
        let this = Arc::clone(self);
        let find = move |meta: &Meta<K>| {
            let facts = pools.into_iter().map(|pool| this.pool_facts(meta, pool));
            facts.collect::<Result<Vec<_>, _>>()
        };
        let facts = self.core.with_meta(find).await?;
        let fleet = self.fleet();
        let welcoming = fleet.welcoming();
        let mut rng = ChaCha8Rng::seed_from_u64(self.core.ports.random());
        let mut place = |(settled, facts): (&SettledStripe, &Arc<PoolFacts>)| {
            let present = &settled.stripe.nodes;
            if facts.record.lifecycle.is_some() && present.iter().all(|n| welcoming.contains(n)) {
                // The blocks of its segment have a core rack, and keep it.
                return Ok(present.clone());
            }
            let spec = &facts.record.spec;
            let counts = (spec.k, spec.m);
            let scheme = update::scheme(spec.update);
            let bytes = needed_bytes(spec, settled.stripe.chunk_bytes);
            let on = |topology: &Topology| {
                self.room(topology.clone()).place(bytes, |topology| {
                    scheme.place(topology, counts, spec.chunks_per_rack, &mut rng)
                })
            };
            find_places(&fleet, on, |nodes: &Vec<NodeId>, failed| {
                survives_without(facts, nodes, failed)
            })
        };
        let places: Result<Vec<_>, _> = settled.iter().zip(&facts).map(&mut place).collect();
        places.map_err(|error| too_few(&fleet, &error))
    }

    /// Swaps the stripes of a replacement, and withdraws the old ones, which the client names so
    /// that this can be repeated. It is done when no node serves them any more. What can never be
    /// committed is told apart from what only failed: after that, a client must not take it for undone.
    pub(in crate::coordinator) async fn commit_replace(
        self: &Arc<Self>,
        put: PutId,
        displaced: Vec<StripeId>,
    ) -> Answer {
        let committed = self
            .core
            .with_meta(move |meta| meta.commit_replacement(put))
            .await;
        let outcome = match committed {
            Ok(stripes) => {
                lock(&self.puts).remove(&put);
                self.add_repairs(stripes).await?;
                Ok(CoordinatorReply::Done)
            }
            Err(MetaError::CommittedBefore(_)) => Ok(CoordinatorReply::Done),
            // Terms only grow, and what was displaced, aborted or removed does not come back.
            Err(
                error @ (MetaError::UnknownPut(_)
                | MetaError::UnknownFile(_)
                | MetaError::FileReplaced(_)
                | MetaError::UnknownStripe(_)
                | MetaError::LeaseLost { .. }),
            ) => return Ok(CoordinatorReply::NotCommitted(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        if self.withdraw(displaced).await? {
            return outcome;
        }
        self.garbage_wake_up.wake();
        Ok(CoordinatorReply::Busy(
            "old chunks are not withdrawn from all nodes yet; try again".to_owned(),
        ))
    }

    /// Removes the chunks of those of the stripes that are garbage. Whether all of them are gone
    /// from every node that may serve.
    pub(in crate::coordinator) async fn withdraw(
        self: &Arc<Self>,
        stripes: Vec<StripeId>,
    ) -> Result<bool, MetaError> {
        let find = move |meta: &Meta<K>| {
            let mut garbage = Vec::new();
            for id in stripes {
                garbage.extend(meta.ended_stripe(id)?);
            }
            Ok(garbage)
        };
        let garbage = self.core.with_meta(find).await?;
        self.remove_stripes(&garbage).await
    }

    /// What a client has to know of a stripe that has ended, to find out what became of its last updates.
    pub(in crate::coordinator) async fn ended(self: &Arc<Self>, id: StripeId) -> Answer {
        let find = move |meta: &Meta<K>| Ok((meta.ended_stripe(id)?, meta.stripe_status(id)?));
        let (stripe, status) = self.core.with_meta(find).await?;
        if let StripeStatus::Live | StripeStatus::Pending = status {
            let sentence = format!("{id} has not ended; look its file up again");
            return Ok(CoordinatorReply::Busy(sentence));
        }
        let nodes = self.statuses();
        Ok(CoordinatorReply::Ended { stripe, nodes })
    }
}

/// Why a replacement does not begin.
pub(in crate::coordinator) enum Hindrance {
    /// It may begin soon.
    Passing(String),
    Lasting(Denied),
}

impl From<Setback> for Hindrance {
    fn from(Setback(sentence): Setback) -> Self {
        Self::Passing(sentence)
    }
}

impl From<Hindrance> for Setback {
    fn from(hindrance: Hindrance) -> Self {
        match hindrance {
            Hindrance::Passing(sentence) | Hindrance::Lasting(Denied(sentence)) => Self(sentence),
        }
    }
}

impl From<MetaError> for Hindrance {
    fn from(error: MetaError) -> Self {
        match error {
            // The client's layout is old; with a new one it may succeed, or learn why not.
            MetaError::UnknownStripe(_)
            | MetaError::FileReplaced(_)
            | MetaError::LeaseLost { .. }
            // A node has failed since it was chosen.
            | MetaError::NodeFailed(_) => Self::Passing(error.to_string()),
            other => Self::Lasting(other.into()),
        }
    }
}

impl Hindrance {
    pub(in crate::coordinator) fn answer(self) -> Answer {
        match self {
            Self::Passing(sentence) => Ok(CoordinatorReply::Busy(sentence)),
            Self::Lasting(denied) => Err(denied),
        }
    }
}

fn release_all<K: KeyValue>(meta: &Meta<K>, leases: &[Displaced]) -> Result<(), MetaError> {
    let mut leases = leases.iter();
    leases.try_for_each(|old| meta.release(old.stripe, old.epoch).map(|_| ()))
}
