//! Experiments of EAR (section V-B and V-C): throughput while replicas are encoded, on the model of
//! links, which is first validated on a testbed; balance of replicas and reads over racks; and,
//! beyond the paper's figures, its claims about draws, relocation and reliability.

pub(super) mod balance;
pub(crate) mod bench;
mod choices;
pub(super) mod gains;
pub(super) mod layouts;
pub(super) mod lives;
mod model;
mod setting;
mod sides;
pub(super) mod validation;

pub use bench::{EncodeBench, EncodeTime, EncodeTrial, Encodings, PutTime, SegmentPlaces};
