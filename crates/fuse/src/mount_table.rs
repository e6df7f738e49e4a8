//! The kernel's table of mounts, and unmounting.
//!
//! Only what this gateway has mounted is unmounted, and nothing is asked of the file system itself: its server may be
//! dead.

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as unmount_system};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use thiserror::Error;

/// The type of this gateway's mounts, as the kernel's table has it.
const KIND: &str = "fuse.gabion";
/// The part of it that `mount` is told.
pub(crate) const SUBTYPE: &str = "subtype=gabion";

/// Errors of unmounting a directory.
#[derive(Debug, Error)]
pub enum UnmountError {
    /// It is none of this gateway's mounts.
    #[error("{} is not mounted by gabion", .0.display())]
    NotMounted(PathBuf),
    /// A process uses it.
    #[error(
        "{} is busy: a process has a file open or its working directory there; end it, or add --lazy",
        .0.display()
    )]
    Busy(PathBuf),
    /// The system refuses.
    #[error("cannot unmount {}: {source}", .path.display())]
    System {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A mount of the kernel's table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// The number of its file system.
    pub(crate) device: String,
    pub(crate) directory: PathBuf,
    pub(crate) kind: String,
}

/// Unmounts a directory.
///
/// # Errors
/// [`UnmountError`].
pub fn unmount(directory: &Path, is_lazy: bool) -> Result<(), UnmountError> {
    let path = absolute(directory).map_err(|source| UnmountError::System {
        path: directory.to_owned(),
        source,
    })?;
    // A symbolic link to a mount is followed, but nothing is asked of the mount.
    let target = std::fs::read_link(&path).map(|target| path.with_file_name("").join(target));
    let target = target.and_then(|target| absolute(&target)).ok();
    for path in [Some(&path), target.as_ref()].into_iter().flatten() {
        if let Some(entry) = top(path).filter(|entry| entry.kind == KIND) {
            return unmount_entry(&entry, is_lazy);
        }
    }
    Err(UnmountError::NotMounted(path))
}

pub(crate) fn unmount_entry(entry: &Entry, is_lazy: bool) -> Result<(), UnmountError> {
    let path = entry.directory.clone();
    let flags = if is_lazy {
        UnmountFlags::NOFOLLOW | UnmountFlags::DETACH
    } else {
        UnmountFlags::NOFOLLOW
    };
    match unmount_system(&path, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UnmountError::Busy(path)),
        Err(Errno::PERM) => unmount_as_user(path, is_lazy),
        Err(errno) => Err(UnmountError::System {
            path,
            source: errno.into(),
        }),
    }
}

/// Users unmount by a program that has the right to do it for them.
fn unmount_as_user(path: PathBuf, is_lazy: bool) -> Result<(), UnmountError> {
    let mut command = Command::new("fusermount3");
    command.args(if is_lazy { "-uz" } else { "-u" }.split(' '));
    match command.arg("--").arg(&path).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("busy") => {
            Err(UnmountError::Busy(path))
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let source = io::Error::other(said);
            Err(UnmountError::System { path, source })
        }
        Err(source) => Err(UnmountError::System { path, source }),
    }
}

/// The absolute path of a directory, without asking what is mounted there.
pub(crate) fn absolute(directory: &Path) -> io::Result<PathBuf> {
    let directory = std::path::absolute(directory)?;
    match (directory.parent(), directory.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(directory),
    }
}

/// The mount that is seen at a path.
pub(crate) fn top(path: &Path) -> Option<Entry> {
    let mut entries = entries().into_iter();
    // A later mount covers an earlier one.
    entries.rfind(|entry| entry.directory == path)
}

/// Whether one of this gateway's mounts is seen at a path.
pub(crate) fn is_mounted(path: &Path) -> bool {
    top(path).is_some_and(|entry| entry.kind == KIND)
}

/// This gateway's mount with this file system's number.
pub(crate) fn of_device(device: &str) -> Option<Entry> {
    let mut entries = entries().into_iter();
    entries.find(|entry| entry.device == device && entry.kind == KIND)
}

fn entries() -> Vec<Entry> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect()
}

/// Reads a line: `ID PARENT DEVICE ROOT DIRECTORY OPTIONS [FIELDS...] - KIND SOURCE OPTIONS`.
fn parse(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let device = text(fields.nth(2)?);
    let directory = unescaped(fields.nth(1)?);
    let kind = text(fields.skip_while(|field| *field != b"-").nth(1)?);
    Some(Entry {
        device,
        directory,
        kind,
    })
}

/// A path whose blanks and backslashes the kernel has written as octal numbers.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let octal = behind.get(..3).filter(|_| *first == b'\\');
        let byte = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[3..] } else { behind };
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_read_with_their_escapes() {
        let line = b"99 28 0:55 / /mnt/a\\040b\\134c rw,nosuid - fuse.gabion vm rw,user_id=0";
        let entry = parse(line).expect("a line");
        assert_eq!(entry.directory, Path::new("/mnt/a b\\c"));
        assert_eq!((entry.device.as_str(), entry.kind.as_str()), ("0:55", KIND));
        let shared = b"1 2 8:1 / /x rw shared:1 master:2 - ext4 /dev/sda rw";
        assert_eq!(parse(shared).expect("a line").kind, "ext4");
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn directories_that_are_no_mounts_of_ours_stay() {
        for path in ["/proc", "/", "/proc/self/none"] {
            let refused = unmount(Path::new(path), false);
            assert!(refused.is_err(), "{path}");
        }
    }
}
