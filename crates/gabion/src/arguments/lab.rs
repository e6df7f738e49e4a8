//! The command line of `gabion lab`.

use super::checks;
use super::pool::{Grouping, parse_grouping};
use super::schemes::layout_help;
use crate::failure::Failure;
use crate::output::parse_seconds;
use clap::{Args, Subcommand, ValueEnum};
use gabion_lab::LabError;
use gabion_lab::trace::Format;
use gabion_lab::update_traffic;
use gabion_layout::{AppendSpec, parse_bytes};
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    /// Compare the cross-rack chunks of each update scheme on a trace
    UpdateTraffic(UpdateTrafficOptions),
    /// Recommend a scheme, code and chunk size for a trace
    Advise(AdviseOptions),
    /// Show the least cross-rack traffic of an update of whole chunks, and that of each scheme
    Bound(BoundOptions),
    /// Show statistics of a trace: writes, working set, updates, their sizes and their locality
    TraceStats(TraceStatsOptions),
    /// Generate a trace with the statistics of a known volume, and compare them
    Synth(SynthOptions),
    /// Replay a trace on a cluster and measure it
    Replay(ReplayOptions),
    /// List the experiments of the papers
    List,
    /// Run an experiment of a paper, and show the paper's figures beside ours
    Run(RunOptions),
    /// Summarize the saved results of all experiments as a Markdown table
    Summary(SummaryOptions),
    /// Run a command on emulated racks of nodes with limited links (network namespaces); needs root
    Testbed(TestbedOptions),
    /// Run the inner part of an experiment inside its testbed
    #[command(hide = true)]
    InTestbed {
        /// Job, as JSON
        job: PathBuf,
    },
    /// Time repairs on the testbed around this process, for 'lab run'
    #[command(hide = true)]
    Bench {
        /// The bench, as JSON
        file: PathBuf,
    },
    /// Time encodings on the testbed around this process, for 'lab run'
    #[command(hide = true)]
    Encodings {
        /// The bench, as JSON
        file: PathBuf,
    },
}

/// Scale of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ScaleOption {
    /// Seconds: shows the faster scheme, but not by how much
    Quick,
    /// Minutes, on two processors
    Usual,
    /// The paper's setting, as far as the machine allows
    Full,
}

#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    /// Experiment, such as COD-T32; 'gabion lab list' shows all
    pub(crate) id: String,
    /// Directory for the result, ID.json, and its plots. Temporary data goes there too, so the option selects the
    /// measured disk
    #[arg(long, default_value = "lab-results", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Share of the paper's setting
    #[arg(long, value_enum, default_value = "usual")]
    pub(crate) scale: ScaleOption,
    /// Seed of all random choices of the first run; each further run has the next one
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of runs; with several, figures are means with 95 % confidence intervals [default: 3 for random
    /// experiments at scale usual, else 1]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) runs: Option<u64>,
    /// Directory with traces, by family: msr and cloudphysics; synthetic workloads replace missing
    /// ones
    #[arg(long, env = "GABION_TRACES", value_name = "DIR")]
    pub(crate) traces: Option<PathBuf>,
    /// Directory hdfs of Gabion's sources, for ECP-10b on HDFS; without it, or without Maven, a JDK or root, a model of
    /// links replaces HDFS
    #[arg(long, env = "GABION_HDFS", default_value = "hdfs", value_name = "DIR")]
    pub(crate) hdfs: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct SummaryOptions {
    /// Directory with results of 'lab run'
    #[arg(long, default_value = "lab-results", value_name = "DIR")]
    pub(crate) from: PathBuf,
}

/// Options for reading a trace.
#[derive(Args, Debug)]
pub(crate) struct TraceForm {
    #[arg(long, value_name = "FORMAT", help = format_help(), value_parser = parse_format)]
    pub(crate) trace_format: Option<Format>,
    /// Volume to read, for a trace of several volumes
    #[arg(long, value_name = "NAME")]
    pub(crate) volume: Option<String>,
}

impl TraceForm {
    /// Whether any option is given.
    pub(crate) fn is_given(&self) -> bool {
        self.trace_format.is_some() || self.volume.is_some()
    }
}

fn format_help() -> String {
    let names = Format::names();
    format!("Format of the trace: {names} [default: found by its first rows]")
}

fn parse_format(name: &str) -> Result<Format, String> {
    name.parse().map_err(|error: LabError| error.to_string())
}

#[derive(Args, Debug)]
pub(crate) struct UpdateTrafficOptions {
    /// Trace, plain or compressed with gzip, bzip2 or Zstandard
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) trace_form: TraceForm,
    /// Code, such as rs(6,3)
    #[arg(long)]
    pub(crate) code: String,
    /// Number of racks, for layouts that do not name their own
    #[arg(long)]
    pub(crate) racks: Option<u32>,
    #[arg(long, default_value = "rotate", help = layout_help())]
    pub(crate) layout: String,
    /// Chunk size
    #[arg(long, default_value = "1MiB", value_parser = parse_bytes)]
    pub(crate) chunk: u64,
    #[arg(long, default_value = "baseline", value_delimiter = ',', help = schemes_help())]
    pub(crate) scheme: Vec<String>,
    /// Unit of the counts
    #[arg(long, value_enum, default_value = "chunks")]
    pub(crate) unit: Unit,
    #[command(flatten)]
    pub(crate) append_phase: AppendPhaseOptions,
}

