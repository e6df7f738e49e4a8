//! CAU-F10: the traffic that data grouping saves, by the authors' rule and by the paper's Algorithm 1, and the results
//! of the same volumes with one choice changed (CAU section 5.1).

use super::traffic::{DEFAULTS, VOLUME_COUNT, WIDE, begin, names};
use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table};
use crate::experiments::cross_rack::{
    COUNTING, Setting, Subject, by_volume, saving_pct, spread_volumes,
};
use crate::plot::Plot;
use crate::update_traffic::{Options, SchemeTraffic};
use gabion_layout::GroupingRule;

pub(crate) const F10: Experiment =
    Experiment::new("CAU-F10", "traffic saved by data grouping", run);

/// Stripes that may wait, and the most that grouping spares then, as the paper prints.
const STRIPES: [(u64, f64); 3] = [(2, 27.4), (20, 17.6), (100, 16.3)];
/// The paper's worst case.
const WORST_PCT: f64 = -5.8;
/// Cases in which grouping pays, of all, in per cent.
const PAYS_PCT: f64 = 85.0;

/// Per cent that grouping by a rule spares on a volume, by the number of stripes that may wait.
fn grouping_savings(
    session: &Session<'_>,
    setting: &Setting,
    subject: &Subject,
    rule: GroupingRule,
) -> Result<Vec<f64>, LabError> {
    let saving = |(stripes_max, _)| {
        let with = |grouping| {
            let traffic = cau_traffic(session, setting, subject, stripes_max, grouping)?;
            Ok::<u64, LabError>(traffic.cross_rack_chunks)
        };
        Ok(saving_pct(with(Some(rule))?, with(None)?))
    };
    STRIPES.into_iter().map(saving).collect()
}

/// The traffic of CAU on a volume.
fn cau_traffic(
    session: &Session<'_>,
    setting: &Setting,
    subject: &Subject,
    stripes_max: u64,
    grouping: Option<GroupingRule>,
) -> Result<SchemeTraffic, LabError> {
    let setting = Setting {
        schemes: &["cau"],
        options: Options {
            stripes_max,
            grouping,
            ..DEFAULTS
        },
        ..*setting
    };
    let counts = subject.count(session, &setting)?;
    Ok(counts["cau"])
}

/// Adds the share of commits in the traffic without grouping, in per cent: the most that grouping could spare, since
/// replicas are sent in any case.
fn add_commit_shares(
    session: &Session<'_>,
    report: &mut Report,
    subjects: &[Subject],
) -> Result<(), LabError> {
    let shares = session.sweep(COUNTING, subjects, |subject| {
        let share = |(stripes_max, _)| {
            let traffic = cau_traffic(session, &WIDE, subject, stripes_max, None)?;
            let commit = traffic.commit.unwrap_or(0) as f64;
            Ok(100.0 * commit / traffic.cross_rack_chunks.max(1) as f64)
        };
        let shares: Result<Vec<f64>, LabError> = STRIPES.into_iter().map(share).collect();
        shares
    })?;
    let title =
        "Commits in per cent of the traffic without grouping: the most that grouping could save";
    let mut table = Table::new(title, &["volume", "u_s = 2", "u_s = 20", "u_s = 100"]);
    for (subject, shares) in subjects.iter().zip(&shares) {
        let cells = shares.iter().map(|&share| share.into());
        table.row(std::iter::once(subject.volume.name.into()).chain(cells));
    }
    report.tables.push(table);
    report.notes.push(
        "grouping saves only traffic of commits. A scaled-down workload has few stripes; at u_s = 100 it often has \
        only one commit, at the end, and grouping then saves nothing"
            .to_owned(),
    );
    Ok(())
}

/// Adds the savings of grouping on whole traces, and on the workloads that would stand in for them.
fn add_stand_ins(
    session: &Session<'_>,
    report: &mut Report,
    subjects: &[Subject],
) -> Result<(), LabError> {
    let title = "Per cent saved on traces and on their stand-ins, rule authors";
    let columns = ["volume", "what", "u_s = 2", "u_s = 20", "u_s = 100"];
    let mut table = Table::new(title, &columns);
    for subject in subjects {
        let Some(made) = subject.stand_in(session)? else {
            continue;
        };
        for (what, subject) in [("trace", subject), ("stand-in", &made)] {
            let savings = grouping_savings(session, &WIDE, subject, GroupingRule::Authors)?;
            let first = [subject.volume.name.into(), what.into()];
            table.row(first.into_iter().chain(savings.into_iter().map(Into::into)));
        }
    }
    if !table.rows.is_empty() {
        report.notes.push(
            "volumes without a whole trace have only stand-ins, and their sizes and offsets are assumptions"
                .to_owned(),
        );
        report.tables.push(table);
    }
    Ok(())
}

