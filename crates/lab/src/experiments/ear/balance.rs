//! EAR-C1 and EAR-C2: encoding-aware replication spreads replicas and reads over racks as evenly as random
//! replication does (EAR, section V-C, figures 14 and 15).

use super::setting::{NODES_PER_RACK, RACKS, racks, rules};
use crate::error::LabError;
use crate::experiment::tolerance::{HOTTEST, REPLICAS};
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table, mean};
use crate::plot::Plot;
use gabion_layout::NodeId;
use gabion_planner::PlanError;
use gabion_planner::placement::{EncodingAware, RackTable, ReplicaSpread, random_replication};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

pub(crate) const C1: Experiment =
    Experiment::new("EAR-C1", "share of replicas in each rack", run_c1).once();

pub(crate) const C2: Experiment =
    Experiment::new("EAR-C2", "read hotness against file size", run_c2).once();

/// Blocks of experiment C1.
const BLOCKS: usize = 1000;
/// File sizes of experiment C2, in blocks.
const FILE_BLOCKS: [usize; 7] = [10, 30, 100, 300, 1000, 3000, 10_000];
/// The paper's most and least of a rack.
const MOST_PCT: f64 = 5.9;
const LEAST_PCT: f64 = 4.1;
const SIDES: [&str; 2] = ["RR", "EAR"];

/// Places blocks under random replication, or under EAR, and hands over the racks of each one's replicas.
fn place(
    is_aware: bool,
    table: &RackTable,
    count: usize,
    rng: &mut ChaCha8Rng,
    mut hear: impl FnMut(usize, &[usize]),
) -> Result<(), PlanError> {
    let mut placer = EncodingAware::new(table, rules(1))?;
    let rack = |node: &NodeId| (node.0 / NODES_PER_RACK) as usize;
    for block in 0..count {
        let replicas = if is_aware {
            placer.place(rng)?.replicas
        } else {
            random_replication(table, 3, ReplicaSpread::FreshRacks, rng)?
        };
        let homes: Vec<usize> = replicas.iter().map(rack).collect();
        hear(block, &homes);
    }
    Ok(())
}

fn rng(session: &Session<'_>, run: usize, is_aware: bool) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(session.seed);
    rng.set_stream(2 * run as u64 + u64::from(is_aware));
    rng
}

/// By side, the mean over runs of what `run` gives.
fn mean_of_runs(
    session: &Session<'_>,
    run_count: usize,
    run: impl Fn(bool, &mut ChaCha8Rng) -> Result<Vec<f64>, PlanError> + Sync,
) -> Result<[Vec<f64>; 2], LabError> {
    let all = session.sweep_on_all_processors("placing blocks", 2 * run_count, |at| {
        let is_aware = at % 2 == 1;
        Ok(run(is_aware, &mut rng(session, at / 2, is_aware))?)
    })?;
    let side = |side: usize| -> Vec<f64> {
        let runs: Vec<&Vec<f64>> = all.iter().skip(side).step_by(2).collect();
        let value = |at: usize| mean(&runs.iter().map(|values| values[at]).collect::<Vec<f64>>());
        (0..runs[0].len()).map(value).collect()
    };
    Ok([side(0), side(1)])
}

fn setting(run_count: usize) -> Vec<String> {
    vec![
        "20 racks of 20 nodes, 3 replicas, (14,10), one chunk a rack".to_owned(),
        format!("means of {run_count} runs"),
    ]
}

fn scaled(run_count: usize) -> Vec<String> {
    let all = "nothing".to_owned();
    let fewer = format!("{run_count} runs instead of 1,000");
    vec![if run_count < 1000 { fewer } else { all }]
}

