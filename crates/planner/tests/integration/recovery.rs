//! Full-node recovery as one schedule: every repair in it checks, it says when it ends, and it ends no
//! later than the greedy one (`ECPipe` section 3.3).

use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry, NodeId, StripeId, Topology};
use gabion_plan::{Cost, check};
use gabion_planner::repair::{
    Bandwidths, Job, Schedule, Scheme, balanced_recovery, greedy_recovery, repair,
};
use gabion_planner::{PlanError, Stripe, placement};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const MIB: u64 = 1 << 20;

/// 100 MB/s for a node, and for a rack as much as for two nodes.
const BANDWIDTHS: Bandwidths = Bandwidths {
    node_bytes_per_s: 100_000_000,
    rack_bytes_per_s: 200_000_000,
};

/// When the greedy and the balanced recovery of node 0 end, of `stripe_count` random stripes on 4
/// racks of 5 nodes.
#[track_caller]
fn finish_ns(code: &str, stripe_count: u64, seed: u64) -> (u64, u64) {
    let code: Code = code.parse().expect("a code of its family");
    let rows = code.sub_chunks();
    let geometry = Geometry::new(code.k(), code.m(), rows, MIB).expect("whole rows");
    let topology = Topology::uniform(4, 5);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let place = |_| placement::random(&topology, code.n(), code.n(), &mut rng).expect("room");
    let placements: Vec<Vec<NodeId>> = (0..stripe_count).map(place).collect();
    let failed = |placed: &Vec<NodeId>| placed.iter().position(|&node| node == NodeId(0));
    let hit = placements
        .iter()
        .filter_map(|placed| Some((placed, [ChunkIndex::new(failed(placed)?)])));
    let hit: Vec<_> = hit.collect();
    let free = |placed: &Vec<NodeId>| -> Vec<NodeId> {
        let others = (1..20).map(NodeId);
        others.filter(|node| !placed.contains(node)).collect()
    };
    let requestors: Vec<Vec<NodeId>> = hit.iter().map(|(placed, _)| free(placed)).collect();
    let jobs = hit.iter().zip(&requestors).zip(1..);
    let jobs = jobs.map(|(((placement, lost), requestors), id)| Job {
        stripe: Stripe {
            id: StripeId(id),
            code: &code,
            geometry,
            placement,
            lost,
        },
        lost: lost[0],
        requestors,
    });
    let jobs: Vec<Job<'_>> = jobs.collect();
    let ends = [greedy_recovery, balanced_recovery].map(|recovery| {
        let schedule = recovery(&jobs, &topology, BANDWIDTHS).expect("one loss is bearable");
        assert_eq!(recovery(&jobs, &topology, BANDWIDTHS), Ok(schedule.clone()));
        assert_eq!(schedule.finish_ns, by_plans(&jobs, &schedule, &topology));
        schedule.finish_ns
    });
    (ends[0], ends[1])
}

/// When the schedule's plans end by the busiest port, counted from their costs.
fn by_plans(jobs: &[Job<'_>], schedule: &Schedule, topology: &Topology) -> u64 {
    assert_eq!(jobs.len(), schedule.assignments.len());
    let mut cost = Cost::default();
    for (job, way) in jobs.iter().zip(&schedule.assignments) {
        assert!(job.requestors.contains(&way.requestor));
        let scheme = Scheme::Pipeline;
        let plan = repair(
            &job.stripe,
            job.lost,
            way.requestor,
            &way.path,
            scheme,
            4096,
        );
        let plan = plan.expect("the path is enough");
        check(&plan, job.stripe.code).expect("a plan that checks");
        cost.add(&Cost::of(&plan, topology));
    }
    let sum = |rate: u64, counts: &dyn Fn(NodeId, NodeId) -> bool| {
        let links = cost.links.iter().filter(|link| counts(link.from, link.to));
        links.map(|link| link.bytes).sum::<u64>() * 1_000_000_000 / rate
    };
    let nodes = topology.nodes().flat_map(|place| {
        let rate = BANDWIDTHS.node_bytes_per_s;
        let into = sum(rate, &|_, to| to == place.node);
        [into, sum(rate, &|from, _| from == place.node)]
    });
    let racks = topology.nodes_by_rack();
    let racks = racks.values().flat_map(|members| {
        let rate = BANDWIDTHS.rack_bytes_per_s;
        let is_in = |node| members.contains(&node);
        let into = sum(rate, &|from, to| !is_in(from) && is_in(to));
        [into, sum(rate, &|from, to| is_in(from) && !is_in(to))]
    });
    nodes.chain(racks).max().expect("there are nodes")
}

#[test]
fn balanced_recoveries_end_sooner_than_greedy_ones() {
    for seed in 0..4 {
        for code in ["rs(6,3)", "rs(9,3)", "lrc(6,2,2)", "rdp(4)"] {
            let (greedy, balanced) = finish_ns(code, 60, seed);
            println!("{code}: greedy {greedy} ns, balanced {balanced} ns");
            assert!(
                balanced < greedy,
                "{code}, seed {seed}: {balanced} >= {greedy}"
            );
        }
    }
}

#[test]
fn nothing_lost_takes_no_time() {
    let nothing = balanced_recovery(&[], &Topology::uniform(2, 2), BANDWIDTHS).unwrap();
    assert_eq!((nothing.finish_ns, nothing.assignments.len()), (0, 0));
}

#[test]
fn a_chunk_needs_somewhere_to_go() {
    let code: Code = "rs(2,1)".parse().unwrap();
    let placement = [NodeId(0), NodeId(1), NodeId(2)];
    let job = Job {
        stripe: Stripe {
            id: StripeId(1),
            code: &code,
            geometry: Geometry::new(2, 1, 1, MIB).unwrap(),
            placement: &placement,
            lost: &[ChunkIndex(1)],
        },
        lost: ChunkIndex(1),
        requestors: &[],
    };
    let found = balanced_recovery(&[job], &Topology::uniform(3, 1), BANDWIDTHS);
    assert_eq!(found, Err(PlanError::NoRequestor(ChunkIndex(1))));
}
