//! What arrives at a node for runs: new bytes that clients stage before an update, and flow frames,
//! which may come before the part that they belong to. A client that does not know what became of an
//! update withdraws its run: from then on the part cannot begin here, however late it comes. Neither
//! can a part that has ended: a second copy of anything of its run is thrown away.

use crate::message::{Flow, Refusal, RunId};
use bytes::{Bytes, BytesMut};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use gabion_layout::{ByteRange, ChunkIndex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long frames and bytes wait for their part.
const KEEP_MS: u64 = 60_000;
/// The most bytes that may wait for their parts in all.
const MAX_STAGED_BYTES: u64 = 256 << 20;
/// The most runs that are remembered after their parts have ended.
const OVER_COUNT_MAX: usize = 1 << 16;

/// The runs that a node has heard of.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    runs: BTreeMap<RunId, Run>,
    staged_bytes: u64,
    over: Over,
}

/// The runs whose parts have ended, as long as anything of theirs may still be under way.
#[derive(Debug, Default)]
struct Over {
    runs: BTreeSet<RunId>,
    /// When each was over, oldest first. Invariant: the same runs.
    since_ms: VecDeque<(u64, RunId)>,
}

#[derive(Debug)]
struct Run {
    sender: UnboundedSender<Flow>,
    state: State,
    pieces: Vec<(ChunkIndex, u64, Bytes)>,
    since_ms: u64,
}

/// How far a run has come here.
#[derive(Debug)]
enum State {
    /// Its part may still come, and will find these frames.
    Waiting(UnboundedReceiver<Flow>),
    /// Its part is at work.
    Begun,
    /// Its part must not begin any more. Bytes that are staged later are refused.
    Withdrawn,
}

/// What was waiting for a part.
pub(crate) struct Arrivals {
    pub(crate) flows: UnboundedReceiver<Flow>,
    pub(crate) inputs: Inputs,
}

/// The new bytes of an update at one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// By chunk and offset.
    pieces: BTreeMap<(ChunkIndex, u64), Bytes>,
}

impl Staging {
    /// Keeps new bytes for a run.
    pub(crate) fn stage(
        &mut self,
        run: RunId,
        chunk: ChunkIndex,
        offset: u64,
        bytes: Bytes,
        now_ms: u64,
    ) -> Result<(), Refusal> {
        if self.staged_bytes + bytes.len() as u64 > MAX_STAGED_BYTES {
            return Err(Refusal::Unavailable(
                "a node that is busy with other updates".to_owned(),
            ));
        }
        if self.over.runs.contains(&run) {
            return Err(over(run));
        }
        let length = bytes.len() as u64;
        let entry = self.run(run, now_ms);
        if matches!(entry.state, State::Withdrawn) {
            return Err(withdrawn(run));
        }
        entry.pieces.push((chunk, offset, bytes));
        self.staged_bytes += length;
        Ok(())
    }

    /// Throws away what is staged for a run, whose part must not begin from now on. Whether bytes were
    /// waiting, so that the part has not begun either; otherwise it may have, or have ended.
    pub(crate) fn withdraw(&mut self, run: RunId, now_ms: u64) -> bool {
        if self.over.runs.contains(&run) {
            return false;
        }
        let entry = self.run(run, now_ms);
        if !matches!(entry.state, State::Waiting(_)) {
            return false;
        }
        entry.state = State::Withdrawn;
        entry.since_ms = now_ms;
        let pieces = std::mem::take(&mut entry.pieces);
        self.staged_bytes -= total_bytes(&pieces);
        !pieces.is_empty()
    }

    /// Withdraws all runs whose part has not begun: while this node was not a member, their clients
    /// may have been told to do without it.
    pub(crate) fn withdraw_all(&mut self, now_ms: u64) {
        let runs: Vec<RunId> = self.runs.keys().copied().collect();
        for run in runs {
            self.withdraw(run, now_ms);
        }
    }

    /// Hands a frame to its run, whether or not its part has come.
    pub(crate) fn flow(&mut self, flow: Flow, now_ms: u64) {
        if self.over.runs.contains(&flow.run()) {
            // Late frames of a part that has ended are of no use.
            return;
        }
        // Nor are those of one that was withdrawn, which nobody receives.
        let _ = self.run(flow.run(), now_ms).sender.unbounded_send(flow);
    }

