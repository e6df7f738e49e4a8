//! Files: pools, puts, replacements, and where new stripes are placed.

pub(in crate::coordinator) mod places;
pub(in crate::coordinator) mod pools;
pub(in crate::coordinator) mod puts;
pub(in crate::coordinator) mod replace;
