//! A device with the SSD model and its bytes in memory, and an in-memory counterpart of the
//! non-volatile memory.
//!
//! Pages of zeros take no memory, so an experiment whose user data is zeros can run the real store
//! on arrays of any size. Nothing outlives the process.

use crate::device::Device;
use crate::geometry::PAGE_BYTES;
use crate::nvram::Nvram;
use crate::ssd::{Ssd, SsdCounts, SsdSpec, Wear};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An SSD model with contents.
#[derive(Debug)]
pub struct ModelDevice {
    state: Mutex<Model>,
}

#[derive(Debug)]
struct Model {
    ssd: Ssd,
    /// Pages that are not all zeros.
    pages: BTreeMap<u32, Box<[u8]>>,
}

impl ModelDevice {
    /// A fresh SSD.
    pub fn new(spec: SsdSpec) -> Self {
        let model = Model {
            ssd: Ssd::new(spec),
            pages: BTreeMap::new(),
        };
        Self {
            state: Mutex::new(model),
        }
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
        self.lock().ssd.reset_counts();
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

/// Numbers of pages of 4 KiB from `offset` on.
fn numbers(offset: u64) -> impl Iterator<Item = u32> {
    (offset / PAGE_BYTES as u64) as u32..
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
        for (page, output) in numbers(offset).zip(output.chunks_mut(PAGE_BYTES)) {
            match model.pages.get(&page) {
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
        for (page, bytes) in numbers(offset).zip(bytes.chunks(PAGE_BYTES)) {
            if bytes.iter().all(|&byte| byte == 0) {
                model.pages.remove(&page);
            } else {
                model.pages.insert(page, bytes.into());
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
        for page in numbers(offset).take((bytes / PAGE_BYTES as u64) as usize) {
            model.pages.remove(&page);
        }
        Ok(())
    }
}

/// Ordinary memory in place of non-volatile memory, for stores on modelled SSDs.
#[derive(Debug)]
pub struct ModelNvram {
    bytes: Mutex<Vec<u8>>,
}

impl ModelNvram {
    /// Memory of `length_bytes` zeros.
    pub fn new(length_bytes: u64) -> Self {
        Self {
            bytes: Mutex::new(vec![0; length_bytes as usize]),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nvram for ModelNvram {
    fn length_bytes(&self) -> u64 {
        self.lock().len() as u64
    }

    fn read(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        let start = offset as usize;
        output.copy_from_slice(&self.lock()[start..start + output.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let start = offset as usize;
        self.lock()[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn persist(&self, _: &[Range<u64>]) -> io::Result<()> {
        Ok(())
    }
}
