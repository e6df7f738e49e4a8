package org.apache.hadoop.hdfs.server.datanode.erasurecode;

import gabion.hdfs.AgentCalls;
import gabion.hdfs.RepairMetrics;
import java.io.IOException;
import java.lang.reflect.Field;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.util.Daemon;
import org.apache.hadoop.util.DataChecksum;

/**
 * Takes the tasks of a DataNode's striped reconstruction. It puts a pool of its own in the place of Hadoop's, whose tasks
 * are as Hadoop has made them. It lies in Hadoop's package because the tasks do.
 *
 * <p>Before anything is changed, {@link #prepare} finds all the fields that are read or set. In a Hadoop that has others
 * nothing is taken over.
 */
public final class TakeOver {
  private final DataNode datanode;
  private final AgentCalls agents;
  private final RepairMetrics metrics;
  private final ErasureCodingWorker worker;
  private final Field pool;
  private final ThreadPoolExecutor hadoopsPool;
  private final Fields fields;
  private ThreadPoolExecutor ownPool;

  /** Fields of Hadoop's tasks that Hadoop's own methods do not give. */
  static final class Fields {
    final Field writer = field(StripedBlockReconstructor.class, "stripedWriter", StripedWriter.class);
    final Field sources = field(StripedReader.class, "sources", DatanodeInfo[].class);
    final Field liveIndices = field(StripedReader.class, "liveIndices", byte[].class);
    final Field checksum = field(StripedReader.class, "checksum", DataChecksum.class);
    final Field bufferSize = field(StripedReader.class, "bufferSize", int.class);
    final Field targets = field(StripedWriter.class, "targets", DatanodeInfo[].class);
    final Field targetIndices = field(StripedWriter.class, "targetIndices", short[].class);
    final Field policy =
        field(StripedReconstructor.class, "ecPolicy", ErasureCodingPolicy.class);
  }

  private TakeOver(DataNode datanode, AgentCalls agents, RepairMetrics metrics)
      throws IOException {
    this.datanode = datanode;
    this.agents = agents;
    this.metrics = metrics;
    worker = datanode.getErasureCodingWorker();
    if (worker == null) {
      throw new IOException("the DataNode has no ErasureCodingWorker");
    }
    fields = new Fields();
    pool = field(ErasureCodingWorker.class, "stripedReconstructionPool", ThreadPoolExecutor.class);
    hadoopsPool = (ThreadPoolExecutor) get(pool, worker);
  }

  /**
   * Finds what it needs of this Hadoop, and changes nothing.
   *
   * @throws IOException when this Hadoop is another one than it was made for
   */
  public static TakeOver prepare(DataNode datanode, AgentCalls agents, RepairMetrics metrics)
      throws IOException {
    try {
      return new TakeOver(datanode, agents, metrics);
    } catch (IllegalStateException e) {
      throw new IOException(e.getMessage(), e);
    }
  }

  /** Takes new tasks from now on. Those that Hadoop's pool has already stay there. */
  public void begin() {
    int threadCount = hadoopsPool.getMaximumPoolSize();
    ownPool = new ThreadPoolExecutor(threadCount, threadCount, 60, TimeUnit.SECONDS,
        new LinkedBlockingQueue<>(), new Daemon.DaemonFactory()) {
      @Override
      public Future<?> submit(Runnable task) {
        return super.submit(wrapped(task));
      }
    };
    ownPool.allowCoreThreadTimeOut(true);
    set(pool, worker, ownPool);
  }

  /** Leaves new tasks to Hadoop's pool again. */
  public void end() {
    if (ownPool != null) {
      set(pool, worker, hadoopsPool);
      ownPool.shutdown();
      ownPool = null;
    }
  }

  private Runnable wrapped(Runnable task) {
    if (task instanceof StripedBlockReconstructor) {
      return new AgentTask((StripedBlockReconstructor) task, fields, datanode, agents, metrics);
    }
    return task;
  }

  private static Field field(Class<?> owner, String name, Class<?> type) {
    try {
      Field field = owner.getDeclaredField(name);
      if (field.getType() != type) {
        throw new IllegalStateException(owner.getName() + "." + name + " is a "
            + field.getType().getName() + " in this Hadoop");
      }
      field.setAccessible(true);
      return field;
    } catch (NoSuchFieldException e) {
      throw new IllegalStateException("this Hadoop has no " + owner.getName() + "." + name, e);
    }
  }

  static Object get(Field field, Object owner) {
    try {
      return field.get(owner);
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
  }

  static void set(Field field, Object owner, Object value) {
    try {
      field.set(owner, value);
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
  }
}
