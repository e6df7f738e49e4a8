//! The files of a metadata log: names, headers and blocks.
//!
//! A file is a header and blocks. A block is written only when all earlier ones are synced, so only the last one may
//! be torn.

use super::error::{LogError, system};
use crc_fast::{CrcAlgorithm, Digest};
use std::fs::{File, Permissions};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes of a file's header: its kind, a position, a checksum.
pub(super) const HEADER_BYTES: usize = 28;
/// Bytes of a block's head: marker, length, checksum, number.
pub(super) const HEAD_BYTES: usize = 20;
/// Begins each block.
const MARKER: [u8; 4] = *b"GMLB";

/// A row: key and value.
pub(super) type Row = (Vec<u8>, Vec<u8>);

/// The two kinds of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileKind {
    /// All rows as of a position.
    Base,
    /// The changes from a position on.
    Log,
}

impl FileKind {
    const fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Base => b"GABBASE1",
            Self::Log => b"GABMLOG1",
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Base => "base-",
            Self::Log => "log-",
        }
    }

    /// The path of a file whose position has this number.
    pub(super) fn path(self, directory: &Path, number: u64) -> PathBuf {
        directory.join(format!("{}{number:020}", self.prefix()))
    }

    /// The number in a file's name, if it is one of this kind.
    pub(super) fn number(self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(self.prefix())?;
        (digits.len() == 20).then(|| digits.parse().ok()).flatten()
    }
}

/// Whether a file of a metadata log may have this name.
pub fn is_log_file(name: &str) -> bool {
    let kinds = [FileKind::Base, FileKind::Log];
    kinds.iter().any(|kind| kind.number(name).is_some())
}

/// A place in the history of a store: the number of its changes, and a digest of all of them. Two histories that have
/// diverged have no place in common behind that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Position {
    pub(crate) number: u64,
    pub(crate) digest: u64,
}

impl Position {
    /// The position after one more transaction with these changes.
    pub(crate) fn after(self, changes: &[u8]) -> Self {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        digest.update(&self.digest.to_le_bytes());
        digest.update(changes);
        Self {
            number: self.number + 1,
            digest: digest.finalize(),
        }
    }
}

fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// The header of a file.
pub(super) fn header(kind: FileKind, at: Position) -> Vec<u8> {
    let mut bytes = kind.magic().to_vec();
    bytes.extend(at.number.to_le_bytes());
    bytes.extend(at.digest.to_le_bytes());
    bytes.extend(crc32c(&[&bytes]).to_le_bytes());
    bytes
}

