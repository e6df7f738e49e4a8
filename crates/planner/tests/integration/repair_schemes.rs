//! Repairs of several chunks and along chosen paths: every plan checks over random codes, layouts
//! and losses, and costs what `ECPipe` says of it.

use crate::setting::{Setting, any_setting};
use gabion_codec::{Code, Family};
use gabion_layout::{ChunkIndex, Geometry, NodeId, RackId, StripeId, Topology};
use gabion_plan::{Cost, Plan, check};
use gabion_planner::repair::{
    MultiScheme, Scheme, fewest_crossing_chunks, rack_aware_path, repair, repair_all,
    repair_together,
};
use gabion_planner::{PlanError, Stripe};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Up to three losses out of random numbers, each with its own requestor, which holds nothing.
fn losses(setting: &Setting, numbers: &[usize]) -> Vec<(ChunkIndex, NodeId)> {
    let n = setting.geometry.n();
    let lost: BTreeSet<usize> = numbers.iter().map(|number| number % n).collect();
    let spare = setting.topology.nodes().map(|place| place.node);
    let spare = spare.filter(|node| !setting.placement.contains(node));
    lost.into_iter().map(ChunkIndex::new).zip(spare).collect()
}

fn is_scalar_mds(setting: &Setting) -> bool {
    matches!(
        setting.code.family(),
        Family::ReedSolomon { .. } | Family::Cauchy { .. }
    )
}

/// Returns the number of remaining chunks of a stripe in each rack.
fn left_by_rack(setting: &Setting, lost: &[ChunkIndex]) -> BTreeMap<RackId, usize> {
    let mut left = BTreeMap::new();
    for chunk in setting.stripe(lost).available() {
        let rack = setting
            .topology
            .rack_of(setting.placement[chunk.at()])
            .expect("every node is in a rack");
        *left.entry(rack).or_default() += 1;
    }
    left
}

