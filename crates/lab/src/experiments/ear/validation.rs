//! EAR-B1: the model of links against a testbed. Files are encoded by a real cluster on links that
//! the kernel limits, with and without concurrent writes of clients, and the model is given the
//! plans that the cluster carried out (EAR, experiment B.1).

use super::bench::{EncodeBench, EncodeTime, EncodeTrial, Encodings};
use super::model::{Model, Modelled};
use crate::error::LabError;
use crate::experiment::{Cell, Experiment, Goal, Report, Session, Table, mean};
use crate::flow::exponential;
use crate::plot::Plot;
use gabion_codec::Code;
use gabion_layout::ReplicaPlacement;
use gabion_planner::PlanError;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "EAR-B1",
    "the model of links against encodings on a testbed",
    run,
)
.on_testbed();

/// Most difference of the model from the testbed, in per cent.
const NEAR_PCT: f64 = 10.0;
const MIB: u64 = 1 << 20;
/// Seconds between two puts, on average.
const PUT_EVERY_S: f64 = 1.0;
/// No encoding takes so long that more begin.
const PUT_COUNT_MAX: usize = 200;
const PLACEMENTS: [ReplicaPlacement; 2] = [ReplicaPlacement::Rr, ReplicaPlacement::Ear];
/// 40 Mbit/s: links bind, and not two processors.
const LINK_BYTES_PER_S: u64 = 5_000_000;

/// A bench whose trials are done in rounds, each with puts at other times.
fn bench(
    session: &Session<'_>,
    is_fair: bool,
    round_count: usize,
) -> Result<EncodeBench, LabError> {
    let mut rng = ChaCha8Rng::seed_from_u64(session.seed);
    let mut trials = Vec::new();
    for _ in 0..round_count {
        let puts_at_s = arrivals(&mut rng);
        let with_and_without = [Vec::new(), puts_at_s];
        let first = session.scale.pick(1, 0, 0);
        for puts_at_s in &with_and_without[first..] {
            trials.extend(PLACEMENTS.map(|placement| EncodeTrial {
                placement,
                puts_at_s: puts_at_s.clone(),
            }));
        }
    }
    let name = if is_fair { "fair" } else { "one-queue" };
    Ok(EncodeBench {
        directory: session.empty_directory(&format!("testbed-{name}"))?,
        rack_count: 8,
        nodes_per_rack: 2,
        node_bytes_per_s: LINK_BYTES_PER_S,
        rack_bytes_per_s: LINK_BYTES_PER_S,
        is_fair,
        code: "rs(4,2)".to_owned(),
        replica_count: 3,
        chunk_bytes: session.scale.pick(MIB, 2 * MIB, 4 * MIB),
        file_count: 4,
        segments_per_file: session.scale.pick(2, 6, 6),
        trials,
    })
}

/// When puts begin: at exponential intervals, as in the paper.
fn arrivals(rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut at_s = 0.0;
    let mut next = || {
        at_s += PUT_EVERY_S * exponential(rng);
        at_s
    };
    (0..PUT_COUNT_MAX).map(|_| next()).collect()
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let clusters = session
        .clusters
        .ok_or_else(|| LabError::Cluster("this run starts no clusters".to_owned()))?;
    // By bench, whether connections are served in turn, and rounds.
    let benches = session.scale.pick(
        vec![(true, 1)],
        vec![(true, 3), (false, 1)],
        vec![(true, 6), (false, 3)],
    );
    let sets = session.sweep("encoding on testbeds", benches, |(is_fair, round_count)| {
        let bench = bench(session, is_fair, round_count)?;
        let encodings = clusters.encodings(&bench)?;
        let model = Model::new(&bench, &encodings)?;
        let modelled = encodings.trials.iter().map(|time| model.run(time));
        let modelled = modelled.collect::<Result<_, _>>()?;
        Ok(Set {
            bench,
            encodings,
            modelled,
        })
    })?;
    let mut rows = Vec::new();
    for set in &sets {
        rows.extend(set.rows()?);
    }
    Ok(report(session, &sets, &rows))
}

/// A bench, with the results of the testbed and of the model.
struct Set {
    bench: EncodeBench,
    encodings: Encodings,
    modelled: Vec<Modelled>,
}

/// A figure of the testbed's, and the model's.
type Pair = [f64; 2];

fn distance_pct([testbed, model]: Pair) -> f64 {
    100.0 * (model / testbed - 1.0)
}

