//! The baseline: a RAID-5 or RAID-6 volume that updates data and parity in place.
//!
//! Each part of a row is updated by read-modify-write or by reconstruct-write, whichever reads less
//! (`CodFS` thesis, sections 2.1.2 and 6.1.2). It leaves the write hole open: after a crash, stale
//! parity stays. A real array prevents this with a journal or a map of dirty rows, at further cost.
//! It serves healthy arrays only, for comparison.

use crate::array::encode;
use crate::device::Device;
use crate::error::FlashError;
use crate::geometry::{PAGE_BYTES, is_zero};
use gabion_codec::Code;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Distance in rows between rows that share a lock.
const LOCK_COUNT: usize = 64;

/// Counters of an in-place array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InPlaceCounts {
    /// Writes that covered a row in part.
    pub partial_stripe_writes: u64,
    /// Writes that covered a whole row.
    pub full_stripe_writes: u64,
    /// Pieces of rows updated by reading the old bytes.
    pub read_modify_writes: u64,
    /// Pieces of rows updated by reading the unchanged strips.
    pub reconstruct_writes: u64,
}

/// A volume on an array that is updated in place.
pub struct InPlaceRaid<D> {
    devices: Vec<D>,
    code: Code,
    strip_bytes: u64,
    rows: Vec<Mutex<()>>,
    counts: Mutex<InPlaceCounts>,
}

impl<D: Device> InPlaceRaid<D> {
    /// An array of these devices, with rotating parity on `parity_devices` of them in each row. A
    /// strip is a row's part on one device, in bytes.
    ///
    /// # Errors
    /// [`FlashError::Unsupported`] when the code does not exist, or a strip is not a whole number
    /// of pages.
    pub fn new(
        devices: Vec<D>,
        parity_devices: usize,
        strip_bytes: u64,
    ) -> Result<Self, FlashError> {
        let refuse = |reason: String| FlashError::Unsupported { reason };
        if strip_bytes == 0 || !strip_bytes.is_multiple_of(PAGE_BYTES as u64) {
            return Err(refuse("a strip is a multiple of 4 KiB".to_owned()));
        }
        let data_devices = devices.len().saturating_sub(parity_devices);
        let code = Code::reed_solomon(data_devices, parity_devices)
            .map_err(|error| refuse(error.to_string()))?;
        Ok(Self {
            devices,
            code,
            strip_bytes,
            rows: (0..LOCK_COUNT).map(|_| Mutex::new(())).collect(),
            counts: Mutex::default(),
        })
    }

    /// Its counters.
    pub fn counts(&self) -> InPlaceCounts {
        *self.lock_counts()
    }

    /// The devices, in order.
    pub fn devices(&self) -> &[D] {
        &self.devices
    }