/// Returns the bytes of the busiest port of a node or rack in one direction.
fn busiest_port(plan: &Plan, topology: &Topology) -> u64 {
    let mut ports: BTreeMap<(bool, Result<NodeId, RackId>), u64> = BTreeMap::new();
    for link in Cost::of(plan, topology).links {
        let ends = [(false, link.from), (true, link.to)];
        let crosses = topology.rack_of(link.from) != topology.rack_of(link.to);
        for (is_into, node) in ends {
            *ports.entry((is_into, Ok(node))).or_default() += link.bytes;
            if let Some(rack) = topology.rack_of(node).filter(|_| crosses) {
                *ports.entry((is_into, Err(rack))).or_default() += link.bytes;
            }
        }
    }
    ports.into_values().max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn repairs_of_several_chunks_check(
        setting in any_setting(), numbers in proptest::collection::vec(any::<usize>(), 1..4),
        slice in 1u64..300,
    ) {
        let targets = losses(&setting, &numbers);
        let lost: Vec<ChunkIndex> = targets.iter().map(|&(chunk, _)| chunk).collect();
        let stripe = setting.stripe(&lost);
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let schemes = [
            MultiScheme::Dedicated,
            MultiScheme::Pipeline,
            MultiScheme::Racks(&setting.topology),
            MultiScheme::Dealt,
        ];
        for scheme in schemes {
            let plan = match repair_all(&stripe, &targets, &helpers, scheme, slice) {
                Ok(plan) => plan,
                Err(error) => {
                    prop_assert!(matches!(error, PlanError::NotEnoughHelpers(_)), "{}", error);
                    prop_assert!(lost.len() > setting.code.failures_survived());
                    continue;
                }
            };
            prop_assert_eq!(check(&plan, &setting.code), Ok(()));
            let cost = Cost::of(&plan, &setting.topology);
            if !is_scalar_mds(&setting) {
                continue;
            }
            let (k, f) = (setting.geometry.k() as u64, lost.len() as u64);
            let chunk_bytes = setting.geometry.chunk_bytes();
            prop_assert_eq!(cost.read_bytes, k * chunk_bytes, "each helper reads once");
            let sent: u64 = cost.links.iter().map(|link| link.bytes / chunk_bytes).sum();
            match scheme {
                MultiScheme::Dedicated => prop_assert_eq!(sent, k + f - 1),
                MultiScheme::Pipeline => {
                    prop_assert_eq!(sent, f * k);
                    prop_assert_eq!(cost.busiest_link_bytes(), f * chunk_bytes);
                }
                MultiScheme::Racks(_) => {
                    prop_assert!(sent < f * k + f);
                }
                MultiScheme::Dealt => {
                    // Row by row, and what the helpers send each other is all but their own share.
                    prop_assert!(sent < k + f);
                }
            }
        }
    }

    #[test]
    fn chunks_are_repaired_together_where_that_sends_no_more(
        setting in any_setting(), numbers in proptest::collection::vec(any::<usize>(), 2..4),
        slice in 1u64..300, is_pipelined in any::<bool>(),
    ) {
        let targets = losses(&setting, &numbers);
        let lost: Vec<ChunkIndex> = targets.iter().map(|&(chunk, _)| chunk).collect();
        prop_assume!(lost.len() > 1 && lost.len() <= setting.code.failures_survived());
        let stripe = setting.stripe(&lost);
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let scheme = if is_pipelined { Scheme::Pipeline } else { Scheme::Conventional };
        let together = |topology| {
            repair_together(&stripe, &targets, &helpers, scheme, topology, slice).unwrap()
        };
        let best = together(Some(&setting.topology));
        if let Some(plan) = &best {
            prop_assert_eq!(check(plan, &setting.code), Ok(()));
        }
        let together = together(None);
        let of = |plan: &Plan| {
            let cost = Cost::of(plan, &setting.topology);
            (cost.links.iter().map(|link| link.bytes).sum::<u64>(), cost.read_bytes)
        };
        let (mut sent_apart, mut read_apart) = (0, 0);
        for &(chunk, requestor) in &targets {
            let one = repair(&stripe, chunk, requestor, &helpers, scheme, slice).unwrap();
            sent_apart += of(&one).0;
            read_apart += of(&one).1;
        }
        let all = if is_pipelined { MultiScheme::Pipeline } else { MultiScheme::Dedicated };
        let joint = repair_all(&stripe, &targets, &helpers, all, slice).unwrap();
        prop_assert_eq!(together.is_some(), of(&joint).0 <= sent_apart);
        if let Some(plan) = together {
            prop_assert_eq!(check(&plan, &setting.code), Ok(()));
            prop_assert!(of(&plan).1 <= read_apart);
        }
        if is_scalar_mds(&setting) {
            prop_assert!(of(&joint).0 <= sent_apart && of(&joint).1 < read_apart);
            let best = best.expect("a chain sends no more");
            prop_assert_eq!(of(&best).1, of(&joint).1, "each helper reads once");
            prop_assert!(busiest_port(&best, &setting.topology) <= busiest_port(&joint, &setting.topology));
        }
    }

    #[test]
    fn paths_and_racks_cross_as_little_as_can_be(
        setting in any_setting(), numbers in proptest::collection::vec(any::<usize>(), 1..4),
        slice in 1u64..300,
    ) {
        let targets = losses(&setting, &numbers);
        let lost: Vec<ChunkIndex> = targets.iter().map(|&(chunk, _)| chunk).collect();
        let stripe = setting.stripe(&lost);
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let (chunk, requestor) = targets[0];
        let Ok(path) = rack_aware_path(&stripe, chunk, requestor, &helpers, &setting.topology) else {
            prop_assert!(lost.len() > setting.code.failures_survived());
            return Ok(());
        };
        let plan = repair(&stripe, chunk, requestor, &path, Scheme::Pipeline, slice).unwrap();
        prop_assert_eq!(check(&plan, &setting.code), Ok(()));
        let racks: Vec<_> = path
            .iter()
            .map(|&chunk| stripe.node_of(chunk))
            .chain([requestor])
            .map(|node| setting.topology.rack_of(node))
            .collect();
        let distinct: BTreeSet<_> = racks.iter().collect();
        let changes = racks.windows(2).filter(|pair| pair[0] != pair[1]).count();
        prop_assert_eq!(changes, distinct.len() - 1, "no rack is entered twice");
        if !is_scalar_mds(&setting) {
            return Ok(());
        }
        let home = setting.topology.rack_of(requestor).unwrap();
        let left = left_by_rack(&setting, &lost);
        let (k, chunk_bytes) = (setting.geometry.k(), setting.geometry.chunk_bytes());
        let crossing = |plan| Cost::of(&plan, &setting.topology).cross_rack_bytes / chunk_bytes;
        let bound = |f| fewest_crossing_chunks(&left, home, k, f).unwrap() as u64;
        prop_assert_eq!(crossing(plan), bound(1));
        // All lost chunks at one requestor: racks that sum up meet the bound for any number.
        let together: Vec<_> = lost.iter().map(|&chunk| (chunk, requestor)).collect();
        let racks = MultiScheme::Racks(&setting.topology);
        let mut nearest = path;
        nearest.reverse();
        let plan = repair_all(&stripe, &together, &nearest, racks, slice).unwrap();
        prop_assert_eq!(check(&plan, &setting.code), Ok(()));
        prop_assert_eq!(crossing(plan), bound(lost.len()));
    }

    #[test]
    fn the_cyclic_version_spreads_the_last_mile(setting in any_setting(), loss in any::<usize>()) {
        let lost = [ChunkIndex::new(loss % setting.geometry.n())];
        let stripe = setting.stripe(&lost);
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let (k, chunk_bytes) = (setting.geometry.k() as u64, setting.geometry.chunk_bytes());
        prop_assume!(is_scalar_mds(&setting) && k > 2);
        let requestor = setting.spare();
        let plan = repair(&stripe, lost[0], requestor, &helpers, Scheme::Cyclic, 1).unwrap();
        let links = Cost::of(&plan, &setting.topology).links;
        prop_assert_eq!(links.iter().map(|link| link.bytes).sum::<u64>(), k * chunk_bytes);
        // Slices of one byte, dealt out as evenly as they go.
        let last_mile = links.iter().filter(|link| link.to == requestor);
        prop_assert_eq!(last_mile.clone().count() as u64, chunk_bytes.min(k - 1));
        let most = chunk_bytes.div_ceil(k - 1);
        prop_assert!(last_mile.clone().all(|link| link.bytes <= most));
    }
}

