//! Early arrivals at a node for runs: new bytes that clients stage before an update, and flow frames, which may
//! arrive before their part. A client that does not know the outcome of an update withdraws its run: from then
//! on the part cannot begin here, however late it arrives. Neither can a part that has ended: second copies of
//! its run's messages are discarded.

use crate::limits::Limits;
use crate::message::{Flow, Refusal, RunId};
use crate::ports::Address;
use bytes::{Bytes, BytesMut};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use gabion_layout::{ByteRange, ChunkIndex};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long frames and bytes wait for their part.
const KEEP_MS: u64 = 60_000;
/// The most bytes of slices that may wait for their parts.
const MAX_WAITING_BYTES: u64 = 256 << 20;
/// The most of them of one peer.
const MAX_WAITING_BYTES_OF_PEER: u64 = 128 << 20;
/// The most frames that may wait for their parts: short ones take memory too.
const WAITING_COUNT_MAX: u64 = 1 << 20;
/// The most of them of one peer.
const WAITING_COUNT_MAX_OF_PEER: u64 = 1 << 19;
/// The most staged pieces, and those of one client.
const PIECE_COUNT_MAX: u64 = 1 << 20;
const PIECE_COUNT_MAX_OF_CLIENT: u64 = 1 << 19;
/// The most runs that are known and not over.
const RUN_COUNT_MAX: usize = 1 << 16;
/// The most runs that are remembered after their parts have ended.
const OVER_COUNT_MAX: usize = 1 << 16;

/// The names of the limits, in metrics.
const LIMITS: [&str; 4] = [
    "staged_bytes",
    "client_staged_bytes",
    "early_frames",
    "runs",
];

/// The runs that a node knows.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    limits: Limits,
    runs: BTreeMap<RunId, Run>,
    staged: Load,
    /// The part of it that each client has staged. Invariant: no zeros.
    staged_by: BTreeMap<Address, Load>,
    /// Slices and other frames that wait for their parts.
    waiting: Load,
    /// The part of them that each peer has sent, where it is known. Invariant: no zeros.
    waiting_by: BTreeMap<Address, Load>,
    over: Over,
    /// How often each limit has refused bytes or frames.
    limited: BTreeMap<&'static str, u64>,
}

/// What is held: bytes, and the pieces or frames that they are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Load {
    bytes: u64,
    count: u64,
}

impl Load {
    const fn one(bytes: u64) -> Self {
        Self { bytes, count: 1 }
    }

    const fn with(self, more: Self) -> Self {
        Self {
            bytes: self.bytes + more.bytes,
            count: self.count + more.count,
        }
    }

    const fn without(self, less: Self) -> Self {
        Self {
            bytes: self.bytes - less.bytes,
            count: self.count - less.count,
        }
    }

    const fn is_within(self, bytes: u64, count: u64) -> bool {
        self.bytes <= bytes && self.count <= count
    }
}

/// Takes a load away from a peer's.
fn relieve(of: &mut BTreeMap<Address, Load>, peer: Address, less: Load) {
    if let Entry::Occupied(mut load) = of.entry(peer) {
        *load.get_mut() = load.get().without(less);
        if *load.get() == Load::default() {
            load.remove();
        }
    }
}

/// The runs whose parts have ended, as long as messages of theirs may still be under way.
#[derive(Debug, Default)]
struct Over {
    runs: BTreeSet<RunId>,
    /// The end of each, oldest first. Invariant: the same runs.
    since_ms: VecDeque<(u64, RunId)>,
}

#[derive(Debug)]
struct Run {
    sender: UnboundedSender<Flow>,
    state: State,
    pieces: Vec<Staged>,
    /// Frames that wait for the part, by their sender.
    waiting: BTreeMap<Option<Address>, Load>,
    since_ms: u64,
}

/// New bytes that a client has sent.
#[derive(Debug)]
struct Staged {
    from: Address,
    chunk: ChunkIndex,
    offset: u64,
    bytes: Bytes,
}

/// The state of a run here.
#[derive(Debug)]
enum State {
    /// Its part may still come, and will find these frames.
    Waiting(UnboundedReceiver<Flow>),
    /// Its part is running.
    Begun,
    /// Its part must not begin any more. Bytes that are staged later are refused.
    Withdrawn,
}

