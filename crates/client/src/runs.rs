//! Runs of updates whose outcome a client does not know: an answer was lost, or a refusal leaves it
//! open. Each is *closed* before the client's next attempt or its next write to the stripe: from
//! then on the update has taken effect or never will, so that no write takes effect twice, and none
//! overwrites a later one of this client.

use crate::error::ClientError;
use crate::file::File;
use crate::layout::Layout;
use crate::open_runs::OpenRun;
use futures::future::join_all;
use gabion_layout::{ChunkId, ChunkIndex, Epoch, NodeId, Sequence, StripeRecord};
use gabion_planner::update;
use gabion_protocol::fate::{Witnesses, fate};
use gabion_protocol::message::{Refusal, RunFate, RunId, RunMemory, RunQuestion, ask};
use gabion_protocol::ports::{Ask as _, CoordinatorError, NodeError, ask_living};
use gabion_protocol::primary::failed_nodes;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

impl File {
    /// Closes the runs that earlier writes of this client have left open on a stripe.
    ///
    /// # Errors
    /// As [`File::close_run`].
    pub(crate) async fn close_left(
        &self,
        layout: &Layout,
        stripe: &StripeRecord,
        deadline_ms: u64,
    ) -> Result<(), Refusal> {
        let runs = &self.client.shared.open_runs;
        for (place, run) in runs.left(stripe.id) {
            // Whatever its outcome, it is final from now on.
            self.find_fate(layout, &run, deadline_ms).await?;
            runs.forget(place);
        }
        Ok(())
    }

    /// Determines and notes the final outcome of a run.
    async fn find_fate(
        &self,
        layout: &Layout,
        run: &OpenRun,
        deadline_ms: u64,
    ) -> Result<RunFate, Refusal> {
        if let Some(&fate) = run.fate.get() {
            return Ok(fate);
        }
        let mut stripes = layout.file.stripes.iter();
        let stripe = stripes.find(|stripe| stripe.id == run.question.stripe);
        let fate = self.close_run(layout, stripe, run, deadline_ms).await?;
        Ok(*run.fate.get_or_init(|| fate))
    }

    /// Determines the number of a run's update, for a run whose write has ended with an unknown
    /// outcome; none if it never takes effect.
    ///
    /// # Errors
    /// [`ClientError::Undecided`] when that cannot be determined in time;
    /// [`ClientError::Forgotten`]; [`ClientError::FileGone`].
    pub(crate) async fn decide(&self, run: &OpenRun) -> Result<Option<Sequence>, ClientError> {
        let what = format!("finding the outcome of a write of {}", self.name());
        let mut attempts = self.client.attempts(what, 0);
        loop {
            let undecided = |error| match error {
                gone @ ClientError::FileGone(_) => gone,
                other => ClientError::Undecided {
                    source: Box::new(other),
                },
            };
            let layout = self.layout_of(run.range).await.map_err(undecided)?;
            let found = self.find_fate(&layout, run, attempts.attempt_ms()).await;
            let missing = match found {
                Ok(RunFate::Stood(sequence)) => return Ok(Some(sequence)),
                Ok(RunFate::Never) => return Ok(None),
                Ok(RunFate::Forgotten) => {
                    return Err(ClientError::Forgotten(self.name().to_owned()));
                }
                Err(refusal) => refusal.to_string(),
            };
            let mut again = attempts.pause(missing).await;
            if again.is_ok() {
                again = self.refresh(run.range).await.map(drop);
            }
            again.map_err(undecided)?;
        }
    }

