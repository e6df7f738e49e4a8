//! What the store asks of non-volatile memory: small reads and writes, and a way to make them durable.
//!
//! [`MappedNvram`](crate::MappedNvram) is a mapped file; [`SimNvram`](crate::SimNvram) loses power on
//! request. A write becomes durable with the next [`Nvram::persist`] of its range, or earlier; until
//! then any of its aligned words may be durable and others not. That holds for every kind of such
//! memory, so nothing in the store relies on more than one word of eight bytes being whole.

use std::io;
use std::ops::Range;

/// Non-volatile memory. Offsets and lengths are bytes and multiples of 8.
pub trait Nvram: Send + Sync {
    /// Bytes of the memory.
    fn length_bytes(&self) -> u64;

    /// Fills `output` from `offset`.
    ///
    /// # Errors
    /// When the memory has failed.
    ///
    /// # Panics
    /// When the range is not within the memory or not of whole words.
    fn read(&self, offset: u64, output: &mut [u8]) -> io::Result<()>;

    /// Stores `bytes` at `offset`. Each aligned word of eight bytes is stored whole.
    ///
    /// # Errors
    /// When the memory has failed.
    ///
    /// # Panics
    /// When the range is not within the memory or not of whole words.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything that was stored in `ranges` before the call durable.
    ///
    /// # Errors
    /// When the memory fails: nothing is known then about what is durable.
    fn persist(&self, ranges: &[Range<u64>]) -> io::Result<()>;
}

impl<N: Nvram + ?Sized> Nvram for std::sync::Arc<N> {
    fn length_bytes(&self) -> u64 {
        (**self).length_bytes()
    }

    fn read(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        (**self).read(offset, output)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write(offset, bytes)
    }

    fn persist(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        (**self).persist(ranges)
    }
}
