//! The files of chunks: their layout, writing, reading, merging, checking and removing.
//!
//! [`ChunkFiles`] is what the store keeps in memory of all of them together.

pub(crate) mod apply;
pub(crate) mod file;
pub(crate) mod fragments;
pub(crate) mod gate;
mod loading;
mod open_files;
mod read;
mod remove;
mod scrub;
pub(crate) mod trash;
pub(crate) mod writer;

use crate::disk::Disk;
use crate::error::{IoContext, StoreError};
use crate::paths::{CHUNKS_DIRECTORY, TMP_DIRECTORY, chunk_directory};
use file::ChunkHeader;
use gabion_layout::ChunkId;
use gate::Gate;
use open_files::OpenFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known of a chunk's header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Header {
    /// It was not needed yet.
    #[default]
    Unread,
    /// As it is on disk.
    Known(ChunkHeader),
    /// It or the chunk as a whole cannot be trusted.
    Damaged,
    /// A write to the chunk failed, and the store with it. What is on the disk is known again after the
    /// next start, when the journal mends what was half written: it is not damage.
    Torn,
}

/// What the store keeps in memory of chunks' files.
#[derive(Default)]
pub(crate) struct ChunkFiles {
    gates: BTreeMap<ChunkId, Arc<Gate>>,
    open: OpenFiles,
    /// Chunks that damage to the journal may concern; none of them is served. While there are
    /// any, damaged segments stay, so that the next start distrusts the same chunks.
    suspects: BTreeSet<ChunkId>,
    /// Directories of chunks that are known to exist durably.
    directories: BTreeSet<String>,
    /// Names the next file in the directory of unfinished chunks.
    next_temporary: u64,
}

impl ChunkFiles {
    /// The gate of a chunk, whether or not the chunk is here.
    pub(crate) fn gate(&mut self, chunk: ChunkId) -> Arc<Gate> {
        Arc::clone(self.gates.entry(chunk).or_default())
    }

    /// Whether some chunks are distrusted since the journal is damaged.
    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Takes over that a directory of chunks exists durably.
    pub(crate) fn note_directory(&mut self, directory: String) {
        self.directories.insert(directory);
    }

    /// Makes the directory of a chunk's file durable before a file in it has to be.
    fn make_directory(&mut self, disk: &dyn Disk, chunk: ChunkId) -> Result<(), StoreError> {
        let directory = chunk_directory(chunk);
        if !self.directories.contains(&directory) {
            disk.create_directory(&directory)
                .context_or_busy("create directory", &directory)?;
            disk.sync_directory(CHUNKS_DIRECTORY)
                .context("sync directory", CHUNKS_DIRECTORY)?;
            self.directories.insert(directory);
        }
        Ok(())
    }

    /// The path of a new file for a chunk that is not finished.
    fn temporary_path(&mut self) -> String {
        self.next_temporary += 1;
        format!("{TMP_DIRECTORY}/{:016x}", self.next_temporary)
    }

    /// Forgets a chunk that is gone.
    fn forget(&mut self, chunk: ChunkId) {
        self.open.forget(chunk);
        self.gates.retain(|_, gate| Arc::strong_count(gate) > 1);
    }
}
