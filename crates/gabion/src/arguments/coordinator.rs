//! The command line of `gabion coordinator`.

use super::{Behaviour, MetadataOptions, checks};
use crate::logging::LogOptions;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct CoordinatorOptions {
    /// Address to listen on; port 0 takes a free port
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "HOST:PORT", value_parser = checks::own_address)]
    pub(crate) listen: String,
    /// Directory of the coordinator's files: certificates, and the metadata unless a database holds them
    #[arg(long, value_name = "DIR", default_value = "gabion-coordinator")]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) metadata: MetadataOptions,
    /// Create a new cluster if there is no metadata; without this option a missing directory is refused
    #[arg(long)]
    pub(crate) init: bool,
    /// Serve reads by an earlier copy of the metadata in a file, and change nothing. It is for an emergency in which
    /// the newer metadata are lost. 'gabion metadata restore' makes the file from a backup
    #[arg(long, conflicts_with_all = ["init", "metrics", "metadata_log"])]
    pub(crate) recover: bool,
    #[command(flatten)]
    pub(crate) behaviour: Behaviour,
    /// Serve metrics by HTTP at /metrics of this address, without authentication; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", value_parser = checks::own_address)]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}
