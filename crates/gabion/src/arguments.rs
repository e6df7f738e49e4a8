//! The command line.

mod audit;
mod bench;
mod cert;
mod checks;
mod console;
mod coordinator;
mod engine;
mod events;
mod files;
mod hdfs;
mod image;
mod lab;
mod metadata;
mod mount;
mod pool;
mod repair;
mod schemes;
mod top;

pub(crate) use audit::AuditOptions;
pub(crate) use bench::BenchOptions;
pub(crate) use cert::{
    AuthorityOption, CertCommand, Holder, InitOptions, IssueOptions, TokenOptions,
};
pub(crate) use checks::{Owner, coordinator_addresses};
pub(crate) use console::ConsoleArguments;
pub(crate) use coordinator::CoordinatorOptions;
pub(crate) use engine::{EngineName, EngineOptions};
pub(crate) use events::EventsOptions;
pub(crate) use files::{
    AppendOptions, CopyOptions, CreateOptions, GetOptions, LinkOptions, ListOptions, MoveOptions,
    PunchOptions, PutOptions, ShareOptions, WriteOptions,
};
pub(crate) use hdfs::{FormatName, HdfsAgentOptions, RaidCodec, RestorationOptions};
pub(crate) use image::{
    ImageCommand, NbdCommand, NbdMapOptions, NbdServeOptions, ShareImageOptions,
};
pub(crate) use lab::{
    AdviseOptions, BoundOptions, LabCommand, Pace, ReplayOptions, RunOptions, ScaleOption,
    SummaryOptions, SynthOptions, TestbedOptions, TraceForm, TraceStatsOptions, Unit,
    UpdateTrafficOptions,
};
pub(crate) use metadata::{MetadataCommand, MetadataOptions};
pub(crate) use mount::{MountArguments, UmountArguments, own_words};
pub(crate) use pool::{DirectoryQuotaOptions, PoolOptions, QuotaOptions};
pub(crate) use repair::{LimitOptions, NodeArguments, NodeCommand, RepairCommand, RepairOptions};
pub(crate) use top::TopOptions;

use crate::logging::LogOptions;
use crate::output::Format;
use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use gabion_layout::parse_bytes;
use gabion_planner::update::{self, Descriptor};
use gabion_testbed::ClusterOptions;
use gabion_wire::{RateError, parse_rate};
use std::path::PathBuf;

/// Erasure-coded storage for racks and regions: safe updates in place, repair in about the time of
/// one transfer, cross-rack bytes planned and metered.
#[derive(Parser, Debug)]
#[command(
    name = "gabion",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(
    after_help = "Start with 'gabion demo', or with 'gabion cluster up --dir D'. Exit codes: \
    0 success, 1 failure, 2 usage error, 141 the reader of the output closed the pipe."
)]
pub(crate) struct Arguments {
    /// Output format of figures
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// Parses this process's command line.
    ///
    /// # Errors
    /// A usage error; or the requested help or version.
    pub(crate) fn of_this_process() -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(own_words());
        let matches = matches.map_err(without_hidden_commands)?;
        let mut arguments = Self::from_arg_matches(&matches)?;
        if let Command::Cluster(ClusterCommand::Up(options)) = &mut arguments.command {
            options.given = given(&matches);
        }
        Ok(arguments)
    }
}

/// Removes hidden commands from an error's list of possible commands.
fn without_hidden_commands(mut error: clap::Error) -> clap::Error {
    let listed = error.get(ContextKind::ValidSubcommand);
    if let Some(ContextValue::Strings(names)) = listed {
        let mut names = names.clone();
        let all = Arguments::command();
        let hidden = all
            .get_subcommands()
            .flat_map(clap::Command::get_subcommands);
        let hidden: Vec<&str> = hidden
            .filter(|command| command.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        names.retain(|name| !hidden.contains(&name.as_str()));
        error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(names));
    }
    error
}

/// The options that the user has given to the innermost command.
fn given(matches: &ArgMatches) -> Vec<String> {
    let mut innermost = matches;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    let is_given = |id: &&str| innermost.value_source(id) == Some(ValueSource::CommandLine);
    let ids = innermost.ids().map(clap::Id::as_str);
    ids.filter(is_given).map(str::to_owned).collect()
}

