//! The time that the links of a testbed need for the bytes of a trial: a lower bound for every
//! schedule of the same plans, printed beside the measurement.

use super::bench::{BenchLinks, RepairBench, Trial};
use gabion_layout::{NodeId, Topology};
use gabion_plan::{Cost, LinkBytes, Plan, StepOrder};
use gabion_planner::port::{Port, by_port};
use std::collections::BTreeMap;

impl RepairBench {
    /// Seconds that the busiest node, uplink or pair of nodes needs for all that these plans of a trial
    /// send, when everything else is for nothing. A node that does one thing at a time has one port for
    /// both directions.
    pub fn links_s(&self, trial: &Trial, plans: &[(usize, Plan)], topology: &Topology) -> f64 {
        let costs = plans.iter().map(|(_, plan)| Cost::of(plan, topology));
        let links: Vec<LinkBytes> = costs.flat_map(|cost| cost.links).collect();
        let ports = by_port(&links, topology);
        let of_port = |port: Port| ports.get(&port).copied().unwrap_or(0);
        let ports_busy_s = ports.iter().map(|(&port, &bytes)| {
            let bytes = match (trial.order, port) {
                (StepOrder::InTurn, Port::IntoNode(node)) => bytes + of_port(Port::OutOfNode(node)),
                _ => bytes,
            };
            seconds(bytes, self.links.port_bytes_per_s(port))
        });
        let mut pairs: BTreeMap<(NodeId, NodeId), u64> = BTreeMap::new();
        for link in &links {
            *pairs.entry((link.from, link.to)).or_default() += link.bytes;
        }
        let connections_busy_s = pairs.into_iter().map(|((from, to), bytes)| {
            let bytes_per_s = self.links.pair_bytes_per_s(from, to);
            seconds(bytes, bytes_per_s)
        });
        ports_busy_s.chain(connections_busy_s).fold(0.0, f64::max)
    }
}

/// A rate of 0 is no limit.
fn seconds(bytes: u64, bytes_per_s: u64) -> f64 {
    if bytes_per_s == 0 {
        0.0
    } else {
        bytes as f64 / bytes_per_s as f64
    }
}

impl BenchLinks {
    /// The rate of a port; 0 without a limit of its own.
    fn port_bytes_per_s(&self, port: Port) -> u64 {
        match (self, port) {
            (
                Self::Racks {
                    node_bytes_per_s, ..
                },
                Port::IntoNode(_) | Port::OutOfNode(_),
            ) => *node_bytes_per_s,
            (
                Self::Racks {
                    rack_bytes_per_s, ..
                },
                Port::IntoRack(_) | Port::OutOfRack(_),
            ) => *rack_bytes_per_s,
            (Self::Pairs(rows), Port::IntoNode(node) | Port::OutOfNode(node)) => {
                rows[node.0 as usize][node.0 as usize]
            }
            (Self::Pairs(_), Port::IntoRack(_) | Port::OutOfRack(_)) => 0,
        }
    }

    /// The rate from one node to another; 0 without a limit of its own.
    fn pair_bytes_per_s(&self, from: NodeId, to: NodeId) -> u64 {
        match self {
            Self::Racks { .. } => 0,
            Self::Pairs(rows) => rows[from.0 as usize][to.0 as usize],
        }
    }
}
