//! TWE-2: the benefit of hotness groups by their number, and of the choices in the definition of hotness (`CodFS`
//! thesis, section 6.2.1: too few and too many groups hurt; it gives no numbers).

use super::array::{self, Setting};
use super::load::{self, Load};
use crate::error::LabError;
use crate::experiment::{Experiment, Goal, Report, Session};
use crate::plot::Plot;
use gabion_flash::{FlashOptions, HotnessOptions, HotnessScale, Victims};

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "TWE-2",
    "write amplification of the log against hotness groups, scales, units and victims",
    run,
);

const GROUPS: [usize; 5] = [1, 2, 4, 8, 16];

type Variant = (&'static str, Setting);

/// Other ways to tell hot from cold.
fn hotness_variants() -> Vec<Variant> {
    let usual = Setting::new();
    let hot = |hotness| Setting {
        options: FlashOptions {
            hotness,
            ..FlashOptions::default()
        },
        ..usual
    };
    let hotness = HotnessOptions::default();
    vec![
        (
            "1 group with a stripe 4 times as large",
            Setting {
                spare_buffers: 1,
                chunk_blocks: 4,
                ..Setting::with_groups(1)
            },
        ),
        (
            "4 groups, by difference as in the thesis",
            hot(HotnessOptions {
                scale: HotnessScale::Linear,
                ..hotness
            }),
        ),
        (
            "4 groups, units of 256 pages",
            hot(HotnessOptions {
                unit_pages: 256,
                ..hotness
            }),
        ),
        (
            "4 groups, units of 16 pages",
            hot(HotnessOptions {
                unit_pages: 16,
                ..hotness
            }),
        ),
    ]
}

/// Other victims of collection, and other numbers of buffers.
fn other_variants() -> Vec<Variant> {
    let usual = Setting::new();
    let by = |victims| FlashOptions {
        victims,
        ..FlashOptions::default()
    };
    vec![
        (
            "4 groups, greedy",
            Setting {
                options: by(Victims::Greedy),
                ..usual
            },
        ),
        (
            "4 groups, cost-benefit",
            Setting {
                options: by(Victims::CostBenefit),
                ..usual
            },
        ),
        (
            "1 group, cost-benefit",
            Setting {
                options: by(Victims::CostBenefit),
                ..Setting::with_groups(1)
            },
        ),
        (
            "4 groups, no full buffer kept back",
            Setting {
                spare_buffers: 1,
                ..usual
            },
        ),
        (
            "4 groups, 12 buffers",
            Setting {
                spare_buffers: 8,
                ..usual
            },
        ),
    ]
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let loads = load::shorter_hot_loads(session)?;
    let variants = [hotness_variants(), other_variants()].concat();
    let by_groups = session.grid_on_all_processors(
        "groups on modelled arrays",
        &loads,
        &GROUPS,
        |load, &group_count| array::tween(&Setting::with_groups(group_count), load),
    )?;
    let by_variant = session.grid_on_all_processors(
        "other choices",
        &loads,
        &variants,
        |load, (_, setting)| array::tween(setting, load),
    )?;
    let mut report = array::begun(session, &loads, "RAID-5 of 5 devices, 80 % used");
    let mut table = array::table("Groups", &["volume", "groups", "moved %"]);
    let mut others = array::table("Other choices", &["volume", "choice", "moved %"]);
    let mut series = Vec::new();
    for (load, outcomes) in &by_groups {
        let mut found = Vec::new();
        for (group_count, outcome) in GROUPS.into_iter().zip(outcomes) {
            let moved = outcome.moved_pct().into();
            let first = [(group_count as u64).into(), moved];
            array::row(&mut table, (load, first), outcome);
            found.push((group_count as f64, outcome.total_amplification()));
        }
        report.goals.push(goal(load, found[0].1, found[2].1));
        series.push((load.name.clone(), found));
    }
    for (load, outcomes) in &by_variant {
        for ((name, _), outcome) in variants.iter().zip(outcomes) {
            let moved = outcome.moved_pct().into();
            array::row(&mut others, (load, [(*name).into(), moved]), outcome);
        }
    }
    report.tables.extend([table, others]);
    report.notes.push(
        "each group has an open buffer, and full buffers stay in memory up to eight buffers in total. So 1 to 4 groups \
        have the same memory, 8 groups one buffer more and 16 groups twice as much; the row of one group with a stripe \
        4 times as large has two buffers of four times the size"
            .to_owned(),
    );
    report.plots.push(Plot::lines(
        "TWE-2",
        "Total write amplification against hotness groups",
        ["hotness groups", "total write amplification"],
        series,
    ));
    Ok(report)
}

fn goal(load: &Load, one: f64, four: f64) -> Goal {
    Goal::words(
        format!(
            "{}: total write amplification with 1 and 4 groups",
            load.name
        ),
        format!("{one:.2}, {four:.2}"),
        "4 groups below 1",
        four < one,
    )
    .because(
        "four open buffers, half full on average, leave less of the same memory for rewritten pages, and here that \
        costs more than groups save in collection",
    )
}