    /// Asks the nodes with a run's staged bytes to withdraw them, and returns their answers.
    pub(crate) fn withdraw(
        &self,
        open: &OpenRun,
        deadline_ms: u64,
    ) -> impl Future<Output = Vec<Result<bool, NodeError>>> + Send + 'static {
        let run: RunId = open.question.run;
        let unstage = |&node: &NodeId| {
            let ports = Arc::clone(&self.client.shared.ports);
            let request = ask::Unstage { run };
            async move { ask_living(&*ports, node, request, deadline_ms).await }
        };
        join_all(open.staged_at.iter().map(unstage))
    }

    /// Determines the outcome of a run, and makes it final, whatever is still on its way to its
    /// primary. `stripe` is the one in place of the run's in `layout`.
    ///
    /// The update takes new bytes from each node where some were staged. So it suffices that one of
    /// them has withdrawn the run, or was declared failed since, after which it withdraws all runs
    /// before it serves again. If the update had not begun there, it never will; otherwise the
    /// primary knows.
    ///
    /// # Errors
    /// The reason if it cannot be determined now.
    pub(crate) async fn close_run(
        &self,
        layout: &Layout,
        stripe: Option<&StripeRecord>,
        open: &OpenRun,
        deadline_ms: u64,
    ) -> Result<RunFate, Refusal> {
        let mut is_shut = false;
        for answer in self.withdraw(open, deadline_ms).await {
            match answer {
                Ok(true) => return Ok(RunFate::Never),
                Ok(false) => is_shut = true,
                Err(_) => {}
            }
        }
        let Some(stripe) = stripe.filter(|stripe| stripe.id == open.question.stripe) else {
            return self.fate_after_end(layout, open, deadline_ms).await;
        };
        if !is_shut && !self.has_failed_since(layout, open).await {
            let silent = open.staged_at.first().map(ToString::to_string);
            return Err(Refusal::Unavailable(silent.unwrap_or_default()));
        }
        let request = ask::Fate {
            question: open.question.clone(),
            ticket: layout.ticket(stripe.id),
        };
        let asked = self.ask_primary(layout, stripe, request, deadline_ms);
        Ok(asked.await?)
    }

    /// Whether a node where bytes of a run were staged is declared failed now. `layout` may be older than the run: then
    /// the node may have failed and returned before.
    async fn has_failed_since(&self, layout: &Layout, open: &OpenRun) -> bool {
        let shows_it = |layout: &Layout| {
            let failed = failed_nodes(&layout.file.nodes);
            open.staged_at.iter().any(|node| failed.contains(node))
        };
        if !shows_it(layout) {
            return false;
        }
        let present = self.refresh(open.range).await;
        present.is_ok_and(|present| shows_it(&present))
    }

    /// The outcome of a run whose stripe has ended. A stripe is settled before it ends, so the
    /// nodes with valid chunks have decided about every update, and they remember the runs of
    /// recently removed chunks. `layout` has the pools of the file.
    async fn fate_after_end(
        &self,
        layout: &Layout,
        open: &OpenRun,
        deadline_ms: u64,
    ) -> Result<RunFate, Refusal> {
        let asked = &open.question;
        let request = ask::Ended(asked.stripe);
        let ports = self.client.ports();
        let (ended, nodes) = match ports.ask_coordinator(request, deadline_ms).await {
            Ok(ended) => ended,
            Err(CoordinatorError::Busy(why)) => return Err(Refusal::Interrupted(why.sentence)),
            Err(CoordinatorError::Silent(error)) => return Err(Refusal::Unavailable(error.peer)),
            Err(error) => return Err(Refusal::Failed(error.to_string())),
        };
        let holders = ended.as_ref().map_or(&open.holders, |ended| &ended.nodes);
        let failed = failed_nodes(&nodes);
        let is_stale = |chunk| ended.as_ref().is_some_and(|ended| ended.is_stale(chunk));
        let mut asking = Vec::with_capacity(holders.len());
        for (index, &node) in (0..=u8::MAX).map(ChunkIndex).zip(holders) {
            if !is_stale(index) && !failed.contains(&node) {
                asking.push(self.recollect(asked, index, node, deadline_ms));
            }
        }
        let (mut memories, mut missing) = (BTreeMap::new(), None);
        for (index, answer) in join_all(asking).await {
            match answer {
                Ok(memory) => {
                    memories.insert(index, memory);
                }
                Err(error) => missing = missing.or(hindrance(error)),
            }
        }
        let would_know = |complete: &[ChunkIndex]| match &ended {
            Some(ended) => self.would_know(layout, ended, asked, complete),
            // If it took effect, it did so where its bytes were staged.
            None => Ok(asked.chunks.iter().any(|chunk| {
                let node = holders.get(chunk.at());
                complete.contains(chunk) && node.is_some_and(|node| open.staged_at.contains(node))
            })),
        };
        match fate(&memories, asked.after, would_know)? {
            RunFate::Forgotten => missing.map_or(Ok(RunFate::Forgotten), Err),
            fate => Ok(fate),
        }
    }

    /// A node's memory of a run of an ended stripe.
    async fn recollect(
        &self,
        asked: &RunQuestion,
        index: ChunkIndex,
        node: NodeId,
        deadline_ms: u64,
    ) -> (ChunkIndex, Result<RunMemory, NodeError>) {
        let &RunQuestion { stripe, run, .. } = asked;
        let chunk = ChunkId { stripe, index };
        // No term follows those of an ended stripe.
        let epoch = Epoch::LAST;
        let request = ask::Recollect { chunk, epoch, run };
        let answer = ask_living(&*self.client.shared.ports, node, request, deadline_ms);
        (index, answer.await)
    }

    /// Whether one of these chunks of an ended stripe would have a record of a run's update.
    fn would_know(
        &self,
        layout: &Layout,
        ended: &StripeRecord,
        asked: &RunQuestion,
        complete: &[ChunkIndex],
    ) -> Result<bool, Refusal> {
        let failed = |error: &dyn Display| Refusal::Failed(error.to_string());
        let geometry = layout.geometry(ended).map_err(|error| failed(&error))?;
        let pool = layout.spec(ended);
        let witnesses = Witnesses {
            stripe: self.stripe(ended, geometry, &[]),
            generation: ended.generation,
            topology: &layout.topology,
            scheme: update::scheme(pool.update),
            append: pool.append,
        };
        let known = witnesses.would_know(complete, asked);
        known.map_err(|error| failed(&error))
    }
}

/// The cause if a node has not told its memory of a chunk's runs and may tell it later: it cannot be reached, or does
/// not serve now. None if it has no memory of the chunk to tell.
fn hindrance(error: NodeError) -> Option<Refusal> {
    match error {
        NodeError::Refused(
            Refusal::NoSuchChunk(_)
            | Refusal::NoSuchStripe(_)
            | Refusal::Damaged(_)
            | Refusal::Invalid(_),
        ) => None,
        error => Some(error.into()),
    }
}

#[cfg(test)]
mod tests;
