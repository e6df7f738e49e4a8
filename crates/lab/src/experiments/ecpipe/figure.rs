//! The shared parts of `ECPipe`'s figures: the sizes of a scale, and a table of trials with its findings and plot.

use super::bench::{BenchLinks, Helpers, RepairBench, Trial, TrialTime, Work};
use crate::error::LabError;
use crate::experiment::{Finding, Goal, Paper, Report, Session, Table, least_and_most};
use crate::plot::Plot;
use gabion_plan::StepOrder;
use gabion_planner::repair::Scheme;
use std::path::PathBuf;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
/// Hosts of the paper's cluster that hold chunks; one more is the requestor.
pub(super) const HOLDER_COUNT: u32 = 16;
/// The largest slice that nodes take.
pub(super) const SLICE_BYTES_MAX: u64 = 16 * MIB;

/// The names of trials that several figures have.
pub(super) const DIRECT: &str = "direct send";
pub(super) const CONVENTIONAL: &str = "conventional";
/// In slices, as the paper has it in its figure 8a for a fair comparison.
pub(super) const PPR: &str = "PPR";
/// By whole chunks: a helper has each complete before it combines and sends: one round after
/// another.
pub(super) const PPR_IN_ROUNDS: &str = "PPR in rounds";
pub(super) const PIPELINE: &str = "RP";

/// The parameters of an experiment's scale.
#[derive(Clone, Copy)]
pub(super) struct Base {
    pub(super) chunk_bytes: u64,
    pub(super) slice_bytes: u64,
    pub(super) node_bytes_per_s: u64,
    pub(super) round_count: u32,
}

impl Base {
    pub(super) fn of(session: &Session<'_>) -> Self {
        let quick = Self {
            chunk_bytes: 8 * MIB,
            slice_bytes: 8 * KIB,
            node_bytes_per_s: 12_500_000,
            round_count: 1,
        };
        let usual = Self {
            chunk_bytes: 32 * MIB,
            slice_bytes: 16 * KIB,
            node_bytes_per_s: 25_000_000,
            // Three runs, each with a seed of its own, are three rounds.
            round_count: 1,
        };
        let full = Self {
            chunk_bytes: 64 * MIB,
            slice_bytes: 32 * KIB,
            node_bytes_per_s: 125_000_000,
            round_count: 10,
        };
        session.scale.pick(quick, usual, full)
    }

    /// Hosts on one switch: 16 that hold chunks, and a requestor.
    pub(super) fn bench(
        self,
        session: &Session<'_>,
        code: &str,
        trials: Vec<Trial>,
    ) -> RepairBench {
        self.bench_with(1, session, code, trials)
    }

    /// The same with this number of requestors.
    pub(super) fn bench_with(
        self,
        late_count: u32,
        session: &Session<'_>,
        code: &str,
        trials: Vec<Trial>,
    ) -> RepairBench {
        RepairBench {
            directory: cluster_directory(session),
            links: BenchLinks::Racks {
                rack_count: 1,
                nodes_per_rack: HOLDER_COUNT + late_count,
                node_bytes_per_s: self.node_bytes_per_s,
                rack_bytes_per_s: 0,
            },
            late_count,
            code: code.to_owned(),
            chunk_bytes: self.chunk_bytes,
            stripe_count: 1,
            placement_seed: session.seed,
            trials,
            round_count: self.round_count,
        }
    }

    pub(super) fn trial(self, name: impl Into<String>, work: Work) -> Trial {
        Trial {
            name: name.into(),
            work,
            slice_bytes: self.slice_bytes,
            order: StepOrder::Streamed,
        }
    }

    /// The same without slices, or with slices as large as can be.
    pub(super) fn by_chunk(self, trial: Trial) -> Trial {
        Trial {
            slice_bytes: self.chunk_bytes.min(SLICE_BYTES_MAX),
            ..trial
        }
    }

    /// A repair of one chunk by helpers in the order of their chunks.
    pub(super) fn one(self, name: impl Into<String>, scheme: Scheme) -> Trial {
        self.trial(name, one(scheme, Helpers::Fixed))
    }

    /// The three schemes of most figures.
    pub(super) fn three(self) -> Vec<Trial> {
        vec![
            self.one(CONVENTIONAL, Scheme::Conventional),
            self.one(PPR, Scheme::Ppr),
            self.one(PIPELINE, Scheme::Pipeline),
        ]
    }

    pub(super) fn setting(self) -> String {
        let rounds = match self.round_count {
            1 => "one round".to_owned(),
            count => format!("median of {count} rounds"),
        };
        format!(
            "chunks of {} MiB in slices of {} KiB, links of {} Mbit/s; {rounds} in each run",
            self.chunk_bytes / MIB,
            self.slice_bytes / KIB,
            self.node_bytes_per_s * 8 / 1_000_000
        )
    }
}

pub(super) fn one(scheme: Scheme, helpers: Helpers) -> Work {
    Work::One {
        scheme,
        helpers,
        requestor: 0,
    }
}

