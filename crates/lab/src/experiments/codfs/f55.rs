//! COD-F55: recovery of two nodes after ten MSR Cambridge volumes were replayed, Figure 5.5 of the
//! `CodFS` thesis.

use super::replay_run::{self, Replayed, Shown};
use super::update_run::{self, Rates};
use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, least_and_most};
use gabion_layout::UpdateScheme;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "COD-F55",
    "recovery after ten MSR Cambridge volumes (Figure 5.5)",
    run,
);

const SHOWN: Shown = Shown {
    id: EXPERIMENT.id,
    titles: ["Recovery in MB/s", "Recovery of two nodes"],
    y_label: "recovery, over FL's",
    rate: rates,
    over: UpdateScheme::Fl,
};

const CAUSE: &str = "only a small part of each volume's writes is replayed, so chunks have few logged records; the \
factor grows with the number of records, as in COD-F52, which overwrites every byte";

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let all = replay_run::run(session, true)?;
    let mut report = replay_run::begun(session, &all);
    update_run::choose_disk(&mut report);
    report.setting.push(
        "then two nodes fail, and their chunks are rebuilt on other nodes, with cold caches"
            .to_owned(),
    );
    for (place, at) in update_run::PLACES {
        report.tables.push(SHOWN.table(&all, place, at));
        let [least, most] = least_and_most(&SHOWN.gains(&all, at));
        let findings = [
            Finding::beside(
                format!("PLR over FL at most, {place}"),
                most,
                "x",
                Paper::ratio(10.0).printed("up to 10x"),
            ),
            Finding::beside(
                format!("PLR over FL at least, {place}"),
                100.0 * (least - 1.0),
                " %",
                Paper::saving(11.7).printed("+11.7 %, on src2_2"),
            ),
        ];
        report
            .findings
            .extend(findings.map(|finding| update_run::explained(finding, place, CAUSE)));
        let mut plot = SHOWN.plot(&all, place, at);
        plot.mark_bar("src2_2", "plr", 1.117);
        report.plots.push(plot);
    }
    Ok(report)
}

fn rates(one: &Replayed) -> Rates {
    one.recover.map_or([0.0; 3], |phase| phase.mb_per_s())
}