/// The results of trials of one kind in all rounds.
struct Row {
    placement: ReplicaPlacement,
    is_fair: bool,
    has_puts: bool,
    /// Data encoded in a second, in MB.
    encode_mb_per_s: Pair,
    /// A segment over the mean time of its put, in MB/s; none without puts.
    write_mb_per_s: Option<Pair>,
    /// Data that encodings sent across racks, in MB.
    crossing_mb: Pair,
    /// Processors in use by the cluster, and by everything else.
    cores: Pair,
}

impl Set {
    fn rows(&self) -> Result<Vec<Row>, LabError> {
        let code: Code = self.bench.code.parse().map_err(PlanError::from)?;
        let segment_mb = (code.k() as u64 * self.bench.chunk_bytes) as f64 / 1e6;
        let mut rows = Vec::new();
        for has_puts in [false, true] {
            for placement in PLACEMENTS {
                let is_of_kind = |trial: &EncodeTrial| {
                    trial.placement == placement && trial.puts_at_s.is_empty() != has_puts
                };
                let times = self.encodings.trials.iter().zip(&self.modelled);
                let trials = self.bench.trials.iter().zip(times);
                let of_kind = trials.filter(|(trial, _)| is_of_kind(trial));
                let times: Vec<_> = of_kind.map(|(_, times)| times).collect();
                if !times.is_empty() {
                    rows.push(self.row(placement, has_puts, segment_mb, &times));
                }
            }
        }
        Ok(rows)
    }

    fn row(
        &self,
        placement: ReplicaPlacement,
        has_puts: bool,
        segment_mb: f64,
        times: &[(&EncodeTime, &Modelled)],
    ) -> Row {
        let mean_of = |part: &dyn Fn(&EncodeTime) -> f64| {
            mean(&times.iter().map(|(time, _)| part(time)).collect::<Vec<_>>())
        };
        let segment_count = mean_of(&|time| time.segments.len() as f64);
        let model_s: Vec<f64> = times.iter().map(|(_, model)| model.seconds).collect();
        let seconds = [mean_of(&|time| time.seconds), mean(&model_s)];
        let puts = times.iter().flat_map(|(time, _)| &time.puts);
        let puts_s: Vec<f64> = puts.map(|put| put.seconds).collect();
        let model_puts = times.iter().flat_map(|(_, model)| &model.puts_s);
        let model_puts_s: Vec<f64> = model_puts.copied().collect();
        let planned = times.iter().map(|(_, model)| model.cross_rack_bytes as f64);
        Row {
            placement,
            is_fair: self.bench.is_fair,
            has_puts,
            encode_mb_per_s: seconds.map(|seconds| segment_count * segment_mb / seconds),
            write_mb_per_s: (!puts_s.is_empty())
                .then(|| [puts_s, model_puts_s].map(|puts_s| segment_mb / mean(&puts_s))),
            crossing_mb: [
                mean_of(&|time| time.encode_cross_rack_bytes as f64),
                mean(&planned.collect::<Vec<_>>()),
            ]
            .map(|bytes| bytes / 1e6),
            cores: [
                mean_of(&|time| time.cores),
                mean_of(&|time| time.other_cores),
            ],
        }
    }
}

impl Row {
    fn name(&self) -> String {
        let puts = if self.has_puts { ", with puts" } else { "" };
        let queues = if self.is_fair { "" } else { ", one queue" };
        format!("{}{puts}{queues}", self.placement)
    }
}

fn report(session: &Session<'_>, sets: &[Set], rows: &[Row]) -> Report {
    let Set {
        bench, encodings, ..
    } = &sets[0];
    let mbit = |bytes_per_s: u64| bytes_per_s * 8 / 1_000_000;
    let segment_count = bench.file_count * bench.segments_per_file;
    Report {
        setting: vec![
            format!(
                "{} racks of {} nodes, {} Mbit/s for each node and {} for each rack to the others, each \
                 way; {}, {} replicas of blocks of {} KiB",
                bench.rack_count,
                bench.nodes_per_rack,
                mbit(bench.node_bytes_per_s),
                mbit(bench.rack_bytes_per_s),
                bench.code,
                bench.replica_count,
                bench.chunk_bytes >> 10,
            ),
            format!(
                "{segment_count} segments are encoded, {} at the same time; puts of one segment start at exponential \
                intervals, {PUT_EVERY_S} s on average",
                encodings.conversions_at_once
            ),
            "links serve their connections in turn; in rows of one queue the connections share the queue, and TCP \
            determines their shares"
                .to_owned(),
        ],
        scaled: scaled(session),
        goals: rows.iter().flat_map(goals).collect(),
        tables: vec![table(rows)],
        notes: notes(encodings, rows),
        plots: vec![plot(rows)],
        ..Report::default()
    }
}

