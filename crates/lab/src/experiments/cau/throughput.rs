//! CAU-F11 to CAU-F14: update throughput of CAU against updates by delta and PARIX, by the gateway's rate,
//! on disks that are written through, by the number of stripes that may wait, and over regions (CAU
//! sections 5.2 and 5.3).

use crate::error::LabError;
use crate::experiment::tolerance::{FLAT, RISE};
use crate::experiment::{
    Experiment, Finding, Goal, Paper, Report, Scale, Session, TestbedLimits, TestbedSetting,
    Throughput, Verdict,
};
use crate::experiments::cross_rack::testbed::{
    Contender, DEPTH, MEAN, Round, compare, gains, mean_finding, plot, race, scaled, sources,
    volume,
};
use crate::plot::Plot;
use gabion_layout::{AppendSpec, UpdateScheme};
use std::path::PathBuf;

pub(crate) const F11: Experiment = Experiment::new(
    "CAU-F11",
    "update throughput of CAU by the rate between racks",
    run_f11,
)
.on_testbed();

pub(crate) const F12: Experiment = Experiment::new(
    "CAU-F12",
    "update throughput of CAU on write-through disks",
    run_f12,
)
.on_testbed();

pub(crate) const F13: Experiment = Experiment::new(
    "CAU-F13",
    "update throughput of CAU by the number of stripes that may wait",
    run_f13,
)
.on_testbed();

pub(crate) const F14: Experiment = Experiment::new(
    "CAU-F14",
    "update throughput of CAU over four regions",
    run_f14,
)
.on_testbed();

/// Of the paper's rates to ours: its nodes had processors each, and ours share two.
const SLOWER: u64 = 25;
const VOLUMES: [&str; 4] = ["wdev_1", "wdev_3", "rsrch_1", "src2_1"];
/// A rate that no cluster of this machine fills.
const WIDE_MBIT_PER_S: u64 = 25_000;
/// The chunk size by which volumes are cut.
const ADDRESSED_BYTES: u64 = 1 << 20;
/// The chunk size on the cluster, a sixteenth of that, so that updates take less time.
const CHUNK_BYTES: u64 = 64 << 10;
/// The goal on each volume when 100 stripes may wait: appending is worth its replicas.
const BETTER: f64 = 1.0;
/// The goal on `wdev_1` when 100 stripes may wait.
const GOAL: f64 = 1.4;

/// Positions of the others and CAU among the contenders.
const OTHERS: [(usize, &str); 2] = [(0, "updates by delta"), (2, "PARIX")];
const CAU: usize = 1;

fn contenders() -> Vec<Contender> {
    vec![
        Contender::usual("by delta (plr)", UpdateScheme::Plr),
        Contender::usual("cau", UpdateScheme::Cau),
        Contender::usual("parix", UpdateScheme::Parix),
    ]
}

/// A volume on three racks of three nodes behind a gateway of the paper's rate over ours.
fn gateway(name: &'static str, paper_mbit_per_s: u64, is_in_memory: bool) -> Round {
    Round {
        name: format!("{name}, {} Mbit/s", paper_mbit_per_s / SLOWER),
        volume: volume(name),
        addressed_bytes: ADDRESSED_BYTES,
        data_chunk_count: 6,
        setting: TestbedSetting {
            directory: PathBuf::new(),
            rack_count: 3,
            nodes_per_rack: 3,
            limits: TestbedLimits::Uplinks {
                bytes_per_s: paper_mbit_per_s * 1_000_000 / 8 / SLOWER,
            },
            is_in_memory,
            code: "rs(6,3)".to_owned(),
            chunk_bytes: CHUNK_BYTES,
            depth: DEPTH,
            placement_seed: 0,
        },
        contenders: contenders(),
    }
}

fn run_f11(session: &Session<'_>) -> Result<Report, LabError> {
    let rounds = by_rate(session, &[500, 1_000, 2_000], true);
    run_gateways(session, "CAU-F11", &rounds, [1.418, 1.514])
}

fn run_f12(session: &Session<'_>) -> Result<Report, LabError> {
    let rounds = by_rate(session, &[500, 2_000], false);
    let mut report = run_gateways(session, "CAU-F12", &rounds, [1.296, 1.291])?;
    report.scaled.push(
        "records are synced before the acknowledgement, as with O_SYNC; memory may serve reads, because stores do not \
        use O_DIRECT"
            .to_owned(),
    );
    Ok(report)
}

/// Rounds for all volumes and rates, or for the first of both.
fn by_rate(session: &Session<'_>, rates: &[u64], is_in_memory: bool) -> Vec<Round> {
    let is_quick = session.scale == Scale::Quick;
    let volumes = &VOLUMES[..if is_quick { 1 } else { VOLUMES.len() }];
    let rates = &rates[..if is_quick { 1 } else { rates.len() }];
    let pairs = volumes
        .iter()
        .flat_map(|name| rates.iter().map(move |rate| (*name, *rate)));
    pairs
        .map(|(name, rate)| gateway(name, rate, is_in_memory))
        .collect()
}

