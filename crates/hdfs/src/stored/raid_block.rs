//! Blocks of HDFS-RAID, and of HDFS, with their checksums in a file beside them: `blk_ID` and `blk_ID_STAMP.meta`.

use super::chunk::{NewChunk, StoredChunk, name_parts, wrong_name};
use super::new_file::NewFile;
use crate::block::{BlockFile, Checksum, io, meta_header};
use crate::error::HdfsError;
use std::path::{Path, PathBuf};

const ALLOWED: &str =
    "a block is named blk_ID, with blk_ID_STAMP.meta beside it; a new one is named blk_ID_STAMP";
/// Bytes of the block that are read at a time for their checksums.
const PIECE_BYTES: u64 = 1 << 20;

/// Opens a block with the one file of checksums beside it.
pub(super) fn open(path: &Path) -> Result<BlockFile, HdfsError> {
    let ["blk", id] = name_parts(path, '_')[..] else {
        return Err(wrong_name(path, ALLOWED));
    };
    id.parse::<i64>().map_err(|_| wrong_name(path, ALLOWED))?;
    let has = path
        .metadata()
        .map_err(|source| io("look at", path, source))?;
    BlockFile::open(path, &sums_of(path, id)?, has.len())
}

/// The file of a block's checksums.
fn sums_of(path: &Path, id: &str) -> Result<PathBuf, HdfsError> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let directory = parent.unwrap_or(Path::new("."));
    let failed = |source| io("list", directory, source);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let stamp = name.to_str().and_then(|name| {
            let rest = name.strip_prefix("blk_")?.strip_prefix(id)?;
            rest.strip_prefix('_')?.strip_suffix(".meta")
        });
        if stamp.is_some_and(|stamp| stamp.parse::<u64>().is_ok()) {
            found.push(directory.join(name));
        }
    }
    match <[PathBuf; 1]>::try_from(found) {
        Ok([only]) => Ok(only),
        Err(found) => {
            let reason = format!(
                "{} files blk_{id}_STAMP.meta are beside it, and one is needed",
                found.len()
            );
            Err(wrong_name(path, &reason))
        }
    }
}

/// A block in the making.
pub(super) struct New {
    data: NewFile,
    sums: NewFile,
    checksum: Checksum,
    length: u64,
}

impl New {
    /// A block with checksums like those of the one at `beside`.
    pub(super) fn create(path: &Path, length: u64, beside: &Path) -> Result<Self, HdfsError> {
        let ["blk", id, stamp] = name_parts(path, '_')[..] else {
            return Err(wrong_name(path, ALLOWED));
        };
        if id.parse::<i64>().is_err() || stamp.parse::<u64>().is_err() {
            return Err(wrong_name(path, ALLOWED));
        }
        let checksum = open(beside)?.checksum();
        let data = NewFile::create(&path.with_file_name(format!("blk_{id}")))?;
        let sums = NewFile::create(&path.with_file_name(format!("blk_{id}_{stamp}.meta")))?;
        Ok(Self {
            data,
            sums,
            checksum,
            length,
        })
    }
}

impl NewChunk for New {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), HdfsError> {
        self.data.write(offset, bytes)
    }

    fn seal(&self) -> Result<Box<dyn StoredChunk>, HdfsError> {
        let unit = u64::from(self.checksum.bytes_per_checksum);
        let mut sums = meta_header(self.checksum);
        // Of whole units.
        let piece_bytes = PIECE_BYTES.next_multiple_of(unit);
        let mut piece = vec![0; piece_bytes as usize];
        for from in (0..self.length).step_by(piece_bytes as usize) {
            let place = &mut piece[..(self.length - from).min(piece_bytes) as usize];
            self.data.read(from, place)?;
            for unit in place.chunks(unit as usize) {
                sums.extend(self.checksum.of(unit).to_be_bytes());
            }
        }
        self.sums.write(0, &sums)?;
        self.sums.sync()?;
        self.data.sync()?;
        let block = BlockFile::open(self.data.temporary(), self.sums.temporary(), self.length)?;
        Ok(Box::new(block))
    }

    /// The checksums first: a block without them would be taken for a damaged one.
    fn publish(&self) -> Result<(), HdfsError> {
        self.sums.publish()?;
        self.data.publish()
    }
}
