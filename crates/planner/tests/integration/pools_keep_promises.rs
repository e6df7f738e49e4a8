//! The choice for a promise fits the topology and keeps the promise, tried failure by failure.

use gabion_codec::Code;
use gabion_layout::{ChunkIndex, NodeId, NodePlace, RackId, Survive, Topology, UpdateScheme};
use gabion_planner::pool::{PoolCost, choose_code, chunks_per_rack, fit};
use gabion_planner::{PlanError, placement, update};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// A topology with one rack for each number of nodes.
fn racks(sizes: &[u32]) -> Topology {
    let places = sizes.iter().enumerate().flat_map(|(rack, &size)| {
        (0..size).map(move |node| NodePlace {
            node: NodeId(rack as u32 * 100 + node),
            rack: RackId(rack as u32),
        })
    });
    Topology::new(places).expect("ids are distinct below 100 nodes a rack")
}

#[track_caller]
fn chooses(survive: &str, sizes: &[u32], code: &str) {
    let topology = racks(sizes);
    let survive = survive.parse().expect("a promise");
    let chosen = choose_code(survive, &topology).expect("a code for the promise");
    assert_eq!(chosen.to_string(), code, "{survive} on racks of {sizes:?}");
    assert!(fit(&chosen, survive, &topology).is_ok());
}

#[track_caller]
fn refuses(survive: &str, sizes: &[u32], words: &str) {
    let survive = survive.parse().expect("a promise");
    let error = choose_code(survive, &racks(sizes)).expect_err("no code keeps it");
    assert!(matches!(error, PlanError::Impossible { .. }), "{error}");
    assert_eq!(error.to_string(), words);
}

#[test]
fn racks_that_may_fail_set_the_shape() {
    chooses("1-rack", &[4, 4, 4], "rs(6,3)");
    chooses("1-rack", &[4; 10], "rs(12,3)");
    chooses("1-rack", &[4, 4], "rs(3,3)");
    chooses("2-racks", &[4; 5], "rs(6,4)");
}

#[test]
fn spare_nodes_go_before_parity_and_share_before_both() {
    chooses("1-rack", &[3, 3, 3], "rs(4,2)");
    chooses("1-rack", &[1, 1, 1], "rs(2,1)");
    chooses("1-rack", &[4, 4, 1], "rs(2,1)");
    chooses("1-rack", &[5, 1], "rs(1,1)");
}

#[test]
fn nodes_that_may_fail_set_the_parity() {
    chooses("2-nodes", &[4, 4, 4], "rs(9,2)");
    chooses("1-node", &[40], "rs(12,1)");
    chooses("1-node", &[2], "rs(1,1)");
    chooses("3-nodes", &[5], "rs(1,3)");
    chooses("250-nodes", &[90; 3], "rs(5,250)");
}