fn schemes_help() -> String {
    format!(
        "Schemes, separated by commas: {}",
        update_traffic::scheme_names()
    )
}

/// Unit of the lab's counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Unit {
    /// Bytes that a cluster's nodes send for the written ranges; each primary has its own append phases
    Bytes,
    /// Whole chunks, with one append phase for all stripes, as in the papers
    Chunks,
}

/// Append phases of CAU and PARIX.
#[derive(Args, Debug)]
pub(crate) struct AppendPhaseOptions {
    /// Number of stripes with appended updates that starts a commit: of one primary, or of all with --unit chunks
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub(crate) us: u64,
    /// CAU: interim replicas of appended bytes
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) replicas: u8,
    /// With --unit bytes: bytes of a primary's stripes that may wait for a commit
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "64MiB")]
    pub(crate) commit_bytes: u64,
    /// With --unit bytes: longest wait of an update for a commit, such as 12h, 30m or 45s
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, default_value = "1h")]
    pub(crate) commit_age: u64,
    /// With --unit bytes: timing of the writes
    #[arg(long, value_enum, default_value = "trace")]
    pub(crate) pace: Pace,
    /// CAU: rule of data grouping after commits: off, algorithm-1 as printed, or authors as in their program
    #[arg(long, value_name = "off|algorithm-1|authors", value_parser = parse_grouping, default_value = "off")]
    grouping: Grouping,
}

impl AppendPhaseOptions {
    /// The phases of a pool with these limits.
    ///
    /// # Errors
    /// Wrong use for a limit of zero, because no update could wait then.
    pub(crate) fn spec(&self) -> Result<AppendSpec, Failure> {
        let spec = AppendSpec {
            replicas: self.replicas,
            stripes_max: self.us,
            log_bytes_max: self.commit_bytes,
            age_max_s: self.commit_age,
            grouping: self.grouping.0,
        };
        if spec.is_valid() {
            return Ok(spec);
        }
        Err(Failure::usage(
            "the limits of append phases must be above 0; check --us, --commit-bytes and --commit-age",
        ))
    }
}

#[derive(Args, Debug)]
pub(crate) struct AdviseOptions {
    /// Trace, plain or compressed with gzip, bzip2 or Zstandard
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) trace_form: TraceForm,
    /// Number of racks; stripes rotate over them, on as many nodes as a stripe has chunks
    #[arg(long, required_unless_present = "like", value_parser = clap::value_parser!(u32).range(2..=255))]
    pub(crate) racks: Option<u32>,
    /// Place stripes as a pool of each scheme does, on racks of this number of nodes, and count several pools
    #[arg(long, value_name = "NUMBER", requires = "racks",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) nodes_per_rack: Option<u32>,
    /// With --nodes-per-rack, number of pools, each with its own placement seed; the table shows the mean and the
    /// interval of 95 % of pools
    #[arg(long, value_name = "NUMBER", default_value_t = 5, requires = "nodes_per_rack",
        value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub(crate) seeds: u64,
    /// Count on a stored file of the cluster instead, with its placement, code, chunk size and append phases. A replay
    /// of the trace on this file sends the same bytes under its pool's scheme, if the pool has no data grouping
    #[arg(long, value_name = "NAME", conflicts_with_all = [
        "racks", "nodes_per_rack", "code", "chunk", "survive", "unit", "us", "replicas", "commit_bytes", "commit_age",
        "grouping",
    ])]
    pub(crate) like: Option<String>,
    /// Unit of the counts
    #[arg(long, value_enum, default_value = "bytes")]
    pub(crate) unit: Unit,
    /// Failure that stripes must survive, such as 1-rack or 2-nodes
    #[arg(long, default_value = "1-rack")]
    pub(crate) survive: String,
    /// Code to try; may be repeated [default: three codes that fill the racks]
    #[arg(long)]
    pub(crate) code: Vec<String>,
    /// Chunk sizes, separated by commas
    #[arg(long, default_value = "64KiB,1MiB", value_delimiter = ',', value_parser = parse_bytes)]
    pub(crate) chunk: Vec<u64>,
    #[arg(long, default_value = "baseline,parix,cau,rackcu", value_delimiter = ',', help = schemes_help())]
    pub(crate) scheme: Vec<String>,
    #[command(flatten)]
    pub(crate) append_phase: AppendPhaseOptions,
}

#[derive(Args, Debug)]
pub(crate) struct BoundOptions {
    /// Code, such as rs(12,4)
    #[arg(long)]
    pub(crate) code: String,
    /// Number of racks, for layouts that do not name their own
    #[arg(long)]
    pub(crate) racks: Option<u32>,
    #[arg(long, default_value = "rotate", help = layout_help())]
    pub(crate) layout: String,
    /// Number of the stripe, which determines its placement
    #[arg(long, default_value_t = 0)]
    pub(crate) stripe: u64,
    /// Updated data chunks, separated by commas [default: all]
    #[arg(long, value_name = "0,1,...", value_delimiter = ',')]
    pub(crate) update: Vec<u8>,
}

