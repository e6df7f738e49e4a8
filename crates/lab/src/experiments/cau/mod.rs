//! Experiments of CAU: reliability of the append phase, cross-rack traffic, and throughput on testbeds.

pub(super) mod f5;
pub(super) mod grouping;
pub(super) mod throughput;
pub(super) mod traffic;
