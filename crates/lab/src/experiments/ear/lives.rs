//! EAR-LIVES: lifetime of stripes by layout, flat or in fewer racks, within their rack limit or
//! not. The paper argues with rack failures survived; this shows their effect (its section II-B).

use crate::error::LabError;
use crate::experiment::{Experiment, Goal, Report, Session, Table};
use crate::mttdl::StripeLife;
use crate::plot::Plot;
use crate::reliability::life_hours;
use gabion_layout::RackId;
use gabion_planner::repair::fewest_crossing_chunks;
use std::collections::BTreeMap;

pub(crate) const EXPERIMENT: Experiment =
    Experiment::new("EAR-LIVES", "mean time to data loss by layout", run).once();

const YEAR_HOURS: f64 = 365.0 * 24.0;
/// A node's life, and the probability that a rack fails within a year, as in CAU's figure 5.
const NODE_LIFE_HOURS: f64 = 10.0 * YEAR_HOURS;
const RACK_FAILURES_A_YEAR: f64 = 0.0278;
/// Data of a node, and what repairs of it may use across racks: 1 Gb/s.
const NODE_BYTES: f64 = 4e12;
const REPAIR_BYTES_PER_S: f64 = 125e6;

/// A stripe of `k` data chunks, and chunks in each of its racks.
struct Layout {
    name: &'static str,
    data_count: usize,
    racks: Vec<usize>,
}

fn layouts() -> Vec<Layout> {
    let layout = |name, data_count, racks: &[usize]| Layout {
        name,
        data_count,
        racks: racks.to_vec(),
    };
    vec![
        layout("3 replicas in 2 racks", 1, &[2, 1]),
        layout("3 replicas in 3 racks", 1, &[1; 3]),
        layout("(14,10) flat: 14 racks, c = 1", 10, &[1; 14]),
        layout("(14,10) in 7 racks, c = 2", 10, &[2; 7]),
        layout("(14,10) in 4 racks, c = 4", 10, &[4, 4, 4, 2]),
        layout(
            "(14,10) of RR, two racks over the limit",
            10,
            &[&[2, 2][..], &[1; 10]].concat(),
        ),
        layout(
            "(14,10) of RR, one rack with three",
            10,
            &[&[3][..], &[1; 11]].concat(),
        ),
    ]
}

impl Layout {
    /// Mean time to rebuild lost chunks: the chunks that cross racks for it, with sums made in each
    /// rack, over the repair bandwidth.
    fn repair_hours(&self, rack: usize, lost_count: usize) -> f64 {
        let left = |(at, &count): (usize, &usize)| {
            let lost = if at == rack { lost_count } else { 0 };
            (RackId(at as u32), count - lost)
        };
        let available: BTreeMap<RackId, usize> = self.racks.iter().enumerate().map(left).collect();
        let home = RackId(rack as u32);
        let crossing = fewest_crossing_chunks(&available, home, self.data_count, lost_count);
        // Transfers within the rack take time too.
        let chunks = crossing.unwrap_or(0).max(1);
        chunks as f64 * NODE_BYTES / REPAIR_BYTES_PER_S / 3600.0
    }

    fn mean_repair_hours(&self, is_rack: bool) -> f64 {
        let hours = |(rack, &count): (usize, &usize)| {
            let lost_count = if is_rack { count } else { 1 };
            (count as f64, self.repair_hours(rack, lost_count))
        };
        let all: Vec<(f64, f64)> = self.racks.iter().enumerate().map(hours).collect();
        // Racks fail alike; nodes fail more often where there are more of them.
        let weight = |count: f64| if is_rack { 1.0 } else { count };
        let total: f64 = all.iter().map(|&(count, _)| weight(count)).sum();
        all.iter()
            .map(|&(count, hours)| weight(count) * hours)
            .sum::<f64>()
            / total
    }

    fn life(&self) -> StripeLife {
        let chunks: usize = self.racks.iter().sum();
        StripeLife {
            survived: chunks - self.data_count,
            racks: self.racks.clone(),
            node_life_hours: NODE_LIFE_HOURS,
            rack_life_hours: life_hours(RACK_FAILURES_A_YEAR),
            node_repair_hours: self.mean_repair_hours(false),
            rack_repair_hours: self.mean_repair_hours(true),
        }
    }
}

/// Flat stripes beside those of random replication that are over the limit.
fn goal(years: &[f64]) -> Goal {
    Goal::words(
        "flat (14,10) lives longer than a stripe that random replication left over the limit",
        format!(
            "{:.1} and {:.1} times",
            years[2] / years[5],
            years[2] / years[6]
        ),
        "above 1, which the paper argues but does not measure",
        years[2] > years[5] && years[2] > years[6],
    )
}

fn plot(layouts: &[Layout], years: &[f64]) -> Plot {
    let logarithms = years.iter().map(|years| years.log10().max(0.0));
    Plot::bars(
        "EAR-LIVES",
        "Mean time to data loss by layout",
        ["layout, as in the table", "years, logarithm to base 10"],
        (1..=layouts.len())
            .map(|number| number.to_string())
            .collect(),
        vec![("MTTDL".to_owned(), logarithms.collect())],
    )
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let layouts = layouts();
    let columns = [
        "layout",
        "racks survived",
        "node repair, h",
        "rack repair, h",
        "MTTDL, years",
        "without rack failures",
    ];
    let mut table = Table::new("Mean time to data loss of a stripe", &columns);
    let years = session.sweep("solving chains", &layouts, |layout| {
        let life = layout.life();
        let steady = StripeLife {
            rack_life_hours: f64::INFINITY,
            ..life.clone()
        };
        let [all, nodes] = [&life, &steady].map(|life| life.mttdl_hours() / YEAR_HOURS);
        let largest = layout.racks.iter().copied().max().unwrap_or(1);
        table.row([
            layout.name.into(),
            ((life.survived / largest) as u64).into(),
            life.node_repair_hours.into(),
            life.rack_repair_hours.into(),
            format!("{all:.2e}").into(),
            format!("{nodes:.2e}").into(),
        ]);
        Ok(all)
    })?;
    Ok(Report {
        setting: vec![
            "nodes live 10 years; racks fail with a probability of 0.0278 a year, and their nodes fail with them"
                .to_owned(),
            "a node's 4 TB are repaired with 1 Gb/s across racks and partial sums in each rack; all failed nodes are \
            repaired at the same time"
                .to_owned(),
        ],
        scaled: vec!["the paper has no such table; lifetimes as in figure 5 of CAU".to_owned()],
        goals: vec![goal(&years)],
        tables: vec![table],
        notes: vec![
            "layouts on fewer racks survive fewer rack failures but repair sooner; the frequency of rack failures \
            decides which effect is larger"
                .to_owned(),
        ],
        plots: vec![plot(&layouts, &years)],
        ..Report::default()
    })
}
