//! Replicas that wait to be encoded: what encoding-aware replication promises on any racks, and what
//! random replication ends in.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::setting::any_setting;
use gabion_codec::Code;
use gabion_layout::{Geometry, NodeId, NodePlace, RackId, StripeId, Topology};
use gabion_plan::{Cost, check};
use gabion_planner::placement::{
    EncodingAware, ParityPlaces, REPLICA_PLACEMENTS, RackLimit, RackTable, ReplicaSpread,
    ReplicatedStripe, StripeRules, random_replication, random_replication_end,
};
use gabion_planner::{PlanError, Stripe, encode};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Racks of these sizes, whose nodes' ids tell nothing of their racks.
fn topology(sizes: &[u32]) -> Topology {
    let places = sizes.iter().enumerate().flat_map(|(rack, &size)| {
        let rack = RackId(rack as u32 * 3);
        (0..size).map(move |at| NodePlace {
            node: NodeId(at * 64 + rack.0),
            rack,
        })
    });
    Topology::new(places).unwrap()
}

fn chunks_by_rack(topology: &Topology, placement: &[NodeId]) -> BTreeMap<RackId, usize> {
    let mut counts = BTreeMap::new();
    for &node in placement {
        *counts.entry(topology.rack_of(node).unwrap()).or_default() += 1;
    }
    counts
}

fn is_distinct(nodes: &[NodeId]) -> bool {
    nodes.iter().collect::<BTreeSet<_>>().len() == nodes.len()
}

const SPREADS: [ReplicaSpread; 3] = [
    ReplicaSpread::FreshRacks,
    ReplicaSpread::TwoARack,
    ReplicaSpread::TwoRacks,
];

/// Any racks, and rules that may or may not fit them.
fn any_case() -> impl Strategy<Value = (Vec<u32>, StripeRules, u64)> {
    let sizes = proptest::collection::vec(1u32..6, 2..9);
    let rules = (
        1usize..9,
        0usize..4,
        1usize..6,
        1usize..4,
        proptest::option::of(1usize..9),
    );
    let choices = (any::<bool>(), proptest::sample::select(&SPREADS[..]));
    (sizes, rules, choices, any::<u64>()).prop_map(|(sizes, rules, choices, seed)| {
        let (is_core_first, replica_spread) = choices;
        let (data_count, parity_count, replica_count, per_rack, target_rack_count) = rules;
        let rules = StripeRules {
            data_count,
            parity_count,
            replica_count,
            replica_spread,
            per_rack,
            target_rack_count,
            parity_places: if is_core_first {
                ParityPlaces::CoreFirst
            } else {
                ParityPlaces::Anywhere
            },
        };
        (sizes, rules, seed)
    })
}

