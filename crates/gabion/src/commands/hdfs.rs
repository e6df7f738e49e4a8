//! `gabion hdfs-agent`: the agent beside a `DataNode` of Hadoop.

use super::serve::{raise_descriptor_limit, ready};
use crate::arguments::HdfsAgentOptions;
use crate::failure::{Context, Failure};
use gabion_hdfs::Agent;
use gabion_testbed::EndSignals;
use tokio::net::TcpListener;

/// An agent's port less the transfer port of its `DataNode`, and the same of the plugin's port on loopback. The plugin
/// has the same defaults.
const AGENT_OFFSET: u16 = 1000;
const PLUGIN_OFFSET: u16 = 1001;

pub(crate) async fn agent(options: HdfsAgentOptions) -> Result<(), Failure> {
    raise_descriptor_limit();
    let port = |offset| {
        options.transfer_port.checked_add(offset).ok_or_else(|| {
            Failure::usage(format!(
                "no port is {offset} above {}; name the ports with --listen and --plugin",
                options.transfer_port
            ))
        })
    };
    let listen = match options.listen {
        Some(listen) => listen,
        None => format!("0.0.0.0:{}", port(AGENT_OFFSET)?),
    };
    let plugin = match options.plugin {
        Some(plugin) => plugin,
        None => format!("127.0.0.1:{}", port(PLUGIN_OFFSET)?),
    };
    let mut ends = EndSignals::listen()?;
    let agent = Agent::new(plugin).context("start an agent")?;
    let listener = TcpListener::bind(&listen).await;
    let listener = listener.context(format!("listen on {listen}"))?;
    let address = listener.local_addr().context("tell the agent's address")?;
    ready(&format!("hdfs-agent://{address}"));
    tokio::select! {
        error = agent.serve(listener) => Err(Failure::failed(format!("cannot accept connections: {error}"))),
        () = ends.recv() => Ok(()),
    }
}
