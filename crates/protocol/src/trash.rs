//! When chunks that were set aside are deleted for good.

use std::collections::BTreeMap;

/// How long a file lies in the trash at least. Whoever misses a chunk has so long to find it.
const KEEP_MS: u64 = 24 * 60 * 60 * 1000;

/// Since when this process has seen which files in the trash.
///
/// A store knows no time, and the clock of a process may begin anew with the machine. So a day counts from the first look of this process: each restart begins it anew, and none shortens it.
#[derive(Debug, Default)]
pub(crate) struct Trash {
    since_ms: BTreeMap<String, u64>,
}

impl Trash {
    /// Which of the files that are there now have been there for a day. One that could not be deleted
    /// is due again.
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
        // One of this name that comes later is another file.
        assert!(trash.due(names(&["b"]), 1001 + KEEP_MS).is_empty());
        assert!(trash.due(names(&["a"]), 1002 + KEEP_MS).is_empty());
    }
}
