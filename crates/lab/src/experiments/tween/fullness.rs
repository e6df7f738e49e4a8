//! TWE-3: write amplification against the fullness of the array, against the size of a stripe (`CodFS` thesis, section
//! 6.2.1: stripes of 8 MiB by default), and on arrays of other widths and SSDs of larger pages.

use super::array::{self, Outcome, Setting};
use super::load::{self, Load};
use super::shapes;
use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Report, Session, Table};
use crate::plot::Plot;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "TWE-3",
    "write amplification against use, 60 to 95 %, stripe size, the array's width and the SSDs' pages",
    run,
);

const USED_PCT: [u32; 6] = [60, 70, 80, 85, 90, 95];
/// The place of the usual setting in [`USED_PCT`]. It is also a stripe size and a shape, and runs once.
const USUAL_AT: usize = 2;
const CHUNK_BLOCKS: [u64; 4] = [1, 2, 4, 8];
/// The assumed behaviour of an SSD for parts of its pages.
const LARGE_PAGES: &str = "an SSD with pages above 4 KiB is modelled without a buffer for small writes: it reads a \
partly written page and programs all of it. 'at most x': the bound without collection, with buffers that keep the \
pages that are rewritten soonest";

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let loads = load::shorter_hot_loads(session)?;
    let all =
        session.grid_on_all_processors("fuller arrays", &loads, &USED_PCT, |load, &used_pct| {
            let setting = Setting {
                used_pct,
                ..Setting::new()
            };
            array::both(&setting, load)
        })?;
    let mut report = array::begun(
        session,
        &loads,
        "RAID-5 of 5 devices, pages of 4 KiB and 4 groups unless a table says otherwise; all except the first table at \
        80 % used",
    );
    let mut by_use = array::table("Use", &["volume", "used %", "array"]);
    let mut series = Vec::new();
    for (load, pairs) in &all {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for [tween, in_place] in pairs {
            for (name, outcome, points) in [
                ("TWEEN", tween, &mut ours),
                ("in place", in_place, &mut theirs),
            ] {
                let first = [outcome.used_pct.into(), name.into()];
                array::row(&mut by_use, (load, first), outcome);
                points.push((outcome.used_pct, outcome.total_amplification()));
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
    }
    let usual: Vec<_> = all
        .into_iter()
        .map(|(_, mut pairs)| pairs.swap_remove(USUAL_AT))
        .collect();
    let by_stripe = by_stripe(session, &loads, &usual)?;
    let shapes = shapes::run(session, &loads, &usual)?;
    report.goals.extend(shapes.goals);
    report
        .tables
        .extend([by_use, by_stripe, shapes.widths, shapes.pages]);
    report.notes.push(LARGE_PAGES.to_owned());
    report.plots.push(plot(series));
    Ok(report)
}

/// The table by size of a stripe. `usual` has each load's outcomes at the usual size, the first.
fn by_stripe(
    session: &Session<'_>,
    loads: &[Load],
    usual: &[[Outcome; 2]],
) -> Result<Table, LabError> {
    let mut table = array::table("Stripe size", &["volume", "stripe KiB"]);
    let larger = &CHUNK_BLOCKS[1..];
    let all =
        session.grid_on_all_processors("larger stripes", loads, larger, |load, &blocks| {
            let setting = Setting {
                chunk_blocks: blocks,
                ..Setting::new()
            };
            array::tween(&setting, load)
        })?;
    for ((load, outcomes), [usual, _]) in all.iter().zip(usual) {
        let outcomes = std::iter::once(usual).chain(outcomes);
        for (chunk_blocks, outcome) in CHUNK_BLOCKS.into_iter().zip(outcomes) {
            let first = [(256 * chunk_blocks).into()];
            array::row(&mut table, (load, first), outcome);
        }
    }
    Ok(table)
}

fn plot(series: Vec<(String, Vec<(f64, f64)>)>) -> Plot {
    Plot::lines(
        "TWE-3",
        "Total write amplification against use",
        ["data pages used, per cent", "total write amplification"],
        series,
    )
}
