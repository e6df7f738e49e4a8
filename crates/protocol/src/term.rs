//! A lease term as its primary keeps it: the stripe as it was granted, the settled mark, the updates that
//! wait for a commit, and the plans that follow from these.

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
use gabion_meta::{FencingToken, PutId};
use gabion_plan::{Goal, Keepings, Plan};
use gabion_planner::update::{self, UPDATE_SLICE_BYTES, Waiting, cau};
use gabion_planner::{PlanError, Stripe};

/// A lease term under which the stripe is settled.
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    pub(crate) stripe: StripeRecord,
    /// The positions of all of the stripe's nodes. Nodes keep their racks for life, so the nodes with
    /// copies of updates appended to a chunk follow from these positions. A list of nodes from a heartbeat
    /// may lack one.
    pub(crate) topology: Topology,
    pub(crate) geometry: Geometry,
    pub(crate) code: Code,
    pub(crate) scheme: &'static dyn update::UpdatePlanner,
    /// The name of the stripe's pool, and that of its update scheme.
    pub(crate) names: (String, &'static str),
    pub(crate) keepings: Keepings,
    /// The last committed update.
    pub(crate) mark: Sequence,
    /// The sequence of the next update.
    pub(crate) next: Sequence,
    /// Chunks whose nodes the settlement of the term has asked. No update of the term leaves one of them
    /// out: a quorum read assumes that a node which knows no newer term has all acknowledged updates.
    pub(crate) asked: Vec<ChunkIndex>,
    /// Chunks whose nodes have joined since. Like those that were asked, they are not left out, but they
    /// may lack an update that stood without them.
    pub(crate) joined: Vec<ChunkIndex>,
    /// Chunks that updates of this term have left out, or soon will. The coordinator has noted them as
    /// stale, so they stay out to the end of the term even if their nodes return.
    pub(crate) left_out: Vec<ChunkIndex>,
    /// Appended updates that wait for a commit.
    pub(crate) waiting: Waiting,
    /// The pool's append phases, if it has any.
    pub(crate) append: Option<(PoolId, AppendSpec)>,
    /// Whether the coordinator has noted that updates may wait.
    pub(crate) appends: bool,
    /// The joins before the term: a node that has joined since may know it.
    pub(crate) joins: JoinCount,
    /// The fencing token of the stripe's file, once known.
    pub(crate) token: Option<KnownToken>,
}

/// A file's token as a primary has learnt it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KnownToken {
    pub(crate) file: PutId,
    pub(crate) token: FencingToken,
    /// The node's membership in which it was learnt: in another one the node may have missed higher ones.
    pub(crate) membership: u64,
    /// Whether the coordinator has said since the last raise that the file's writers update the stripe in place.
    pub(crate) is_confirmed: bool,
}

impl KnownToken {
    /// The token of a file that a request or a lease names.
    pub(crate) fn of(
        file: Option<PutId>,
        token: Option<FencingToken>,
        membership: u64,
    ) -> Option<Self> {
        let (file, token) = file.zip(token)?;
        Some(Self {
            file,
            token,
            membership,
            is_confirmed: true,
        })
    }
}

/// The effect of an update.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// Lost chunks that it would change.
    pub(crate) missed: Vec<ChunkIndex>,
}

impl Term {
    /// Whether a chunk has missed updates of this term or earlier ones, as far as known.
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

    /// Notes nodes that have joined since the settlement, and so know the term: an update that leaves one
    /// of their chunks out needs a new term, or a quorum read could use a chunk that lacks the update.
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

    /// The checked plan to append an update. None where parity must follow at once: the scheme requires it,
    /// a chunk is lost, or the next commit would exceed the size of records.
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

    /// The commit of the appended updates.
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

    /// The nodes that have records of the stripe's updates.
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

    /// Gives the update of some runs its sequence.
    ///
    /// # Panics
    /// Without a run.
    pub(crate) fn number(&mut self, mut runs: Vec<RunId>, plan: &Plan) -> (Sequence, RunTerms) {
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
        let joined = runs.split_off(1);
        let terms = RunTerms {
            joined,
            ..RunTerms::new(
                runs[0],
                (self.epoch, self.stripe.generation),
                ReadCut::Exactly(self.mark),
                effect,
                purpose,
                patience_ms(plan),
            )
        };
        (sequence, terms)
    }
}

/// The positions of a stripe's nodes.
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

/// The reason why there is no plan, for the client of the update.
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

/// Refuses a lease of a stripe in its append phase if copies of appended updates may be missing.
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
