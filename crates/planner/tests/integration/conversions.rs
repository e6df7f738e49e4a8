//! The way of blocks from replicas to stripes and back, starting from where chunks are: plans check, data
//! crosses no racks for encoding while there is a core rack, and what went forth comes back for free.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::setting::any_setting;
use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry, NodeId, RackId, StripeId, Topology};
use gabion_plan::{Cost, check};
use gabion_planner::placement::{
    EncodingAware, ParityPlaces, RackTable, ReplicaSpread, ReplicatedStripe, StripeRules, encoding,
    promotion,
};
use gabion_planner::{Stripe, encode};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

const CHUNK_BYTES: u64 = 100;

/// The cost of encoding the blocks where `best_encoder` says.
fn cost_of(stripe: &ReplicatedStripe, code: &Code, topology: &Topology) -> Cost {
    let view = Stripe {
        id: StripeId(1),
        code,
        geometry: Geometry::new(code.k(), code.m(), 1, CHUNK_BYTES).unwrap(),
        placement: &stripe.placement,
        lost: &[],
    };
    let encoder = encode::best_encoder(&view, &stripe.replicas, topology).unwrap();
    let plan = encode::convert(&view, &stripe.replicas, encoder, topology, 30).unwrap();
    check(&plan, code).unwrap();
    Cost::of(&plan, topology)
}

/// Parity chunks outside of the core rack.
fn parity_away(stripe: &ReplicatedStripe, topology: &Topology) -> u64 {
    let parity = stripe.placement[stripe.replicas.len()..].iter();
    let away = parity.filter(|&&node| topology.rack_of(node) != stripe.core_rack);
    away.count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn conversions_check(setting in any_setting(), seed in any::<u64>(), slice in 1u64..300) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let nodes: Vec<NodeId> = setting.topology.nodes().map(|place| place.node).collect();
        let any_nodes = |_| nodes.sample(&mut rng, 1 + seed as usize % 3).copied().collect();
        let sources: Vec<Vec<NodeId>> = (0..setting.geometry.k()).map(any_nodes).collect();
        let stripe = setting.stripe(&[]);
        let encoder = encode::best_encoder(&stripe, &sources, &setting.topology).unwrap();
        let plan = encode::convert(&stripe, &sources, encoder, &setting.topology, slice).unwrap();
        prop_assert_eq!(check(&plan, &setting.code), Ok(()));
        let cost = Cost::of(&plan, &setting.topology);
        let all = setting.geometry.n() as u64 * setting.geometry.chunk_bytes();
        prop_assert_eq!(cost.write_bytes, all, "every chunk is made");
    }

    /// A stripe that EAR has placed is encoded without data that crosses racks, and nothing moves; a stripe that is
    /// promoted and encoded again has the same places, at the same price.
    #[test]
    fn nothing_crosses_racks_but_parity(seed in any::<u64>(), per_rack in 1usize..5, rack_count in 8u32..16) {
        let topology = Topology::uniform(rack_count, 6);
        let racks = RackTable::new(&topology);
        let code: Code = "rs(6,2)".parse().unwrap();
        let rules = StripeRules {
            data_count: 6,
            parity_count: 2,
            replica_count: 3,
            replica_spread: ReplicaSpread::FreshRacks,
            per_rack,
            target_rack_count: None,
            parity_places: ParityPlaces::CoreFirst,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let placed = EncodingAware::new(&racks, rules).unwrap().place_stripe(&mut rng).unwrap();
        let mut replicas = placed.replicas;
        for _ in 0..2 {
            let stripe = encoding(&racks, replicas.clone(), 2, per_rack, &mut rng).unwrap();
            prop_assert!(stripe.core_rack.is_some());
            prop_assert_eq!(stripe.relocated().count(), 0);
            let in_rack = |rack| {
                let all = stripe.placement.iter();
                all.filter(|&&node| topology.rack_of(node) == Some(RackId(rack))).count()
            };
            prop_assert!((0..rack_count).all(|rack| in_rack(rack) <= per_rack));
            let cost = cost_of(&stripe, &code, &topology);
            prop_assert_eq!(cost.cross_rack_bytes, CHUNK_BYTES * parity_away(&stripe, &topology));
            replicas = promotion(&racks, &stripe.placement[..6], 3, &mut rng).unwrap();
        }
    }
}

/// A block that stays in the core rack needs one crossing for its copies, any other the same: two copies
/// in one rack, of which the second comes from the first.
#[test]
fn a_promoted_block_crosses_racks_once() {
    let topology = Topology::uniform(4, 3);
    let racks = RackTable::new(&topology);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let kept = [0, 1, 4, 8].map(NodeId);
    let code: Code = "rep(3)".parse().unwrap();
    let blocks = promotion(&racks, &kept, 3, &mut rng).unwrap();
    for (nodes, kept) in blocks.iter().zip(kept) {
        let view = Stripe {
            id: StripeId(1),
            code: &code,
            geometry: Geometry::new(1, 2, 1, CHUNK_BYTES).unwrap(),
            placement: nodes,
            lost: &[],
        };
        let plan = encode::convert(&view, &[vec![kept]], kept, &topology, 30).unwrap();
        check(&plan, &code).unwrap();
        let cost = Cost::of(&plan, &topology);
        let sent = (cost.cross_rack_bytes, cost.inner_rack_bytes);
        assert_eq!(sent, (CHUNK_BYTES, CHUNK_BYTES), "{nodes:?}");
    }
}

/// Replicas on nodes that take no more chunks are read, and not kept.
#[test]
fn what_cannot_stay_moves() {
    let all = Topology::uniform(4, 2);
    let gone = NodeId(0);
    let left = all.nodes().filter(|place| place.node != gone);
    let racks = RackTable::new(&Topology::new(left).unwrap());
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let replicas = vec![vec![gone], [2, 4].map(NodeId).to_vec()];
    let stripe = encoding(&racks, replicas, 1, 1, &mut rng).unwrap();
    let moved: Vec<_> = stripe.relocated().map(ChunkIndex::at).collect();
    assert_eq!(moved, [0]);
    assert!(!stripe.placement.contains(&gone));
    cost_of(&stripe, &"rs(2,1)".parse().unwrap(), &all);
}