    fn lock_counts(&self) -> MutexGuard<'_, InPlaceCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device_of(&self, row: u64, strip: usize) -> usize {
        (row as usize + strip) % self.devices.len()
    }

    fn row_bytes(&self) -> u64 {
        self.strip_bytes * self.code.k() as u64
    }

    /// Fills `output` from `offset`, both multiples of 4 KiB.
    ///
    /// # Errors
    /// [`FlashError::Io`] when a device fails.
    pub fn read(&self, offset: u64, output: &mut [u8]) -> Result<(), FlashError> {
        let mut at = offset;
        let mut rest = output;
        while !rest.is_empty() {
            let within = at % self.strip_bytes;
            let part = (self.strip_bytes - within).min(rest.len() as u64) as usize;
            let (output, next) = rest.split_at_mut(part);
            let row = at / self.row_bytes();
            let strip = (at % self.row_bytes() / self.strip_bytes) as usize;
            self.read_strip(row, strip, within, output)?;
            rest = next;
            at += part as u64;
        }
        Ok(())
    }

    /// Writes at `offset` with parity; offset and length are multiples of 4 KiB. Durable after
    /// [`InPlaceRaid::sync`].
    ///
    /// # Errors
    /// [`FlashError::Io`] when a device fails.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
        self.write_rows(offset, bytes).map(|_| ())
    }

    /// Writes as [`InPlaceRaid::write`] does, and syncs the written devices.
    ///
    /// # Errors
    /// [`FlashError::Io`] when a device fails.
    pub fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
        let touched = self.write_rows(offset, bytes)?;
        for (index, device) in self.devices.iter().enumerate() {
            if touched & (1 << index) != 0 {
                device
                    .sync()
                    .map_err(|source| failed("sync", index, source))?;
            }
        }
        Ok(())
    }

    /// Syncs all devices.
    ///
    /// # Errors
    /// [`FlashError::Io`] when a device fails.
    pub fn sync(&self) -> Result<(), FlashError> {
        for (index, device) in self.devices.iter().enumerate() {
            device
                .sync()
                .map_err(|source| failed("sync", index, source))?;
        }
        Ok(())
    }

    /// Returns a bit for each device written to.
    fn write_rows(&self, offset: u64, bytes: &[u8]) -> Result<u64, FlashError> {
        let mut touched = 0;
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % self.row_bytes();
            let part = (self.row_bytes() - within).min(rest.len() as u64) as usize;
            let (bytes, next) = rest.split_at(part);
            touched |= self.write_row(at / self.row_bytes(), within, bytes)?;
            rest = next;
            at += part as u64;
        }
        Ok(touched)
    }

    fn write_row(&self, row: u64, within: u64, bytes: &[u8]) -> Result<u64, FlashError> {
        let lock = &self.rows[(row % LOCK_COUNT as u64) as usize];
        let _turn = lock.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut counts = self.lock_counts();
            let is_full = bytes.len() as u64 == self.row_bytes();
            counts.full_stripe_writes += u64::from(is_full);
            counts.partial_stripe_writes += u64::from(!is_full);
        }
        let end = within + bytes.len() as u64;
        let touched = |strip: usize| {
            let start = strip as u64 * self.strip_bytes;
            let first = within.max(start).min(start + self.strip_bytes);
            let last = end.max(start).min(start + self.strip_bytes);
            first - start..last - start
        };
        // Between these borders, each strip is written completely or not at all.
        let mut borders: Vec<u64> = (0..self.code.k())
            .map(touched)
            .filter(|range| !range.is_empty())
            .flat_map(|range| [range.start, range.end])
            .collect();
        borders.sort_unstable();
        borders.dedup();
        let mut devices = 0;
        for pair in borders.windows(2) {
            let column = pair[0]..pair[1];
            let written: Vec<Option<&[u8]>> = (0..self.code.k())
                .map(|strip| {
                    let range = touched(strip);
                    let is_written = range.start <= column.start && range.end >= column.end;
                    is_written.then(|| {
                        let start = strip as u64 * self.strip_bytes + column.start - within;
                        &bytes[start as usize..(start + column.end - column.start) as usize]
                    })
                })
                .collect();
            devices |= self.write_column(row, &column, &written)?;
        }
        Ok(devices)
    }

    /// Writes the given strips over a range of all strips of a row, and updates parity there.
    fn write_column(
        &self,
        row: u64,
        column: &Range<u64>,
        written: &[Option<&[u8]>],
    ) -> Result<u64, FlashError> {
        let (k, m) = (self.code.k(), self.code.m());
        let length = (column.end - column.start) as usize;
        let written_count = written.iter().flatten().count();
        if written_count == 0 {
            return Ok(0);
        }
        let is_reconstructed = k - written_count < written_count + m;
        let mut parity = vec![0; m * length];
        if is_reconstructed {
            let mut unchanged = vec![0; (k - written_count) * length];
            let mut parts = unchanged.chunks_exact_mut(length);
            let mut data: Vec<&[u8]> = Vec::with_capacity(k);
            for (strip, new) in written.iter().enumerate() {
                if let Some(new) = new {
                    data.push(new);
                } else {
                    let part = parts.next().expect("there is a part for each such strip");
                    self.read_strip(row, strip, column.start, part)?;
                    data.push(part);
                }
            }
            encode(&self.code, &data, &mut parity, length);
        } else {
            let mut older = vec![0; length];
            for (at, parity) in parity.chunks_exact_mut(length).enumerate() {
                self.read_strip(row, k + at, column.start, parity)?;
            }
            for (strip, new) in written.iter().enumerate() {
                let Some(new) = new else { continue };
                self.read_strip(row, strip, column.start, &mut older)?;
                gabion_codec::kernel::add_assign(&mut older, new);
                if is_zero(&older) {
                    // Bytes that do not change leave parity as it is.
                    continue;
                }
                for (at, parity) in parity.chunks_exact_mut(length).enumerate() {
                    let coefficient = self.code.coefficient(k + at, 0, strip, 0);
                    gabion_codec::kernel::mul_add(coefficient, &older, parity);
                }
            }
        }
        {
            let mut counts = self.lock_counts();
            counts.reconstruct_writes += u64::from(is_reconstructed && written_count < k);
            counts.read_modify_writes += u64::from(!is_reconstructed);
        }
        let data = (0..k)
            .zip(written)
            .filter_map(|(strip, new)| Some((strip, (*new)?)));
        let parity = (k..k + m).zip(parity.chunks_exact(length));
        let mut touched = 0;
        for (strip, bytes) in data.chain(parity) {
            let index = self.device_of(row, strip);
            touched |= 1 << index;
            self.devices[index]
                .write_at(row * self.strip_bytes + column.start, bytes)
                .map_err(|source| failed("write to", index, source))?;
        }
        Ok(touched)
    }

    fn read_strip(
        &self,
        row: u64,
        strip: usize,
        offset: u64,
        output: &mut [u8],
    ) -> Result<(), FlashError> {
        let index = self.device_of(row, strip);
        self.devices[index]
            .read_at(row * self.strip_bytes + offset, output)
            .map_err(|source| failed("read", index, source))
    }
}

