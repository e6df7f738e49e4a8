//! Arguments of `gabion hdfs-agent`.

use super::checks;
use clap::{Args, ValueEnum};
use gabion_hdfs::Format;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct HdfsAgentOptions {
    /// Transfer port of the data node on this machine, from dfs.datanode.address
    #[arg(long, default_value_t = 9866, value_name = "PORT")]
    pub(crate) transfer_port: u16,
    /// Address for other agents and the plugin [default: all addresses, 1000 above the transfer port]
    #[arg(long, value_name = "HOST:PORT", value_parser = checks::own_address)]
    pub(crate) listen: Option<String>,
    /// Address of the plugin [default: loopback, 1001 above the transfer port]
    #[arg(long, value_name = "HOST:PORT", value_parser = checks::peer_address)]
    pub(crate) plugin: Option<String>,
    #[command(flatten)]
    pub(crate) restoration: RestorationOptions,
}

/// Options for restoring a lost chunk file instead.
#[derive(Args, Debug)]
pub(crate) struct RestorationOptions {
    /// Restore one lost chunk file of this system from the other chunk files of its stripe, then end
    #[arg(
        long,
        value_enum,
        requires_all = ["data", "out", "chunks"],
        conflicts_with_all = ["transfer_port", "listen", "plugin"]
    )]
    pub(crate) restore: Option<FormatName>,
    /// Number of data chunks of the stripe
    #[arg(long, value_name = "K", requires = "restore")]
    pub(crate) data: Option<usize>,
    /// HDFS-RAID's codec: rs or xor
    #[arg(long, value_enum, default_value = "rs", requires = "restore")]
    pub(crate) codec: RaidCodec,
    /// Position in the stripe, from 0, of the chunk to restore, if several are lost
    #[arg(long, value_name = "POSITION", requires = "restore")]
    pub(crate) lost: Option<usize>,
    /// Bytes of the lost chunk [default: the length of the longest other chunk]
    #[arg(long, value_name = "BYTES", requires = "restore")]
    pub(crate) length: Option<u64>,
    /// New file; its name follows the system's format for names of chunks
    #[arg(long, value_name = "FILE", requires = "restore")]
    pub(crate) out: Option<PathBuf>,
    /// Chunk files of the stripe in order, data before parity; - for each lost file
    #[arg(value_name = "CHUNK", requires = "restore")]
    pub(crate) chunks: Vec<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum FormatName {
    /// Chunk files of QFS, with its own code of 3 parity chunks
    Qfs,
    /// Blocks of HDFS-RAID, with checksums beside or in them
    HdfsRaid,
}

impl FormatName {
    pub(crate) const fn format(self) -> Format {
        match self {
            Self::Qfs => Format::Qfs,
            Self::HdfsRaid => Format::HdfsRaid,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RaidCodec {
    /// Reed-Solomon
    Rs,
    /// One XOR parity
    Xor,
}
