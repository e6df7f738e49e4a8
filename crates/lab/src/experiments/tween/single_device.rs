//! TWE-5: TWEEN on a single SSD, which section 7.2.3 of the `CodFS` thesis leaves for later.

use super::array::{self, Outcome, Setting, Way};
use super::load::{self, Load};
use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Report, Session};
use crate::plot::Plot;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "TWE-5",
    "one SSD: through TWEEN without parity, and directly",
    run,
);

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let loads = load::loads(session)?;
    let setting = Setting {
        data_devices: 1,
        parity_devices: 0,
        chunk_blocks: 4,
        ..Setting::new()
    };
    let ways = [array::straight as Way, array::tween];
    let what = "volumes on one modelled SSD";
    let all =
        session.grid_on_all_processors(what, &loads, &ways, |load, way| way(&setting, load))?;
    let mut report = array::begun(
        session,
        &loads,
        "one device without parity, segments of 4 erase blocks, 4 groups, 80 % used",
    );
    let mut table = array::table("Volumes", &["volume", "updates %", "writes"]);
    for (load, outcomes) in &all {
        let [straight, tween] = outcomes.as_slice() else {
            continue;
        };
        for (name, outcome) in [("straight", straight), ("TWEEN", tween)] {
            let first = [load.update_pct.into(), name.into()];
            array::row(&mut table, (load, first), outcome);
        }
        let gain = straight.erases() as f64 / tween.erases().max(1) as f64;
        report.findings.push(Finding::number(
            format!("{}: lifetime on one SSD, by erases", load.name),
            gain,
            "x",
            "-",
        ));
    }
    report.tables.push(table);
    report.notes.push(
        "without TWEEN, the SSD collects with its own spare blocks and with the space that the volume leaves free. \
        With TWEEN the log uses the free space and the SSD's own spare blocks are idle; on a single SSD this costs \
        more, because there are no parity updates to save"
            .to_owned(),
    );
    let total = |at: usize| {
        let of_load =
            move |(_, outcomes): &(&Load, Vec<Outcome>)| outcomes[at].total_amplification();
        all.iter().map(of_load).collect()
    };
    report.plots.push(Plot::bars(
        "TWE-5",
        "Pages programmed for each page written, on one SSD at 80 % use",
        ["volume", "total write amplification"],
        loads.iter().map(|load| load.name.clone()).collect(),
        vec![
            ("straight".to_owned(), total(0)),
            ("TWEEN".to_owned(), total(1)),
        ],
    ));
    Ok(report)
}
