//! The array of devices as a RAID of whole stripes: writes a stripe with its parities, and reads
//! any part of it, also when devices are missing.
//!
//! It never writes a part of a stripe, except to restore a chunk on a device that lacks it.

use crate::device::Device;
use crate::error::FlashError;
use crate::geometry::{Geometry, PAGE_BYTES, is_zero};
use gabion_codec::Code;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

/// Devices that hold stripes.
pub(crate) struct Array<D> {
    geometry: Geometry,
    /// None without parity.
    code: Option<Code>,
    /// None for a device that is absent or has failed.
    devices: RwLock<Vec<Option<Arc<D>>>>,
}

impl<D: Device> Array<D> {
    /// # Errors
    /// [`FlashError::Unsupported`] when the code does not exist.
    pub(crate) fn new(geometry: Geometry, devices: Vec<Option<D>>) -> Result<Self, FlashError> {
        let refuse = |reason: String| FlashError::Unsupported { reason };
        if devices.len() != geometry.device_count() {
            let count = geometry.device_count();
            return Err(refuse(format!(
                "the array has {count} devices, {} are given",
                devices.len()
            )));
        }
        let code = match geometry.parity_devices {
            0 => None,
            m => Some(
                Code::reed_solomon(geometry.data_devices, m)
                    .map_err(|error| refuse(error.to_string()))?,
            ),
        };
        Ok(Self {
            geometry,
            code,
            devices: RwLock::new(
                devices
                    .into_iter()
                    .map(|device| device.map(Arc::new))
                    .collect(),
            ),
        })
    }

