//! Output files named by the user: a regular file gets its new content atomically; anything else is
//! written directly, as by `cp`.
//!
//! A regular file's bytes go to a temporary file in the same directory, which replaces the target when it is complete.
//! The temporary file gets a name only then, so that an interrupted command leaves no file; on a file system without
//! nameless files it has a name from the start. A link stays a link: its target is replaced. Devices and FIFOs are
//! opened and written, never replaced. `-` and a name of the command's own stdout, such as `/dev/stdout`, are stdout.
//!
//! The submodules make the other files of commands: `whole` one that a library writes by its path, and `secret` one
//! that only its owner may read.

mod secret;
mod whole;

pub(crate) use secret::write_secret;
pub(crate) use whole::{check_new, into_new_file};

use crate::failure::{Context, Failure};
use crate::output;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Maximum number of names tried for a temporary file. A process uses few names itself.
const NAME_COUNT_MAX: u32 = 10_000;

/// A file to be written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    /// Its name in messages.
    named: PathBuf,
    file: File,
    place: Place,
}

/// The destination of the bytes.
#[derive(Debug)]
enum Place {
    Stdout,
    /// A device or a FIFO.
    Special,
    Regular(Replacement),
}

/// A file that replaces another when it is complete. If it is dropped before, no file stays.
#[derive(Debug)]
struct Replacement {
    /// The directory of both files.
    directory: PathBuf,
    target: PathBuf,
    /// The name of the new file, if it has one yet.
    name: Option<TemporaryName>,
}

/// The name of a temporary file. Dropping this deletes the file. After a rename, no file has the name any more.
#[derive(Debug)]
struct TemporaryName(PathBuf);

impl OutputFile {
    /// Prepares to write to `path`. A failure leaves everything unchanged.
    ///
    /// # Errors
    /// Exit code 2 for a directory and for a dangling link; exit code 1 when the file or device
    /// cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let doing = || format!("write {shown}");
        if path == Path::new("-") {
            return Self::stdout(path);
        }
        let found = match fs::metadata(path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).context(doing()),
        };
        let Some(found) = found else {
            if fs::symlink_metadata(path).is_ok() {
                return Err(Failure::usage(format!(
                    "{shown} is a link to a file that is not there; remove the link or name another file"
                )));
            }
            return Self::beside(path, path.to_owned(), None).context(doing());
        };
        if found.is_dir() {
            return Err(Failure::usage(format!(
                "{shown} is a directory; name a file in it, such as {}",
                path.join("copy").display()
            )));
        }
        if is_stdout(&found) {
            return Self::stdout(path);
        }
        if found.is_file() {
            let target = fs::canonicalize(path).context(doing())?;
            return Self::beside(path, target, Some(found.permissions())).context(doing());
        }
        let special = OpenOptions::new().write(true).open(path);
        Ok(Self {
            named: path.to_owned(),
            file: special.context(doing())?,
            place: Place::Special,
        })
    }

    fn stdout(named: &Path) -> Result<Self, Failure> {
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        Ok(Self {
            named: named.to_owned(),
            file: File::from(stdout.context("write stdout")?),
            place: Place::Stdout,
        })
    }

    fn beside(
        named: &Path,
        target: PathBuf,
        permissions: Option<fs::Permissions>,
    ) -> io::Result<Self> {
        let directory = directory_of(&target).to_owned();
        let (file, name) = create_temporary(&directory)?;
        let replaces = Replacement {
            directory,
            target,
            name,
        };
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        Ok(Self {
            named: named.to_owned(),
            file,
            place: Place::Regular(replaces),
        })
    }

    /// The file to write to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether the bytes go to stdout, which then has no other output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.place, Place::Stdout)
    }

    /// Whether the bytes go to a new regular file without contents.
    pub(crate) fn is_regular(&self) -> bool {
        matches!(self.place, Place::Regular(_))
    }

    /// Completes the output. A regular file's bytes are durable when this returns.
    ///
    /// # Errors
    /// If the disk cannot take them; a regular file is unchanged then.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let doing = || format!("write {}", self.named.display());
        let Place::Regular(replaces) = self.place else {
            return Ok(());
        };
        self.file.sync_all().context(doing())?;
        let name = match replaces.name {
            Some(name) => name,
            None => give_name(&self.file, &replaces.directory).context(doing())?,
        };
        fs::rename(&name.0, &replaces.target).context(doing())
    }

    /// The error of a failed write.
    pub(crate) fn failure(&self, error: &io::Error) -> Failure {
        match self.place {
            Place::Stdout => output::write_failure(&"stdout", error),
            Place::Special | Place::Regular(_) => {
                output::write_failure(&self.named.display(), error)
            }
        }
    }
}

