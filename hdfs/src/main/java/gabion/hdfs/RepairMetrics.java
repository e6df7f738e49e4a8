package gabion.hdfs;

import org.apache.hadoop.metrics2.annotation.Metric;
import org.apache.hadoop.metrics2.annotation.Metrics;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.metrics2.lib.MutableCounterLong;
import org.apache.hadoop.metrics2.lib.MutableRate;

/** What the plugin has done, in Hadoop's registry as {@code GabionRepair-PORT} of the context {@code dfs}. */
@Metrics(about = "Reconstruction by Gabion's agents", context = "dfs")
public final class RepairMetrics {
  @Metric("Tasks whose blocks agents have rebuilt")
  MutableCounterLong repairedTasks;

  @Metric("Blocks that agents have rebuilt")
  MutableCounterLong repairedBlocks;

  @Metric("Bytes of these blocks")
  MutableCounterLong repairedBytes;

  @Metric("Bytes that this DataNode's agent has received for them")
  MutableCounterLong receivedBytes;

  @Metric("Runs of plans; more than tasks when helpers had to be replaced")
  MutableCounterLong runs;

  @Metric("Tasks that were left to Hadoop's own code")
  MutableCounterLong fallbacks;

  @Metric("Source blocks that did not match their checksums, reported to the NameNode")
  MutableCounterLong corruptSources;

  @Metric("Blocks opened for agents")
  MutableCounterLong opened;

  @Metric("Blocks that agents asked for and did not get")
  MutableCounterLong refused;

  @Metric("Blocks that a recovery has ordered here")
  MutableCounterLong orders;

  @Metric("Time of a task that agents have done")
  MutableRate repairTime;

  private final String name;

  private RepairMetrics(int port) {
    name = "GabionRepair-" + port;
  }

  static RepairMetrics register(int port) {
    RepairMetrics metrics = new RepairMetrics(port);
    return DefaultMetricsSystem.instance()
        .register(metrics.name, "Reconstruction by Gabion's agents", metrics);
  }

  void unregister() {
    DefaultMetricsSystem.instance().unregisterSource(name);
  }

  /** Notes a task that agents have done. */
  public void repaired(int blockCount, long bytes, long millis) {
    repairedTasks.incr();
    repairedBlocks.incr(blockCount);
    repairedBytes.incr(bytes);
    repairTime.add(millis);
  }

  /** Notes what a task has moved, whether or not it succeeded. */
  public void ran(int runCount, long received, int corruptCount) {
    runs.incr(runCount);
    receivedBytes.incr(received);
    corruptSources.incr(corruptCount);
  }

  /** Notes an order of a recovery. */
  public void ordered() {
    orders.incr();
  }

  /** Notes a task that is left to Hadoop. */
  public void fellBack() {
    fallbacks.incr();
  }
}
