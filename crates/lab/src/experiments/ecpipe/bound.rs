//! How long the links of a testbed need for the bytes of a trial: what no schedule of the same plans can
//! beat, printed beside what was measured.

use super::{BenchLinks, RepairBench, Trial};
use gabion_layout::Topology;
use gabion_plan::{Cost, Plan, StepOrder};
use std::collections::BTreeMap;

/// Something with a rate of its own: a direction of a node or rack, or a pair of nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Port {
    IntoNode(u32),
    OutOfNode(u32),
    /// Both directions of a node that does one thing at a time.
    Node(u32),
    IntoRack(u32),
    OutOfRack(u32),
    Pair(u32, u32),
}

/// Bytes that ports carry, and their rates.
#[derive(Default)]
struct Ports {
    loads: BTreeMap<Port, (u64, u64)>,
}

impl Ports {
    /// A rate of 0 is no limit.
    fn add(&mut self, port: Port, bytes: u64, bytes_per_s: u64) {
        if bytes_per_s > 0 {
            self.loads.entry(port).or_insert((0, bytes_per_s)).0 += bytes;
        }
    }

    /// Seconds that the busiest needs.
    fn busiest_s(&self) -> f64 {
        let seconds = |&(bytes, rate): &(u64, u64)| bytes as f64 / rate as f64;
        self.loads.values().map(seconds).fold(0.0, f64::max)
    }
}

impl RepairBench {
    /// Seconds that the busiest node, uplink or pair of nodes needs for all that these plans of a trial
    /// send, when everything else is for nothing.
    pub fn links_s(&self, trial: &Trial, plans: &[(usize, Plan)], topology: &Topology) -> f64 {
        let mut ports = Ports::default();
        let links = plans
            .iter()
            .flat_map(|(_, plan)| Cost::of(plan, topology).links);
        for link in links {
            let (from, to, bytes) = (link.from.0, link.to.0, link.bytes);
            let [out, into] = match trial.order {
                StepOrder::Streamed => [Port::OutOfNode(from), Port::IntoNode(to)],
                StepOrder::InTurn => [Port::Node(from), Port::Node(to)],
            };
            for (port, node) in [(out, from), (into, to)] {
                ports.add(port, bytes, self.links.node_bytes_per_s(node));
            }
            match &self.links {
                BenchLinks::Racks {
                    rack_bytes_per_s, ..
                } => {
                    let racks = [link.from, link.to].map(|node| topology.rack_of(node));
                    if let [Some(out), Some(into)] = racks
                        && out != into
                    {
                        ports.add(Port::OutOfRack(out.0), bytes, *rack_bytes_per_s);
                        ports.add(Port::IntoRack(into.0), bytes, *rack_bytes_per_s);
                    }
                }
                BenchLinks::Pairs(rows) => {
                    let rate = rows[from as usize][to as usize];
                    ports.add(Port::Pair(from, to), bytes, rate);
                }
            }
        }
        ports.busiest_s()
    }
}

impl BenchLinks {
    fn node_bytes_per_s(&self, node: u32) -> u64 {
        match self {
            Self::Racks {
                node_bytes_per_s, ..
            } => *node_bytes_per_s,
            Self::Pairs(rows) => rows[node as usize][node as usize],
        }
    }
}
