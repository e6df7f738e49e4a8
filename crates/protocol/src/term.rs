//! A lease term as its primary keeps it: the stripe as it was granted, how far it is settled, what waits
//! for a commit, and the plans that follow from these.

use crate::commit::{Absent, Commit};
use crate::fate::Witnesses;
use crate::initiate::{RunTerms, fits_records, patience_ms, record_holders};
use crate::message::{
    Effect, JoinCount, NodeStatus, Purpose, ReadCut, Refusal, RunId, StripeLease, failed_nodes,
};
use crate::settle::check_copies;
use gabion_codec::Code;
use gabion_layout::{
    AppendSpec, ChunkIndex, ChunkRange, Epoch, Geometry, NodeId, NodePlace, PoolId, Sequence,
    StripeRecord, Topology,
};
use gabion_plan::{Goal, Keepings, Plan};
use gabion_planner::update::{self, UPDATE_SLICE_BYTES, Waiting, cau};
use gabion_planner::{PlanError, Stripe};

/// A lease term under which the stripe is settled.
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    pub(crate) stripe: StripeRecord,
    /// Where the stripe's nodes stand, all of them. They keep their racks for life, so who has copies of
    /// what was appended to a chunk follows from it, for whoever has to know; a list of nodes that came
    /// with a heartbeat may lack one.
    pub(crate) topology: Topology,
    pub(crate) geometry: Geometry,
    pub(crate) code: Code,
    pub(crate) scheme: &'static dyn update::UpdatePlanner,
    pub(crate) keepings: Keepings,
    /// The last committed update.
    pub(crate) mark: Sequence,
    /// The number of the next update.
    pub(crate) next: Sequence,
    /// Chunks whose nodes the settlement of the term has asked. No update of the term leaves one of
    /// them out: a quorum read takes a node that knows of no newer term to hold all that was
    /// acknowledged.
    pub(crate) asked: Vec<ChunkIndex>,
    /// Chunks whose nodes have joined since. They are left out no more than those that were asked,
    /// but they may lack an update that stood without them.
    pub(crate) joined: Vec<ChunkIndex>,
    /// Chunks that updates of this term have left out, or soon will. The coordinator knows them to
    /// be stale, so they stay out to the end of the term even if their nodes return.
    pub(crate) left_out: Vec<ChunkIndex>,
    /// What was appended and waits for a commit.
    pub(crate) waiting: Waiting,
    /// The pool's append phases, if it has any.
    pub(crate) append: Option<(PoolId, AppendSpec)>,
    /// Whether the coordinator has it noted that something may wait.
    pub(crate) appends: bool,
    /// The joins before the term: a node that has joined since may know it.
    pub(crate) joins: JoinCount,
}

/// What an update will do.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// Lost chunks that it would change.
    pub(crate) missed: Vec<ChunkIndex>,
}

impl Term {
    /// Whether a chunk has missed updates of this term or earlier ones, for all that is known.
    pub(crate) fn misses(&self, chunk: ChunkIndex) -> bool {
        self.stripe.is_stale(chunk) || self.left_out.contains(&chunk)
    }

    /// Whether a node that knows the term is declared failed by now.
    pub(crate) fn has_lost(&self, nodes: &[NodeStatus]) -> bool {
        let failed = failed_nodes(nodes);
        let is_lost = |chunk: &ChunkIndex| {
            let node = self.stripe.node_of(*chunk);
            node.is_some_and(|node| failed.contains(&node))
        };
        self.asked.iter().chain(&self.joined).any(is_lost)
    }

    /// Notes nodes that have joined since the settlement, and so know the term: an update that leaves
    /// one of their chunks out is of a new term, or a quorum could read what the chunk lacks as of
    /// that update.
    pub(crate) fn admit(&mut self, nodes: &[NodeStatus]) {
        let failed = failed_nodes(nodes);
        for chunk in self.stripe.chunks() {
            let node = self.stripe.node_of(chunk);
            let is_there = node.is_some_and(|node| !failed.contains(&node));
            let is_known = self.asked.contains(&chunk) || self.joined.contains(&chunk);
            if is_there && !self.misses(chunk) && !is_known {
                self.joined.push(chunk);
            }
        }
    }

    /// The chunks that updates leave out.
    fn lost(&self, nodes: &[NodeStatus]) -> Vec<ChunkIndex> {
        let failed = failed_nodes(nodes);
        let is_lost = |chunk: &ChunkIndex| {
            let node = self.stripe.node_of(*chunk);
            self.misses(*chunk) || node.is_some_and(|node| failed.contains(&node))
        };
        self.stripe.chunks().filter(is_lost).collect()
    }

    /// The stripe as planners see it.
    fn view<'a>(&'a self, lost: &'a [ChunkIndex]) -> Stripe<'a> {
        Stripe {
            id: self.stripe.id,
            code: &self.code,
            geometry: self.geometry,
            placement: &self.stripe.nodes,
            lost,
        }
    }

    /// The checked plan of an update.
    pub(crate) fn plan(
        &self,
        ranges: &[ChunkRange],
        nodes: &[NodeStatus],
    ) -> Result<Planned, Refusal> {
        let lost = self.lost(nodes);
        let stripe = self.view(&lost);
        let plan = self
            .scheme
            .plan(&stripe, &self.topology, ranges, UPDATE_SLICE_BYTES);
        let plan = self.checked(plan)?;
        let missed = update::missed(&stripe, ranges);
        Ok(Planned { plan, missed })
    }