fn run_gateways(
    session: &Session<'_>,
    id: &str,
    rounds: &[Round],
    paper: [f64; 2],
) -> Result<Report, LabError> {
    let mut report = begin(session, &VOLUMES, "RS(6,3) on 3 racks of 3 nodes", rounds)?;
    // One cluster more has the first volume on links that do not limit, which tells whether these are the cause.
    let wide = gateway(VOLUMES[0], WIDE_MBIT_PER_S, rounds[0].setting.is_in_memory);
    let wide_name = wide.name.clone();
    let all: Vec<Round> = rounds.iter().cloned().chain([wide]).collect();
    let mut measured = race(session, &mut report, &all)?;
    let without_limit = measured.split_off(rounds.len());
    let others = || OTHERS.into_iter().zip(paper);
    compare(&mut report, rounds, &measured, (CAU, "CAU"), others());
    for ((at, other), paper) in others() {
        let gain = gains(&without_limit, CAU, at)[0];
        let what = format!("CAU over {other}, {wide_name}");
        let finding = mean_finding(&what, &[gain], paper);
        let is_cause = finding.verdict == Some(Verdict::Near);
        report
            .findings
            .push(finding.reading("links that do not limit"));
        if is_cause {
            let mean = format!("CAU over {other}, mean");
            report.explain(&mean, &format!(
                "the rates of links, which are the limit here; on links that do not limit, CAU is {gain:.2} times as \
                fast on {}, which is near the paper's",
                VOLUMES[0]
            ));
        }
    }
    if let Some(first) = gains(&measured, CAU, 0).first() {
        let what = format!("CAU over updates by delta, u_s = 100, {}", rounds[0].name);
        report.goals.push(Goal::at_least(what, *first, "x", GOAL));
    }
    let title = "Update throughput of CAU and PARIX";
    let mut plot = plot(session, (id, title), rounds, &measured)?;
    plot.mark_bar(MEAN, "cau", paper[0]);
    report.plots.push(plot);
    if rounds.len() == 1 {
        report.left_out.push(format!(
            "one volume of the {} and one rate of the gateway",
            VOLUMES.len()
        ));
    }
    Ok(report)
}

fn run_f13(session: &Session<'_>) -> Result<Report, LabError> {
    const WAITING: [u64; 6] = [2, 5, 10, 20, 50, 100];
    let waiting: &[u64] = session.scale.pick(&[2, 100], &WAITING, &WAITING);
    let names = &VOLUMES[..session.scale.pick(1, 4, 4)];
    let contender = |&stripes_max: &u64| Contender {
        name: format!("cau, u_s = {stripes_max}"),
        scheme: UpdateScheme::Cau,
        append: Some(AppendSpec {
            stripes_max,
            ..AppendSpec::default()
        }),
    };
    let baseline = Contender::usual("by delta (plr)", UpdateScheme::Plr);
    let round = |name: &&'static str| Round {
        contenders: [baseline.clone()]
            .into_iter()
            .chain(waiting.iter().map(contender))
            .collect(),
        ..gateway(name, 500, true)
    };
    let rounds: Vec<Round> = names.iter().map(round).collect();
    let mut report = begin(session, names, "RS(6,3) on 3 racks of 3 nodes", &rounds)?;
    report.scaled.push(
        "u_s applies to each primary: with nine primaries, up to nine times as many stripes wait"
            .to_owned(),
    );
    let measured = race(session, &mut report, &rounds)?;
    let most = waiting.len();
    for (round, throughs) in rounds.iter().zip(&measured) {
        let of = |at: usize| throughs[0].seconds / throughs[at].seconds;
        let what = format!("CAU over updates by delta, u_s = 100, {}", round.name);
        report
            .goals
            .push(Goal::at_least(what, of(most), "x", BETTER));
        let ten = waiting.iter().position(|&stripes_max| stripes_max == 10);
        let ten = ten.map(|at| of(at + 1));
        report
            .findings
            .extend(slope(&round.name, of(1), ten, of(most)));
    }
    if names.len() < VOLUMES.len() {
        report.left_out.push(format!(
            "one volume of the {}, and only u_s = 2 and 100",
            VOLUMES.len()
        ));
    }
    report
        .plots
        .push(plot_by_waiting(waiting, &rounds, &measured));
    Ok(report)
}

/// Bars of CAU's throughput by `u_s`. Of the paper's only words are known: at 2 as the baseline, and from 10 on the
/// same, which is marked at the height of our bar at 10.
fn plot_by_waiting(waiting: &[u64], rounds: &[Round], measured: &[Vec<Throughput>]) -> Plot {
    let gains = |throughs: &Vec<Throughput>| -> Vec<f64> {
        let others = throughs.iter().skip(1);
        others
            .map(|through| throughs[0].seconds / through.seconds)
            .collect()
    };
    let series = rounds.iter().zip(measured);
    let series = series.map(|(round, throughs)| (round.name.clone(), gains(throughs)));
    let series: Vec<(String, Vec<f64>)> = series.collect();
    let mut plot = Plot::bars(
        "CAU-F13",
        "Update throughput of CAU by stripes that may wait",
        ["u_s", "update throughput, relative to the baseline"],
        waiting.iter().map(ToString::to_string).collect(),
        series.clone(),
    );
    let ten = waiting.iter().position(|&stripes_max| stripes_max == 10);
    for (name, gains) in series {
        for (at, stripes_max) in waiting.iter().enumerate() {
            let value = match (stripes_max, ten) {
                (2, _) => Some(1.0),
                (11.., Some(ten)) => Some(gains[ten]),
                _ => None,
            };
            if let Some(value) = value {
                plot.mark_bar(waiting[at].to_string(), name.clone(), value);
            }
        }
    }
    let words = "the paper's: at u_s = 2 similar to the baseline, and above 10 as at 10, marked at our bar's height";
    plot.notes.push(words.to_owned());
    plot
}

