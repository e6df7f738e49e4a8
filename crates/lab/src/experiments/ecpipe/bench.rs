//! Repairs on a testbed for an experiment: the hosts and their links, and the repairs of each
//! trial. Plans are made here; clusters are started elsewhere.

use crate::error::LabError;
use gabion_codec::Code;
use gabion_layout::{
    ByteRange, ChunkIndex, Geometry, NodeId, RackId, Slices, StripeId, StripeRecord, Topology,
};
use gabion_plan::{Goal, Plan, PlanBuilder, StepOrder};
use gabion_planner::repair::{
    Bandwidths, Job, LinkWeights, MultiScheme, Scheme, balanced_recovery, greedy_recovery,
    rack_aware_path, repair, repair_all, weighted_path,
};
use gabion_planner::{PlanError, Stripe};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A link's weight is the time of this many bytes.
const WEIGHED_BYTES: u64 = 1 << 30;

/// A cluster on a testbed, and the trials that are run on it one after another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RepairBench {
    /// The directory for the cluster; empty.
    pub directory: PathBuf,
    /// The rates of its links.
    pub links: BenchLinks,
    /// Number of last nodes that join after everything is stored, so that they hold nothing:
    /// requestors.
    pub late_count: u32,
    /// The code, as users write it.
    pub code: String,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Stripes that are stored.
    pub stripe_count: u64,
    /// Seed of their places.
    pub placement_seed: u64,
    /// The timed trials.
    pub trials: Vec<Trial>,
    /// The number of rounds of each trial.
    pub round_count: u32,
}

/// The links of a testbed, in bytes a second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum BenchLinks {
    /// Equal racks.
    Racks {
        /// Racks.
        rack_count: u32,
        /// Nodes of each.
        nodes_per_rack: u32,
        /// Each node's link, in and out.
        node_bytes_per_s: u64,
        /// Each rack's uplink, in and out; 0 is unlimited.
        rack_bytes_per_s: u64,
    },
    /// One node a row: row i, column j is from node i to node j, and the diagonal a node's own link. 0
    /// is unlimited.
    Pairs(Vec<Vec<u64>>),
}

impl BenchLinks {
    /// Racks, and nodes of each.
    pub fn shape(&self) -> (u32, u32) {
        match self {
            Self::Racks {
                rack_count,
                nodes_per_rack,
                ..
            } => (*rack_count, *nodes_per_rack),
            Self::Pairs(rows) => (rows.len() as u32, 1),
        }
    }
}

/// Something that is timed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// Its name in tables.
    pub name: String,
    /// The work.
    pub work: Work,
    /// Bytes of a slice.
    pub slice_bytes: u64,
    /// The order in which nodes do the slices.
    pub order: StepOrder,
}

/// The work of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// A chunk is copied to the requestor as it is.
    DirectSend,
    /// One chunk of the first stripe is repaired onto a late node.
    One {
        /// The repair scheme.
        scheme: Scheme,
        /// The choice of helpers.
        helpers: Helpers,
        /// The index of the late node.
        requestor: usize,
    },
    /// This many chunks of the first stripe are repaired, each onto its own late node.
    Several {
        /// Lost chunks.
        count: usize,
        /// The way in which they are repaired together.
        way: Together,
    },
    /// All chunks of node 0 are repaired at the same time, onto this many of the first late nodes.
    Node {
        /// The repair scheme.
        scheme: Scheme,
        /// The selection of helpers.
        selection: Selection,
        /// Requestors.
        requestor_count: usize,
    },
}

/// The way in which several chunks of a stripe are repaired at once.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Together {
    /// By one dedicated requestor.
    Dedicated,
    /// In a chain of helpers (section 4.4).
    Chain,
    /// By all helpers, each for its share of the slices.
    Dealt,
}

/// The helpers of the repair of one chunk, in order.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Helpers {
    /// By the numbers of their chunks.
    Fixed,
    /// As the dice fall, with this seed.
    Random(u64),
    /// Rack by rack (Algorithm 1).
    RackAware,
    /// On the path with the fastest slowest link (section 4.3).
    Weighted,
}

/// The helpers of a full-node recovery.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Selection {
    /// Always those with the smallest node numbers.
    Smallest,
    /// Least recently selected (section 3.3).
    Greedy,
    /// One schedule that balances what all nodes send and receive.
    Balanced,
}