/// The bytes and frames that wait for a part.
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
    /// An empty set.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Keeps new bytes for a run.
    pub(crate) fn stage(
        &mut self,
        run: RunId,
        from: Address,
        (chunk, offset, bytes): (ChunkIndex, u64, Bytes),
        now_ms: u64,
    ) -> Result<(), Refusal> {
        let load = Load::one(bytes.len() as u64);
        let all = self.staged.with(load);
        let of_client = self.staged_by.get(&from).copied().unwrap_or_default();
        let of_client = of_client.with(load);
        let has_room = self.has_room_for(run);
        if !all.is_within(self.limits.staged_bytes, PIECE_COUNT_MAX) || !has_room {
            self.note_limit(if has_room { "staged_bytes" } else { "runs" });
            let busy = "a node that is busy with other updates";
            return Err(Refusal::Unavailable(busy.to_owned()));
        }
        if !of_client.is_within(self.limits.client_bytes, PIECE_COUNT_MAX_OF_CLIENT) {
            self.note_limit("client_staged_bytes");
            let busy = "a node that is busy with other updates of this client";
            return Err(Refusal::Unavailable(busy.to_owned()));
        }
        if self.over.runs.contains(&run) {
            return Err(over(run));
        }
        let entry = self.run(run, now_ms);
        if matches!(entry.state, State::Withdrawn) {
            return Err(withdrawn(run));
        }
        entry.pieces.push(Staged {
            from,
            chunk,
            offset,
            bytes,
        });
        self.staged = all;
        self.staged_by.insert(from, of_client);
        Ok(())
    }

    fn note_limit(&mut self, limit: &'static str) {
        *self.limited.entry(limit).or_default() += 1;
    }

    /// Bytes that clients have staged, bytes of frames that wait for their parts, and how often each limit has
    /// refused some.
    pub(crate) fn figures(&self) -> (u64, u64, BTreeMap<&'static str, u64>) {
        let count = |limit| (limit, self.limited.get(limit).copied().unwrap_or(0));
        let limited = LIMITS.map(count);
        (self.staged.bytes, self.waiting.bytes, limited.into())
    }

    /// Whether a run is known, or there is room for one more.
    fn has_room_for(&self, run: RunId) -> bool {
        self.runs.len() < RUN_COUNT_MAX || self.runs.contains_key(&run)
    }

    /// Releases the room of the staged bytes.
    fn release(&mut self, pieces: &[Staged]) {
        for piece in pieces {
            let load = Load::one(piece.bytes.len() as u64);
            self.staged = self.staged.without(load);
            relieve(&mut self.staged_by, piece.from, load);
        }
    }

    /// Releases the room of frames that have waited.
    fn release_waiting(&mut self, waited: BTreeMap<Option<Address>, Load>) {
        for (from, load) in waited {
            self.waiting = self.waiting.without(load);
            if let Some(from) = from {
                relieve(&mut self.waiting_by, from, load);
            }
        }
    }

    /// Discards the staged bytes of a run, whose part must not begin from now on. Returns whether bytes
    /// were waiting, so that the part has not begun either; otherwise it may have begun or ended.
    pub(crate) fn withdraw(&mut self, run: RunId, now_ms: u64) -> bool {
        if self.over.runs.contains(&run) {
            return false;
        }
        let Some(entry) = self.runs.get_mut(&run) else {
            // Nothing has come yet. What comes late finds the run over; so much is remembered within limits.
            self.over.add(run, now_ms);
            return false;
        };
        if !matches!(entry.state, State::Waiting(_)) {
            return false;
        }
        entry.state = State::Withdrawn;
        entry.since_ms = now_ms;
        let waited = std::mem::take(&mut entry.waiting);
        let pieces = std::mem::take(&mut entry.pieces);
        self.release_waiting(waited);
        self.release(&pieces);
        !pieces.is_empty()
    }

    /// Withdraws all runs whose part has not begun: while this node was not a member, their clients may
    /// have been told to leave it out.
    pub(crate) fn withdraw_all(&mut self, now_ms: u64) {
        let runs: Vec<RunId> = self.runs.keys().copied().collect();
        for run in runs {
            self.withdraw(run, now_ms);
        }
    }

    /// Hands a frame to its run, whether or not its part has arrived. If there is no room for a frame of its sender, the
    /// frame is discarded: its part fails, and the sender retries.
    pub(crate) fn flow(&mut self, flow: Flow, from: Option<Address>, now_ms: u64) {
        if self.over.runs.contains(&flow.run()) {
            // Late frames of an ended part are discarded.
            return;
        }
        if !self.has_room_for(flow.run()) {
            self.note_limit("runs");
            return;
        }
        let load = Load::one(match &flow {
            Flow::Slice { bytes, .. } => bytes.len() as u64,
            Flow::Credit { .. } | Flow::Abort { .. } => 0,
        });
        let all = self.waiting.with(load);
        let of_peer = from.and_then(|from| self.waiting_by.get(&from).copied());
        let of_peer = of_peer.unwrap_or_default().with(load);
        let has_room = all.is_within(MAX_WAITING_BYTES, WAITING_COUNT_MAX)
            && (from.is_none()
                || of_peer.is_within(MAX_WAITING_BYTES_OF_PEER, WAITING_COUNT_MAX_OF_PEER));
        let run = self.run(flow.run(), now_ms);
        if matches!(run.state, State::Waiting(_)) {
            if !has_room {
                self.note_limit("early_frames");
                return;
            }
            let waiting = run.waiting.entry(from).or_default();
            *waiting = waiting.with(load);
            // So are those of a withdrawn run, which has no receiver.
            let _ = run.sender.unbounded_send(flow);
            self.waiting = all;
            if let Some(from) = from {
                self.waiting_by.insert(from, of_peer);
            }
        } else {
            let _ = run.sender.unbounded_send(flow);
        }
    }

    /// Starts a run: returns its early frames, and routes later ones.
    pub(crate) fn start(&mut self, run: RunId, now_ms: u64) -> Result<Arrivals, Refusal> {
        if self.over.runs.contains(&run) {
            return Err(over(run));
        }
        let entry = self.run(run, now_ms);
        let flows = match std::mem::replace(&mut entry.state, State::Begun) {
            State::Waiting(flows) => flows,
            State::Begun => {
                let taken = format!("run {} is running here already", run.0);
                return Err(Refusal::Interrupted(taken));
            }
            State::Withdrawn => {
                entry.state = State::Withdrawn;
                return Err(withdrawn(run));
            }
        };
        let waited = std::mem::take(&mut entry.waiting);
        let pieces = std::mem::take(&mut entry.pieces);
        self.release_waiting(waited);
        self.release(&pieces);
        let pieces = pieces
            .into_iter()
            .map(|piece| ((piece.chunk, piece.offset), piece.bytes))
            .collect();
        Ok(Arrivals {
            flows,
            inputs: Inputs { pieces },
        })
    }

    /// Ends a run: releases its room, and remembers only that it is over.
    pub(crate) fn end(&mut self, run: RunId, now_ms: u64) {
        self.forget(run);
        self.over.add(run, now_ms);
    }

    fn forget(&mut self, run: RunId) {
        if let Some(run) = self.runs.remove(&run) {
            self.release_waiting(run.waiting);
            self.release(&run.pieces);
        }
    }

    /// Forgets runs whose part never arrived, and withdrawn ones, with their staged bytes.
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
                waiting: BTreeMap::new(),
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
    Refusal::Interrupted(format!("run {} is over here", run.0))
}

