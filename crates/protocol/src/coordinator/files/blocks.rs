//! Places for blocks that are replicated first: where encoding them will keep the pool's promise (EAR).

use super::Files;
use crate::coordinator::core::Answer;
use crate::coordinator::members::fleet::Fleet;
use crate::coordinator::pool_facts::PoolFacts;
use gabion_layout::{NodeId, ReplicaPlacement, Topology};
use gabion_meta::{KeyValue, Placement, PoolSpec};
use gabion_planner::placement::{self, ParityPlaces, RackTable, ReplicaSpread, Room, StripeRules};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Places the replicas of a file's blocks: `encoded.k` blocks for each segment, with chunks of these
    /// sizes.
    pub(super) fn place_blocks(
        &self,
        facts: &PoolFacts,
        encoded: &PoolSpec,
        sizes: &[u64],
        fleet: &Fleet,
    ) -> Answer<Vec<Placement>> {
        let spec = &facts.record.spec;
        let lifecycle = facts.record.lifecycle;
        let chosen = lifecycle.map_or(ReplicaPlacement::Rr, |lifecycle| lifecycle.placement);
        let place_blocks = placement::descriptor(chosen).planner;
        let replica_count = spec.k + spec.m;
        let rules = StripeRules {
            data_count: encoded.k,
            parity_count: encoded.m,
            replica_count,
            replica_spread: ReplicaSpread::FreshRacks,
            per_rack: encoded.chunks_per_rack,
            target_rack_count: None,
            parity_places: ParityPlaces::CoreFirst,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(self.core.ports.random());
        let mut segment = |topology: &Topology| {
            let racks = RackTable::new(topology);
            Ok(place_blocks(&racks, rules, spec.chunks_per_rack, &mut rng)?.concat())
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
