//! The model of links against sums that can be done by hand, and against what plans cost.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use gabion_codec::Code;
use gabion_lab::flow::{
    EncoderSeat, Engine, Execution, Fabric, Flow, Layout, Network, Rates, Scenario, Script,
    Settings, Sharing, Work, simulate,
};
use gabion_layout::{Geometry, NodeId, StripeId, Topology};
use gabion_plan::Cost;
use gabion_planner::placement::{
    ParityPlaces, RackLimit, RackTable, ReplicaSpread, random_replication, random_replication_end,
};
use gabion_planner::{Stripe, encode};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const MB: u64 = 1_000_000;
const EXECUTIONS: [Execution; 3] = [Execution::Serial, Execution::Staged, Execution::Streamed];
const SHARINGS: [Sharing; 2] = [Sharing::MaxMin, Sharing::Slotted { slot_bytes: MB }];

/// 100 MB/s everywhere.
const RATES: Rates = Rates {
    node_bytes_per_s: 100e6,
    rack_bytes_per_s: 100e6,
    disk_bytes_per_s: None,
};

fn scenario(layout: Layout) -> Scenario {
    Scenario {
        rack_count: 8,
        nodes_per_rack: 6,
        rates: RATES,
        coding_bytes_per_s: None,
        data_count: 4,
        parity_count: 2,
        per_rack: 1,
        target_rack_count: None,
        replica_count: 3,
        replica_spread: ReplicaSpread::FreshRacks,
        chunk_bytes: 10 * MB,
        layout,
        encoder_count: 5,
        stripes_per_encoder: 4,
        writes_per_s: 2.0,
        background_per_s: 2.0,
        background_mean_bytes: 10e6,
        background_cross_share: 0.5,
        settings: Settings {
            sharing: Sharing::MaxMin,
            encoder_seat: EncoderSeat::Drawn,
            is_core_encoder_nearest: false,
            is_writer_at_first_replica: true,
            write: Execution::Serial,
            encoding: Execution::Serial,
        },
    }
}

const RANDOM: Layout = Layout::Random(RackLimit::Ignored);
const AWARE: Layout = Layout::EncodingAware(ParityPlaces::Anywhere);

#[test]
fn equal_seeds_give_equal_outcomes() {
    for sharing in SHARINGS {
        for layout in [RANDOM, AWARE] {
            let mut scenario = scenario(layout);
            scenario.settings.sharing = sharing;
            let outcome = simulate(&scenario, 3).unwrap();
            assert_eq!(simulate(&scenario, 3).unwrap(), outcome);
            assert_ne!(simulate(&scenario, 4).unwrap(), outcome);
            assert_eq!(outcome.encoded_bytes, 5 * 4 * 4 * 10 * MB);
            assert!(outcome.write_count > 0);
            let replicas_cross = outcome.write_count * 10 * MB;
            assert_eq!(
                outcome.write_cross_rack_bytes, replicas_cross,
                "one of three replicas"
            );
        }
    }
}

/// Without other traffic, an encoding in a core rack takes the time of its transfers, and none of its data
/// crosses racks.
#[test]
fn a_lone_encoder_takes_the_time_of_its_transfers() {
    for sharing in SHARINGS {
        let mut scenario = Scenario {
            encoder_count: 1,
            stripes_per_encoder: 1,
            writes_per_s: 0.0,
            background_per_s: 0.0,
            per_rack: 2,
            ..scenario(Layout::EncodingAware(ParityPlaces::CoreFirst))
        };
        scenario.settings.sharing = sharing;
        scenario.settings.is_core_encoder_nearest = true;
        for seed in 0..20 {
            let outcome = simulate(&scenario, seed).unwrap();
            let transfer_ns = 100_000_000;
            let transfers = outcome.encode_ns / transfer_ns;
            assert!(outcome.encode_ns % transfer_ns < 100, "{outcome:?}");
            assert!(
                transfers <= 5,
                "4 data and 2 parity chunks, and one of them is there already"
            );
            assert!(outcome.encode_cross_rack_bytes <= 2 * 10 * MB);
        }
    }
}

/// Without other traffic, the time of parity is added to that: k products for each of its bytes.
#[test]
fn a_lone_encoder_takes_the_time_of_its_products_too() {
    let without = Scenario {
        encoder_count: 1,
        stripes_per_encoder: 3,
        writes_per_s: 0.0,
        background_per_s: 0.0,
        ..scenario(AWARE)
    };
    let with = Scenario {
        coding_bytes_per_s: Some(80e6),
        ..without.clone()
    };
    for sharing in SHARINGS {
        let encode_ns = [&without, &with].map(|scenario| {
            let mut scenario = scenario.clone();
            scenario.settings.sharing = sharing;
            simulate(&scenario, 5).unwrap().encode_ns
        });
        // 3 stripes of 2 parity chunks of 10 MB, each the sum of 4 products, 80 MB of them a second.
        let coding_ns = encode_ns[1] - encode_ns[0];
        assert!(
            coding_ns.abs_diff(3_000_000_000) < 1000,
            "{sharing:?}: {coding_ns}"
        );
    }
}

