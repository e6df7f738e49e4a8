//! A file that has a temporary name until it is whole.

use super::chunk::wrong_name;
use crate::block::io;
use crate::error::HdfsError;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The file. Dropping it before it has its name removes it.
#[derive(Debug)]
pub(super) struct NewFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    is_published: AtomicBool,
}

impl NewFile {
    /// An empty file for `path`, at which there is none.
    pub(super) fn create(path: &Path) -> Result<Self, HdfsError> {
        if path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".gabion-{}", std::process::id()));
        let temporary = path.with_file_name(name);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true);
        let file = file.open(&temporary);
        Ok(Self {
            file: file.map_err(|source| io("create", &temporary, source))?,
            temporary,
            path: path.to_owned(),
            is_published: AtomicBool::new(false),
        })
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), HdfsError> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|source| io("write", &self.temporary, source))
    }

    pub(super) fn read(&self, offset: u64, place: &mut [u8]) -> Result<(), HdfsError> {
        let read = self.file.read_exact_at(place, offset);
        read.map_err(|source| io("read", &self.temporary, source))
    }

    /// Makes what it holds durable.
    pub(super) fn sync(&self) -> Result<(), HdfsError> {
        let synced = self.file.sync_all();
        synced.map_err(|source| io("sync", &self.temporary, source))
    }

    /// Its name until it is published.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Gives it its name, durably. Another file of that name stays.
    pub(super) fn publish(&self) -> Result<(), HdfsError> {
        let renamed = renameat_with(
            CWD,
            &self.temporary,
            CWD,
            &self.path,
            RenameFlags::NOREPLACE,
        );
        match renamed {
            Err(rustix::io::Errno::EXIST) => return Err(exists(&self.path)),
            renamed => renamed.map_err(|error| io("name", &self.path, error.into()))?,
        }
        self.is_published.store(true, Ordering::Relaxed);
        let parent = self.path.parent().filter(|parent| *parent != Path::new(""));
        let directory = parent.unwrap_or(Path::new("."));
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|source| io("sync", directory, source))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_published.load(Ordering::Relaxed) {
            // A file that is left has a name of its own, and is not taken for a chunk.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

fn exists(path: &Path) -> HdfsError {
    wrong_name(
        path,
        "a file of this name exists, and it is not replaced; move it away first",
    )
}
