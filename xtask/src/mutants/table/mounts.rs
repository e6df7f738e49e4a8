//! Rules of mounts.

use super::super::mutant::{Mutant, process, unit};

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
];
