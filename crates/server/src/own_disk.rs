//! The disk of a coordinator's directory. If it is full, the coordinator can commit no change.

use gabion_planner::placement::Space;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Time after which the disk counts as one that does not answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// The disk of a directory.
pub(crate) struct OwnDisk {
    directory: PathBuf,
    /// One question at a time, so that a hanging disk holds one thread.
    asking: Arc<Mutex<()>>,
}

impl OwnDisk {
    /// That of this directory.
    pub(crate) fn of(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            asking: Arc::default(),
        }
    }

    /// Its space; none if the system does not tell it, or not in time.
    pub(crate) async fn space(&self) -> Option<Space> {
        let (asking, directory) = (Arc::clone(&self.asking), self.directory.clone());
        let space = async {
            let alone = asking.lock_owned().await;
            let ask = move || {
                let space = rustix::fs::statvfs(&directory).ok();
                drop(alone);
                space
            };
            tokio::task::spawn_blocking(ask).await.ok().flatten()
        };
        let space = tokio::time::timeout(ANSWER_LIMIT, space).await.ok()??;
        // As 'df' counts: blocks that are kept for root are neither used nor free.
        let used_blocks = space.f_blocks.saturating_sub(space.f_bfree);
        Some(Space {
            capacity_bytes: (used_blocks + space.f_bavail) * space.f_frsize,
            free_bytes: space.f_bavail * space.f_frsize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_that_is_not_there_has_no_known_space() {
        let directory = tempfile::tempdir().unwrap();
        let space = OwnDisk::of(directory.path()).space().await.unwrap();
        assert!(0 < space.free_bytes && space.free_bytes <= space.capacity_bytes);
        let missing = OwnDisk::of(&directory.path().join("missing"));
        assert_eq!(missing.space().await, None);
    }
}