fn withdrawn(run: RunId) -> Refusal {
    // Its client withdrew it, or this node was away: the bytes can be staged again for another run.
    Refusal::Unavailable(format!("a node that has dropped run {}", run.0))
}

impl Inputs {
    /// The new bytes of a range, if all of them were staged.
    pub(crate) fn read(&self, chunk: ChunkIndex, range: ByteRange) -> Result<Bytes, Refusal> {
        let missing = || Refusal::Interrupted("the new bytes of an update are not here".to_owned());
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

    const SMALL: Limits = Limits {
        primary_stripe_count: 1,
        staged_bytes: 200,
        client_bytes: 100,
    };
    const CHUNK: ChunkIndex = ChunkIndex(2);
    const CLIENT: Address = Address::Origin(1);

    #[test]
    fn inputs_are_read_across_pieces_and_gaps_are_refused() {
        let mut staging = Staging::default();
        let run = RunId(1);
        staging
            .stage(run, CLIENT, (CHUNK, 10, Bytes::from_static(b"abcde")), 0)
            .unwrap();
        staging
            .stage(run, CLIENT, (CHUNK, 15, Bytes::from_static(b"fgh")), 0)
            .unwrap();
        staging
            .stage(run, CLIENT, (CHUNK, 30, Bytes::from_static(b"xyz")), 0)
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
            staging
                .stage(run, CLIENT, (CHUNK, 0, bytes.clone()), 0)
                .unwrap();
        }
        staging.start(begun, 0).unwrap();
        assert!(staging.withdraw(waiting, 5), "its bytes were waiting");
        assert!(!staging.withdraw(waiting, 6), "and are gone");
        assert!(!staging.withdraw(begun, 5), "it may yet be committed");
        assert!(!staging.withdraw(unknown, 5), "it may have been committed");
        for run in [waiting, unknown] {
            assert!(staging.start(run, 7).is_err());
            assert!(
                staging
                    .stage(run, CLIENT, (CHUNK, 0, bytes.clone()), 7)
                    .is_err()
            );
        }
        staging.expire(KEEP_MS + 5);
        assert!(
            staging.start(waiting, KEEP_MS + 5).is_err(),
            "kept as long as bytes are"
        );
        staging.expire(KEEP_MS + 7);
        assert!(staging.runs.len() == 1, "only the part at work is left");
        assert_eq!(staging.staged.bytes, 0);
    }

