//! The timetable: which files to check for due conversions, and when, so that the coordinator does not read
//! all files periodically. A file whose form changes only on request has no entry.

use crate::coordinator::core::lock;
use crate::coordinator::pool_facts::Pools;
use crate::wake_up::WakeUp;
use gabion_layout::{Sequence, StripeId};
use gabion_meta::{FileRecord, KeyValue, Meta, MetaError, PutId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// The timetable, and the wake-up of the task that follows it.
pub(in crate::coordinator) struct Timetable {
    pools: Arc<Pools>,
    times: Mutex<Times>,
    wake_up: WakeUp,
}

impl Timetable {
    /// An empty timetable.
    pub(in crate::coordinator) fn new(pools: &Arc<Pools>) -> Self {
        Self {
            pools: Arc::clone(pools),
            times: Mutex::default(),
            wake_up: WakeUp::default(),
        }
    }

    /// Schedules an early check of a file if its blocks are replicated first.
    pub(in crate::coordinator) fn enter<K: KeyValue>(
        &self,
        meta: &Meta<K>,
        file: &FileRecord,
    ) -> Result<(), MetaError> {
        if self
            .pools
            .facts(meta, file.pool)?
            .record
            .lifecycle
            .is_some()
        {
            self.times().look_at(file.put, 0);
            self.wake_up.wake();
        }
        Ok(())
    }

    /// Files with the times of their next checks.
    pub(super) fn times(&self) -> MutexGuard<'_, Times> {
        lock(&self.times)
    }

    /// Waits until a file is entered.
    pub(super) async fn woken(&self) {
        self.wake_up.woken().await;
    }
}

/// The newest update of a block, and the time since which it has not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Quiet {
    pub(super) latest: Sequence,
    pub(super) since_ms: u64,
}

/// The files of a coordinator, by the puts that made them. Times are milliseconds for which coordinators have run.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Invariant: the same as `by_file`.
    by_time: BTreeSet<(u64, PutId)>,
    by_file: BTreeMap<PutId, u64>,
    /// The number of segments of files to be converted.
    waiting: BTreeMap<PutId, u64>,
    /// The newest update of blocks that are encoded when they are idle, and the time when it was first
    /// seen.
    quiet: BTreeMap<PutId, BTreeMap<StripeId, Quiet>>,
    /// Whether there was ever a file.
    is_used: bool,
}

impl Times {
    /// Schedules a check of a file at this time, unless an earlier one is scheduled.
    pub(super) fn look_at(&mut self, file: PutId, at_ms: u64) {
        self.is_used = true;
        if let Some(&known_ms) = self.by_file.get(&file) {
            if known_ms <= at_ms {
                return;
            }
            self.by_time.remove(&(known_ms, file));
        }
        self.by_file.insert(file, at_ms);
        self.by_time.insert((at_ms, file));
    }

    /// Removes and returns the files that are due, at most `limit`, the longest overdue first.
    pub(super) fn take_due(&mut self, now_ms: u64, limit: usize) -> Vec<PutId> {
        let mut due = Vec::new();
        while due.len() < limit
            && let Some((at_ms, _)) = self.by_time.first()
            && *at_ms <= now_ms
            && let Some((_, file)) = self.by_time.pop_first()
        {
            self.by_file.remove(&file);
            due.push(file);
        }
        due
    }

    /// Notes how many segments of a file are to be converted, and how long its blocks have not changed.
    pub(super) fn note(
        &mut self,
        file: PutId,
        waiting_count: u64,
        quiet: BTreeMap<StripeId, Quiet>,
    ) {
        if waiting_count > 0 {
            self.waiting.insert(file, waiting_count);
        } else {
            self.waiting.remove(&file);
        }
        if quiet.is_empty() {
            self.quiet.remove(&file);
        } else {
            self.quiet.insert(file, quiet);
        }
    }

    /// A segment of a file was converted.
    pub(super) fn converted(&mut self, file: PutId) {
        if let Some(count) = self.waiting.get_mut(&file) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&file);
            }
        }
    }

    /// The state of a block at the last check of its file.
    pub(super) fn quiet(&self, file: PutId, block: StripeId) -> Option<Quiet> {
        self.quiet.get(&file)?.get(&block).copied()
    }

    /// The number of segments that are known to be due.
    pub(super) fn waiting_count(&self) -> u64 {
        self.waiting.values().sum()
    }

    /// Whether a file ever had an entry: without one, the ages of files are not needed.
    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PutId = PutId(1);
    const B: PutId = PutId(2);
    const C: PutId = PutId(3);

    #[test]
    fn the_earlier_time_counts_and_what_is_taken_is_gone() {
        let mut table = Times::default();
        assert!(!table.is_used());
        for (file, at_ms) in [(B, 20), (A, 30), (B, 25), (C, 40), (A, 10)] {
            table.look_at(file, at_ms);
        }
        assert_eq!(table.take_due(9, 5), []);
        assert_eq!(table.take_due(39, 1), [A]);
        assert_eq!(table.take_due(39, 5), [B]);
        assert_eq!(table.take_due(39, 5), []);
        // An entry made during the check schedules another one.
        table.look_at(A, 0);
        table.look_at(A, 50);
        assert_eq!(table.take_due(100, 5), [A, C]);
        assert!(table.is_used());
    }

    #[test]
    fn what_waits_counts_until_it_is_converted_or_found_to_be_done() {
        let mut table = Times::default();
        let quiet = Quiet {
            latest: Sequence(3),
            since_ms: 7,
        };
        table.note(A, 2, BTreeMap::from([(StripeId(1), quiet)]));
        table.note(B, 1, BTreeMap::new());
        assert_eq!(table.waiting_count(), 3);
        table.converted(A);
        table.converted(B);
        table.converted(B);
        assert_eq!(table.waiting_count(), 1);
        assert_eq!(table.quiet(A, StripeId(1)), Some(quiet));
        table.note(A, 0, BTreeMap::new());
        assert_eq!(
            (table.waiting_count(), table.quiet(A, StripeId(1))),
            (0, None)
        );
    }
}
