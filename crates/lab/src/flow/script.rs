//! A plan as transfers that wait for each other.
//!
//! A plan can be modelled in several ways. *Serial* is a process that waits for each of its transfers. *Staged* is an
//! encoder that first gets all chunks at once and then sends all parity. *Sliced* is what `exec` does, with its slices
//! and rings. *Streamed* has infinitely small slices and rings without room: dependent streams form one flow, and its
//! slowest link decides.

use super::fabric::{Fabric, LinkNumber};
use super::sliced;
use gabion_layout::NodeId;
use gabion_plan::{Plan, Step};
use std::collections::{BTreeMap, BTreeSet};

/// One link of a flow, and how many bytes cross it for each byte of the flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share {
    /// The link.
    pub link: LinkNumber,
    /// Its bytes over the flow's bytes; above 0.
    pub weight: f64,
}

/// Bytes that go over several links at once, at one rate.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Flow {
    /// Bytes.
    pub bytes: f64,
    /// The links, in the order of their numbers.
    pub shares: Vec<Share>,
}

impl Flow {
    /// A flow of bytes that cross each of these links once.
    pub fn new(bytes: u64, links: impl IntoIterator<Item = LinkNumber>) -> Self {
        let shares = links.into_iter().map(|link| Share { link, weight: 1.0 });
        Self {
            bytes: bytes as f64,
            shares: shares.collect(),
        }
    }

    /// Bytes that it sends up from racks.
    fn cross_rack_bytes(&self, fabric: &Fabric) -> f64 {
        let up = self
            .shares
            .iter()
            .filter(|share| fabric.is_uplink(share.link));
        up.map(|share| share.weight * self.bytes).sum()
    }
}

/// The rules by which the steps of a plan wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Execution {
    /// One after another, in the plan's order, as a process does that waits for each of its transfers.
    Serial,
    /// The inputs of a step are there as a whole before the step begins.
    Staged,
    /// All steps go on at once, slice by slice. Those that depend on each other go at one rate.
    Streamed,
    /// All steps go on at once, and each slice is a flow by itself that waits for what it needs and for
    /// room at its receiver, as in `exec`. Where plans have many slices, these are many flows.
    Sliced,
}

/// The flows of a plan, and which of them wait for which.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Script {
    /// The flows.
    pub flows: Vec<Flow>,
    /// By flow, those that begin only when it is done.
    pub followers: Vec<Vec<u32>>,
    /// By flow, how many it waits for.
    pub waits: Vec<u32>,
    /// By flow, the connection that carries it after what it was given before; empty where flows share
    /// links by themselves.
    pub connections: Vec<Connection>,
}

/// A carrier of one flow at a time, first come, first served: of the flows of all scripts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Connection {
    /// The sender.
    pub from: NodeId,
    /// The receiver; the sender itself for work at one node.
    pub to: NodeId,
    /// The client, if one of them is a client.
    pub client: u32,
}

impl Script {
    /// A script of one flow.
    pub fn of(flow: Flow) -> Self {
        let mut script = Self::default();
        script.push(flow, &BTreeSet::new());
        script
    }

    /// The plan's flows.
    ///
    /// # Panics
    /// When the plan does not hold together, which `gabion_plan::check` finds out before.
    pub fn of_plan(plan: &Plan, fabric: &Fabric, execution: Execution) -> Self {
        match execution {
            Execution::Serial => Self::serial(plan, fabric),
            Execution::Staged => Self::staged(plan, fabric),
            Execution::Streamed => Self::streamed(plan, fabric),
            Execution::Sliced => sliced::script(plan, fabric),
        }
    }

    /// The plan's transfers, each of which waits for the one before it.
    fn serial(plan: &Plan, fabric: &Fabric) -> Self {
        let streams = plan.streams();
        let transfers = plan.steps.iter().zip(&streams);
        let transfers = transfers.map(|(step, stream)| flow(step, stream.bytes(), fabric));
        let flows: Vec<Flow> = transfers.filter(|flow| !flow.shares.is_empty()).collect();
        let flow_count = flows.len() as u32;
        let next = |flow| {
            if flow < flow_count {
                vec![flow]
            } else {
                Vec::new()
            }
        };
        Self {
            followers: (1..=flow_count).map(next).collect(),
            waits: (0..flow_count).map(|flow| u32::from(flow > 0)).collect(),
            flows,
            connections: Vec::new(),
        }
    }

    /// The plan in stages: a send or disk operation begins when what it needs is there as a whole.
    fn staged(plan: &Plan, fabric: &Fabric) -> Self {
        let streams = plan.streams();
        let mut script = Self::default();
        // By step, the flows that must be done before its value is there.
        let mut needs: Vec<BTreeSet<u32>> = Vec::with_capacity(plan.steps.len());
        for (step, stream) in plan.steps.iter().zip(&streams) {
            let inputs = used_by(step).into_iter().flat_map(|at| &needs[at]);
            let inputs: BTreeSet<u32> = inputs.copied().collect();
            let flow = flow(step, stream.bytes(), fabric);
            needs.push(if flow.shares.is_empty() {
                inputs
            } else {
                BTreeSet::from([script.push(flow, &inputs)])
            });
        }
        script
    }

