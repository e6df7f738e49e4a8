//! Stands for a segment's file that the file system cannot open: its bytes are lost, and the rest of
//! the journal is not.

use crate::disk::{DiskFile, PhysicalExtent};
use gabion_layout::ByteRange;
use rustix::io::Errno;
use std::io;

/// A file of unknown length. Every access fails with `EIO`, except a sync: nothing was written.
pub(super) struct LostFile;

fn lost<T>() -> io::Result<T> {
    Err(Errno::IO.into())
}

impl DiskFile for LostFile {
    fn read_exact_at(&self, _output: &mut [u8], _offset: u64) -> io::Result<()> {
        lost()
    }

    fn write_all_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        lost()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        lost()
    }

    fn punch_hole(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        lost()
    }

    fn extents(&self, _range: ByteRange) -> io::Result<Vec<PhysicalExtent>> {
        lost()
    }

    fn length(&self) -> io::Result<u64> {
        lost()
    }

    fn set_length(&self, _bytes: u64) -> io::Result<()> {
        lost()
    }
}
