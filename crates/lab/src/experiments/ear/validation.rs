//! EAR-B1: the model of links against a testbed. Files are encoded by a real cluster on links that the
//! kernel limits, with and without clients that write meanwhile, and the model is given the plans that
//! the cluster carried out (EAR, experiment B.1).

use super::bench::{EncodeBench, EncodeTime, EncodeTrial, Encodings};
use super::mean;
use super::model::{Model, Modelled};
use crate::error::LabError;
use crate::experiments::{Cell, Experiment, Finding, Report, Session, Table};
use crate::plot::{Chart, Plot};
use gabion_codec::Code;
use gabion_layout::ReplicaPlacement;
use gabion_planner::PlanError;
use gabion_sim::flow::exponential;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    id: "EAR-B1",
    parts: "",
    title: "the model of links against encodings on a testbed",
    run,
};

/// How far the model may be from the testbed, in per cent.
const NEAR_PCT: f64 = 10.0;
const MIB: u64 = 1 << 20;
/// Seconds between two puts, on average.
const PUT_EVERY_S: f64 = 2.0;
/// No encoding takes so long that more begin.
const PUT_COUNT_MAX: usize = 200;
/// 40 Mbit/s: links bind, and not two processors.
const LINK_BYTES_PER_S: u64 = 5_000_000;

