//! The command line of `gabion lab`.

use crate::output::parse_bytes;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    /// Cross-rack chunks that each update scheme would move on a trace
    UpdateTraffic(UpdateTrafficOptions),
    /// Which scheme, code and chunk size suit a trace
    Advise(AdviseOptions),
    /// The least that an update of whole chunks must send across racks, and what each scheme sends
    Bound(BoundOptions),
    /// What a trace is like: writes, working set, updates, their sizes and their locality
    TraceStats(TraceStatsOptions),
    /// Make a trace after a known volume, and say how near it comes
    Synth(SynthOptions),
    /// Run a trace on a cluster, and measure
    Replay(ReplayOptions),
    /// List the experiments of the papers
    List,
    /// Run an experiment of a paper; see its figures beside ours
    Run(RunOptions),
    /// Run a command on racks of nodes with limited links, made of network namespaces; needs root
    Testbed(TestbedOptions),
    /// The part of an experiment that runs inside its testbed
    #[command(hide = true)]
    InTestbed {
        /// What is to be done, as JSON
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

/// How much of the paper's setting an experiment runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ScaleOption {
    /// Seconds: who is faster, not by how much
    Quick,
    /// Minutes, on two processors
    Usual,
    /// The paper's setting, as far as the machine goes
    Full,
}

#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    /// The experiment, such as COD-T32; 'gabion lab list' shows all
    pub(crate) id: String,
    /// Where the result goes, as ID.json, with its plots; what is stored meanwhile is stored there too, so
    /// this decides which disk is measured
    #[arg(long, default_value = "lab-results", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// How much of the paper's setting
    #[arg(long, value_enum, default_value = "usual")]
    pub(crate) scale: ScaleOption,
    /// Decides everything that is left to chance
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The folder with traces, by family: msr and cloudphysics; workloads stand in for those that it
    /// does not have
    #[arg(long, env = "GABION_TRACES", value_name = "DIR")]
    pub(crate) traces: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct UpdateTrafficOptions {
    /// The trace: MSR rows, plain or gzip
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    /// The code, such as rs(6,3)
    #[arg(long)]
    pub(crate) code: String,
    /// Racks, for rotate and random; a grouped layout has its own
    #[arg(long)]
    pub(crate) racks: Option<u32>,
    /// rotate, random, random:SEED, or data and parity racks such as 6x2+2x2
    #[arg(long, default_value = "rotate")]
    pub(crate) layout: String,
    /// Bytes a chunk
    #[arg(long, default_value = "1MiB", value_parser = parse_bytes)]
    pub(crate) chunk: u64,
    /// Schemes, separated by commas: baseline, parix, cau, cau-data-delta, cau-parity-delta,
    /// cau-selective, rackcu
    #[arg(long, default_value = "baseline", value_delimiter = ',')]
    pub(crate) scheme: Vec<String>,
    #[command(flatten)]
    pub(crate) append_phase: AppendPhaseOptions,
    /// CAU: when data grouping moves chunks: off, algorithm-1 as printed, or as in the authors'
    /// program
    #[arg(long, value_name = "off|algorithm-1|authors", default_value = "off")]
    pub(crate) grouping: String,
}

/// CAU's append phase.
#[derive(Args, Debug)]
pub(crate) struct AppendPhaseOptions {
    /// CAU: stripes that may have appended updates before it commits
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub(crate) us: u64,
    /// CAU: interim replicas of an appended chunk
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) replicas: usize,
}

#[derive(Args, Debug)]
pub(crate) struct AdviseOptions {
    /// The trace: MSR rows, plain or gzip
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    /// Racks, over which stripes rotate
    #[arg(long)]
    pub(crate) racks: u32,
    /// What stripes have to survive, such as 1-rack or 2-nodes
    #[arg(long, default_value = "1-rack")]
    pub(crate) survive: String,
    /// A code to try, and more of them after another --code; without it three that fill the racks
    #[arg(long)]
    pub(crate) code: Vec<String>,
    /// Bytes a chunk, sizes separated by commas
    #[arg(long, default_value = "64KiB,1MiB", value_delimiter = ',', value_parser = parse_bytes)]
    pub(crate) chunk: Vec<u64>,
    /// Schemes to try, separated by commas
    #[arg(
        long,
        default_value = "baseline,parix,cau,rackcu",
        value_delimiter = ','
    )]
    pub(crate) scheme: Vec<String>,
    #[command(flatten)]
    pub(crate) append_phase: AppendPhaseOptions,
}

#[derive(Args, Debug)]
pub(crate) struct BoundOptions {
    /// The code, such as rs(12,4)
    #[arg(long)]
    pub(crate) code: String,
    /// Racks, for rotate and random; a grouped layout has its own
    #[arg(long)]
    pub(crate) racks: Option<u32>,
    /// rotate, random, random:SEED, or data and parity racks such as 6x2+2x2
    #[arg(long, default_value = "rotate")]
    pub(crate) layout: String,
    /// Number of the stripe, on which its placement depends
    #[arg(long, default_value_t = 0)]
    pub(crate) stripe: u64,
    /// The data chunks that are updated, separated by commas; all of them without it
    #[arg(long, value_name = "0,1,...", value_delimiter = ',')]
    pub(crate) update: Vec<u8>,
}