    /// Starts a run: gives what has arrived, and routes what comes from now on.
    pub(crate) fn start(&mut self, run: RunId, now_ms: u64) -> Result<Arrivals, Refusal> {
        if self.over.runs.contains(&run) {
            return Err(over(run));
        }
        let entry = self.run(run, now_ms);
        let flows = match std::mem::replace(&mut entry.state, State::Begun) {
            State::Waiting(flows) => flows,
            State::Begun => {
                let taken = format!("run {} is running here already", run.0);
                return Err(Refusal::Invalid(taken));
            }
            State::Withdrawn => {
                entry.state = State::Withdrawn;
                return Err(withdrawn(run));
            }
        };
        let pieces = std::mem::take(&mut entry.pieces);
        self.staged_bytes -= total_bytes(&pieces);
        let pieces = pieces
            .into_iter()
            .map(|(chunk, at, bytes)| ((chunk, at), bytes))
            .collect();
        Ok(Arrivals {
            flows,
            inputs: Inputs { pieces },
        })
    }

    /// Ends a run: gives back what it holds, and remembers only that it is over.
    pub(crate) fn end(&mut self, run: RunId, now_ms: u64) {
        self.forget(run);
        self.over.add(run, now_ms);
    }

    fn forget(&mut self, run: RunId) {
        if let Some(run) = self.runs.remove(&run) {
            self.staged_bytes -= total_bytes(&run.pieces);
        }
    }

    /// Forgets runs whose part never came, and withdrawn ones: what was staged is gone.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        let old = |run: &Run| !matches!(run.state, State::Begun) && run.since_ms + KEEP_MS < now_ms;
        let expired: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| old(run))
            .map(|(&id, _)| id)
            .collect();
        for run in expired {
            self.forget(run);
        }
        self.over.expire(now_ms);
    }

    fn run(&mut self, run: RunId, now_ms: u64) -> &mut Run {
        self.runs.entry(run).or_insert_with(|| {
            let (sender, receiver) = unbounded();
            Run {
                sender,
                state: State::Waiting(receiver),
                pieces: Vec::new(),
                since_ms: now_ms,
            }
        })
    }
}

impl Over {
    fn add(&mut self, run: RunId, now_ms: u64) {
        if self.runs.insert(run) {
            self.since_ms.push_back((now_ms, run));
        }
        if self.since_ms.len() > OVER_COUNT_MAX {
            self.forget_oldest();
        }
    }

    fn expire(&mut self, now_ms: u64) {
        let is_old = |&(since_ms, _): &(u64, RunId)| since_ms + KEEP_MS < now_ms;
        while self.since_ms.front().is_some_and(is_old) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, run)) = self.since_ms.pop_front() {
            self.runs.remove(&run);
        }
    }
}

fn over(run: RunId) -> Refusal {
    Refusal::Invalid(format!("run {} is over here", run.0))
}

fn withdrawn(run: RunId) -> Refusal {
    Refusal::Invalid(format!("run {} was withdrawn by its client", run.0))
}

fn total_bytes(pieces: &[(ChunkIndex, u64, Bytes)]) -> u64 {
    pieces.iter().map(|(_, _, bytes)| bytes.len() as u64).sum()
}

