//! CAU-F8 and CAU-F9: cross-rack update traffic of CAU against the baseline and PARIX, and of its commits' variants
//! (CAU section 5.1).

use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Report, Session, Table, mean};
use crate::experiments::cross_rack::{
    COUNTING, Counts, Setting, Subject, by_volume, halves, mean_finding, saving_pct, scaled,
    spread_volumes,
};
use crate::plot::Plot;
use crate::update_traffic::Options;
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

/// Volumes of the paper's figures.
pub(super) const VOLUME_COUNT: usize = 20;

pub(super) const DEFAULTS: Options = Options {
    stripes_max: 100,
    replicas: 1,
    grouping: Some(GroupingRule::Authors),
};

/// The paper's second configuration, named RS(16,12) there.
pub(super) const WIDE: Setting = Setting {
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

const PLACED: &str = "the paper names only some of the volumes with the highest and lowest locality; our volumes cover \
all sizes. Grouping follows the authors' rule";

fn total(counts: &Counts, scheme: &str) -> u64 {
    counts[scheme].cross_rack_chunks
}

pub(super) fn begin(setting: &str, subjects: &[Subject]) -> Report {
    Report {
        setting: vec![
            setting.to_owned(),
            "each stripe has its own random order of nodes; chunks of 1 MiB, updated as a whole; one interim replica"
                .to_owned(),
        ],
        scaled: scaled(subjects, PLACED),
        ..Report::default()
    }
}

pub(super) fn names(subjects: &[Subject]) -> Vec<String> {
    let names = subjects
        .iter()
        .map(|subject| subject.volume.name.to_owned());
    names.collect()
}

/// A configuration of figure 8, and its savings over the baseline and PARIX.
struct Configuration {
    setting: Setting,
    name: &'static str,
    baseline_pct: f64,
    parix_pct: f64,
    /// Savings over PARIX with high locality and with low, where the paper prints them.
    by_locality: Option<[f64; 2]>,
}

const CONFIGURATIONS: [Configuration; 2] = [
    Configuration {
        setting: NARROW,
        name: "RS(6,3), 3 racks",
        baseline_pct: 48.4,
        parix_pct: 51.4,
        by_locality: None,
    },
    Configuration {
        setting: WIDE,
        name: "RS(12,4), 4 racks",
        baseline_pct: 60.9,
        parix_pct: 63.4,
        by_locality: Some([66.9, 56.3]),
    },
];

fn run_f8(session: &Session<'_>) -> Result<Report, LabError> {
    let subjects = spread_volumes(session, VOLUME_COUNT)?;
    let mut report = begin("u_s = 100, with data grouping", &subjects);
    report.setting.push(
        "high locality: the half of the volumes that touch fewer stripes in 1,000 writes"
            .to_owned(),
    );
    for configuration in &CONFIGURATIONS {
        run_configuration(session, &mut report, configuration, &subjects)?;
    }
    Ok(report)
}

fn run_configuration(
    session: &Session<'_>,
    report: &mut Report,
    configuration: &Configuration,
    subjects: &[Subject],
) -> Result<(), LabError> {
    let Configuration { setting, name, .. } = configuration;
    let counts = session.sweep(COUNTING, subjects, |subject| {
        subject.count(session, setting)
    })?;
    report.tables.push(traffic_table(name, subjects, &counts));
    for (other, paper_pct) in [
        ("baseline", configuration.baseline_pct),
        ("parix", configuration.parix_pct),
    ] {
        let savings = savings(&counts, other);
        let what = format!("CAU sends less than {other}, {name}, mean");
        report
            .findings
            .push(mean_finding(what, &savings, paper_pct));
    }
    if let Some(papers) = configuration.by_locality {
        let stripe_bytes = 12 * setting.chunk_bytes;
        let touched = |subject: &Subject| Ok(subject.profile(session, stripe_bytes)?.1);
        let touched: Result<Vec<f64>, LabError> = subjects.iter().map(touched).collect();
        let halves = halves(&savings(&counts, "parix"), &touched?);
        for ((locality, savings), paper_pct) in ["high", "low"].iter().zip(halves).zip(papers) {
            let what = format!("CAU sends less than parix, {name}, {locality} locality");
            let finding = mean_finding(what, &savings, paper_pct);
            report
                .findings
                .push(finding.because("the locality of the stand-ins is an assumption"));
        }
    }
    report
        .plots
        .push(traffic_plot(configuration, subjects, &counts));
    Ok(())
}

/// By how many per cent CAU sends less than another scheme, volume by volume.
fn savings(counts: &[Counts], other: &str) -> Vec<f64> {
    let saved = |counts: &Counts| saving_pct(total(counts, "cau"), total(counts, other));
    counts.iter().map(saved).collect()
}

fn traffic_table(name: &str, subjects: &[Subject], counts: &[Counts]) -> Table {
    let columns = [
        "volume", "baseline", "PARIX", "CAU", "replica", "commit", "grouping",
    ];
    let mut table = Table::new(format!("Chunks across racks, {name}"), &columns);
    for (subject, counts) in subjects.iter().zip(counts) {
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
    table
}

fn traffic_plot(configuration: &Configuration, subjects: &[Subject], counts: &[Counts]) -> Plot {
    let share = |scheme: &str| {
        let of_parix =
            |counts: &Counts| total(counts, scheme) as f64 / total(counts, "parix").max(1) as f64;
        let shares: Vec<f64> = counts.iter().map(of_parix).collect();
        (scheme.to_owned(), shares)
    };
    let series = ["baseline", "parix", "cau"].map(share);
    let means: Vec<f64> = series.iter().map(|(_, shares)| mean(shares)).collect();
    let plot = Plot::bars(
        format!("CAU-F8-{}", configuration.setting.racks.unwrap_or(0)),
        format!("Cross-rack update traffic, {}", configuration.name),
        ["volume", "of PARIX"],
        names(subjects),
        series.to_vec(),
    );
    let mut plot = by_volume(plot, subjects);
    plot.add_group("mean", &means);
    plot.mark_bar("mean", "cau", 1.0 - configuration.parix_pct / 100.0);
    plot
}

fn run_f9(session: &Session<'_>) -> Result<Report, LabError> {
    const DATA_DELTA_PCT: f64 = 20.7;
    const SCHEMES: [&str; 3] = ["cau-data-delta", "cau-parity-delta", "cau"];
    let subjects = spread_volumes(session, VOLUME_COUNT)?;
    let mut report = begin("RS(12,4) on 4 racks, u_s = 100", &subjects);
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
    for (other, paper_pct) in [
        ("cau-data-delta", DATA_DELTA_PCT),
        ("cau-parity-delta", 20.0),
    ] {
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
        let shares: Vec<f64> = counts.iter().map(share).collect();
        (scheme.to_owned(), shares)
    };
    let series = SCHEMES.map(bars);
    let means: Vec<f64> = series.iter().map(|(_, shares)| mean(shares)).collect();
    let plot = Plot::bars(
        "CAU-F9",
        "Commits of RS(12,4) on 4 racks",
        ["volume", "of data-delta commits"],
        names(&subjects),
        series.to_vec(),
    );
    let mut plot = by_volume(plot, &subjects);
    plot.add_group("mean", &means);
    plot.mark_bar("mean", "cau", 1.0 - DATA_DELTA_PCT / 100.0);
    report.plots.push(plot);
    Ok(report)
}
