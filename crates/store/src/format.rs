//! The file that marks a disk as a store and gives its format version.

use crate::checksum::crc32c;
use crate::disk::{Disk, rename_in_root, write_file};
use crate::error::{IoContext, StoreError};
use crate::paths::{CHUNKS_DIRECTORY, JOURNAL_DIRECTORY, TMP_DIRECTORY, TRASH_DIRECTORY};
use crate::store::Store;

const PATH: &str = "format";
const UNFINISHED_PATH: &str = "format.new";
const MAGIC: [u8; 8] = *b"GABIONST";
const VERSION: u32 = 4;
/// The earlier version that this one reads. Its records have one run at most.
const EARLIER_VERSION: u32 = 3;
const BYTES: usize = 16;

/// Checks that the disk holds a store that this version can read, or creates one on an empty disk.
/// Returns whether it created one.
pub(crate) fn check_or_create(disk: &dyn Disk) -> Result<bool, StoreError> {
    let names = disk.list("").context_or_busy("list", "")?;
    if names.iter().any(|name| name == PATH) {
        if check(disk)? == EARLIER_VERSION {
            // An earlier process must not misread the records that this one adds.
            write_format(disk, &names)?;
        }
        // A store of an earlier version has no trash directory.
        disk.create_directory(TRASH_DIRECTORY)
            .context("create directory", TRASH_DIRECTORY)?;
        // The process that renamed it may have ended before the rename was durable.
        disk.sync_directory("").context("sync directory", "")?;
        return Ok(false);
    }
    for directory in [
        CHUNKS_DIRECTORY,
        JOURNAL_DIRECTORY,
        TMP_DIRECTORY,
        TRASH_DIRECTORY,
    ] {
        let is_there = names.iter().any(|name| name == directory);
        // An interrupted creation leaves empty directories and nothing else.
        let has_files = || -> Result<bool, StoreError> {
            let files = disk.list(directory);
            Ok(!files.context_or_busy("list", directory)?.is_empty())
        };
        if is_there && has_files()? {
            return Err(StoreError::UnknownFormat {
                path: PATH.to_owned(),
                reason: format!("it is missing, but {directory} has files"),
            });
        }
        disk.create_directory(directory)
            .context("create directory", directory)?;
    }
    write_format(disk, &names)?;
    Ok(true)
}

/// Writes the file, given the names in the store's root.
fn write_format(disk: &dyn Disk, names: &[String]) -> Result<(), StoreError> {
    if names.iter().any(|name| name == UNFINISHED_PATH) {
        disk.remove(UNFINISHED_PATH)
            .context("remove", UNFINISHED_PATH)?;
    }
    write_file(disk, UNFINISHED_PATH, &encode(VERSION))?;
    disk.sync_directory("").context("sync directory", "")?;
    rename_in_root(disk, UNFINISHED_PATH, PATH)
}

impl Store {
    /// Whether a disk holds a store of any format, so that [`Store::open`] creates none there.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn is_on(disk: &dyn Disk) -> Result<bool, StoreError> {
        let names = disk.list("").context_or_busy("list", "")?;
        Ok(names.iter().any(|name| name == PATH))
    }
}

/// The version of a store that this version can read.
fn check(disk: &dyn Disk) -> Result<u32, StoreError> {
    let mut found = [0; BYTES];
    let file = disk.open(PATH).context("open", PATH)?;
    file.read_exact_at(&mut found, 0).context("read", PATH)?;
    let version = u32::from_le_bytes([found[8], found[9], found[10], found[11]]);
    let is_whole = found[..] == encode(version);
    if is_whole && [EARLIER_VERSION, VERSION].contains(&version) {
        return Ok(version);
    }
    let reason = if is_whole {
        format!("it has format {version}; this version reads format {VERSION}")
    } else {
        "it is damaged".to_owned()
    };
    let path = PATH.to_owned();
    Err(StoreError::UnknownFormat { path, reason })
}

fn encode(version: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}
