//! A plan as transfers that wait for each other.
//!
//! There are several ways to see one plan. *Serial* is a process that waits for each of its transfers. *Staged*
//! is an encoder that first gets all chunks at once and then sends all parity. *Streamed* is what `exec` does:
//! the plan is one flow, and its slowest link decides.

use super::fabric::{Fabric, LinkNumber};
use gabion_layout::Slices;
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

/// How the steps of a plan wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Execution {
    /// One after another, in the plan's order, as a process does that waits for each of its transfers.
    Serial,
    /// What a step needs is there as a whole before the step begins.
    Staged,
    /// All steps go on at once, slice by slice, at one rate.
    Streamed,
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
            Execution::Serial => Self::staged(plan, fabric).serial(),
            Execution::Staged => Self::staged(plan, fabric),
            Execution::Streamed => Self::streamed(plan, fabric),
        }
    }

    /// The plan in stages: a send or disk operation begins when what it needs is there as a whole.
    fn staged(plan: &Plan, fabric: &Fabric) -> Self {
        let streams = plan.streams();
        let mut script = Self::default();
        // By step, the flows that must be done before its value is there.
        let mut needs: Vec<BTreeSet<u32>> = Vec::with_capacity(plan.steps.len());
        for (step, stream) in plan.steps.iter().zip(&streams) {
            let inputs: BTreeSet<u32> = match step {
                Step::Input { .. } | Step::Read { .. } | Step::Recall { .. } => BTreeSet::new(),
                Step::Combine { terms, .. } => {
                    let all = terms.iter().flat_map(|term| &needs[term.value.at()]);
                    all.copied().collect()
                }
                Step::Send { value, .. }
                | Step::Write { value, .. }
                | Step::Append { value, .. }
                | Step::Deliver { value, .. } => needs[value.at()].clone(),
            };
            let links = links(step, fabric);
            needs.push(if links.is_empty() {
                inputs
            } else {
                BTreeSet::from([script.push(Flow::new(stream.bytes(), links), &inputs)])
            });
        }
        script
    }

    /// The plan as one flow, whose bytes are those of its longest stream.
    fn streamed(plan: &Plan, fabric: &Fabric) -> Self {
        let streams = plan.streams();
        let bytes = streams.iter().map(Slices::bytes).max().unwrap_or(0);
        let mut by_link: BTreeMap<LinkNumber, u64> = BTreeMap::new();
        for (step, stream) in plan.steps.iter().zip(&streams) {
            for link in links(step, fabric) {
                *by_link.entry(link).or_default() += stream.bytes();
            }
        }
        let share = |(link, crossing): (LinkNumber, u64)| Share {
            link,
            weight: crossing as f64 / bytes as f64,
        };
        let mut script = Self::default();
        if bytes > 0 {
            let flow = Flow {
                bytes: bytes as f64,
                shares: by_link.into_iter().map(share).collect(),
            };
            script.push(flow, &BTreeSet::new());
        }
        script
    }

    /// The same flows, each waiting for the one before it.
    fn serial(self) -> Self {
        let mut script = Self::default();
        for (number, flow) in self.flows.into_iter().enumerate() {
            let before = (number as u32).checked_sub(1);
            script.push(flow, &before.into_iter().collect());
        }
        script
    }

    /// Bytes that all flows send up from racks.
    pub fn cross_rack_bytes(&self, fabric: &Fabric) -> u64 {
        let flows = self.flows.iter().map(|flow| flow.cross_rack_bytes(fabric));
        flows.sum::<f64>().round() as u64
    }

    fn push(&mut self, flow: Flow, after: &BTreeSet<u32>) -> u32 {
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

/// What a step uses.
fn links(step: &Step, fabric: &Fabric) -> Vec<LinkNumber> {
    match step {
        Step::Send { from, to, .. } => fabric.path(*from, *to),
        Step::Read { node, .. }
        | Step::Recall { node, .. }
        | Step::Write { node, .. }
        | Step::Append { node, .. } => fabric.disk(*node).into_iter().collect(),
        Step::Input { .. } | Step::Combine { .. } | Step::Deliver { .. } => Vec::new(),
    }
}