/// The cluster of a command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// Directory of a cluster made by 'gabion cluster up'
    #[arg(long, global = true, env = "GABION_DIR", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Coordinator of any cluster, instead of --dir
    #[arg(
        long,
        global = true,
        env = "GABION_COORDINATOR",
        value_name = "HOST:PORT",
        value_parser = checks::coordinator_addresses
    )]
    pub(crate) coordinator: Option<String>,
    /// Directory of the process's own certificate [default: that in --dir; a server's is in its --data]
    #[arg(long, global = true, env = "GABION_TLS", value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Use no certificates, on loopback only: every process on this machine then has full access
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Start, inspect and stop a whole cluster on this machine
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Run a coordinator on a machine of the cluster; for a trial, 'cluster up' starts one
    Coordinator(CoordinatorOptions),
    /// Run a storage node on a machine of the cluster, or drain one; for a trial, 'cluster up' starts nodes
    Node(NodeArguments),
    /// Create the tables for metadata in a database, and copy, check, back up, restore and recover metadata
    #[command(subcommand)]
    Metadata(MetadataCommand),
    /// Create the certificate authority of a new cluster, before its coordinator starts
    Init(InitOptions),
    /// Issue, list and revoke certificates of the cluster's processes, and make join tokens
    #[command(subcommand)]
    Cert(CertCommand),
    /// Create and list pools: a code, a chunk size and the failure to survive
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Store a file erasure-coded
    Put(PutOptions),
    /// Read a file; lost chunks are decoded
    Get(GetOptions),
    /// Write bytes to a stored file, atomically; a write beyond the end extends the file
    Write(WriteOptions),
    /// Append bytes to a stored file
    Append(AppendOptions),
    /// Create a file that is one hole: its bytes are zero and take no space until they are written
    Create(CreateOptions),
    /// Change the size of a stored file: extend it by a hole, or cut it
    Truncate {
        /// Name of the file
        #[arg(value_parser = checks::file_name)]
        name: String,
        /// New size
        #[arg(long, value_parser = checks::file_bytes)]
        size: u64,
    },
    /// Zero bytes of a stored file, and free the space of stripes that lie wholly within them
    Punch(PunchOptions),
    /// List files
    Ls(ListOptions),
    /// Create a directory and its missing parents; put, create and mv create parents themselves
    Mkdir {
        /// Path of the directory
        #[arg(value_parser = checks::file_name)]
        path: String,
    },
    /// Remove an empty directory
    Rmdir {
        /// Path of the directory
        #[arg(value_parser = checks::file_name)]
        path: String,
    },
    /// Copy a stored file. The copy appears under its name when it is complete, and its holes take no space. If the
    /// process is killed while it copies a file with holes, a file '.copy-...' stays
    Cp(CopyOptions),
    /// Make a snapshot of a stored file, or of a directory with all that is below it (at most 4,096 files and
    /// directories): read-only, as of one instant. Its time does not depend on sizes, and only changes take space
    Snapshot(ShareOptions),
    /// Make a clone of a stored file, of a directory or of a snapshot: a writable one with what is there at present.
    /// The time does not depend on the sizes of files, and only later changes take space
    Clone(ShareOptions),
    /// Rename a file or a directory, or exchange two names, atomically, regardless of the sizes
    Mv(MoveOptions),
    /// Create a hard link, or a symbolic link, which gateways follow
    Ln(LinkOptions),
    /// Remove names of files; a file is deleted with its last name
    Rm {
        /// Names of the files
        #[arg(required_unless_present = "prefix", value_parser = checks::file_name)]
        names: Vec<String>,
        /// Delete all files whose names have this prefix; a file that is created during it may be deleted or stay
        #[arg(long, conflicts_with = "names", value_parser = checks::name_prefix)]
        prefix: Option<String>,
    },
    /// Change the mode of files and directories; the cluster stores it but does not enforce it
    Chmod {
        /// New mode in octal, for example 640
        #[arg(value_parser = checks::mode)]
        mode: u32,
        /// Names of the files and directories; / is the root directory
        #[arg(required = true, value_parser = checks::path)]
        names: Vec<String>,
    },
    /// Change the owner of files and directories; the cluster stores it but does not enforce it
    Chown {
        /// New owner and group as numbers: OWNER, OWNER:GROUP or :GROUP
        #[arg(value_parser = checks::owner)]
        owner: Owner,
        /// Names of the files and directories; / is the root directory
        #[arg(required = true, value_parser = checks::path)]
        names: Vec<String>,
    },
    /// Show the permissions and times of a file or directory; for a file also its stripes, with the location of each
    /// chunk and the failures that each stripe still survives
    Stat {
        /// Name of the file or the directory; / is the root directory
        #[arg(value_parser = checks::path)]
        name: String,
    },
    /// Show the node and rack that hold a byte of a file, the failures that it survives, and the cost of an update
    Explain {
        /// Name of the file, then a colon and the offset of the byte, such as disk:1MiB [default offset: 0]
        #[arg(value_name = "FILE[:OFFSET]", value_parser = checks::path)]
        what: String,
    },
    /// Show or change a directory's limits of bytes and of files, and what is below it
    Quota(DirectoryQuotaOptions),
    /// Show the space of files, chunks and reserves by pool, and what each node has used and free
    Df,
    /// Create, list, resize and delete images, which are files served as block devices
    #[command(subcommand)]
    Image(ImageCommand),
    /// Serve images as network block devices
    #[command(subcommand)]
    Nbd(NbdCommand),
    /// Run the agent that rebuilds HDFS's erasure-coded blocks, on each machine of a data node; or restore a lost chunk
    /// file of QFS or HDFS-RAID
    HdfsAgent(HdfsAgentOptions),
    /// Mount the cluster's files as a file system of this machine
    Mount(MountArguments),
    /// Unmount a directory that 'gabion mount' mounted
    Umount(UmountArguments),
    /// Print the cluster's state in one line, then each problem. Exit codes: 0 green, 3 yellow, 4 red (a stripe
    /// survives no further failure), 1 if the cluster does not answer
    Health,
    /// Watch nodes, stripes, repairs and traffic on a terminal; q ends it
    Top(TopOptions),
    /// Show the events of nodes, disks, repairs, settings and certificates
    Events(EventsOptions),
    /// Show deletions and changed settings with the peer that ordered each, from a coordinator's files
    Audit(AuditOptions),
    /// Serve the console to browsers: nodes, stripes, repairs, pools and files, with an HTTP API
    Console(ConsoleArguments),
    /// Measure pools of a running cluster: rates, latencies and the cost of a request
    Bench(BenchOptions),
    /// Inject faults into a cluster made by 'cluster up'
    #[command(subcommand)]
    Chaos(ChaosCommand),
    /// Repair lost chunks now instead of after the grace period; watch, limit or pause repairs
    Repair(RepairOptions),
    /// Verify every stored byte against its checksum
    Scrub,
    /// Show the plan of an operation, step by step, with its cost
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Analyse traces, compute their cost, and replay them on a cluster
    #[command(subcommand)]
    Lab(LabCommand),
    /// Run a whole cluster on this machine with real data, then remove it
    Demo(DemoOptions),
}

