//! A device with the SSD model and its bytes in memory, and an in-memory counterpart of the
//! non-volatile memory.
//!
//! A page of zeros takes eight bytes of memory, so an experiment whose user data is zeros can run the
//! real store on arrays of any size. Nothing outlives the process.

use crate::device::Device;
use crate::geometry::{PAGE_BYTES, ZEROS, is_zero};
use crate::nvram::Nvram;
use crate::ssd::{Ssd, SsdCounts, SsdSpec, Wear};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An SSD model with contents.
#[derive(Debug)]
pub struct ModelDevice {
    state: Mutex<Model>,
    /// [`SsdCounts::busy_ns`] as of the last request, to be read without the lock.
    busy_ns: AtomicU64,
}

#[derive(Debug)]
struct Model {
    ssd: Ssd,
    /// Pages of 4 KiB; none for one of zeros.
    pages: Vec<Option<Box<Page>>>,
}

type Page = [u8; PAGE_BYTES];

impl ModelDevice {
    /// A fresh SSD.
    pub fn new(spec: SsdSpec) -> Self {
        let byte_count = u64::from(spec.logical_pages) * spec.page_bytes;
        let model = Model {
            ssd: Ssd::new(spec),
            pages: vec![None; byte_count.div_ceil(PAGE_BYTES as u64) as usize],
        };
        Self {
            state: Mutex::new(model),
            busy_ns: AtomicU64::new(0),
        }
    }

    /// [`SsdCounts::busy_ns`] of [`ModelDevice::counts`], faster: for a caller that asks at every write.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Acquire)
    }

    fn publish(&self, model: &Model) {
        let busy_ns = model.ssd.counts().busy_ns;
        self.busy_ns.store(busy_ns, Ordering::Release);
    }

    /// The SSD's counters.
    pub fn counts(&self) -> SsdCounts {
        self.lock().ssd.counts()
    }

    /// The distribution of its erases.
    pub fn wear(&self) -> Wear {
        self.lock().ssd.wear()
    }

    /// Resets the counters, and keeps the state.
    pub fn reset_counts(&self) {
        let mut model = self.lock();
        model.ssd.reset_counts();
        self.publish(&model);
    }

    fn lock(&self) -> MutexGuard<'_, Model> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A range in flash pages: the first, how many it touches, and how many of these it covers in part.
struct Touched {
    first: u32,
    count: u32,
    partial_count: u32,
}

/// The flash pages of a range, which must begin at a multiple of 4 KiB.
fn touched(ssd: &Ssd, offset: u64, bytes: usize) -> io::Result<Touched> {
    let spec = ssd.spec();
    let end = offset + bytes as u64;
    let (first, last) = (offset / spec.page_bytes, end.div_ceil(spec.page_bytes));
    let is_aligned = offset.is_multiple_of(PAGE_BYTES as u64);
    if !is_aligned || last > u64::from(spec.logical_pages) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let is_cut = |at: u64| !at.is_multiple_of(spec.page_bytes);
    let partial_count = u32::from(is_cut(offset)) + u32::from(is_cut(end));
    let count = (last - first) as u32;
    Ok(Touched {
        first: first as u32,
        count,
        partial_count: partial_count.min(count),
    })
}

impl Model {
    /// The pages of 4 KiB of a range that begins with one and is within the device.
    fn pages_of(&mut self, offset: u64, bytes: usize) -> &mut [Option<Box<Page>>] {
        let first = (offset / PAGE_BYTES as u64) as usize;
        &mut self.pages[first..first + bytes.div_ceil(PAGE_BYTES)]
    }
}

impl Device for ModelDevice {
    fn capacity_bytes(&self) -> io::Result<u64> {
        let model = self.lock();
        let spec = model.ssd.spec();
        Ok(u64::from(spec.logical_pages) * spec.page_bytes)
    }

