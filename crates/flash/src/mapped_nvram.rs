//! Non-volatile memory in a mapped file.
//!
//! On a file system mounted with DAX the file is the memory itself: it is written through the map
//! and made durable with `msync`, which flushes the processor's caches. `MAP_SYNC` mappings, which
//! need no system call, are not used, since no machine was available to test them. Elsewhere the
//! map shows the page cache of a disk. It is read there, and written with `pwrite` and `fdatasync`:
//! dirtying a page through a map costs a fault and a page table change with every sync, which took
//! five to ten times as long as the sync itself. [`MappedNvram::kind`] returns which of the two it
//! is. After a failed sync the page cache may hold what the disk never gets, so a start drops the
//! cached pages and compares those that stay with the disk.
//!
//! The map is a slice of atomic words, so that concurrent access is not undefined behaviour. The
//! store orders the accesses.

// The view of the memory map as atomics is a cast, and dropping its pages is a system call.
#![allow(unsafe_code)]

use crate::device_read::{drop_cached, read_past_cache};
use crate::geometry::PAGE_BYTES;
use crate::nvram::Nvram;
use memmap2::{MmapRaw, UncheckedAdvice};
use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxAttributes, StatxFlags, fallocate, statx};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();
/// `msync` takes addresses that are multiples of the system's page size; this is one of all sizes in use.
const SYNC_ALIGN_BYTES: u64 = 64 << 10;

/// The medium of a mapped file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvramKind {
    /// Persistent memory, mapped directly.
    Dax,
    /// An ordinary file: durable after `fdatasync`, at the speed of its disk.
    File,
}

/// A mapped file as non-volatile memory, locked for as long as it is open.
#[derive(Debug)]
pub struct MappedNvram {
    /// Invariant: a multiple of eight bytes long, page-aligned, and never shortened.
    map: MmapRaw,
    kind: NvramKind,
    /// Invariant: holds an exclusive lock, so that no other process writes to the map.
    file: File,
}

impl MappedNvram {
    /// Creates a file of `length_bytes` zeros and maps it.
    ///
    /// # Errors
    /// If it exists already, or cannot be created or mapped.
    pub fn create(path: &Path, length_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        // Written zeros save an allocation within the first sync of each page.
        let zeros = vec![0; 1 << 20];
        let mut at = 0;
        // If the file system cannot hold the file, fail now, not when a page is touched.
        match fallocate(&file, FallocateFlags::empty(), 0, length_bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        while at < length_bytes {
            let part = &zeros[..(length_bytes - at).min(zeros.len() as u64) as usize];
            file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        file.sync_all()?;
        Self::map(file, path)
    }

    /// Maps an existing file. Pages that only the page cache has are dropped.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when another process holds it, or any error of the mapping or
    /// the disk.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let memory = Self::map(file, path)?;
        if memory.kind == NvramKind::File {
            // The superblock is read before the store opens, which then checks all the rest.
            let mut first = vec![0; memory.map.len().min(PAGE_BYTES)];
            read_past_cache(&memory.file, &mut first, 0)?;
        }
        Ok(memory)
    }

    fn map(file: File, path: &Path) -> io::Result<Self> {
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::WouldBlock, "another process uses it")
            }
            TryLockError::Error(error) => error,
        })?;
        let map = MmapRaw::map_raw(&file)?;
        if map.len() % WORD_BYTES != 0 {
            let words = "its length is not a multiple of eight bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        let attributes = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS)
            .map_or(StatxAttributes::empty(), |stat| stat.stx_attributes);
        let kind = if attributes.contains(StatxAttributes::DAX) {
            NvramKind::Dax
        } else {
            NvramKind::File
        };
        Ok(Self { map, kind, file })
    }

    /// The medium of the file.
    pub fn kind(&self) -> NvramKind {
        self.kind
    }

    /// The words of a range.
    fn words(&self, offset: u64, bytes: usize) -> &[AtomicU64] {
        let start = offset as usize;
        assert!(
            start.is_multiple_of(WORD_BYTES) && bytes.is_multiple_of(WORD_BYTES),
            "accesses are of whole words"
        );
        assert!(
            start <= self.map.len() && bytes <= self.map.len() - start,
            "accesses are within the memory"
        );
        // SAFETY: the range is within the map, which lives as long as `self`, is page-aligned and
        // is never shortened while the lock is held. All accesses of this process are through
        // atomics, and the lock excludes other processes, so there are no data races.
        unsafe {
            let first = self.map.as_mut_ptr().cast::<()>().byte_add(start);
            std::slice::from_raw_parts(first.cast::<AtomicU64>(), bytes / WORD_BYTES)
        }
    }
}

impl Nvram for MappedNvram {
    fn length_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    fn read(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        let words = self.words(offset, output.len());
        for (bytes, word) in output.chunks_exact_mut(WORD_BYTES).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let words = self.words(offset, bytes.len());
        if self.kind == NvramKind::File {
            // Linux keeps one page cache for files and maps of them, so the map shows it at once.
            return self.file.write_all_at(bytes, offset);
        }
        for (bytes, word) in bytes.chunks_exact(WORD_BYTES).zip(words) {
            let mut value = [0; WORD_BYTES];
            value.copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        Ok(())
    }

    fn persist(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        if self.kind == NvramKind::File {
            return match ranges {
                [] => Ok(()),
                _ => self.file.sync_data(),
            };
        }
        let mut windows: Vec<Range<u64>> = ranges.to_vec();
        windows.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(windows.len());
        for range in windows {
            let start = range.start - range.start % SYNC_ALIGN_BYTES;
            match merged.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(start..range.end),
            }
        }
        for range in merged {
            let length = (range.end - range.start) as usize;
            self.map.flush_range(range.start as usize, length)?;
        }
        Ok(())
    }

    fn forget_cached(&self) -> io::Result<()> {
        if self.kind == NvramKind::Dax {
            return Ok(());
        }
        // SAFETY: the advice unmaps pages, which a later access maps again. The map is shared and
        // of a file, so no bytes are lost with them.
        unsafe {
            // A mapped page would stay in the cache.
            self.map.unchecked_advise(UncheckedAdvice::DontNeed)?;
        }
        drop_cached(&self.file, self.length_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_there_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nvram");
        let memory = MappedNvram::create(&path, 1 << 20).unwrap();
        memory.write(65_528, b"abcdefghijklmnop").unwrap();
        memory.persist(&[65_528..65_544, 0..8]).unwrap();
        assert_eq!(
            MappedNvram::open(&path).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        drop(memory);
        let memory = MappedNvram::open(&path).unwrap();
        let mut bytes = [0; 16];
        memory.read(65_528, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abcdefghijklmnop");
        assert_eq!(memory.length_bytes(), 1 << 20);
    }
}
