//! TWEEN: a store of files on an array of SSDs that writes full stripes only, and a model of SSDs
//! to measure the savings ("Toward Write Efficiency and Endurance in SSD RAID", chapter 6 of the
//! `CodFS` thesis).
//!
//! Small writes wait in buffers of non-volatile memory, one for each group of data with a similar
//! write rate. A full buffer goes to the devices as one RAID-5 or RAID-6 stripe whose chunks are
//! whole erase blocks, so neither the array nor the SSDs do read-modify-write. Live pages of mostly
//! stale stripes go back through the same buffers.
//!
//! It is not a file system (names are flat, and there are no permissions), and has no threads or
//! clocks. The caller's thread runs [`FlashStore::maintain`].
//!
//! `docs/flash.md` has the complete layout, the effects of a crash, and measurements.
//!
//! ```
//! use gabion_flash::{FlashOptions, FlashStore, Geometry, Power, SimDevice, SimNvram};
//!
//! # fn main() -> Result<(), gabion_flash::FlashError> {
//! let geometry = Geometry { chunk_bytes: 32 << 10, ..Geometry::new(4, 1, 20) };
//! let power = Power::on();
//! let devices = (0..5).map(|_| SimDevice::new(&power, 1 << 20)).collect();
//! let nvram = SimNvram::new(&power, geometry.nvram_bytes() as usize, 8);
//! let store = FlashStore::format(geometry, 7, devices, nvram, FlashOptions::default())?;
//!
//! let file = store.create("letters")?;
//! store.write(file, 10, b"durable when this returns")?;
//! store.remove_device(2)?;
//! let mut bytes = [0; 35];
//! assert_eq!(store.read(file, 0, &mut bytes)?, 35);
//! assert_eq!(&bytes[10..], b"durable when this returns");
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod allotment;
mod array;
mod backing;
mod buffers;
mod checksum;
mod collect;
mod device;
mod device_read;
mod error;
mod files;
mod format;
mod geometry;
mod hotness;
mod in_place;
mod io;
mod log;
mod mapped_nvram;
mod model_device;
mod nvram;
mod page_map;
mod power;
mod rebuild;
mod recovery;
mod replace;
mod space;
mod ssd;
mod store;
mod stripes;
mod unreadable;

pub use device::{Device, FileDevice, disk_of, is_blank};
pub use device_read::{CacheFault, drop_cached, read_past_cache};
pub use error::FlashError;
pub use files::FileId;
pub use geometry::{Geometry, PAGE_BYTES};
pub use hotness::{HotnessOptions, HotnessScale};
pub use in_place::{InPlaceCounts, InPlaceRaid};
pub use mapped_nvram::{MappedNvram, NvramKind};
pub use model_device::{ModelDevice, ModelNvram};
pub use nvram::Nvram;
pub use power::{Power, SimDevice, SimNvram};
pub use replace::array_of;
pub use space::Located;
pub use ssd::{Ssd, SsdCounts, SsdSpec, Wear};
pub use store::{FlashCounts, FlashOptions, FlashStore, FlashUsage};
pub use stripes::Victims;
pub use unreadable::{UnreadablePage, UnreadableStripe};
