//! Backups of a metadata log, made while a coordinator writes it. A backup is a directory with files as the log has
//! them, so it is restored like a log (`RedbStore::restore`). No lock of the log is taken.
//!
//! A run first reads what the log and the backup have, and changes nothing. Then it copies the base if it is a new one,
//! and each log file of which the backup has less. A file gets its name when it is whole and durable, in the order of
//! the changes, so the backup can be restored after each step, as of the same change or a later one. A file that has
//! grown is written anew, with the part that the backup has: blocks that were appended to it without a sync between
//! them could be left with a hole after a loss of power, and that is damage. At the end the backup is read back, and
//! only then are the files removed that a new base replaces.

mod error;
mod past;
#[cfg(test)]
mod tests;

pub use self::error::BackupError;

use self::error::{disk, of_backup, of_base};
use self::past::Past;
use crate::error::MetaError;
use crate::metadata_log::{
    Chain, LogError, Position, Steps, belongs, check_whole, is_log_file, lock, make_directory,
    read_base, remove_unfinished, replaced, sync_directory, system, unfinished, write_whole,
};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Number of attempts to read a log whose files the coordinator replaces during the read.
const ATTEMPT_COUNT: usize = 5;
/// Bytes of a log file that are written at once.
const PART_BYTES: usize = 1 << 20;

/// What a backup has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackedUp {
    /// The number of the last transaction since the store was made.
    pub last: u64,
    /// A digest of all transactions up to that one.
    pub digest: u64,
    /// The number of the last transaction that is in the base.
    pub base: u64,
    /// Bytes that the backup lacked and that were copied.
    pub copied_bytes: u64,
    /// Bytes at the end of the log that were left out, because they are not whole: of a transaction that is being
    /// written, or that was never acknowledged.
    pub torn_bytes: u64,
}

/// Copies to a directory what a metadata log has and the backup in that directory lacks. A coordinator may write the
/// log during the call. The backup has every change that was acknowledged before the call, also if a process ends at
/// any moment of it.
///
/// # Errors
/// [`BackupError`]. The backup in the directory can be restored as before.
pub fn back_up(from: &Path, to: &Path) -> Result<BackedUp, BackupError> {
    back_up_in_steps((from, to), false, &|_| Ok(()))
}

/// The same, and also copies the base if the backup has that base already, which may be damaged. The new copy takes
/// the place of the old one when it is whole, durable and read back.
///
/// # Errors
/// Those of [`back_up`]; [`BackupError::DamagedBase`] only if the log has no base of that number.
pub fn back_up_with_new_base(from: &Path, to: &Path) -> Result<BackedUp, BackupError> {
    back_up_in_steps((from, to), true, &|_| Ok(()))
}

fn back_up_in_steps(
    (from, to): (&Path, &Path),
    renews_base: bool,
    steps: Steps<'_>,
) -> Result<BackedUp, BackupError> {
    if !from.is_dir() || lengths(from)?.is_empty() {
        return Err(LogError::Missing(from.to_owned()).into());
    }
    check_place(from, to)?;
    let _lock = take(to)?;
    let backup = Backup {
        from,
        to,
        renews_base,
        steps,
        copied_bytes: Cell::new(0),
    };
    for _ in 1..ATTEMPT_COUNT {
        let before = lengths(from)?;
        let done = backup.run();
        // The coordinator may have removed a file that a new base replaces, or shortened one at its start.
        let is_log_at_fault = matches!(done, Err(BackupError::Log(_)));
        if !is_log_at_fault || lengths(from)? == before {
            return done;
        }
    }
    backup.run()
}