impl Command {
    /// Whether it runs a server; a signal changes the log level of a server.
    pub(crate) fn is_server(&self) -> bool {
        match self {
            Self::Coordinator(_) => true,
            Self::Node(arguments) => arguments.command.is_none(),
            _ => false,
        }
    }

    /// Returns the options for the process's log. Only servers have options for it.
    pub(crate) fn log_options(&self) -> LogOptions {
        match self {
            Self::Coordinator(options) => options.log.clone(),
            Self::Node(arguments) => arguments.serve.log.clone(),
            _ => LogOptions::default(),
        }
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum ClusterCommand {
    /// Start a coordinator and nodes as processes on loopback; for an existing --dir, restart the processes that are
    /// not running, with the cluster's original options
    Up(UpOptions),
    /// Show nodes, redundancy, repair and measured traffic
    Status,
    /// Show the measured rates of links between nodes
    Links,
    /// Show the coordinator's log: nodes that join, miss heartbeats, fail or leave, full disks, repairs
    Log {
        /// Number of newest lines to show
        #[arg(long, default_value_t = 100, value_name = "NUMBER")]
        last: usize,
    },
    /// Stop all processes; data stays in --dir
    Down,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct UpOptions {
    /// Number of racks
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) racks: u32,
    /// Nodes in each rack
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) nodes_per_rack: u32,
    /// Emulated speed of each node's link, such as 10Gbit [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = checks::rate)]
    pub(crate) inner: Option<String>,
    /// Emulated speed of each rack's uplink, such as 1Gbit [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = checks::rate)]
    pub(crate) cross: Option<String>,
    #[command(flatten)]
    pub(crate) behaviour: Behaviour,
    #[command(flatten)]
    pub(crate) merging: Merging,
    /// Storage engine of nodes, fixed when the cluster is made
    #[arg(long, value_enum, default_value_t)]
    pub(crate) engine: EngineName,
    /// Database of the metadata, as postgres://USER@HOST:PORT/DATABASE [default: a file in the cluster's directory]
    #[arg(long, value_name = "URL")]
    pub(crate) metadata: Option<String>,
    /// Directory on another disk for a second copy of the metadata, kept by each change
    #[arg(long, value_name = "DIR", conflicts_with = "metadata")]
    pub(crate) metadata_log: Option<PathBuf>,
    /// Number of coordinators on the database of --metadata: one leads, the others stand by
    #[arg(long, default_value_t = 1, value_name = "N", requires = "metadata", value_parser = clap::value_parser!(u32).range(1..=9))]
    pub(crate) coordinators: u32,
    /// Do not start the console, now and at later starts; 'gabion console' starts it
    #[arg(long, env = "GABION_NO_CONSOLE", hide_env = true, value_parser = BoolishValueParser::new())]
    pub(crate) no_console: bool,
    /// The options that the user gave; all others have their defaults.
    #[arg(skip)]
    pub(crate) given: Vec<String>,
}

impl UpOptions {
    /// The parameters of the new cluster.
    ///
    /// # Errors
    /// If a rate is not a rate.
    pub(crate) fn cluster(self, insecure: bool) -> Result<ClusterOptions, RateError> {
        let rate = |text: Option<String>| text.map_or(Ok(0), |text| parse_rate(&text));
        Ok(ClusterOptions {
            racks: self.racks,
            nodes_per_rack: self.nodes_per_rack,
            node_bytes_per_s: rate(self.inner)?,
            rack_bytes_per_s: rate(self.cross)?,
            merging: gabion_testbed::Merging {
                log_limit: self.merging.log_limit,
                reserve_budget: self.merging.reserve_budget,
            },
            engine: self.engine.into(),
            behaviour: gabion_testbed::Behaviour {
                lease_ms: self.behaviour.lease_ms,
                grace_s: self.behaviour.grace_s,
                repair_parallel: self.behaviour.repair_parallel,
                placement_seed: self.behaviour.placement_seed,
            },
            metadata: self.metadata,
            metadata_log: self.metadata_log,
            no_console: self.given.iter().any(|given| given == "no_console"),
            coordinators: self.coordinators,
            insecure,
            given: self.given,
        })
    }
}

/// When a node merges the records of updates into its chunks.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Merging {
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = parse_bytes, help = format!(
        "Merge logs ({}) once they exceed this size", update::names(Descriptor::keeps_logs)
    ))]
    pub(crate) log_limit: u64,
    #[arg(long, default_value = "16MiB", value_name = "SIZE", value_parser = parse_bytes, help = format!(
        "Bytes a second for merging reserves ({}) without updates", update::names(Descriptor::reserves_space)
    ))]
    pub(crate) reserve_budget: u64,
}