    #[test]
    fn a_run_that_is_over_takes_no_second_copy_of_anything() {
        let mut staging = Staging::default();
        let run = RunId(1);
        let bytes = Bytes::from_static(b"new");
        staging
            .stage(run, CLIENT, (CHUNK, 0, bytes.clone()), 0)
            .unwrap();
        staging.start(run, 0).unwrap();
        staging.end(run, 5);
        assert!(
            staging
                .stage(run, CLIENT, (CHUNK, 0, bytes.clone()), 6)
                .is_err()
        );
        assert!(staging.start(run, 6).is_err());
        assert!(!staging.withdraw(run, 6), "it may have been committed");
        staging.flow(Flow::Abort { run }, None, 6);
        assert!(staging.runs.is_empty() && staging.staged.bytes == 0);
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
    fn withdrawing_runs_that_never_came_takes_no_room_from_others() {
        let mut staging = Staging::new(Limits::default());
        for number in 0..2 * RUN_COUNT_MAX as u64 {
            assert!(!staging.withdraw(RunId(1_000 + number), 0));
        }
        assert!(staging.runs.is_empty());
        assert_eq!(staging.over.runs.len(), OVER_COUNT_MAX);
        let piece = (CHUNK, 0, Bytes::from_static(b"x"));
        staging.stage(RunId(1), CLIENT, piece, 0).unwrap();
        staging.start(RunId(1), 0).unwrap();
    }

    #[test]
    fn what_waits_while_a_node_is_away_is_withdrawn() {
        let mut staging = Staging::default();
        let bytes = Bytes::from_static(b"new");
        staging
            .stage(RunId(1), CLIENT, (CHUNK, 0, bytes), 0)
            .unwrap();
        staging.withdraw_all(9);
        assert!(staging.start(RunId(1), 10).is_err());
        assert_eq!(staging.staged.bytes, 0);
    }

    #[test]
    fn a_run_starts_once_and_memory_is_given_back() {
        let mut staging = Staging::new(SMALL);
        let big = Bytes::from(vec![0; 51]);
        staging
            .stage(RunId(1), CLIENT, (CHUNK, 0, big.clone()), 0)
            .unwrap();
        assert!(
            staging
                .stage(RunId(2), CLIENT, (CHUNK, 0, big.clone()), 0)
                .is_err()
        );
        staging.start(RunId(1), 0).unwrap();
        // A repeated request must not end the write: another run may succeed.
        let again = staging.start(RunId(1), 0).err();
        assert!(matches!(again, Some(Refusal::Interrupted(_))), "{again:?}");
        staging
            .stage(RunId(2), CLIENT, (CHUNK, 0, big.clone()), 0)
            .unwrap();
        staging.expire(KEEP_MS + 1);
        staging
            .stage(RunId(3), CLIENT, (CHUNK, 0, big), KEEP_MS + 1)
            .unwrap();
    }

    #[test]
    fn a_client_that_stages_all_it_may_leaves_room_for_others_and_all_have_a_limit() {
        let mut staging = Staging::new(SMALL);
        let big = Bytes::from(vec![0; 100]);
        let mut stage = |run, client, bytes: &Bytes| {
            let piece = (CHUNK, 0, bytes.clone());
            staging.stage(RunId(run), Address::Origin(client), piece, 0)
        };
        let one = Bytes::from_static(b"1");
        stage(1, 1, &big).unwrap();
        let refused = stage(2, 1, &one).unwrap_err().to_string();
        assert!(
            refused.contains("other updates of this client"),
            "{refused}"
        );
        stage(3, 2, &one).unwrap();
        assert!(stage(4, 3, &big).is_err(), "no room is left for as much");
        stage(5, 3, &one).unwrap();
        staging.start(RunId(1), 0).unwrap();
        staging.withdraw(RunId(3), 0);
        staging.expire(KEEP_MS + 1);
        assert!(staging.staged_by.is_empty() && staging.staged.bytes == 0);
    }

    #[test]
    fn runs_and_slices_without_a_part_are_bounded() {
        let mut staging = Staging::default();
        for run in 0..=RUN_COUNT_MAX as u64 {
            staging.flow(Flow::Abort { run: RunId(run) }, None, 0);
        }
        assert_eq!(staging.runs.len(), RUN_COUNT_MAX);
        let piece = (CHUNK, 0, Bytes::from_static(b"1"));
        let beyond = RunId(RUN_COUNT_MAX as u64);
        assert!(staging.stage(beyond, CLIENT, piece.clone(), 0).is_err());
        staging.stage(RunId(7), CLIENT, piece, 0).unwrap();
        let slice = |run| Flow::Slice {
            run,
            value: gabion_plan::ValueId(0),
            slice: 0,
            purpose: crate::message::Purpose::Update,
            bytes: Bytes::from(vec![0; MAX_WAITING_BYTES as usize / 2 + 1]),
        };
        staging.flow(slice(RunId(7)), None, 0);
        staging.flow(slice(RunId(7)), None, 0);
        let mut arrivals = staging.start(RunId(7), 0).unwrap();
        let waited = std::iter::from_fn(|| arrivals.flows.try_recv().ok());
        assert_eq!(waited.count(), 2, "the abort, and the slice that had room");
        assert_eq!(staging.waiting.bytes, 0);
        // Frames for a running part do not wait.
        staging.flow(slice(RunId(7)), None, 0);
        assert!(arrivals.flows.try_recv().is_ok());
    }

    #[test]
    fn one_peer_leaves_room_for_the_slices_of_others_and_short_frames_count() {
        let mut staging = Staging::default();
        let [first, second] = [1, 2].map(|number| Some(Address::Origin(number)));
        let slice = |run, bytes: u64| Flow::Slice {
            run: RunId(run),
            value: gabion_plan::ValueId(0),
            slice: 0,
            purpose: crate::message::Purpose::Update,
            bytes: Bytes::from(vec![0; bytes as usize]),
        };
        let half = MAX_WAITING_BYTES_OF_PEER / 2;
        for run in 1..=3 {
            staging.flow(slice(run, half), first, 0);
        }
        assert_eq!(staging.waiting.bytes, MAX_WAITING_BYTES_OF_PEER);
        staging.flow(slice(4, half), second, 0);
        assert_eq!(staging.waiting.bytes, MAX_WAITING_BYTES_OF_PEER + half);
        staging.start(RunId(1), 0).unwrap();
        staging.flow(slice(3, half), first, 0);
        assert_eq!(staging.waiting.bytes, MAX_WAITING_BYTES_OF_PEER + half);
        let credit = || Flow::Credit {
            run: RunId(4),
            value: gabion_plan::ValueId(0),
            slices: 1,
        };
        for _ in 0..=WAITING_COUNT_MAX_OF_PEER {
            staging.flow(credit(), second, 0);
        }
        assert_eq!(
            staging.waiting_by[&Address::Origin(2)].count,
            WAITING_COUNT_MAX_OF_PEER
        );
        staging.expire(KEEP_MS + 1);
        assert_eq!(staging.waiting, Load::default());
        assert!(staging.waiting_by.is_empty());
    }

    #[test]
    fn pieces_count_however_short_they_are() {
        let mut staging = Staging::default();
        let mut stage = |client| {
            let piece = (CHUNK, 0, Bytes::new());
            staging.stage(RunId(1), Address::Origin(client), piece, 0)
        };
        for _ in 0..PIECE_COUNT_MAX_OF_CLIENT {
            stage(1).unwrap();
        }
        stage(1).unwrap_err();
        stage(2).unwrap();
        staging.expire(KEEP_MS + 1);
        assert_eq!(staging.staged, Load::default());
    }
}
