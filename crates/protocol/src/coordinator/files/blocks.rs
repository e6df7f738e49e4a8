//! Places for blocks that are replicated first: where encoding them will keep the pool's promise (EAR).

use super::Files;
use super::rejection::Rejection;
use crate::coordinator::members::fleet::Fleet;
use crate::coordinator::pool_facts::PoolFacts;
use gabion_layout::{NodeId, ReplicaPlacement, Topology};
use gabion_meta::{KeyValue, Placement, PoolSpec};
use gabion_planner::placement::{
    EncodingAware, ParityPlaces, RackTable, ReplicaSpread, Room, StripeRules, random_replication,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Places the replicas of a file's blocks: `encoded.k` blocks for each segment, with chunks of these
    /// sizes. If encoding-aware replication finds no layout, replicas are placed at random: the pool's
    /// promise does not depend on where its stripes will be.
    pub(super) fn place_blocks(
        &self,
        facts: &PoolFacts,
        encoded: &PoolSpec,
        sizes: &[u64],
        fleet: &Fleet,
    ) -> Result<Vec<Placement>, Rejection> {
        let spec = &facts.record.spec;
        let replica_count = spec.k + spec.m;
        let spread = ReplicaSpread::FreshRacks;
        let is_ear = facts
            .record
            .lifecycle
            .is_some_and(|l| l.placement == ReplicaPlacement::Ear);
        let rules = StripeRules {
            data_count: encoded.k,
            parity_count: encoded.m,
            replica_count,
            replica_spread: spread,
            per_rack: encoded.chunks_per_rack,
            target_rack_count: None,
            parity_places: ParityPlaces::CoreFirst,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(self.core.ports.random());
        let mut segment = |topology: &Topology| {
            let racks = RackTable::new(topology);
            let aware = is_ear.then(|| EncodingAware::new(&racks, rules)?.place_stripe(&mut rng));
            let aware = aware.and_then(Result::ok).map(|stripe| stripe.replicas);
            let aware = aware.filter(|blocks| {
                let mut blocks = blocks.iter();
                blocks.all(|nodes| is_within(nodes, spec.chunks_per_rack, topology))
            });
            let blocks = match aware {
                Some(blocks) => blocks,
                None => (0..encoded.k)
                    .map(|_| random_replication(&racks, replica_count, spread, &mut rng))
                    .collect::<Result<_, _>>()?,
            };
            Ok(blocks.concat())
        };
        let mut place = |room: &mut Room| {
            let mut placements = Vec::with_capacity(sizes.len() * encoded.k);
            for &chunk_bytes in sizes {
                let nodes = room.place(chunk_bytes, &mut segment)?;
                let blocks = nodes.chunks(replica_count).map(<[NodeId]>::to_vec);
                placements.extend(blocks.map(|nodes| Placement { chunk_bytes, nodes }));
            }
            Ok(placements)
        };
        self.place_with_room(facts, sizes, fleet, &mut place)
    }
}

/// Whether no rack has more than `per_rack` of the nodes.
fn is_within(nodes: &[NodeId], per_rack: usize, topology: &Topology) -> bool {
    let mut counts = BTreeMap::new();
    for &node in nodes {
        *counts.entry(topology.rack_of(node)).or_insert(0) += 1;
    }
    counts.values().all(|&count| count <= per_rack)
}
