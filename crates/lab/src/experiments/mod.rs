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
    CacheEffect, Cell, Clusters, Experiment, Finding, Goal, Overwrite, OverwriteSetting, Paper,
    Progress, Reading, Report, Rule, Scale, Sent, Session, Table, Tally, TestbedLimits,
    TestbedSetting, Throughput, Tolerance, TransferSetting, Transfers, Verdict, rules,
};
pub use ear::{EncodeBench, EncodeTime, EncodeTrial, Encodings, PutTime, SegmentPlaces};
pub use ecpipe::{
    BenchLinks, HdfsBench, HdfsTimes, Helpers, RepairBench, Selection, Stored, Together, Trial,
    TrialTime, Work,
};

use crate::error::LabError;

/// All experiments, by paper and figure.
pub fn registry() -> &'static [Experiment] {
    &[
        cau::f5::EXPERIMENT,
        cau::traffic::F8,
        cau::traffic::F9,
        cau::grouping::F10,
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
        ecpipe::single::F8A,
        ecpipe::single::F8B,
        ecpipe::single::F8C,
        ecpipe::single::F8D,
        ecpipe::recovery::F8E,
        ecpipe::single::F8F,
        ecpipe::shaped::F8G,
        ecpipe::shaped::F8H,
        ecpipe::single::F8I,
        ecpipe::shaped::F9,
        ecpipe::paths::A2,
        ecpipe::on_hdfs::F10B,
        ecpipe::recovery::F11,
        rackcu::throughput::B1,
        rackcu::throughput::B2,
        tween::volumes::EXPERIMENT,
        tween::groups::EXPERIMENT,
        tween::fullness::EXPERIMENT,
        tween::speed::EXPERIMENT,
        tween::single_device::EXPERIMENT,
        ear::validation::EXPERIMENT,
        ear::gains::F13A,
        ear::gains::F13B,
        ear::gains::F13C,
        ear::gains::F13D,
        ear::gains::F13E,
        ear::gains::F13F,
        ear::balance::C1,
        ear::balance::C2,
        ear::layouts::EXPERIMENT,
        ear::lives::EXPERIMENT,
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