fn table(rows: &[Row]) -> Table {
    let columns = [
        "placement",
        "encode, testbed MB/s",
        "model MB/s",
        "model off by %",
        "a put, testbed MB/s",
        "model MB/s",
        "model off by %",
        "encoding across racks, testbed MB",
        "plans MB",
        "processors in use",
        "by others",
    ];
    let mut table = Table::new("Throughput on the testbed and in the model", &columns);
    for row in rows {
        let cells = |pair: Option<Pair>| match pair {
            Some(pair) => [pair[0].into(), pair[1].into(), distance_pct(pair).into()],
            None => ["-", "-", "-"].map(Cell::from),
        };
        let mut all = vec![Cell::from(row.name())];
        all.extend(cells(Some(row.encode_mb_per_s)));
        all.extend(cells(row.write_mb_per_s));
        all.extend(
            [row.crossing_mb, row.cores]
                .as_flattened()
                .iter()
                .map(|&at| at.into()),
        );
        table.row(all);
    }
    table
}

fn goals(row: &Row) -> Vec<Goal> {
    let pairs = [
        ("encoding", Some(row.encode_mb_per_s)),
        ("writing", row.write_mb_per_s),
    ];
    let goal = |(what, pair): (&str, Option<Pair>)| {
        let distance = distance_pct(pair?);
        let what = format!("model beside testbed, {what}, {}", row.name());
        let goal = Goal::within(what, distance, " %", NEAR_PCT);
        let why = if row.is_fair {
            "other load on the processors, or effects that the model leaves out"
        } else {
            "in one queue shares are not fair, but the model assumes fair shares"
        };
        Some(goal.because(why))
    };
    pairs.into_iter().filter_map(goal).collect()
}

fn notes(encodings: &Encodings, rows: &[Row]) -> Vec<String> {
    let ms = |seconds: f64| 1e3 * seconds;
    let mut notes = vec![
        format!(
            "constants of the model from the idle testbed: {:.1} ms for the encoding of a segment of 4 KiB blocks, \
            {:.1} ms for its put",
            ms(encodings.idle_encode_s),
            ms(encodings.idle_put_s)
        ),
        "the model uses the cluster's placement and the same planners; no parameter is fitted"
            .to_owned(),
    ];
    for pair in rows.chunks(2) {
        let [random, aware] = pair else { continue };
        let gain = |side: usize| {
            100.0 * (aware.encode_mb_per_s[side] / random.encode_mb_per_s[side] - 1.0)
        };
        notes.push(format!(
            "{}: encoding gains {:+.1} % on the testbed and {:+.1} % in the model",
            aware.name(),
            gain(0),
            gain(1)
        ));
    }
    notes
}

fn plot(rows: &[Row]) -> Plot {
    let encoding = |side: usize| rows.iter().map(|row| row.encode_mb_per_s[side]).collect();
    let writing = |side: usize| {
        let rates = rows.iter();
        rates
            .map(|row| row.write_mb_per_s.map_or(0.0, |pair| pair[side]))
            .collect()
    };
    Plot::bars(
        EXPERIMENT.id,
        "Encoding and writing on the testbed and in the model",
        ["placement", "MB/s"],
        rows.iter().map(Row::name).collect(),
        vec![
            ("encoding, testbed".to_owned(), encoding(0)),
            ("encoding, model".to_owned(), encoding(1)),
            ("a put, testbed".to_owned(), writing(0)),
            ("a put, model".to_owned(), writing(1)),
        ],
    )
}

fn scaled(session: &Session<'_>) -> Vec<String> {
    let mut scaled = vec![
        "our part of the paper starts after this experiment, so racks, sizes, rates and the goal are ours"
            .to_owned(),
        "links of 40 Mbit/s, so that links are the limit and not two processors; nodes store in memory"
            .to_owned(),
        "uplinks carry the traffic of a rack to other racks; clients and the coordinator have unlimited links, and \
        their traffic to a node passes that node's link"
            .to_owned(),
    ];
    let smaller = session.scale.pick(
        Some("8 segments with blocks of 1 MiB, and only the rows with puts"),
        None,
        None,
    );
    scaled.extend(smaller.map(str::to_owned));
    scaled
}
