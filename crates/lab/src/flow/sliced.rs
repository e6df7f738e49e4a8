//! A plan as its slices, with the flow control of `exec`: a slice is forwarded when it has arrived completely and its
//! receiver has room for it. A slow stream delays others only through full rings, so dependent streams need not have
//! the same rate, as in [`super::Execution::Streamed`].

use super::fabric::Fabric;
use super::script::{Connection, Script, ends, flow, used_by};
use gabion_exec::RING_SLICES;
use gabion_plan::{Plan, Step};
use std::collections::BTreeMap;

/// By step, the last flow of it that must have ended. A step's flows follow each other, so its earlier ones
/// have ended by then.
type Needs = BTreeMap<usize, u32>;

/// The plan's flows, a flow for each slice of each step that uses links or disks. A connection carries one
/// slice at a time.
pub(super) fn script(plan: &Plan, fabric: &Fabric) -> Script {
    let streams = plan.streams();
    let mut users = vec![Vec::new(); plan.steps.len()];
    for (at, step) in plan.steps.iter().enumerate() {
        for value in used_by(step) {
            users[value].push(at);
        }
    }
    let mut script = Script::default();
    // By step and slice, what must have ended before its value is there.
    let mut needs: Vec<Vec<Needs>> = vec![Vec::new(); plan.steps.len()];
    let slice_count = streams.iter().map(|stream| stream.count).max();
    for slice in 0..slice_count.unwrap_or(0) as usize {
        for (at, step) in plan.steps.iter().enumerate() {
            if slice as u64 >= streams[at].count {
                continue;
            }
            let mut before = Needs::new();
            for value in used_by(step) {
                join(&mut before, needs[value].get(slice));
            }
            // There is room for a slice when all have taken the one that was in its place.
            if let Some(taken) = slice.checked_sub(RING_SLICES as usize) {
                for &user in &users[at] {
                    join(&mut before, needs[user].get(taken));
                }
            }
            let flow = flow(step, streams[at].slice(slice as u64).length, fabric);
            if !flow.shares.is_empty() {
                let number = script.push(flow, &before.into_values().collect());
                script.connections.push(connection(step));
                before = Needs::from([(at, number)]);
            }
            needs[at].push(before);
        }
    }
    script
}

fn connection(step: &Step) -> Connection {
    let (from, to) = ends(step);
    Connection {
        from,
        to,
        client: 0,
    }
}

