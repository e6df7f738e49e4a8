//! TWE-3: write amplification against the fullness of the array, against the size of a stripe (`CodFS` thesis, section
//! 6.2.1: stripes of 8 MiB by default), and on arrays of other widths and SSDs of larger pages.

use super::array::{self, Setting};
use super::load::{self, Load};
use super::shapes::{self, Shapes};
use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Report, Session, Table};
use crate::plot::Plot;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "TWE-3",
    "write amplification against use, 60 to 95 %, stripe size, the array's width and the SSDs' pages",
    run,
);

const USED_PCT: [u32; 6] = [60, 70, 80, 85, 90, 95];
const CHUNK_BLOCKS: [u64; 4] = [1, 2, 4, 8];
/// The assumed behaviour of an SSD for parts of its pages.
const LARGE_PAGES: &str = "an SSD with pages above 4 KiB is modelled without a buffer for small writes: it reads a \
partly written page and programs all of it. 'at most x': the bound without collection, with buffers that keep the \
pages that are rewritten soonest";

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let loads = load::hot_loads(session)?;
    let steps = loads.len() * (2 * USED_PCT.len() + CHUNK_BLOCKS.len() + shapes::STEPS);
    session
        .progress
        .begin("fuller arrays and larger stripes", steps.max(1) as u64);
    let mut report = array::begun(
        session,
        &loads,
        "RAID-5 of 5 devices, pages of 4 KiB and 4 groups unless a table says otherwise; all except the first table at \
        80 % used",
    );
    let mut by_use = array::table("Use", &["volume", "used %", "array"]);
    let mut by_stripe = array::table("Stripe size", &["volume", "stripe KiB"]);
    let mut shapes = Shapes::new();
    let mut series = Vec::new();
    for load in &loads {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for used_pct in USED_PCT {
            let setting = Setting {
                used_pct,
                ..Setting::new()
            };
            for (name, points) in [("TWEEN", &mut ours), ("in place", &mut theirs)] {
                let outcome = if name == "TWEEN" {
                    array::tween(&setting, load)?
                } else {
                    array::in_place(&setting, load)?
                };
                let first = vec![
                    load.name.clone().into(),
                    outcome.used_pct.into(),
                    name.into(),
                ];
                array::row(&mut by_use, first, &outcome);
                points.push((outcome.used_pct, outcome.total_amplification()));
                session.progress.step();
            }
        }
        let below = ours
            .iter()
            .zip(&theirs)
            .filter(|(ours, theirs)| ours.1 < theirs.1)
            .count();
        report.findings.push(Finding::words(
            format!("{}: TWEEN programs fewer pages than in place", load.name),
            format!("at {below} of {} shares of use", USED_PCT.len()),
            "-",
        ));
        series.push((format!("TWEEN, {}", load.name), ours));
        series.push((format!("in place, {}", load.name), theirs));
        add_stripe_sizes(session, load, &mut by_stripe)?;
        shapes.add(session, load)?;
    }
    report.goals.extend(shapes.goals);
    report
        .tables
        .extend([by_use, by_stripe, shapes.widths, shapes.pages]);
    report.notes.push(LARGE_PAGES.to_owned());
    report.plots.push(plot(series));
    Ok(report)
}

/// Adds a row for each size of a stripe.
fn add_stripe_sizes(session: &Session<'_>, load: &Load, table: &mut Table) -> Result<(), LabError> {
    for chunk_blocks in CHUNK_BLOCKS {
        let setting = Setting {
            chunk_blocks,
            ..Setting::new()
        };
        let outcome = array::tween(&setting, load)?;
        let first = vec![load.name.clone().into(), (256 * chunk_blocks).into()];
        array::row(table, first, &outcome);
        session.progress.step();
    }
    Ok(())
}

fn plot(series: Vec<(String, Vec<(f64, f64)>)>) -> Plot {
    Plot::lines(
        "TWE-3",
        "Total write amplification against use",
        ["data pages used, per cent", "total write amplification"],
        series,
    )
}
