//! COD-T32: properties of the MSR Cambridge volumes, Table 3.2 of the `CodFS` thesis. Available whole traces are
//! counted. For the other volumes the calibrated workload is counted, which shows the accuracy of the generator but
//! proves nothing about the volumes.

use crate::error::LabError;
use crate::experiment::{Cell, Experiment, Finding, Goal, Report, Scale, Session, Table};
use crate::plot::Plot;
use crate::stats::Stats;
use crate::workload::{VOLUMES, Volume, Workload};
use std::convert::Infallible;
use std::num::NonZeroU64;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "COD-T32",
    "properties of the MSR Cambridge volumes (Table 3.2)",
    run,
);

/// Most difference of a workload's shares from the table's, in percentage points.
const SHARE_TOLERANCE: f64 = 0.5;
/// Most difference of its working set, in per cent.
const SET_TOLERANCE: f64 = 3.0;

/// One volume's row, counted.
struct Row {
    volume: &'static Volume,
    stats: Stats,
    /// One of how many of the volume's writes were made; none for a trace.
    one_in: Option<u64>,
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let writes_max = session.scale.pick(5_000, 100_000, u64::MAX);
    let count = session.scale.pick(12, VOLUMES.len(), VOLUMES.len());
    let rows = session.sweep("counting volumes", &VOLUMES[..count], |volume| {
        row(session, volume, writes_max)
    })?;
    Ok(report(session, &rows))
}

fn row(session: &Session<'_>, volume: &'static Volume, writes_max: u64) -> Result<Row, LabError> {
    if let Some(trace) = session.trace(&format!("msr/{}.csv", volume.name))? {
        return Ok(Row {
            volume,
            stats: Stats::of(trace)?,
            one_in: None,
        });
    }
    let mut one_in = volume.target.writes.div_ceil(writes_max).max(1);
    loop {
        let divisor = NonZeroU64::new(one_in).unwrap_or(NonZeroU64::MIN);
        match Workload::new(volume.target.part(divisor), session.seed) {
            Ok(workload) => {
                let requests = workload.requests().map(Ok::<_, Infallible>);
                let Ok(stats) = Stats::of(requests);
                let one_in = Some(one_in);
                return Ok(Row {
                    volume,
                    stats,
                    one_in,
                });
            }
            // So small a part has too few writes for its statistics.
            Err(LabError::Target(_)) if one_in > 1 => one_in /= 2,
            Err(error) => return Err(error),
        }
    }
}

impl Row {
    /// The working set of the whole volume, if the rest is like the part.
    fn working_set_gib(&self) -> f64 {
        self.stats.working_set_gib() * self.one_in.unwrap_or(1) as f64
    }

    fn is_near(&self) -> bool {
        let target = &self.volume.target;
        let covered = self.stats.updated_working_set_pct() - target.updated_working_set_pct;
        let updates = self.stats.update_writes_pct() - target.update_writes_pct;
        let set = 100.0 * (self.working_set_gib() / target.working_set_gib - 1.0);
        covered.abs() <= SHARE_TOLERANCE
            && updates.abs() <= SHARE_TOLERANCE
            && set.abs() <= SET_TOLERANCE
    }
}

fn report(session: &Session<'_>, rows: &[Row]) -> Report {
    let mut report = Report::default();
    report.setting.push(
        "requests in file order, sectors of 512 bytes, reads count as accesses, updated working set by whole extents; \
        see the rules in docs/lab.md"
            .to_owned(),
    );
    report.scaled.extend(scaled(session, rows));
    let (traces, made): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.one_in.is_none());
    for row in &traces {
        let (stats, target) = (&row.stats, &row.volume.target);
        let shares = |a: f64, b: f64| format!("{a:.2} %, {b:.2} %");
        let ours = shares(stats.updated_working_set_pct(), stats.update_writes_pct());
        let paper = shares(target.updated_working_set_pct, target.update_writes_pct);
        let is_same = ours == paper && stats.writes == target.writes;
        let what = format!(
            "{}: writes, updated working set, update writes",
            row.volume.name
        );
        let ours = format!("{}, {ours}", stats.writes);
        let paper = format!("{}, {paper}", target.writes);
        report
            .findings
            .push(Finding::claim(what, ours, paper, is_same));
    }
    let near = made.iter().filter(|row| row.is_near()).count();
    let what = format!(
        "calibrated workloads within {SHARE_TOLERANCE} points of both shares and {SET_TOLERANCE} % \
         of the working set"
    );
    let ours = format!("{near} of {}", made.len());
    let all = format!("all {} of them", made.len());
    report
        .goals
        .push(Goal::words(what, ours, all, near == made.len()));
    report.tables.push(table(rows));
    report.plots.push(plot(rows));
    report
}

fn scaled(session: &Session<'_>, rows: &[Row]) -> Vec<String> {
    let mut scaled = Vec::new();
    let made = rows.iter().filter(|row| row.one_in.is_some()).count();
    if made > 0 {
        scaled.push(format!(
            "{made} of {} volumes have no whole trace here; a calibrated workload replaces each, with the table's \
            share of its writes on proportionally less data",
            rows.len()
        ));
    }
    if session.scale == Scale::Quick {
        let left = VOLUMES.len() - rows.len();
        scaled.push(format!("without the {left} volumes with the most writes"));
    }
    scaled
}

fn table(rows: &[Row]) -> Table {
    let columns = [
        "volume",
        "counted",
        "writes",
        "WSS GiB",
        "thesis",
        "updated %",
        "thesis",
        "updates %",
        "thesis",
    ];
    let mut table = Table::new("Volumes", &columns);
    for row in rows {
        let (stats, target) = (&row.stats, &row.volume.target);
        let counted = match row.one_in {
            None => "trace".to_owned(),
            Some(1) => "workload".to_owned(),
            Some(one_in) => format!("workload, 1 in {one_in}"),
        };
        table.row([
            row.volume.name.into(),
            Cell::Text(counted),
            stats.writes.into(),
            row.working_set_gib().into(),
            target.working_set_gib.into(),
            stats.updated_working_set_pct().into(),
            target.updated_working_set_pct.into(),
            stats.update_writes_pct().into(),
            target.update_writes_pct.into(),
        ]);
    }
    table
}

fn plot(rows: &[Row]) -> Plot {
    const UPDATES: &str = "update writes";
    const UPDATED: &str = "updated working set";
    let values = |value: fn(&Row) -> f64| rows.iter().map(value).collect();
    let name = |row: &Row| row.volume.name.to_owned();
    let mut plot = Plot::bars(
        "COD-T32",
        "Updates in the MSR Cambridge volumes",
        ["volume, by number of writes", "per cent"],
        rows.iter().map(name).collect(),
        vec![
            (
                UPDATES.to_owned(),
                values(|row| row.stats.update_writes_pct()),
            ),
            (
                UPDATED.to_owned(),
                values(|row| row.stats.updated_working_set_pct()),
            ),
        ],
    )
    .with_stand_ins(
        rows.iter()
            .filter(|row| row.one_in.is_some())
            .map(|row| row.volume.name),
    );
    for row in rows {
        let target = &row.volume.target;
        plot.mark_bar(name(row), UPDATES, target.update_writes_pct);
        plot.mark_bar(name(row), UPDATED, target.updated_working_set_pct);
    }
    plot
}
