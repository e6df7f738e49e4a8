//! Update planners: how new bytes of data chunks reach every parity chunk.
//!
//! [`delta`] and [`rackcu`] bring parity up to date with each update. [`cau`] and [`parix`] log it
//! first, with copies that survive failures, and let parity follow in a commit.

pub mod cau;
mod delta;
mod flow;
pub mod parix;
mod piece;
pub(crate) mod rackcu;
pub(crate) mod spread;

pub use delta::delta;
pub use rackcu::rackcu;
