//! TWE-1: TWEEN against arrays that are updated in place and against a log without groups, by volume
//! (`CodFS` thesis, sections 6.1 and 6.2; it gives no figures).

use super::array::{self, Outcome, Setting, Way};
use super::load::{self, Load};
use crate::error::LabError;
use crate::experiment::{Experiment, Goal, Report, Session, Table};
use crate::plot::Plot;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "TWE-1",
    "partial writes, write amplification and erases by volume: TWEEN, a plain log, in place",
    run,
);

/// Contenders of every volume, in this order.
fn contenders() -> [(&'static str, Way, Setting); 5] {
    let raid5 = Setting::new();
    [
        ("in place, RAID-5", array::in_place, raid5),
        ("in place, RAID-6", array::in_place, raid6()),
        ("one group, RAID-5", array::tween, Setting::with_groups(1)),
        ("TWEEN, RAID-5", array::tween, raid5),
        ("TWEEN, RAID-6", array::tween, raid6()),
    ]
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let loads = load::loads(session)?;
    let what = "volumes on modelled arrays";
    let all = session.grid_on_all_processors(
        what,
        &loads,
        &contenders(),
        |load, (_, way, setting)| way(setting, load),
    )?;
    Ok(report(session, &loads, &all))
}

fn raid6() -> Setting {
    Setting {
        parity_devices: 2,
        ..Setting::new()
    }
}

fn report(session: &Session<'_>, loads: &[Load], all: &[(&Load, Vec<Outcome>)]) -> Report {
    let mut report = array::begun(
        session,
        loads,
        "4 data devices and 1 or 2 for parity, 80 % used, 4 groups; in place: strips of 64 KiB, \
         read-modify-write or reconstruct-write, whichever reads less",
    );
    let mut table = array::table("Volumes", &["volume", "updates %", "array"]);
    for (load, outcomes) in all {
        for ((name, ..), outcome) in contenders().into_iter().zip(outcomes) {
            let first = [load.update_pct.into(), name.into()];
            array::row(&mut table, (load, first), outcome);
        }
    }
    report.tables.push(table);
    let mut lives = Table::new(
        "Lifetime over in place, by erases",
        &["volume", "RAID-5", "at most", "RAID-6", "at most"],
    );
    for (load, outcomes) in all {
        let [in_place5, in_place6, _, tween5, tween6] = outcomes.as_slice() else {
            continue;
        };
        lives.row([
            load.name.clone().into(),
            tween5.lifetime_over(in_place5).into(),
            array::lifetime_bound(&Setting::new(), load, in_place5, tween5).into(),
            tween6.lifetime_over(in_place6).into(),
            array::lifetime_bound(&raid6(), load, in_place6, tween6).into(),
        ]);
    }
    report.tables.push(lives);
    report.notes.push(
        "at most: the bound without collection, with buffers of this size that keep the pages that are rewritten \
        soonest, which requires knowledge of the future"
            .to_owned(),
    );
    judge(&mut report, all);
    report.plots.push(plot(all));
    report
}

/// Judges the design's claims of all volumes, and our goals for those with hot data.
fn judge(report: &mut Report, all: &[(&Load, Vec<Outcome>)]) {
    let logs = || all.iter().flat_map(|(_, outcomes)| &outcomes[2..]);
    let partial: u64 = logs()
        .map(|outcome| outcome.partial_stripe_writes + outcome.partial_block_writes())
        .sum();
    let what = "TWEEN: partial-stripe and partial-block writes";
    report
        .goals
        .push(Goal::at_most(what, partial as f64, "", 0.0));
    let ssd = logs().map(Outcome::ssd_amplification).fold(0.0, f64::max);
    let what = "TWEEN: write amplification within SSDs, at most";
    report.goals.push(Goal::at_most(what, ssd, "", 1.0));
    for (load, outcomes) in all.iter().filter(|(load, _)| load.is_hot()) {
        let [rival, _, _, tween, _] = outcomes.as_slice() else {
            continue;
        };
        let (ours, theirs) = (tween.total_amplification(), rival.total_amplification());
        let goal = Goal::words(
            format!("{}: programmed pages for each page of the user", load.name),
            format!("{ours:.2}, in place {theirs:.2}"),
            "below in place",
            ours < theirs,
        );
        report
            .goals
            .push(goal.because("at this use, collection moves more than parity updates cost"));
        let erases = tween.lifetime_over(rival);
        let most = array::lifetime_bound(&Setting::new(), load, rival, tween);
        let what = format!("{}: lifetime, by erases", load.name);
        report
            .goals
            .push(Goal::at_least(what, erases, "x", 2.0).because(format!(
                "{most:.2}x is the maximum with these buffers and this width; collection and the pages that buffers do \
                not absorb cause the difference"
            )));
    }
}

fn plot(all: &[(&Load, Vec<Outcome>)]) -> Plot {
    let series = |(at, (name, ..)): (usize, (&str, Way, Setting))| {
        let values = all
            .iter()
            .map(|(_, outcomes)| outcomes[at].total_amplification());
        (name.to_owned(), values.collect())
    };
    Plot::bars(
        "TWE-1",
        "Pages programmed for each page written, at 80 % use",
        ["volume", "total write amplification"],
        all.iter().map(|(load, _)| load.name.clone()).collect(),
        contenders().into_iter().enumerate().map(series).collect(),
    )
}