#[test]
fn encoding_aware_replication_encodes_faster_and_sends_less() {
    let outcomes = [RANDOM, AWARE].map(|layout| {
        let scenario = scenario(layout);
        let outcomes = (0..8).map(|seed| simulate(&scenario, seed).unwrap());
        outcomes.collect::<Vec<_>>()
    });
    let ns = |at: usize| {
        outcomes[at]
            .iter()
            .map(|outcome| outcome.encode_ns)
            .sum::<u64>()
    };
    let crossing = |at: usize| {
        outcomes[at]
            .iter()
            .map(|o| o.encode_cross_rack_bytes)
            .sum::<u64>()
    };
    assert!(ns(0) > ns(1));
    assert!(crossing(0) > 2 * crossing(1));
    let parity_bytes = 8 * 5 * 4 * 2 * 10 * MB;
    assert!(crossing(1) <= parity_bytes, "only parity crosses");
}

/// The bytes that the model times are those that the plan costs, in each execution.
#[test]
fn scripts_send_what_their_plans_cost() {
    let topology = Topology::uniform(8, 6);
    let racks = RackTable::new(&topology);
    let fabric = Fabric::new(&topology, RATES);
    let code: Code = "rs(6,2)".parse().unwrap();
    let mut moved = 0;
    for seed in 0..50 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let replicas = (0..6)
            .map(|_| random_replication(&racks, 2, ReplicaSpread::FreshRacks, &mut rng).unwrap())
            .collect();
        let limit = RackLimit::Enforced;
        let end = random_replication_end(&racks, replicas, 2, 1, limit, &mut rng).unwrap();
        moved += end.relocated().count();
        let stripe = Stripe {
            id: StripeId(1),
            code: &code,
            geometry: Geometry::new(6, 2, 1, 1000).unwrap(),
            placement: &end.placement,
            lost: &[],
        };
        let plans = [
            encode::gather(&stripe, &end.replicas, NodeId(7), &topology, 1000).unwrap(),
            encode::chain(&stripe, &end.replicas, &topology, 1000).unwrap(),
        ];
        for plan in plans.map(|encoding| encoding.plan) {
            let cost = Cost::of(&plan, &topology);
            for execution in EXECUTIONS {
                let script = Script::of_plan(&plan, &fabric, execution);
                assert_eq!(script.cross_rack_bytes(&fabric), cost.cross_rack_bytes);
            }
        }
    }
    assert!(moved > 0, "some stripes relocate");
}

/// A chain that streams takes one transfer's time for each partial parity, and in stages as many as it
/// has nodes.
#[test]
fn streamed_chains_are_as_fast_as_their_busiest_link() {
    let topology = Topology::uniform(5, 1);
    let fabric = Fabric::new(&topology, RATES);
    let code: Code = "rs(3,1)".parse().unwrap();
    let stripe = Stripe {
        id: StripeId(1),
        code: &code,
        geometry: Geometry::new(3, 1, 1, 10 * MB).unwrap(),
        placement: &[0, 1, 2, 3].map(NodeId),
        lost: &[],
    };
    let replicas: Vec<Vec<NodeId>> = (0..3).map(|node| vec![NodeId(node)]).collect();
    let plan = encode::chain(&stripe, &replicas, &topology, MB)
        .unwrap()
        .plan;
    let times = EXECUTIONS.map(|execution| {
        let script = Script::of_plan(&plan, &fabric, execution);
        let mut engine = Engine::new(&fabric, Sharing::MaxMin);
        let mut left = script.waits.clone();
        let start = |engine: &mut Engine, flow: usize| {
            engine.start(script.flows[flow].clone(), flow as u64);
        };
        (0..left.len())
            .filter(|&flow| left[flow] == 0)
            .for_each(|flow| start(&mut engine, flow));
        while let Some((_, flow)) = engine.next() {
            for &follower in &script.followers[flow as usize] {
                left[follower as usize] -= 1;
                if left[follower as usize] == 0 {
                    start(&mut engine, follower as usize);
                }
            }
        }
        engine.now_ns()
    });
    assert_eq!(times, [300_000_000, 300_000_000, 100_000_000]);
}

