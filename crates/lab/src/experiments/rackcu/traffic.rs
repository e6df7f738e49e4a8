//! RCU-A1, RCU-A2 and RCU-A3: cross-rack update traffic of `RackCU` against CAU's selective update, the
//! baseline and PARIX, by volume, by code and by number of racks (`RackCU` section V-B).
//!
//! The paper states that data and parity racks are separate, but not the number of chunks in a rack. So each experiment
//! runs the plausible layouts and prints the spread.

use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Report, Session, Table, mean};
use crate::experiments::cross_rack::{
    COUNTING, Counts, Setting, Subject, halves, mean_finding, saving_pct, scaled, spread_volumes,
};
use crate::plot::Plot;
use crate::update_traffic::Options;
use crate::workload::volume;

pub(crate) const A1: Experiment = Experiment::new(
    "RCU-A1",
    "cross-rack update traffic of RackCU by volume",
    run_a1,
);

pub(crate) const A2: Experiment = Experiment::new(
    "RCU-A2",
    "cross-rack update traffic of RackCU by code",
    run_a2,
);

pub(crate) const A3: Experiment = Experiment::new(
    "RCU-A3",
    "cross-rack update traffic of RackCU by number of racks",
    run_a3,
);

const SCHEMES: [&str; 4] = ["baseline", "parix", "cau-selective", "rackcu"];
/// Those that `RackCU` is compared with.
const OTHERS: [&str; 3] = ["cau-selective", "baseline", "parix"];
/// Volumes that the paper names for experiments A2 and A3.
const NAMED: [&str; 4] = ["src1_0", "src2_2", "wdev_3", "rsrch_2"];

const WIDE: Setting = Setting {
    code: "rs(12,4)",
    racks: None,
    layout: "6x2+2x2",
    chunk_bytes: 4 << 10,
    schemes: &SCHEMES,
    options: Options {
        stripes_max: 100,
        replicas: 0,
        grouping: None,
    },
};

const UNSAID: &str = "the paper does not state the number of a stripe's chunks in a rack, nor its 14 volumes; here \
each table names its layout, and volumes cover all sizes";

fn begin(setting: &str, subjects: &[Subject]) -> Report {
    Report {
        setting: vec![
            setting.to_owned(),
            "chunks of 4 KiB, updated as a whole; the chunks of a stripe that one write touches form one batch; CAU is \
            only its selective update"
                .to_owned(),
        ],
        scaled: scaled(subjects, UNSAID),
        ..Report::default()
    }
}

fn savings(all: &[Counts], other: &str) -> Vec<f64> {
    let chunks = |counts: &Counts, scheme: &str| counts[scheme].cross_rack_chunks;
    let saved = |counts: &Counts| saving_pct(chunks(counts, "rackcu"), chunks(counts, other));
    all.iter().map(saved).collect()
}

fn add_table(report: &mut Report, title: String, subjects: &[Subject], all: &[Counts]) {
    let columns = ["volume", "baseline", "PARIX", "CAU selective", "RackCU"];
    let mut table = Table::new(title, &columns);
    for (subject, counts) in subjects.iter().zip(all) {
        let cells = SCHEMES.map(|scheme| counts[scheme].cross_rack_chunks.into());
        table.row(std::iter::once(subject.volume.name.into()).chain(cells));
    }
    report.tables.push(table);
}

/// Bars of all schemes over the baseline, summed over volumes, for each setting.
fn plot(name: &str, x_label: &str, settings: &[(String, Vec<Counts>)]) -> Plot {
    let total = |counts: &[Counts], scheme: &str| -> u64 {
        counts
            .iter()
            .map(|counts| counts[scheme].cross_rack_chunks)
            .sum()
    };
    let bars = |scheme: &str| {
        let share = |(_, counts): &(String, Vec<Counts>)| {
            total(counts, scheme) as f64 / total(counts, "baseline").max(1) as f64
        };
        (scheme.to_owned(), settings.iter().map(share).collect())
    };
    Plot::bars(
        name,
        "Cross-rack update traffic",
        [x_label, "of the baseline"],
        settings.iter().map(|(name, _)| name.clone()).collect(),
        SCHEMES.map(bars).to_vec(),
    )
}