impl Drop for TemporaryName {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A new file in a directory, without a name if the file system has such files.
fn create_temporary(directory: &Path) -> io::Result<(File, Option<TemporaryName>)> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(directory, flags, Mode::from_raw_mode(0o666)) {
        return Ok((File::from(file), None));
    }
    let (file, name) = with_unique_name(directory, |path| {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o666).open(path)
    })?;
    Ok((file, Some(name)))
}

/// Gives a name to a file that has none.
fn give_name(file: &File, directory: &Path) -> io::Result<TemporaryName> {
    // The kernel links a file without a name by this path.
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |path: &Path| Ok(linkat(CWD, &own, CWD, path, AtFlags::SYMLINK_FOLLOW)?);
    with_unique_name(directory, link).map(|((), name)| name)
}

/// Creates a file or another object under an unused name of the directory.
fn with_unique_name<T>(
    directory: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, TemporaryName)> {
    let process = std::process::id();
    for count in 0..NAME_COUNT_MAX {
        let path = directory.join(format!(".gabion-{process}-{count}"));
        match make(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(new) => return Ok((new, TemporaryName(path))),
        }
    }
    let why = "files of interrupted commands use all temporary names; remove .gabion-* there";
    Err(io::Error::new(ErrorKind::AlreadyExists, why))
}

/// The directory of a file.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Whether a name is that of this process's stdout.
fn is_stdout(found: &fs::Metadata) -> bool {
    rustix::fs::fstat(io::stdout())
        .is_ok_and(|stdout| (stdout.st_dev, stdout.st_ino) == (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};

    fn write(path: &Path, bytes: &[u8]) {
        let output = OutputFile::create(path).unwrap();
        output.file().write_all(bytes).unwrap();
        output.finish().unwrap();
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        write(&path, b"first");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let unfinished = OutputFile::create(&path).unwrap();
        unfinished.file().write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(
            names(directory.path()),
            ["f"],
            "a kill now would leave nothing"
        );
        drop(unfinished);
        write(&path, b"second");
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(names(directory.path()), ["f"]);
    }

    #[test]
    fn two_writers_of_one_name_do_not_meet() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let one = OutputFile::create(&path).unwrap();
        let other = OutputFile::create(&path).unwrap();
        one.file().write_all(b"one").unwrap();
        other.file().write_all(b"other").unwrap();
        one.finish().unwrap();
        other.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"other");
        assert_eq!(names(directory.path()), ["f"]);
    }

    #[test]
    fn a_temporary_file_with_a_name_is_deleted_unless_it_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let (_, name) = with_unique_name(directory.path(), |path| File::create_new(path)).unwrap();
        let (_, other) = with_unique_name(directory.path(), |path| File::create_new(path)).unwrap();
        assert_eq!(names(directory.path()).len(), 2);
        fs::rename(&other.0, directory.path().join("f")).unwrap();
        drop((name, other));
        assert_eq!(names(directory.path()), ["f"]);
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name| directory.path().join(name);
        write(&at("f"), b"first");
        symlink("f", at("link")).unwrap();
        write(&at("link"), b"second");
        assert_eq!(fs::read(at("f")).unwrap(), b"second");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        symlink("missing", at("dangling")).unwrap();
        let refused = OutputFile::create(&at("dangling")).unwrap_err();
        assert!(refused.to_string().contains("not there"), "{refused}");
        assert_eq!(names(directory.path()), ["dangling", "f", "link"]);
    }

    #[test]
    fn a_fifo_is_written_into_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        // Opened for both, so the open does not wait for a reader.
        let mut options = OpenOptions::new();
        let mut reader = options.read(true).write(true).open(&path).unwrap();
        write(&path, b"bytes");
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        assert!(kind.is_fifo(), "{kind:?} has taken its place");
        let mut found = [0; 5];
        reader.read_exact(&mut found).unwrap();
        assert_eq!(&found, b"bytes");
        assert_eq!(names(directory.path()), ["fifo"]);
    }

    #[test]
    fn a_device_is_written_and_a_directory_refused() {
        let null = OutputFile::create(Path::new("/dev/null")).unwrap();
        null.file().write_all(b"gone").unwrap();
        null.finish().unwrap();
        let full = OutputFile::create(Path::new("/dev/full")).unwrap();
        let error = full.file().write_all(b"gone").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(full.failure(&error).to_string().contains("/dev/full"));
        let directory = tempfile::tempdir().unwrap();
        let refused = OutputFile::create(directory.path()).map(drop);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("is a directory; name a file"), "{refused}");
        assert_eq!(names(directory.path()), [""; 0]);
    }
}