fn run_c1(session: &Session<'_>) -> Result<Report, LabError> {
    let run_count = session.scale.pick(40, 1000, 1000);
    let table = racks();
    let shares = mean_of_runs(session, run_count, |is_aware, rng| {
        let mut counts = vec![0_u64; RACKS as usize];
        place(is_aware, &table, BLOCKS, rng, |_, homes| {
            for &rack in homes {
                counts[rack] += 1;
            }
        })?;
        let share = |count: u64| 100.0 * count as f64 / (3 * BLOCKS) as f64;
        let mut shares: Vec<f64> = counts.into_iter().map(share).collect();
        shares.sort_by(|a, b| b.total_cmp(a));
        Ok(shares)
    })?;
    let mut rows = Table::new(
        "Replicas in each rack, per cent",
        &["rank of the rack", "RR", "EAR"],
    );
    for (rank, (random, aware)) in shares[0].iter().zip(&shares[1]).enumerate() {
        rows.row([(rank as u64 + 1).into(), (*random).into(), (*aware).into()]);
    }
    let mut findings = Vec::new();
    for (name, shares) in SIDES.iter().zip(&shares) {
        for (which, ours, paper_pct) in [
            ("most", shares[0], MOST_PCT),
            ("least", shares[19], LEAST_PCT),
        ] {
            let what = format!("{which} of a rack, {name}");
            let paper = Paper::saving(paper_pct).within(&REPLICAS);
            findings.push(Finding::beside(what, ours, " %", paper));
        }
    }
    let mut plot = Plot::lines(
        "EAR-C1",
        "Replicas in each rack",
        ["rank of the rack", "% of all replicas"],
        series(&shares, &(1..=20).map(f64::from).collect::<Vec<_>>()),
    );
    plot.mark_point(1.0, MOST_PCT);
    plot.mark_point(20.0, LEAST_PCT);
    Ok(Report {
        setting: setting(run_count),
        scaled: scaled(run_count),
        findings,
        tables: vec![rows],
        plots: vec![plot],
        ..Report::default()
    })
}

fn series(sides: &[Vec<f64>; 2], across: &[f64]) -> Vec<(String, Vec<(f64, f64)>)> {
    let points = |values: &Vec<f64>| across.iter().copied().zip(values.iter().copied()).collect();
    let sides = SIDES.iter().zip(sides);
    sides
        .map(|(name, values)| ((*name).to_owned(), points(values)))
        .collect()
}

fn run_c2(session: &Session<'_>) -> Result<Report, LabError> {
    let run_count = session.scale.pick(4, 100, 1000);
    let sizes = session
        .scale
        .pick(&FILE_BLOCKS[..5], &FILE_BLOCKS[..], &FILE_BLOCKS[..]);
    let table = racks();
    let hotness = mean_of_runs(session, run_count, |is_aware, rng| {
        let mut reads = vec![0.0_f64; RACKS as usize];
        let mut hotness = Vec::with_capacity(sizes.len());
        place(
            is_aware,
            &table,
            sizes[sizes.len() - 1],
            rng,
            |block, homes| {
                let homes: BTreeSet<usize> = homes.iter().copied().collect();
                for &rack in &homes {
                    reads[rack] += 1.0 / homes.len() as f64;
                }
                if sizes.contains(&(block + 1)) {
                    let hottest = reads.iter().copied().fold(0.0, f64::max);
                    hotness.push(100.0 * hottest / (block + 1) as f64);
                }
            },
        )?;
        Ok(hotness)
    })?;
    let mut rows = Table::new(
        "Reads of the hottest rack, per cent",
        &["blocks", "RR", "EAR"],
    );
    let mut apart: f64 = 0.0;
    for (at, &size) in sizes.iter().enumerate() {
        let [random, aware] = [0, 1].map(|side: usize| hotness[side][at]);
        apart = apart.max(100.0 * (aware / random - 1.0).abs());
        rows.row([(size as u64).into(), random.into(), aware.into()]);
    }
    // So few runs of so small files differ by luck.
    let [quick, usual, full] = &HOTTEST;
    let paper = Paper::at_most(0.0, session.scale.pick(quick, usual, full));
    let finding = Finding::beside(
        "EAR's hotness against RR's, largest difference",
        apart,
        " %",
        paper.printed("almost identical"),
    );
    let logarithms: Vec<f64> = sizes.iter().map(|&size| (size as f64).log10()).collect();
    Ok(Report {
        setting: setting(run_count),
        scaled: scaled(run_count),
        findings: vec![finding],
        tables: vec![rows],
        notes: vec![
            "a read of a block goes with equal probability to each rack with a replica".to_owned(),
        ],
        plots: vec![Plot::lines(
            "EAR-C2",
            "Reads of the hottest rack",
            ["blocks of the file, logarithm to base 10", "% of all reads"],
            series(&hotness, &logarithms),
        )],
        ..Report::default()
    })
}
