//! Rules of mounts.

use super::{Mutant, test, unit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "two-opens-of-a-file-do-not-see-each-others-sizes",
        file: "crates/fuse/src/open_files.rs",
        text: "self.file.get_or_insert_with(|| file.clone()).clone()",
        replacement: "self.file.insert(file.clone()).clone()",
        check: test(
            "gabion",
            "integration",
            "mount::handles_that_open_a_file_at_the_same_time_see_each_others_sizes",
        ),
    },
    Mutant {
        name: "the-last-name-is-looked-up-before-the-turn-to-remove-it",
        file: "crates/fuse/src/namespace.rs",
        text: "            let mut state = shared.state.lock().await;
            if state.handle_count == 0 {
                self.client.rm(at).await?;
                return Ok(());
            }
            // This mount may have taken other names away until it had the turn.
            let status = self.client.inode(at.clone()).await?;",
        replacement: "            let status = self.client.inode(at.clone()).await?;
            let mut state = shared.state.lock().await;",
        check: test(
            "gabion",
            "integration",
            "mount::names_that_go_at_the_same_time_leave_the_file_to_its_handles",
        ),
    },
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
        file: "crates/fuse/src/opening.rs",
        text: "written < known && known <= now()",
        replacement: "written < known && known <= written",
        check: unit(
            "gabion-fuse",
            "opening::tests::a_time_is_not_told_over_a_later_one_of_the_past",
        ),
    },
    Mutant {
        name: "a-write-in-place-counts-as-a-growth",
        file: "crates/client/src/resize.rs",
        text: "matches!(last, Some(Attempted::Replacement(_)))",
        replacement: "last.is_some() || !matches!(last, Some(Attempted::Replacement(_)))",
        check: test(
            "gabion",
            "integration",
            "mount::the_time_of_a_write_neither_stays_nor_goes_back_because_of_another_mount",
        ),
    },
];