/// Checks the cost of a repair of data chunk 1, in chunks: read by all nodes, sent by all, and received by the
/// requestor.
#[track_caller]
fn check_cost(code: &str, scheme: Scheme, expected: (f64, f64, f64)) {
    let code: Code = code.parse().expect("a code of its family");
    let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), 1 << 10).expect("rows");
    let topology = Topology::uniform(code.n() as u32 + 1, 1);
    let placement: Vec<NodeId> = (0..code.n() as u32).map(NodeId).collect();
    let stripe = Stripe {
        id: StripeId(1),
        code: &code,
        geometry,
        placement: &placement,
        lost: &[ChunkIndex(1)],
    };
    let requestor = NodeId(code.n() as u32);
    let helpers: Vec<ChunkIndex> = stripe.available().collect();
    let plan = repair(&stripe, ChunkIndex(1), requestor, &helpers, scheme, 64).expect("a plan");
    check(&plan, &code).expect("a plan that checks");
    let cost = Cost::of(&plan, &topology);
    let chunks = |bytes: u64| bytes as f64 / geometry.chunk_bytes() as f64;
    let received = cost.links.iter().filter(|link| link.to == requestor);
    let received = chunks(received.map(|link| link.bytes).sum());
    let sent = chunks(cost.links.iter().map(|link| link.bytes).sum());
    assert_eq!((chunks(cost.read_bytes), sent, received), expected);
}

/// `ECPipe` section 6.1 combines pipelining with codes that repair from less than k chunks: what is
/// read is what the code saves, and what the requestor receives is one chunk all the same.
#[test]
fn pipelining_keeps_what_repair_friendly_codes_save() {
    check_cost("rs(12,4)", Scheme::Conventional, (12.0, 12.0, 12.0));
    check_cost("rs(12,4)", Scheme::Pipeline, (12.0, 12.0, 1.0));
    check_cost("lrc(12,2,2)", Scheme::Conventional, (6.0, 6.0, 6.0));
    check_cost("lrc(12,2,2)", Scheme::Pipeline, (6.0, 6.0, 1.0));
    check_cost("lrc(12,2,2)", Scheme::Ppr, (6.0, 6.0, 3.0));
    check_cost("rotated(12,4,4)", Scheme::Conventional, (7.5, 7.5, 7.5));
    check_cost("rotated(12,4,4)", Scheme::Pipeline, (7.5, 12.0, 1.0));
    check_cost("rotated(12,4,4)", Scheme::Ppr, (7.5, 12.0, 4.0));
    check_cost("rotated(12,4,4)", Scheme::Cyclic, (7.5, 12.0, 1.0));
}

/// Dealt out, the repair of f chunks of an MDS code takes 1 + (f - 1) / k passages of a chunk where a chain
/// takes f and a dedicated requestor k.
#[test]
fn dealt_repairs_of_several_chunks_hold_no_port_up() {
    let code: Code = "rs(10,4)".parse().expect("a code of its family");
    let slice = 1024;
    let geometry = Geometry::new(10, 4, 1, 100 * slice).expect("rows");
    let topology = Topology::uniform(18, 1);
    let placement: Vec<NodeId> = (0..14).map(NodeId).collect();
    // In tenths of a passage.
    for (f, dealt) in [(1, 10), (2, 11), (3, 12), (4, 13)] {
        let lost: Vec<ChunkIndex> = (0..f).map(ChunkIndex::new).collect();
        let targets: Vec<_> = lost.iter().copied().zip((14..).map(NodeId)).collect();
        let stripe = Stripe {
            id: StripeId(1),
            code: &code,
            geometry,
            placement: &placement,
            lost: &lost,
        };
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let passages = |scheme| {
            let plan = repair_all(&stripe, &targets, &helpers, scheme, slice).expect("a plan");
            check(&plan, &code).expect("a plan that checks");
            10 * busiest_port(&plan, &topology) / geometry.chunk_bytes()
        };
        let found = [
            MultiScheme::Dedicated,
            MultiScheme::Pipeline,
            MultiScheme::Dealt,
        ]
        .map(passages);
        assert_eq!(found, [100, 10 * f as u64, dealt], "f = {f}");
    }
}