#[derive(Args, Debug)]
pub(crate) struct TraceStatsOptions {
    /// Trace, plain or compressed with gzip, bzip2 or Zstandard
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) trace_form: TraceForm,
    /// Code of the stripes for locality, such as rs(6,3)
    #[arg(long, default_value = "rs(6,3)")]
    pub(crate) code: String,
    /// Chunk size of these stripes
    #[arg(long, default_value = "1MiB", value_parser = checks::some_bytes)]
    pub(crate) chunk: NonZeroU64,
}

#[derive(Args, Debug)]
pub(crate) struct SynthOptions {
    /// Volume to imitate; harvard is an NFS server over 41 days
    #[arg(long, value_name = "wdev_1|hm_0|...|harvard")]
    pub(crate) volume: String,
    /// File for the rows, replaced once all rows are written; devices and FIFOs are written directly
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Seed of all choices that the volume's statistics leave open
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Generate one in this number of requests, on proportionally less data
    #[arg(long, default_value = "1", value_name = "NUMBER", value_parser = checks::at_least_one)]
    pub(crate) one_in: NonZeroU64,
    /// Spread the requests over this number of bytes [default: the volume's]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) span: Option<u64>,
}

/// Timing of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Pace {
    /// Send each request as soon as --depth allows
    Fast,
    /// Send each request at its time in the trace
    Trace,
}

impl From<Pace> for update_traffic::Pace {
    fn from(pace: Pace) -> Self {
        match pace {
            Pace::Fast => Self::Fast,
            Pace::Trace => Self::Trace,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct ReplayOptions {
    /// Trace, plain or compressed with gzip, bzip2 or Zstandard
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) trace_form: TraceForm,
    /// Pool [default: the only pool]
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Stored file in place of the volume; created if it does not exist, otherwise overwritten
    #[arg(long, default_value = "replay")]
    pub(crate) name: String,
    /// Size of a new file; the trace's addresses wrap around at it [default: the span of the trace, or the size of the
    /// existing file]
    #[arg(long, value_parser = checks::some_bytes)]
    pub(crate) size: Option<NonZeroU64>,
    /// Timing of requests
    #[arg(long, value_enum, default_value = "fast")]
    pub(crate) pace: Pace,
    /// Speed-up with --pace trace [default: 1]
    #[arg(long, value_parser = parse_speed)]
    pub(crate) speed: Option<f64>,
    /// Maximum number of requests in flight; requests for the same bytes keep their order
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: u32,
    /// Replay only this number of requests
    #[arg(long, value_name = "NUMBER")]
    pub(crate) first: Option<u64>,
    /// Omit reads
    #[arg(long)]
    pub(crate) writes_only: bool,
    /// Cache reads and writes in a segment cache of this size in the client's memory; writes are
    /// durable when the replay ends. Without it each write is durable when it completes
    #[arg(long, value_name = "SIZE", value_parser = checks::some_bytes)]
    pub(crate) cache: Option<NonZeroU64>,
    /// With --cache, read-ahead of sequential reads within a segment
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "0", requires = "cache")]
    pub(crate) read_ahead: u64,
    /// Compare every read, and finally the whole file, with the expected bytes
    #[arg(long)]
    pub(crate) verify: bool,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|s| (1e-6..=1e9).contains(s));
    speed.ok_or_else(|| format!("'{text}' is not a speed; write a number such as 1, 0.5 or 100"))
}

#[derive(Args, Debug)]
pub(crate) struct TestbedOptions {
    /// Number of racks; --regions sets its own
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) racks: u32,
    /// Nodes in each rack
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) nodes_per_rack: u32,
    /// Speed of each node's link, such as 1Gbit [default: unlimited]
    #[arg(long, value_name = "RATE")]
    pub(crate) inner: Option<String>,
    /// Speed of each rack's uplink, such as 100Mbit [default: unlimited]
    #[arg(long, value_name = "RATE")]
    pub(crate) cross: Option<String>,
    /// With --cross, limit only traffic between racks, not that with clients and the coordinator
    #[arg(long, requires = "cross")]
    pub(crate) spare_core: bool,
    /// Give the connections of each link equal shares (round robin); otherwise they share one queue, and TCP determines
    /// their shares
    #[arg(long)]
    pub(crate) fair: bool,
    /// Matrix of rates instead: row i, column j is the rate from region i to region j; the diagonal is each node's own
    /// link
    #[arg(long, value_name = "FILE", conflicts_with_all = ["inner", "cross", "racks", "fair"])]
    pub(crate) regions: Option<PathBuf>,
    /// Mark of a process that already runs inside
    #[arg(long, hide = true)]
    pub(crate) inside: bool,
    /// Command to run inside, as the client; clusters that it starts run on the testbed
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