    /// The checked plan to append an update. None where parity must follow at once: the scheme has it
    /// so, a chunk is lost, or a commit of what would wait is more than records can hold.
    pub(crate) fn plan_append(
        &self,
        ranges: &[ChunkRange],
        nodes: &[NodeStatus],
    ) -> Result<Option<Planned>, Refusal> {
        let (Some(appending), Some((_, spec))) = (self.scheme.appending(), &self.append) else {
            return Ok(None);
        };
        let lost = self.lost(nodes);
        if !lost.is_empty() || !self.waiting.fits(ranges, self.geometry) {
            return Ok(None);
        }
        let stripe = self.view(&lost);
        let phase = (&self.waiting, spec);
        let plan = appending.append(&stripe, &self.topology, ranges, phase, UPDATE_SLICE_BYTES);
        let plan = self.checked(plan)?;
        let missed = Vec::new();
        Ok(fits_records(&plan).then_some(Planned { plan, missed }))
    }

    /// The commit of what waits.
    pub(crate) fn plan_commit(&self, nodes: &[NodeStatus]) -> Result<Commit, Refusal> {
        let lost = self.lost(nodes);
        let (how, stripe) = ((self.scheme, self.keepings), self.view(&lost));
        let commit = Commit::plan(&stripe, &self.topology, how, &self.waiting)?;
        let fresh = commit.missed.iter().filter(|chunk| !self.misses(**chunk));
        let fresh: Vec<ChunkIndex> = fresh.copied().collect();
        Commit::check_left(&stripe, &fresh, Absent::MayReturn)?;
        Ok(commit)
    }

    /// The data chunks that were committed together, if the pool's rule would move some of them.
    pub(crate) fn to_group(&self, committed: &Waiting, nodes: &[NodeStatus]) -> Vec<ChunkIndex> {
        let rule = self.append.and_then(|(_, spec)| spec.grouping);
        let Some(rule) = rule.filter(|_| self.lost(nodes).is_empty()) else {
            return Vec::new();
        };
        let mut updated: Vec<ChunkIndex> =
            committed.ranges().iter().map(|part| part.chunk).collect();
        updated.dedup();
        let grouping = cau::group(&self.view(&[]), &self.topology, &updated, rule);
        grouping.map_or_else(Vec::new, |_| updated)
    }

    /// Which nodes have records of the stripe's updates.
    pub(crate) fn witnesses(&self) -> Witnesses<'_> {
        Witnesses {
            stripe: self.view(&[]),
            generation: self.stripe.generation,
            topology: &self.topology,
            scheme: self.scheme,
            append: self.append.map(|(_, spec)| spec),
        }
    }

    fn checked(&self, plan: Result<Plan, PlanError>) -> Result<Plan, Refusal> {
        let plan = plan.map_err(|error| refusal(&error))?.kept(self.keepings);
        gabion_plan::check(&plan, &self.code)
            .map_err(|error| Refusal::Failed(format!("the update's plan is wrong: {error}")))?;
        Ok(plan)
    }

    /// Gives an update its number.
    pub(crate) fn number(&mut self, run: RunId, plan: &Plan) -> (Sequence, RunTerms) {
        let sequence = self.next;
        self.next = sequence.next();
        let participants = record_holders(plan);
        let (effect, purpose) = if matches!(plan.goal, Goal::Append { .. }) {
            let effect = Effect::Append {
                sequence,
                participants,
            };
            (effect, Purpose::Replica)
        } else {
            let effect = Effect::Record {
                sequence,
                participants,
            };
            (effect, Purpose::Update)
        };
        let terms = RunTerms {
            run,
            epoch: self.epoch,
            generation: self.stripe.generation,
            cut: ReadCut::Exactly(self.mark),
            effect,
            purpose,
            spread_ms: 0,
            deadline_ms: patience_ms(plan),
            stall_ms: None,
        };
        (sequence, terms)
    }
}

/// Where the nodes of a stripe stand.
pub(crate) fn topology_of(
    stripe: &StripeRecord,
    nodes: &[NodeStatus],
) -> Result<Topology, Refusal> {
    let holders = nodes.iter().filter(|s| stripe.chunk_on(s.node).is_some());
    let places = holders.map(|status| NodePlace {
        node: status.node,
        rack: status.rack,
    });
    Topology::new(places).map_err(|error| Refusal::Failed(error.to_string()))
}

/// Why there is no plan, for whoever asked for the update.
fn refusal(error: &PlanError) -> Refusal {
    match *error {
        // A stripe has at most 255 chunks.
        PlanError::TooFewLeft {
            left_count,
            chunk_count,
        } => Refusal::TooFewLeft {
            left_count: left_count as u8,
            chunk_count: chunk_count as u8,
        },
        ref other => Refusal::Invalid(other.to_string()),
    }
}

/// Refuses a lease of a stripe in its append phase without copies of what may have been appended.
pub(crate) fn check_leased_copies(
    lease: &StripeLease,
    code: &Code,
    geometry: Geometry,
    failed: &[NodeId],
) -> Result<(), Refusal> {
    if !lease.appends {
        return Ok(());
    }
    let record = &lease.stripe;
    let is_lost = |chunk: &ChunkIndex| {
        let node = record.node_of(*chunk);
        record.is_stale(*chunk) || node.is_some_and(|node| failed.contains(&node))
    };
    let lost: Vec<ChunkIndex> = record.chunks().filter(is_lost).collect();
    let stripe = Stripe {
        id: record.id,
        code,
        geometry,
        placement: &record.nodes,
        lost: &lost,
    };
    let topology = topology_of(record, &lease.nodes)?;
    let spec = &lease.pool.spec;
    let how = (update::scheme(spec.update), spec.append.as_ref());
    check_copies(&stripe, &topology, how)
}