    /// A flow for each part of the plan whose streams depend on each other. Two nodes have one connection,
    /// however many streams are on it, and links are shared among connections: so a byte of the flow is
    /// one on each connection of its busiest link.
    fn streamed(plan: &Plan, fabric: &Fabric) -> Self {
        let streams = plan.streams();
        let mut flows: BTreeMap<usize, BTreeMap<LinkNumber, Crossing>> = BTreeMap::new();
        for ((step, stream), part) in plan.steps.iter().zip(&streams).zip(parts(plan)) {
            let by_link = flows.entry(part).or_default();
            for link in links(step, fabric) {
                let crossing = by_link.entry(link).or_default();
                crossing.bytes += uses(step) * stream.bytes();
                crossing.connections.insert(ends(step));
            }
        }
        let mut script = Self::default();
        for by_link in flows.into_values() {
            let need_s =
                |link: LinkNumber, of: &Crossing| of.bytes as f64 / fabric.bytes_per_s(link);
            let all = by_link.iter().map(|(&link, of)| (need_s(link, of), of));
            let Some((_, busiest)) = all.max_by(|a, b| a.0.total_cmp(&b.0)) else {
                continue;
            };
            let bytes = busiest.bytes as f64 / busiest.connections.len() as f64;
            if bytes > 0.0 {
                let share = |(&link, of): (&LinkNumber, &Crossing)| Share {
                    link,
                    weight: of.bytes as f64 / bytes,
                };
                let shares = by_link.iter().map(share).collect();
                script.push(Flow { bytes, shares }, &BTreeSet::new());
            }
        }
        script
    }

    /// Bytes that all flows send up from racks.
    pub fn cross_rack_bytes(&self, fabric: &Fabric) -> u64 {
        let flows = self.flows.iter().map(|flow| flow.cross_rack_bytes(fabric));
        flows.sum::<f64>().round() as u64
    }

    /// The script of a client, whose connections are not those of other clients.
    #[must_use]
    pub fn of_client(mut self, client: u32) -> Self {
        let own = self.connections.iter_mut();
        for connection in own.filter(|own| [own.from, own.to].contains(&NodeId::CLIENT)) {
            connection.client = client;
        }
        self
    }

    pub(super) fn push(&mut self, flow: Flow, after: &BTreeSet<u32>) -> u32 {
        let number = self.flows.len() as u32;
        self.flows.push(flow);
        self.followers.push(Vec::new());
        self.waits.push(after.len() as u32);
        for &before in after {
            self.followers[before as usize].push(number);
        }
        number
    }
}

/// The bytes that a part of a plan that streams sends over a link, and their connections.
#[derive(Default)]
struct Crossing {
    bytes: u64,
    connections: BTreeSet<(NodeId, NodeId)>,
}

/// The connection that a step uses: a node has one with itself for its disk.
pub(super) fn ends(step: &Step) -> (NodeId, NodeId) {
    match step {
        Step::Send { from, to, .. } => (*from, *to),
        other => (other.node(), other.node()),
    }
}

/// By step, the first step of the part of the plan that it belongs to. Parts share no values, so nothing
/// keeps one of them in step with another.
fn parts(plan: &Plan) -> Vec<usize> {
    let mut parts: Vec<usize> = Vec::with_capacity(plan.steps.len());
    for (at, step) in plan.steps.iter().enumerate() {
        let used = used_by(step).into_iter().map(|value| parts[value]);
        let mut used: BTreeSet<usize> = used.collect();
        let part = used.pop_first().unwrap_or(at);
        parts.push(part);
        for known in &mut parts {
            if used.contains(known) {
                *known = part;
            }
        }
    }
    parts
}

/// The values that a step uses, as places in the plan.
pub(super) fn used_by(step: &Step) -> Vec<usize> {
    match step {
        Step::Input { .. } | Step::Read { .. } | Step::Recall { .. } => Vec::new(),
        Step::Combine { terms, .. } => terms.iter().map(|term| term.value.at()).collect(),
        Step::Send { value, .. }
        | Step::Write { value, .. }
        | Step::Append { value, .. }
        | Step::Deliver { value, .. } => vec![value.at()],
    }
}

/// Returns the number of input bytes for each byte of a step: parity is made of all of its terms.
fn uses(step: &Step) -> u64 {
    match step {
        Step::Combine { terms, .. } => terms.len() as u64,
        _ => 1,
    }
}

/// A step as a flow of `bytes` bytes. A step that uses no link or disk has no shares.
pub(super) fn flow(step: &Step, bytes: u64, fabric: &Fabric) -> Flow {
    let mut flow = Flow::new(bytes, links(step, fabric));
    for share in &mut flow.shares {
        share.weight = uses(step) as f64;
    }
    flow
}

/// The links, disks and coders that a step uses.
fn links(step: &Step, fabric: &Fabric) -> impl Iterator<Item = LinkNumber> {
    let (path, at_node) = match step {
        Step::Send { from, to, .. } => (Some(fabric.links_between(*from, *to)), None),
        Step::Read { node, .. }
        | Step::Recall { node, .. }
        | Step::Write { node, .. }
        | Step::Append { node, .. } => (None, fabric.disk(*node)),
        Step::Combine { node, .. } => (None, fabric.coder(*node)),
        Step::Input { .. } | Step::Deliver { .. } => (None, None),
    };
    path.into_iter().flatten().chain(at_node)
}
