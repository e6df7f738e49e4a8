//! The deletion of chunks that were set aside.

use std::collections::BTreeMap;

/// Shortest time of a file in the trash, in which a missed chunk can still be recovered.
const KEEP_MS: u64 = 24 * 60 * 60 * 1000;

/// The time since which this process has seen each file in the trash.
///
/// A store has no clock, and the clock of a process may restart with the machine. So a day counts from this
/// process's first look: each restart begins it anew, and none shortens it.
#[derive(Debug, Default)]
pub(crate) struct Trash {
    since_ms: BTreeMap<String, u64>,
}

impl Trash {
    /// The files that have been here for a day. A file that could not be deleted is due again.
    pub(crate) fn due(&mut self, names: Vec<String>, now_ms: u64) -> Vec<String> {
        let since = |name| {
            let since_ms = self.since_ms.get(&name).copied();
            (name, since_ms.unwrap_or(now_ms))
        };
        self.since_ms = names.into_iter().map(since).collect();
        let old = self
            .since_ms
            .iter()
            .filter(|(_, since_ms)| now_ms - **since_ms >= KEEP_MS);
        old.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
