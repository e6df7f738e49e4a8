//! RCU-B1 and RCU-B2: update throughput of `RackCU` against updates by delta, CAU and PARIX on racks with
//! limited links, by the links' rate and by the size of chunks (`RackCU` section V-C).

use crate::error::LabError;
use crate::experiment::{
    Experiment, Goal, Report, Session, TestbedLimits, TestbedSetting, Throughput,
};
use crate::experiments::cross_rack::testbed::{
    Contender, DEPTH, MEAN, Round, compare, gains, plot, race, scaled, sources, volume,
};
use gabion_layout::UpdateScheme;
use std::path::PathBuf;

pub(crate) const B1: Experiment = Experiment::new(
    "RCU-B1",
    "update throughput of RackCU by the rate between racks",
    run_b1,
)
.on_testbed();

pub(crate) const B2: Experiment = Experiment::new(
    "RCU-B2",
    "update throughput of RackCU by size of chunks",
    run_b2,
)
.on_testbed();

const VOLUME: &str = "rsrch_1";
/// Of the paper's rates to ours: its nodes had processors each, and ours share two.
const SLOWER: u64 = 50;
/// Ratios of the speed of `RackCU` to that of each of the others on average, as the paper says of figures 10 and 11.
const PAPER_B1: [f64; 3] = [1.882, 2.068, 3.622];
const PAPER_B2: [f64; 3] = [2.011, 1.342, 3.926];
/// Positions of the others and `RackCU` among the contenders.
const OTHERS: [(usize, &str); 3] = [(0, "updates by delta"), (2, "CAU"), (3, "PARIX")];
const RACKCU: usize = 1;

/// The baseline of the paper is by delta; PLR keeps records as `RackCU` does here.
fn contenders() -> Vec<Contender> {
    vec![
        Contender::usual("by delta (plr)", UpdateScheme::Plr),
        Contender::usual("rackcu", UpdateScheme::Rackcu),
        Contender::usual("cau", UpdateScheme::Cau),
        Contender::usual("parix", UpdateScheme::Parix),
    ]
}

/// A cluster with this chunk size, and uplinks of the paper's rate over ours.
fn round(name: String, chunk_bytes: u64, paper_mbit_per_s: u64) -> Round {
    Round {
        name,
        volume: volume(VOLUME),
        addressed_bytes: chunk_bytes,
        data_chunk_count: 12,
        setting: TestbedSetting {
            directory: PathBuf::new(),
            rack_count: 8,
            nodes_per_rack: 2,
            limits: TestbedLimits::Uplinks {
                bytes_per_s: paper_mbit_per_s * 1_000_000 / 8 / SLOWER,
            },
            is_in_memory: false,
            code: "rs(12,4)".to_owned(),
            chunk_bytes,
            depth: DEPTH,
            placement_seed: 0,
        },
        contenders: contenders(),
    }
}

fn run_b1(session: &Session<'_>) -> Result<Report, LabError> {
    const RATES: [u64; 3] = [50, 100, 200];
    let count = session.scale.pick(1, 3, 3);
    let at_rate = |&rate: &u64| round(format!("{} Mbit/s", rate / SLOWER), 4 << 10, rate);
    let rounds: Vec<Round> = RATES[..count].iter().map(at_rate).collect();
    run(session, "RCU-B1", &rounds, PAPER_B1)
}

fn run_b2(session: &Session<'_>) -> Result<Report, LabError> {
    const CHUNKS_KIB: [u64; 3] = [4, 8, 16];
    let count = session.scale.pick(1, 3, 3);
    let of_size = |&kib: &u64| round(format!("{kib} KiB"), kib << 10, 100);
    let rounds: Vec<Round> = CHUNKS_KIB[..count].iter().map(of_size).collect();
    run(session, "RCU-B2", &rounds, PAPER_B2)
}

fn run(
    session: &Session<'_>,
    id: &str,
    rounds: &[Round],
    paper: [f64; 3],
) -> Result<Report, LabError> {
    let mut report = begin(session)?;
    let measured = race(session, &mut report, rounds)?;
    let (ours, others) = ((RACKCU, "RackCU"), OTHERS.into_iter().zip(paper));
    compare(&mut report, rounds, &measured, ours, others);
    goals(&mut report, rounds, &measured);
    let title = "Update throughput of RackCU, CAU and PARIX";
    let mut plot = plot(session, (id, title), rounds, &measured)?;
    plot.mark_bar(MEAN, "rackcu", paper[0]);
    report.plots.push(plot);
    report.left_out.push(format!(
        "three of the paper's four traces; only {VOLUME} runs"
    ));
    Ok(report)
}

/// The goal where links limit, whatever the paper's means: on the cluster whose busiest uplink
/// `RackCU` fills most.
fn goals(report: &mut Report, rounds: &[Round], measured: &[Vec<Throughput>]) {
    let share = |&at: &usize| measured[at][RACKCU].uplink_share;
    let bound = (0..rounds.len()).max_by(|a, b| share(a).total_cmp(&share(b)));
    let Some(bound) = bound else { return };
    for (at, other, goal) in [(0, "updates by delta", 1.8), (2, "CAU", 1.3)] {
        let gain = gains(measured, RACKCU, at)[bound];
        let what = format!(
            "RackCU over {other} where links bind most, {}",
            rounds[bound].name
        );
        let goal = Goal::at_least(what, gain, "x", goal).because(
            "updates that arrive together touch few stripes: the uplinks of these stripes' two parity racks are full, \
            but other uplinks are not. Also, each scheme sends the same messages and headers",
        );
        report.goals.push(goal);
    }
    report.notes.push(
        "if the busiest uplink stays well below its limit, processors or disks limit the updates, and the figures say \
        little about a scheme"
            .to_owned(),
    );
}

fn begin(session: &Session<'_>) -> Result<Report, LabError> {
    let mut scaled = scaled(session, SLOWER);
    scaled.push(
        "stripes of RackCU have parity in two separate racks; the other schemes place stripes at random, as their \
        pools do, so sometimes parity is in the rack of the updated chunk"
            .to_owned(),
    );
    scaled.push(
        "the paper's CAU has no interim replicas and updates parity at once; ours is the CAU of pools: one replica, \
        and commits when 100 stripes wait at a primary"
            .to_owned(),
    );
    Ok(Report {
        setting: vec![
            format!(
                "RS(12,4) on 8 racks of 2 nodes; each node is a network namespace; {}; whole chunks",
                sources(session, &[VOLUME])?
            ),
            "the limit applies to a rack's traffic with all other racks, but not to its traffic with client and \
            coordinator"
                .to_owned(),
        ],
        scaled,
        ..Report::default()
    })
}
