//! Full-node recovery as one schedule: it chooses helpers and requestors for all stripes together, so that the traffic
//! of each node and each rack is balanced. `ECPipe` section 3.3 selects greedily; this file starts with that selection
//! and then moves repairs one by one to nodes where they finish sooner.
//!
//! It does not set the start of a repair: chains share links, and all of them together need the
//! busiest port at least for [`Schedule::finish_ns`].

use super::descriptor::Scheme;
use super::rack_path::rack_aware_path;
use super::selection::LeastRecentlySelected;
use super::single::repair;
use crate::port::{Port, by_port};
use crate::{PlanError, Stripe};
use gabion_layout::{ChunkIndex, NodeId, Topology};
use gabion_plan::{Cost, LinkBytes};
use std::collections::BTreeMap;

/// Passes over all repairs. Random stripes settle after three or four.
const PASS_COUNT_MAX: usize = 8;

/// Requestors that are tried for a repair in one pass, those with the least to do first.
const REQUESTOR_COUNT_MAX: usize = 4;

/// A lost chunk to be repaired.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Its stripe.
    pub stripe: Stripe<'a>,
    /// The chunk.
    pub lost: ChunkIndex,
    /// The nodes that may receive it: they keep the stripe's rack limit and hold nothing of it.
    pub requestors: &'a [NodeId],
}

/// Bandwidths of the ports of every node and every rack in one direction, in bytes a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bandwidths {
    /// Into or out of a node.
    pub node_bytes_per_s: u64,
    /// Into or out of a rack.
    pub rack_bytes_per_s: u64,
}

/// The nodes that repair one job: give `path` to [`repair`] with [`Scheme::Pipeline`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The node that receives the chunk.
    pub requestor: NodeId,
    /// The helpers, in the chain's order.
    pub path: Vec<ChunkIndex>,
}

/// An assignment for each job, in the jobs' order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// The assignment of each job.
    pub assignments: Vec<Assignment>,
    /// The time that the busiest port of a node or rack needs for all its bytes. No order of the same repairs ends
    /// earlier, and enough slices and repairs at a time come close to it.
    pub finish_ns: u64,
}

