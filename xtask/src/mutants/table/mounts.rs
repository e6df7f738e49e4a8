//! Rules of mounts.

use super::{Mutant, test};

pub(super) const MUTANTS: &[Mutant] = &[
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
