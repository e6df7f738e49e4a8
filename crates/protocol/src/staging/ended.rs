//! Runs that no longer start here: their parts have ended, or their clients have withdrawn them.

use crate::message::RunId;
use crate::ports::Address;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Time that frames and bytes wait for their part.
pub(super) const KEEP_MS: u64 = 60_000;
/// The most runs that are remembered after their parts have ended.
pub(super) const OVER_COUNT_MAX: usize = 1 << 16;
/// The most runs that were withdrawn before anything of them had come, and those of one client.
pub(super) const WITHDRAWN_COUNT_MAX: usize = 1 << 17;
pub(super) const WITHDRAWN_COUNT_MAX_OF_CLIENT: usize = 1 << 16;

/// The runs that were withdrawn before anything of them had come. Their clients count on it that they never begin here,
/// so none is forgotten before its messages can be under way no more.
#[derive(Debug, Default)]
pub(super) struct Withdrawn {
    pub(super) runs: BTreeSet<RunId>,
    /// When each was withdrawn, and by whom, oldest first. Invariant: the same runs.
    since_ms: VecDeque<(u64, RunId, Address)>,
    /// The number of runs that each client has withdrawn. Invariant: no zeros, the sum of them is that of the runs.
    pub(super) counts: BTreeMap<Address, usize>,
}

impl Withdrawn {
    /// Remembers a run, if there is room for it.
    pub(super) fn add(&mut self, run: RunId, by: Address, now_ms: u64) -> bool {
        if self.runs.contains(&run) {
            return true;
        }
        let of_client = self.counts.get(&by).copied().unwrap_or(0);
        if self.runs.len() >= WITHDRAWN_COUNT_MAX || of_client >= WITHDRAWN_COUNT_MAX_OF_CLIENT {
            return false;
        }
        self.counts.insert(by, of_client + 1);
        self.runs.insert(run);
        self.since_ms.push_back((now_ms, run, by));
        true
    }

    pub(super) fn expire(&mut self, now_ms: u64) {
        while let Some(&(since_ms, run, by)) = self.since_ms.front() {
            if since_ms + KEEP_MS >= now_ms {
                return;
            }
            self.since_ms.pop_front();
            self.runs.remove(&run);
            if let Entry::Occupied(mut count) = self.counts.entry(by) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

/// The runs whose parts have ended, as long as messages of theirs may still be under way.
#[derive(Debug, Default)]
pub(super) struct Over {
    pub(super) runs: BTreeSet<RunId>,
    /// The end of each, oldest first. Invariant: the same runs.
    pub(super) since_ms: VecDeque<(u64, RunId)>,
}

impl Over {
    pub(super) fn add(&mut self, run: RunId, now_ms: u64) {
        if self.runs.insert(run) {
            self.since_ms.push_back((now_ms, run));
        }
        if self.since_ms.len() > OVER_COUNT_MAX {
            self.forget_oldest();
        }
    }

    pub(super) fn expire(&mut self, now_ms: u64) {
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
