//! Experiments of `RackCU`: its worked example, cross-rack traffic, and throughput on testbeds.

pub(super) mod example;
pub(super) mod throughput;
pub(super) mod traffic;
