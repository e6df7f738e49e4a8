//! Arguments of `gabion hdfs-agent`.

use super::checks;
use clap::Args;

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
}