/// The times of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrialTime {
    /// The trial's name.
    pub name: String,
    /// Seconds of each round, in order.
    pub seconds: Vec<f64>,
    /// Seconds that the busiest link needs for the bytes of a round.
    pub links_s: f64,
    /// Processors in use on average, by all of the cluster's processes.
    pub cores: f64,
    /// Processor seconds for each GiB that nodes sent.
    pub core_s_per_gib: f64,
    /// Bytes that the plans of a round send.
    pub sent_bytes: u64,
}

impl TrialTime {
    /// The middle one of the rounds.
    pub fn median_s(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }
}

/// The stripes stored on a bench, with their places.
pub struct Stored<'a> {
    /// The pool's code.
    pub code: &'a Code,
    /// Its stripes.
    pub stripes: &'a [StripeRecord],
    /// All nodes.
    pub topology: &'a Topology,
}

impl RepairBench {
    fn late_nodes(&self) -> Vec<NodeId> {
        let (racks, per_rack) = self.links.shape();
        let count = racks * per_rack;
        (count - self.late_count..count).map(NodeId).collect()
    }

    /// The plans of a trial, each with the place of its stripe among those stored.
    ///
    /// # Errors
    /// [`LabError::Plan`], [`LabError::Geometry`]: the trial asks for what this code or bench has not.
    pub fn plans(&self, trial: &Trial, on: &Stored<'_>) -> Result<Vec<(usize, Plan)>, LabError> {
        let plans = self.streamed(trial, on)?.into_iter();
        let ordered = plans.map(|(at, plan)| (at, plan.in_order(trial.order)));
        Ok(ordered.collect())
    }

    /// The plans of a trial whatever its order is.
    fn streamed(&self, trial: &Trial, on: &Stored<'_>) -> Result<Vec<(usize, Plan)>, LabError> {
        let slice_bytes = trial.slice_bytes;
        let late = self.late_nodes();
        let first = &on.stripes[0];
        match trial.work {
            Work::DirectSend => Ok(vec![(0, on.direct_send(first, late[0], slice_bytes)?)]),
            Work::One {
                scheme,
                helpers,
                requestor,
            } => {
                let requestor = late[requestor];
                let lost = [on.lost_near(first, requestor)];
                let stripe = on.stripe(first, &lost)?;
                let path = self.path(&stripe, requestor, helpers, on.topology)?;
                let plan = repair(&stripe, lost[0], requestor, &path, scheme, slice_bytes)?;
                Ok(vec![(0, plan)])
            }
            Work::Several { count, way } => {
                let lost: Vec<ChunkIndex> = (0..count).map(ChunkIndex::new).collect();
                let stripe = on.stripe(first, &lost)?;
                let helpers: Vec<ChunkIndex> = stripe.available().collect();
                let targets: Vec<_> = lost.iter().copied().zip(late).collect();
                let scheme = match way {
                    Together::Dedicated => MultiScheme::Dedicated,
                    Together::Chain => MultiScheme::Pipeline,
                    Together::Dealt => MultiScheme::Dealt,
                };
                let plan = repair_all(&stripe, &targets, &helpers, scheme, slice_bytes)?;
                Ok(vec![(0, plan)])
            }
            Work::Node {
                scheme,
                selection,
                requestor_count,
            } => on.recovery(scheme, selection, &late[..requestor_count], slice_bytes),
        }
    }

    /// The helpers of one repair in the order of a chain.
    fn path(
        &self,
        stripe: &Stripe<'_>,
        requestor: NodeId,
        helpers: Helpers,
        topology: &Topology,
    ) -> Result<Vec<ChunkIndex>, LabError> {
        let mut all: Vec<ChunkIndex> = stripe.available().collect();
        match helpers {
            Helpers::Fixed => {}
            Helpers::Random(seed) => all.shuffle(&mut ChaCha8Rng::seed_from_u64(seed)),
            Helpers::RackAware => {
                all = rack_aware_path(stripe, stripe.lost[0], requestor, &all, topology)?;
            }
            Helpers::Weighted => {
                let nodes: Vec<NodeId> = all.iter().map(|&chunk| stripe.node_of(chunk)).collect();
                let k = stripe.geometry.k();
                let path = weighted_path(&nodes, requestor, k, &self.weights());
                let path = path.ok_or(PlanError::Layout("no path has weights".to_owned()))?;
                let chunk_of = |node: &NodeId| stripe.placement.iter().position(|n| n == node);
                let chunks = path.helpers.iter().filter_map(chunk_of);
                all = chunks.map(ChunkIndex::new).collect();
            }
        }
        Ok(all)
    }

