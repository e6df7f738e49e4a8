//! Arguments of `gabion hdfs-agent`.

use super::checks;
use clap::{Args, ValueEnum};
use gabion_hdfs::Format;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct HdfsAgentOptions {
    /// Transfer port of HDFS's process on this machine, that of dfs.datanode.address
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

/// How to restore a lost chunk file instead.
#[derive(Args, Debug)]
pub(crate) struct RestorationOptions {
    /// Restore one lost chunk file of this system from the other chunk files of its stripe, and end
    #[arg(
        long,
        value_enum,
        requires_all = ["data", "out", "chunks"],
        conflicts_with_all = ["transfer_port", "listen", "plugin"]
    )]
    pub(crate) restore: Option<FormatName>,
    /// How many chunks of the stripe have data
    #[arg(long, value_name = "K", requires = "restore")]
    pub(crate) data: Option<usize>,
    /// HDFS-RAID's codec: rs or xor
    #[arg(long, value_enum, default_value = "rs", requires = "restore")]
    pub(crate) codec: RaidCodec,
    /// Position of the chunk to restore in the stripe, from 0, if several are lost
    #[arg(long, value_name = "POSITION", requires = "restore")]
    pub(crate) lost: Option<usize>,
    /// Bytes of the lost chunk [default: as many as the longest other chunk has]
    #[arg(long, value_name = "BYTES", requires = "restore")]
    pub(crate) length: Option<u64>,
    /// The new file; its name is that of a chunk of the format
    #[arg(long, value_name = "FILE", requires = "restore")]
    pub(crate) out: Option<PathBuf>,
    /// The chunk files of the stripe in order, those with data first; - for each lost one
    #[arg(value_name = "CHUNK", requires = "restore")]
    pub(crate) chunks: Vec<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum FormatName {
    /// Chunk files of QFS, with its own code of 3 parities
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
    /// One plain sum
    Xor,
}
