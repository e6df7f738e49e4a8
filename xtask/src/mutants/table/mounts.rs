//! Rules of mounts.

use super::super::mutant::{Mutant, process, protocol, test, unit};

/// A rename that takes a name away from one file and gives another's to it.
const RENAME: &str = "coordinator::changes::a_rename_over_a_file_tells_of_both_names_and_files";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-growth-beside-an-earlier-time-that-is-told-keeps-that-time",
        file: "crates/fuse/src/open_files.rs",
        text: "if !is_last || times.written.is_some() {",
        replacement: "if !is_last && false || times.written.is_some() {",
        check: unit(
            "gabion-fuse",
            "open_files::tests::a_growing_write_beside_an_earlier_time_that_is_told_owes_its_own",
        ),
    },
    Mutant {
        name: "an-earlier-time-of-one-mount-replaces-a-later-one-of-another",
        file: "crates/client/src/attributes.rs",
        text: "if written > known || known > now {",
        replacement: "if written != known || known > now {",
        check: unit(
            "gabion-client",
            "attributes::tests::the_time_of_a_write_shows_and_does_not_go_back",
        ),
    },
    Mutant {
        name: "a-write-in-place-counts-as-a-growth",
        file: "crates/client/src/resize.rs",
        text: "Some(Attempted::Replacement(_) | Attempted::Inline(_))",
        replacement: "None | Some(_)",
        check: process(
            "mount::the_time_of_a_write_neither_stays_nor_goes_back_because_of_another_mount",
        ),
    },
    Mutant {
        name: "a-close-does-not-wait-for-gathered-bytes",
        file: "crates/fuse/src/served.rs",
        text: "Some(_) => gateway.settle_bytes(&handle).await",
        replacement: "Some(_) => Ok::<(), Errno>(())",
        check: process("mount_cache::writes_do_not_wait_for_nodes_and_a_sync_does"),
    },
    Mutant {
        name: "a-lock-is-released-before-its-bytes-are-stored",
        file: "crates/fuse/src/locks.rs",
        text: "self.store_all(&open.shared).await;",
        replacement: "",
        check: process(
            "mount_cache::other_handles_other_mounts_and_holders_of_locks_see_what_was_written",
        ),
    },
    Mutant {
        name: "a-synchronous-write-is-gathered",
        file: "crates/fuse/src/filesystem.rs",
        text: "Destination::Through(offset)",
        replacement: "Destination::At(offset)",
        check: process("mount_cache::a_killed_mount_loses_nothing_that_was_synced"),
    },
    Mutant {
        name: "a-failure-to-store-gathered-bytes-is-not-reported",
        file: "crates/fuse/src/unstored.rs",
        text: "unstored.note_failed(errno);",
        replacement: "drop(errno);",
        check: process(
            "mount_cache::a_failure_is_reported_by_the_sync_and_stops_further_writes_until_then",
        ),
    },
    Mutant {
        name: "a-close-reports-a-failure-for-the-last-time",
        file: "crates/fuse/src/served.rs",
        text: "Some(_) => gateway.settle_bytes(&handle).await",
        replacement: "Some(_) => gateway.sync_bytes(&handle).await",
        check: process(
            "mount_cache::a_failure_is_reported_by_the_sync_and_stops_further_writes_until_then",
        ),
    },
    Mutant {
        name: "an-older-status-hides-bytes-that-were-just-stored",
        file: "crates/fuse/src/unstored.rs",
        text: "view.stored.filter(|(at, _)| asked <= *at)",
        replacement: "view.stored.filter(|_| false)",
        check: unit(
            "gabion-fuse",
            "unstored::tests::a_size_is_shown_until_a_status_is_asked_for_that_knows_the_bytes",
        ),
    },
    Mutant {
        name: "a-name-that-is-taken-away-is-no-change",
        file: "crates/meta/src/changed.rs",
        text: "if let Some((directory, key)) = NAMES.key_of(key) {",
        replacement: "if let Some((directory, key)) = NAMES.key_of(key).filter(|(id, _)| id.0 > 99) {",
        check: protocol(RENAME),
    },
    Mutant {
        name: "a-file-that-is-removed-is-no-change",
        file: "crates/meta/src/ids.rs",
        text: "    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {\n        note_inode(&mut self.changed, key);",
        replacement: "    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {",
        check: test(
            "gabion-meta",
            "integration",
            "by_model::in_memory_with_failures",
        ),
    },
    Mutant {
        name: "a-change-wakes-no-one",
        file: "crates/protocol/src/coordinator/changes.rs",
        text: "for (_, waiter) in std::mem::take(&mut state.waiting) {",
        replacement: "for (_, waiter) in BTreeMap::<u64, Sender<()>>::new() {",
        check: protocol(
            "coordinator::changes::a_request_is_answered_when_a_change_is_made_and_has_its_number",
        ),
    },
    Mutant {
        name: "changes-that-were-forgotten-are-left-out",
        file: "crates/protocol/src/coordinator/changes.rs",
        text: "place.run == self.run && behind <= state.kept.len());",
        replacement: "place.run == self.run).map(|behind| behind.min(state.kept.len()));",
        check: protocol(
            "coordinator::changes::who_is_far_behind_gets_pages_or_is_told_that_anything_may_have_changed",
        ),
    },
    Mutant {
        name: "a-place-of-another-run-counts",
        file: "crates/protocol/src/coordinator/changes.rs",
        text: "place.run == self.run && behind <= state.kept.len());",
        replacement: "behind <= state.kept.len());",
        check: protocol("coordinator::changes::another_run_knows_nothing_of_the_changes_before"),
    },
    Mutant {
        name: "a-coordinator-tells-changes-though-it-may-not-lead",
        file: "crates/protocol/src/coordinator/mod.rs",
        text: "match core.check_leads() {",
        replacement: "match core.check_leads().or(Ok::<(), gabion_meta::MetaError>(())) {",
        check: protocol("coordinator::changes::a_coordinator_that_may_not_lead_answers_no_one"),
    },
    Mutant {
        name: "any-number-of-clients-waits-for-changes",
        file: "crates/protocol/src/coordinator/changes.rs",
        text: "if state.asking_count >= ASKING_COUNT {",
        replacement: "if state.asking_count > ASKING_COUNT {",
        check: protocol("coordinator::changes::requests_that_wait_are_limited_and_counted"),
    },
    Mutant {
        name: "a-mount-forgets-what-it-has-changed-itself",
        file: "crates/client/src/changes.rs",
        text: "self.shared.own_changes.note(number);",
        replacement: "let _ = OwnChanges::note;",
        check: process("mounts_follow::a_mount_keeps_what_it_has_changed_itself"),
    },
    Mutant {
        name: "a-mount-keeps-names-that-others-take-away",
        file: "crates/fuse/src/following.rs",
        text: "let _ = notifier.inval_entry(directory, OsStr::new(&name));",
        replacement: "let _ = (&notifier, directory, OsStr::new(&name));",
        check: process(
            "mounts_follow::names_attributes_and_bytes_that_another_mount_changes_are_soon_seen",
        ),
    },
];