/// Timeouts and limits of the coordinator.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Time without a heartbeat after which a node is declared failed, in milliseconds
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u64).range(200..=3_600_000))]
    pub(crate) lease_ms: u64,
    /// Time for a failed node to return before its chunks are repaired elsewhere, in seconds
    #[arg(long, default_value_t = 60)]
    pub(crate) grace_s: u64,
    /// Number of stripes repaired at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) repair_parallel: u32,
    /// Seed of the placement of stripes, for repeatable experiments: files of the same size get the same placement
    /// [default: random]
    #[arg(long, value_name = "SEED")]
    pub(crate) placement_seed: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct NodeOptions {
    /// Rack of the node; all nodes of a rack fail together
    #[arg(long, required = true)]
    pub(crate) rack: Option<u32>,
    /// Address of the coordinator
    #[arg(long, required = true, value_name = "HOST:PORT", value_parser = checks::coordinator_addresses)]
    pub(crate) join: Option<String>,
    /// Address to listen on, which other nodes must reach; port 0 takes a free port
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT", value_parser = checks::own_address)]
    pub(crate) listen: String,
    /// Directory of all the node's files
    #[arg(long, value_name = "DIR", default_value = "gabion-node")]
    pub(crate) data: PathBuf,
    /// Create a new store if there is none; without this option the node refuses a missing or empty directory
    #[arg(long)]
    pub(crate) init: bool,
    /// Largest size of a journal segment; segments start at 64 KiB, and two stay allocated
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = parse_journal_segment)]
    pub(crate) journal_segment: u64,
    #[command(flatten)]
    pub(crate) merging: Merging,
    #[command(flatten)]
    pub(crate) engine: EngineOptions,
    /// File with a join token, for a node without a certificate; 'gabion cert token' makes one
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) token: Option<PathBuf>,
    /// Serve metrics by HTTP at /metrics of this address, without authentication; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", value_parser = checks::own_address)]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) log: LogOptions,
    /// Directory of emulated links, set by 'cluster up'
    #[arg(long, hide = true)]
    pub(crate) links: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum PoolCommand {
    /// Create a pool; without --code, the failure to survive determines the code
    Create(PoolOptions),
    /// List pools
    Ls,
    #[command(about = format!(
        "Commit appended updates now, in a pool of {}", update::names(Descriptor::appends)
    ))]
    Commit {
        /// Name of the pool
        #[arg(value_parser = checks::pool_name)]
        name: String,
    },
    /// Show or change a pool's limits of data bytes and of files
    Quota(QuotaOptions),
    /// Encode replicated blocks now, in a pool of --write replicate:N
    Encode(FormOptions),
    /// Replicate the blocks of encoded stripes again, for hot files
    Promote(FormOptions),
}

