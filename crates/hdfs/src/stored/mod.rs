//! Chunk files of QFS and of HDFS-RAID: verified reads, and new files that appear only when they are whole.
//!
//! Both systems give a file's chunks to single machines, so byte `x` of a chunk with parity follows from the bytes `x`
//! of all chunks with data. Bytes behind a chunk's end count as zeros.

mod chunk;
mod inline_block;
mod new_file;
mod qfs;
mod raid_block;

use crate::error::HdfsError;
use std::path::Path;

pub(crate) use chunk::{NewChunk, StoredChunk};

/// The system that the files belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Chunk files of QFS: `FILE.CHUNK.VERSION`, with a header of 16 KiB.
    Qfs,
    /// Blocks of HDFS-RAID: `blk_ID` beside a file of checksums, or `blk_ID_STAMP_2_TYPE_UNIT` with checksums in it.
    HdfsRaid,
}

impl Format {
    /// Opens a chunk's file.
    ///
    /// # Errors
    /// [`HdfsError::Name`] for a name that the format does not have; [`HdfsError::Corrupt`]; [`HdfsError::Io`].
    pub(crate) fn open(self, path: &Path) -> Result<Box<dyn StoredChunk>, HdfsError> {
        match self {
            Self::Qfs => Ok(Box::new(qfs::Chunk::open(path)?)),
            Self::HdfsRaid if inline_block::is_name(path) => {
                Ok(Box::new(inline_block::Block::open(path)?))
            }
            Self::HdfsRaid => Ok(Box::new(raid_block::open(path)?)),
        }
    }

    /// A new chunk of `length` bytes at `path`, which belongs to the same file as the chunk at `beside`.
    ///
    /// # Errors
    /// [`HdfsError::Name`] for a name that the format does not have or a file has; [`HdfsError::Corrupt`] when
    /// `beside` has no valid header; [`HdfsError::Io`].
    pub(crate) fn create(
        self,
        path: &Path,
        length: u64,
        beside: &Path,
    ) -> Result<Box<dyn NewChunk>, HdfsError> {
        match self {
            Self::Qfs => Ok(Box::new(qfs::New::create(path, length, beside)?)),
            Self::HdfsRaid if inline_block::is_name(path) => {
                Ok(Box::new(inline_block::New::create(path, length)?))
            }
            Self::HdfsRaid => Ok(Box::new(raid_block::New::create(path, length, beside)?)),
        }
    }
}

#[cfg(test)]
mod tests;