/// A shared link is never idle while a flow waits for it, and flows wait for disks too.
#[test]
fn a_shared_link_carries_all_in_the_time_of_the_sum() {
    let topology = Topology::uniform(4, 1);
    let rates = Rates {
        disk_bytes_per_s: Some(50e6),
        ..RATES
    };
    let fabric = Fabric::new(&topology, rates);
    for sharing in SHARINGS {
        let mut engine = Engine::new(&fabric, sharing);
        for from in 1..4 {
            let flow = Flow::new(
                u64::from(from) * 10 * MB,
                fabric.path(NodeId(from), NodeId(0)),
            );
            engine.start(flow, 1);
        }
        while engine.next().is_some() {}
        assert_eq!(engine.now_ns(), 600_000_000, "{sharing:?}");
        engine.start(Flow::new(10 * MB, fabric.disk(NodeId(2))), 1);
        engine.set_timer(50_000_000, 2);
        assert_eq!(engine.next(), Some((650_000_000, 2)));
        assert_eq!(engine.next(), Some((800_000_000, 1)));
        assert_eq!(engine.next(), None);
        assert!(engine.event_count() >= 5);
    }
}

/// Streams that do not depend on each other go at their own rates: what moves to another rack holds up no
/// parity.
#[test]
fn streams_that_share_no_values_do_not_wait_for_each_other() {
    let topology = Topology::uniform(3, 2);
    let fabric = Fabric::new(&topology, RATES);
    let code: Code = "rs(2,1)".parse().unwrap();
    let stripe = Stripe {
        id: StripeId(1),
        code: &code,
        geometry: Geometry::new(2, 1, 1, 10 * MB).unwrap(),
        placement: &[5, 1, 2].map(NodeId),
        lost: &[],
    };
    // Node 0 encodes its own block and that of node 1; node 5 gets its chunk from node 4 beside it.
    let sources = [vec![NodeId(0), NodeId(4)], vec![NodeId(1)]];
    let plan = encode::convert(&stripe, &sources, NodeId(0), &topology, MB).unwrap();
    let script = Script::of_plan(&plan, &fabric, Execution::Streamed);
    let links_of = |paths: &[(u32, u32)]| {
        let links = paths
            .iter()
            .flat_map(|&(from, to)| fabric.path(NodeId(from), NodeId(to)));
        let mut links: Vec<_> = links.collect();
        links.sort();
        links
    };
    let flows: Vec<Vec<_>> = (script.flows.iter())
        .map(|flow| flow.shares.iter().map(|share| share.link).collect())
        .collect();
    assert_eq!(flows, [links_of(&[(4, 5)]), links_of(&[(1, 0), (0, 2)])]);
    assert_eq!(script.waits, [0, 0]);
}

/// Two conversions at a time, by hand: a second for each that has nothing to do with links, three chunks
/// into one node, and messages, which wait while another flow fills the link that they need.
#[test]
fn conversions_take_the_time_of_their_links_and_messages() {
    let topology = Topology::uniform(4, 2);
    let fabric = Fabric::new(&topology, RATES);
    let conversion = |encoder: u32| {
        let sender = NodeId(encoder + 1);
        let mut chunks = Flow::new(10 * MB, fabric.path(sender, NodeId(encoder)));
        for share in &mut chunks.shares {
            share.weight = 3.0;
        }
        Work::in_turn(vec![
            Work::Pause(1_000_000_000),
            Work::round(&[NodeId(encoder), sender]),
            Work::Move(Script::of(chunks)),
            Work::round(&[NodeId(encoder)]),
        ])
    };
    let conversions = Work::Group {
        works: vec![conversion(0), conversion(2), conversion(4)],
        at_once: 2,
    };
    let network = Network {
        fabric: &fabric,
        sharing: Sharing::MaxMin,
        queue_ns: 50_000_000,
    };
    let ended_ms = |beside: Option<Work>| -> Vec<u64> {
        let mut works = vec![conversions.clone()];
        works.extend(beside);
        let at_once = works.len();
        let done = network.carry_out(&Work::Group { works, at_once });
        let ended = done.parts[0].parts.iter();
        ended.map(|done| done.ended_ns / 1_000_000).collect()
    };
    assert_eq!(ended_ms(None), [1300, 1300, 2600]);
    // A client fills the link into node 0 throughout, and gets a quarter of it beside three chunks.
    let client = Flow::new(1000 * MB, fabric.path(NodeId::CLIENT, NodeId(0)));
    let client = Work::Move(Script::of(client));
    assert_eq!(ended_ms(Some(client)), [1500, 1300, 2600]);
}
