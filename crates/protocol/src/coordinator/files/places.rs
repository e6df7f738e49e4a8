//! Places for new stripes: on nodes that are up. If these are too few for a stripe, also on failed ones,
//! whose chunks are left out until a repair rebuilds them. If a node does not take its chunk during a put,
//! the stripe is placed anew, under another id.

use super::Files;
use crate::coordinator::core::{Answer, Rejection};
use crate::coordinator::members::fleet::{Fleet, is_welcoming};
use crate::coordinator::pool_facts::PoolFacts;
use crate::message::{Liveness, NodeStatus, PutPlaces, ask};
use crate::ticket::Operations;
use gabion_layout::{ChunkIndex, NodeId, StripeId, StripeRecord, Topology};
use gabion_meta::{Departure, KeyValue, Meta, Placement, PutId};
use gabion_planner::placement::Room;
use gabion_planner::{PlanError, Stripe, update};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Places a stripe of a put anew, without the nodes in `avoid`. If `failed` has a successor already, or there is
    /// none, answers with the present stripe and a new ticket.
    pub(in crate::coordinator) async fn place_anew(
        self: &Arc<Self>,
        asked: ask::PlaceAnew,
    ) -> Answer<Box<PutPlaces>> {
        let ask::PlaceAnew {
            put,
            first,
            failed,
            avoid,
        } = asked;
        self.touch_put(put)?;
        let put = put.id;
        let this = Arc::clone(self);
        let find = move |meta: &Meta<K>| {
            let stripe = meta.stripe_of_put(put, first)?;
            let facts = this.pools.facts(meta, stripe.pool)?;
            Ok((stripe, facts))
        };
        let (mut stripe, facts) = self.core.with_meta(find).await?;
        if let Some(failed) = failed.filter(|failed| *failed == stripe.id) {
            // Failed nodes among these are detected soon; full nodes stay full for long.
            let fleet = self.nodes.fleet().distrusting(&avoid);
            let mut placed = self.place(&facts, &[stripe.chunk_bytes], &fleet)?;
            let nodes = placed.swap_remove(0).nodes;
            let anew = move |meta: &Meta<K>| meta.place_anew(put, first, failed, &nodes);
            stripe = self
                .core
                .with_meta(anew)
                .await
                .map_err(Rejection::of_layout)?;
            self.leftovers.wake();
        }
        Ok(self.places(put, &facts, vec![stripe]))
    }

    /// The answer with places for stripes of a put, and with the tickets to store them.
    pub(super) fn places(
        &self,
        put: PutId,
        facts: &PoolFacts,
        stripes: Vec<StripeRecord>,
    ) -> Box<PutPlaces> {
        Box::new(PutPlaces {
            put: self.tickets.open(put),
            pool: facts.record.clone(),
            tickets: self.tickets.grant(put, &stripes, Operations::INSTALL),
            stripes,
            nodes: self.nodes.statuses(),
        })
    }

    /// Places stripes with chunks of these sizes.
    pub(super) fn place(
        &self,
        facts: &PoolFacts,
        sizes: &[u64],
        fleet: &Fleet,
    ) -> Answer<Vec<Placement>> {
        let spec = &facts.record.spec;
        let seed = self.core.options.placement_seed;
        let seed = seed.unwrap_or_else(|| self.core.ports.random());
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let scheme = update::scheme(spec.update);
        let mut place = |room: &mut Room| {
            let placed = sizes.iter().map(|&chunk_bytes| {
                let nodes = room.place(chunk_bytes, |topology| {
                    scheme.place(topology, (spec.k, spec.m), spec.chunks_per_rack, &mut rng)
                })?;
                Ok(Placement { chunk_bytes, nodes })
            });
            placed.collect()
        };
        self.place_with_room(facts, sizes, fleet, &mut place)
    }

    /// Places stripes with chunks of these sizes by `place` where nodes have room.
    pub(super) fn place_with_room(
        &self,
        facts: &PoolFacts,
        sizes: &[u64],
        fleet: &Fleet,
        place: &mut dyn FnMut(&mut Room) -> Result<Vec<Placement>, PlanError>,
    ) -> Answer<Vec<Placement>> {
        let on = |topology: &Topology| place(&mut self.nodes.room(topology.clone()));
        let survives = |placed: &Vec<Placement>, failed: &[NodeId]| {
            let mut nodes = placed.iter().map(|place| &place.nodes[..]);
            nodes.all(|nodes| survives_without(facts, nodes, failed))
        };
        find_places(fleet, on, survives).map_err(|error| {
            let nodes = fleet.topology(is_welcoming);
            let largest = sizes.iter().copied().max().unwrap_or(0);
            let mut no_room = self.nodes.no_room(&nodes, largest, "");
            if no_room.is_none() && place(&mut Room::new(nodes.clone(), BTreeMap::new())).is_ok() {
                // There is room for one stripe, and not for all.
                let all = sizes.iter().sum();
                no_room = self.nodes.no_room(&nodes, all, " before all is stored");
            }
            no_room.map_or_else(|| too_few(fleet, &error), Rejection::Refused)
        })
    }
}

/// Places stripes on nodes that are up. If these are too few, adds as few failed ones as possible, provided
/// that the stripes survive a further loss without them.
///
/// # Errors
/// Reasons why the nodes that are up do not suffice.
pub(super) fn find_places<T>(
    fleet: &Fleet,
    mut place: impl FnMut(&Topology) -> Result<T, PlanError>,
    survives: impl Fn(&T, &[NodeId]) -> bool,
) -> Result<T, PlanError> {
    let first = place(&fleet.topology(is_welcoming));
    let Err(error) = first else { return first };
    let is_failed = |status: &&NodeStatus| {
        status.liveness == Liveness::Failed && status.departure == Departure::None
    };
    let failed = fleet.nodes().iter().filter(is_failed);
    let failed: Vec<NodeId> = failed.map(|status| status.node).collect();
    for count in 1..=failed.len() {
        let some = &failed[..count];
        let topology = fleet.topology(|s| is_welcoming(s) || some.contains(&s.node));
        if let Ok(placed) = place(&topology)
            && survives(&placed, some)
        {
            return Ok(placed);
        }
    }
    Err(error)
}

/// Whether a stripe on `nodes` survives the loss of one more chunk without those on failed nodes.
pub(super) fn survives_without(facts: &PoolFacts, nodes: &[NodeId], failed: &[NodeId]) -> bool {
    let lost = nodes.iter().enumerate();
    let lost = lost.filter(|(_, node)| failed.contains(node));
    let lost: Vec<ChunkIndex> = lost.map(|(chunk, _)| ChunkIndex::new(chunk)).collect();
    let Ok(geometry) = facts.geometry(facts.record.spec.chunk_bytes) else {
        return false;
    };
    let stripe = Stripe {
        id: StripeId(0),
        code: &facts.code,
        geometry,
        placement: nodes,
        lost: &lost,
    };
    lost.is_empty() || update::check_left(&stripe).is_ok()
}

/// Too few nodes are up. A silent node either answers again or is declared failed soon. A node that has just ended its
/// membership, for instance since the coordinator has restarted, joins again soon.
pub(super) fn too_few(fleet: &Fleet, error: &PlanError) -> Rejection {
    if fleet.may_grow_soon() {
        Rejection::busy(error.to_string())
    } else {
        error.to_string().into()
    }
}
