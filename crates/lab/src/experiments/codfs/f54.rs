//! COD-F54: writes a second after ten MSR Cambridge volumes, Figure 5.4 of the `CodFS` thesis.

use super::replay_run::{self, Replayed, Shown};
use super::{cache_run, update_run};
use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, mean};
use gabion_layout::UpdateScheme;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "COD-F54",
    "writes a second on ten MSR Cambridge volumes (Figure 5.4)",
    run,
);

const SHOWN: Shown = Shown {
    id: EXPERIMENT.id,
    titles: ["Writes a second"; 2],
    unit: "writes a second",
    rate: Replayed::per_s,
    over: UpdateScheme::Fo,
};

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let all = replay_run::run(session, false)?;
    let mut report = replay_run::begun(session, &all);
    for (place, at) in update_run::PLACES {
        report.tables.push(SHOWN.table(&all, place, at));
        let gains = SHOWN.gains(&all, at);
        let mean = mean(&gains);
        let what = format!("PLR over FO on average, {place}");
        let more_pct = 100.0 * (mean - 1.0);
        report
            .findings
            .push(Finding::beside(what, more_pct, " %", Paper::saving(63.1)));
        report.plots.push(SHOWN.plot(&all, place, at));
    }
    report.notes.push(
        "rates are those of stores, which get every write; the thesis's clients have an LRU cache of segments \
         that joins writes before they are sent, whose effect is measured on a cluster"
            .to_owned(),
    );
    cache_run::add(session, &mut report, &replay_run::cache_subjects(session)?)?;
    Ok(report)
}