#[test]
fn the_impossible_is_refused_in_plain_words() {
    refuses(
        "1-rack",
        &[6],
        "no code survives 1-rack on 1 racks with 6 nodes; use more racks than may fail",
    );
    refuses(
        "3-nodes",
        &[1, 1, 1],
        "no code survives 3-nodes on 3 racks with 3 nodes; use more nodes than may fail",
    );
    refuses(
        "1-node",
        &[],
        "no code survives 1-node on 0 racks with 0 nodes; use more nodes than may fail",
    );
    for nothing in [Survive::Nodes(0), Survive::Racks(0)] {
        let error = choose_code(nothing, &racks(&[4, 4]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("at least one failure"), "{error}");
    }
}

#[test]
fn codes_that_cannot_keep_a_promise_are_refused() {
    let topology = racks(&[4, 4, 4]);
    let fits = |code: &str, survive: &str| {
        let code: Code = code.parse().unwrap();
        fit(&code, survive.parse().unwrap(), &topology)
    };
    assert_eq!(fits("rs(6,3)", "1-rack"), Ok(3));
    assert_eq!(
        fits("rs(6,1)", "1-rack"),
        Err(PlanError::NoRoom {
            chunks: 7,
            per_rack: 1,
            room: 3
        })
    );
    assert!(matches!(
        fits("rs(6,1)", "2-racks"),
        Err(PlanError::WeakCode { survived: 1, .. })
    ));
    assert!(matches!(
        fits("rs(6,2)", "3-nodes"),
        Err(PlanError::WeakCode { survived: 2, .. })
    ));
    assert!(matches!(
        fits("rs(11,2)", "2-nodes"),
        Err(PlanError::NoRoom { room: 12, .. })
    ));
    assert_eq!(
        fits("lrc(4,2,1)", "1-rack"),
        Err(PlanError::NoRoom {
            chunks: 7,
            per_rack: 2,
            room: 6
        })
    );
    let nothing = chunks_per_rack(&"rs(6,1)".parse().unwrap(), Survive::Racks(0));
    assert_eq!(nothing, Ok(7));
}

#[test]
fn costs_are_those_of_the_code() {
    let check = |code: &str, usable: f64, replicas: f64, writes: usize| {
        let cost = PoolCost::of(&code.parse().unwrap());
        assert!(
            (cost.usable_share - usable).abs() < 1e-12,
            "{code}: {cost:?}"
        );
        assert!(
            (cost.share_of_three_replicas - replicas).abs() < 1e-12,
            "{code}: {cost:?}"
        );
        assert_eq!(cost.chunk_writes_per_update, writes, "{code}");
    };
    check("rs(6,3)", 6.0 / 9.0, 0.5, 4);
    check("rep(3)", 1.0 / 3.0, 1.0, 3);
    check("lrc(6,2,2)", 0.6, 10.0 / 18.0, 4);
    check("rdp(4)", 4.0 / 6.0, 0.5, 3);
}

/// All ways to choose `count` of `0..of`.
fn choices(of: usize, count: usize) -> Vec<Vec<usize>> {
    let grow = |shorter: Vec<Vec<usize>>, _| {
        let extend = |chosen: Vec<usize>| {
            let from = chosen.last().map_or(0, |last| last + 1);
            (from..of).map(move |next| [chosen.as_slice(), &[next]].concat())
        };
        shorter.into_iter().flat_map(extend).collect()
    };
    (0..count).fold(vec![vec![]], grow)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_chosen_survives_every_declared_failure(
        sizes in proptest::collection::vec(1u32..5, 1..5), failures in 1u32..4,
        racks_fail in any::<bool>(), seed in any::<u64>(),
    ) {
        let topology = racks(&sizes);
        let survive = if racks_fail { Survive::Racks(failures) } else { Survive::Nodes(failures) };
        let (units, failures) = match survive {
            Survive::Racks(_) => (sizes.len(), failures as usize),
            Survive::Nodes(_) => (topology.nodes().len(), failures as usize),
        };
        let Ok(code) = choose_code(survive, &topology) else {
            prop_assert!(units <= failures, "{survive} is possible on racks of {sizes:?}");
            return Ok(());
        };
        let per_rack = fit(&code, survive, &topology);
        prop_assert!(per_rack.is_ok(), "{code} for {survive} on {sizes:?}: {per_rack:?}");
        let per_rack = per_rack.expect("asked above");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let nodes: Vec<NodePlace> = topology.nodes().collect();
        for (_, update) in UpdateScheme::NAMES {
            let counts = (code.k(), code.m());
            let placed = update::scheme(update).place(&topology, counts, per_rack, &mut rng);
            prop_assert!(placed.is_ok(), "{code} on {sizes:?}: {placed:?}");
            let placed = placed.expect("asked above");
            for failed in choices(units, failures) {
                let is_up = |node: NodeId| match survive {
                    Survive::Racks(_) => !failed.contains(&(node.0 as usize / 100)),
                    Survive::Nodes(_) => failed.iter().all(|&at| nodes[at].node != node),
                };
                let is_left = |&chunk: &usize| is_up(placed[chunk]);
                let alive: Vec<usize> = (0..code.n()).filter(is_left).collect();
                let holds = code.is_sufficient(&alive);
                prop_assert!(holds, "{code} on {placed:?} without {failed:?}");
            }
        }
    }

    #[test]
    fn rack_by_rack_keeps_the_limit_and_brings_parity_together(
        sizes in proptest::collection::vec(1u32..6, 2..6), per_rack in 1usize..5,
        parity in any::<usize>(), seed in any::<u64>(),
    ) {
        let topology = racks(&sizes);
        let rooms: Vec<usize> = sizes.iter().map(|&size| per_rack.min(size as usize)).collect();
        let n: usize = rooms.iter().sum();
        let m = 1 + parity % (n - 1);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let placed = placement::rack_by_rack(&topology, n - m, m, per_rack, &mut rng);
        prop_assert!(placed.is_ok(), "all room there is: {placed:?}");
        let placed = placed.expect("asked above");
        let mut in_racks = vec![0; sizes.len()];
        for node in &placed {
            in_racks[node.0 as usize / 100] += 1;
        }
        prop_assert_eq!(&in_racks, &rooms, "every node once");
        let mut parity_racks: Vec<u32> = placed[n - m..].iter().map(|node| node.0 / 100).collect();
        parity_racks.dedup();
        let mut largest = rooms;
        largest.sort_unstable_by_key(|&room| std::cmp::Reverse(room));
        let mut held = 0;
        let fits = |room: &usize| {
            held += room;
            held >= m
        };
        let fewest = 1 + largest.iter().position(fits).expect("n is more than m");
        prop_assert_eq!(parity_racks.len(), fewest);
        let more = placement::rack_by_rack(&topology, n - m + 1, m, per_rack, &mut rng);
        prop_assert!(more.is_err(), "one chunk more than room");
    }

    #[test]
    fn replacements_keep_the_rack_limit(
        sizes in proptest::collection::vec(1u32..6, 2..6), per_rack in 1usize..4,
        chunk in any::<usize>(), down in any::<u64>(), seed in any::<u64>(),
    ) {
        let topology = racks(&sizes);
        let chunks: usize = sizes.iter().map(|&size| per_rack.min(size as usize)).sum::<usize>() - 1;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let placed = placement::random(&topology, chunks, per_rack, &mut rng);
        prop_assert!(placed.is_ok());
        let mut placed = placed.expect("asked above");
        let chunk = ChunkIndex::new(chunk % chunks);
        let candidates: Vec<NodeId> = topology
            .nodes()
            .map(|place| place.node)
            .filter(|node| *node != placed[chunk.at()] && down >> (node.0 % 64) & 1 == 0)
            .collect();
        let in_rack = |placed: &[NodeId], node: NodeId| {
            let others = placed.iter().enumerate().filter(|(at, _)| *at != chunk.at());
            others
                .filter(|(_, other)| topology.rack_of(**other) == topology.rack_of(node))
                .count()
        };
        let chosen =
            placement::replacement(&topology, &candidates, &placed, chunk, per_rack, &mut rng);
        if let Ok(node) = chosen {
            prop_assert!(candidates.contains(&node) && !placed.contains(&node));
            prop_assert!(in_rack(&placed, node) < per_rack);
            placed[chunk.at()] = node;
        } else {
            let no_room = |&node: &NodeId| placed.contains(&node) || in_rack(&placed, node) >= per_rack;
            prop_assert!(candidates.iter().all(no_room));
        }
    }
}

#[test]
fn chunks_on_failed_nodes_count_in_their_racks() {
    let topology = racks(&[2, 3]);
    let placement = [0, 1, 100].map(NodeId);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut replace = |candidates: &[NodeId], per_rack| {
        placement::replacement(
            &topology,
            candidates,
            &placement,
            ChunkIndex(2),
            per_rack,
            &mut rng,
        )
    };
    let no_room = |per_rack| PlanError::NoRoom {
        chunks: 3,
        per_rack,
        room: 2,
    };
    assert_eq!(replace(&[NodeId(102)], 1), Ok(NodeId(102)));
    assert_eq!(replace(&[], 3), Err(no_room(3)));
    assert_eq!(
        replace(&[NodeId(0)], 3),
        Err(no_room(3)),
        "it holds another chunk"
    );
    assert_eq!(
        replace(&[NodeId(7), NodeId::CLIENT], 3),
        Err(no_room(3)),
        "they are in no rack that is known"
    );
}
