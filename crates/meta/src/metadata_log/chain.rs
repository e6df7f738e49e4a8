//! A metadata log as it is read: the newest base, and the changes since, in their order.

use super::error::{LogError, system};
use super::files::{
    FileKind, HEAD_BYTES, HEADER_BYTES, Position, Row, block_bytes, has_block, read_block,
    read_header, split_part,
};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The files of a log.
#[derive(Debug)]
pub(crate) struct Chain {
    directory: PathBuf,
    base: PathBuf,
    /// The position of the base.
    pub(crate) begin: Position,
    /// The files with changes behind the base, and some before it, in their order.
    logs: Vec<PathBuf>,
}

/// The end of a log.
#[derive(Debug)]
pub(crate) struct End {
    /// The last whole change.
    pub(crate) position: Position,
    /// The file that goes on with the next change, its whole bytes, and where it begins.
    pub(super) tail: Option<(PathBuf, u64, Position)>,
    /// Bytes behind the last whole block, which were never acknowledged unless the disk has lost them.
    pub(crate) torn_bytes: u64,
    /// Bytes of all files with changes.
    pub(super) log_bytes: u64,
}

impl End {
    /// The end of a log without changes.
    const fn at(position: Position) -> Self {
        Self {
            position,
            tail: None,
            torn_bytes: 0,
            log_bytes: 0,
        }
    }
}

impl Chain {
    /// The newest base of a directory with the files behind it; none if there is no file of a log.
    pub(crate) fn find(directory: &Path) -> Result<Option<Self>, LogError> {
        let bases = numbers(directory, FileKind::Base)?;
        let logs = numbers(directory, FileKind::Log)?;
        let Some(&newest) = bases.last() else {
            // A base is there before the first change.
            return match logs.first() {
                Some(&found) => Err(LogError::Gap {
                    path: directory.to_owned(),
                    good: 0,
                    found: found + 1,
                }),
                None => Ok(None),
            };
        };
        let base = FileKind::Base.path(directory, newest);
        let mut header = [0; HEADER_BYTES];
        let file = File::open(&base).and_then(|mut file| file.read_exact(&mut header));
        file.map_err(system("read", &base))?;
        let begin = read_header(FileKind::Base, &header).ok_or_else(|| damaged(&base, 0, 0))?;
        // The last file that begins at the base or before it may have changes behind it.
        let first = logs.partition_point(|number| *number <= newest);
        let needed = logs.get(first.saturating_sub(1)..).unwrap_or_default();
        let logs = needed.iter();
        let logs = logs.map(|number| FileKind::Log.path(directory, *number));
        Ok(Some(Self {
            directory: directory.to_owned(),
            base,
            begin,
            logs: logs.collect(),
        }))
    }

    /// The file of the base.
    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// The files with changes behind the base, and some before it, in their order.
    pub(crate) fn logs(&self) -> &[PathBuf] {
        &self.logs
    }

    /// Visits the rows of the base in pages.
    pub(crate) fn rows<E: From<LogError>>(
        &self,
        mut visit: impl FnMut(&[Row]) -> Result<(), E>,
    ) -> Result<u64, E> {
        read_base(&self.base, self.begin, |_, rows| match rows {
            // The header, or the last block.
            [] => Ok(()),
            rows => visit(rows),
        })
    }

    /// Bytes of the base.
    pub(super) fn base_bytes(&self) -> Result<u64, LogError> {
        let metadata = std::fs::metadata(&self.base).map_err(system("measure", &self.base))?;
        Ok(metadata.len())
    }

    /// Visits the changes behind the base in their order, each with the position after it.
    pub(crate) fn changes<E: From<LogError>>(
        &self,
        visit: impl FnMut(Position, &[u8]) -> Result<(), E>,
    ) -> Result<End, E> {
        self.files(visit, |_, _| Ok(()))
    }

    /// Visits the changes behind the base as [`Chain::changes`] does, and after those of a file the file itself: its
    /// path, and its bytes as far as they are whole.
    pub(crate) fn files<E: From<LogError>>(
        &self,
        mut visit: impl FnMut(Position, &[u8]) -> Result<(), E>,
        mut visit_file: impl FnMut(&Path, &[u8]) -> Result<(), E>,
    ) -> Result<End, E> {
        let mut end = End::at(self.begin);
        for (index, path) in self.logs.iter().enumerate() {
            let is_last = index + 1 == self.logs.len();
            let bytes = std::fs::read(path).map_err(system("read", path))?;
            end.log_bytes += bytes.len() as u64;
            let Some(begin) = read_header(FileKind::Log, &bytes) else {
                // The process may have ended while it made this file.
                let salt = end.position.digest;
                if is_last && !has_block(salt, end.position.number, &bytes) {
                    end.torn_bytes = bytes.len() as u64;
                    end.tail = None;
                    break;
                }
                return Err(damaged(path, 0, end.position.number).into());
            };
            if begin.number > end.position.number {
                return Err(LogError::Gap {
                    path: self.directory.clone(),
                    good: end.position.number,
                    found: begin.number + 1,
                }
                .into());
            }
            let file = (path.as_path(), &*bytes, is_last);
            let (here, whole) = file_changes(file, (begin, &mut end), &mut visit)?;
            end.torn_bytes = bytes.len() as u64 - whole;
            end.tail = (here == end.position).then(|| (path.clone(), whole, begin));
            visit_file(path, &bytes[..whole as usize])?;
        }
        Ok(end)
    }
}

