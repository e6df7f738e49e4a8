//! The commit of a stripe: parity follows the updates that were appended to logs since the last commit
//! (CAU, section 3.2). It is an update like any other, with a sequence, participants and records of its
//! own, whose new bytes come from nodes' logs. So after a crash at any moment it either stands or does not,
//! and in the second case its appended updates are still in the logs. Primaries run it, and so does the
//! coordinator before a repair.

use crate::initiate::{PartFailed, RunTerms, no_own_part, patience_ms, record_holders, run_heard};
use crate::message::{Effect, Purpose, ReadCut, Refusal, RunId};
use crate::ports::Ports;
use crate::progress::Heard;
use gabion_layout::{ChunkIndex, Epoch, Generation, Sequence, Topology};
use gabion_plan::{Keepings, Plan, check};
use gabion_planner::update::{UPDATE_SLICE_BYTES, UpdatePlanner, Waiting, check_left, missed};
use gabion_planner::{PlanError, Stripe};

/// A commit that has been planned and checked.
pub(crate) struct Commit {
    pub(crate) plan: Plan,
    /// Lost chunks that it would change. The caller has them noted first.
    pub(crate) missed: Vec<ChunkIndex>,
}

/// The term of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitTerms {
    pub(crate) epoch: Epoch,
    pub(crate) generation: Generation,
    /// The last settled update.
    pub(crate) mark: Sequence,
    /// The commit's own sequence.
    pub(crate) sequence: Sequence,
}

/// A commit's treatment of lost chunks that were not stale before: they will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Absent {
    /// Their nodes may return, and then each chunk counts again unless the commit stands. So the commit
    /// runs only where updates may run: it must not reduce a stripe to its last few chunks.
    MayReturn,
    /// They are rebuilt in any case, and wait for the commit.
    Abandoned,
}

impl Commit {
    /// Plans the commit of the appended updates.
    ///
    /// # Errors
    /// [`PlanError`] when the rest of the stripe does not suffice; [`Refusal::Failed`] for a plan that is
    /// wrong.
    pub(crate) fn plan(
        stripe: &Stripe<'_>,
        topology: &Topology,
        (scheme, keepings): (&dyn UpdatePlanner, Keepings),
        waiting: &Waiting,
    ) -> Result<Self, Refusal> {
        let refused =
            |error: PlanError| Refusal::Failed(format!("a commit cannot be made: {error}"));
        let appending = scheme.appending();
        let appending = appending
            .ok_or_else(|| Refusal::Failed("the pool's update scheme has no commits".to_owned()))?;
        let plan = appending.commit(stripe, topology, waiting, UPDATE_SLICE_BYTES);
        let plan = plan.map_err(refused)?.kept(keepings);
        check(&plan, stripe.code)
            .map_err(|error| Refusal::Failed(format!("the commit's plan is wrong: {error}")))?;
        let missed = missed(stripe, &waiting.ranges());
        Ok(Self { plan, missed })
    }

    /// Refuses a commit that leaves too few chunks with the state before it. `fresh` are missed chunks that
    /// were not stale.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`]: it may run when nodes have returned, or are no longer awaited.
    pub(crate) fn check_left(
        stripe: &Stripe<'_>,
        fresh: &[ChunkIndex],
        absent: Absent,
    ) -> Result<(), Refusal> {
        if fresh.is_empty() || absent == Absent::Abandoned {
            return Ok(());
        }
        let few = |_| {
            format!(
                "a node that the last updates of {} need for their commit",
                stripe.id
            )
        };
        check_left(stripe).map_err(|error| Refusal::Unavailable(few(error)))
    }

    /// Runs it. When it succeeds, the commit stands.
    ///
    /// # Errors
    /// The first part that failed; a settlement then decides whether the commit stands.
    pub(crate) async fn run(
        &self,
        ports: &dyn Ports,
        terms: CommitTerms,
        heard: &Heard,
    ) -> Result<(), PartFailed> {
        let effect = Effect::Record {
            sequence: terms.sequence,
            participants: record_holders(&self.plan),
        };
        let terms = RunTerms::new(
            RunId(ports.random()),
            (terms.epoch, terms.generation),
            ReadCut::Exactly(terms.mark),
            effect,
            Purpose::Commit,
            patience_ms(&self.plan),
        );
        let ran = run_heard(ports, &self.plan, &terms, no_own_part, heard);
        ran.await.map(|_| ())
    }
}
