//! The disk of a coordinator's directory. If it is full, the coordinator can commit no change.

use gabion_planner::placement::Space;
use gabion_protocol::locks::lock;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::Mutex;

/// Time after which the disk counts as one that does not answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Interval of looking at the space of a disk that is watched.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A disk with more free bytes has room for removals in any case, however small its free share is.
const ROOMY_BYTES: u64 = 1 << 30;

/// The disk of a directory.
pub(crate) struct OwnDisk {
    directory: PathBuf,
    /// One question at a time, so that a hanging disk holds one thread.
    asking: Arc<Mutex<()>>,
    /// Its space as last looked at; none if it is not watched.
    watched: std::sync::Mutex<Option<Space>>,
}

impl OwnDisk {
    /// That of this directory.
    pub(crate) fn of(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            asking: Arc::default(),
            watched: std::sync::Mutex::default(),
        }
    }

    /// Looks at its space once a second, as long as it is used.
    pub(crate) async fn watch(disk: Weak<Self>) {
        let mut was_full = false;
        while let Some(disk) = disk.upgrade() {
            let space = disk.space().await;
            *disk.watched() = space;
            let full = disk.full();
            if let Some(sentence) = full.as_ref().filter(|_| !was_full) {
                tracing::warn!("{sentence}");
            }
            was_full = full.is_some();
            drop(disk);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The reason why nothing new is stored, if the disk is watched and full.
    pub(crate) fn full(&self) -> Option<String> {
        let space = (*self.watched())?;
        is_full(space).then(|| {
            format!(
                "the disk of the metadata is full: {} MiB of {} MiB are free; free space on it, or remove files",
                space.free_bytes >> 20,
                space.capacity_bytes >> 20
            )
        })
    }

    fn watched(&self) -> MutexGuard<'_, Option<Space>> {
        lock(&self.watched)
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

/// Whether so little of a disk is free that the rest is kept for removals.
fn is_full(space: Space) -> bool {
    space.is_full() && space.free_bytes < ROOMY_BYTES
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

    #[test]
    fn a_large_disk_with_a_small_free_share_is_not_full() {
        let full = |capacity_bytes, free_bytes| {
            is_full(Space {
                capacity_bytes,
                free_bytes,
            })
        };
        assert!(full(6 << 20, 200 << 10));
        assert!(!full(6 << 20, 400 << 10));
        assert!(full(100 << 30, (1 << 30) - 1));
        assert!(!full(100 << 30, 1 << 30));
    }
}