impl Inputs {
    /// The new bytes of a range, if all of them were staged.
    pub(crate) fn read(&self, chunk: ChunkIndex, range: ByteRange) -> Result<Bytes, Refusal> {
        let missing = || Refusal::Invalid("an update's new bytes were not staged".to_owned());
        let mut gathered = BytesMut::new();
        let mut at = range.offset;
        while at < range.end() {
            let (&(_, offset), bytes) = self
                .pieces
                .range((chunk, 0)..=(chunk, at))
                .next_back()
                .ok_or_else(missing)?;
            let skip = usize::try_from(at - offset).map_err(|_| missing())?;
            if skip >= bytes.len() {
                return Err(missing());
            }
            let wanted = (range.end() - at).min((bytes.len() - skip) as u64) as usize;
            let piece = bytes.slice(skip..skip + wanted);
            if wanted as u64 == range.length {
                return Ok(piece);
            }
            gathered.extend_from_slice(&piece);
            at += wanted as u64;
        }
        Ok(gathered.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: ChunkIndex = ChunkIndex(2);

    #[test]
    fn inputs_are_read_across_pieces_and_gaps_are_refused() {
        let mut staging = Staging::default();
        let run = RunId(1);
        staging
            .stage(run, CHUNK, 10, Bytes::from_static(b"abcde"), 0)
            .unwrap();
        staging
            .stage(run, CHUNK, 15, Bytes::from_static(b"fgh"), 0)
            .unwrap();
        staging
            .stage(run, CHUNK, 30, Bytes::from_static(b"xyz"), 0)
            .unwrap();
        let inputs = staging.start(run, 0).unwrap().inputs;
        let read = |offset, length| inputs.read(CHUNK, ByteRange::new(offset, length));
        assert_eq!(read(10, 8).unwrap(), "abcdefgh");
        assert_eq!(read(12, 5).unwrap(), "cdefg");
        assert_eq!(read(31, 2).unwrap(), "yz");
        for (offset, length) in [(9, 2), (16, 4), (25, 1), (32, 2)] {
            assert!(read(offset, length).is_err(), "{offset}+{length}");
        }
        assert!(inputs.read(ChunkIndex(1), ByteRange::new(10, 1)).is_err());
    }

    #[test]
    fn a_withdrawn_run_never_begins_however_late_its_messages_come() {
        let mut staging = Staging::default();
        let (waiting, begun, unknown) = (RunId(1), RunId(2), RunId(3));
        let bytes = Bytes::from_static(b"new");
        for run in [waiting, begun] {
            staging.stage(run, CHUNK, 0, bytes.clone(), 0).unwrap();
        }
        staging.start(begun, 0).unwrap();
        assert!(staging.withdraw(waiting, 5), "its bytes were waiting");
        assert!(!staging.withdraw(waiting, 6), "and are gone");
        assert!(!staging.withdraw(begun, 5), "it may yet be committed");
        assert!(!staging.withdraw(unknown, 5), "it may have been committed");
        for run in [waiting, unknown] {
            assert!(staging.start(run, 7).is_err());
            assert!(staging.stage(run, CHUNK, 0, bytes.clone(), 7).is_err());
        }
        staging.expire(KEEP_MS + 5);
        assert!(
            staging.start(waiting, KEEP_MS + 5).is_err(),
            "kept as long as bytes are"
        );
        staging.expire(KEEP_MS + 7);
        assert!(staging.runs.len() == 1, "only the part at work is left");
        assert_eq!(staging.staged_bytes, 0);
    }

    #[test]
    fn a_run_that_is_over_takes_no_second_copy_of_anything() {
        let mut staging = Staging::default();
        let run = RunId(1);
        let bytes = Bytes::from_static(b"new");
        staging.stage(run, CHUNK, 0, bytes.clone(), 0).unwrap();
        staging.start(run, 0).unwrap();
        staging.end(run, 5);
        assert!(staging.stage(run, CHUNK, 0, bytes.clone(), 6).is_err());
        assert!(staging.start(run, 6).is_err());
        assert!(!staging.withdraw(run, 6), "it may have been committed");
        staging.flow(Flow::Abort { run }, 6);
        assert!(staging.runs.is_empty() && staging.staged_bytes == 0);
        staging.expire(KEEP_MS + 5);
        assert!(staging.start(run, KEEP_MS + 5).is_err());
        staging.expire(KEEP_MS + 6);
        assert!(staging.over.runs.is_empty() && staging.over.since_ms.is_empty());
    }

    #[test]
    fn no_more_runs_are_remembered_than_fit() {
        let mut staging = Staging::default();
        for run in 0..=OVER_COUNT_MAX as u64 {
            staging.end(RunId(run), 0);
        }
        assert_eq!(staging.over.runs.len(), OVER_COUNT_MAX);
        assert!(staging.start(RunId(1), 0).is_err());
        assert!(
            staging.start(RunId(0), 0).is_ok(),
            "the oldest is forgotten"
        );
    }

    #[test]
    fn what_waits_while_a_node_is_away_is_withdrawn() {
        let mut staging = Staging::default();
        let bytes = Bytes::from_static(b"new");
        staging.stage(RunId(1), CHUNK, 0, bytes, 0).unwrap();
        staging.withdraw_all(9);
        assert!(staging.start(RunId(1), 10).is_err());
        assert_eq!(staging.staged_bytes, 0);
    }

    #[test]
    fn a_run_starts_once_and_memory_is_given_back() {
        let mut staging = Staging::default();
        let big = Bytes::from(vec![0; MAX_STAGED_BYTES as usize / 2 + 1]);
        staging.stage(RunId(1), CHUNK, 0, big.clone(), 0).unwrap();
        assert!(staging.stage(RunId(2), CHUNK, 0, big.clone(), 0).is_err());
        staging.start(RunId(1), 0).unwrap();
        assert!(staging.start(RunId(1), 0).is_err());
        staging.stage(RunId(2), CHUNK, 0, big.clone(), 0).unwrap();
        staging.expire(KEEP_MS + 1);
        staging.stage(RunId(3), CHUNK, 0, big, KEEP_MS + 1).unwrap();
    }
}
