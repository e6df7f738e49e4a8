//! The layout of a store: pages, slots, stripes, chunks, and each part of the non-volatile memory.
//! A few numbers of the superblock determine all of it.
//!
//! A stripe is `data_devices` chunks of `chunk_bytes` with their parities, at the same offset of
//! every device; the chunks rotate over the devices. The first pages of a stripe are its summary,
//! the others are slots for pages of files.

use crate::error::FlashError;

/// Page size in bytes; files are mapped in pages.
pub const PAGE_BYTES: usize = 4096;
/// A page of zeros.
pub(crate) const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
/// Bytes of an entry of a stripe's table: file, page, age and checksum of a slot's content.
pub(crate) const ENTRY_BYTES: u64 = 16;
/// Bytes of a stripe's header in the non-volatile memory.
pub(crate) const HEADER_BYTES: u64 = 16;
/// Bytes of the summary's own header, before its entries.
pub(crate) const SUMMARY_HEADER_BYTES: usize = 64;
/// Bytes before the headers of stripes, for the superblock.
const SUPERBLOCK_AREA_BYTES: u64 = PAGE_BYTES as u64;
/// The most devices: a stripe's header has a bit for each.
const DEVICES_MAX: usize = 16;

/// Parameters of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Devices that hold data of a stripe, the code's k.
    pub data_devices: usize,
    /// Devices that hold parity of a stripe: 1 is RAID-5, 2 is RAID-6, 0 has no redundancy.
    pub parity_devices: usize,
    /// Bytes of a chunk; a multiple of the SSD's erase block, so that no block is written in part.
    pub chunk_bytes: u64,
    /// Stripes.
    pub stripe_count: u32,
    /// Hotness groups; each has one buffer.
    pub group_count: usize,
    /// Buffers beyond one a group. One lets writes go on during a flush; the others hold full
    /// buffers back, so that pages rewritten in them need no device write.
    pub spare_buffers: usize,
}

impl Geometry {
    /// The thesis's default on the given devices: stripes of 8 MiB of data (a little less where 8
    /// MiB does not divide), four groups, and as many spare buffers.
    pub fn new(data_devices: usize, parity_devices: usize, stripe_count: u32) -> Self {
        let page = PAGE_BYTES as u64;
        let chunk_bytes = (8 << 20) / data_devices.max(1) as u64 / page * page;
        Self {
            data_devices,
            parity_devices,
            chunk_bytes,
            stripe_count,
            group_count: 4,
            spare_buffers: 4,
        }
    }

    /// Sets the stripe count to fill devices of `capacity_bytes`.
    #[must_use]
    pub fn filling(mut self, capacity_bytes: u64) -> Self {
        // Each device begins with one chunk's space for its header.
        let count = (capacity_bytes / self.chunk_bytes.max(1)).saturating_sub(1);
        self.stripe_count = count.min(u64::from(u32::MAX)) as u32;
        self
    }

    /// # Errors
    /// [`FlashError::Unsupported`] when the numbers contradict each other.
    pub(crate) fn check(&self) -> Result<(), FlashError> {
        let refuse = |reason: &str| {
            Err(FlashError::Unsupported {
                reason: reason.to_owned(),
            })
        };
        if self.data_devices == 0 || self.device_count() > DEVICES_MAX {
            return refuse("an array has 1 to 16 devices, at least one of them for data");
        }
        if self.group_count == 0 || self.spare_buffers == 0 || self.buffer_count() > 255 {
            return refuse("there are 1 to 254 groups, and 1 to 254 spare buffers");
        }
        if self.chunk_bytes == 0 || !self.chunk_bytes.is_multiple_of(PAGE_BYTES as u64) {
            return refuse("a chunk is a multiple of 4 KiB");
        }
        if self.stripe_pages() > 1 << 20 || self.summary_pages() >= self.stripe_pages() {
            return refuse("a stripe has at least two pages and at most 4 GiB");
        }
        let places = u64::from(self.stripe_count) * self.stripe_pages();
        if places >= u64::from(u32::MAX) {
            return refuse("a store has fewer than 2^32 pages");
        }
        if self.stripe_count < self.unusable_stripes() + 1 {
            return refuse(
                "a store has more stripes than twice its groups, its spare buffers and two",
            );
        }
        Ok(())
    }

    /// Devices of the array.
    pub fn device_count(&self) -> usize {
        self.data_devices + self.parity_devices
    }

    /// Used bytes of each device.
    pub fn device_bytes(&self) -> u64 {
        self.chunk_bytes * (u64::from(self.stripe_count) + 1)
    }

    /// Data pages of a stripe, its summary included.
    pub(crate) fn stripe_pages(&self) -> u64 {
        self.data_devices as u64 * self.chunk_bytes / PAGE_BYTES as u64
    }

    /// Pages of a stripe's summary.
    pub(crate) fn summary_pages(&self) -> u64 {
        // This counts entries for the summary's own pages too, which is simpler and costs nothing
        // for stripes below 256 pages.
        let bytes = SUMMARY_HEADER_BYTES as u64 + self.stripe_pages() * ENTRY_BYTES;
        bytes.div_ceil(PAGE_BYTES as u64)
    }

