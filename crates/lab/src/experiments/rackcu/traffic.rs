//! RCU-A1, RCU-A2 and RCU-A3: cross-rack update traffic of `RackCU` against CAU's selective update, the
//! baseline and PARIX, by volume, by code and by number of racks (`RackCU` section V-B).
//!
//! The paper says that data and parity racks are apart and not how many chunks a rack holds, so each
//! experiment runs the layouts that are plausible and prints the spread.

use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Report, Session, Table};
use crate::experiments::cross_rack::{
    COUNTING, Counts, Setting, Subject, mean_finding, saving_pct, scaled, spread_volumes,
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

const UNSAID: &str = "the paper does not say how many chunks of a stripe a rack holds, nor which 14 \
     volumes it took: layouts are spelled out, and volumes are spread over all sizes";

fn begin(setting: &str, session: &Session<'_>, subjects: &[Subject]) -> Report {
    Report {
        setting: vec![
            setting.to_owned(),
            "chunks of 4 KiB, updated as a whole; the chunks of a stripe that one write touches are one \
             batch; CAU is its selective update alone"
                .to_owned(),
        ],
        scaled: scaled(session, subjects, UNSAID),
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

fn run_a1(session: &Session<'_>) -> Result<Report, LabError> {
    const LAYOUTS: [&str; 4] = ["6x2+2x2", "3x4+1x4", "12x1+4x1", "6x2+4x1"];
    let subjects = spread_volumes(session, 14)?;
    let mut report = begin("RS(12,4)", session, &subjects);
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
        for (other, paper_pct) in OTHERS.into_iter().zip([29.8, 58.9, 64.4]) {
            let what = format!("RackCU sends less than {other}, layout {layout}, mean");
            report
                .findings
                .push(mean_finding(what, &savings(&all, other), paper_pct));
        }
        settings.push((layout.to_owned(), all));
    }
    report.notes.push(
        "the paper's means imply that its CAU sends about 0.585 of the baseline, (1 - 0.589) / (1 - 0.298). Where \
         racks hold two chunks, 6x2+2x2, a selective update sends exactly half of it, whatever the trace: two \
         deltas for a chunk instead of four. There RackCU's saving over the baseline is the paper's, so if \
         that is the paper's layout, it counts more for CAU than the selective update alone. No layout here has \
         both figures"
            .to_owned(),
    );
    report.plots.push(plot("RCU-A1", "layout", &settings));
    Ok(report)
}

/// The volumes that the paper names.
fn named(session: &Session<'_>) -> Result<Vec<Subject>, LabError> {
    let volumes = NAMED.into_iter().filter_map(volume);
    volumes
        .map(|volume| Subject::new(session, volume))
        .collect()
}

fn run_a2(session: &Session<'_>) -> Result<Report, LabError> {
    const CODES: [(&str, &str); 6] = [
        ("rs(6,3)", "3x2+3x1"),
        ("rs(6,3)", "6x1+3x1"),
        ("rs(10,4)", "5x2+2x2"),
        ("rs(10,4)", "5x2+4x1"),
        ("rs(12,4)", "6x2+2x2"),
        ("rs(12,4)", "6x2+4x1"),
    ];
    let subjects = named(session)?;
    let mut report = begin("the paper's four volumes, three codes", session, &subjects);
    let (mut settings, mut all_codes) = (Vec::new(), Vec::new());
    for (code, layout) in CODES {
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
        all_codes.extend(all.clone());
        settings.push((format!("{code} {layout}"), all));
    }
    for (other, paper_pct) in OTHERS.into_iter().zip([33.3, 54.1, 60.4]) {
        let what = format!("RackCU sends less than {other}, mean over codes and layouts");
        report
            .findings
            .push(mean_finding(what, &savings(&all_codes, other), paper_pct));
    }
    report
        .plots
        .push(plot("RCU-A2", "code and layout", &settings));
    Ok(report)
}

fn run_a3(session: &Session<'_>) -> Result<Report, LabError> {
    const RACKS: [(&str, u64); 3] = [("3x4+1x4", 4), ("3x4+2x2", 5), ("6x2+4x1", 10)];
    let subjects = named(session)?;
    let mut report = begin("RS(12,4) over 4, 5 and 10 racks", session, &subjects);
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