    fn read_at(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        let mut model = self.lock();
        let pages = touched(&model.ssd, offset, output.len())?;
        model.ssd.read(pages.first, pages.count);
        self.publish(&model);
        let stored = model.pages_of(offset, output.len());
        for (page, output) in stored.iter().zip(output.chunks_mut(PAGE_BYTES)) {
            match page {
                Some(bytes) => output.copy_from_slice(&bytes[..output.len()]),
                None => output.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut model = self.lock();
        let pages = touched(&model.ssd, offset, bytes.len())?;
        if !bytes.len().is_multiple_of(PAGE_BYTES) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // A page written in part is read and programmed again.
        model.ssd.read(pages.first, pages.partial_count);
        model.ssd.write(pages.first, pages.count);
        self.publish(&model);
        let stored = model.pages_of(offset, bytes.len());
        for (page, bytes) in stored.iter_mut().zip(bytes.chunks_exact(PAGE_BYTES)) {
            if is_zero(bytes) {
                *page = None;
            } else {
                page.get_or_insert_with(|| Box::new(ZEROS))
                    .copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut model = self.lock();
        let pages = touched(&model.ssd, offset, bytes as usize)?;
        if pages.partial_count > 0 {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        model.ssd.discard(pages.first, pages.count);
        model.pages_of(offset, bytes as usize).fill(None);
        Ok(())
    }
}

/// Ordinary memory in place of non-volatile memory, for stores on modelled SSDs.
#[derive(Debug)]
pub struct ModelNvram {
    state: Mutex<Memory>,
}

#[derive(Debug)]
struct Memory {
    bytes: Vec<u8>,
    /// Whether each page is known to be all zeros, and need not be written with zeros again.
    is_zero: Vec<bool>,
}

impl ModelNvram {
    /// Memory of `length_bytes` zeros.
    pub fn new(length_bytes: u64) -> Self {
        let length = length_bytes as usize;
        Self {
            state: Mutex::new(Memory {
                bytes: vec![0; length],
                is_zero: vec![true; length.div_ceil(PAGE_BYTES)],
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nvram for ModelNvram {
    fn length_bytes(&self) -> u64 {
        self.lock().bytes.len() as u64
    }

    fn read(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        let memory = self.lock();
        let start = offset as usize;
        if !start.is_multiple_of(PAGE_BYTES) {
            output.copy_from_slice(&memory.bytes[start..start + output.len()]);
            return Ok(());
        }
        let stored = memory.bytes[start..start + output.len()].chunks(PAGE_BYTES);
        let is_zero = &memory.is_zero[start / PAGE_BYTES..];
        for ((output, stored), &is_zero) in output.chunks_mut(PAGE_BYTES).zip(stored).zip(is_zero) {
            if is_zero {
                output.fill(0);
            } else {
                output.copy_from_slice(stored);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut memory = self.lock();
        let range = offset as usize..offset as usize + bytes.len();
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let is_page =
            range.start.is_multiple_of(PAGE_BYTES) && bytes.len() == PAGE_BYTES && is_zero(bytes);
        if !(is_page && memory.is_zero[pages.start]) {
            memory.bytes[range].copy_from_slice(bytes);
            memory.is_zero[pages].fill(is_page);
        }
        Ok(())
    }

    fn persist(&self, _: &[Range<u64>]) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_returns_what_was_written_last_also_zeros() {
        let memory = ModelNvram::new(4 * PAGE_BYTES as u64);
        let mut expected = vec![0; 4 * PAGE_BYTES];
        let page = PAGE_BYTES;
        let writes = [
            (page, vec![3; page]),
            (page, vec![0; page]),
            (2 * page - 8, vec![4; 16]),
            (2 * page, vec![0; page]),
            (page, vec![0; page]),
            (3 * page + 8, vec![5; 8]),
            (2 * page, vec![6; 2 * page]),
            (2 * page, vec![0; page]),
        ];
        for (at, bytes) in writes {
            memory.write(at as u64, &bytes).unwrap();
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
            for (start, length) in [(0, 4 * page), (page + 8, 2 * page), (2 * page, 8)] {
                let mut found = vec![1; length];
                memory.read(start as u64, &mut found).unwrap();
                assert!(found == expected[start..start + length], "{at}, {start}");
            }
        }
    }
}
