//! `ECPipe`'s own cluster in the model of links (section 6.1): hosts that help and receive at 1 Gb/s, and the recovery
//! of one of them. Two processors cannot run 16 requestors beside 16 helpers at rates that links limit.
//!
//! The plans are those that a cluster would run. A plan is one flow, since its streams depend on each other slice by
//! slice; messages and processors cost nothing.

use super::bench::{Selection, Stored};
use super::figure::{HOLDER_COUNT, KIB, MIB};
use crate::error::LabError;
use crate::flow::{Execution, Fabric, Network, Rates, Script, Sharing, Work};
use gabion_codec::Code;
use gabion_layout::{Generation, NodeId, PoolId, StripeId, StripeRecord, Topology};
use gabion_planner::PlanError;
use gabion_planner::repair::Scheme;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

const CHUNK_BYTES: u64 = 64 * MIB;
const SLICE_BYTES: u64 = 32 * KIB;
/// Lost chunks, one of each stripe.
const STRIPE_COUNT: u64 = 64;
/// 1 Gb/s.
const LINK_BYTES_PER_S: f64 = 125e6;

/// The hosts and the stripes on them. Host 0 has lost its chunk of each stripe; it still receives.
pub(super) struct PaperCluster {
    code: Code,
    topology: Topology,
    stripes: Vec<StripeRecord>,
    disk_bytes_per_s: Option<f64>,
}

impl PaperCluster {
    /// A host without chunks, beside those that hold some.
    pub(super) const NEW_HOST: NodeId = NodeId(HOLDER_COUNT);

    /// Stripes on random hosts, with disks that read and write this much a second if they are waited for.
    pub(super) fn new(
        code: &str,
        seed: u64,
        disk_bytes_per_s: Option<f64>,
    ) -> Result<Self, LabError> {
        let code: Code = code.parse().map_err(PlanError::from)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stripe = |id: u64| {
            let mut others: Vec<NodeId> = (1..HOLDER_COUNT).map(NodeId).collect();
            others.shuffle(&mut rng);
            let mut nodes: Vec<NodeId> = others.into_iter().take(code.n() - 1).collect();
            nodes.push(NodeId(0));
            nodes.shuffle(&mut rng);
            StripeRecord {
                id: StripeId(id),
                pool: PoolId(1),
                chunk_bytes: CHUNK_BYTES,
                generation: Generation(1),
                nodes,
                stale: Vec::new(),
            }
        };
        Ok(Self {
            stripes: (0..STRIPE_COUNT).map(stripe).collect(),
            topology: Topology::uniform(1, HOLDER_COUNT + 1),
            code,
            disk_bytes_per_s,
        })
    }

    /// As many of the hosts that hold chunks, evenly spread over their numbers.
    pub(super) fn spread(count: u32) -> Vec<NodeId> {
        let host = |requestor: u32| NodeId(requestor * HOLDER_COUNT / count);
        (0..count).map(host).collect()
    }

    /// Seconds of the recovery of all lost chunks at once onto these hosts.
    pub(super) fn recovery_s(
        &self,
        scheme: Scheme,
        selection: Selection,
        requestors: &[NodeId],
    ) -> Result<f64, LabError> {
        let on = Stored {
            code: &self.code,
            stripes: &self.stripes,
            topology: &self.topology,
        };
        let plans = on.recovery(scheme, selection, requestors, SLICE_BYTES)?;
        let rates = Rates {
            node_bytes_per_s: LINK_BYTES_PER_S,
            rack_bytes_per_s: LINK_BYTES_PER_S,
            disk_bytes_per_s: self.disk_bytes_per_s,
        };
        let fabric = Fabric::new(&self.topology, rates);
        let repair = |plan| Work::Move(Script::of_plan(plan, &fabric, Execution::Streamed));
        let repairs = Work::Group {
            works: plans.iter().map(|(_, plan)| repair(plan)).collect(),
            at_once: plans.len().max(1),
        };
        let network = Network {
            fabric: &fabric,
            sharing: Sharing::MaxMin,
            queue_ns: 0,
        };
        Ok(network.carry_out(&repairs).seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Selection::{Balanced, Greedy, Smallest};

    #[test]
    fn the_link_of_a_new_host_takes_k_chunks_a_stripe_or_one() {
        let cluster = PaperCluster::new("rs(6,3)", 1, None).unwrap();
        let seconds = |scheme, selection| {
            let onto = [PaperCluster::NEW_HOST];
            cluster.recovery_s(scheme, selection, &onto).unwrap()
        };
        let one_s = (STRIPE_COUNT * CHUNK_BYTES) as f64 / LINK_BYTES_PER_S;
        let near =
            |ours: f64, expected: f64| assert!((ours / expected - 1.0).abs() < 1e-3, "{ours}");
        near(seconds(Scheme::Conventional, Smallest), 6.0 * one_s);
        near(seconds(Scheme::Pipeline, Balanced), one_s);
    }

    #[test]
    fn more_requestors_and_better_selections_take_less_time() {
        let cluster = PaperCluster::new("rs(10,4)", 1, None).unwrap();
        let seconds = |selection, count| {
            let onto = PaperCluster::spread(count);
            let scheme = Scheme::Pipeline;
            cluster.recovery_s(scheme, selection, &onto).unwrap()
        };
        let [few, many] = [4, 16].map(|count| seconds(Smallest, count));
        assert!(many < few, "{few} {many}");
        assert!(seconds(Greedy, 16) < many);
        assert!(seconds(Balanced, 16) < seconds(Greedy, 16));
    }

    #[test]
    fn slow_disks_hold_recoveries_up() {
        let seconds = |disk| {
            let cluster = PaperCluster::new("rs(10,4)", 1, disk).unwrap();
            let onto = PaperCluster::spread(16);
            let scheme = Scheme::Pipeline;
            cluster.recovery_s(scheme, Smallest, &onto).unwrap()
        };
        assert!(seconds(Some(60e6)) > 1.5 * seconds(None));
    }
}
