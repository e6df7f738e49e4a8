//! Rules of mounts.

use super::{Mutant, test};

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
];
