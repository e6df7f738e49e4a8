//! The store's interface to non-volatile memory: small reads and writes, and a persist operation.
//!
//! [`MappedNvram`](crate::MappedNvram) is a mapped file; [`SimNvram`](crate::SimNvram) loses power
//! on request. A write becomes durable with the next [`Nvram::persist`] of its range, or earlier;
//! until then some of its aligned words may be durable and others not. This holds for every such
//! memory, so the store relies on the atomicity of single words of eight bytes only.

use std::io;
use std::ops::Range;

/// Non-volatile memory. Offsets and lengths are bytes and multiples of 8.
pub trait Nvram: Send + Sync {
    /// The memory's size in bytes.
    fn length_bytes(&self) -> u64;

    /// Fills `output` from `offset`.
    ///
    /// # Errors
    /// If the memory has failed.
    ///
    /// # Panics
    /// If the range is not within the memory or not of whole words.
    fn read(&self, offset: u64, output: &mut [u8]) -> io::Result<()>;

    /// Stores `bytes` at `offset`. Each aligned word of eight bytes is stored atomically.
    ///
    /// # Errors
    /// If the memory has failed.
    ///
    /// # Panics
    /// If the range is not within the memory or not of whole words.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything stored in `ranges` before the call durable.
    ///
    /// # Errors
    /// If the memory fails: it is unknown then what is durable.
    fn persist(&self, ranges: &[Range<u64>]) -> io::Result<()>;

    /// Makes later reads return what is durable, or may become so with the next persist: after a
    /// failed one, systems go on serving cached bytes that never reached the medium. A memory
    /// without a cache does nothing.
    ///
    /// # Errors
    /// If the memory fails, or the system keeps its cached bytes.
    fn forget_cached(&self) -> io::Result<()> {
        Ok(())
    }
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

    fn forget_cached(&self) -> io::Result<()> {
        (**self).forget_cached()
    }
}
