//! Experiments of EAR (section V-B and V-C): throughput while replicas are encoded, on the model of
//! links, which is first validated on a testbed; balance of replicas and reads over racks; and,
//! beyond the paper's figures, its claims about draws, relocation and reliability.

mod balance;
pub(crate) mod bench;
mod choices;
mod gains;
mod layouts;
mod lives;
mod model;
mod setting;
mod sides;
mod validation;

pub(super) use balance::{C1, C2};
pub(super) use gains::{F13A, F13B, F13C, F13D, F13E, F13F};
pub(super) use layouts::EXPERIMENT as LAYOUTS;
pub(super) use lives::EXPERIMENT as LIVES;
pub(super) use validation::EXPERIMENT as B1;

pub use bench::{EncodeBench, EncodeTime, EncodeTrial, Encodings, PutTime, SegmentPlaces};