/// Savings of `RackCU` against each of the others, as the paper prints of experiment A1: of all volumes, of those with
/// larger updates, and of those with smaller ones.
const PAPER_A1: [f64; 3] = [29.8, 58.9, 64.4];
const PAPER_LARGER: [f64; 3] = [38.2, 67.0, 75.1];
const PAPER_SMALLER: [f64; 3] = [22.1, 50.9, 55.1];
/// The same of experiment A2, over codes.
const PAPER_A2: [f64; 3] = [33.3, 54.1, 60.4];
/// The layout that A1 is judged by, and the others.
const CHOSEN: &str = "6x2+2x2";
const LAYOUTS: [&str; 4] = [CHOSEN, "3x4+1x4", "12x1+4x1", "6x2+4x1"];

/// States which layout is judged.
fn choose_layout(report: &mut Report, chosen: &str) {
    report.choose(
        "number of a stripe's chunks in a rack",
        chosen,
        "the paper states two chunks of a stripe in each rack for its testbed, but not for its counts. With fewer \
        chunks in parity's racks, an update of one chunk costs as much as the baseline's, and the paper's saving on \
        small updates, half of the baseline's traffic, is impossible",
    );
}

fn run_a1(session: &Session<'_>) -> Result<Report, LabError> {
    let subjects = spread_volumes(session, 14)?;
    let mut report = begin("RS(12,4)", &subjects);
    choose_layout(&mut report, CHOSEN);
    let mut settings = Vec::new();
    for layout in LAYOUTS {
        let setting = Setting { layout, ..WIDE };
        let all = session.sweep(COUNTING, &subjects, |subject| {
            subject.count(session, &setting)
        })?;
        add_table(
            &mut report,
            format!("Chunks across racks, {layout}"),
            &subjects,
            &all,
        );
        for (other, paper_pct) in OTHERS.into_iter().zip(PAPER_A1) {
            let what = format!("RackCU sends less than {other}, layout {layout}, mean");
            let finding = mean_finding(what, &savings(&all, other), paper_pct).because(CAUSE);
            report.findings.push(if layout == CHOSEN {
                finding
            } else {
                finding.reading(format!("layout {layout}"))
            });
        }
        if layout == CHOSEN {
            add_sizes(session, &mut report, &subjects, &all)?;
        }
        settings.push((layout.to_owned(), all));
    }
    add_causes(session, &mut report, &subjects, PAPER_A1)?;
    let mut plot = savings_plot("RCU-A1", "layout", &settings);
    mark(&mut plot, CHOSEN, PAPER_A1);
    report.plots.push(plot);
    Ok(report)
}

const CAUSE: &str = "see the table of causes: longer updates touch more chunks and widen RackCU's lead over CAU, and \
sizes of stand-ins are assumptions";

/// The volumes with larger updates and those with smaller ones by themselves.
fn add_sizes(
    session: &Session<'_>,
    report: &mut Report,
    subjects: &[Subject],
    all: &[Counts],
) -> Result<(), LabError> {
    let size = |subject: &Subject| Ok(subject.profile(session, WIDE.chunk_bytes)?.0);
    let sizes: Vec<f64> = subjects.iter().map(size).collect::<Result<_, LabError>>()?;
    for (at, other) in OTHERS.into_iter().enumerate() {
        let [smaller, larger] = halves(&savings(all, other), &sizes);
        for (which, savings, papers) in [
            ("larger", larger, PAPER_LARGER),
            ("smaller", smaller, PAPER_SMALLER),
        ] {
            let what = format!("RackCU sends less than {other}, {which} updates, mean");
            report
                .findings
                .push(mean_finding(what, &savings, papers[at]).because(CAUSE));
        }
    }
    let mut table = Table::new("Sizes of updates", &["volume", "mean KiB"]);
    for (subject, bytes) in subjects.iter().zip(&sizes) {
        table.row([subject.volume.name.into(), (bytes / 1024.0).into()]);
    }
    report.tables.push(table);
    Ok(())
}