    /// Returns the time of each link, by the matrix; nothing if there is none.
    fn weights(&self) -> LinkWeights {
        let BenchLinks::Pairs(rows) = &self.links else {
            return LinkWeights::new();
        };
        let mut weights = LinkWeights::new();
        for (from, row) in (0..).map(NodeId).zip(rows) {
            for (to, &rate) in (0..).map(NodeId).zip(row) {
                let ns = WEIGHED_BYTES.saturating_mul(1_000) / rate.max(1) * 1_000_000;
                weights.insert((from, to), if rate == 0 { 0 } else { ns });
            }
        }
        weights
    }
}

impl Stored<'_> {
    /// The plans of a full-node recovery of node 0.
    pub(super) fn recovery(
        &self,
        scheme: Scheme,
        selection: Selection,
        requestors: &[NodeId],
        slice_bytes: u64,
    ) -> Result<Vec<(usize, Plan)>, LabError> {
        let failed = NodeId(0);
        let on_failed = |record: &StripeRecord| record.nodes.iter().position(|&n| n == failed);
        let hit: Vec<(usize, [ChunkIndex; 1])> = (self.stripes.iter().enumerate())
            .filter_map(|(at, record)| Some((at, [ChunkIndex::new(on_failed(record)?)])))
            .collect();
        let mut jobs = Vec::with_capacity(hit.len());
        for (at, lost) in &hit {
            jobs.push(Job {
                stripe: self.stripe(&self.stripes[*at], lost)?,
                lost: lost[0],
                requestors,
            });
        }
        let bandwidths = Bandwidths {
            node_bytes_per_s: 1_000_000,
            rack_bytes_per_s: u64::MAX,
        };
        let assigned: Vec<(NodeId, Vec<ChunkIndex>)> = match selection {
            Selection::Smallest => {
                let helpers = |job: &Job<'_>| {
                    let mut helpers: Vec<ChunkIndex> = job.stripe.available().collect();
                    helpers.sort_by_key(|&chunk| job.stripe.node_of(chunk));
                    helpers
                };
                let turn = |(turn, job)| (requestors[turn % requestors.len()], helpers(job));
                jobs.iter().enumerate().map(turn).collect()
            }
            Selection::Greedy | Selection::Balanced => {
                let recovery = match selection {
                    Selection::Greedy => greedy_recovery,
                    _ => balanced_recovery,
                };
                let schedule = recovery(&jobs, self.topology, bandwidths)?;
                let assignments = schedule.assignments.into_iter();
                assignments.map(|a| (a.requestor, a.path)).collect()
            }
        };
        let mut plans = Vec::with_capacity(jobs.len());
        for ((job, (requestor, path)), (at, _)) in jobs.iter().zip(assigned).zip(&hit) {
            let plan = repair(&job.stripe, job.lost, requestor, &path, scheme, slice_bytes)?;
            plans.push((*at, plan));
        }
        Ok(plans)
    }

    fn geometry(&self, record: &StripeRecord) -> Result<Geometry, LabError> {
        let code = self.code;
        Ok(Geometry::new(
            code.k(),
            code.m(),
            code.sub_chunks(),
            record.chunk_bytes,
        )?)
    }

    fn stripe<'a>(
        &'a self,
        record: &'a StripeRecord,
        lost: &'a [ChunkIndex],
    ) -> Result<Stripe<'a>, LabError> {
        Ok(Stripe {
            id: record.id,
            code: self.code,
            geometry: self.geometry(record)?,
            placement: &record.nodes,
            lost,
        })
    }

    /// A data chunk in the requestor's rack if there is one, and chunk 0 otherwise.
    fn lost_near(&self, record: &StripeRecord, requestor: NodeId) -> ChunkIndex {
        let home: Option<RackId> = self.topology.rack_of(requestor);
        let data = &record.nodes[..self.code.k()];
        let near = data
            .iter()
            .position(|&node| self.topology.rack_of(node) == home);
        ChunkIndex::new(near.unwrap_or(0))
    }

    /// Chunk 0 goes as it is to a node that has none of the stripe.
    fn direct_send(
        &self,
        record: &StripeRecord,
        to: NodeId,
        slice_bytes: u64,
    ) -> Result<Plan, LabError> {
        let chunk = ChunkIndex(0);
        let id: StripeId = record.id;
        let geometry = self.geometry(record)?;
        let mut b = PlanBuilder::new(id, geometry, record.nodes.clone());
        let row_bytes = geometry.sub_chunk_bytes();
        for row in 0..geometry.sub_chunks() as u64 {
            let range = ByteRange::new(row * row_bytes, row_bytes);
            let slices = Slices::contiguous(range, slice_bytes);
            let stored = b.read(chunk, slices);
            let sent = b.send(stored, to);
            b.write(chunk, slices, sent);
        }
        Ok(b.finish(Goal::Move {
            chunks: vec![(chunk, to)],
        }))
    }
}

