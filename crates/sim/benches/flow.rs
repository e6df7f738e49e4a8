//! Events that the model of links gets through in a second.
//!
//! First the links alone: so many flows between random nodes share 20 racks of 20, and whenever one ends
//! another begins. Then the setting of EAR's simulations with its planners, whose plans take longer than
//! their flows where each flow is one event: flows that share links fairly, and flows that take turns, by
//! the block and by slots of 1 MiB.
//!
//! `cargo bench -p gabion-sim --bench flow -- --quick` runs a tenth.

use gabion_layout::{NodeId, Topology};
use gabion_planner::placement::{ParityPlaces, RackLimit};
use gabion_sim::flow::{
    Engine, Fabric, Flow, Layout, LinkNumber, Rates, Scenario, Sharing, simulate,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
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
const NODES: u32 = 400;

/// Flows that are drawn before the clock runs.
struct Traffic {
    fabric: Fabric,
    flows: Vec<(u64, Vec<LinkNumber>)>,
}

impl Traffic {
    fn new(flow_count: usize) -> Self {
        let rates = Rates {
            node_bytes_per_s: 125e6,
            rack_bytes_per_s: 125e6,
            disk_bytes_per_s: None,
        };
        let fabric = Fabric::new(&Topology::uniform(20, NODES / 20), rates);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let flows = (0..flow_count).map(|_| {
            let (from, to) = (rng.random_range(0..NODES), rng.random_range(0..NODES - 1));
            let to = if to < from { to } else { to + 1 };
            let bytes = rng.random_range(MIB..128 * MIB);
            (bytes, fabric.path(NodeId(from), NodeId(to)))
        });
        let flows = flows.collect();
        Self { fabric, flows }
    }

    /// Events in a second while so many flows are under way.
    fn events_per_s(&self, sharing: Sharing, at_once: usize) -> f64 {
        let mut engine = Engine::new(&self.fabric, sharing);
        let mut flows = self
            .flows
            .iter()
            .map(|(bytes, path)| Flow::new(*bytes, path.clone()));
        let start = Instant::now();
        for flow in flows.by_ref().take(at_once) {
            engine.start(flow, 0);
        }
        while engine.next().is_some() {
            if let Some(flow) = flows.next() {
                engine.start(flow, 0);
            }
        }
        engine.event_count() as f64 / start.elapsed().as_secs_f64()
    }
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let traffic = Traffic::new(if is_quick { 30_000 } else { 300_000 });
    for (name, sharing) in &SHARINGS[..2] {
        for at_once in [20, 40, 100, 400] {
            let millions = traffic.events_per_s(*sharing, at_once) / 1e6;
            println!("{name:16} {at_once:4} flows at once {millions:17.3} million/s");
        }
    }
    let layouts = [
        ("RR", Layout::Random(RackLimit::Ignored)),
        ("EAR", Layout::EncodingAware(ParityPlaces::Anywhere)),
    ];
    for (sharing_name, sharing) in SHARINGS {
        for (layout_name, layout) in layouts {
            let mut scenario = Scenario::ear(layout, if is_quick { 5 } else { 50 });
            scenario.settings.sharing = sharing;
            let start = Instant::now();
            let outcome = simulate(&scenario, 1).expect("the scenario fits");
            let seconds = start.elapsed().as_secs_f64();
            let rate = outcome.event_count as f64 / seconds / 1e6;
            println!(
                "{sharing_name:16} {layout_name:4} {:9} events {seconds:7.3} s {rate:7.3} million/s",
                outcome.event_count
            );
        }
    }
}
