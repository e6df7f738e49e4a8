//! `ECPipe`'s experiments on repair: real processes on a testbed whose links are slow enough to bind (its
//! section 6.1 has 17 machines on one switch, section 6.2 regions), and the search for paths.
//!
//! Each figure is a table of trials (`figure`). `bench` turns a trial into plans.

pub(crate) mod bench;
mod bound;
mod figure;
mod paths;
mod recovery;
mod shaped;
mod single;

pub use bench::{
    BenchLinks, Helpers, RepairBench, Selection, Stored, Together, Trial, TrialTime, Work,
};
pub(super) use paths::A2;
pub(super) use recovery::{F8E, F11};
pub(super) use shaped::{F8G, F8H, F9};
pub(super) use single::{F8A, F8B, F8C, F8D, F8F, F8I};
