//! `gabion lab`: traces and experiments. One file a command.

mod advise;
mod bench;
mod bound;
mod clusters;
mod encodings;
mod in_testbed;
mod replay;
mod run;
mod synth;
mod testbed;
mod trace_stats;
mod update_traffic;

use crate::arguments::{LabCommand, Place};
use crate::failure::Failure;
use crate::output::Format;

pub(crate) async fn run(command: LabCommand, place: &Place, format: Format) -> Result<(), Failure> {
    match command {
        LabCommand::UpdateTraffic(options) => update_traffic::run(options, format),
        LabCommand::Advise(options) => advise::run(options, format),
        LabCommand::Bound(options) => bound::run(options, format),
        LabCommand::TraceStats(options) => trace_stats::run(&options, format),
        LabCommand::Synth(options) => synth::run(&options, format),
        LabCommand::Replay(options) => replay::run(options, place, format).await,
        LabCommand::List => run::list(format),
        LabCommand::Run(options) => run::run(options, format).await,
        LabCommand::Testbed(options) => testbed::run(options).await,
        LabCommand::InTestbed { job } => in_testbed::run(&job).await,
        LabCommand::Bench { file } => bench::run(&file).await,
        LabCommand::Encodings { file } => encodings::run(&file).await,
    }
}
