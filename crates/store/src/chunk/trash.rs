//! Chunks that are set aside: gone from the store, while their files lie in a directory of their own.
//!
//! A chunk's file is moved there by one rename, after the journal says that the chunk is removed. A
//! start that finds the entry and the file in its old place moves the file then. So it is in one of
//! both places after any crash, and never in none. Nothing but [`Store::empty_trash`] deletes it.

use crate::disk::Disk;
use crate::disk::remove_if_there;
use crate::error::{IoContext, StoreError};
use crate::paths::{TRASH_DIRECTORY, chunk_directory, chunk_name, chunk_path};
use crate::store::Store;
use gabion_layout::ChunkId;
use std::io::ErrorKind;

impl Store {
    /// Removes chunks and their records as [`Store::remove`] does, but keeps their files in the trash, with
    /// all settled records in them that can be merged. Records that are not settled go. One sync of the
    /// journal does for all, and one of each directory.
    ///
    /// # Errors
    /// As [`Store::merge`] and [`Store::remove`]. Each chunk is where it was then, or set aside, by the
    /// next start at the latest; none is lost.
    pub fn set_aside(&self, chunks: &[ChunkId]) -> Result<(), StoreError> {
        for &chunk in chunks {
            match self.merge(chunk) {
                // Damage and want of room keep records out; the rest of the chunk is worth keeping.
                Ok(_) | Err(StoreError::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.remove_all(chunks, move_to_trash)
    }

    /// The names of the files in the trash, sorted. Each is used for one file only, ever.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn trash(&self) -> Result<Vec<String>, StoreError> {
        let disk = &self.shared.disk;
        disk.list(TRASH_DIRECTORY).context("list", TRASH_DIRECTORY)
    }

    /// Deletes these files in the trash. One that is not there is what was wanted.
    ///
    /// # Errors
    /// [`StoreError::Io`]; some of them may be gone then.
    pub fn empty_trash(&self, names: &[String]) -> Result<(), StoreError> {
        let disk = &*self.shared.disk;
        names
            .iter()
            .try_for_each(|name| remove_if_there(disk, &format!("{TRASH_DIRECTORY}/{name}")))
    }
}

/// Moves chunks' files into the trash, durably; a file that has vanished stays so. Its name there
/// ends in the journal's position of the removal, so that no two removals share one.
pub(crate) fn move_to_trash(disk: &dyn Disk, removed: &[(ChunkId, u64)]) -> Result<(), StoreError> {
    // The new names first: each file has one at any time.
    let mut directories = vec![TRASH_DIRECTORY.to_owned()];
    for &(chunk, removed_lsn) in removed {
        let path = chunk_path(chunk);
        let name = chunk_name(chunk);
        let kept_path = format!("{TRASH_DIRECTORY}/{name}.{removed_lsn:016x}");
        match disk.rename(&path, &kept_path) {
            Err(source) if source.kind() == ErrorKind::NotFound => {}
            renamed => renamed.context("rename", &path)?,
        }
        let directory = chunk_directory(chunk);
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    for directory in directories {
        disk.sync_directory(&directory)
            .context("sync directory", &directory)?;
    }
    Ok(())
}
