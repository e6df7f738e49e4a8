//! COD-F54: writes a second after ten MSR Cambridge volumes, Figure 5.4 of the `CodFS` thesis.

use super::cache_run;
use super::replay_run::{self, Replayed, Shown};
use super::update_run::{self, UNSYNCED};
use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, mean};
use gabion_layout::UpdateScheme;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "COD-F54",
    "writes a second on ten MSR Cambridge volumes (Figure 5.4)",
    run,
);

/// By how many per cent PLR is faster than FO in the thesis.
const PAPER_PCT: f64 = 63.1;

const SHOWN: Shown = Shown {
    id: EXPERIMENT.id,
    titles: ["Writes a second"; 2],
    y_label: "writes a second, over FO's",
    rate: Replayed::per_s,
    over: UpdateScheme::Fo,
};

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let all = replay_run::run(session, false)?;
    let mut report = replay_run::begun(session, &all);
    update_run::choose_disk(&mut report);
    for (place, at) in update_run::PLACES {
        report.tables.push(SHOWN.table(&all, place, at));
        let gains = SHOWN.gains(&all, at);
        let mean = mean(&gains);
        let what = format!("PLR over FO on average, {place}");
        let more_pct = 100.0 * (mean - 1.0);
        let finding = Finding::beside(what, more_pct, " %", Paper::saving(PAPER_PCT));
        let cause =
            "see the table of causes: updates are durable here, and full overwrite uses a journal";
        report
            .findings
            .push(update_run::explained(finding, place, cause));
        let mut plot = SHOWN.plot(&all, place, at);
        plot.mark_bar(replay_run::MEAN, "plr", 1.0 + PAPER_PCT / 100.0);
        report.plots.push(plot);
    }
    let [synced, unsynced] = [1, UNSYNCED].map(|at| 100.0 * (mean(&SHOWN.gains(&all, at)) - 1.0));
    report.tables.push(update_run::causes([(
        "PLR over FO on average, %".to_owned(),
        [synced, unsynced],
        format!("{PAPER_PCT}"),
    )]));
    report.notes.push(
        "rates are rates of stores, which receive every write. In the thesis, clients have an LRU cache of segments \
        that joins writes before they are sent; its effect is measured on a cluster"
            .to_owned(),
    );
    cache_run::add(session, &mut report, &replay_run::cache_subjects(session)?)?;
    Ok(report)
}
