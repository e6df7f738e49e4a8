//! CAU-F8, CAU-F9 and CAU-F10: cross-rack update traffic of CAU against the baseline and PARIX, of
//! its commits' variants, and what data grouping spares (CAU section 5.1).

use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table};
use crate::experiments::cross_rack::{
    COUNTING, Counts, Setting, Subject, mean_finding, saving_pct, scaled, spread_volumes,
};
use crate::plot::Plot;
use crate::update_traffic::{Options, SchemeTraffic};
use gabion_layout::GroupingRule;

pub(crate) const F8: Experiment = Experiment::new(
    "CAU-F8",
    "cross-rack update traffic of the baseline, PARIX and CAU",
    run_f8,
);

pub(crate) const F9: Experiment = Experiment::new(
    "CAU-F9",
    "data-delta, parity-delta and selective commits",
    run_f9,
);

pub(crate) const F10: Experiment = Experiment::new("CAU-F10", "what data grouping spares", run_f10);

/// Volumes of the paper's figures.
const VOLUME_COUNT: usize = 20;

const DEFAULTS: Options = Options {
    stripes_max: 100,
    replicas: 1,
    grouping: Some(GroupingRule::Authors),
};

/// The paper's second configuration, named RS(16,12) there.
const WIDE: Setting = Setting {
    code: "rs(12,4)",
    racks: Some(4),
    layout: "random",
    chunk_bytes: 1 << 20,
    schemes: &["baseline", "parix", "cau"],
    options: DEFAULTS,
};

/// Its first, named RS(9,6) there.
const NARROW: Setting = Setting {
    code: "rs(6,3)",
    racks: Some(3),
    ..WIDE
};

const PLACED: &str = "the paper says which volumes have the highest and lowest locality only in \
     part; ours are spread over all sizes. Grouping is by the authors' rule";

fn total(counts: &Counts, scheme: &str) -> u64 {
    counts[scheme].cross_rack_chunks
}

fn begin(setting: &str, session: &Session<'_>, subjects: &[Subject]) -> Report {
    Report {
        setting: vec![
            setting.to_owned(),
            "every stripe on its own random order of the nodes; chunks of 1 MiB, updated as a whole; \
             one interim replica"
                .to_owned(),
        ],
        scaled: scaled(session, subjects, PLACED),
        ..Report::default()
    }
}

fn names(subjects: &[Subject]) -> Vec<String> {
    let names = subjects
        .iter()
        .map(|subject| subject.volume.name.to_owned());
    names.collect()
}

fn run_f8(session: &Session<'_>) -> Result<Report, LabError> {
    let subjects = spread_volumes(session, VOLUME_COUNT)?;
    let mut report = begin("u_s = 100, with data grouping", session, &subjects);
    for (setting, name, baseline_pct, parix_pct) in [
        (NARROW, "RS(6,3), 3 racks", 48.4, 51.4),
        (WIDE, "RS(12,4), 4 racks", 60.9, 63.4),
    ] {
        let counts = session.sweep(COUNTING, &subjects, |subject| {
            subject.count(session, &setting)
        })?;
        let columns = [
            "volume", "baseline", "PARIX", "CAU", "replica", "commit", "grouping",
        ];
        let mut table = Table::new(format!("Chunks across racks, {name}"), &columns);
        for (subject, counts) in subjects.iter().zip(&counts) {
            let cau = counts["cau"];
            table.row([
                subject.volume.name.into(),
                total(counts, "baseline").into(),
                total(counts, "parix").into(),
                cau.cross_rack_chunks.into(),
                cau.replica.unwrap_or(0).into(),
                cau.commit.unwrap_or(0).into(),
                cau.grouping.unwrap_or(0).into(),
            ]);
        }
        report.tables.push(table);
        for (other, paper_pct) in [("baseline", baseline_pct), ("parix", parix_pct)] {
            let saved = |counts: &Counts| saving_pct(total(counts, "cau"), total(counts, other));
            let savings: Vec<f64> = counts.iter().map(saved).collect();
            let what = format!("CAU sends less than {other}, {name}, mean");
            report
                .findings
                .push(mean_finding(what, &savings, paper_pct));
        }
        let share = |scheme: &str| {
            let of_parix = |counts: &Counts| {
                total(counts, scheme) as f64 / total(counts, "parix").max(1) as f64
            };
            (scheme.to_owned(), counts.iter().map(of_parix).collect())
        };
        report.plots.push(Plot::bars(
            format!("CAU-F8-{}", setting.racks.unwrap_or(0)),
            format!("Cross-rack update traffic, {name}"),
            ["volume", "of PARIX"],
            names(&subjects),
            ["baseline", "parix", "cau"].map(share).to_vec(),
        ));
    }
    Ok(report)
}