/// A matrix of random weights for the links among this many nodes.
pub(super) fn random_weights(node_count: u32, seed: u64) -> LinkWeights {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let nodes = || (0..node_count).map(NodeId);
    let links = nodes().flat_map(|from| nodes().map(move |to| (from, to)));
    let apart = links.filter(|(from, to)| from != to);
    apart
        .map(|link| (link, rng.random_range(1..1 << 40)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{Generation, PoolId};
    use gabion_plan::{Cost, check};

    fn record(id: u64, nodes: impl IntoIterator<Item = u32>) -> StripeRecord {
        StripeRecord {
            id: StripeId(id),
            pool: PoolId(1),
            chunk_bytes: 4096,
            generation: Generation(1),
            nodes: nodes.into_iter().map(NodeId).collect(),
            stale: Vec::new(),
        }
    }

    /// Plans a trial on 8 nodes with one stripe of rs(4,2) for each rotation, two more nodes being
    /// late, and proves all of its plans.
    fn planned(work: Work) -> (Vec<(usize, Plan)>, Topology) {
        let pairs = (0..10).map(|_| vec![1_000_000; 10]).collect();
        let bench = RepairBench {
            directory: PathBuf::new(),
            links: BenchLinks::Pairs(pairs),
            late_count: 2,
            code: "rs(4,2)".to_owned(),
            chunk_bytes: 4096,
            stripe_count: 8,
            placement_seed: 1,
            trials: Vec::new(),
            round_count: 1,
        };
        let code: Code = bench.code.parse().unwrap();
        let topology = Topology::uniform(10, 1);
        let stripes: Vec<StripeRecord> = (0..8)
            .map(|id| record(u64::from(id), (0..6).map(|chunk| (id + chunk) % 8)))
            .collect();
        let on = Stored {
            code: &code,
            stripes: &stripes,
            topology: &topology,
        };
        let trial = Trial {
            name: "t".to_owned(),
            work,
            slice_bytes: 512,
            order: StepOrder::default(),
        };
        let plans = bench.plans(&trial, &on).unwrap();
        for (_, plan) in &plans {
            check(plan, &code).unwrap();
        }
        (plans, topology)
    }

    /// The busiest node's received chunks.
    fn busiest_receiver(plans: &[(usize, Plan)], topology: &Topology) -> u64 {
        let links = plans.iter().flat_map(|(_, p)| Cost::of(p, topology).links);
        let mut received = std::collections::BTreeMap::new();
        for link in links {
            *received.entry(link.to).or_insert(0) += link.bytes;
        }
        received.values().max().unwrap() / 4096
    }

    #[test]
    fn every_kind_of_work_has_plans_that_check() {
        let one = |scheme, helpers| Work::One {
            scheme,
            helpers,
            requestor: 1,
        };
        for (work, received) in [
            (Work::DirectSend, 1),
            (one(Scheme::Conventional, Helpers::Fixed), 4),
            (one(Scheme::Pipeline, Helpers::Random(3)), 1),
            (one(Scheme::Pipeline, Helpers::RackAware), 1),
            (one(Scheme::Pipeline, Helpers::Weighted), 1),
        ] {
            let (plans, topology) = planned(work.clone());
            assert_eq!(plans.len(), 1, "{work:?}");
            assert_eq!(busiest_receiver(&plans, &topology), received, "{work:?}");
        }
        for (way, received) in [
            (Together::Dedicated, 4),
            (Together::Chain, 2),
            (Together::Dealt, 1),
        ] {
            let (plans, topology) = planned(Work::Several { count: 2, way });
            assert!(matches!(&plans[0].1.goal, Goal::Repair { chunks } if chunks.len() == 2));
            assert_eq!(busiest_receiver(&plans, &topology), received, "{way:?}");
        }
    }

    #[test]
    fn recovery_repairs_all_of_the_node_and_balance_beats_the_smallest() {
        let work = |selection| Work::Node {
            scheme: Scheme::Pipeline,
            selection,
            requestor_count: 2,
        };
        let busiest = [Selection::Smallest, Selection::Greedy, Selection::Balanced].map(|s| {
            let (plans, topology) = planned(work(s));
            assert_eq!(plans.len(), 6, "six of eight stripes have a chunk there");
            busiest_receiver(&plans, &topology)
        });
        assert!(
            busiest[2] <= busiest[1] && busiest[1] <= busiest[0],
            "{busiest:?}"
        );
    }
}