/// Visits the header and the blocks of a base in their order: the bytes of each, and its rows. Returns how many rows
/// there are.
///
/// # Errors
/// [`LogError`] if the file is not a whole base of this position; errors of the visitor.
pub(crate) fn read_base<E: From<LogError>>(
    path: &Path,
    position: Position,
    mut visit: impl FnMut(&[u8], &[Row]) -> Result<(), E>,
) -> Result<u64, E> {
    let file = File::open(path).map_err(system("read", path))?;
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header).map_err(system("read", path))?;
    if read_header(FileKind::Base, &header) != Some(position) {
        return Err(damaged(path, 0, 0).into());
    }
    visit(&header, &[])?;
    let (mut at, mut row_count) = (HEADER_BYTES as u64, 0);
    loop {
        let bad = || E::from(damaged(path, at, 0));
        let bytes = next_block(&mut file).ok_or_else(bad)?;
        let (number, payload, _) = read_block(position.digest, &bytes).ok_or_else(bad)?;
        let rows = decode_rows(payload).ok_or_else(bad)?;
        row_count += rows.len() as u64;
        if number != row_count {
            return Err(bad());
        }
        visit(&bytes, &rows)?;
        if rows.is_empty() {
            return Ok(row_count);
        }
        at += bytes.len() as u64;
    }
}

/// Checks that a file with changes is whole to its last byte.
///
/// # Errors
/// [`LogError::Damaged`].
pub(crate) fn check_whole(path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let begin = read_header(FileKind::Log, bytes).ok_or_else(|| damaged(path, 0, 0))?;
    let (file, mut end) = ((path, bytes, false), End::at(begin));
    let mut visit = |_: Position, _: &[u8]| Ok::<(), LogError>(());
    file_changes(file, (begin, &mut end), &mut visit).map(drop)
}

/// Visits the changes of one file. Returns the position at its end, and its whole bytes.
fn file_changes<E: From<LogError>>(
    (path, bytes, is_last): (&Path, &[u8], bool),
    (begin, end): (Position, &mut End),
    visit: &mut impl FnMut(Position, &[u8]) -> Result<(), E>,
) -> Result<(Position, u64), E> {
    let (mut here, mut at) = (begin, HEADER_BYTES);
    while at < bytes.len() {
        let bad = || E::from(damaged(path, at as u64, here.number));
        let Some((last, mut payload, length)) = read_block(begin.digest, &bytes[at..]) else {
            if is_last && !has_block(begin.digest, here.number, &bytes[at + 1..]) {
                // It was never synced.
                break;
            }
            return Err(bad());
        };
        let mut position = here;
        while !payload.is_empty() {
            let (changes, rest) = split_part(payload).ok_or_else(bad)?;
            if position.number == end.position.number && position != end.position {
                return Err(bad());
            }
            position = position.after(changes);
            if position.number > end.position.number {
                visit(position, changes)?;
                end.position = position;
            }
            payload = rest;
        }
        if position.number != last {
            return Err(bad());
        }
        here = position;
        at += length;
    }
    Ok((here, at as u64))
}

/// The numbers of the files of a kind, ascending.
pub(super) fn numbers(directory: &Path, kind: FileKind) -> Result<Vec<u64>, LogError> {
    let entries = std::fs::read_dir(directory).map_err(system("list", directory))?;
    let mut numbers = Vec::new();
    for entry in entries {
        let entry = entry.map_err(system("list", directory))?;
        numbers.extend(
            entry
                .file_name()
                .to_str()
                .and_then(|name| kind.number(name)),
        );
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The bytes of the next block; none if the file ends before that.
fn next_block(file: &mut impl Read) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(HEAD_BYTES as u64).read_to_end(&mut bytes).ok()?;
    let length = block_bytes(&bytes)?;
    let rest = (length - HEAD_BYTES) as u64;
    file.take(rest).read_to_end(&mut bytes).ok()?;
    (bytes.len() == length).then_some(bytes)
}

/// The rows of a block of a base.
fn decode_rows(mut payload: &[u8]) -> Option<Vec<Row>> {
    let mut rows = Vec::new();
    while !payload.is_empty() {
        let (key, rest) = split_part(payload)?;
        let (value, rest) = split_part(rest)?;
        rows.push((key.to_vec(), value.to_vec()));
        payload = rest;
    }
    Some(rows)
}

fn damaged(path: &Path, at: u64, good: u64) -> LogError {
    LogError::Damaged {
        path: path.to_owned(),
        at,
        good,
    }
}