pub(super) fn cluster_directory(session: &Session<'_>) -> PathBuf {
    session.directory.join("bench")
}

/// The measurements at one place of a figure's horizontal axis.
pub(super) struct Measured {
    pub(super) x: String,
    pub(super) times: Vec<TrialTime>,
}

/// All that was measured for a figure.
pub(super) struct Figure {
    pub(super) all: Vec<Measured>,
}

impl Figure {
    /// Runs benches one after another, each at its place on the axis.
    pub(super) fn measure(
        session: &Session<'_>,
        benches: Vec<(String, RepairBench)>,
    ) -> Result<Self, LabError> {
        let clusters = session.clusters.ok_or(LabError::NoClusters)?;
        let all = session.sweep("testbeds", benches, |(x, mut bench)| {
            bench.directory = session.empty_directory("bench")?;
            let times = clusters.repairs(&bench)?;
            Ok(Measured { x, times })
        })?;
        Ok(Self { all })
    }

    pub(super) fn time(&self, x: &str, name: &str) -> Option<&TrialTime> {
        let at = self.all.iter().find(|measured| measured.x == x)?;
        at.times.iter().find(|time| time.name == name)
    }

    pub(super) fn seconds(&self, x: &str, name: &str) -> Option<f64> {
        self.time(x, name).map(TrialTime::median_s)
    }

    /// By how many percent one trial takes less than another at the same place.
    pub(super) fn saving(&self, x: &str, name: &str, than: &str) -> Option<f64> {
        Some(100.0 * (1.0 - self.seconds(x, name)? / self.seconds(x, than)?))
    }

    /// Adds such a saving beside the paper's, if that prints one, and beside a goal.
    pub(super) fn compare(
        &self,
        report: &mut Report,
        (x, name, than): (&str, &str, &str),
        paper: Option<Paper>,
        goal: f64,
    ) {
        let Some(saving) = self.saving(x, name, than) else {
            return;
        };
        let what = format!("{x}: {name}, less time than {than}");
        if let Some(paper) = paper {
            let rest = 1.0 - paper.middle() / 100.0;
            if let (Some(than_s), Some(plot)) = (self.seconds(x, than), report.plots.first_mut()) {
                plot.mark_bar(x, name, than_s * rest);
            }
            report
                .findings
                .push(Finding::beside(what.as_str(), saving, " %", paper));
        }
        report.goals.push(
            Goal::at_least(what, saving, " %", goal).because(
                "see the cores in use: near the machine's number, links are not the limit",
            ),
        );
    }

    /// The report of a figure: the table, the plot, and the notes for every testbed.
    pub(super) fn report(&self, name: &str, title: &str, x_label: &str, base: Base) -> Report {
        let columns = [
            x_label,
            "trial",
            "seconds",
            "links need",
            "fastest",
            "slowest",
            "cores in use",
            "core-seconds a GiB sent",
            "MiB sent",
        ];
        let mut table = Table::new(title, &columns);
        for Measured { x, times } in &self.all {
            for time in times {
                let [fastest, slowest] = least_and_most(&time.seconds);
                table.row([
                    x.as_str().into(),
                    time.name.as_str().into(),
                    time.median_s().into(),
                    time.links_s.into(),
                    fastest.into(),
                    slowest.into(),
                    time.cores.into(),
                    time.core_s_per_gib.into(),
                    (time.sent_bytes as f64 / MIB as f64).into(),
                ]);
            }
        }
        let mut plot = self.plot(name, title, x_label);
        plot.notes.push(
            "paper: its share of saved time, applied to our bar of the compared scheme".to_owned(),
        );
        let paper_rate = "1 Gbit/s and 64 MiB unless the figure says otherwise";
        Report {
            setting: vec![base.setting()],
            scaled: vec![format!(
                "all hosts are namespaces of one machine, with slow links so that links are the limit and not its \
                processors; the paper has {paper_rate}. Compare ratios, not seconds"
            )],
            tables: vec![table],
            plots: vec![plot],
            notes: vec![
                "the time of a trial starts with the first request and ends with the last node's answer that its chunk \
                is durable; afterwards every repaired chunk is read back, outside the time"
                    .to_owned(),
            ],
            ..Report::default()
        }
    }

    pub(super) fn plot(&self, name: &str, title: &str, x_label: &str) -> Plot {
        let mut names: Vec<&str> = Vec::new();
        for time in self.all.iter().flat_map(|measured| &measured.times) {
            if !names.contains(&time.name.as_str()) {
                names.push(&time.name);
            }
        }
        let bars = |&trial: &&str| {
            let places = self.all.iter();
            let heights = places.map(|at| self.seconds(&at.x, trial).unwrap_or(0.0));
            (trial.to_owned(), heights.collect())
        };
        Plot::bars(
            name,
            title,
            [x_label, "seconds"],
            self.all.iter().map(|at| at.x.clone()).collect(),
            names.iter().map(bars).collect(),
        )
    }
}
