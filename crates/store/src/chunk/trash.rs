//! Trash: chunks that the store no longer has, while their files remain in a directory of their
//! own.
//!
//! Once the journal says that the chunk is removed, one rename moves its file to the trash. A start
//! that finds the entry and the file in its old place completes the move. So after any crash the
//! file is in exactly one of the two places. Only [`Store::empty_trash`] deletes it.

use crate::disk::Disk;
use crate::disk::remove_if_there;
use crate::error::{IoContext, StoreError};
use crate::paths::{TRASH_DIRECTORY, chunk_directory, chunk_name, chunk_path};
use crate::store::Store;
use gabion_layout::ChunkId;
use std::io::ErrorKind;

impl Store {
    /// Removes chunks and their records as [`Store::remove`] does, but keeps their files in the
    /// trash, with all settled records merged that can be. Unsettled records are dropped. One sync
    /// of the journal and one of each directory cover all chunks.
    ///
    /// # Errors
    /// As [`Store::merge`] and [`Store::remove`]. After an error, the next start finds each chunk
    /// in its old place or in the trash; none is lost.
    pub fn set_aside(&self, chunks: &[ChunkId]) -> Result<(), StoreError> {
        for &chunk in chunks {
            match self.merge(chunk) {
                // Damage and lack of space can block records; the rest of the chunk is worth
                // keeping.
                Ok(_) | Err(StoreError::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.remove_all(chunks, move_to_trash)
    }

    /// The names of the files in the trash, sorted. A name is never used for a second file.
    ///
    /// # Errors
    /// [`StoreError::Busy`] and [`StoreError::Io`].
    pub fn trash(&self) -> Result<Vec<String>, StoreError> {
        let names = self.shared.disk.list(TRASH_DIRECTORY);
        names.context_or_busy("list", TRASH_DIRECTORY)
    }

    /// Deletes these files from the trash. A missing file is no error.
    ///
    /// # Errors
    /// [`StoreError::Io`] of the first file that cannot be deleted; the others are.
    pub fn empty_trash(&self, names: &[String]) -> Result<(), StoreError> {
        let disk = &*self.shared.disk;
        let remove = |name| remove_if_there(disk, &format!("{TRASH_DIRECTORY}/{name}"));
        let removed: Vec<Result<(), StoreError>> = names.iter().map(remove).collect();
        removed.into_iter().collect()
    }
}

/// Moves chunks' files into the trash durably; a missing file is skipped. The trash name ends in
/// the removal's journal position, so that no two removals share one.
pub(crate) fn move_to_trash(disk: &dyn Disk, removed: &[(ChunkId, u64)]) -> Result<(), StoreError> {
    // Sync the new names first, so that each file has a name at all times.
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