/// Checks each complete stripe: nothing crosses racks to be encoded, nothing moves, no node and no rack has too much,
/// and only target racks have anything.
fn check_stripe(topology: &Topology, rules: &StripeRules, stripe: &ReplicatedStripe) {
    assert_eq!(stripe.replicas.len(), rules.data_count);
    assert_eq!(
        stripe.placement.len(),
        rules.data_count + rules.parity_count
    );
    for replicas in &stripe.replicas {
        assert_eq!(replicas.len(), rules.replica_count);
        assert!(is_distinct(replicas), "{replicas:?}");
        assert_eq!(
            topology.rack_of(replicas[0]),
            stripe.core_rack,
            "the core rack has all data"
        );
    }
    assert_eq!(stripe.relocated().count(), 0);
    assert!(is_distinct(&stripe.placement));
    let counts = chunks_by_rack(topology, &stripe.placement);
    assert!(
        counts.values().all(|&count| count <= rules.per_rack),
        "{counts:?}"
    );
    let sizes = topology.nodes_by_rack();
    let is_roomy = sizes.values().all(|nodes| nodes.len() >= rules.per_rack);
    if let (Some(targets), true) = (rules.target_rack_count, is_roomy) {
        let needed = stripe.placement.len().div_ceil(rules.per_rack);
        assert!(counts.len() <= targets.max(needed), "{counts:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_placement_puts_replicas_on_different_nodes((sizes, rules, seed) in any_case()) {
        let racks = RackTable::new(&topology(&sizes));
        for known in &REPLICA_PLACEMENTS {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let Ok(blocks) = (known.planner)(&racks, rules, 2, &mut rng) else {
                prop_assert!(racks.node_count() < rules.replica_count, "{}", known.placement);
                continue;
            };
            prop_assert_eq!(blocks.len(), rules.data_count);
            for nodes in &blocks {
                prop_assert_eq!(nodes.len(), rules.replica_count);
                prop_assert!(is_distinct(nodes), "{nodes:?}");
            }
        }
    }

    #[test]
    fn encoding_aware_stripes_never_need_what_they_have_not((sizes, rules, seed) in any_case()) {
        let topology = topology(&sizes);
        let racks = RackTable::new(&topology);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let room: usize = sizes.iter().map(|&size| rules.per_rack.min(size as usize)).sum();
        let mut placer = match EncodingAware::new(&racks, rules) {
            Ok(placer) => placer,
            Err(PlanError::NoRoom { .. }) => {
                prop_assert!(room < rules.data_count + rules.parity_count);
                return Ok(());
            }
            Err(PlanError::TooManyCopies { node_count, .. }) => {
                prop_assert!(node_count < rules.replica_count);
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        let mut waiting = 0;
        for _ in 0..40 {
            match placer.place(&mut rng) {
                Ok(block) => {
                    waiting += 1;
                    if let Some(stripe) = block.stripe {
                        waiting -= rules.data_count;
                        check_stripe(&topology, &rules, &stripe);
                    }
                    prop_assert_eq!(placer.waiting_count(), waiting);
                }
                // With one replica all of a stripe's data is in its core rack.
                Err(PlanError::NoRoom { .. }) => {
                    let core_room = *sizes.iter().min().unwrap() as usize;
                    prop_assert!(
                        rules.replica_count == 1 && rules.data_count > core_room.min(rules.per_rack)
                    );
                    return Ok(());
                }
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
    }

    #[test]
    fn random_replication_moves_only_what_it_must((sizes, rules, seed) in any_case()) {
        let topology = topology(&sizes);
        let racks = RackTable::new(&topology);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let draw = |rng: &mut _| random_replication(&racks, rules.replica_count, rules.replica_spread, rng);
        let Ok(replicas) = (0..rules.data_count).map(|_| draw(&mut rng)).collect::<Result<Vec<_>, _>>()
        else {
            prop_assert!(racks.node_count() < rules.replica_count);
            return Ok(());
        };
        for nodes in &replicas {
            prop_assert!(is_distinct(nodes));
            let places: Vec<_> = nodes.iter().map(|&node| topology.rack_of(node)).collect();
            if nodes.len() >= 2 {
                prop_assert_ne!(places[0], places[1]);
            }
            if let [_, Some(second), ..] = places[..] {
                let rack_count = places.iter().collect::<BTreeSet<_>>().len();
                let room = topology.nodes_by_rack()[&second].len();
                match rules.replica_spread {
                    ReplicaSpread::TwoRacks if room + 1 >= nodes.len() => prop_assert_eq!(rack_count, 2),
                    ReplicaSpread::TwoARack if sizes.iter().all(|&size| size > 1) => {
                        let wanted = (nodes.len() / 2 + 1).min(sizes.len());
                        prop_assert_eq!(rack_count, wanted);
                    }
                    // Of the first three, two are in one rack.
                    ReplicaSpread::FreshRacks if room > 1 => {
                        let wanted = (nodes.len() - 1).max(2).min(sizes.len());
                        prop_assert_eq!(rack_count, wanted);
                    }
                    _ => {}
                }
            }
            if nodes.len() >= 3 && sizes.iter().all(|&size| size >= 2) {
                prop_assert_eq!(places[1], places[2]);
            }
        }
        let chunks = rules.data_count + rules.parity_count;
        let room: usize = sizes.iter().map(|&size| rules.per_rack.min(size as usize)).sum();
        let end = |limit, rng: &mut _| {
            random_replication_end(&racks, replicas.clone(), rules.parity_count, rules.per_rack, limit, rng)
        };
        match end(RackLimit::Enforced, &mut rng) {
            Ok(stripe) => {
                prop_assert!(is_distinct(&stripe.placement));
                let counts = chunks_by_rack(&topology, &stripe.placement);
                prop_assert!(counts.values().all(|&count| count <= rules.per_rack));
                let moved = stripe.relocated().count();
                prop_assert!(moved <= rules.data_count);
                // Blocks of one rack cannot all stay there, and others can.
                let homes: BTreeSet<_> = replicas.iter().flatten().map(|&n| topology.rack_of(n)).collect();
                let stays: usize = homes.len() * rules.per_rack;
                prop_assert!(moved >= rules.data_count.saturating_sub(stays));
            }
            Err(error) => {
                prop_assert!(matches!(error, PlanError::NoRoom { .. }), "{error}");
                prop_assert!(room < chunks);
            }
        }
        if let Ok(stripe) = end(RackLimit::Ignored, &mut rng) {
            prop_assert!(is_distinct(&stripe.placement));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn encodings_of_replicas_check(setting in any_setting(), seed in any::<u64>(), slice in 1u64..300) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let nodes: Vec<NodeId> = setting.topology.nodes().map(|place| place.node).collect();
        let any_nodes = |_| nodes.sample(&mut rng, 1 + seed as usize % 3).copied().collect();
        let mut replicas: Vec<Vec<NodeId>> = (0..setting.geometry.k()).map(any_nodes).collect();
        if seed % 2 == 0 {
            for (nodes, place) in replicas.iter_mut().zip(&setting.placement) {
                nodes[0] = *place;
                nodes.dedup();
                nodes.truncate(1);
            }
        }
        let stripe = setting.stripe(&[]);
        let moved = replicas.iter().zip(&setting.placement).filter(|(r, p)| !r.contains(p)).count();
        let written = (moved + setting.geometry.m()) as u64 * setting.geometry.chunk_bytes();
        let gathered = encode::gather(&stripe, &replicas, nodes[0], &setting.topology, slice).unwrap();
        let chained = encode::chain(&stripe, &replicas, &setting.topology, slice).unwrap();
        for encoding in [gathered, chained] {
            prop_assert_eq!(check(&encoding.plan, &setting.code), Ok(()));
            let cost = Cost::of(&encoding.plan, &setting.topology);
            prop_assert_eq!(cost.write_bytes, written);
            let copies: usize = replicas.iter().map(Vec::len).sum();
            prop_assert_eq!(encoding.surplus.len() + setting.geometry.k() - moved, copies);
            for (chunk, node) in &encoding.surplus {
                prop_assert_ne!(stripe.node_of(*chunk), *node, "what is kept is no surplus");
            }
        }
    }

    /// Nothing is downloaded across racks, nothing moves, and only parity outside of the core rack
    /// crosses; and the node that encodes is the one that sends the least.
    #[test]
    fn encoding_in_the_core_rack_sends_only_parity_across(
        seed in any::<u64>(), per_rack in 1usize..5, is_core_first: bool,
    ) {
        let topology = Topology::uniform(20, 20);
        let racks = RackTable::new(&topology);
        let places = [ParityPlaces::Anywhere, ParityPlaces::CoreFirst];
        let rules = StripeRules {
            per_rack,
            parity_places: places[usize::from(is_core_first)],
            ..papers_rules()
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut placer = EncodingAware::new(&racks, rules).unwrap();
        let core = RackId(seed as u32 % 20);
        let stripe = loop {
            if let Some(stripe) = placer.place_in(core, &mut rng).unwrap().stripe {
                break stripe;
            }
        };
        prop_assert_eq!(stripe.core_rack, Some(core));
        let code: Code = "rs(10,4)".parse().unwrap();
        let setting = Stripe {
            id: StripeId(1),
            code: &code,
            geometry: Geometry::new(10, 4, 1, 100).unwrap(),
            placement: &stripe.placement,
            lost: &[],
        };
        let cost = |encoder| {
            let encoding = encode::gather(&setting, &stripe.replicas, encoder, &topology, 10).unwrap();
            Cost::of(&encoding.plan, &topology)
        };
        let encoder = encode::core_encoder(&stripe, &topology).unwrap();
        let parity = stripe.placement[10..].iter();
        let away = parity.filter(|&&node| topology.rack_of(node) != Some(core)).count() as u64;
        let found = cost(encoder);
        prop_assert_eq!(found.cross_rack_bytes, 100 * away);
        for place in topology.nodes().filter(|place| place.rack == core) {
            prop_assert!(found.inner_rack_bytes <= cost(place.node).inner_rack_bytes);
        }
    }
}

#[test]
fn only_blocks_with_replicas_are_encoded_and_only_copies_relayed() {
    let code: Code = "rs(2,1)".parse().unwrap();
    let stripe = Stripe {
        id: StripeId(1),
        code: &code,
        geometry: Geometry::new(2, 1, 1, 100).unwrap(),
        placement: &[0, 1, 2].map(NodeId),
        lost: &[],
    };
    let topology = Topology::uniform(3, 1);
    for replicas in [vec![vec![NodeId(0)]], vec![vec![NodeId(0)], vec![]]] {
        let error = encode::gather(&stripe, &replicas, NodeId(0), &topology, 10).unwrap_err();
        assert!(
            error.to_string().contains("2 data chunks needs a replica"),
            "{error}"
        );
        assert_eq!(encode::chain(&stripe, &replicas, &topology, 10), Err(error));
    }
    let error = encode::relay(&stripe, NodeId(0), 10).unwrap_err();
    assert!(
        error.to_string().contains("rs(2,1) does not copy"),
        "{error}"
    );
}

#[test]
fn equal_seeds_place_equally() {
    let racks = RackTable::new(&Topology::uniform(6, 4));
    let rules = StripeRules {
        data_count: 4,
        parity_count: 2,
        replica_count: 3,
        replica_spread: ReplicaSpread::FreshRacks,
        per_rack: 1,
        target_rack_count: None,
        parity_places: ParityPlaces::Anywhere,
    };
    let run = |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut placer = EncodingAware::new(&racks, rules).unwrap();
        (0..50)
            .map(|_| placer.place(&mut rng).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

/// With parity first into the core rack, the core rack holds its share of parity wherever the data of
/// the stripe can be kept elsewhere: mostly where racks may hold several chunks.
#[test]
fn the_core_rack_keeps_parity_where_it_is_made() {
    let topology = Topology::uniform(20, 20);
    let racks = RackTable::new(&topology);
    for per_rack in [1, 2, 4] {
        let rules = StripeRules {
            per_rack,
            ..papers_rules()
        };
        let mut placer = EncodingAware::new(&racks, rules).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (mut stripe_count, mut at_home_count) = (0, 0);
        for stripe in (0..4000).filter_map(|_| placer.place(&mut rng).unwrap().stripe) {
            let at_home = |node: &&NodeId| topology.rack_of(**node) == stripe.core_rack;
            let parity = stripe.placement[10..].iter().filter(at_home).count();
            let data = stripe.placement[..10].iter().filter(at_home).count();
            assert_eq!(parity + data, per_rack, "the core rack's share is used");
            stripe_count += 1;
            at_home_count += parity;
        }
        let share = at_home_count as f64 / (stripe_count * per_rack) as f64;
        // With one chunk a rack, ten blocks seldom have replicas in ten other racks.
        let least = if per_rack == 1 { 0.03 } else { 0.8 };
        assert!(share > least, "{per_rack} a rack: {share}");
    }
}

/// 20 racks, (14,10), 3 replicas, one chunk a rack.
fn papers_rules() -> StripeRules {
    StripeRules {
        data_count: 10,
        parity_count: 4,
        replica_count: 3,
        replica_spread: ReplicaSpread::FreshRacks,
        per_rack: 1,
        target_rack_count: None,
        parity_places: ParityPlaces::CoreFirst,
    }
}

/// EAR, theorem 1: block `i` is expected to take at most `1 / (1 - floor((i - 1) / c) / (R - 1))` draws.
#[test]
fn draws_stay_within_the_papers_bound() {
    for per_rack in [1_usize, 2] {
        let racks = RackTable::new(&Topology::uniform(20, 20));
        let rules = StripeRules {
            per_rack,
            parity_places: ParityPlaces::Anywhere,
            ..papers_rules()
        };
        let mut placer = EncodingAware::new(&racks, rules).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let (mut draws, mut blocks) = ([0_u64; 10], [0_u64; 10]);
        for _ in 0..40_000 {
            let block = placer.place(&mut rng).unwrap();
            draws[block.position] += block.draw_count;
            blocks[block.position] += 1;
        }
        for at in 0..10 {
            let mean = draws[at] as f64 / blocks[at] as f64;
            let bound = 1.0 / (1.0 - (at / per_rack) as f64 / 19.0);
            // A hundredth for the luck of 4,000 samples.
            assert!(
                mean >= 1.0 && mean <= bound + 0.02,
                "block {}: {mean} of {bound}",
                at + 1
            );
        }
    }
}
