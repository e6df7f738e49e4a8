//! The command line of the metadata's place, and of `gabion metadata`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The database in which a coordinator keeps the metadata.
#[derive(Args, Debug)]
pub(crate) struct MetadataOptions {
    /// Database of the metadata, as postgres://USER@HOST:PORT/DATABASE [default: a file in --data]. The password comes
    /// from PGPASSWORD, from the file PGPASSFILE (or ~/.pgpass), or from --metadata-file
    #[arg(long, value_name = "URL")]
    pub(crate) metadata: Option<String>,
    /// File with the database's URL, which may contain the password
    #[arg(long, value_name = "FILE", conflicts_with = "metadata")]
    pub(crate) metadata_file: Option<PathBuf>,
    /// Directory on another disk for a second copy of the metadata in a file. Each change is durable there too before
    /// it is acknowledged; 'gabion metadata restore' makes the file again, and 'gabion metadata backup' copies the
    /// directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["metadata", "metadata_file"])]
    pub(crate) metadata_log: Option<PathBuf>,
    /// Seconds to wait at the start for a database that cannot be reached
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) metadata_wait_s: u64,
}

#[derive(Subcommand, Debug)]
pub(crate) enum MetadataCommand {
    /// Create the tables for metadata in a database, or upgrade older tables
    Migrate {
        /// The database, as postgres://USER@HOST:PORT/DATABASE
        #[arg(long, value_name = "URL")]
        to: String,
    },
    /// Copy the metadata of a stopped cluster to another place, and compare both row by row
    Copy {
        /// Place of the metadata: redb:FILE or postgres://USER@HOST:PORT/DATABASE
        #[arg(long, value_name = "PLACE")]
        from: String,
        /// Place of the copy: a file that does not exist yet, or a database without rows
        #[arg(long, value_name = "PLACE")]
        to: String,
    },
    /// Copy what is new in a metadata log to a backup, while a coordinator may write the log
    Backup {
        /// Directory of --metadata-log
        #[arg(long, value_name = "DIR")]
        from: PathBuf,
        /// Directory of the backup: a new or empty one, or that of the last backup of the same log
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
        /// Also copy the base if the backup has it already, and replace the one there: it may be damaged
        #[arg(long)]
        new_base: bool,
    },
    /// Make the file of the metadata again from the metadata log or its backup, with every acknowledged change that it
    /// has
    Restore {
        /// Directory of --metadata-log, which no coordinator uses now, or of a backup
        #[arg(long, value_name = "DIR")]
        from: PathBuf,
        /// Place of the file: redb:FILE, which does not exist yet
        #[arg(long, value_name = "PLACE")]
        to: String,
    },
    /// List files that a coordinator with --recover does not serve, and files whose bytes may be older there than in
    /// the cluster
    Recovery,
    /// Read every row of a stopped cluster's metadata, and report each contradiction
    Check {
        /// Place of the metadata: redb:FILE or postgres://USER@HOST:PORT/DATABASE
        #[arg(long, value_name = "PLACE")]
        of: String,
    },
}