fn failed(operation: &str, index: usize, source: io::Error) -> FlashError {
    FlashError::io(format!("{operation} device {index}"), source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::{Power, SimDevice};

    #[test]
    fn parity_follows_every_write_by_either_way() {
        for parity_devices in [1, 2] {
            let devices: Vec<SimDevice> = (0..6)
                .map(|_| SimDevice::new(&Power::on(), 128 << 10))
                .collect();
            let array = InPlaceRaid::new(devices, parity_devices, 16 << 10).unwrap();
            let k = 6 - parity_devices;
            let mut expected = vec![0_u8; k * (128 << 10)];
            let pages = expected.len() / PAGE_BYTES;
            for round in 0..200_usize {
                let first = round * 7919 % pages;
                let count = (1 + round * 31 % 24).min(pages - first);
                let range = first * PAGE_BYTES..(first + count) * PAGE_BYTES;
                let bytes: Vec<u8> = range
                    .clone()
                    .map(|at| (at * 7 + round * 13) as u8)
                    .collect();
                array.write(range.start as u64, &bytes).unwrap();
                expected[range].copy_from_slice(&bytes);
            }
            let mut found = vec![0; expected.len()];
            array.read(0, &mut found).unwrap();
            assert!(found == expected);
            for row in 0..8 {
                let mut strips = vec![vec![0; 16 << 10]; 6];
                for (strip, bytes) in strips.iter_mut().enumerate() {
                    array.read_strip(row, strip, 0, bytes).unwrap();
                }
                let data: Vec<&[u8]> = strips[..k].iter().map(Vec::as_slice).collect();
                let mut parity = vec![vec![0; 16 << 10]; parity_devices];
                let mut outputs: Vec<&mut [u8]> =
                    parity.iter_mut().map(Vec::as_mut_slice).collect();
                array.code.encode(&data, &mut outputs).unwrap();
                assert!(parity == strips[k..], "row {row}");
            }
            let counts = array.counts();
            let all = [
                counts.partial_stripe_writes,
                counts.full_stripe_writes,
                counts.read_modify_writes,
                counts.reconstruct_writes,
            ];
            assert!(all.iter().all(|&count| count > 0), "{counts:?}");
        }
    }
}
