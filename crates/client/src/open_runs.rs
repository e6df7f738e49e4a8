//! Runs of updates, replacements of stripes and writes of inline bytes, with an outcome that a client does not know
//! yet, and their owners.

use gabion_layout::{ByteRange, NodeId, StripeId};
use gabion_protocol::message::{OpenPut, RunFate, RunQuestion, ask};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Most runs that a client remembers after their writes have ended. Nodes keep staged bytes for a
/// minute, and no run begins later than that.
const LEFT_COUNT_MAX: usize = 4096;

/// A requested run.
#[derive(Debug)]
pub(crate) struct OpenRun {
    pub(crate) question: RunQuestion,
    /// The range of the file that it writes, at least.
    pub(crate) range: ByteRange,
    /// The nodes with its staged bytes.
    pub(crate) staged_at: Vec<NodeId>,
    /// The stripe's nodes, by chunk.
    pub(crate) holders: Vec<NodeId>,
    /// Its outcome, once known.
    pub(crate) fate: OnceLock<RunFate>,
}

/// A replacement of stripes whose commit was requested.
#[derive(Debug)]
pub(crate) struct OpenReplacement {
    pub(crate) put: OpenPut,
    /// The stripes that it displaces.
    pub(crate) displaced: Vec<StripeId>,
    /// Whether it was committed, once known.
    pub(crate) is_committed: OnceLock<bool>,
}

/// A write of inline bytes that was requested.
#[derive(Debug)]
pub(crate) struct OpenInlineWrite {
    pub(crate) request: ask::WriteInline,
    /// Whether it was made, once known.
    pub(crate) is_made: OnceLock<bool>,
}

/// An attempt to write that may take effect although its write has failed, or has no caller any more.
#[derive(Clone, Debug)]
pub(crate) enum Attempted {
    /// By an update in place.
    Update(Arc<OpenRun>),
    /// By a replacement.
    Replacement(Arc<OpenReplacement>),
    /// By a write of inline bytes.
    Inline(Arc<OpenInlineWrite>),
}

impl Attempted {
    /// Whether it is known not to have taken effect.
    fn is_void(&self) -> bool {
        match self {
            Self::Update(run) => run.fate.get() == Some(&RunFate::Never),
            Self::Replacement(open) => open.is_committed.get() == Some(&false),
            Self::Inline(open) => open.is_made.get() == Some(&false),
        }
    }
}

/// The last attempt of a write: it remains when the write fails, or when its caller stops waiting for it.
#[derive(Debug, Default)]
pub(crate) struct LastAttempt(Mutex<Option<Attempted>>);

impl LastAttempt {
    /// Notes that an attempt is about to be requested.
    pub(crate) fn set(&self, attempted: Attempted) {
        *self.lock() = Some(attempted);
    }

    /// The attempt, if it is a write of inline bytes.
    pub(crate) fn inline(&self) -> Option<Arc<OpenInlineWrite>> {
        match &*self.lock() {
            Some(Attempted::Inline(open)) => Some(Arc::clone(open)),
            _ => None,
        }
    }

    /// Takes the attempt, unless it is known not to have taken effect.
    pub(crate) fn take_doubt(&self) -> Option<Attempted> {
        let attempted = self.lock().take();
        attempted.filter(|attempted| !attempted.is_void())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Attempted>> {
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
    pub(crate) fn left(&self, stripe: StripeId) -> Vec<(u64, Arc<OpenRun>)> {
        let runs = self.lock();
        let is_meant = |known: &Known| known.is_left && known.run.question.stripe == stripe;
        let left = runs.all.iter().filter(|(_, known)| is_meant(known));
        left.map(|(&place, known)| (place, Arc::clone(&known.run)))
            .collect()
    }

    pub(crate) fn forget(&self, place: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{ChunkIndex, Generation, Sequence};
    use gabion_protocol::message::RunId;

    fn run(run: u64, stripe: u64) -> OpenRun {
        OpenRun {
            question: RunQuestion {
                stripe: StripeId(stripe),
                generation: Generation(1),
                run: RunId(run),
                after: Sequence(0),
                chunks: vec![ChunkIndex(0)],
            },
            range: ByteRange::new(0, 1),
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
