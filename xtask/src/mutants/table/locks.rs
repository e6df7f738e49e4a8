//! Rules of advisory locks.

use super::super::mutant::{Mutant, protocol, test, unit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "locks-are-free-before-their-writes-are-fenced-out",
        file: "crates/protocol/src/coordinator/locks/mod.rs",
        text: "self.files.fence_writers(file).await?;",
        replacement: "let _ = self.files.fence_writers(file).await;",
        check: protocol(
            "coordinator::locks::a_silent_session_keeps_its_locks_until_its_writes_are_fenced_out",
        ),
    },
    Mutant {
        name: "a-late-unlock-counts",
        file: "crates/protocol/src/coordinator/locks/sessions.rs",
        text: "known.voided.contains(&number)",
        replacement: "known.voided.len() > VOIDED_MAX",
        check: protocol("coordinator::locks::a_request_that_comes_late_frees_and_takes_nothing"),
    },
    Mutant {
        name: "a-restart-ends-sessions-of-locks",
        file: "crates/protocol/src/coordinator/locks/mod.rs",
        text: "LockSessions::new(sessions, core.ports.now_ms())",
        replacement: "LockSessions::new(sessions.into_iter().skip(9).collect(), core.ports.now_ms())",
        check: protocol(
            "coordinator::locks::a_lock_outlives_the_coordinator_and_ends_with_its_session",
        ),
    },
    Mutant {
        name: "the-same-owner-of-two-clients-is-one",
        file: "crates/meta/src/locks.rs",
        text: "(other, lock.owner) != (session, change.owner)",
        replacement: "other >= session && lock.owner != change.owner",
        check: test(
            "gabion-meta",
            "integration",
            "locks::owners_of_any_session_exclude_each_other",
        ),
    },
    Mutant {
        name: "an-unlocked-range-counts-as-a-lock",
        file: "crates/client/src/locks/file_locks.rs",
        text: "self.held.remove(change.range);",
        replacement: "if frees_all { self.held.remove(change.range); }",
        check: unit(
            "gabion-client",
            "locks::file_locks::tests::an_owner_that_has_unlocked_all_its_ranges_has_no_lock",
        ),
    },
    Mutant {
        name: "an-unlock-counts-as-later-than-a-lock-beside-it",
        file: "crates/client/src/locks/file_locks.rs",
        text: "None if self.are_mixed => self.is_closed &= !frees_all,",
        replacement: "None if self.are_mixed && self.is_closed && !self.is_closed => {}",
        check: unit(
            "gabion-client",
            "locks::file_locks::tests::an_unlock_beside_another_change_of_its_owner_proves_nothing",
        ),
    },
];