/// Adds what else must have ended.
fn join(before: &mut Needs, more: Option<&Needs>) {
    for (&step, &flow) in more.into_iter().flatten() {
        let last = before.entry(step).or_insert(flow);
        *last = flow.max(*last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Engine, Execution, Flow, Rates, Sharing, jobs::Jobs};
    use gabion_codec::Code;
    use gabion_layout::{Geometry, NodeId, StripeId, Topology};
    use gabion_planner::{PlanError, Stripe, encode};

    const MIB: u64 = 1 << 20;

    /// Tokens from here on are of flows without slices.
    const OTHERS: u64 = 1 << 40;

    /// A fabric of nodes, each in a rack of its own, with links of 1 MiB a second.
    fn fabric(nodes: u32) -> Fabric {
        let rates = Rates {
            node_bytes_per_s: MIB as f64,
            rack_bytes_per_s: MIB as f64,
            disk_bytes_per_s: None,
        };
        Fabric::new(&Topology::uniform(nodes, 1), rates)
    }

    /// The plan by which a block's replicas are written.
    fn write(
        bytes: u64,
        nodes: &[NodeId],
        plan: impl Fn(&Stripe<'_>) -> Result<Plan, PlanError>,
    ) -> Plan {
        let copies = Code::replication(nodes.len()).expect("a code");
        let geometry = Geometry::new(1, nodes.len() - 1, 1, bytes);
        let block = Stripe {
            id: StripeId(1),
            code: &copies,
            geometry: geometry.expect("a geometry"),
            placement: nodes,
            lost: &[],
        };
        plan(&block).expect("a plan")
    }

    /// A client writes a block to nodes 1 and 2 at once.
    fn write_of_two(bytes: u64) -> Plan {
        write(bytes, &[NodeId(1), NodeId(2)], |block| {
            encode::direct(block, NodeId::CLIENT, MIB / 8)
        })
    }

    /// The seconds that a plan takes.
    fn seconds(plan: &Plan, nodes: u32, execution: Execution) -> f64 {
        let fabric = fabric(nodes);
        let mut engine = Engine::new(&fabric, Sharing::MaxMin);
        let mut jobs = Jobs::default();
        jobs.begin(&mut engine, Script::of_plan(plan, &fabric, execution), ());
        while let Some((_, token)) = engine.next() {
            jobs.flow_ends(&mut engine, token);
        }
        engine.now_ns() as f64 / 1e9
    }

    /// A block that its replicas pass on takes a slice longer for each of them, not a block longer.
    #[test]
    fn a_chain_takes_a_block_and_a_slice_for_each_further_link() {
        let nodes: Vec<NodeId> = (0..4).map(NodeId).collect();
        let plan = write(4 * MIB, &nodes, |block| {
            encode::relay(block, nodes[0], MIB / 8)
        });
        let (sliced, staged) = (
            seconds(&plan, 4, Execution::Sliced),
            seconds(&plan, 4, Execution::Staged),
        );
        assert!((sliced - 4.25).abs() < 1e-6, "{sliced}");
        assert!((staged - 12.0).abs() < 1e-6, "{staged}");
    }

    /// Of two replicas that are written at once, one is behind a slow link.
    #[test]
    fn a_slow_node_holds_up_those_beyond_the_ring() {
        let plan = write_of_two(4 * MIB);
        let fabric = fabric(3);
        let script = Script::of_plan(&plan, &fabric, Execution::Sliced);
        assert_eq!(
            script.flows.len(),
            2 * 32,
            "a flow for each slice and replica"
        );
        let mut engine = Engine::new(&fabric, Sharing::MaxMin);
        // Three others are on the second node's link all the time.
        for other in 0..3 {
            let path = fabric.path(NodeId::CLIENT, NodeId(2));
            engine.start(Flow::new(100 * MIB, path), OTHERS + other);
        }
        let mut jobs = Jobs::default();
        jobs.begin(&mut engine, script, ());
        let mut sent = Vec::new();
        while let Some((at_ns, token)) = engine.next() {
            if token < OTHERS {
                sent.push((token, at_ns as f64 / 1e9));
                jobs.flow_ends(&mut engine, token);
            }
        }
        let slices_by = |second: f64, replica: u64| {
            let by_then = sent.iter().filter(|&&(_, at)| at < second + 1e-6);
            by_then.filter(|(token, _)| token % 2 == replica).count()
        };
        // A slice takes an eighth of a second, and on the busy link half a second.
        assert_eq!((slices_by(1.0, 0), slices_by(1.0, 1)), (8, 2));
        assert_eq!((slices_by(4.0, 0), slices_by(4.0, 1)), (15, 8));
        assert_eq!((slices_by(16.0, 0), slices_by(16.0, 1)), (32, 32));
    }

    /// Two blocks for the same nodes: one client sends them one after the other, two clients at once.
    #[test]
    fn connections_of_a_client_carry_one_block_after_another() {
        let plan = write_of_two(MIB);
        let fabric = fabric(3);
        let ended_s = |clients: [u32; 2]| {
            let mut engine = Engine::new(&fabric, Sharing::MaxMin);
            let mut jobs = Jobs::default();
            for client in clients {
                let script = Script::of_plan(&plan, &fabric, Execution::Sliced);
                jobs.begin(&mut engine, script.of_client(client), ());
            }
            let mut ended_s = Vec::new();
            while let Some((at_ns, token)) = engine.next() {
                if jobs.flow_ends(&mut engine, token).is_some() {
                    ended_s.push((at_ns as f64 / 1e6).round() / 1e3);
                }
            }
            ended_s
        };
        assert_eq!(ended_s([7, 7]), [1.0, 2.0]);
        assert_eq!(ended_s([7, 8]), [2.0, 2.0]);
    }
}
