//! One file of events: a JSON object a line. It has at most twice as many lines as are kept; then the kept ones are
//! written to a new file, which takes its place.

use super::log::KEPT_COUNT;
use crate::error::{ServerError, io_error};
use gabion_protocol::message::LoggedEvent;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Lines that may wait while the disk fails.
const WAITING_COUNT_MAX: usize = 4 * KEPT_COUNT;

/// A file of events.
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
    line_count: usize,
    /// Lines that are not written yet.
    waiting: String,
    waiting_count: usize,
}

impl EventFile {
    /// Opens or makes a file. Returns the events in it, without lines that are damaged or cut.
    pub(super) fn open(path: PathBuf) -> Result<(Self, VecDeque<LoggedEvent>), ServerError> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(io_error("create", directory))?;
        }
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        let mut damaged_count = 0;
        let events = text.lines().filter(|line| !line.is_empty());
        let events = events.filter_map(|line| {
            let event = serde_json::from_str(line).ok();
            damaged_count += u64::from(event.is_none());
            event
        });
        // After a write that failed midway a line may stand there twice.
        let events: BTreeMap<u64, LoggedEvent> = events
            .map(|event: LoggedEvent| (event.number, event))
            .collect();
        let mut events: VecDeque<LoggedEvent> = events.into_values().collect();
        if damaged_count > 0 {
            let path = path.display();
            tracing::warn!(
                "{path} has damaged lines, {damaged_count} in all; their events are lost"
            );
        }
        events.drain(..events.len().saturating_sub(KEPT_COUNT));
        let file = append_to(&path).map_err(io_error("open", &path))?;
        let mut opened = Self {
            path,
            file,
            line_count: text.lines().count(),
            waiting: String::new(),
            waiting_count: 0,
        };
        if !text.is_empty() && !text.ends_with('\n') {
            // A crash has cut the last line.
            opened.waiting.push('\n');
        }
        Ok((opened, events))
    }

    /// Adds an event, to be written by the next flush. If too many wait because the disk fails, the earlier ones are
    /// left out.
    pub(super) fn add(&mut self, event: &LoggedEvent) {
        if self.waiting_count >= WAITING_COUNT_MAX {
            self.waiting.clear();
            self.waiting.push('\n');
            self.waiting_count = 0;
        }
        // A struct of numbers and strings is always JSON.
        if let Ok(line) = serde_json::to_string(event) {
            self.waiting += &line;
            self.waiting.push('\n');
            self.waiting_count += 1;
        }
    }

    /// Writes what waits, durably.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.waiting_count == 0 {
            return Ok(());
        }
        let written = self.file.write_all(self.waiting.as_bytes());
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            // It may have been written in part.
            if !self.waiting.starts_with('\n') {
                self.waiting.insert(0, '\n');
            }
            return Err(error);
        }
        self.line_count += self.waiting_count;
        self.waiting.clear();
        self.waiting_count = 0;
        if self.line_count >= 2 * KEPT_COUNT {
            self.shorten(sync_directory)?;
        }
        Ok(())
    }

    /// Keeps the last events only. `sync` makes the new file's name durable in its directory.
    fn shorten(&mut self, sync: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let text = read(&self.path)?;
        let lines: Vec<&str> = text.lines().collect();
        let kept = &lines[lines.len().saturating_sub(KEPT_COUNT)..];
        let temporary = self.path.with_extension("new");
        // One that an earlier attempt has left.
        let _ = fs::remove_file(&temporary);
        let mut file = owners().append(true).create_new(true).open(&temporary)?;
        file.write_all((kept.join("\n") + "\n").as_bytes())?;
        file.sync_data()?;
        fs::rename(&temporary, &self.path)?;
        // At once: no name leads to the earlier file, so its events would be lost.
        self.file = file;
        self.line_count = kept.len();
        self.path.parent().map_or(Ok(()), sync)
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// The text of a file. Bytes that a disk has damaged may be none.
fn read(path: &Path) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn append_to(path: &Path) -> io::Result<File> {
    owners().append(true).open(path)
}

/// A file that only its owner may read.
fn owners() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_shortened_to_the_last_events() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let (mut file, kept) = EventFile::open(path.clone()).unwrap();
        assert!(kept.is_empty());
        fs::write(&path, b"damaged \xff\n").unwrap();
        let count = 2 * KEPT_COUNT as u64;
        for number in 0..count {
            file.add(&LoggedEvent {
                number,
                ..LoggedEvent::default()
            });
        }
        file.flush().unwrap();
        assert_eq!(file.line_count, KEPT_COUNT);
        file.add(&LoggedEvent {
            number: count,
            ..LoggedEvent::default()
        });
        file.flush().unwrap();
        let (file, kept) = EventFile::open(path).unwrap();
        assert_eq!(file.line_count, KEPT_COUNT + 1);
        let numbers: Vec<u64> = kept.iter().map(|event| event.number).collect();
        let expected: Vec<u64> = (count + 1 - KEPT_COUNT as u64..=count).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn events_after_a_failed_sync_of_the_directory_are_in_the_shortened_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let (mut file, _) = EventFile::open(path.clone()).unwrap();
        let write = |file: &mut EventFile, number| {
            file.add(&LoggedEvent {
                number,
                ..LoggedEvent::default()
            });
            file.flush().unwrap();
        };
        write(&mut file, 1);
        file.shorten(|_| Err(io::ErrorKind::Other.into()))
            .unwrap_err();
        write(&mut file, 2);
        let (_, kept) = EventFile::open(path).unwrap();
        let numbers: Vec<u64> = kept.iter().map(|event| event.number).collect();
        assert_eq!(numbers, [1, 2]);
    }
}