/// A setting with one choice changed.
type Change = (&'static str, Setting);

const CHANGES: [Change; 4] = [
    ("as judged", WIDE),
    (
        "updates twice as long: the same writes on chunks of 2 KiB",
        Setting {
            chunk_bytes: 2 << 10,
            ..WIDE
        },
    ),
    (
        "updates four times as long: the same writes on chunks of 1 KiB",
        Setting {
            chunk_bytes: 1 << 10,
            ..WIDE
        },
    ),
    (
        "data and parity mixed at random over 8 racks",
        Setting {
            layout: "random",
            racks: Some(8),
            ..WIDE
        },
    ),
];

/// The same volumes with one choice changed, and the whole traces alone, beside the paper.
fn add_causes(
    session: &Session<'_>,
    report: &mut Report,
    subjects: &[Subject],
    paper: [f64; 3],
) -> Result<(), LabError> {
    let columns = ["changed", "than CAU", "than the baseline", "than PARIX"];
    let title = "Causes: per cent less traffic of RackCU with one choice changed, RS(12,4)";
    let mut table = Table::new(title, &columns);
    let counts = session.sweep("changing choices", CHANGES, |(name, setting)| {
        let count = |subject: &Subject| subject.count(session, &setting);
        let all: Result<Vec<Counts>, LabError> = subjects.iter().map(count).collect();
        Ok((name, all?))
    })?;
    let means = |all: &[Counts]| OTHERS.map(|other| mean(&savings(all, other)));
    let mut rows: Vec<(&str, [f64; 3])> = Vec::new();
    for (at, (name, all)) in counts.iter().enumerate() {
        rows.push((name, means(all)));
        let traces = subjects
            .iter()
            .zip(all)
            .filter(|(subject, _)| !subject.is_stand_in());
        let traces: Vec<Counts> = traces.map(|(_, counts)| counts.clone()).collect();
        if at == 0 && !traces.is_empty() {
            rows.push(("only the volumes with a whole trace", means(&traces)));
        }
    }
    for (name, pct) in rows.into_iter().chain([("the paper", paper)]) {
        table.row([name.into()].into_iter().chain(pct.map(Into::into)));
    }
    report.tables.push(table);
    report.notes.push(
        "the paper's means imply that its CAU sends about 0.585 of the baseline, (1 - 0.589) / (1 - 0.298). With two \
        chunks in each rack, a selective update sends exactly half of the baseline for every trace: two deltas for a \
        chunk instead of four. So no trace gives all three figures with this layout"
            .to_owned(),
    );
    Ok(())
}

/// Bars of `RackCU`'s savings over each other scheme, for each setting.
fn savings_plot(name: &str, x_label: &str, settings: &[(String, Vec<Counts>)]) -> Plot {
    let bars = |other: &str| {
        let saved = settings
            .iter()
            .map(|(_, all)| mean(&savings(all, other)).max(0.0));
        (format!("than {other}"), saved.collect())
    };
    Plot::bars(
        name,
        "Cross-rack update traffic of RackCU",
        [x_label, "per cent less, mean over volumes"],
        settings.iter().map(|(name, _)| name.clone()).collect(),
        OTHERS.map(bars).to_vec(),
    )
}

fn mark(plot: &mut Plot, group: &str, papers: [f64; 3]) {
    for (other, paper_pct) in OTHERS.into_iter().zip(papers) {
        plot.mark_bar(group, format!("than {other}"), paper_pct);
    }
}

/// The volumes that the paper names.
fn named(session: &Session<'_>) -> Result<Vec<Subject>, LabError> {
    let volumes = NAMED.into_iter().filter_map(volume);
    volumes
        .map(|volume| Subject::new(session, volume))
        .collect()
}

/// Codes with the layout that A2 is judged by, and with another one.
const CODES: [(&str, &str, bool); 6] = [
    ("rs(6,3)", "3x2+3x1", true),
    ("rs(6,3)", "6x1+3x1", false),
    ("rs(10,4)", "5x2+2x2", true),
    ("rs(10,4)", "5x2+4x1", false),
    ("rs(12,4)", "6x2+2x2", true),
    ("rs(12,4)", "6x2+4x1", false),
];

fn run_a2(session: &Session<'_>) -> Result<Report, LabError> {
    let subjects = named(session)?;
    let mut report = begin("the paper's four volumes, three codes", &subjects);
    choose_layout(
        &mut report,
        "two data chunks, and two parity chunks if the code has four",
    );
    let mut settings = Vec::new();
    let (mut chosen, mut others) = (Vec::new(), Vec::new());
    for (code, layout, is_chosen) in CODES {
        let setting = Setting {
            code,
            layout,
            ..WIDE
        };
        let all = session.sweep(COUNTING, &subjects, |subject| {
            subject.count(session, &setting)
        })?;
        add_table(
            &mut report,
            format!("Chunks across racks, {code}, {layout}"),
            &subjects,
            &all,
        );
        let kind = if is_chosen { &mut chosen } else { &mut others };
        kind.extend(all.clone());
        settings.push((format!("{code} {layout}"), all));
    }
    for (other, paper_pct) in OTHERS.into_iter().zip(PAPER_A2) {
        let what = format!("RackCU sends less than {other}, mean over codes");
        let finding = mean_finding(what, &savings(&chosen, other), paper_pct);
        report.findings.push(finding.because(CAUSE));
        let what =
            format!("RackCU sends less than {other}, mean over codes, one parity chunk a rack");
        let finding = mean_finding(what, &savings(&others, other), paper_pct);
        report
            .findings
            .push(finding.reading("one parity chunk a rack"));
    }
    add_causes(session, &mut report, &subjects, PAPER_A2)?;
    let mut plot = savings_plot("RCU-A2", "code and layout", &settings);
    plot.add_group(
        "mean, as judged",
        &OTHERS.map(|other| mean(&savings(&chosen, other))),
    );
    mark(&mut plot, "mean, as judged", PAPER_A2);
    report.plots.push(plot);
    Ok(report)
}

fn run_a3(session: &Session<'_>) -> Result<Report, LabError> {
    const RACKS: [(&str, u64); 3] = [("3x4+1x4", 4), ("3x4+2x2", 5), ("6x2+4x1", 10)];
    let subjects = named(session)?;
    let mut report = begin("RS(12,4) over 4, 5 and 10 racks", &subjects);
    let (mut settings, mut totals) = (Vec::new(), Vec::new());
    for (layout, racks) in RACKS {
        let setting = Setting { layout, ..WIDE };
        let all = session.sweep(COUNTING, &subjects, |subject| {
            subject.count(session, &setting)
        })?;
        let title = format!("Chunks across racks, {racks} racks, {layout}");
        add_table(&mut report, title, &subjects, &all);
        let total = |scheme| {
            all.iter()
                .map(|counts| counts[scheme].cross_rack_chunks)
                .sum::<u64>()
        };
        totals.push(SCHEMES.map(total));
        settings.push((format!("{racks} racks"), all));
    }
    for (at, scheme) in SCHEMES.into_iter().enumerate() {
        let grows = totals.windows(2).all(|pair| pair[0][at] < pair[1][at]);
        let is_constant = totals.windows(2).all(|pair| pair[0][at] == pair[1][at]);
        let ours = match (grows, is_constant) {
            (true, _) => "grows with racks",
            (_, true) => "is constant",
            _ => "does neither",
        };
        let paper = if at < 2 {
            "is constant"
        } else {
            "grows with racks"
        };
        report
            .findings
            .push(Finding::claim(scheme, ours, paper, ours == paper));
    }
    report.plots.push(plot("RCU-A3", "racks", &settings));
    Ok(report)
}