fn run_f9(session: &Session<'_>) -> Result<Report, LabError> {
    const SCHEMES: [&str; 3] = ["cau-data-delta", "cau-parity-delta", "cau"];
    let subjects = spread_volumes(session, VOLUME_COUNT)?;
    let mut report = begin("RS(12,4) on 4 racks, u_s = 100", session, &subjects);
    let setting = Setting {
        schemes: &SCHEMES,
        ..WIDE
    };
    let counts = session.sweep(COUNTING, &subjects, |subject| {
        subject.count(session, &setting)
    })?;
    let commit = |counts: &Counts, scheme: &str| counts[scheme].commit.unwrap_or(0);
    let columns = ["volume", "data-delta", "parity-delta", "selective"];
    let mut table = Table::new("Chunks across racks by commits", &columns);
    for (subject, counts) in subjects.iter().zip(&counts) {
        let cells = SCHEMES.map(|scheme| commit(counts, scheme).into());
        table.row(std::iter::once(subject.volume.name.into()).chain(cells));
    }
    report.tables.push(table);
    for (other, paper_pct) in [("cau-data-delta", 20.7), ("cau-parity-delta", 20.0)] {
        let saved = |counts: &Counts| saving_pct(commit(counts, "cau"), commit(counts, other));
        let savings: Vec<f64> = counts.iter().map(saved).collect();
        let what = format!("selective commits send less than {other}, mean");
        report
            .findings
            .push(mean_finding(what, &savings, paper_pct));
        let never_more = savings.iter().all(|saving| *saving >= 0.0);
        let what = format!("selective commits never send more than {other}");
        let ours = if never_more { "so it is" } else { "some do" };
        report.findings.push(Finding::claim(
            what,
            ours,
            "least in all volumes",
            never_more,
        ));
    }
    let bars = |scheme: &str| {
        let share = |counts: &Counts| {
            commit(counts, scheme) as f64 / commit(counts, "cau-data-delta").max(1) as f64
        };
        (scheme.to_owned(), counts.iter().map(share).collect())
    };
    report.plots.push(Plot::bars(
        "CAU-F9",
        "Commits of RS(12,4) on 4 racks",
        ["volume", "of data-delta commits"],
        names(&subjects),
        SCHEMES.map(bars).to_vec(),
    ));
    Ok(report)
}

/// Per cent that grouping by a rule spares on a volume.
fn grouping_saving(
    session: &Session<'_>,
    subject: &Subject,
    stripes_max: u64,
    rule: GroupingRule,
) -> Result<f64, LabError> {
    let with = |grouping| {
        let traffic = cau_traffic(session, subject, stripes_max, grouping)?;
        Ok::<u64, LabError>(traffic.cross_rack_chunks)
    };
    Ok(saving_pct(with(Some(rule))?, with(None)?))
}

/// The traffic of CAU on a volume.
fn cau_traffic(
    session: &Session<'_>,
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
        ..WIDE
    };
    let counts = subject.count(session, &setting)?;
    Ok(counts["cau"])
}

/// What commits are of the traffic without grouping, in per cent: the most that grouping could spare, since
/// replicas are sent in any case.
fn add_commit_shares(
    session: &Session<'_>,
    report: &mut Report,
    subjects: &[Subject],
    stripes: [u64; 3],
) -> Result<(), LabError> {
    let shares = session.sweep(COUNTING, subjects, |subject| {
        let share = |stripes_max| {
            let traffic = cau_traffic(session, subject, stripes_max, None)?;
            let commit = traffic.commit.unwrap_or(0) as f64;
            Ok(100.0 * commit / traffic.cross_rack_chunks.max(1) as f64)
        };
        let shares: Result<Vec<f64>, LabError> = stripes.into_iter().map(share).collect();
        shares
    })?;
    let title = "Commits in per cent of the traffic without grouping: the most that it could spare";
    let mut table = Table::new(title, &["volume", "u_s = 2", "u_s = 20", "u_s = 100"]);
    for (subject, shares) in subjects.iter().zip(&shares) {
        let cells = shares.iter().map(|&share| share.into());
        table.row(std::iter::once(subject.volume.name.into()).chain(cells));
    }
    report.tables.push(table);
    report.notes.push(
        "grouping can spare commits alone. A workload that is scaled down is on so few stripes that at u_s = 100 \
         there is often one commit, at the end, and then nothing is left to spare"
            .to_owned(),
    );
    Ok(())
}