/// The names of the files of a log, with their lengths.
fn lengths(directory: &Path) -> Result<Vec<(String, u64)>, LogError> {
    let mut files = Vec::new();
    let entries = std::fs::read_dir(directory).map_err(system("list", directory))?;
    for entry in entries {
        let entry = entry.map_err(system("list", directory))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The coordinator may have removed the file since it was listed.
        if is_log_file(&name)
            && let Ok(metadata) = entry.metadata()
        {
            files.push((name, metadata.len()));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Refuses a backup in the directory of its log or of another backup.
fn check_place(from: &Path, to: &Path) -> Result<(), BackupError> {
    let log = from.canonicalize().map_err(system("find", from))?;
    let backup = resolved(to).map_err(disk("find", to))?;
    if backup.starts_with(&log) {
        return Err(BackupError::Inside {
            backup: to.to_owned(),
            log: from.to_owned(),
        });
    }
    // This process continues no backup in a directory that it cannot list.
    let mut above = backup.ancestors().skip(1);
    match above.find(|above| lengths(above).is_ok_and(|files| !files.is_empty())) {
        Some(other) => Err(BackupError::Below {
            backup: to.to_owned(),
            other: other.to_owned(),
        }),
        None => Ok(()),
    }
}

/// The absolute path of a directory that may be made yet.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match (path.canonicalize(), path.file_name()) {
        (Err(error), Some(name)) if error.kind() == ErrorKind::NotFound => {
            let parent = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            Ok(parent.canonicalize()?.join(name))
        }
        (found, _) => found,
    }
}

/// Makes the directory of a backup if there is none, and locks it. Refuses one that has other files.
fn take(directory: &Path) -> Result<File, BackupError> {
    let fails = |error| of_backup(directory, error);
    if !directory.exists() {
        make_directory(directory).map_err(fails)?;
    }
    let entries = std::fs::read_dir(directory).map_err(disk("list", directory))?;
    for entry in entries {
        let entry = entry.map_err(disk("list", directory))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !belongs(&name) {
            return Err(BackupError::Foreign {
                path: directory.to_owned(),
                name,
            });
        }
    }
    let held = lock(directory).map_err(fails)?;
    remove_unfinished(directory).map_err(fails)?;
    Ok(held)
}

/// A backup that is being made.
struct Backup<'a> {
    /// The directory of the log.
    from: &'a Path,
    /// That of the backup.
    to: &'a Path,
    /// Whether a base that it has is copied again.
    renews_base: bool,
    steps: Steps<'a>,
    copied_bytes: Cell<u64>,
}

/// What a backup has before a run, or after it.
struct Kept {
    chain: Chain,
    end: Position,
    /// Bytes at the end of its last file that are not whole.
    torn_bytes: u64,
}

/// What a log has.
struct Survey {
    log: Chain,
    end: Position,
    torn_bytes: u64,
    has_new_base: bool,
    /// The files of which the backup has less, in their order.
    grown: Vec<Grown>,
}

/// A file of the log that is to be copied.
struct Grown {
    path: PathBuf,
    /// Its whole bytes.
    bytes: usize,
    /// Those that the backup has.
    kept_bytes: usize,
}

/// A file of the log beside that of the backup.
enum Compared {
    /// The backup has all of it.
    Kept,
    /// The backup has its beginning, or nothing.
    Grown(Grown),
    /// The backup has other bytes.
    Other,
}

/// The reason why a base was not copied.
enum Broken {
    Log(LogError),
    Disk(io::Error),
}

impl From<LogError> for Broken {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl Backup<'_> {
    fn run(&self) -> Result<BackedUp, BackupError> {
        let survey = self.survey()?;
        if survey.has_new_base {
            self.copy_base(&survey.log)?;
        }
        for grown in &survey.grown {
            self.copy_file(grown)?;
        }
        let base = self.read_back(survey.end)?;
        self.remove_replaced(base)?;
        Ok(BackedUp {
            last: survey.end.number,
            digest: survey.end.digest,
            base: base.number,
            copied_bytes: self.copied_bytes.get(),
            torn_bytes: survey.torn_bytes,
        })
    }

