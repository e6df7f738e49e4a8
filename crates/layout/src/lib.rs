//! Typed ids, geometry, topology and stripe records: the types that all other crates share.
//!
//! This crate makes no decisions, computes no codes and does no I/O. A *stripe* is `k` data chunks
//! and `m` parity chunks on `n = k + m` nodes; chunk indices run over the data chunks first, then
//! the parity chunks. See GLOSSARY.md for every term.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod append_spec;
mod checked;
mod geometry;
mod ids;
mod keeping;
mod lifecycle;
mod names;
mod size;
mod slices;
mod stripe;
mod topology;
mod update_scheme;

pub use append_spec::{AppendSpec, GroupingRule, GroupingRuleParseError};
pub use geometry::{ByteRange, ChunkRange, Geometry, GeometryError};
pub use ids::{
    COUNT_MAX, ChunkId, ChunkIndex, ClusterId, CountError, Epoch, Generation, NodeId, PoolId,
    RackId, RunId, Sequence, Start, StripeId,
};
pub use keeping::Keeping;
pub use lifecycle::{EncodeAfter, Lifecycle, LifecycleParseError, ReplicaPlacement, duration};
pub use names::any_of;
pub use size::{SizeError, parse_bytes};
pub use slices::Slices;
pub use stripe::{StaleChunk, StripeRecord};
pub use topology::{NodePlace, Survive, SurviveParseError, Topology, TopologyError};
pub use update_scheme::{
    ReserveSpec, Smoothing, SmoothingParseError, UpdateScheme, UpdateSchemeParseError,
};
