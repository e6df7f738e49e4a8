//! The command line of `gabion repair` and of nodes that leave.

use super::NodeOptions;
use clap::{Args, Subcommand};

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RepairOptions {
    #[command(subcommand)]
    pub(crate) command: Option<RepairCommand>,
    /// conventional, pipeline, ppr or cyclic, from now on
    #[arg(long)]
    pub(crate) scheme: Option<String>,
    /// Stay and show progress until nothing is left to repair
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum RepairCommand {
    /// Stripes at risk, speed, time left, limits, and bytes by pair of racks
    Status {
        /// Look again each second until every chunk is whole and where it should be
        #[arg(long)]
        watch: bool,
    },
    /// Begin no more repairs until 'gabion repair resume'; those under way end
    Pause,
    /// Begin repairs again
    Resume,
    /// Set how fast repairs may be and when they make way, or show it; what is not named stays
    Limit(LimitOptions),
}

#[derive(Args, Debug)]
pub(crate) struct LimitOptions {
    /// Remove all limits and the target for clients
    #[arg(long, conflicts_with_all = ["node", "rack", "total", "p99_ms"])]
    pub(crate) none: bool,
    /// Into, and out of, each node, such as 400Mbit, 50MB or unlimited
    #[arg(long, value_name = "RATE")]
    pub(crate) node: Option<String>,
    /// Into, and out of, each rack
    #[arg(long, value_name = "RATE")]
    pub(crate) rack: Option<String>,
    /// Sent by all nodes together
    #[arg(long, value_name = "RATE")]
    pub(crate) total: Option<String>,
    /// Make way while one in a hundred of the clients' reads and updates takes longer, in milliseconds
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
    /// Let a node join that waits because it has many chunks of which nothing is known: it sets them aside,
    /// and keeps their files for a day
    Accept {
        /// The node's id
        node: u32,
    },
    /// Move all chunks off a node, without decoding anything; when none is left it stops by itself and
    /// may be switched off for good
    Drain {
        /// The node's id
        node: u32,
        /// The node stays after all
        #[arg(long)]
        cancel: bool,
        /// Stay and show progress until it has left
        #[arg(long, conflicts_with = "cancel")]
        watch: bool,
    },
}
