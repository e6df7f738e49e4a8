//! Free space of file systems, checked before large writes.

use crate::error::{Context, TestbedError};
use std::path::Path;

/// Free bytes for this user on the file system of a directory.
fn free_bytes(directory: &Path) -> Result<u64, TestbedError> {
    let doing = format!("query the free space of {}", directory.display());
    let space = rustix::fs::statvfs(directory).context(doing)?;
    Ok(space.f_bavail * space.f_frsize)
}

/// Refuses what needs more bytes than are free in a directory.
///
/// # Errors
/// [`TestbedError::NoSpace`], and [`TestbedError::Cannot`] if the file system does not say.
pub fn require_free(
    directory: &Path,
    needed: u64,
    what: String,
    advice: &'static str,
) -> Result<(), TestbedError> {
    let free = free_bytes(directory)?;
    if needed <= free {
        return Ok(());
    }
    Err(TestbedError::NoSpace {
        what,
        needed,
        directory: directory.to_owned(),
        free,
        advice,
    })
}
