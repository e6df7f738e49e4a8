//! Early arrivals at a node for runs: new bytes that clients stage before an update, and flow frames, which may
//! arrive before their part. A client that does not know the outcome of an update withdraws its run: from then
//! on the part cannot begin here, however late it arrives. Neither can a part that has ended: second copies of
//! its run's messages are discarded.

mod ended;
mod flows;

use self::ended::{KEEP_MS, Over, Withdrawn};
use self::flows::{FlowSender, Flows, queue, slice_bytes};
use crate::limits::Limits;
use crate::message::{Flow, Refusal, RunId};
use crate::ports::Address;
use bytes::{Bytes, BytesMut};
use gabion_layout::{ByteRange, ChunkIndex};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

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

/// The names of the limits, in metrics.
const LIMITS: [&str; 6] = [
    "staged_bytes",
    "client_staged_bytes",
    "early_frames",
    "queued_frames",
    "runs",
    "withdrawn_runs",
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
    unknown: Withdrawn,
    /// The number of times each limit has refused bytes or frames.
    limited: BTreeMap<&'static str, u64>,
}

/// The held bytes, and the pieces or frames that they are in.
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

#[derive(Debug)]
struct Run {
    sender: FlowSender,
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
    Waiting(Flows),
    /// Its part is running.
    Begun,
    /// Its part must not begin any more. Bytes that are staged later are refused.
    Withdrawn,
}

/// The bytes and frames that wait for a part.
pub(crate) struct Arrivals {
    pub(crate) flows: Flows,
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
        self.check_begins(run)?;
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

    /// Whether a run may still begin here.
    fn check_begins(&self, run: RunId) -> Result<(), Refusal> {
        if self.over.runs.contains(&run) {
            return Err(over(run));
        }
        if self.unknown.runs.contains(&run) {
            return Err(withdrawn(run));
        }
        Ok(())
    }

    /// Discards the staged bytes of a run for its client. Its part must not begin from now on. Returns whether bytes
    /// were waiting, so that the part has not begun either; otherwise it may have begun or ended.
    ///
    /// # Errors
    /// If the node cannot remember more withdrawn runs of which nothing has come: then the part may yet begin.
    pub(crate) fn withdraw(
        &mut self,
        run: RunId,
        by: Address,
        now_ms: u64,
    ) -> Result<bool, Refusal> {
        if self.over.runs.contains(&run) {
            return Ok(false);
        }
        if self.runs.contains_key(&run) {
            return Ok(self.withdraw_known(run, now_ms));
        }
        if self.unknown.add(run, by, now_ms) {
            return Ok(false);
        }
        self.note_limit("withdrawn_runs");
        Err(Refusal::Busy(
            "a node that remembers as many withdrawn runs as it can".to_owned(),
        ))
    }

    /// Withdraws a run of which something has come.
    fn withdraw_known(&mut self, run: RunId, now_ms: u64) -> bool {
        let Some(entry) = self.runs.get_mut(&run) else {
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
            self.withdraw_known(run, now_ms);
        }
    }

    /// Hands a frame to its run, whether or not its part has arrived. If there is no room for a frame of its sender,
    /// the frame is discarded: its part fails, and the sender retries. If the part has begun and reads too slowly, the
    /// part fails with a refusal.
    pub(crate) fn flow(&mut self, flow: Flow, from: Option<Address>, now_ms: u64) {
        if self.check_begins(flow.run()).is_err() {
            // Late frames of an ended or withdrawn part are discarded.
            return;
        }
        if !self.has_room_for(flow.run()) {
            self.note_limit("runs");
            return;
        }
        let load = Load::one(slice_bytes(&flow));
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
            let is_over = run.sender.send(flow);
            self.waiting = all;
            if let Some(from) = from {
                self.waiting_by.insert(from, of_peer);
            }
            if is_over {
                self.note_limit("queued_frames");
            }
        } else if run.sender.send(flow) {
            self.note_limit("queued_frames");
        }
    }

    /// Starts the part of an update of some runs: returns the early frames of the first one, under which its frames
    /// are sent, and routes later ones. All of the runs begin here, or none does.
    ///
    /// # Panics
    /// Without a run.
    pub(crate) fn start(&mut self, runs: &[RunId], now_ms: u64) -> Result<Arrivals, Refusal> {
        for &run in runs {
            self.check_starts(run)?;
        }
        let mut inputs = Inputs::default();
        let mut flows = None;
        for &run in runs {
            let (early, pieces) = self.begin(run, now_ms);
            inputs.add(pieces);
            flows = flows.or(early);
        }
        Ok(Arrivals {
            flows: flows.expect("a run that starts has waited"),
            inputs,
        })
    }

    /// Whether a part of the run may start now.
    fn check_starts(&self, run: RunId) -> Result<(), Refusal> {
        self.check_begins(run)?;
        match self.runs.get(&run).map(|known| &known.state) {
            None | Some(State::Waiting(_)) => Ok(()),
            Some(State::Begun) => {
                let taken = format!("run {} is running here already", run.0);
                Err(Refusal::Interrupted(taken))
            }
            Some(State::Withdrawn) => Err(withdrawn(run)),
        }
    }

    /// Begins a run that may start: returns its early frames and its staged bytes.
    fn begin(&mut self, run: RunId, now_ms: u64) -> (Option<Flows>, Vec<Staged>) {
        let entry = self.run(run, now_ms);
        let flows = match std::mem::replace(&mut entry.state, State::Begun) {
            State::Waiting(flows) => Some(flows),
            State::Begun | State::Withdrawn => None,
        };
        let waited = std::mem::take(&mut entry.waiting);
        let pieces = std::mem::take(&mut entry.pieces);
        self.release_waiting(waited);
        self.release(&pieces);
        (flows, pieces)
    }

    /// Ends runs: releases their room, and remembers only that they are over.
    pub(crate) fn end(&mut self, runs: &[RunId], now_ms: u64) {
        for &run in runs {
            self.forget(run);
            self.over.add(run, now_ms);
        }
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
        self.unknown.expire(now_ms);
    }

    fn run(&mut self, run: RunId, now_ms: u64) -> &mut Run {
        self.runs.entry(run).or_insert_with(|| {
            let (sender, receiver) = queue(run);
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

fn over(run: RunId) -> Refusal {
    Refusal::Interrupted(format!("run {} is over here", run.0))
}

fn withdrawn(run: RunId) -> Refusal {
    // Its client withdrew it, or this node was away: the bytes can be staged again for another run.
    Refusal::Unavailable(format!("a node that has dropped run {}", run.0))
}

impl Inputs {
    /// Adds the pieces of a run. Its update changes no byte that another one of the part changes.
    fn add(&mut self, pieces: Vec<Staged>) {
        let pieces = pieces.into_iter();
        let placed = pieces.map(|piece| ((piece.chunk, piece.offset), piece.bytes));
        self.pieces.extend(placed);
    }

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
mod tests;