#[derive(Args, Debug)]
pub(crate) struct FormOptions {
    /// Name of the pool
    #[arg(value_parser = checks::pool_name)]
    pub(crate) name: String,
    /// Convert only this file
    #[arg(long, value_parser = checks::file_name)]
    pub(crate) file: Option<String>,
    /// Return without waiting for completion
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ChaosCommand {
    /// Kill a node with SIGKILL
    KillNode {
        /// The node's id
        node: u32,
    },
    /// Kill the coordinator with SIGKILL; 'gabion cluster up' restarts it
    KillCoordinator,
    /// Restart a killed node
    StartNode {
        /// The node's id
        node: u32,
    },
    /// Flip one bit of a node's chunk file, as a bad disk does
    FlipBit {
        /// The node's id
        node: u32,
        /// Index of the chunk file, in the order of their names
        #[arg(long, default_value_t = 0)]
        file: usize,
        /// Index of the byte, counted from the end of the chunk's data [default: 12345, or the first byte of a
        /// smaller chunk]
        #[arg(long)]
        byte: Option<u64>,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum PlanCommand {
    /// Show the plan of an update or a repair of a stored file
    Show(PlanShowOptions),
}

#[derive(Args, Debug)]
pub(crate) struct PlanShowOptions {
    /// Name of the file
    #[arg(value_parser = checks::file_name)]
    pub(crate) name: String,
    /// Plan an update of these bytes, as OFFSET:LENGTH
    #[arg(long, value_name = "OFFSET:LENGTH", conflicts_with = "repair")]
    pub(crate) update: Option<String>,
    /// Plan a repair of this chunk, as STRIPE:CHUNK, both counted from 0 within the file
    #[arg(long, value_name = "STRIPE:CHUNK")]
    pub(crate) repair: Option<String>,
    #[arg(long, help = schemes::planned_repair_help())]
    pub(crate) scheme: Option<String>,
    /// Print a Graphviz digraph instead of text
    #[arg(long)]
    pub(crate) graphviz: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DemoOptions {
    /// Replay the writes of this trace instead of the built-in workload
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) trace_form: TraceForm,
    /// Bytes to store
    #[arg(long, default_value = "256MiB", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Storage engine of nodes
    #[arg(long, value_enum, default_value_t)]
    pub(crate) engine: EngineName,
}

/// The smallest journal segment. A quarter of it holds the largest update that does not replace whole stripes.
const JOURNAL_SEGMENT_MIN: u64 = 32 << 20;

fn parse_journal_segment(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if (JOURNAL_SEGMENT_MIN..=4 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("a journal segment has 32MiB to 4GiB, not {text}"))
    }
}
