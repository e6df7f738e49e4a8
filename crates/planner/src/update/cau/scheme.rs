//! CAU as a scheme of pools: append phases with interim replicas, and selective commits.

use super::plans::{Selection, append, append_phase_survives, commit, commit_without, keepers};
use crate::update::appending::Appending;
use crate::update::descriptor::{Descriptor, Traffic, UpdatePlanner};
use crate::update::waiting::Waiting;
use crate::{PlanError, Stripe};
use gabion_codec::Code;
use gabion_layout::{AppendSpec, ChunkIndex, ChunkRange, Keeping, Topology, UpdateScheme};
use gabion_plan::{Keepings, Plan};

/// The scheme. Its parameters are the pool's [`AppendSpec`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrossRackAware;

/// The scheme as all others know it.
pub(crate) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: UpdateScheme::Cau,
    help: "data nodes log new bytes with interim replicas; a commit updates the parity",
    paper: "CAU section 3",
    planner: &CrossRackAware,
    traffic: Traffic::AppendPhases,
};

impl UpdatePlanner for CrossRackAware {
    /// A commit's bytes are applied in place: parity moves then.
    fn keepings(&self, _: u64) -> Keepings {
        Keepings {
            data: Keeping::InPlace,
            parity: Keeping::InPlace,
        }
    }

    fn appending(&self) -> Option<&dyn Appending> {
        Some(self)
    }
}

impl Appending for CrossRackAware {
    fn append(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        ranges: &[ChunkRange],
        (_, spec): (&Waiting, &AppendSpec),
        slice_bytes: u64,
    ) -> Result<Plan, PlanError> {
        let replicas = usize::from(spec.replicas);
        append(stripe, topology, ranges, replicas, slice_bytes)
    }

    fn commit(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        waiting: &Waiting,
        slice_bytes: u64,
    ) -> Result<Plan, PlanError> {
        if !stripe.lost.is_empty() {
            return commit_without(stripe, topology, waiting, slice_bytes);
        }
        let selection = Selection::Selective;
        commit(stripe, topology, &waiting.ranges(), selection, slice_bytes)
    }

    fn keepers(
        &self,
        stripe: &Stripe<'_>,
        topology: &Topology,
        data: ChunkIndex,
        spec: &AppendSpec,
    ) -> Result<Vec<ChunkIndex>, PlanError> {
        let nodes = keepers(stripe, topology, data, usize::from(spec.replicas))?;
        let is_keeper = |chunk: &ChunkIndex| nodes.contains(&stripe.node_of(*chunk));
        Ok(stripe.geometry.chunks().filter(is_keeper).collect())
    }

    fn is_by_rack(&self) -> bool {
        true
    }

    fn survives(&self, code: &Code, spec: &AppendSpec) -> usize {
        append_phase_survives(code, usize::from(spec.replicas))
    }
}
