//! Which files whose blocks are replicated at first are to be looked at, and when: so that nobody has to go over
//! all files again and again. A file that nothing can become of by itself is not in it.

use gabion_layout::{Sequence, StripeId};
use std::collections::{BTreeMap, BTreeSet};

/// How long a block is as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::coordinator) struct Quiet {
    pub(in crate::coordinator) latest: Sequence,
    pub(in crate::coordinator) since_ms: u64,
}

/// The files of a coordinator, by name. Times are milliseconds for which coordinators have run.
#[derive(Debug, Default)]
pub(in crate::coordinator) struct Timetable {
    /// Invariant: the same as `times`.
    by_time: BTreeSet<(u64, String)>,
    times: BTreeMap<String, u64>,
    /// How many segments of files are to be converted.
    waiting: BTreeMap<String, u64>,
    /// The newest update of blocks that are encoded when they are idle, and since when it is that.
    quiet: BTreeMap<String, BTreeMap<StripeId, Quiet>>,
    /// Whether there was ever a file.
    is_used: bool,
}

impl Timetable {
    /// Has a file looked at, at a time or earlier.
    pub(in crate::coordinator) fn look_at(&mut self, name: &str, at_ms: u64) {
        self.is_used = true;
        if let Some(&known_ms) = self.times.get(name) {
            if known_ms <= at_ms {
                return;
            }
            self.by_time.remove(&(known_ms, name.to_owned()));
        }
        self.times.insert(name.to_owned(), at_ms);
        self.by_time.insert((at_ms, name.to_owned()));
    }

    /// Takes the files out whose time has come, at most so many, the longest overdue first.
    pub(in crate::coordinator) fn take_due(&mut self, now_ms: u64, limit: usize) -> Vec<String> {
        let mut due = Vec::new();
        while due.len() < limit
            && let Some((at_ms, _)) = self.by_time.first()
            && *at_ms <= now_ms
            && let Some((_, name)) = self.by_time.pop_first()
        {
            self.times.remove(&name);
            due.push(name);
        }
        due
    }

    /// Takes note of how many segments of a file are to be converted, and how long its blocks are as they are.
    pub(in crate::coordinator) fn note(
        &mut self,
        name: &str,
        waiting_count: u64,
        quiet: BTreeMap<StripeId, Quiet>,
    ) {
        if waiting_count > 0 {
            self.waiting.insert(name.to_owned(), waiting_count);
        } else {
            self.waiting.remove(name);
        }
        if quiet.is_empty() {
            self.quiet.remove(name);
        } else {
            self.quiet.insert(name.to_owned(), quiet);
        }
    }

    /// A segment of a file was converted.
    pub(in crate::coordinator) fn converted(&mut self, name: &str) {
        if let Some(count) = self.waiting.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(name);
            }
        }
    }

    /// What was known of a block when its file was looked at last.
    pub(in crate::coordinator) fn quiet(&self, name: &str, block: StripeId) -> Option<Quiet> {
        self.quiet.get(name)?.get(&block).copied()
    }

    /// How many segments are known to have to be converted.
    pub(in crate::coordinator) fn waiting_count(&self) -> u64 {
        self.waiting.values().sum()
    }

    /// Whether there was ever a file: without one, nobody asks how old files are.
    pub(in crate::coordinator) fn is_used(&self) -> bool {
        self.is_used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_time_counts_and_what_is_taken_is_gone() {
        let mut table = Timetable::default();
        assert!(!table.is_used());
        for (name, at_ms) in [("b", 20), ("a", 30), ("b", 25), ("c", 40), ("a", 10)] {
            table.look_at(name, at_ms);
        }
        assert_eq!(table.take_due(9, 5), [""; 0]);
        assert_eq!(table.take_due(39, 1), ["a"]);
        assert_eq!(table.take_due(39, 5), ["b"]);
        assert_eq!(table.take_due(39, 5), [""; 0]);
        // Noted while it was looked at, it is looked at again.
        table.look_at("a", 0);
        table.look_at("a", 50);
        assert_eq!(table.take_due(100, 5), ["a", "c"]);
        assert!(table.is_used());
    }

    #[test]
    fn what_waits_counts_until_it_is_converted_or_found_to_be_done() {
        let mut table = Timetable::default();
        let quiet = Quiet {
            latest: Sequence(3),
            since_ms: 7,
        };
        table.note("a", 2, BTreeMap::from([(StripeId(1), quiet)]));
        table.note("b", 1, BTreeMap::new());
        assert_eq!(table.waiting_count(), 3);
        table.converted("a");
        table.converted("b");
        table.converted("b");
        assert_eq!(table.waiting_count(), 1);
        assert_eq!(table.quiet("a", StripeId(1)), Some(quiet));
        table.note("a", 0, BTreeMap::new());
        assert_eq!(
            (table.waiting_count(), table.quiet("a", StripeId(1))),
            (0, None)
        );
    }
}
