//! The files of chunks: their layout, writing, reading, merging, checking and removing.
//!
//! [`ChunkFiles`] is the in-memory state of all chunk files.

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

/// The contents of a chunk's header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Header {
    /// Not read yet.
    #[default]
    Unread,
    /// As it is on disk.
    Known(ChunkHeader),
    /// The header or the whole chunk cannot be trusted.
    Damaged,
    /// A write to the chunk failed, and latched the store. The next start repairs the half-written
    /// bytes from the journal, so this is not damage.
    Torn,
}

/// The in-memory state of chunk files.
pub(crate) struct ChunkFiles {
    disk: Arc<dyn Disk>,
    gates: BTreeMap<ChunkId, Arc<Gate>>,
    open: OpenFiles,
    /// Chunks that damage to the journal may concern; none of them is served. While there are any,
    /// damaged segments stay, so that the next start distrusts the same chunks.
    suspects: BTreeSet<ChunkId>,
    /// Directories of chunks that are known to exist durably.
    directories: BTreeSet<String>,
    /// Names the next file in the directory of unfinished chunks.
    next_temporary: u64,
}

impl ChunkFiles {
    /// No chunks yet, on this disk.
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            gates: BTreeMap::new(),
            open: OpenFiles::default(),
            suspects: BTreeSet::new(),
            directories: BTreeSet::new(),
            next_temporary: 0,
        }
    }

    /// Number of directories of chunks.
    pub(crate) fn directory_count(&self) -> u64 {
        self.directories.len() as u64
    }

    /// The gate of a chunk, whether or not the chunk is here.
    pub(crate) fn gate(&mut self, chunk: ChunkId) -> Arc<Gate> {
        Arc::clone(self.gates.entry(chunk).or_default())
    }

    /// Whether journal damage makes some chunks untrusted.
    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Notes that a directory of chunks exists durably.
    pub(crate) fn note_directory(&mut self, directory: String) {
        self.directories.insert(directory);
    }

    /// Makes the directory of a chunk's file durable, before the file itself.
    fn make_directory(&mut self, chunk: ChunkId) -> Result<(), StoreError> {
        let directory = chunk_directory(chunk);
        if !self.directories.contains(&directory) {
            self.disk
                .create_directory(&directory)
                .context_or_busy("create directory", &directory)?;
            self.disk
                .sync_directory(CHUNKS_DIRECTORY)
                .context("sync directory", CHUNKS_DIRECTORY)?;
            self.directories.insert(directory);
        }
        Ok(())
    }

    /// A new path for an unfinished chunk.
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
