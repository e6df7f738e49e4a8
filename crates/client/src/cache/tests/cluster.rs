//! A cluster in memory whose requests take time, fail, and overtake each other, as a seed decides.

use super::{SEGMENT, SIZE, spans};
use crate::cache::Backing;
use crate::error::ClientError;
use crate::extent::{Extent, extents};
use crate::moment::{Moment, Version};
use crate::open_runs::{Attempted, LastAttempt, OpenRun};
use bytes::Bytes;
use gabion_layout::{ByteRange, Generation, Sequence, StripeId};
use gabion_protocol::message::{RunId, RunQuestion};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng as _};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// A cluster with one file.
pub(super) struct Cluster {
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) bytes: Vec<u8>,
    /// Updates of each segment.
    sequences: Vec<u64>,
    random: ChaCha20Rng,
    /// Whether updates and writes fail, before or after they take effect.
    pub(super) fails: bool,
    /// Whether all nodes have forgotten the runs of updates.
    pub(super) forgets: bool,
    /// Segments with an update in flight.
    pub(super) under_way: Vec<u64>,
    pub(super) updates: Vec<(u64, Vec<ByteRange>)>,
    /// The runs of the updates that took effect.
    made: BTreeSet<RunId>,
    pub(super) reads: Vec<ByteRange>,
    pub(super) versions_asked: u64,
    /// Blocks the answer to a read from this address on until it is cleared.
    pub(super) held: Option<u64>,
    /// Whether the answers to updates are blocked.
    pub(super) holds_updates: bool,
    /// A byte of another client that the next update is made together with: its address and value.
    pub(super) joined: Option<(u64, u8)>,
    /// Whether updates of several ranges are not made, and those from this offset on are refused.
    pub(super) splits_at: Option<u64>,
}

impl Cluster {
    pub(super) fn new(seed: u64) -> Self {
        let state = State {
            bytes: vec![0; SIZE as usize],
            sequences: vec![0; SIZE.div_ceil(SEGMENT) as usize],
            random: ChaCha20Rng::seed_from_u64(seed),
            fails: false,
            forgets: false,
            under_way: Vec::new(),
            updates: Vec::new(),
            made: BTreeSet::new(),
            reads: Vec::new(),
            versions_asked: 0,
            held: None,
            holds_updates: false,
            joined: None,
            splits_at: None,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test goes on after a panic")
    }

    /// Lets other tasks run first, a random number of times.
    async fn travel(&self) {
        let steps = self.state().random.next_u32() % 8;
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    }

    /// Writes as another client.
    pub(super) fn write_elsewhere(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state();
        for extent in extents(&spans(), ByteRange::new(offset, bytes.len() as u64)) {
            state.sequences[(extent.start / SEGMENT) as usize] += 1;
        }
        state.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

impl State {
    fn version(&self, at: u64) -> Version {
        let segment = at / SEGMENT;
        Version {
            stripe: StripeId(segment),
            sequence: Sequence(self.sequences[segment as usize]),
        }
    }

    /// Carries out an update. For a failing one, chance decides whether it takes effect.
    fn update(
        &mut self,
        at: u64,
        ranges: &[ByteRange],
        bytes: &[u8],
        run: RunId,
    ) -> Result<Version, ClientError> {
        if self.fails && self.random.next_u32().is_multiple_of(2) {
            self.failure()?;
        }
        let mut from = 0;
        for range in ranges {
            let start = at + range.offset;
            let length = range.length as usize;
            self.bytes[start as usize..][..length].copy_from_slice(&bytes[from..from + length]);
            from += length;
        }
        assert_eq!(from, bytes.len());
        if let Some((address, value)) = self.joined.take() {
            self.bytes[address as usize] = value;
        }
        self.sequences[(at / SEGMENT) as usize] += 1;
        self.updates.push((at, ranges.to_vec()));
        self.made.insert(run);
        self.failure()?;
        Ok(self.version(at))
    }

    /// Requests an update.
    fn ask(&mut self, at: u64, last_attempt: &LastAttempt) -> RunId {
        let question = RunQuestion {
            stripe: StripeId(at / SEGMENT),
            generation: Generation(1),
            run: RunId(self.random.next_u64()),
            after: Sequence(0),
            chunks: Vec::new(),
        };
        let run = Arc::new(OpenRun {
            range: ByteRange::new(at, 1),
            question,
            staged_at: Vec::new(),
            holders: Vec::new(),
            fate: OnceLock::new(),
        });
        let id = run.question.run;
        last_attempt.set(Attempted::Update(run));
        id
    }

    fn failure(&self) -> Result<(), ClientError> {
        if self.fails {
            return Err(ClientError::Refused("no".into()));
        }
        Ok(())
    }
}

/// An update in flight; it ends when dropped.
struct UnderWay<'a>(&'a Cluster, u64);

impl<'a> UnderWay<'a> {
    fn begin(cluster: &'a Cluster, at: u64) -> Self {
        let mut state = cluster.state();
        assert!(!state.under_way.contains(&at), "one update at a time");
        state.under_way.push(at);
        Self(cluster, at)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state().under_way.retain(|&other| other != self.1);
    }
}

impl Backing for Cluster {
    type File = ();

    async fn read(&self, (): &(), extent: Extent) -> Result<Moment, ClientError> {
        self.travel().await;
        let moment = {
            let mut state = self.state();
            let range = ByteRange::new(extent.file_offset, extent.range.length);
            state.reads.push(range);
            let version = state.version(extent.start);
            Moment {
                bytes: state.bytes[range.offset as usize..range.end() as usize].to_vec(),
                stripe: version.stripe,
                sequence: version.sequence,
            }
        };
        while self.state().held == Some(extent.file_offset) {
            tokio::task::yield_now().await;
        }
        self.travel().await;
        Ok(moment)
    }

    async fn update(
        &self,
        (): &(),
        at: u64,
        ranges: &[ByteRange],
        bytes: Bytes,
        last_attempt: &LastAttempt,
    ) -> Result<Option<Version>, ClientError> {
        let way = UnderWay::begin(self, at);
        self.travel().await;
        if let Some(refused) = self.state().splits_at {
            if ranges.len() > 1 {
                return Ok(None);
            }
            if ranges.iter().any(|range| refused <= at + range.offset) {
                return Err(ClientError::Refused("no".into()));
            }
        }
        let run = self.state().ask(at, last_attempt);
        let version = self.state().update(at, ranges, &bytes, run);
        drop(way);
        while self.state().holds_updates {
            tokio::task::yield_now().await;
        }
        self.travel().await;
        version.map(Some)
    }

    async fn decide(&self, (): &(), attempted: &Attempted) -> Result<bool, ClientError> {
        self.travel().await;
        let state = self.state();
        state.failure()?;
        if state.forgets {
            return Err(ClientError::Forgotten("disk".to_owned()));
        }
        // A run that has not begun by now never will.
        let Attempted::Update(run) = attempted else {
            unreachable!("this cluster replaces nothing");
        };
        Ok(state.made.contains(&run.question.run))
    }

    async fn write(&self, (): &(), offset: u64, bytes: Bytes) -> Result<(), ClientError> {
        self.travel().await;
        self.state().failure()?;
        self.write_elsewhere(offset, &bytes);
        self.travel().await;
        Ok(())
    }

    async fn version(&self, (): &(), extent: Extent) -> Option<Version> {
        self.travel().await;
        let version = {
            let mut state = self.state();
            state.versions_asked += 1;
            state.version(extent.start)
        };
        self.travel().await;
        Some(version)
    }
}
