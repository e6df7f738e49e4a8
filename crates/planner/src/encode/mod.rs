//! Encoding planners: how `k` data chunks become a stripe.

mod direct;

pub use direct::direct;
