//! Runs of updates whose outcome a client does not know: an answer was lost, or a refusal leaves it
//! open. Each is *closed* before the client's next attempt or its next write to the stripe: from
//! then on the update has taken effect or never will, so that no write takes effect twice, and none
//! overwrites a later one of this client.

use crate::error::ClientError;
use crate::file::{File, Layout};
use futures::future::join_all;
use gabion_layout::{ChunkId, ChunkIndex, Epoch, NodeId, Sequence, StripeId, StripeRecord};
use gabion_planner::update;
use gabion_protocol::fate::{Witnesses, fate};
use gabion_protocol::message::{Refusal, RunFate, RunId, RunMemory, RunQuestion, ask};
use gabion_protocol::ports::{Ask as _, CoordinatorError, NodeError, ask_living};
use gabion_protocol::primary::failed_nodes;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Most runs that a client remembers after their writes have ended. Nodes keep staged bytes for a
/// minute, and no run begins later than that.
const LEFT_COUNT_MAX: usize = 4096;

/// A requested run.
#[derive(Debug)]
pub(crate) struct OpenRun {
    pub(crate) question: RunQuestion,
    /// The nodes with its staged bytes.
    pub(crate) staged_at: Vec<NodeId>,
    /// The stripe's nodes, by chunk.
    pub(crate) holders: Vec<NodeId>,
    /// Its outcome, once known.
    pub(crate) fate: OnceLock<RunFate>,
}

/// The last run that a write requested: it remains when the write fails, or when its caller stops
/// waiting for it.
#[derive(Debug, Default)]
pub(crate) struct LastRun(Mutex<Option<Arc<OpenRun>>>);

impl LastRun {
    pub(crate) fn set(&self, run: &Arc<OpenRun>) {
        *self.lock() = Some(Arc::clone(run));
    }

