//! Experiments of the source papers, each run by its id.
//!
//! A folder has the experiments of one paper; each has its line in [`registry`]. A [`Session`] gives it everything
//! outside: a directory, traces, a cluster. It returns a [`Report`]. The command line prints and
//! saves it.

mod cau;
mod codfs;
mod cross_rack;
pub(crate) mod ear;
pub(crate) mod ecpipe;
mod rackcu;
mod tween;

pub use crate::experiment::{
    CacheEffect, Cell, Clusters, Experiment, Finding, Overwrite, OverwriteSetting, Progress,
    Report, Scale, Sent, Session, Table, TestbedLimits, TestbedSetting, Throughput,
    TransferSetting, Transfers,
};
pub use ear::{EncodeBench, EncodeTime, EncodeTrial, Encodings, PutTime, SegmentPlaces};
pub use ecpipe::{
    BenchLinks, Helpers, RepairBench, Selection, Stored, Together, Trial, TrialTime, Work,
};

use crate::error::LabError;

/// All experiments, by paper and figure.
pub fn registry() -> &'static [Experiment] {
    &[
        cau::f5::EXPERIMENT,
        cau::traffic::F8,
        cau::traffic::F9,
        cau::traffic::F10,
        cau::throughput::F11,
        cau::throughput::F12,
        cau::throughput::F13,
        cau::throughput::F14,
        codfs::t32::EXPERIMENT,
        codfs::f51::EXPERIMENT,
        codfs::f52::EXPERIMENT,
        codfs::t51::EXPERIMENT,
        codfs::f53::EXPERIMENT,
        codfs::f54::EXPERIMENT,
        codfs::f55::EXPERIMENT,
        codfs::f56::EXPERIMENT,
        codfs::f57::EXPERIMENT,
        rackcu::traffic::A1,
        rackcu::traffic::A2,
        rackcu::traffic::A3,
        rackcu::example::EXAMPLE,
        ecpipe::F8A,
        ecpipe::F8B,
        ecpipe::F8C,
        ecpipe::F8D,
        ecpipe::F8E,
        ecpipe::F8F,
        ecpipe::F8G,
        ecpipe::F8H,
        ecpipe::F8I,
        ecpipe::F9,
        ecpipe::A2,
        ecpipe::F11,
        rackcu::throughput::B1,
        rackcu::throughput::B2,
        tween::volumes::EXPERIMENT,
        tween::groups::EXPERIMENT,
        tween::fullness::EXPERIMENT,
        tween::speed::EXPERIMENT,
        tween::single_device::EXPERIMENT,
        ear::B1,
        ear::F13A,
        ear::F13B,
        ear::F13C,
        ear::F13D,
        ear::F13E,
        ear::F13F,
        ear::C1,
        ear::C2,
        ear::LAYOUTS,
        ear::LIVES,
    ]
}

/// The experiment of an id, in capitals or not.
///
/// # Errors
/// [`LabError::UnknownExperiment`], which lists the ids that there are.
pub fn experiment(id: &str) -> Result<&'static Experiment, LabError> {
    let found = registry().iter().find(|known| known.is_called(id));
    found.ok_or_else(|| {
        let ids: Vec<&str> = registry().iter().map(|known| known.id).collect();
        LabError::UnknownExperiment {
            id: id.to_owned(),
            known: ids.join(", "),
        }
    })
}
