//! A device that runs the SSD model beside the bytes that it holds in memory, and memory to go with it.
//!
//! Pages of zeros take no memory, so an experiment whose user data is zeros can run the real store on
//! arrays of any size. It is not for keeping data: everything goes with the process.

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

    /// What the SSD did so far.
    pub fn counts(&self) -> SsdCounts {
        self.lock().ssd.counts()
    }

    /// How its erases are spread.
    pub fn wear(&self) -> Wear {
        self.lock().ssd.wear()
    }

    /// Forgets what was counted, and keeps the state.
    pub fn reset_counts(&self) {
        self.lock().ssd.reset_counts();
    }

    fn lock(&self) -> MutexGuard<'_, Model> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pages of a range, the last one perhaps in part; the first must begin at a border.
fn pages(ssd: &Ssd, offset: u64, bytes: usize) -> io::Result<(u32, u32)> {
    let end = (offset + bytes as u64).div_ceil(PAGE_BYTES as u64);
    let is_aligned = offset.is_multiple_of(PAGE_BYTES as u64);
    if !is_aligned || end > u64::from(ssd.spec().logical_pages) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let first = (offset / PAGE_BYTES as u64) as u32;
    Ok((first, end as u32 - first))
}

impl Device for ModelDevice {
    fn capacity_bytes(&self) -> io::Result<u64> {
        Ok(u64::from(self.lock().ssd.spec().logical_pages) * PAGE_BYTES as u64)
    }

    fn read_at(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        let mut model = self.lock();
        let (first, count) = pages(&model.ssd, offset, output.len())?;
        model.ssd.read(first, count);
        for (page, output) in (first..).zip(output.chunks_mut(PAGE_BYTES)) {
            match model.pages.get(&page) {
                Some(bytes) => output.copy_from_slice(&bytes[..output.len()]),
                None => output.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut model = self.lock();
        let (first, count) = pages(&model.ssd, offset, bytes.len())?;
        if !bytes.len().is_multiple_of(PAGE_BYTES) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        model.ssd.write(first, count);
        for (page, bytes) in (first..).zip(bytes.chunks(PAGE_BYTES)) {
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
        let (first, count) = pages(&model.ssd, offset, bytes as usize)?;
        model.ssd.discard(first, count);
        for page in first..first + count {
            model.pages.remove(&page);
        }
        Ok(())
    }
}

/// Ordinary memory in the place of non-volatile memory, for stores on modelled SSDs.
#[derive(Debug)]
pub struct ModelNvram {
    bytes: Mutex<Vec<u8>>,
}

impl ModelNvram {
    /// Memory of so many zeros.
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
