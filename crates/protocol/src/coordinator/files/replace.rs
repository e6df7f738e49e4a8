//! Writes that span stripes, fill holes or change a file's size: the coordinator's half of a replacement. It keeps
//! others from updating the displaced
//! stripes, settles them so that the client can read the bytes that it does not overwrite, and places new
//! stripes; the commit swaps them in one transaction.
//!
//! A write is acknowledged when no node serves the old chunks any more: after the acknowledgement, a reader
//! with an old layout must not see the old bytes.

use super::Files;
use super::live_puts::LivePut;
use super::places::{find_places, survives_without, too_few};
use crate::coordinator::core::{Answer, Rejection, SHORT_DEADLINE_MS, lock};
use crate::coordinator::leases::occupied::Occupation;
use crate::coordinator::members::fleet::is_welcoming;
use crate::coordinator::pool_facts::PoolFacts;
use crate::message::{NewExtent, NodeStatus, Replacement, SettledStripe, ask};
use futures::future::join_all;
use gabion_layout::{Epoch, NodeId, PoolId, StripeId, StripeRecord, Topology};
use gabion_meta::{
    Displaced, FencingToken, KeyValue, Meta, MetaError, Placement, Put, PutId, Rewrite, SizeChange,
    StripeStatus,
};
use gabion_planner::update;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Stripes that are settled concurrently.
pub(super) const SETTLE_PARALLEL_COUNT: usize = 16;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Begins to replace stripes of a file. Either all of them are occupied or none, so that two writers
    /// never wait for each other.
    pub(in crate::coordinator) async fn begin_replace(
        self: &Arc<Self>,
        asked: ask::BeginReplace,
    ) -> Answer<Replacement> {
        let ask::BeginReplace {
            file,
            displaced,
            extents,
            size,
            inline,
            token,
        } = asked;
        let stripes: Vec<StripeId> = displaced.iter().map(|(_, stripe)| *stripe).collect();
        let in_use = |stripe| {
            Rejection::busy(format!(
                "{stripe} is being repaired or rewritten; try again"
            ))
        };
        let occupation = self.occupied.occupy(stripes.clone()).map_err(in_use)?;
        let leases = self
            .leases
            .take_leases(&stripes)
            .await
            .map_err(Rejection::of_layout)?;
        let begun = self.begin_leased(
            (file, token),
            (&displaced, &leases),
            (&extents, size, inline),
        );
        let begun = begun.await;
        let (mut put, settled, copied) = match begun {
            Ok(begun) => begun,
            Err(rejection) => {
                self.leases.release_leases(leases).await?;
                self.leave(occupation).await?;
                // A stripe that has left a hole may be served yet.
                self.leftovers.wake();
                return Err(rejection);
            }
        };
        let mut live = LivePut::new(self.core.ports.now_ms(), self.pools.loss_count(), None);
        live.occupation = Some(occupation);
        lock(&self.puts).insert(put.id, live);
        let behind = put.stripes.split_off(extents.len());
        let mut replacement = Replacement {
            put: self.tickets.open(put.id),
            settled,
            stripes: put.stripes,
            copies: copied.into_iter().zip(behind).collect(),
            tickets: Vec::new(),
            nodes: self.nodes.statuses(),
        };
        replacement.tickets = self.tickets.grant_replacement(file, &replacement);
        Ok(replacement)
    }

    /// Releases stripes that were not replaced. Their settlement may have found chunks to repair, and
    /// repairs may have waited for the release.
    pub(in crate::coordinator) async fn leave(
        self: &Arc<Self>,
        occupation: Occupation,
    ) -> Result<(), MetaError> {
        let ids = occupation.end();
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
        self.backlog.add(stripes).await?;
        self.backlog.retry_all();
        Ok(())
    }

    /// Settles the displaced stripes and makes room for the new ones, and for copies of those that other files share,
    /// whose offsets are returned.
    async fn begin_leased(
        self: &Arc<Self>,
        (file, token): (PutId, FencingToken),
        (displaced, leases): (&[(u64, StripeId)], &[Displaced]),
        (extents, size, inline): (&[NewExtent], SizeChange, Option<u64>),
    ) -> Answer<(Put, Vec<SettledStripe>, Vec<u64>)> {
        let mut settled = Vec::with_capacity(leases.len());
        for some in leases.chunks(SETTLE_PARALLEL_COUNT) {
            let settling = some
                .iter()
                .map(|old| self.settle_old(old.stripe, old.epoch));
            for one in join_all(settling).await {
                settled.push(one?);
            }
        }
        let offsets = || displaced.iter().map(|(offset, _)| *offset);
        let old: BTreeMap<u64, &SettledStripe> = offsets().zip(&settled).collect();
        let of = displaced.to_vec();
        let find = move |meta: &Meta<K>| meta.shared_of(file, &of);
        let shared = self
            .core
            .with_meta(find)
            .await
            .map_err(Rejection::of_layout)?;
        let copies = shared.into_iter().map(|(offset, chunk_bytes)| NewExtent {
            offset,
            chunk_bytes,
        });
        let copies: Vec<NewExtent> = copies.collect();
        let all: Vec<NewExtent> = extents.iter().chain(&copies).copied().collect();
        let placements = self.new_places(file, &all, &old).await?;
        let copy_offsets: Vec<u64> = copies.iter().map(|copy| copy.offset).collect();
        let rewrite = Rewrite {
            displaced: offsets().zip(leases.iter().copied()).collect(),
            offsets: extents.iter().map(|extent| extent.offset).collect(),
            copied: copy_offsets.clone(),
            size,
            inline,
            token,
        };
        let now_ms = self.core.ports.now_ms();
        let limit = self.core.options.discarded_count;
        let begin = move |meta: &Meta<K>| {
            meta.with_room(limit, || {
                meta.begin_replacement(file, &rewrite, &placements, now_ms)
            })
        };
        let put = self
            .core
            .with_meta(begin)
            .await
            .map_err(Rejection::of_layout)?;
        Ok((put, settled, copy_offsets))
    }

    pub(in crate::coordinator) async fn settle_old(
        self: &Arc<Self>,
        id: StripeId,
        epoch: Epoch,
    ) -> Answer<SettledStripe> {
        let gone = || Rejection::busy(MetaError::UnknownStripe(id));
        let (outcome, absent) = self.repair.settle(id, epoch).await?.ok_or_else(gone)?;
        let stripe = self.repair.survey(id).await?.ok_or_else(gone)?.stripe;
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

    /// Places for new stripes: in the pools of those whose places they take, and otherwise in the file's.
    async fn new_places(
        self: &Arc<Self>,
        file: PutId,
        extents: &[NewExtent],
        old: &BTreeMap<u64, &SettledStripe>,
    ) -> Answer<Vec<Placement>> {
        let pool_of = |extent: &NewExtent| old.get(&extent.offset).map(|old| old.stripe.pool);
        let pools: Vec<Option<PoolId>> = extents.iter().map(pool_of).collect();
        let this = Arc::clone(self);
        let find = move |meta: &Meta<K>| {
            let own = meta.file_of(file)?.pool;
            let pools = pools.into_iter().map(|pool| pool.unwrap_or(own));
            let facts = pools.map(|pool| this.pools.facts(meta, pool));
            facts.collect::<Result<Vec<_>, _>>()
        };
        let facts = self
            .core
            .with_meta(find)
            .await
            .map_err(Rejection::of_layout)?;
        let fleet = self.nodes.fleet();
        let welcoming = fleet.welcoming();
        let mut rng = ChaCha8Rng::seed_from_u64(self.core.ports.random());
        let mut place = |(extent, facts): (&NewExtent, &Arc<PoolFacts>)| {
            let bytes = extent.chunk_bytes;
            let placement = |nodes| Placement {
                chunk_bytes: bytes,
                nodes,
            };
            let present = old.get(&extent.offset).map(|old| &old.stripe.nodes);
            let present = present.filter(|_| facts.record.lifecycle.is_some());
            if let Some(present) = present.filter(|p| p.iter().all(|n| welcoming.contains(n))) {
                // The blocks of its segment have a core rack, and keep it.
                return Ok(placement(present.clone()));
            }
            let spec = &facts.record.spec;
            let counts = (spec.k, spec.m);
            let scheme = update::scheme(spec.update);
            let on = |topology: &Topology| {
                self.nodes.room(topology.clone()).place(bytes, |topology| {
                    scheme.place(topology, counts, spec.chunks_per_rack, &mut rng)
                })
            };
            let nodes = find_places(&fleet, on, |nodes: &Vec<NodeId>, failed| {
                survives_without(facts, nodes, failed)
            });
            nodes.map(placement)
        };
        let places: Result<Vec<_>, _> = extents.iter().zip(&facts).map(&mut place).collect();
        places.map_err(|error| {
            let largest = extents.iter().map(|extent| extent.chunk_bytes).max();
            let nodes = fleet.topology(is_welcoming);
            let no_room = self.nodes.no_room(&nodes, largest.unwrap_or(0), "");
            no_room.map_or_else(|| too_few(&fleet, &error), Rejection::Refused)
        })
    }

    /// Swaps the stripes of a replacement, and withdraws the old ones, which the client names so that the
    /// request can be repeated. The request is done when no node serves them any more. The answer
    /// distinguishes a replacement that can never be committed from a failure: after a failure, the client
    /// must not assume that the replacement was undone.
    pub(in crate::coordinator) async fn commit_replace(
        self: &Arc<Self>,
        asked: ask::CommitReplace,
    ) -> Answer<Result<(), String>> {
        let ask::CommitReplace { put, displaced } = asked;
        let put = self.tickets.own(put)?;
        let commit = move |meta: &Meta<K>| match meta.commit_replacement(put) {
            // Other changes could make it possible again, and the client takes the answer as final.
            Err(changed @ MetaError::FileChanged(_)) if meta.abort_put(put)? => Err(changed),
            Err(MetaError::FileChanged(_)) => meta.commit_replacement(put),
            committed => committed,
        };
        let committed = self.core.with_meta(commit).await;
        match committed {
            Ok(stripes) => {
                lock(&self.puts).remove(&put);
                self.backlog.add(stripes).await?;
            }
            Err(MetaError::CommittedBefore(_)) => {}
            // Terms only grow, and a displaced, aborted, removed or lost stripe does not come back.
            Err(
                error @ (MetaError::UnknownPut(_)
                | MetaError::FileGone(_)
                | MetaError::UnknownStripe(_)
                | MetaError::Superseded { .. }
                | MetaError::LeaseLost { .. }
                | MetaError::FileChanged(_)
                | MetaError::PutLost { .. }),
            ) => return Ok(Err(error.to_string())),
            Err(error @ MetaError::StillServed(_)) => {
                // It can be committed later, when no node serves what has left the hole.
                self.leftovers.wake();
                return Err(Rejection::busy(error));
            }
            Err(error) => return Err(error.into()),
        }
        if self.withdraw(displaced).await? {
            return Ok(Ok(()));
        }
        self.leftovers.wake();
        Err(Rejection::busy(
            "old chunks are not withdrawn from all nodes yet; try again",
        ))
    }

    /// Removes the chunks of those of the stripes that are garbage. Returns whether no reader can
    /// read any of them.
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
        let removal = self.garbage.remove_stripes(&garbage, SHORT_DEADLINE_MS);
        Ok(removal.await?.none_served)
    }

    /// The facts about an ended stripe from which a client learns the outcome of its last updates.
    pub(in crate::coordinator) async fn ended(
        self: &Arc<Self>,
        id: StripeId,
    ) -> Answer<(Option<StripeRecord>, Vec<NodeStatus>)> {
        let find = move |meta: &Meta<K>| Ok((meta.ended_stripe(id)?, meta.stripe_status(id)?));
        let (stripe, status) = self.core.with_meta(find).await?;
        if let StripeStatus::Live | StripeStatus::Pending = status {
            let sentence = format!("{id} has not ended; look its file up again");
            return Err(Rejection::busy(sentence));
        }
        Ok((stripe, self.nodes.statuses()))
    }
}
