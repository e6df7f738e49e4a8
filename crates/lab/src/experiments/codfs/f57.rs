//! COD-F57: the number of writes that wait for a merge over the 41 days of a file server, Figure 5.7 of the
//! `CodFS` thesis.

use super::reserve_run::{self, Outcome, Period};
use crate::error::LabError;
use crate::experiment::tolerance::STALLED;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table};
use crate::plot::Plot;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "COD-F57",
    "merges per 1,000 writes by shrink strategy, 41 days (Figure 5.7)",
    run,
);

/// The thesis: under 1 % of writes stalled, whatever the strategy.
const MERGES_MAX: f64 = 10.0;

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let outcomes = reserve_run::run(session)?;
    let columns = [
        "strategy",
        "merges",
        "worst day",
        "in place",
        "overhead at the end",
    ];
    let mut table = Table::new(
        "Writes per 1,000 that waited for a merge, or were in place",
        &columns,
    );
    let mut report = reserve_run::begun(session);
    for outcome in &outcomes {
        let worst = days(outcome).fold(0.0, f64::max);
        let (merges, in_place) = (outcome.merges_per_1000(), outcome.in_place_per_1000());
        let cells = [merges, worst, in_place, outcome.overhead()];
        table.row(
            [outcome.name.into()]
                .into_iter()
                .chain(cells.map(Into::into)),
        );
        let what = format!("{}: merges per 1,000 writes", outcome.name);
        let paper = Paper::at_most(MERGES_MAX, &STALLED).printed("below 10, on average");
        let finding = Finding::beside(what, merges, "", paper);
        // The thesis has five strategies.
        report.findings.push(if outcome.is_ours {
            finding.reading("a strategy that the thesis does not have")
        } else {
            finding
        });
    }
    let merges = |name: &str| {
        outcomes
            .iter()
            .find(|o| o.name == name)
            .map(Outcome::merges_per_1000)
    };
    if let (Some(least), Some(most)) = (merges("16 MiB"), merges("2 MiB")) {
        let ours = format!("{least:.2} and {most:.2}");
        let what = "fixed reserves of 16 and of 2 MiB";
        let paper = "the fewest and by far the most merges";
        report
            .findings
            .push(Finding::claim(what, ours, paper, 2.0 * least < most));
    }
    report.tables.push(table);
    report.plots.push(plot(&outcomes));
    report.notes.push(
        "if shrinking leaves no reserve, the thesis updates parity in place and counts no merge; this column counts \
        these writes too, because they also wait"
            .to_owned(),
    );
    Ok(report)
}

/// Merges per 1,000 writes of each day.
fn days(outcome: &Outcome) -> impl Iterator<Item = f64> {
    outcome.periods.chunks(2).map(|halves| {
        let sum = |of: fn(&Period) -> u64| halves.iter().map(of).sum::<u64>();
        1000.0 * sum(|half| half.merges) as f64 / sum(|half| half.writes).max(1) as f64
    })
}

fn plot(outcomes: &[Outcome]) -> Plot {
    let line = |outcome: &Outcome| {
        let points = days(outcome)
            .enumerate()
            .map(|(at, merges)| (at as f64 + 1.0, merges));
        (outcome.name.to_owned(), points.collect())
    };
    let mut plot = Plot::lines(
        "COD-F57",
        "Writes that wait for a merge",
        ["day", "merges per 1,000 writes"],
        outcomes.iter().map(line).collect(),
    );
    let day_count = outcomes.first().map_or(0, |outcome| days(outcome).count());
    plot.mark_point(day_count as f64, MERGES_MAX);
    plot.notes
        .push("the paper's: below 10 on average over all days".to_owned());
    plot
}
