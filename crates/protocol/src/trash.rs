//! The deletion of chunks that were set aside, and their disk space until then.

use std::collections::BTreeMap;

/// Shortest time of a file in the trash, in which a missed chunk can still be recovered.
const KEEP_MS: u64 = 24 * 60 * 60 * 1000;

/// The time since which this process has seen each file in the trash, and its disk space.
///
/// A store has no clock, and the clock of a process may restart with the machine. So a day counts from this
/// process's first look: each restart begins it anew, and none shortens it.
#[derive(Debug, Default)]
pub(crate) struct Trash {
    since_ms: BTreeMap<String, u64>,
    /// The disk space of each file.
    bytes: BTreeMap<String, u64>,
}

impl Trash {
    /// The files that have been here for a day. A file that could not be deleted is due again.
    pub(crate) fn due(&mut self, names: Vec<String>, now_ms: u64) -> Vec<String> {
        let since = |name| {
            let since_ms = self.since_ms.get(&name).copied();
            (name, since_ms.unwrap_or(now_ms))
        };
        self.since_ms = names.into_iter().map(since).collect();
        self.bytes
            .retain(|name, _| self.since_ms.contains_key(name));
        let old = self
            .since_ms
            .iter()
            .filter(|(_, since_ms)| now_ms - **since_ms >= KEEP_MS);
        old.map(|(name, _)| name.clone()).collect()
    }

    /// Those of these files whose disk space is not known.
    pub(crate) fn unmeasured(&self, names: &[String]) -> Vec<String> {
        let names = names.iter().filter(|name| !self.bytes.contains_key(*name));
        names.cloned().collect()
    }

    /// Notes the disk space of files.
    pub(crate) fn learn(&mut self, measured: Vec<(String, u64)>) {
        self.bytes.extend(measured);
    }

    /// The disk space of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_measured_once_and_counts_while_it_is_there() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        let mut trash = Trash::default();
        assert_eq!(trash.unmeasured(&names(&["a", "b"])), names(&["a", "b"]));
        trash.learn(vec![("a".to_owned(), 7), ("b".to_owned(), 5)]);
        assert_eq!(trash.unmeasured(&names(&["a", "b", "c"])), names(&["c"]));
        trash.due(names(&["a", "b"]), 1);
        assert_eq!(trash.bytes(), 12);
        trash.due(names(&["b"]), 2);
        assert_eq!(trash.bytes(), 5);
    }

    #[test]
    fn a_file_is_due_a_day_after_it_was_first_seen() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let mut trash = Trash::default();
        assert!(trash.due(names(&["a"]), 1000).is_empty());
        assert!(trash.due(names(&["a", "b"]), 999 + KEEP_MS).is_empty());
        for _ in 0..2 {
            let due: Vec<String> = names(&["a"]);
            assert_eq!(trash.due(names(&["a", "b"]), 1000 + KEEP_MS), due);
        }
        // A later file of this name is another file.
        assert!(trash.due(names(&["b"]), 1001 + KEEP_MS).is_empty());
        assert!(trash.due(names(&["a"]), 1002 + KEEP_MS).is_empty());
    }
}