    pub(crate) fn device(&self, index: usize) -> Option<Arc<D>> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices[index].clone()
    }

    pub(crate) fn set_device(&self, index: usize, device: Option<Arc<D>>) {
        let mut devices = self.devices.write().unwrap_or_else(PoisonError::into_inner);
        devices[index] = device;
    }

    /// A bit for each device that is absent or has failed.
    pub(crate) fn absent(&self) -> u16 {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        let bit = |(index, device): (usize, &Option<Arc<D>>)| u16::from(device.is_none()) << index;
        devices.iter().enumerate().map(bit).sum()
    }

    /// # Errors
    /// [`FlashError::TooManyMissing`] when `missing` has more devices than the array has parities.
    pub(crate) fn check(&self, missing: u16) -> Result<(), FlashError> {
        let survivable = self.geometry.parity_devices;
        let missing = missing.count_ones() as usize;
        if missing > survivable {
            return Err(FlashError::TooManyMissing {
                missing,
                survivable,
            });
        }
        Ok(())
    }

    /// Whether a device may find no space below it.
    pub(crate) fn is_sparse(&self) -> bool {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        let mut present = devices.iter().flatten();
        // A device that fails the query will fail its writes too.
        present.any(|device| device.is_sparse().unwrap_or(false))
    }

    /// Allocates space below all devices for `stripe_count` stripes. A device that fails otherwise
    /// reports that at its next write.
    ///
    /// # Errors
    /// [`FlashError::FullBelow`].
    pub(crate) fn reserve(&self, stripe_count: u32) -> Result<(), FlashError> {
        let bytes = self.geometry.chunk_offset(stripe_count);
        for index in 0..self.geometry.device_count() {
            if let Some(device) = self.device(index)
                && let Err(error) = device.reserve(bytes)
                && let Some(full) = full_below(index, &error)
            {
                return Err(full);
            }
        }
        Ok(())
    }

    /// Writes a stripe from its data and makes it durable. A device that fails during the write is
    /// marked as failed. Returns a bit for each device that lacks its chunk.
    ///
    /// # Errors
    /// [`FlashError::TooManyMissing`] when too few devices hold their chunk;
    /// [`FlashError::FullBelow`] when a device has no space for it, which can be retried.
    pub(crate) fn write_stripe(
        &self,
        stripe: u32,
        data: &[u8],
        parity: &mut Vec<u8>,
    ) -> Result<u16, FlashError> {
        let chunk_bytes = self.geometry.chunk_bytes as usize;
        parity.resize(self.geometry.parity_devices * chunk_bytes, 0);
        let chunks: Vec<&[u8]> = data.chunks_exact(chunk_bytes).collect();
        if let Some(code) = &self.code {
            encode(code, &chunks, parity, chunk_bytes);
        }
        let all = chunks.into_iter().chain(parity.chunks_exact(chunk_bytes));
        let offset = self.geometry.chunk_offset(stripe);
        for (chunk, bytes) in all.enumerate() {
            let index = self.geometry.device_of(stripe, chunk);
            if let Some(device) = self.device(index)
                && let Err(error) = device.write_at(offset, bytes)
            {
                if let Some(full) = full_below(index, &error) {
                    return Err(full);
                }
                self.set_device(index, None);
            }
        }
        self.sync();
        let missing = self.absent();
        self.check(missing)?;
        Ok(missing)
    }

    /// Makes everything written durable; a device that cannot sync is marked as failed.
    fn sync(&self) {
        for index in 0..self.geometry.device_count() {
            if let Some(device) = self.device(index)
                && device.sync().is_err()
            {
                self.set_device(index, None);
            }
        }
    }

    /// Fills `output` from a chunk of a stripe. The bytes are rebuilt from the other chunks if the device is in
    /// `missing`, is absent, or fails the read, or if `fits` rejects them. Returns false if no bytes fit.
    ///
    /// # Errors
    /// [`FlashError::TooManyMissing`], or the system's error without parity.
    pub(crate) fn read(
        &self,
        stripe: u32,
        missing: u16,
        chunk: usize,
        offset: u64,
        output: &mut [u8],
        fits: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool, FlashError> {
        let index = self.geometry.device_of(stripe, chunk);
        let missing = missing | self.absent();
        let mut is_damaged = false;
        if missing & (1 << index) == 0 {
            match self.read_chunk(stripe, chunk, offset, output) {
                Ok(()) if fits(output) => return Ok(true),
                Ok(()) => is_damaged = true,
                Err(error) if self.code.is_none() => {
                    return Err(FlashError::io(format!("read device {index}"), error));
                }
                Err(_) => {}
            }
        }
        let is_sound = |of: usize, bytes: &[u8]| of != chunk || fits(bytes);
        match self.rebuild(stripe, missing, chunk, offset, output, &is_sound) {
            Err(_) if is_damaged => Ok(false),
            rebuilt => rebuilt,
        }
    }

    fn read_chunk(
        &self,
        stripe: u32,
        chunk: usize,
        offset: u64,
        output: &mut [u8],
    ) -> io::Result<()> {
        let device = self.device(self.geometry.device_of(stripe, chunk));
        let device = device.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        device.read_at(self.geometry.chunk_offset(stripe) + offset, output)
    }

    /// Rebuilds bytes of a chunk into `output` from those of the others. `is_sound` judges bytes of a chunk of the
    /// stripe, at `offset` in the chunk: of the others, and of the result. Returns false if no choice of the others
    /// gives a sound result.
    ///
    /// # Errors
    /// [`FlashError::TooManyMissing`] when too few others are readable and sound.
    pub(crate) fn rebuild(
        &self,
        stripe: u32,
        missing: u16,
        chunk: usize,
        offset: u64,
        output: &mut [u8],
        is_sound: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Result<bool, FlashError> {
        self.decode(stripe, missing, chunk, offset, output, is_sound)?;
        if is_sound(chunk, output) {
            return Ok(true);
        }
        // Parity, summaries and empty slots have no checksum.
        for left_out in 0..self.geometry.device_count() {
            let bit = 1 << self.geometry.device_of(stripe, left_out);
            let is_other = left_out != chunk && missing & bit == 0;
            if is_other
                && self
                    .decode(stripe, missing | bit, chunk, offset, output, is_sound)
                    .is_ok()
                && is_sound(chunk, output)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Computes bytes of a chunk from those of the others that are readable and sound.
    ///
    /// # Errors
    /// [`FlashError::TooManyMissing`] when these are too few.
    fn decode(
        &self,
        stripe: u32,
        mut missing: u16,
        chunk: usize,
        offset: u64,
        output: &mut [u8],
        is_sound: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Result<(), FlashError> {
        missing |= 1 << self.geometry.device_of(stripe, chunk);
        'again: loop {
            self.check(missing)?;
            let Some(code) = &self.code else {
                return Err(FlashError::TooManyMissing {
                    missing: 1,
                    survivable: 0,
                });
            };
            let is_there =
                |other: &usize| missing & (1 << self.geometry.device_of(stripe, *other)) == 0;
            let available: Vec<usize> = (0..code.n()).filter(is_there).collect();
            let equations = code
                .decode(&available, &[chunk])
                .expect("any k chunks of a Reed-Solomon code suffice");
            let mut helpers = Vec::new();
            for &helper in &equations.helpers {
                let mut bytes = vec![0; output.len()];
                let read = self.read_chunk(stripe, helper, offset, &mut bytes);
                if read.is_err() || !is_sound(helper, &bytes) {
                    missing |= 1 << self.geometry.device_of(stripe, helper);
                    continue 'again;
                }
                helpers.push(bytes);
            }
            let helpers: Vec<&[u8]> = helpers.iter().map(Vec::as_slice).collect();
            equations
                .apply(&helpers, &mut [output])
                .expect("helpers are as long as the output");
            return Ok(());
        }
    }

    /// Discards a stripe that is no longer needed.
    pub(crate) fn discard(&self, stripe: u32) {
        for index in 0..self.geometry.device_count() {
            if let Some(device) = self.device(index) {
                // A discard is a hint: a refusal loses nothing.
                let _ = device.discard(
                    self.geometry.chunk_offset(stripe),
                    self.geometry.chunk_bytes,
                );
            }
        }
    }
}

/// Computes the parity of chunks. Where all of them have pages of zeros, their parity is zeros: comparing
/// a page is faster than encoding it, and ends at the first other byte.
pub(crate) fn encode(code: &Code, chunks: &[&[u8]], parity: &mut [u8], chunk_bytes: usize) {
    let page = |at: usize| at * PAGE_BYTES..((at + 1) * PAGE_BYTES).min(chunk_bytes);
    let is_zero = |at: usize| chunks.iter().all(|chunk| is_zero(&chunk[page(at)]));
    let zero_pages: Vec<bool> = (0..chunk_bytes.div_ceil(PAGE_BYTES)).map(is_zero).collect();
    let mut start = 0;
    for run in zero_pages.chunk_by(|one, next| one == next) {
        let range = start..(start + run.len() * PAGE_BYTES).min(chunk_bytes);
        start = range.end;
        let outputs = parity.chunks_exact_mut(chunk_bytes);
        let mut outputs: Vec<&mut [u8]> = outputs.map(|chunk| &mut chunk[range.clone()]).collect();
        if run[0] {
            for output in outputs {
                output.fill(0);
            }
            continue;
        }
        let parts: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[range.clone()]).collect();
        code.encode(&parts, &mut outputs)
            .expect("a stripe has the code's chunks, all of one length");
    }
}

/// Converts a device's error that there is no space below it; `None` for other errors.
pub(crate) fn full_below(device: usize, error: &io::Error) -> Option<FlashError> {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded).then_some(FlashError::FullBelow { device })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_is_the_codes_also_where_pages_are_zeros() {
        const PAGES: usize = 8;
        let chunk_bytes = PAGES * PAGE_BYTES;
        for m in [1, 2] {
            let code = Code::reed_solomon(3, m).unwrap();
            let mut data = vec![0; 3 * chunk_bytes];
            // Pages 0, 4 and 5 are zeros in all chunks, others in some, and page 7 to its last byte.
            for (chunk, page) in [(0, 1), (1, 2), (2, 2), (0, 3), (1, 3), (2, 3), (1, 6)] {
                let start = chunk * chunk_bytes + page * PAGE_BYTES;
                for (at, byte) in data[start..start + PAGE_BYTES].iter_mut().enumerate() {
                    *byte = (at * 7 + page * 13 + chunk) as u8;
                }
            }
            data[chunk_bytes - 1] = 5;
            let chunks: Vec<&[u8]> = data.chunks_exact(chunk_bytes).collect();
            let mut expected = vec![vec![0; chunk_bytes]; m];
            let mut outputs: Vec<&mut [u8]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
            code.encode(&chunks, &mut outputs).unwrap();
            let mut parity = vec![9; m * chunk_bytes];
            encode(&code, &chunks, &mut parity, chunk_bytes);
            assert!(parity == expected.concat(), "{m} parities");
        }
    }
}