/// The schedule by greedy selection: helpers that were selected the longest ago, requestors in turn.
///
/// # Errors
/// [`PlanError::NotEnoughHelpers`] when a lost chunk cannot be repaired, [`PlanError::NoRequestor`]
/// when no node may receive it.
///
/// # Panics
/// When a bandwidth is 0.
pub fn greedy_recovery(
    jobs: &[Job<'_>],
    topology: &Topology,
    bandwidths: Bandwidths,
) -> Result<Schedule, PlanError> {
    let (chosen, loads) = greedy(jobs, topology, bandwidths)?;
    Ok(schedule(chosen, &loads))
}

/// The balanced schedule, which never ends later than the greedy one. Equal inputs give equal
/// schedules.
///
/// # Errors
/// As [`greedy_recovery`].
///
/// # Panics
/// When a bandwidth is 0.
pub fn balanced_recovery(
    jobs: &[Job<'_>],
    topology: &Topology,
    bandwidths: Bandwidths,
) -> Result<Schedule, PlanError> {
    let (mut chosen, mut loads) = greedy(jobs, topology, bandwidths)?;
    for _ in 0..PASS_COUNT_MAX {
        let mut has_moved = false;
        for (job, current) in jobs.iter().zip(&mut chosen) {
            loads.remove(&current.links);
            let mut least = loads.after(&current.links);
            for candidate in candidates(job, &loads, topology)? {
                let after = loads.after(&candidate.links);
                if after < least {
                    (least, has_moved) = (after, true);
                    *current = candidate;
                }
            }
            loads.add(&current.links);
        }
        if !has_moved {
            break;
        }
    }
    Ok(schedule(chosen, &loads))
}

/// An assignment with what its plan sends.
struct Chosen {
    assignment: Assignment,
    links: Vec<LinkBytes>,
}

impl Chosen {
    fn new(
        job: &Job<'_>,
        requestor: NodeId,
        path: Vec<ChunkIndex>,
        topology: &Topology,
    ) -> Result<Self, PlanError> {
        // The bytes on links do not depend on the size of slices.
        let slice_bytes = job.stripe.geometry.sub_chunk_bytes();
        let scheme = Scheme::Pipeline;
        let plan = repair(&job.stripe, job.lost, requestor, &path, scheme, slice_bytes)?;
        Ok(Self {
            assignment: Assignment { requestor, path },
            links: Cost::of(&plan, topology).links,
        })
    }
}

fn schedule(chosen: Vec<Chosen>, loads: &Loads<'_>) -> Schedule {
    Schedule {
        assignments: chosen.into_iter().map(|chosen| chosen.assignment).collect(),
        finish_ns: loads.finish_ns(),
    }
}

fn greedy<'t>(
    jobs: &[Job<'_>],
    topology: &'t Topology,
    bandwidths: Bandwidths,
) -> Result<(Vec<Chosen>, Loads<'t>), PlanError> {
    let mut selected = LeastRecentlySelected::default();
    let mut loads = Loads::new(topology, bandwidths);
    let mut all = Vec::with_capacity(jobs.len());
    for (turn, job) in jobs.iter().enumerate() {
        if job.requestors.is_empty() {
            return Err(PlanError::NoRequestor(job.lost));
        }
        let requestor = job.requestors[turn % job.requestors.len()];
        let order: Vec<usize> = selected.order(&job.stripe).iter().map(|c| c.at()).collect();
        let equations = job.stripe.code.repair_equations(job.lost.at(), &order)?;
        let path: Vec<ChunkIndex> = equations[0]
            .helpers
            .iter()
            .map(|&at| ChunkIndex::new(at))
            .collect();
        selected.select(&job.stripe, &path);
        let chosen = Chosen::new(job, requestor, path, topology)?;
        loads.add(&chosen.links);
        all.push(chosen);
    }
    Ok((all, loads))
}

/// Ways to repair a job beside what is planned already: for each of the idlest requestors, a path
/// that crosses as few racks as possible, and one of the idlest helpers.
fn candidates(
    job: &Job<'_>,
    loads: &Loads<'_>,
    topology: &Topology,
) -> Result<Vec<Chosen>, PlanError> {
    let stripe = &job.stripe;
    let mut requestors = job.requestors.to_vec();
    requestors.sort_by_key(|&node| (loads.ns_at(Port::IntoNode(node)), node));
    requestors.truncate(REQUESTOR_COUNT_MAX);
    let mut helpers: Vec<ChunkIndex> = stripe.available().collect();
    helpers.sort_by_key(|&chunk| {
        let node = stripe.node_of(chunk);
        let (into, out) = (
            loads.ns_at(Port::IntoNode(node)),
            loads.ns_at(Port::OutOfNode(node)),
        );
        (into.max(out), into + out, chunk)
    });
    let order: Vec<usize> = helpers.iter().map(|chunk| chunk.at()).collect();
    let equations = stripe.code.repair_equations(job.lost.at(), &order)?;
    let idlest: Vec<ChunkIndex> = equations[0]
        .helpers
        .iter()
        .map(|&at| ChunkIndex::new(at))
        .collect();
    let mut found = Vec::with_capacity(2 * requestors.len());
    for requestor in requestors {
        for among in [&helpers, &idlest] {
            let path = rack_aware_path(stripe, job.lost, requestor, among, topology)?;
            found.push(Chosen::new(job, requestor, path, topology)?);
        }
    }
    Ok(found)
}

/// Bytes that each port is to carry.
struct Loads<'t> {
    topology: &'t Topology,
    bandwidths: Bandwidths,
    bytes: BTreeMap<Port, u64>,
}

impl<'t> Loads<'t> {
    fn new(topology: &'t Topology, bandwidths: Bandwidths) -> Self {
        assert!(
            bandwidths.node_bytes_per_s > 0 && bandwidths.rack_bytes_per_s > 0,
            "a port carries something"
        );
        Self {
            topology,
            bandwidths,
            bytes: BTreeMap::new(),
        }
    }

    fn add(&mut self, links: &[LinkBytes]) {
        for (port, bytes) in by_port(links, self.topology) {
            *self.bytes.entry(port).or_default() += bytes;
        }
    }

    fn remove(&mut self, links: &[LinkBytes]) {
        for (port, bytes) in by_port(links, self.topology) {
            *self
                .bytes
                .get_mut(&port)
                .expect("what is removed was added") -= bytes;
        }
    }

    /// The busiest of the ports that these links use, and the growth of the sum of squares over all
    /// ports, once they are added. While the first does not grow for any job, the schedule's end does
    /// not either; the second tells equally long schedules apart.
    fn after(&self, links: &[LinkBytes]) -> (u64, u128) {
        let mut least = (0, 0);
        for (port, more) in by_port(links, self.topology) {
            let before = self.bytes.get(&port).copied().unwrap_or(0);
            let (before, after) = (self.ns(port, before), self.ns(port, before + more));
            least.0 = after.max(least.0);
            least.1 += u128::from(after).pow(2) - u128::from(before).pow(2);
        }
        least
    }

    fn ns_at(&self, port: Port) -> u64 {
        self.ns(port, self.bytes.get(&port).copied().unwrap_or(0))
    }

    fn ns(&self, port: Port, bytes: u64) -> u64 {
        let bytes_per_s = match port {
            Port::IntoNode(_) | Port::OutOfNode(_) => self.bandwidths.node_bytes_per_s,
            Port::IntoRack(_) | Port::OutOfRack(_) => self.bandwidths.rack_bytes_per_s,
        };
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn finish_ns(&self) -> u64 {
        self.bytes
            .keys()
            .map(|&port| self.ns_at(port))
            .max()
            .unwrap_or(0)
    }
}