#[derive(Args, Debug)]
pub(crate) struct TraceStatsOptions {
    /// The trace: MSR rows, plain or gzip
    pub(crate) file: PathBuf,
    /// The code whose stripes locality counts, such as rs(6,3)
    #[arg(long, default_value = "rs(6,3)")]
    pub(crate) code: String,
    /// Bytes a chunk of these stripes
    #[arg(long, default_value = "1MiB", value_parser = parse_some_bytes)]
    pub(crate) chunk: NonZeroU64,
}

#[derive(Args, Debug)]
pub(crate) struct SynthOptions {
    /// The volume, or harvard for an NFS server's 41 days
    #[arg(long, value_name = "wdev_1|hm_0|...|harvard")]
    pub(crate) volume: String,
    /// File for the rows, replaced when all of them are written; devices and FIFOs are written into
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Decides all that the volume's figures leave open
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Make only one of so many of the requests, on as much less data
    #[arg(long, default_value = "1", value_name = "NUMBER")]
    pub(crate) one_in: NonZeroU64,
    /// Spread the requests over so many bytes, or over as few as they fit in
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) span: Option<u64>,
}

/// When requests are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Pace {
    /// Each as soon as there is room for it
    Fast,
    /// Each at its time in the trace
    Trace,
}

#[derive(Args, Debug)]
pub(crate) struct ReplayOptions {
    /// The trace: MSR rows, plain or gzip
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    /// The pool; may be left out when there is one
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// The stored file that stands for the volume; its bytes are overwritten if there is one, and it
    /// is made if there is none
    #[arg(long, default_value = "replay")]
    pub(crate) name: String,
    /// Bytes of the file, into which the trace's addresses are folded; without it as much as the
    /// trace spans
    #[arg(long, value_parser = parse_some_bytes)]
    pub(crate) size: Option<NonZeroU64>,
    /// When requests are made
    #[arg(long, value_enum, default_value = "fast")]
    pub(crate) pace: Pace,
    /// With --pace trace, how many times as fast as the trace; once unless given
    #[arg(long, value_parser = parse_speed)]
    pub(crate) speed: Option<f64>,
    /// Requests under way at most; those that touch the same bytes keep their order
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: u32,
    /// Only the first so many requests of the trace
    #[arg(long, value_name = "NUMBER")]
    pub(crate) first: Option<u64>,
    /// Leave reads out
    #[arg(long)]
    pub(crate) writes_only: bool,
    /// Read and write through a cache of segments of this size in the client's memory; writes are
    /// durable when the replay ends, and it ends when they are. Without it each write is durable when
    /// it is done
    #[arg(long, value_name = "SIZE", value_parser = parse_some_bytes)]
    pub(crate) cache: Option<NonZeroU64>,
    /// With --cache, how far reads that follow each other are read ahead in a segment
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "0", requires = "cache")]
    pub(crate) read_ahead: u64,
    /// Compare every read, and in the end the whole file, with what must be there
    #[arg(long)]
    pub(crate) verify: bool,
}

fn parse_some_bytes(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(parse_bytes(text)?).ok_or_else(|| "there must be at least one byte".to_owned())
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|s| (1e-6..=1e9).contains(s));
    speed.ok_or_else(|| format!("'{text}' is no speed; write a number such as 1, 0.5 or 100"))
}

#[derive(Args, Debug)]
pub(crate) struct TestbedOptions {
    /// Racks; a file of regions has its own number
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) racks: u32,
    /// Nodes in each rack
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) nodes_per_rack: u32,
    /// Speed of each node's link, such as 1Gbit; unlimited when absent
    #[arg(long, value_name = "RATE")]
    pub(crate) inner: Option<String>,
    /// Speed of each rack's uplink, such as 100Mbit; unlimited when absent
    #[arg(long, value_name = "RATE")]
    pub(crate) cross: Option<String>,
    /// With --cross, limit only what racks send to other racks, and not their traffic with clients and
    /// the coordinator
    #[arg(long, requires = "cross")]
    pub(crate) spare_core: bool,
    /// Serve the connections of each link in turn, so that they get equal shares at once; without this they
    /// share a queue, and their shares are what TCP comes to
    #[arg(long)]
    pub(crate) fair: bool,
    /// A matrix of rates instead: row i, column j is from region i to region j, and the diagonal is
    /// each node's own link
    #[arg(long, value_name = "FILE", conflicts_with_all = ["inner", "cross", "racks", "fair"])]
    pub(crate) regions: Option<PathBuf>,
    /// This process is inside already
    #[arg(long, hide = true)]
    pub(crate) inside: bool,
    /// What runs inside, at the client's seat; clusters that it starts are placed on the testbed
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