/// The position in a file's header; none if the header is not whole.
pub(super) fn read_header(kind: FileKind, bytes: &[u8]) -> Option<Position> {
    let header = bytes.get(..HEADER_BYTES)?;
    let (checked, crc) = header.split_at(HEADER_BYTES - 4);
    let is_whole = checked.starts_with(kind.magic()) && crc == crc32c(&[checked]).to_le_bytes();
    is_whole.then(|| Position {
        number: number_at(checked, 8),
        digest: number_at(checked, 16),
    })
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// A block: a number and bytes. The salt belongs to the file, so that bytes of users and of other files are no blocks.
pub(super) fn block(salt: u64, number: u64, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    let number = number.to_le_bytes();
    let mut bytes = MARKER.to_vec();
    bytes.extend(length);
    bytes.extend(crc32c(&[&salt.to_le_bytes(), &length, &number, payload]).to_le_bytes());
    bytes.extend(number);
    bytes.extend(payload);
    bytes
}

/// Bytes of the block with this head; none if it is not the head of a block.
pub(super) fn block_bytes(head: &[u8]) -> Option<usize> {
    let length = head.get(..HEAD_BYTES)?.strip_prefix(&MARKER)?;
    let (length, _) = length.split_first_chunk::<4>()?;
    (u32::from_le_bytes(*length) as usize).checked_add(HEAD_BYTES)
}

/// The whole block at the start of these bytes: its number, its payload, and its length.
pub(super) fn read_block(salt: u64, bytes: &[u8]) -> Option<(u64, &[u8], usize)> {
    let length = block_bytes(bytes)?;
    let (head, payload) = bytes.get(..length)?.split_at(HEAD_BYTES);
    let crc = crc32c(&[&salt.to_le_bytes(), &head[4..8], &head[12..], payload]).to_le_bytes();
    (head[8..12] == crc).then(|| (number_at(head, 12), payload, length))
}

/// Whether any whole block of the changes behind a number begins within these bytes.
pub(super) fn has_block(salt: u64, behind: u64, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.windows(MARKER.len()).position(|part| part == MARKER) {
        let head = rest.get(at..at + HEAD_BYTES);
        // Each change takes some bytes, so other numbers cannot be those of a block here.
        let number = head.map_or(0, |head| number_at(head, 12));
        let is_possible = number > behind && number - behind <= bytes.len() as u64;
        if is_possible && read_block(salt, &rest[at..]).is_some() {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// Appends the encoding of one change to those of a transaction: a key, and its new value or none.
pub(crate) fn encode_change(changes: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    changes.push(u8::from(value.is_some()));
    for part in [Some(key), value].into_iter().flatten() {
        changes.extend((part.len() as u32).to_le_bytes());
        changes.extend(part);
    }
}

/// A change of a row: its key, and its new value or none.
pub(crate) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// The changes of a transaction; none if the bytes are not changes.
pub(crate) fn decode_changes(mut bytes: &[u8]) -> Option<Vec<Change<'_>>> {
    let mut changes = Vec::new();
    while let Some((has_value, rest)) = bytes.split_first() {
        let (key, rest) = split_part(rest)?;
        let (value, rest) = match has_value {
            0 => (None, rest),
            1 => split_part(rest).map(|(value, rest)| (Some(value), rest))?,
            _ => return None,
        };
        changes.push((key, value));
        bytes = rest;
    }
    Some(changes)
}

/// Appends a part with its length.
pub(super) fn put_part(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend((part.len() as u32).to_le_bytes());
    bytes.extend(part);
}

/// Splits a part with its length from the start of these bytes.
pub(super) fn split_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// What is called before each operation on a file that is being written, with the operation's name. An error of it ends
/// the work as an error of the operation does. Tests stop a writer there.
pub(crate) type Steps<'a> = &'a dyn Fn(&'static str) -> std::io::Result<()>;

/// The name of a file until it is whole.
pub(super) const UNFINISHED: &str = "base.unfinished";

/// The path of a file until it is whole.
pub(crate) fn unfinished(directory: &Path) -> PathBuf {
    directory.join(UNFINISHED)
}

/// Removes what an interrupted writer has left.
pub(crate) fn remove_unfinished(directory: &Path) -> Result<(), LogError> {
    let path = unfinished(directory);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(system("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Writes a new file and makes it durable under its name, which it gets when it is whole.
pub(crate) fn write_whole(
    path: &Path,
    steps: Steps<'_>,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), LogError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let written = write_unfinished((&*unfinished(directory), path), steps, write);
    if written.is_err() {
        // It takes space that changes need. The first error is the one to tell.
        let _ = remove_unfinished(directory);
    }
    written
}

fn write_unfinished(
    (unfinished, path): (&Path, &Path),
    steps: Steps<'_>,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), LogError> {
    let fails = |operation| system(operation, path);
    let begin = |operation| steps(operation).map_err(fails(operation));
    begin("create")?;
    let mut buffered = BufWriter::with_capacity(1 << 20, create(unfinished)?);
    write(&mut buffered).map_err(fails("write"))?;
    let file = buffered.into_inner();
    let file = file.map_err(|error| fails("write")(error.into_error()))?;
    begin("sync")?;
    file.sync_all().map_err(fails("sync"))?;
    begin("rename")?;
    std::fs::rename(unfinished, path).map_err(fails("rename"))?;
    begin("sync the directory of")?;
    sync_directory(path)
}

/// Creates a file that only its owner reads: metadata have the keys of tickets.
pub(super) fn create(path: &Path) -> Result<File, LogError> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(path).map_err(system("create", path))?;
    // One that is there already may have other permissions.
    let owners = Permissions::from_mode(0o600);
    file.set_permissions(owners)
        .map_err(system("restrict", path))?;
    Ok(file)
}

/// Makes the name of a file durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), LogError> {
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(system("sync", directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_blocks_and_changes_are_read_back_or_refused() {
        let at = Position {
            number: 7,
            digest: 9,
        };
        let header = header(FileKind::Log, at);
        assert_eq!(header.len(), HEADER_BYTES);
        assert_eq!(read_header(FileKind::Log, &header), Some(at));
        assert_eq!(read_header(FileKind::Base, &header), None);
        let mut changes = Vec::new();
        encode_change(&mut changes, b"key", Some(b"value"));
        encode_change(&mut changes, b"other", None);
        let wanted: Vec<Change<'_>> = vec![(b"key", Some(b"value")), (b"other", None)];
        assert_eq!(decode_changes(&changes), Some(wanted));
        let block = block(5, 3, &changes);
        assert_eq!(read_block(5, &block), Some((3, &*changes, block.len())));
        for bit in 0..block.len() * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_block(5, &bad), None, "bit {bit}");
        }
        for length in 0..block.len() {
            assert_eq!(read_block(5, &block[..length]), None, "{length} bytes");
        }
        for length in 1..changes.len() {
            let first = b"key".len() + b"value".len() + 9;
            let is_whole = length == first;
            let decoded = decode_changes(&changes[..length]);
            assert_eq!(decoded.is_some(), is_whole, "{length} bytes");
        }
        let hidden = [b"GMLBGML", &*block].concat();
        assert!(has_block(5, 2, &hidden));
        assert!(!has_block(5, 2, &block[1..]));
        assert!(!has_block(6, 2, &hidden), "it is one of another file");
        assert!(!has_block(5, 3, &hidden), "it is not behind the last one");
        assert_eq!(read_block(6, &block), None);
    }

    #[test]
    fn names_have_their_numbers() {
        let path = FileKind::Base.path(Path::new("d"), 12);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(FileKind::Base.number(name), Some(12));
        assert_eq!(FileKind::Log.number(name), None);
        assert_eq!(FileKind::Base.number("base-12"), None);
        assert_eq!(
            FileKind::Base.number("base-00000000000000000012.unfinished"),
            None
        );
    }

    #[test]
    fn histories_that_diverge_do_not_meet_again() {
        let start = Position::default();
        let (one, other) = (start.after(b"a"), start.after(b"b"));
        assert_ne!(one, other);
        assert_ne!(one.after(b"c"), other.after(b"c"));
        assert_eq!(one.after(b"c"), start.after(b"a").after(b"c"));
    }
}
