//! Reads a file or a block device past the system's page cache.
//!
//! After a failed `fsync`, Linux marks the pages clean: it goes on serving them, never writes them
//! again, and a later `fsync` succeeds ("Can Applications Recover from fsync Failures?", USENIX ATC
//! '20). So a start must not trust the cache. It writes back dirty pages, drops the cached pages,
//! reads with `O_DIRECT`, and compares any pages that remain cached with the device's bytes.
//!
//! Without `O_DIRECT`, the file is read only once no page of it is cached. `tmpfs` has no device,
//! so its pages are the only copy.
//!
//! A [`CacheFault`] says nothing about the device's bytes, so it is no damage.

use rustix::fs::{Advice, OFlags, fadvise, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use thiserror::Error;

/// Alignment of offsets and buffers, a multiple of any device's sector.
const ALIGNMENT: usize = 4096;
/// Bytes read at a time.
const STRIDE_BYTES: usize = 1 << 20;
/// Bytes checked at a time when the cache is dropped.
const CHECKED_BYTES: u64 = 16 << 20;
/// File systems in memory: tmpfs and ramfs.
const MEMORY_FILE_SYSTEMS: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// Causes that refuse a read past the page cache before it can show the device's bytes.
#[derive(Debug, Error)]
pub enum CacheFault {
    /// Dirty pages cannot be written back. The next attempt no longer finds them dirty.
    #[error("dirty pages cannot be written back: {0}; try again")]
    WriteBack(io::Error),
    /// Cached pages differ from the device, and the system keeps them.
    #[error(
        "the page cache differs from the device and cannot be dropped; \
         end other processes that map the file, or restart the machine"
    )]
    Differs,
}

impl CacheFault {
    /// Whether an error of a read past the page cache is such a refusal.
    pub fn is_in(error: &io::Error) -> bool {
        matches!(error.get_ref(), Some(inner) if inner.is::<Self>())
    }
}

impl From<CacheFault> for io::Error {
    fn from(fault: CacheFault) -> Self {
        Self::other(fault)
    }
}

/// Fills `output` from `offset` with the device's bytes, and drops the system's cached pages of the
/// whole file.
///
/// # Errors
/// [`ErrorKind::UnexpectedEof`] when the file is too short; a [`CacheFault`] when dirty pages cannot
/// be written back or the cache keeps holding other bytes; or any error of the device.
pub fn read_past_cache(file: &File, output: &mut [u8], offset: u64) -> io::Result<()> {
    file.sync_data().map_err(CacheFault::WriteBack)?;
    if is_in_memory(file)? {
        return file.read_exact_at(output, offset);
    }
    fadvise(file, 0, None, Advice::DontNeed)?;
    match open_direct(file) {
        Ok(direct) => {
            read_direct(&direct, output, offset)?;
            check_cache(
                file,
                offset,
                |at, cached| output[at..].starts_with(cached),
                output.len(),
            )
        }
        Err(error) if has_no_direct(&error) => {
            check_cache(file, offset, |_, _| false, output.len())?;
            file.read_exact_at(output, offset)
        }
        Err(error) => Err(error),
    }
}

/// Drops the cached pages of a file of `length_bytes`, and reads all of it once, to find out whether
/// any cached page that stayed differs from the device.
///
/// # Errors
/// As for [`read_past_cache`].
pub fn drop_cached(file: &File, length_bytes: u64) -> io::Result<()> {
    let mut space = vec![0; length_bytes.min(CHECKED_BYTES) as usize];
    let mut at = 0;
    while at < length_bytes {
        let part = &mut space[..(length_bytes - at).min(CHECKED_BYTES) as usize];
        read_past_cache(file, part, at)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Whether the file's pages are its only copy. A block device's own name lies in such a file system
/// and says nothing of its bytes.
fn is_in_memory(file: &File) -> io::Result<bool> {
    let is_file = file.metadata()?.is_file();
    Ok(is_file && MEMORY_FILE_SYSTEMS.contains(&(fstatfs(file)?.f_type as u32)))
}

fn open_direct(file: &File) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Whether the file system reads only through the cache, or `/proc` is missing.
fn has_no_direct(error: &io::Error) -> bool {
    let codes = [Errno::INVAL, Errno::OPNOTSUPP];
    error.kind() == ErrorKind::NotFound
        || codes
            .iter()
            .any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

fn read_direct(direct: &File, output: &mut [u8], offset: u64) -> io::Result<()> {
    let mut space = vec![0; STRIDE_BYTES + ALIGNMENT];
    let start = space.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut space[start..start + STRIDE_BYTES];
    let mut filled = 0;
    while filled < output.len() {
        let at = offset + filled as u64;
        let skipped = (at % ALIGNMENT as u64) as usize;
        let wanted = (output.len() - filled + skipped).min(STRIDE_BYTES);
        let aligned = wanted.next_multiple_of(ALIGNMENT);
        let count = direct.read_at(&mut buffer[..aligned], at - skipped as u64)?;
        // A short read means the end of the file.
        let found = &buffer[..count.min(wanted)];
        let Some(found) = found.get(skipped..).filter(|found| !found.is_empty()) else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        output[filled..filled + found.len()].copy_from_slice(found);
        filled += found.len();
    }
    Ok(())
}

/// Compares pages that are still cached, `length` bytes from `offset`, with the expected bytes.
fn check_cache(
    file: &File,
    offset: u64,
    is_right: impl Fn(usize, &[u8]) -> bool,
    length: usize,
) -> io::Result<()> {
    let mut page = [0; ALIGNMENT];
    let mut at = 0;
    while at < length {
        let behind = ALIGNMENT - ((offset + at as u64) % ALIGNMENT as u64) as usize;
        let bytes = &mut page[..behind.min(length - at)];
        let count = bytes.len();
        let read = preadv2(
            file,
            &mut [IoSliceMut::new(bytes)],
            offset + at as u64,
            ReadWriteFlags::NOWAIT,
        );
        if read == Ok(count) && !is_right(at, &page[..count]) {
            return Err(CacheFault::Differs.into());
        }
        at += count;
    }
    Ok(())
}
