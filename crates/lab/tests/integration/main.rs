//! The integration tests of `lab`, linked once: a module for each subject.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod advise;
mod cross_rack_experiments;
mod ear_experiments;
mod experiments;
mod flash_experiments;
mod flow;
mod held_out;
mod quick;
mod real_traces;
mod reliability;
mod stats;
mod storage;
mod update_schemes;
mod update_traffic;
mod workload;
