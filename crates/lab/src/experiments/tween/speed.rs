//! TWE-4: throughput and slow writes, active and periodic collection by the model, and synchronous writes on real
//! files (`CodFS` thesis, section 6.2.2).

use super::array::{self, Setting, Way};
use super::files;
use super::load;
use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Report, Session, Table};
use crate::plot::Plot;
use gabion_flash::FlashOptions;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "TWE-4",
    "throughput and p99: active and periodic collection, and 4 KiB synchronous writes on files",
    run,
);

fn modes() -> [(&'static str, Way, Setting); 5] {
    let usual = Setting::new();
    let lazy = |periodic| Setting {
        options: FlashOptions {
            active_permille: 0,
            ..FlashOptions::default()
        },
        periodic: Some(periodic),
        ..usual
    };
    [
        ("in place", array::in_place, usual),
        ("active", array::tween, usual),
        ("periodic, every 50 writes", array::tween, lazy(50)),
        ("periodic, every 200 writes", array::tween, lazy(200)),
        (
            "only when a write finds no stripe",
            array::tween,
            lazy(u64::MAX),
        ),
    ]
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let loads = load::hot_loads(session)?;
    let modes = modes();
    let all = session.grid_on_all_processors(
        "modes of collection",
        &loads,
        &modes,
        |load, (_, way, setting)| way(setting, load),
    )?;
    let mut report = array::begun(session, &loads, "RAID-5 of 5 devices, 4 groups, 80 % used");
    let columns = [
        "volume", "mode", "MiB/s", "p50 us", "p99 us", "p99.9 us", "worst us", "stalls", "total WA",
    ];
    let mut table = Table::new("By the model", &columns);
    for (load, outcomes) in &all {
        for ((name, ..), outcome) in modes.iter().zip(outcomes) {
            table.row([
                load.name.clone().into(),
                (*name).into(),
                outcome.mib_per_s().into(),
                outcome.latency_us(500).into(),
                outcome.latency_us(990).into(),
                outcome.latency_us(999).into(),
                outcome.latency_us(1000).into(),
                outcome.counts.stall_count.into(),
                outcome.total_amplification().into(),
            ]);
        }
        let gain = outcomes[1].mib_per_s() / outcomes[0].mib_per_s();
        report.findings.push(Finding::number(
            format!("{}: throughput over in place, by the model", load.name),
            gain,
            "x",
            "-",
        ));
    }
    report.tables.push(table);
    report.notes.push(
        "in the active mode another thread flushes and collects; the model does this work between writes and counts it \
        in the throughput, not in the time of a write"
            .to_owned(),
    );
    let files = files::run(session)?;
    report.goals.extend(files.goals());
    report.tables.push(files.table());
    report.notes.extend(files.notes());
    report.plots.push(Plot::bars(
        "TWE-4",
        "Synchronous writes of 4 KiB on files",
        ["writers", "writes a second"],
        files.categories(),
        files.series(),
    ));
    Ok(report)
}
