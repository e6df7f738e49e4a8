//! The commits of a primary, for stripes whose parity follows later: before an update that must not precede
//! the commit, when a time or size limit is reached, or on demand. The primary also notes at the
//! coordinator which stripes may have updates that parity does not cover.

use super::batch::changed_bytes;
use super::{COORDINATOR_DEADLINE_MS, Primaries, Primary, lock};
use crate::commit::CommitTerms;
use crate::initiate::PartFailed;
use crate::message::{NodeStatus, Purpose, Refusal, ask};
use crate::ports::Ask as _;
use crate::term::Term;
use futures::FutureExt;
use gabion_layout::{PoolId, StripeId};
use gabion_planner::update::Waiting;

impl Primaries {
    /// Commits stripes when an update would exceed the limit of appended bytes. The limits are the pool's
    /// for each primary; if a commit fails, the update continues, because its own stripe has limits of its
    /// own.
    pub(super) async fn end_phases(
        &self,
        update: &ask::Update,
        nodes: &[NodeStatus],
    ) -> Result<(), Refusal> {
        if lock(&self.phases).is_empty() {
            return Ok(());
        }
        if let Some(pool) = self.append_pool(update.stripe).await? {
            let (of, now_ms) = ((pool, update.stripe), self.ports.now_ms());
            let due = lock(&self.phases).due_before(of, changed_bytes(update), now_ms);
            self.commit_all(due, nodes).await;
        }
        Ok(())
    }

    /// A stripe's pool, if it has append phases.
    async fn append_pool(&self, stripe: StripeId) -> Result<Option<PoolId>, Refusal> {
        let led = self.led(stripe);
        if let Some(&known) = led.append_pool.get() {
            return Ok(known);
        }
        // The caller needs the term next anyway.
        let _turn = led.turns.wait().await;
        let mut primary = led.primary.lock().await;
        self.ensure_term(&mut primary, stripe, None).await?;
        let term = primary.term.as_ref().expect("ensure_term has set it");
        let pool = term.append.as_ref().map(|&(pool, _)| pool);
        Ok(*led.append_pool.get_or_init(|| pool))
    }

    /// Commits updates that have reached their age limit.
    pub(crate) async fn commit_due(&self, nodes: &[NodeStatus]) {
        let due = lock(&self.phases).due(self.ports.now_ms());
        self.commit_all(due, nodes).await;
    }

    async fn commit_all(&self, stripes: Vec<StripeId>, nodes: &[NodeStatus]) {
        for stripe in stripes {
            if let Err(Refusal::NotPrimary(_) | Refusal::Failed(_)) =
                self.commit(stripe, nodes).await
            {
                // Another primary serves the stripe, or it is gone. The nodes with its records ask
                // periodically.
                lock(&self.phases).end(stripe);
            }
        }
    }

    /// Commits a stripe's appended updates, if there are any.
    pub(crate) async fn commit(
        &self,
        stripe: StripeId,
        nodes: &[NodeStatus],
    ) -> Result<(), Refusal> {
        let led = self.led(stripe);
        let _turn = led.turns.wait().await;
        let mut primary = led.primary.lock().await;
        self.ensure_whole_term(&mut primary, (stripe, None), nodes)
            .await?;
        self.commit_waiting(&mut primary, nodes).await
    }

    /// Makes sure that stripes with appended records on this node have a primary that counts them: this
    /// node, if there is no other.
    pub(crate) async fn adopt(&self, mut stripes: Vec<StripeId>) {
        stripes.retain(|&stripe| !lock(&self.phases).has(stripe));
        for stripe in stripes {
            let led = self.led(stripe);
            let _turn = led.turns.wait().await;
            let mut primary = led.primary.lock().await;
            // If it fails now, the next round asks again.
            let _ = self.ensure_term(&mut primary, stripe, None).await;
        }
    }

    pub(super) async fn commit_waiting(
        &self,
        primary: &mut Primary,
        nodes: &[NodeStatus],
    ) -> Result<(), Refusal> {
        let term = primary
            .term
            .as_mut()
            .expect("a committing primary has a term");
        if term.waiting.is_empty() {
            return self.end_phase(primary).await;
        }
        let commit = term.plan_commit(nodes)?;
        if let Err(refusal) = self.leave_out(term, commit.missed.clone()).await {
            primary.renounce();
            return Err(refusal);
        }
        let sequence = term.next;
        term.next = sequence.next();
        let terms = CommitTerms {
            epoch: term.epoch,
            generation: term.stripe.generation,
            mark: term.mark,
            sequence,
        };
        if let Err(PartFailed { refusal, .. }) = commit.run(&*self.ports, terms, &self.heard).await
        {
            primary.renounce();
            return Err(refusal);
        }
        lock(&self.planned).count_plan(&commit.plan, &term.topology, Purpose::Commit);
        let committed = std::mem::take(&mut term.waiting);
        self.suggest_grouping(term, &committed, nodes);
        self.spread_mark(primary.commit(sequence));
        self.end_phase(primary).await
    }

    /// Tells the coordinator which data chunks were committed together, if the pool's rule would move some
    /// of them. The coordinator moves them, because that changes the layout. No request waits for it, and
    /// no guarantee depends on it.
    fn suggest_grouping(&self, term: &Term, committed: &Waiting, nodes: &[NodeStatus]) {
        let updated = term.to_group(committed, nodes);
        if updated.is_empty() {
            return;
        }
        let stripe = term.stripe.id;
        let request = ask::Group { stripe, updated };
        let told = self.ports.ask_coordinator(request, COORDINATOR_DEADLINE_MS);
        self.ports.spawn(told.map(|_| ()).boxed());
    }

    /// No appended update is left; notes that at the coordinator.
    async fn end_phase(&self, primary: &mut Primary) -> Result<(), Refusal> {
        let term = primary
            .term
            .as_mut()
            .expect("a committing primary has a term");
        lock(&self.phases).end(term.stripe.id);
        let noted = self.note_phase(term, false).await;
        if noted.is_err() {
            // The note may still be on its way, and must not arrive after that of the next phase: a new
            // term makes the coordinator refuse it.
            primary.renounce();
        }
        noted
    }

    /// Notes at the coordinator whether there may be updates that parity does not cover.
    pub(super) async fn note_phase(&self, term: &mut Term, appends: bool) -> Result<(), Refusal> {
        if term.appends == appends {
            return Ok(());
        }
        let request = ask::NotePhase {
            stripe: term.stripe.id,
            epoch: term.epoch,
            mark: term.mark,
            appends,
        };
        self.tell_coordinator(request).await?;
        term.appends = appends;
        Ok(())
    }
}
