//! COD-F54: writes a second after ten MSR Cambridge volumes, Figure 5.4 of the `CodFS` thesis.

use super::replay_run::{self, Replayed, Source};
use super::{Experiment, Finding, Report, Session, Table, cache_run, update_run};
use crate::error::LabError;
use crate::plot::{Chart, Plot};
use gabion_layout::UpdateScheme;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "COD-F54",
    parts: "",
    title: "writes a second on ten MSR Cambridge volumes (Figure 5.4)",
    run,
};

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let all = replay_run::run(session, false)?;
    let mut report = Report {
        setting: replay_run::setting(),
        scaled: replay_run::scaled(session, &all),
        notes: update_run::notes(),
        ..Report::default()
    };
    for (place, at) in [("disk", 0), ("model", 1)] {
        report.tables.push(table(&all, place, at));
        let gains: Vec<f64> = all.iter().map(|(_, replayed)| gain(replayed, at)).collect();
        let mean = gains.iter().sum::<f64>() / gains.len().max(1) as f64;
        let what = format!("PLR over FO on average, {place}");
        let finding = Finding::number(what, 100.0 * (mean - 1.0), " %", "+63.1 %");
        report
            .findings
            .push(finding.reached((1.3..=2.2).contains(&mean)));
        report.plots.push(plot(&all, place, at));
    }
    report.notes.push(
        "rates are those of stores, which get every write; the thesis's clients have an LRU cache of segments \
         that joins writes before they are sent, whose effect is measured on a cluster"
            .to_owned(),
    );
    cache_run::add(session, &mut report, &replay_run::cache_subjects(session)?)?;
    Ok(report)
}

fn rate(replayed: &[Replayed], scheme: UpdateScheme, at: usize) -> f64 {
    let found = replayed.iter().find(|one| one.scheme == scheme);
    found.map_or(0.0, |one| one.per_s()[at])
}

fn gain(replayed: &[Replayed], at: usize) -> f64 {
    rate(replayed, UpdateScheme::Plr, at) / rate(replayed, UpdateScheme::Fo, at)
}

fn table(all: &[(Source, Vec<Replayed>)], place: &str, at: usize) -> Table {
    let columns = ["volume", "source", "fo", "fl", "pl", "plr", "PLR over FO"];
    let mut table = Table::new(format!("Writes a second, {place}"), &columns);
    for (source, replayed) in all {
        let rates = replayed.iter().map(|one| one.per_s()[at].into());
        let names = [source.volume.into(), source.name.clone().into()];
        let last = [gain(replayed, at).into()];
        table.row(names.into_iter().chain(rates).chain(last));
    }
    table
}

fn plot(all: &[(Source, Vec<Replayed>)], place: &str, at: usize) -> Plot {
    let series = |(number, (name, _)): (usize, (&str, UpdateScheme))| {
        let values = all.iter().map(|(_, replayed)| replayed[number].per_s()[at]);
        (name.to_owned(), values.collect())
    };
    Plot {
        name: format!("COD-F54-{place}"),
        title: format!("Writes a second, {place}"),
        x_label: "volume".to_owned(),
        y_label: "writes a second".to_owned(),
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
