//! `gabion lab`: traces and experiments. One file a command.

mod advise;
mod bound;
mod replay;
mod run;
mod summary;
mod synth;
mod testbed;
pub(crate) mod trace;
mod trace_stats;
mod update_traffic;

use crate::arguments::{LabCommand, Place};
use crate::failure::Failure;
use crate::output::{Format, print_json};
use gabion_lab::{LabError, clusters};
use serde::Serialize;

pub(crate) async fn run(command: LabCommand, place: &Place, format: Format) -> Result<(), Failure> {
    match command {
        LabCommand::UpdateTraffic(options) => update_traffic::run(options, format),
        LabCommand::Advise(options) => advise::run(options, place, format).await,
        LabCommand::Bound(options) => bound::run(options, format),
        LabCommand::TraceStats(options) => trace_stats::run(&options, format),
        LabCommand::Synth(options) => synth::run(&options, format),
        LabCommand::Replay(options) => replay::run(options, place, format).await,
        LabCommand::List => run::list(format),
        LabCommand::Run(options) => run::run(options, format).await,
        LabCommand::Summary(options) => summary::run(&options, format),
        LabCommand::Testbed(options) => testbed::run(options).await,
        LabCommand::InTestbed { job } => measured(clusters::updates_inside(&job).await),
        LabCommand::Bench { file } => measured(clusters::repairs_inside(&file).await),
        LabCommand::Encodings { file } => measured(clusters::encodings_inside(&file).await),
    }
}

/// Prints the measurements of an experiment's inner half for its outer half.
fn measured<T: Serialize>(result: Result<T, LabError>) -> Result<(), Failure> {
    print_json(&result.map_err(Failure::failed)?)
}
