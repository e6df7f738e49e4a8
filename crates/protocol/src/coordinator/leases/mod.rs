//! Leases of stripes.

pub(in crate::coordinator) mod primaries;
