//! Experiments of the source papers, each run by its id.
//!
//! An experiment is one file here and its line in [`registry`]. It gets a [`Session`], from which it
//! takes everything outside: a directory, traces, a cluster. It gives a [`Report`]. Printing and
//! saving are the command line's.

mod cau_f5;
mod cod_t32;
mod cross_rack;
mod report;
mod session;

pub use report::{Cell, Finding, Report, Table};
pub use session::{Progress, Scale, Session};

use crate::error::LabError;

/// An experiment that can be run.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its id: the paper, and the figure or table, such as `COD-T32`.
    pub id: &'static str,
    /// What it shows, in a few words.
    pub title: &'static str,
    /// Runs it.
    pub run: fn(&Session<'_>) -> Result<Report, LabError>,
}

/// All experiments, by paper and figure.
pub fn registry() -> &'static [Experiment] {
    &[
        cau_f5::EXPERIMENT,
        cross_rack::F8,
        cross_rack::F9,
        cross_rack::F10,
        cod_t32::EXPERIMENT,
        cross_rack::A1,
        cross_rack::A2,
        cross_rack::A3,
    ]
}

/// The experiment of an id, in capitals or not.
///
/// # Errors
/// [`LabError::UnknownExperiment`], which lists the ids that there are.
pub fn experiment(id: &str) -> Result<&'static Experiment, LabError> {
    let found = registry()
        .iter()
        .find(|known| known.id.eq_ignore_ascii_case(id));
    found.ok_or_else(|| {
        let ids: Vec<&str> = registry().iter().map(|known| known.id).collect();
        LabError::UnknownExperiment {
            id: id.to_owned(),
            known: ids.join(", "),
        }
    })
}
