//! The command line of `gabion repair` and of leaving nodes.

use super::NodeOptions;
use super::schemes::repair_help;
use clap::{Args, Subcommand};

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RepairOptions {
    #[command(subcommand)]
    pub(crate) command: Option<RepairCommand>,
    #[arg(long, help = repair_help())]
    pub(crate) scheme: Option<String>,
    /// Wait and show progress until all repairs are done
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum RepairCommand {
    /// Show stripes at risk, speed, time left, limits, and bytes for each pair of racks
    Status {
        /// Refresh each second until every chunk is complete and in its place
        #[arg(long)]
        watch: bool,
    },
    /// Start no further repairs until 'gabion repair resume'; running ones finish
    Pause,
    /// Resume repairs
    Resume,
    /// Set bandwidth limits and the latency target of repairs, or show them; omitted limits stay
    Limit(LimitOptions),
}

#[derive(Args, Debug)]
pub(crate) struct LimitOptions {
    /// Remove all limits and the latency target
    #[arg(long, conflicts_with_all = ["node", "rack", "total", "p99_ms"])]
    pub(crate) none: bool,
    /// Limit into, and out of, each node, such as 400Mbit, 50MB or unlimited
    #[arg(long, value_name = "RATE")]
    pub(crate) node: Option<String>,
    /// Limit into, and out of, each rack
    #[arg(long, value_name = "RATE")]
    pub(crate) rack: Option<String>,
    /// Limit of all nodes together
    #[arg(long, value_name = "RATE")]
    pub(crate) total: Option<String>,
    /// Latency target in milliseconds: repairs are throttled while the 99th percentile of clients' reads and updates is
    /// higher
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) p99_ms: Option<u64>,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct NodeArguments {
    #[command(subcommand)]
    pub(crate) command: Option<NodeCommand>,
    #[command(flatten)]
    pub(crate) serve: NodeOptions,
}

#[derive(Subcommand, Debug)]
pub(crate) enum NodeCommand {
    /// Accept a joining node that waits because it has many unknown chunks; the node sets them aside and keeps their
    /// files for a day
    Accept {
        /// The node's id
        node: u32,
    },
    /// Move all chunks off a node, without decoding; the empty node stops and can be removed permanently
    Drain {
        /// The node's id
        node: u32,
        /// Cancel the departure
        #[arg(long)]
        cancel: bool,
        /// Wait and show progress until the node has left
        #[arg(long, conflicts_with = "cancel")]
        watch: bool,
    },
}
