//! Events that the model of links gets through in a second, and rates that it finds anew for them.
//!
//! First the links alone: a given number of flows between random nodes share 20 racks of 20, and whenever one ends
//! another begins. Then the transfers of 20 encoders, each in a rack of its own, that fetch 12 blocks of 64 MiB from
//! other racks and send 4 there, one after another, as `EAR-F13a` has them under random replication and `k` = 12.
//! Last the setting of EAR's simulations with its planners, whose plans take longer than their flows where
//! each flow is one event: flows that share links fairly, and flows that take turns, by
//! the block and by slots of 1 MiB.
//!
//! `cargo bench -p gabion-lab --bench flow -- --quick` runs a tenth.

use gabion_lab::flow::{
    Engine, Fabric, Flow, Layout, LinkNumber, Rates, Scenario, Sharing, simulate,
};
use gabion_layout::{NodeId, Topology};
use gabion_planner::placement::{ParityPlaces, RackLimit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::time::Instant;

const MIB: u64 = 1 << 20;
const SHARINGS: [(&str, Sharing); 3] = [
    ("max-min", Sharing::MaxMin),
    (
        "slots of 64 MiB",
        Sharing::Slotted {
            slot_bytes: 64 * MIB,
        },
    ),
    ("slots of 1 MiB", Sharing::Slotted { slot_bytes: MIB }),
];
const RACKS: u32 = 20;
const NODES: u32 = 400;

/// Flows that are drawn before the clock runs, each with the number of the chain that it is in.
struct Traffic {
    fabric: Fabric,
    flows: Vec<(u64, u64, Vec<LinkNumber>)>,
}

impl Traffic {
    fn new(flows: impl Fn(&mut ChaCha8Rng, u64) -> (u64, u64, NodeId, NodeId), count: u64) -> Self {
        let rates = Rates {
            node_bytes_per_s: 125e6,
            rack_bytes_per_s: 125e6,
            disk_bytes_per_s: None,
        };
        let fabric = Fabric::new(&Topology::uniform(RACKS, NODES / RACKS), rates);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let flows = (0..count).map(|number| {
            let (chain, bytes, from, to) = flows(&mut rng, number);
            (chain, bytes, fabric.path(from, to))
        });
        let flows = flows.collect();
        Self { fabric, flows }
    }

    /// Between any two nodes, in as many chains.
    fn random(chains: u64, count: u64) -> Self {
        let flow = |rng: &mut ChaCha8Rng, number| {
            let (from, to) = (rng.random_range(0..NODES), rng.random_range(0..NODES - 1));
            let to = if to < from { to } else { to + 1 };
            let bytes = rng.random_range(MIB..128 * MIB);
            (number % chains, bytes, NodeId(from), NodeId(to))
        };
        Self::new(flow, count)
    }

    /// Of encoders, one in each rack.
    fn of_encoders(count: u64) -> Self {
        let flow = |rng: &mut ChaCha8Rng, number| {
            let chain = number % u64::from(RACKS);
            let encoder = NodeId(chain as u32 * (NODES / RACKS));
            let racks_on = rng.random_range(1..RACKS) * (NODES / RACKS);
            let other = encoder.0 + racks_on + rng.random_range(0..NODES / RACKS);
            let other = NodeId(other % NODES);
            let is_fetched = number / u64::from(RACKS) % 16 < 12;
            let ends = [(encoder, other), (other, encoder)][usize::from(is_fetched)];
            (chain, 64 * MIB, ends.0, ends.1)
        };
        Self::new(flow, count)
    }

    /// Lets each chain's flows follow each other; prints events and changes of rates in a second.
    fn run(&self, name: &str, sharing: Sharing) {
        let mut chains: Vec<VecDeque<Flow>> = Vec::new();
        for (chain, bytes, path) in &self.flows {
            chains.resize_with(chains.len().max(*chain as usize + 1), VecDeque::new);
            chains[*chain as usize].push_back(Flow::new(*bytes, path.iter().copied()));
        }
        let mut engine = Engine::new(&self.fabric, sharing);
        let start = Instant::now();
        for (chain, flows) in (0..).zip(&mut chains) {
            engine.start(flows.pop_front().expect("a chain has flows"), chain);
        }
        while let Some((_, chain)) = engine.next() {
            if let Some(flow) = chains[chain as usize].pop_front() {
                engine.start(flow, chain);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let millions = |count: u64| count as f64 / seconds / 1e6;
        println!(
            "{name} {:7.3} million/s, rates {:7.3} million/s, {:6.2} an event",
            millions(engine.event_count()),
            millions(engine.rate_change_count()),
            engine.rate_change_count() as f64 / engine.event_count() as f64
        );
    }
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let flow_count = if is_quick { 30_000 } else { 300_000 };
    for (name, sharing) in &SHARINGS[..2] {
        for at_once in [20, 40, 100, 400] {
            let name = format!("{name:16} {at_once:4} flows at once");
            Traffic::random(at_once, flow_count).run(&name, *sharing);
        }
        let name = format!("{name:16} 20 encoders, k = 12");
        Traffic::of_encoders(flow_count).run(&name, *sharing);
    }
    let layouts = [
        ("RR", Layout::Random(RackLimit::Ignored)),
        ("EAR", Layout::EncodingAware(ParityPlaces::Anywhere)),
    ];
    for (sharing_name, sharing) in SHARINGS {
        for (layout_name, layout) in layouts {
            for data_count in [10, 12] {
                let mut scenario = Scenario::ear(layout, if is_quick { 5 } else { 50 });
                scenario.data_count = data_count;
                scenario.settings.sharing = sharing;
                let start = Instant::now();
                let outcome = simulate(&scenario, 1).expect("the scenario fits");
                let seconds = start.elapsed().as_secs_f64();
                let millions = outcome.event_count as f64 / seconds / 1e6;
                println!(
                    "{sharing_name:16} {layout_name:4} k = {data_count} {:9} events {seconds:7.3} s \
                     {millions:7.3} million/s",
                    outcome.event_count
                );
            }
        }
    }
}
