//! Update planners: how new bytes of data chunks reach every parity chunk.

mod delta;

pub use delta::delta;
