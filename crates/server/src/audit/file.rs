//! The files of the audit log. Each has the number of its first record as its name, and is only appended to. A process
//! begins a new one at its start, when the present one is large, and after an error.

use super::record::{AuditRecord, AuditTrail, Noted, Seal, sealed};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes above which a new file begins.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of all files above which the oldest one is deleted.
const TOTAL_BYTES_MAX: u64 = 1 << 30;
/// Files above which the oldest one is deleted.
const FILE_COUNT_MAX: usize = 1000;

/// The files, and the end of the last one.
pub(super) struct AuditFiles {
    directory: PathBuf,
    /// The file to which records are added; none before the first record, and after an error.
    present: Option<Present>,
    /// A file that may end in records that do not count.
    uncertain: Option<Present>,
    /// The number and the seal of the last record.
    last: (u64, Seal),
}

struct Present {
    file: File,
    /// Its bytes with all records that count.
    bytes: u64,
}

impl AuditFiles {
    /// Finds the end of the records in a directory, which it makes.
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&directory)?;
        if let Some(above) = directory.parent() {
            File::open(above)?.sync_all()?;
        }
        let mut last = (0, Seal::default());
        let names = file_names(&directory)?;
        for name in names.iter().rev() {
            let text = fs::read(directory.join(name))?;
            if let Some(end) = AuditTrail::end_of(name, &String::from_utf8_lossy(&text)) {
                // What follows depends on it, and a process that was killed may not have synced it.
                File::open(directory.join(name))?.sync_all()?;
                last = end;
                break;
            }
        }
        // A crash may have left a file without a whole record.
        let newest = names.last().and_then(|name| number_of(name));
        last.0 = last.0.max(newest.unwrap_or_default());
        Ok(Self {
            directory,
            present: None,
            uncertain: None,
            last,
        })
    }

    /// Writes records, and syncs them. On an error none of them counts. Returns the number of the first.
    pub(super) fn append(&mut self, time_ms: i64, noted: Vec<Noted>) -> io::Result<u64> {
        if let Some(Present { file, bytes }) = &self.uncertain {
            file.set_len(*bytes)?;
            file.sync_all()?;
            self.uncertain = None;
        }
        let present = self.present.take();
        let present = present.filter(|present| present.bytes < FILE_BYTES_MAX);
        let begun = Noted::Begun {
            after: self.last.1.to_string(),
        };
        let begun = present.is_none().then_some(begun);
        let first = self.last.0 + 1 + u64::from(begun.is_some());
        let mut present = match present {
            Some(present) => present,
            None => self.begin()?,
        };
        let mut last = self.last;
        let mut lines = String::new();
        for noted in begun.into_iter().chain(noted) {
            let record = AuditRecord {
                number: last.0 + 1,
                time_ms,
                noted,
            };
            let (line, seal) = sealed(&record, last.1);
            lines += &line;
            last = (record.number, seal);
        }
        let written = present.file.write_all(lines.as_bytes());
        if let Err(error) = written.and_then(|()| present.file.sync_data()) {
            self.uncertain = Some(present);
            return Err(error);
        }
        present.bytes += lines.len() as u64;
        self.present = Some(present);
        self.last = last;
        Ok(first)
    }

    /// Begins a file, durably, and deletes the oldest ones if there are too many.
    fn begin(&self) -> io::Result<Present> {
        let name = format!("{:016x}.jsonl", self.last.0 + 1);
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        let file = options.open(self.directory.join(name))?;
        File::open(&self.directory)?.sync_all()?;
        self.delete_oldest()?;
        Ok(Present { file, bytes: 0 })
    }

    fn delete_oldest(&self) -> io::Result<()> {
        let names = file_names(&self.directory)?;
        let mut kept_bytes = 0;
        for (newer_count, name) in names.iter().rev().enumerate() {
            let path = self.directory.join(name);
            kept_bytes += fs::metadata(&path)?.len();
            if newer_count >= FILE_COUNT_MAX || kept_bytes > TOTAL_BYTES_MAX {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// The names of the files, oldest first.
pub(super) fn file_names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        names.extend(
            name.to_str()
                .filter(|name| number_of(name).is_some())
                .map(str::to_owned),
        );
    }
    names.sort_unstable();
    Ok(names)
}

/// The number of a file's first record.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name
        .strip_suffix(".jsonl")
        .filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::record::{AuditFault, AuditedOutcome, Became};
    use super::*;

    fn outcome(order: u64) -> Noted {
        Noted::Outcome(AuditedOutcome {
            order,
            became: Became::Done,
        })
    }

    /// The directory of a coordinator, and its files with some records: three in the first and two in the second.
    fn two_files() -> (tempfile::TempDir, PathBuf) {
        let data = tempfile::tempdir().unwrap();
        let directory = data.path().join("audit");
        let mut files = AuditFiles::open(directory.clone()).unwrap();
        assert_eq!(files.append(7, vec![outcome(1), outcome(2)]).unwrap(), 2);
        let mut files = AuditFiles::open(directory.clone()).unwrap();
        assert_eq!(files.append(8, vec![outcome(3)]).unwrap(), 5);
        (data, directory)
    }

    fn change(path: &Path, change: impl FnOnce(String) -> String) {
        let text = fs::read_to_string(path).unwrap();
        fs::write(path, change(text)).unwrap();
    }

    #[test]
    fn records_follow_each_other_over_starts() {
        let (data, directory) = two_files();
        let trail = AuditTrail::read(data.path()).unwrap();
        let numbers = trail.records.iter().map(|record| record.number);
        assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(trail.records[2].noted, outcome(2));
        assert_eq!((trail.faults, trail.cut), (vec![], vec![]));
        assert_eq!(
            file_names(&directory).unwrap(),
            ["0000000000000001.jsonl", "0000000000000004.jsonl"]
        );
    }

    #[test]
    fn changes_of_records_are_found() {
        type Change = fn(String) -> String;
        let changes: [(Change, usize); 4] = [
            // A record that says something else.
            (|text| text.replace("\"order\":1", "\"order\":9"), 2),
            // A record less.
            (|text| without_line(&text, 1), 2),
            // One more, a copy of another.
            (|text| text.clone() + text.lines().nth(1).unwrap() + "\n", 4),
            // Another time.
            (|text| text.replacen("\"time_ms\":7", "\"time_ms\":8", 1), 1),
        ];
        for (changed, line) in changes {
            let (data, directory) = two_files();
            let first = directory.join("0000000000000001.jsonl");
            change(&first, changed);
            let faults = AuditTrail::read(data.path()).unwrap().faults;
            let file = "0000000000000001.jsonl".to_owned();
            assert_eq!(faults[0], AuditFault::Broken { file, line });
        }
        let (data, directory) = two_files();
        change(&directory.join("0000000000000001.jsonl"), |text| {
            without_line(&text, 2)
        });
        let file = "0000000000000004.jsonl".to_owned();
        let missing = AuditFault::Missing { file };
        assert_eq!(AuditTrail::read(data.path()).unwrap().faults, [missing]);
    }

    fn without_line(text: &str, at: usize) -> String {
        let lines = text.lines().enumerate().filter(|(line, _)| *line != at);
        lines.flat_map(|(_, line)| [line, "\n"]).collect()
    }

    #[test]
    fn a_crash_leaves_cut_lines_and_files_without_a_record() {
        let (data, directory) = two_files();
        let cut = "{\"number\":";
        change(&directory.join("0000000000000004.jsonl"), |text| text + cut);
        // A later process got no further.
        fs::write(directory.join("0000000000000006.jsonl"), cut).unwrap();
        let mut files = AuditFiles::open(directory).unwrap();
        files.append(9, vec![outcome(4)]).unwrap();
        let trail = AuditTrail::read(data.path()).unwrap();
        assert_eq!(trail.faults, []);
        assert_eq!(trail.cut.len(), 2);
        assert_eq!(trail.records.last().map(|record| record.number), Some(8));
        assert_eq!(trail.records.len(), 7);
    }

    #[test]
    fn what_an_error_has_left_does_not_count() {
        let (data, directory) = two_files();
        let mut files = AuditFiles::open(directory.clone()).unwrap();
        fs::rename(&directory, data.path().join("away")).unwrap();
        files.append(9, vec![outcome(4)]).unwrap_err();
        fs::rename(data.path().join("away"), &directory).unwrap();
        files.append(9, vec![outcome(5)]).unwrap();
        // A write that is in the file, although its sync has failed.
        let mut present = files.present.take().unwrap();
        present.file.write_all(b"{\"number\":8").unwrap();
        files.uncertain = Some(present);
        files.append(9, vec![outcome(6)]).unwrap();
        let trail = AuditTrail::read(data.path()).unwrap();
        assert_eq!((trail.faults, trail.cut), (vec![], vec![]));
        assert_eq!(trail.records.last().unwrap().noted, outcome(6));
        assert!(
            !trail
                .records
                .iter()
                .any(|record| record.noted == outcome(4))
        );
    }
}