    /// Reads the log, and refuses it if it is damaged or does not go on where the backup ends.
    fn survey(&self) -> Result<Survey, BackupError> {
        self.reading(self.from)?;
        let log = Chain::find(self.from)?;
        let log = log.ok_or_else(|| LogError::Missing(self.from.to_owned()))?;
        let kept = self.kept()?;
        self.reading(self.from)?;
        let kept_end = kept.as_ref().map(|kept| kept.end);
        let mut is_met = kept_end == Some(log.begin);
        let (mut is_other, mut grown) = (false, Vec::new());
        let end = log.files::<BackupError>(
            |at, _| {
                is_met |= kept_end == Some(at);
                Ok(())
            },
            |path, whole| {
                self.reading(path)?;
                match self.compare(path, whole, kept.as_ref())? {
                    Compared::Kept => {}
                    Compared::Grown(file) => grown.push(file),
                    Compared::Other => is_other = true,
                }
                Ok(())
            },
        )?;
        if let Some(kept) = &kept
            && (is_other || !is_met)
        {
            self.check_past((&log, end.position), kept, is_other)?;
        }
        let base = log.begin.number;
        let stays = |kept: &Kept| match kept.chain.begin.number {
            number if number == base => !self.renews_base,
            number => number > base,
        };
        let old = kept.filter(stays);
        if let Some(kept) = &old {
            // A new base is read when it is copied. One that stays may have been damaged since.
            let read = read_base::<LogError>(kept.chain.base(), kept.chain.begin, |_, _| Ok(()));
            read.map_err(|error| of_base(self.to, error))?;
        }
        Ok(Survey {
            has_new_base: old.is_none(),
            log,
            end: end.position,
            torn_bytes: end.torn_bytes,
            grown,
        })
    }

    /// What the backup has; none without a base.
    fn kept(&self) -> Result<Option<Kept>, BackupError> {
        let fails = |error| of_backup(self.to, error);
        let Some(chain) = Chain::find(self.to).map_err(fails)? else {
            return Ok(None);
        };
        let end = chain.changes::<LogError>(|_, _| Ok(())).map_err(fails)?;
        Ok(Some(Kept {
            chain,
            end: end.position,
            torn_bytes: end.torn_bytes,
        }))
    }

