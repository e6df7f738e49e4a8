//! The files of the audit log. Each has the number of its first record as its name, and is only appended to. A process
//! begins a new one at its start, when the present one is large, and after an error.

use super::record::{AuditRecord, AuditTrail, Noted, Seal, sealed};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
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
    /// A file that was no longer at its name when a record was to be added.
    vanished: Option<PathBuf>,
    /// The number and the seal of the last record.
    last: (u64, Seal),
}

struct Present {
    file: File,
    path: PathBuf,
    /// Its bytes with all records that count.
    bytes: u64,
}

impl AuditFiles {
    /// Finds the end of the records in a directory, which it makes.
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        make_directory(&directory)?;
        let mut last = (0, Seal::default());
        let names = file_names(&directory)?;
        for name in names.iter().rev() {
            let text = fs::read(directory.join(name))?;
            if let Some(end) = AuditTrail::end_of(name, &String::from_utf8_lossy(&text)) {
                // Later records depend on it, and a process that was killed may not have synced it.
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
            vanished: None,
            last,
        })
    }

    /// The file that was removed or replaced since the last call, if one was.
    pub(super) fn take_vanished(&mut self) -> Option<PathBuf> {
        self.vanished.take()
    }

    /// Writes records, and syncs them. On an error none of them counts. Returns the number of the first.
    pub(super) fn append(&mut self, time_ms: i64, noted: &[Noted]) -> io::Result<u64> {
        if let Some(Present { file, bytes, .. }) = &self.uncertain {
            file.set_len(*bytes)?;
            file.sync_all()?;
            self.uncertain = None;
        }
        let mut present = self.present.take();
        if let Some(gone) = present.take_if(|present| !present.is_at_its_name()) {
            // Records in it would be lost. The next file depends on its last seal, so a check finds the gap.
            self.vanished = Some(gone.path);
        }
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
        for noted in begun.into_iter().chain(noted.iter().cloned()) {
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
        make_directory(&self.directory)?;
        let path = self.directory.join(name);
        let file = options.open(&path)?;
        File::open(&self.directory)?.sync_all()?;
        self.delete_oldest()?;
        let bytes = 0;
        Ok(Present { file, path, bytes })
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

impl Present {
    /// Whether the name still refers to the file. Otherwise appended records cannot be read.
    fn is_at_its_name(&self) -> bool {
        let (Ok(open), Ok(named)) = (self.file.metadata(), fs::metadata(&self.path)) else {
            return false;
        };
        (open.dev(), open.ino()) == (named.dev(), named.ino())
    }
}

/// Makes the directory durably, unless it exists.
fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)?;
    match directory.parent() {
        Some(above) => File::open(above)?.sync_all(),
        None => Ok(()),
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
        assert_eq!(files.append(7, &[outcome(1), outcome(2)]).unwrap(), 2);
        let mut files = AuditFiles::open(directory.clone()).unwrap();
        assert_eq!(files.append(8, &[outcome(3)]).unwrap(), 5);
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
        files.append(9, &[outcome(4)]).unwrap();
        let trail = AuditTrail::read(data.path()).unwrap();
        assert_eq!(trail.faults, []);
        assert_eq!(trail.cut.len(), 2);
        assert_eq!(trail.records.last().map(|record| record.number), Some(8));
        assert_eq!(trail.records.len(), 7);
    }

    #[test]
    fn a_file_that_is_removed_in_use_is_noticed_and_a_check_finds_the_gap() {
        let (data, directory) = two_files();
        let mut files = AuditFiles::open(directory.clone()).unwrap();
        files.append(9, &[outcome(4)]).unwrap();
        assert_eq!(files.take_vanished(), None);
        let present = directory.join("0000000000000006.jsonl");
        fs::remove_file(&present).unwrap();
        files.append(9, &[outcome(5)]).unwrap();
        assert_eq!(files.take_vanished(), Some(present));
        let trail = AuditTrail::read(data.path()).unwrap();
        assert_eq!(trail.records.last().unwrap().noted, outcome(5));
        let file = "0000000000000008.jsonl".to_owned();
        assert_eq!(trail.faults, [AuditFault::Missing { file }]);
        // So is the loss of the whole directory, and of a file in favour of another one.
        fs::remove_dir_all(&directory).unwrap();
        files.append(9, &[outcome(6)]).unwrap();
        assert!(files.take_vanished().is_some());
        let name = file_names(&directory).unwrap().pop().unwrap();
        fs::remove_file(directory.join(&name)).unwrap();
        fs::write(directory.join(&name), "").unwrap();
        files.append(9, &[outcome(7)]).unwrap();
        assert_eq!(files.take_vanished(), Some(directory.join(name)));
    }

    #[test]
    fn a_seal_that_was_kept_shows_whether_the_end_is_still_there() {
        let (data, directory) = two_files();
        let seal = AuditTrail::read(data.path()).unwrap().seal;
        let mut files = AuditFiles::open(directory.clone()).unwrap();
        files.append(9, &[outcome(4)]).unwrap();
        assert!(AuditTrail::read(data.path()).unwrap().has_seal(&seal));
        // Without its last lines the log still follows itself.
        fs::remove_file(directory.join("0000000000000006.jsonl")).unwrap();
        change(&directory.join("0000000000000004.jsonl"), |text| {
            without_line(&text, 1)
        });
        let trail = AuditTrail::read(data.path()).unwrap();
        assert_eq!(trail.faults, []);
        assert!(!trail.has_seal(&seal));
    }

    #[test]
    fn records_left_by_an_error_do_not_count() {
        let (data, directory) = two_files();
        let mut files = AuditFiles::open(directory.clone()).unwrap();
        fs::rename(&directory, data.path().join("away")).unwrap();
        fs::write(&directory, "no directory").unwrap();
        files.append(9, &[outcome(4)]).unwrap_err();
        fs::remove_file(&directory).unwrap();
        fs::rename(data.path().join("away"), &directory).unwrap();
        files.append(9, &[outcome(5)]).unwrap();
        // A write that is in the file, although its sync has failed.
        let mut present = files.present.take().unwrap();
        present.file.write_all(b"{\"number\":8").unwrap();
        files.uncertain = Some(present);
        files.append(9, &[outcome(6)]).unwrap();
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
