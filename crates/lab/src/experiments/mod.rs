//! Experiments of the source papers, each run by its id.
//!
//! An experiment is one file here and its line in [`registry`]. A [`Session`] gives it everything
//! outside: a directory, traces, a cluster. It returns a [`Report`]. The command line prints and
//! saves it.

mod cache_run;
mod cau_f5;
mod cod_f51;
mod cod_f52;
mod cod_f53;
mod cod_f54;
mod cod_f55;
mod cod_f56;
mod cod_f57;
mod cod_t32;
mod cod_t51;
mod cross_rack;
mod ear;
mod ecpipe;
mod replay_run;
mod report;
mod reserve_run;
mod session;
mod twe_1;
mod twe_2;
mod twe_3;
mod twe_4;
mod twe_5;
mod twe_files;
mod twe_load;
mod twe_run;
mod twe_shapes;
mod update_run;

pub use ear::{EncodeBench, EncodeTime, EncodeTrial, Encodings, PutTime, SegmentPlaces};
pub use ecpipe::{
    BenchLinks, Helpers, RepairBench, Selection, Stored, Together, Trial, TrialTime, Work,
};
pub use report::{Cell, Finding, Report, Table};
pub use session::{
    CacheEffect, Clusters, Overwrite, OverwriteSetting, Progress, Scale, Sent, Session,
    TestbedLimits, TestbedSetting, Throughput, TransferSetting, Transfers,
};

use crate::error::LabError;

/// An experiment that can be run.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its id: the paper, and the figure or table, such as `COD-T32`.
    pub id: &'static str,
    /// Letters of the figure's parts. Each may follow the id, as in `COD-F52b`, and runs all of them.
    pub parts: &'static str,
    /// Its subject, in a few words.
    pub title: &'static str,
    /// Runs it.
    pub run: fn(&Session<'_>) -> Result<Report, LabError>,
}

impl Experiment {
    fn is_called(&self, id: &str) -> bool {
        let Some((known, part)) = id.split_at_checked(self.id.len()) else {
            return false;
        };
        known.eq_ignore_ascii_case(self.id)
            && (part.is_empty()
                || (part.len() == 1 && self.parts.contains(&part.to_ascii_lowercase())))
    }
}

/// All experiments, by paper and figure.
pub fn registry() -> &'static [Experiment] {
    &[
        cau_f5::EXPERIMENT,
        cross_rack::F8,
        cross_rack::F9,
        cross_rack::F10,
        cross_rack::F11,
        cross_rack::F12,
        cross_rack::F13,
        cross_rack::F14,
        cod_t32::EXPERIMENT,
        cod_f51::EXPERIMENT,
        cod_f52::EXPERIMENT,
        cod_t51::EXPERIMENT,
        cod_f53::EXPERIMENT,
        cod_f54::EXPERIMENT,
        cod_f55::EXPERIMENT,
        cod_f56::EXPERIMENT,
        cod_f57::EXPERIMENT,
        cross_rack::A1,
        cross_rack::A2,
        cross_rack::A3,
        cross_rack::EXAMPLE,
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
        cross_rack::B1,
        cross_rack::B2,
        twe_1::EXPERIMENT,
        twe_2::EXPERIMENT,
        twe_3::EXPERIMENT,
        twe_4::EXPERIMENT,
        twe_5::EXPERIMENT,
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
