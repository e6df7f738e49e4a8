//! Removes devices and puts new ones in the place of lost ones.

use crate::device::Device;
use crate::error::FlashError;
use crate::format::{StripeState, Superblock};
use crate::geometry::{Geometry, PAGE_BYTES};
use crate::nvram::Nvram;
use crate::store::FlashStore;
use std::sync::{Arc, PoisonError};

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Devices that are absent or have failed since the store was opened.
    pub fn absent_devices(&self) -> Vec<usize> {
        let absent = self.array.absent();
        (0..self.geometry.device_count())
            .filter(|index| absent & (1 << index) != 0)
            .collect()
    }

    /// Number of stripes that lack their chunk on each device: all for an absent one, and those
    /// still to be rebuilt for a replaced one.
    pub fn lacking_stripes(&self) -> Vec<u32> {
        let absent = self.array.absent();
        let mut lacking = vec![0; self.geometry.device_count()];
        for missing in self.lock().stripes.sealed_missing() {
            for (index, count) in lacking.iter_mut().enumerate() {
                *count += u32::from((missing | absent) >> index & 1);
            }
        }
        lacking
    }

    /// Whether a device is the one with this number of this array, perhaps with old contents.
    pub fn is_own_device(&self, index: usize, device: &D) -> bool {
        let superblock = Superblock {
            identity: self.identity,
            geometry: self.geometry,
        };
        read_device_header(device, index).is_ok_and(|found| found == superblock)
    }

    /// Removes a device. Reads rebuild its contents, and writes go on without it.
    ///
    /// # Errors
    /// [`FlashError::TooManyMissing`] when the array does not tolerate that, or a stripe that still
    /// has to be rebuilt does not; nothing changes then.
    ///
    /// # Panics
    /// If there is no device with this number.
    pub fn remove_device(&self, index: usize) -> Result<(), FlashError> {
        assert!(
            index < self.geometry.device_count(),
            "there is no device {index}"
        );
        // No stripe may lose a chunk during the check.
        let _collecting = self
            .collecting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let _flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let absent = self.array.absent() | 1 << index;
        self.array.check(absent)?;
        {
            let state = self.lock();
            for stripe in 0..state.stripes.count() {
                if let StripeState::Sealed { missing } = state.stripes.get(stripe).state {
                    self.array.check(missing | absent)?;
                }
            }
        }
        self.array.set_device(index, None);
        Ok(())
    }

    /// Puts a new device in the place of an absent one. It takes part in writes at once;
    /// [`FlashStore::rebuild`] rebuilds the chunks that it lacks. The device gets its header only
    /// after every stripe is durably marked as missing on it, so after a crash at any step a device
    /// with a header never counts as whole. After an error the call can be repeated.
    ///
    /// # Errors
    /// [`FlashError::Unsupported`] when the place is taken or the device too small,
    /// [`FlashError::FullBelow`] when there is no space below it, or when the device or the memory
    /// fails.
    pub fn replace_device(&self, index: usize, device: D) -> Result<(), FlashError> {
        // No stripe changes its state here, so each is either marked or written with the device.
        let _collecting = self
            .collecting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let _flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.absent_devices().contains(&index) {
            return Err(FlashError::Unsupported {
                reason: format!("device {index} is not missing"),
            });
        }
        check_length(&self.geometry, index, &device)?;
        self.check_room(index, &device)?;
        self.mark_missing(index)?;
        self.persist()?;
        let superblock = Superblock {
            identity: self.identity,
            geometry: self.geometry,
        };
        write_device_header(&superblock, index, &device)?;
        self.array.set_device(index, Some(Arc::new(device)));
        Ok(())
    }

    /// Marks all stripes on the devices as missing on this one. The marks are not durable yet.
    fn mark_missing(&self, index: usize) -> Result<(), FlashError> {
        let mut state = self.lock();
        for stripe in 0..state.stripes.count() {
            if let StripeState::Sealed { missing } = state.stripes.get(stripe).state {
                let missing = missing | 1 << index;
                self.stage_header(&mut state, stripe, StripeState::Sealed { missing })?;
                state.stripes.set_missing(stripe, missing);
            }
        }
        Ok(())
    }
}

/// Makes a device a member of the array. It writes a whole chunk, so that no erase block is written
/// in part.
pub(crate) fn write_device_header<D: Device>(
    superblock: &Superblock,
    index: usize,
    device: &D,
) -> Result<(), FlashError> {
    let geometry = &superblock.geometry;
    check_length(geometry, index, device)?;
    let failed = |source| FlashError::io(format!("write to device {index}"), source);
    let mut bytes = vec![0; geometry.chunk_bytes as usize];
    let header = superblock.encode_device(index);
    bytes[..header.len()].copy_from_slice(&header);
    device.write_at(0, &bytes).map_err(failed)?;
    device.sync().map_err(failed)
}

/// Refuses a device that is too small for the array.
fn check_length<D: Device>(
    geometry: &Geometry,
    index: usize,
    device: &D,
) -> Result<(), FlashError> {
    let have = device
        .capacity_bytes()
        .map_err(|source| FlashError::io(format!("measure device {index}"), source))?;
    let needed = geometry.device_bytes();
    if have < needed {
        return Err(FlashError::Unsupported {
            reason: format!("device {index} has {have} bytes, but {needed} are needed"),
        });
    }
    Ok(())
}

/// The identity of the array to which a device belongs, by the header in its first page. None without a header.
///
/// # Errors
/// If the device fails.
pub fn array_of(device: &impl Device) -> std::io::Result<Option<u64>> {
    let mut page = vec![0; PAGE_BYTES];
    if device.capacity_bytes()? < page.len() as u64 {
        return Ok(None);
    }
    device.read_at(0, &mut page)?;
    Ok(Superblock::decode_device(&page).map(|(superblock, _)| superblock.identity))
}

/// Refuses a device that is not this one of this array.
pub(crate) fn read_device_header<D: Device>(
    device: &D,
    index: usize,
) -> Result<Superblock, FlashError> {
    let mut bytes = vec![0; PAGE_BYTES];
    device
        .read_at(0, &mut bytes)
        .map_err(|source| FlashError::io(format!("read device {index}"), source))?;
    match Superblock::decode_device(&bytes) {
        Some((superblock, found)) if found == index => Ok(superblock),
        Some((_, found)) => Err(FlashError::UnknownFormat {
            place: format!("device {index}"),
            reason: format!("it is device {found} of its array; give the devices in their order"),
        }),
        None => Err(FlashError::UnknownFormat {
            place: format!("device {index}"),
            reason: "it has no header; omit this device and replace it".to_owned(),
        }),
    }
}