/// A choice of ours that the paper leaves open, made otherwise: the setting, and whether stand-ins are gathered in
/// one area.
type Change = (&'static str, Setting, bool);

const CHANGES: [Change; 4] = [
    ("as above", WIDE, false),
    (
        "stripes rotate over the nodes",
        Setting {
            layout: "rotate",
            ..WIDE
        },
        false,
    ),
    (
        "all parity in one rack",
        Setting {
            layout: "3x4+1x4",
            racks: None,
            ..WIDE
        },
        false,
    ),
    ("stand-ins write in one area instead of many", WIDE, true),
];

/// The same volumes with one choice changed, beside the paper.
fn add_causes(
    session: &Session<'_>,
    report: &mut Report,
    subjects: &[Subject],
) -> Result<(), LabError> {
    let columns = [
        "changed",
        "pays, %",
        "most, u_s = 2",
        "u_s = 20",
        "u_s = 100",
        "worst",
    ];
    let title = "Causes: per cent saved by the authors' rule with one choice changed";
    let mut table = Table::new(title, &columns);
    let all = session.sweep(
        "changing choices",
        CHANGES,
        |(name, setting, is_gathered)| {
            let savings = |subject: &Subject| {
                let gathered = subject.gathered();
                let subject = if is_gathered { &gathered } else { subject };
                grouping_savings(session, &setting, subject, GroupingRule::Authors)
            };
            let savings: Result<Vec<Vec<f64>>, LabError> = subjects.iter().map(savings).collect();
            Ok((name, Summary::of(&savings?)))
        },
    )?;
    let paper = Summary {
        pays: PAYS_PCT,
        most: STRIPES.map(|(_, most_pct)| most_pct),
        worst: WORST_PCT,
    };
    for (name, summary) in all.into_iter().chain([("the paper", paper)]) {
        let [few, some, many] = summary.most;
        let cells = [summary.pays, few, some, many, summary.worst];
        table.row([name.into()].into_iter().chain(cells.map(Into::into)));
    }
    report.tables.push(table);
    Ok(())
}

/// The paper's figures of all volumes, in per cent.
struct Summary {
    pays: f64,
    most: [f64; 3],
    worst: f64,
}

impl Summary {
    /// The summary of savings by volume and number of waiting stripes.
    fn of(savings: &[Vec<f64>]) -> Self {
        let all = || savings.iter().flatten().copied();
        let positive = all().filter(|saving| *saving > 0.0).count();
        let most = |at: usize| savings.iter().map(|row| row[at]).fold(f64::MIN, f64::max);
        Self {
            pays: 100.0 * positive as f64 / all().count().max(1) as f64,
            most: [0, 1, 2].map(most),
            worst: all().fold(f64::MAX, f64::min),
        }
    }

    fn findings(&self, rule: GroupingRule) -> Vec<Finding> {
        let beside = |what: String, ours, paper| {
            let finding = Finding::beside(what, ours, " %", paper);
            let finding = finding.because("see the tables of commits' shares and of causes");
            if rule == GroupingRule::Authors {
                finding
            } else {
                finding.reading("Algorithm 1 as printed")
            }
        };
        let paper = Paper::saving(PAYS_PCT)
            .without_effect(50.0)
            .printed("85 %, 51 of 60");
        let what = format!("volumes and u_s for which grouping pays, rule {rule}");
        let mut findings = vec![beside(what, self.pays, paper)];
        for ((stripes, paper_pct), most_pct) in STRIPES.into_iter().zip(self.most) {
            let what = format!("most that grouping spares at u_s = {stripes}, rule {rule}");
            findings.push(beside(what, most_pct, Paper::saving(paper_pct)));
        }
        let what = format!("worst case of grouping, rule {rule}");
        findings.push(beside(what, self.worst, Paper::saving(WORST_PCT)));
        findings
    }
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let subjects = spread_volumes(session, VOLUME_COUNT)?;
    let mut report = begin("RS(12,4) on 4 racks, u_s = 2, 20 and 100", &subjects);
    report.choose(
        "the rule of data grouping",
        "the rule of the authors' program",
        "the paper's figures come from the program, but the printed Algorithm 1 differs from it",
    );
    add_commit_shares(session, &mut report, &subjects)?;
    add_stand_ins(session, &mut report, &subjects)?;
    for rule in [GroupingRule::Authors, GroupingRule::Algorithm1] {
        let savings = session.sweep(COUNTING, &subjects, |subject| {
            grouping_savings(session, &WIDE, subject, rule)
        })?;
        let columns = ["volume", "u_s = 2", "u_s = 20", "u_s = 100"];
        let mut table = Table::new(format!("Per cent saved, rule {rule}"), &columns);
        for (subject, savings) in subjects.iter().zip(&savings) {
            let cells = savings.iter().map(|&saving| saving.into());
            table.row(std::iter::once(subject.volume.name.into()).chain(cells));
        }
        report.tables.push(table);
        report.findings.extend(Summary::of(&savings).findings(rule));
        report.plots.push(plot(rule, &subjects, &savings));
    }
    add_causes(session, &mut report, &subjects)?;
    Ok(report)
}

fn plot(rule: GroupingRule, subjects: &[Subject], savings: &[Vec<f64>]) -> Plot {
    let bars = STRIPES.iter().enumerate().map(|(at, (stripes, _))| {
        let left = savings.iter().map(|row| (100.0 - row[at]).max(0.0));
        (format!("u_s = {stripes}"), left.collect())
    });
    let plot = Plot::bars(
        format!("CAU-F10-{rule}"),
        format!("Traffic with data grouping, rule {rule}"),
        ["volume", "per cent of the traffic without"],
        names(subjects),
        bars.collect(),
    );
    let mut plot = by_volume(plot, subjects);
    let least = |most_pct: f64| (100.0 - most_pct).max(0.0);
    plot.add_group("least", &Summary::of(savings).most.map(least));
    for (stripes, most_pct) in STRIPES {
        plot.mark_bar("least", format!("u_s = {stripes}"), least(most_pct));
    }
    plot
}
