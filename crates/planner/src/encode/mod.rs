//! Encoding planners: how data chunks become a stripe, when they are written or later from replicas.

mod chain;
mod convert;
mod direct;
mod gather;
mod parity;
mod relay;
mod replicas;

pub use chain::chain;
pub use convert::{best_encoder, convert};
pub use direct::direct;
pub use gather::gather;
pub use relay::relay;
pub use replicas::{ReplicaEncoding, core_encoder};