    /// Takes the run, unless it is known not to have taken effect.
    pub(crate) fn take_doubt(&self) -> Option<Arc<OpenRun>> {
        let run = self.lock().take();
        run.filter(|run| run.fate.get() != Some(&RunFate::Never))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<OpenRun>>> {
        // It is written at once and whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All runs of a client with an unknown outcome.
#[derive(Debug, Default)]
pub(crate) struct OpenRuns(Mutex<Runs>);

#[derive(Debug, Default)]
struct Runs {
    sent_count: u64,
    /// By their position in the order of sending.
    all: BTreeMap<u64, Known>,
}

#[derive(Debug)]
struct Known {
    run: Arc<OpenRun>,
    /// Its write has ended without knowing the outcome.
    is_left: bool,
}

/// A run of an active write. Dropping it leaves the run to the next write of the stripe.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) run: Arc<OpenRun>,
    runs: Arc<OpenRuns>,
    place: u64,
}

impl OpenRuns {
    /// Notes that a run is about to be requested.
    pub(crate) fn send(self: &Arc<Self>, run: OpenRun) -> Sent {
        let run = Arc::new(run);
        let mut runs = self.lock();
        let place = runs.sent_count;
        runs.sent_count += 1;
        let known = Known {
            run: Arc::clone(&run),
            is_left: false,
        };
        runs.all.insert(place, known);
        Sent {
            run,
            runs: Arc::clone(self),
            place,
        }
    }

    /// The runs that earlier writes of a stripe have left open.
    fn left(&self, stripe: StripeId) -> Vec<(u64, Arc<OpenRun>)> {
        let runs = self.lock();
        let is_meant = |known: &Known| known.is_left && known.run.question.stripe == stripe;
        let left = runs.all.iter().filter(|(_, known)| is_meant(known));
        left.map(|(&place, known)| (place, Arc::clone(&known.run)))
            .collect()
    }

    fn forget(&self, place: u64) {
        self.lock().all.remove(&place);
    }

    fn leave(&self, place: u64) {
        let mut runs = self.lock();
        if let Some(known) = runs.all.get_mut(&place) {
            known.is_left = true;
        }
        let left = runs.all.iter().filter(|(_, known)| known.is_left);
        let left: Vec<u64> = left.map(|(&place, _)| place).collect();
        for oldest in &left[..left.len().saturating_sub(LEFT_COUNT_MAX)] {
            runs.all.remove(oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        // The map is consistent after every step, even if a caller panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sent {
    /// Notes the outcome of the run.
    pub(crate) fn close(self, fate: RunFate) {
        // A run has one outcome, so a second answer is the same.
        let _ = self.run.fate.set(fate);
        self.runs.forget(self.place);
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // A closed one is no longer listed.
        self.runs.leave(self.place);
    }
}

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
    /// [`ClientError::Forgotten`]; [`ClientError::Replaced`].
    pub(crate) async fn decide(&self, run: &OpenRun) -> Result<Option<Sequence>, ClientError> {
        let what = format!("finding out what became of a write of {}", self.name());
        let mut attempts = self.client.attempts(what, 0);
        loop {
            let found = self
                .find_fate(&self.layout(), run, attempts.attempt_ms())
                .await;
            let missing = match found {
                Ok(RunFate::Stood(sequence)) => return Ok(Some(sequence)),
                Ok(RunFate::Never) => return Ok(None),
                Ok(RunFate::Forgotten) => {
                    return Err(ClientError::Forgotten(self.name().to_owned()));
                }
                Err(refusal) => refusal.to_string(),
            };
            let mut again = attempts.pause(&missing).await;
            if again.is_ok() {
                again = self.refresh().await;
            }
            again.map_err(|error| match error {
                replaced @ ClientError::Replaced(_) => replaced,
                other => ClientError::Undecided {
                    source: Box::new(other),
                },
            })?;
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
    /// primary. `layout` was looked up after the run was requested; `stripe` is the current one in
    /// place of the run's.
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
        let failed = failed_nodes(&layout.file.nodes);
        if !is_shut && !open.staged_at.iter().any(|node| failed.contains(node)) {
            let silent = open.staged_at.first().map(ToString::to_string);
            return Err(Refusal::Unavailable(silent.unwrap_or_default()));
        }
        let question = open.question.clone();
        let asked = self.ask_primary(layout, stripe, question, deadline_ms);
        Ok(asked.await?)
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
            Err(CoordinatorError::Busy(why)) => return Err(Refusal::Unavailable(why)),
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
        let answers = join_all(asking).await;
        let said = answers.iter().filter_map(|(index, answer)| {
            let memory = answer.as_ref().ok()?;
            Some((*index, *memory))
        });
        let would_know = |complete: &[ChunkIndex]| match &ended {
            Some(ended) => self.would_know(layout, ended, asked, complete),
            // If it took effect, it did so where its bytes were staged.
            None => Ok(asked.chunks.iter().any(|chunk| {
                let node = holders.get(chunk.at());
                complete.contains(chunk) && node.is_some_and(|node| open.staged_at.contains(node))
            })),
        };
        let silent = answers.iter().find_map(|(_, answer)| match answer {
            Err(NodeError::Silent(error)) => Some(error),
            _ => None,
        });
        match fate(&said.collect(), asked.after, would_know)? {
            RunFate::Forgotten => silent.map_or(Ok(RunFate::Forgotten), |error| {
                Err(Refusal::Unavailable(error.peer.clone()))
            }),
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
        let epoch = Epoch(u64::MAX);
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

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::Generation;

    fn run(run: u64, stripe: u64) -> OpenRun {
        OpenRun {
            question: RunQuestion {
                stripe: StripeId(stripe),
                generation: Generation(1),
                run: RunId(run),
                after: Sequence(0),
                chunks: vec![ChunkIndex(0)],
            },
            staged_at: vec![NodeId(1)],
            holders: vec![NodeId(1)],
            fate: OnceLock::new(),
        }
    }

    fn left(runs: &OpenRuns, stripe: u64) -> Vec<u64> {
        let left = runs.left(StripeId(stripe));
        left.iter().map(|(_, run)| run.question.run.0).collect()
    }

    #[test]
    fn a_run_is_left_when_its_write_ends_without_the_outcome() {
        let runs = Arc::new(OpenRuns::default());
        let (first, second) = (runs.send(run(1, 7)), runs.send(run(2, 7)));
        let other = runs.send(run(3, 8));
        assert_eq!(left(&runs, 7), [], "their writes go on");
        first.close(RunFate::Never);
        drop(second);
        drop(other);
        assert_eq!((left(&runs, 7), left(&runs, 8)), (vec![2], vec![3]));
        let (place, _) = runs.left(StripeId(7))[0];
        runs.forget(place);
        assert_eq!(left(&runs, 7), []);
    }

    #[test]
    fn beyond_the_limit_the_oldest_run_is_forgotten() {
        let runs = Arc::new(OpenRuns::default());
        let going_on = runs.send(run(u64::MAX, 7));
        for at in 0..=LEFT_COUNT_MAX as u64 {
            drop(runs.send(run(at, 7)));
        }
        let left = left(&runs, 7);
        assert_eq!((left.len(), left[0]), (LEFT_COUNT_MAX, 1));
        going_on.close(RunFate::Never);
    }
}