fn bench(session: &Session<'_>) -> Result<EncodeBench, LabError> {
    let mut rng = ChaCha8Rng::seed_from_u64(session.seed);
    let puts_at_s = arrivals(&mut rng);
    let with = |puts_at_s: &[f64]| {
        let placements = [ReplicaPlacement::Rr, ReplicaPlacement::Ear];
        placements.map(|placement| EncodeTrial {
            placement,
            puts_at_s: puts_at_s.to_vec(),
        })
    };
    let trials = session.scale.pick(
        with(&puts_at_s).to_vec(),
        [with(&[]), with(&puts_at_s)].concat(),
        [with(&[]), with(&puts_at_s)].concat(),
    );
    Ok(EncodeBench {
        directory: session.empty_directory("testbed")?,
        rack_count: 8,
        nodes_per_rack: 2,
        node_bytes_per_s: LINK_BYTES_PER_S,
        rack_bytes_per_s: LINK_BYTES_PER_S,
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
        .ok_or_else(|| LabError::Cluster("nobody starts clusters here".to_owned()))?;
    let bench = bench(session)?;
    session.progress.begin("encoding on a testbed", 1);
    let encodings = clusters.encodings(&bench)?;
    session.progress.step();
    let model = Model::new(&bench, &encodings)?;
    let modelled: Result<Vec<Modelled>, LabError> = encodings
        .trials
        .iter()
        .map(|time| model.run(time))
        .collect();
    let code: Code = bench.code.parse().map_err(PlanError::from)?;
    let comparison = Comparison {
        segment_bytes: (code.k() as u64 * bench.chunk_bytes) as f64,
        bench: &bench,
        encodings: &encodings,
        modelled: modelled?,
    };
    Ok(comparison.report(session))
}

/// What both came to.
struct Comparison<'a> {
    bench: &'a EncodeBench,
    encodings: &'a Encodings,
    modelled: Vec<Modelled>,
    segment_bytes: f64,
}

/// A figure of a trial: the testbed's, and the model's.
type Pair = [f64; 2];

fn distance_pct([testbed, model]: Pair) -> f64 {
    100.0 * (model / testbed - 1.0)
}

impl Comparison<'_> {
    fn report(&self, session: &Session<'_>) -> Report {
        let bench = self.bench;
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
                    "{segment_count} segments are encoded, {} at once; puts of a segment each begin at \
                     exponential intervals, {PUT_EVERY_S} s on average",
                    self.encodings.conversions_at_once
                ),
            ],
            scaled: scaled(session),
            findings: self.findings(),
            tables: vec![self.table()],
            notes: self.notes(),
            plots: vec![self.plot()],
        }
    }

    fn names(&self) -> Vec<String> {
        let name = |trial: &EncodeTrial| match trial.puts_at_s.len() {
            0 => trial.placement.to_string(),
            _ => format!("{}, with puts", trial.placement),
        };
        self.bench.trials.iter().map(name).collect()
    }

    fn each(&self) -> impl Iterator<Item = (&EncodeTime, &Modelled)> {
        self.encodings.trials.iter().zip(&self.modelled)
    }

    /// By trial, data encoded in a second, in MB.
    fn encode_mb_per_s(&self) -> Vec<Pair> {
        let of = |time: &EncodeTime, seconds: f64| {
            time.segments.len() as f64 * self.segment_bytes / seconds / 1e6
        };
        let pairs = self.each();
        pairs
            .map(|(time, model)| [of(time, time.seconds), of(time, model.seconds)])
            .collect()
    }

    /// By trial, a segment over the mean time of its put, in MB/s; none without puts.
    fn write_mb_per_s(&self) -> Vec<Option<Pair>> {
        let pair = |(time, model): (&EncodeTime, &Modelled)| {
            let seconds: Vec<f64> = time.puts.iter().map(|put| put.seconds).collect();
            let of = |put_s: f64| self.segment_bytes / put_s / 1e6;
            (!seconds.is_empty()).then_some(())?;
            Some([of(mean(&seconds)), of(model.put_s?)])
        };
        self.each().map(pair).collect()
    }

    fn table(&self) -> Table {
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
        let rates = self
            .encode_mb_per_s()
            .into_iter()
            .zip(self.write_mb_per_s());
        for ((name, (time, model)), (encode, write)) in
            self.names().into_iter().zip(self.each()).zip(rates)
        {
            let cells = |pair: Option<Pair>| match pair {
                Some(pair) => [pair[0].into(), pair[1].into(), distance_pct(pair).into()],
                None => ["-", "-", "-"].map(Cell::from),
            };
            let mut row = vec![Cell::from(name)];
            row.extend(cells(Some(encode)));
            row.extend(cells(write));
            row.extend([
                (time.encode_cross_rack_bytes as f64 / 1e6).into(),
                (model.cross_rack_bytes as f64 / 1e6).into(),
                time.cores.into(),
                time.other_cores.into(),
            ]);
            table.row(row);
        }
        table
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let (encode, write) = (self.encode_mb_per_s(), self.write_mb_per_s());
        for (at, name) in self.names().into_iter().enumerate() {
            let pairs = [("encoding", Some(encode[at])), ("writing", write[at])];
            for (what, pair) in pairs {
                let Some(pair) = pair else { continue };
                let distance = distance_pct(pair);
                let finding = Finding::number(
                    format!("model beside testbed, {what}, {name}"),
                    distance,
                    " %",
                    format!("within {NEAR_PCT} %"),
                );
                let is_near = distance.abs() <= NEAR_PCT;
                findings.push(finding.reached(is_near).because(
                    "processors that are busy with other work, or what the model leaves out",
                ));
            }
        }
        findings
    }

    fn notes(&self) -> Vec<String> {
        let ms = |seconds: f64| 1e3 * seconds;
        let mut notes = vec![
            format!(
                "measured on the idle testbed and given to the model: {:.1} ms for the encoding of a segment \
                 of 4 KiB blocks, {:.1} ms for its put",
                ms(self.encodings.idle_encode_s),
                ms(self.encodings.idle_put_s)
            ),
            "the model is given the places that the cluster chose, plans with the same planners, and is \
             fitted to nothing"
                .to_owned(),
        ];
        let encode = self.encode_mb_per_s();
        let pairs = self.bench.trials.chunks(2).zip(encode.chunks(2));
        for (trials, rates) in pairs {
            let ([random, aware], [rr, ear]) = (trials, rates) else {
                continue;
            };
            if random.puts_at_s.len() != aware.puts_at_s.len() {
                continue;
            }
            let gain = |side: usize| 100.0 * (ear[side] / rr[side] - 1.0);
            notes.push(format!(
                "{} puts EAR encodes {:+.1} % on the testbed and {:+.1} % in the model",
                if random.puts_at_s.is_empty() {
                    "without"
                } else {
                    "with"
                },
                gain(0),
                gain(1)
            ));
        }
        notes
    }

    fn plot(&self) -> Plot {
        let encode = self.encode_mb_per_s();
        let write = self.write_mb_per_s();
        let encoding = |side: usize| encode.iter().map(|pair| pair[side]).collect();
        let writing = |side: usize| {
            let rates = write.iter().map(|pair| pair.map_or(0.0, |pair| pair[side]));
            rates.collect()
        };
        Plot {
            name: EXPERIMENT.id.to_owned(),
            title: "Encoding and writing on the testbed and in the model".to_owned(),
            x_label: "placement".to_owned(),
            y_label: "MB/s".to_owned(),
            chart: Chart::Bars {
                categories: self.names(),
                series: vec![
                    ("encoding, testbed".to_owned(), encoding(0)),
                    ("encoding, model".to_owned(), encoding(1)),
                    ("a put, testbed".to_owned(), writing(0)),
                    ("a put, model".to_owned(), writing(1)),
                ],
            },
        }
    }
}

fn scaled(session: &Session<'_>) -> Vec<String> {
    let mut scaled = vec![
        "the part of the paper that we have begins behind this experiment: racks, sizes and rates are ours, \
         and the goal is the issue's"
            .to_owned(),
        "links of 40 Mbit/s, so that they bind and not two processors; nodes store in memory"
            .to_owned(),
        "uplinks carry what racks send to other racks; clients and the coordinator have links without \
         limit, and what they send to a node passes that node's link"
            .to_owned(),
    ];
    let smaller = session.scale.pick(
        Some("8 segments with blocks of 1 MiB, and only with puts"),
        None,
        None,
    );
    scaled.extend(smaller.map(str::to_owned));
    scaled
}
