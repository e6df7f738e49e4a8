//! Update planners: they bring new bytes of data chunks to every parity chunk.
//!
//! [`delta`] and [`rackcu`] bring parity up to date with each update. [`cau`] and [`parix`] first log the update with
//! copies that survive failures, and update parity in a commit.

mod appending;
pub mod cau;
mod degraded;
mod delta;
mod descriptor;
mod fl;
mod flow;
mod fo;
mod overlay;
pub mod parix;
mod piece;
mod pl;
mod plr;
pub(crate) mod rackcu;
mod scheme;
pub(crate) mod spread;
mod waiting;

pub use appending::Appending;
pub use degraded::{check_left, missed};
pub use delta::delta;
pub use descriptor::{Descriptor, Traffic, UpdatePlanner};
pub use overlay::{Reader, overlay_read};
pub use rackcu::rackcu;
pub use scheme::{SCHEMES, check_pool, descriptor, keepings, names, phase_survives, scheme};
pub use waiting::{RECORD_BYTES_MAX, RECORD_PIECE_COUNT_MAX, UPDATE_SLICE_BYTES, Waiting};
