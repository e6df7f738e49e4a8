package gabion.hdfs;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.client.HdfsClientConfigKeys;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.erasurecode.TakeOver;
import org.apache.hadoop.util.ServicePlugin;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Has the blocks that a DataNode is told to reconstruct rebuilt by Gabion's agents. It is loaded by
 * {@code dfs.datanode.plugins}. Whatever it cannot do is done by Hadoop's own code.
 */
public final class GabionPlugin implements ServicePlugin {
  private static final Logger LOG = LoggerFactory.getLogger(GabionPlugin.class);

  private BlockServer blocks;
  private TakeOver takeOver;
  private RepairMetrics metrics;

  @Override
  public void start(Object service) {
    if (!(service instanceof DataNode)) {
      LOG.warn("Gabion's plugin is for DataNodes; remove it from this service's plugins");
      return;
    }
    DataNode datanode = (DataNode) service;
    try {
      begin(datanode);
    } catch (IOException | RuntimeException | LinkageError e) {
      LOG.warn("Gabion does not take over reconstruction, and Hadoop's own code does it", e);
      stop();
    }
  }

  private void begin(DataNode datanode) throws IOException {
    Configuration conf = datanode.getConf();
    Settings settings = new Settings(conf);
    if (!settings.enabled) {
      LOG.info("Gabion is turned off by {}", Settings.ENABLED);
      return;
    }
    if (datanode.getDnConf().getEncryptDataTransfer()
        || !conf.getTrimmed(HdfsClientConfigKeys.DFS_DATA_TRANSFER_PROTECTION_KEY, "").isEmpty()) {
      LOG.warn("Gabion does not take over reconstruction: data transfer is protected here, "
          + "and agents would send blocks in the clear");
      return;
    }
    if (Settings.isSecure(conf)) {
      LOG.warn("Gabion does not take over reconstruction: Kerberos security is on here, "
          + "and nothing authenticates who speaks to an agent's port");
      return;
    }
    int port = datanode.getXferPort();
    metrics = RepairMetrics.register(port);
    AgentCalls agents = new AgentCalls(settings);
    takeOver = TakeOver.prepare(datanode, agents, metrics);
    blocks = new BlockServer(datanode, metrics, takeOver, port + settings.pluginPortOffset);
    takeOver.begin();
    LOG.info("Gabion's agent at port {} takes over reconstruction, scheme {}",
        port + settings.agentPortOffset, settings.scheme);
  }

  @Override
  public void stop() {
    if (takeOver != null) {
      takeOver.end();
      takeOver = null;
    }
    if (blocks != null) {
      try {
        blocks.close();
      } catch (IOException e) {
        LOG.warn("Cannot close the port for agents", e);
      }
      blocks = null;
    }
    if (metrics != null) {
      metrics.unregister();
      metrics = null;
    }
  }

  @Override
  public void close() {
    stop();
  }
}
