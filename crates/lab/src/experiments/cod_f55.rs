//! COD-F55: recovery of two nodes after ten MSR Cambridge volumes were replayed, Figure 5.5 of the
//! `CodFS` thesis.

use super::replay_run::{self, Replayed, Source};
use super::{Experiment, Finding, Report, Session, Table, update_run};
use crate::error::LabError;
use crate::plot::{Chart, Plot};
use gabion_layout::UpdateScheme;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "COD-F55",
    parts: "",
    title: "recovery after ten MSR Cambridge volumes (Figure 5.5)",
    run,
};

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let all = replay_run::run(session, true)?;
    let mut report = Report {
        setting: replay_run::setting(),
        scaled: replay_run::scaled(session, &all),
        notes: update_run::notes(),
        ..Report::default()
    };
    report.setting.push(
        "then two nodes fail, and what they held is rebuilt on others, with cold caches".to_owned(),
    );
    for (place, at) in [("disk", 0), ("model", 1)] {
        report.tables.push(table(&all, place, at));
        let gains: Vec<f64> = all.iter().map(|(_, replayed)| gain(replayed, at)).collect();
        let why = if place == "disk" {
            update_run::DISK_DIFFERS
        } else {
            "a small part of each volume's writes is replayed, so chunks have few logged records; the \
             factor grows with them, as COD-F52 shows, where every byte is overwritten"
        };
        let most = gains.iter().copied().fold(0.0, f64::max);
        let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
        let finding = Finding::number(
            format!("PLR over FL at most, {place}"),
            most,
            "x",
            "up to 10x",
        );
        report
            .findings
            .push(finding.reached(most > 2.0).because(why));
        let finding = Finding::number(
            format!("PLR over FL at least, {place}"),
            100.0 * (least - 1.0),
            " %",
            "+11.7 %, on src2_2",
        );
        report
            .findings
            .push(finding.reached(least > 1.0).because(why));
        report.plots.push(plot(&all, place, at));
    }
    Ok(report)
}

fn rate(one: &Replayed, at: usize) -> f64 {
    one.recover.map_or(0.0, |phase| phase.mb_per_s()[at])
}

fn gain(replayed: &[Replayed], at: usize) -> f64 {
    let of = |scheme| {
        let found = replayed.iter().find(|one| one.scheme == scheme);
        found.map_or(0.0, |one| rate(one, at))
    };
    of(UpdateScheme::Plr) / of(UpdateScheme::Fl)
}

fn table(all: &[(Source, Vec<Replayed>)], place: &str, at: usize) -> Table {
    let columns = ["volume", "source", "fo", "fl", "pl", "plr", "PLR over FL"];
    let mut table = Table::new(format!("Recovery in MB/s, {place}"), &columns);
    for (source, replayed) in all {
        let rates = replayed.iter().map(|one| rate(one, at).into());
        let names = [source.volume.into(), source.name.clone().into()];
        let last = [gain(replayed, at).into()];
        table.row(names.into_iter().chain(rates).chain(last));
    }
    table
}

fn plot(all: &[(Source, Vec<Replayed>)], place: &str, at: usize) -> Plot {
    let series = |(number, (name, _)): (usize, (&str, UpdateScheme))| {
        let values = all.iter().map(|(_, replayed)| rate(&replayed[number], at));
        (name.to_owned(), values.collect())
    };
    Plot {
        name: format!("COD-F55-{place}"),
        title: format!("Recovery of two nodes, {place}"),
        x_label: "volume".to_owned(),
        y_label: "MB/s".to_owned(),
        chart: Chart::Bars {
            categories: all
                .iter()
                .map(|(source, _)| source.volume.to_owned())
                .collect(),
            series: UpdateScheme::NAMES
                .into_iter()
                .enumerate()
                .map(series)
                .collect(),
        },
    }
}
