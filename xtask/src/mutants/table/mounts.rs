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
];