    /// Pages of files that a stripe holds.
    pub fn slot_count(&self) -> u32 {
        (self.stripe_pages() - self.summary_pages()) as u32
    }

    /// Buffers in the non-volatile memory.
    pub fn buffer_count(&self) -> usize {
        self.group_count + self.spare_buffers
    }

    /// Stripes that only collection may fill: one for each group, and two for choice.
    pub(crate) fn reserved_stripes(&self) -> u32 {
        self.group_count as u32 + 2
    }

    /// Stripes that collection needs to always gain space: the reserved ones, and one for each
    /// buffer, since buffers may be nearly empty.
    fn unusable_stripes(&self) -> u32 {
        self.reserved_stripes() + self.buffer_count() as u32
    }

    /// Capacity for pages of files.
    pub fn capacity_pages(&self) -> u64 {
        self.capacity_of(self.stripe_count)
    }

    /// Capacity of `stripe_count` of its stripes for pages of files.
    pub(crate) fn capacity_of(&self, stripe_count: u32) -> u64 {
        let usable = stripe_count.saturating_sub(self.unusable_stripes());
        u64::from(usable) * u64::from(self.slot_count())
    }

    /// The fewest stripes with a capacity of `pages`, at most all.
    pub(crate) fn stripes_for(&self, pages: u64) -> u32 {
        let usable = pages.div_ceil(u64::from(self.slot_count()));
        let usable = u32::try_from(usable).unwrap_or(u32::MAX);
        usable
            .saturating_add(self.unusable_stripes())
            .min(self.stripe_count)
    }

    /// Bytes of non-volatile memory required.
    pub fn nvram_bytes(&self) -> u64 {
        self.buffer_offset(self.buffer_count())
    }

    /// Bytes of non-volatile memory for metadata: all but the buffers.
    pub fn nvram_metadata_bytes(&self) -> u64 {
        self.buffer_offset(0)
    }

    /// Offset of a slot's entry in the non-volatile memory.
    pub(crate) fn entry_offset(&self, stripe: u32, slot: u32) -> u64 {
        let headers = header_offset(self.stripe_count);
        let tables = headers.next_multiple_of(PAGE_BYTES as u64);
        let number = u64::from(stripe) * u64::from(self.slot_count()) + u64::from(slot);
        tables + number * ENTRY_BYTES
    }

    /// Offset of a buffer in the non-volatile memory.
    pub(crate) fn buffer_offset(&self, buffer: usize) -> u64 {
        let end = self.entry_offset(self.stripe_count, 0);
        let first = end.next_multiple_of(PAGE_BYTES as u64);
        first + buffer as u64 * u64::from(self.slot_count()) * PAGE_BYTES as u64
    }

    /// Offset of the stripe's chunk on its device.
    pub(crate) fn chunk_offset(&self, stripe: u32) -> u64 {
        self.chunk_bytes * (u64::from(stripe) + 1)
    }

    /// The device of a chunk of a stripe, data chunks first. Chunks rotate, so that all devices
    /// hold parity.
    pub(crate) fn device_of(&self, stripe: u32, chunk: usize) -> usize {
        (stripe as usize + chunk) % self.device_count()
    }

    /// The data chunk of a stripe's page, and the offset in it.
    pub(crate) fn locate(&self, stripe_page: u64) -> (usize, u64) {
        let byte = stripe_page * PAGE_BYTES as u64;
        ((byte / self.chunk_bytes) as usize, byte % self.chunk_bytes)
    }
}

/// Whether all bytes are zeros. Compares page by page, which is many times as fast as byte by byte, and ends
/// at the first page with another byte.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let mut parts = bytes.chunks(PAGE_BYTES);
    parts.all(|part| part == &ZEROS[..part.len()])
}

/// Offset of a stripe's header in the non-volatile memory.
pub(crate) fn header_offset(stripe: u32) -> u64 {
    SUPERBLOCK_AREA_BYTES + u64::from(stripe) * HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_takes_under_24_bytes_a_page() {
        let geometry = Geometry::new(4, 1, 1280);
        geometry.check().unwrap();
        assert_eq!(geometry.slot_count(), 2048 - 9);
        let bytes = geometry.nvram_metadata_bytes() as f64;
        let slots = 1280.0 * f64::from(geometry.slot_count());
        // Besides these, a page's place takes four bytes of ordinary memory.
        assert!(bytes / slots + 4.0 < 21.0, "{}", bytes / slots);
    }

    #[test]
    fn chunks_of_a_stripe_are_on_different_devices() {
        let geometry = Geometry::new(4, 2, 100);
        for stripe in 0..100 {
            let mut devices: Vec<usize> = (0..6)
                .map(|chunk| geometry.device_of(stripe, chunk))
                .collect();
            devices.sort_unstable();
            assert_eq!(devices, [0, 1, 2, 3, 4, 5]);
        }
    }
}