/// Throughput rises with `u_s` up to 10 and is flat from there, says the paper. Ours are throughputs at 2, at 10 if
/// that was measured, and at 100.
fn slope(volume: &str, at_2: f64, at_10: Option<f64>, at_100: f64) -> Vec<Finding> {
    let Some(at_10) = at_10 else {
        let what = format!("u_s = 100 over 2, {volume}");
        let paper = "rises up to 10, then is flat";
        return vec![Finding::number(what, at_100 / at_2, "x", paper)];
    };
    let rises = Paper::above(1.0, &RISE).printed("rises");
    let is_flat = Paper::ratio(1.0)
        .within(&FLAT)
        .as_statement()
        .printed("is flat");
    vec![
        Finding::beside(
            format!("u_s = 10 over 2, {volume}"),
            at_10 / at_2,
            "x",
            rises,
        ),
        Finding::beside(
            format!("u_s = 100 over 10, {volume}"),
            at_100 / at_10,
            "x",
            is_flat,
        ),
    ]
}

fn run_f14(session: &Session<'_>) -> Result<Report, LabError> {
    const PAPER: [[f64; 2]; 2] = [[1.315, 1.324], [1.249, 1.338]];
    /// Within a region, and between two of them: the pattern of the paper's Table 1.
    const INNER_TO_CROSS: f64 = 11.3;
    const CROSS_BYTES_PER_S: u64 = 10_000_000 / 8;
    let names = &VOLUMES[..session.scale.pick(1, 2, 2)];
    let round = |name: &&'static str| Round {
        name: (*name).to_owned(),
        data_chunk_count: 12,
        addressed_bytes: 512 << 10,
        setting: TestbedSetting {
            rack_count: 4,
            nodes_per_rack: 4,
            limits: TestbedLimits::Regions {
                inner_bytes_per_s: (CROSS_BYTES_PER_S as f64 * INNER_TO_CROSS) as u64,
                cross_bytes_per_s: CROSS_BYTES_PER_S,
            },
            code: "rs(12,4)".to_owned(),
            chunk_bytes: 64 << 10,
            ..gateway(name, 500, true).setting
        },
        ..gateway(name, 500, true)
    };
    let rounds: Vec<Round> = names.iter().map(round).collect();
    let deployed = "RS(12,4) on 4 regions of 4 nodes, 10 Mbit/s between each pair of regions and 11.3 times as much \
    within a region";
    let mut report = begin(session, names, deployed, &rounds)?;
    let measured = race(session, &mut report, &rounds)?;
    for ((round, throughs), paper) in rounds.iter().zip(&measured).zip(PAPER) {
        for ((at, other), paper) in OTHERS.into_iter().zip(paper) {
            let gain = throughs[at].seconds / throughs[CAU].seconds;
            let what = format!("CAU over {other}, {}", round.name);
            report
                .findings
                .push(mean_finding(&what, &[gain], paper).because(
                    "if a volume's writes touch few chunks, its replicas go from one region to one other; PARIX loads \
                    that link as much, and additional links",
                ));
        }
    }
    let title = "Update throughput of CAU and PARIX over regions";
    let mut plot = plot(session, ("CAU-F14", title), &rounds, &measured)?;
    for (round, paper) in rounds.iter().zip(PAPER) {
        plot.mark_bar(round.name.as_str(), "cau", paper[0]);
    }
    report.plots.push(plot);
    if names.len() < PAPER.len() {
        report.left_out.push("the volume wdev_3".to_owned());
    }
    Ok(report)
}

fn begin(
    session: &Session<'_>,
    names: &[&str],
    deployed: &str,
    rounds: &[Round],
) -> Result<Report, LabError> {
    let mut scaled = scaled(session, SLOWER);
    if let Some(round) = rounds.first() {
        scaled.push(format!(
            "volumes consist of chunks of {} KiB as in the paper, but a chunk has {} KiB on the cluster; CAU has one \
            interim replica and moves no chunks between racks",
            round.addressed_bytes >> 10,
            round.setting.chunk_bytes >> 10
        ));
        if round.setting.is_in_memory {
            scaled.push(
                "nodes store in memory instead of with the paper's buffered writes, so that links are the limit"
                    .to_owned(),
            );
        }
    }
    Ok(Report {
        setting: vec![format!(
            "{deployed}; each node is a network namespace; {}; whole chunks",
            sources(session, names)?
        )],
        scaled,
        ..Report::default()
    })
}