    /// Compares the whole bytes of a file of the log with the file of the backup.
    fn compare(
        &self,
        path: &Path,
        whole: &[u8],
        kept: Option<&Kept>,
    ) -> Result<Compared, BackupError> {
        let own = self.own(path);
        let mut has = match std::fs::read(&own) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read.map_err(disk("read", &own))?,
        };
        let last = kept.filter(|kept| kept.chain.logs().last() == Some(&own));
        let torn_bytes = last.map_or(0, |kept| kept.torn_bytes);
        has.truncate(has.len() - torn_bytes as usize);
        let is_kept = has.starts_with(whole) && torn_bytes == 0;
        Ok(if is_kept {
            Compared::Kept
        } else if whole.starts_with(&has) {
            Compared::Grown(Grown {
                path: path.to_owned(),
                bytes: whole.len(),
                kept_bytes: has.len(),
            })
        } else {
            Compared::Other
        })
    }

    /// Refuses a log that does not have the last change of the backup, unless all that it may lack is in its base.
    fn check_past(
        &self,
        (log, end): (&Chain, Position),
        kept: &Kept,
        is_other: bool,
    ) -> Result<(), BackupError> {
        let ours = Past::of(log).map_err(|error| unreadable(self.from, error, BackupError::Log))?;
        let theirs = Past::of(&kept.chain)
            .map_err(|error| unreadable(self.to, error, |error| of_backup(self.to, error)))?;
        let path = self.to.to_owned();
        if let Some(cluster) = theirs.cluster
            && ours.cluster != Some(cluster)
        {
            return Err(BackupError::OtherCluster { path, cluster });
        }
        if end.number < kept.end.number {
            return Err(BackupError::Ahead {
                path,
                backup: kept.end.number,
                end: end.number,
            });
        }
        let is_in_base = kept.end.number < log.begin.number;
        if is_other || !is_in_base || !ours.may_follow(&theirs) {
            return Err(BackupError::OtherPast {
                path,
                log: self.from.to_owned(),
            });
        }
        Ok(())
    }

    /// Copies the base, and reads the copy before it gets its name.
    fn copy_base(&self, log: &Chain) -> Result<(), BackupError> {
        let (mut failed, mut length) = (None, 0);
        let written = write_whole(&self.own(log.base()), self.steps, |file| {
            let copied = read_base::<Broken>(log.base(), log.begin, |bytes, _| {
                (self.steps)("write")?;
                file.write_all(bytes)?;
                length += bytes.len() as u64;
                Ok(())
            });
            match copied {
                Ok(_) => {}
                Err(Broken::Disk(error)) => return Err(error),
                Err(Broken::Log(error)) => {
                    failed = Some(error);
                    return Err(io::Error::other("the log cannot be read"));
                }
            }
            file.flush()?;
            let copy = unfinished(self.to);
            let read = read_base::<LogError>(&copy, log.begin, |_, _| Ok(()));
            read.map(drop).map_err(io::Error::other)
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        written.map_err(|error| of_backup(self.to, error))?;
        self.count(length);
        Ok(())
    }

    /// Copies the bytes of a file that were whole when it was compared.
    fn copy_file(&self, file: &Grown) -> Result<(), BackupError> {
        let path = &file.path;
        self.reading(path)?;
        let mut bytes = std::fs::read(path).map_err(system("read", path))?;
        if bytes.len() < file.bytes {
            let ended = io::Error::from(ErrorKind::UnexpectedEof);
            return Err(system("read", path)(ended).into());
        }
        bytes.truncate(file.bytes);
        check_whole(path, &bytes)?;
        // Otherwise the log's disk could lose a block that the backup has, with a change that was not acknowledged yet.
        (self.steps)("sync the log").map_err(system("sync", path))?;
        let synced = File::open(path).and_then(|file| file.sync_data());
        synced.map_err(system("sync", path))?;
        let written = write_whole(&self.own(path), self.steps, |copy| {
            for part in bytes.chunks(PART_BYTES) {
                (self.steps)("write")?;
                copy.write_all(part)?;
            }
            Ok(())
        });
        written.map_err(|error| of_backup(self.to, error))?;
        self.count((file.bytes - file.kept_bytes) as u64);
        Ok(())
    }

    /// Reads all but the base of the backup, and checks that it ends here. Returns the position of its base.
    fn read_back(&self, end: Position) -> Result<Position, BackupError> {
        match self.kept()? {
            Some(kept) if kept.end == end => Ok(kept.chain.begin),
            _ => Err(BackupError::Unlike {
                path: self.to.to_owned(),
                wanted: end.number,
            }),
        }
    }

    /// Removes the files of the backup that its base replaces, once the base is durable under its name.
    fn remove_replaced(&self, base: Position) -> Result<(), BackupError> {
        let fails = |error| of_backup(self.to, error);
        // An earlier run may have failed before this.
        self.step("sync", self.to)?;
        sync_directory(&unfinished(self.to)).map_err(fails)?;
        for path in replaced(self.to, base.number).map_err(fails)? {
            self.step("remove", &path)?;
            std::fs::remove_file(&path).map_err(disk("remove", &path))?;
        }
        Ok(())
    }

    /// The path in the backup of a file of the log.
    fn own(&self, path: &Path) -> PathBuf {
        path.file_name()
            .map_or_else(|| self.to.to_owned(), |name| self.to.join(name))
    }

    fn count(&self, bytes: u64) {
        self.copied_bytes.set(self.copied_bytes.get() + bytes);
    }

    /// Before a file of the log is read.
    fn reading(&self, path: &Path) -> Result<(), LogError> {
        (self.steps)("read").map_err(system("read", path))
    }

    /// Before an operation on the backup.
    fn step(&self, operation: &'static str, path: &Path) -> Result<(), BackupError> {
        (self.steps)(operation).map_err(disk(operation, path))
    }
}

/// The error of rows that tell which store a directory has; `of_log` converts that of its files.
fn unreadable(
    directory: &Path,
    error: MetaError,
    of_log: impl FnOnce(LogError) -> BackupError,
) -> BackupError {
    match error {
        MetaError::Log(error) => of_log(error),
        other => BackupError::Rows {
            path: directory.to_owned(),
            reason: other.to_string(),
        },
    }
}