/// What grouping spares on whole traces, and on the workloads that would stand in for them.
fn add_stand_ins(
    session: &Session<'_>,
    report: &mut Report,
    subjects: &[Subject],
    stripes: [u64; 3],
) -> Result<(), LabError> {
    let title = "Per cent spared on traces and on their stand-ins, rule authors";
    let columns = ["volume", "what", "u_s = 2", "u_s = 20", "u_s = 100"];
    let mut table = Table::new(title, &columns);
    let mut pays = [0, 0];
    for subject in subjects {
        let Some(made) = subject.stand_in(session)? else {
            continue;
        };
        for (at, (what, subject)) in [("trace", subject), ("stand-in", &made)]
            .into_iter()
            .enumerate()
        {
            let saving = |us| grouping_saving(session, subject, us, GroupingRule::Authors);
            let savings: Vec<f64> = stripes.into_iter().map(saving).collect::<Result<_, _>>()?;
            pays[at] += savings.iter().filter(|saving| **saving > 0.0).count();
            let first = [subject.volume.name.into(), what.into()];
            table.row(first.into_iter().chain(savings.into_iter().map(Into::into)));
        }
    }
    let all = stripes.len() * table.rows.len() / 2;
    if all > 0 {
        report.notes.push(format!(
            "of the volumes with a whole trace grouping pays in {} of {all} cases on the trace, and in {} on the \
             stand-in; the other volumes have stand-ins alone, whose sizes and places are assumptions",
            pays[0], pays[1]
        ));
        report.tables.push(table);
    }
    Ok(())
}

fn run_f10(session: &Session<'_>) -> Result<Report, LabError> {
    const STRIPES: [(u64, f64); 3] = [(2, 27.4), (20, 17.6), (100, 16.3)];
    let subjects = spread_volumes(session, VOLUME_COUNT)?;
    let mut report = begin(
        "RS(12,4) on 4 racks, u_s = 2, 20 and 100",
        session,
        &subjects,
    );
    let stripes = STRIPES.map(|(us, _)| us);
    add_commit_shares(session, &mut report, &subjects, stripes)?;
    add_stand_ins(session, &mut report, &subjects, stripes)?;
    for rule in [GroupingRule::Authors, GroupingRule::Algorithm1] {
        let savings = session.sweep(COUNTING, &subjects, |subject| {
            let saving = |(stripes, _)| grouping_saving(session, subject, stripes, rule);
            let savings: Result<Vec<f64>, LabError> = STRIPES.into_iter().map(saving).collect();
            savings
        })?;
        let columns = ["volume", "u_s = 2", "u_s = 20", "u_s = 100"];
        let mut table = Table::new(format!("Per cent spared, rule {rule}"), &columns);
        for (subject, savings) in subjects.iter().zip(&savings) {
            let cells = savings.iter().map(|&saving| saving.into());
            table.row(std::iter::once(subject.volume.name.into()).chain(cells));
        }
        report.tables.push(table);
        let all = || savings.iter().flatten().copied();
        let positive = all().filter(|saving| *saving > 0.0).count();
        let positive_pct = 100.0 * positive as f64 / all().count().max(1) as f64;
        let what = format!("volumes and u_s for which grouping pays, rule {rule}");
        let paper = Paper::saving(85.0).without_effect(50.0);
        report.findings.push(Finding::beside(
            what,
            positive_pct,
            " %",
            paper.printed("85 %, 51 of 60"),
        ));
        for (at, (stripes, paper_pct)) in STRIPES.into_iter().enumerate() {
            let best = savings.iter().map(|row| row[at]).fold(f64::MIN, f64::max);
            let what = format!("most that grouping spares at u_s = {stripes}, rule {rule}");
            report
                .findings
                .push(Finding::beside(what, best, " %", Paper::saving(paper_pct)));
        }
        let worst = all().fold(f64::MAX, f64::min);
        let what = format!("worst case of grouping, rule {rule}");
        report
            .findings
            .push(Finding::beside(what, worst, " %", Paper::saving(-5.8)));
        let bars = STRIPES.iter().enumerate().map(|(at, (stripes, _))| {
            let left = savings
                .iter()
                .map(|row| (100.0 - row[at]).max(0.0))
                .collect();
            (format!("u_s = {stripes}"), left)
        });
        report.plots.push(Plot::bars(
            format!("CAU-F10-{rule}"),
            format!("Traffic with data grouping, rule {rule}"),
            ["volume", "per cent of the traffic without"],
            names(&subjects),
            bars.collect(),
        ));
    }
    Ok(report)
}
