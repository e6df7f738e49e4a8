package org.apache.hadoop.hdfs.server.datanode.erasurecode;

import gabion.hdfs.AgentCalls;
import gabion.hdfs.Order;
import gabion.hdfs.RepairMetrics;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSUtilClient.CorruptedBlocks;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.fsdataset.FsDatasetSpi;
import org.apache.hadoop.hdfs.server.datanode.metrics.DataNodeMetrics;
import org.apache.hadoop.hdfs.util.DataTransferThrottler;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.util.Daemon;
import org.apache.hadoop.util.DataChecksum;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Takes the tasks of a DataNode's striped reconstruction. It puts a pool of its own in the place of Hadoop's, whose tasks
 * are as Hadoop has made them. It lies in Hadoop's package because the tasks do.
 *
 * <p>Before anything is changed, {@link #prepare} finds all the fields that are read or set, and all the methods that are
 * called. In a Hadoop that has others nothing is taken over.
 */
public final class TakeOver {
  private static final Logger LOG = LoggerFactory.getLogger(TakeOver.class);

  private final DataNode datanode;
  private final AgentCalls agents;
  private final RepairMetrics metrics;
  private final ErasureCodingWorker worker;
  private final Field pool;
  private final ThreadPoolExecutor hadoopsPool;
  private final Fields fields;
  private ThreadPoolExecutor ownPool;
  /** The order for which this thread submits a task, and then the task. */
  private final ThreadLocal<Pending> pending = new ThreadLocal<>();

  private static final class Pending {
    final Order order;
    AgentTask task;

    Pending(Order order) {
      this.order = order;
    }
  }

  /** Fields of Hadoop's tasks that Hadoop's own methods do not give. */
  static final class Fields {
    final Field writer = field(StripedBlockReconstructor.class, "stripedWriter", StripedWriter.class);
    final Field sources = field(StripedReader.class, "sources", DatanodeInfo[].class);
    final Field liveIndices = field(StripedReader.class, "liveIndices", byte[].class);
    final Field checksum = field(StripedReader.class, "checksum", DataChecksum.class);
    final Field bufferSize = field(StripedReader.class, "bufferSize", int.class);
    final Field targets = field(StripedWriter.class, "targets", DatanodeInfo[].class);
    final Field targetsStatus = field(StripedWriter.class, "targetsStatus", boolean[].class);
    final Field writers = field(StripedWriter.class, "writers", StripedBlockWriter[].class);
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
    checkMethods();
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

  /**
   * Has the worker do a recovery's order as if the NameNode had told it to, and waits for the end.
   *
   * @return whether agents have rebuilt the block; if not, Hadoop's own code has
   * @throws IOException when there is no task for it, or neither could do it
   */
  public boolean rebuild(Order order) throws IOException {
    metrics.ordered();
    Pending own = new Pending(order);
    pending.set(own);
    try {
      worker.processErasureCodingTasks(List.of(order.task(datanode.getDatanodeId())));
    } finally {
      pending.remove();
    }
    if (own.task == null) {
      throw new IOException("the DataNode has made no task of the order; see its log");
    }
    return own.task.await();
  }

  private Runnable wrapped(Runnable task) {
    if (!(task instanceof StripedBlockReconstructor)) {
      return task;
    }
    try {
      Pending own = pending.get();
      AgentTask ours = new AgentTask((StripedBlockReconstructor) task, fields, datanode, agents,
          metrics, own == null ? null : own.order);
      if (own != null) {
        own.task = ours;
      }
      return ours;
    } catch (Throwable e) {
      LOG.warn("Gabion cannot take a task; Hadoop does it", e);
      metrics.fellBack();
      return task;
    }
  }

  /** Finds the methods of Hadoop that {@link AgentTask} calls and that are not everyone's. */
  private static void checkMethods() {
    Class<?> task = StripedBlockReconstructor.class;
    method(task, void.class, "run");
    method(task, StripedReader.class, "getStripedReader");
    method(task, ErasureCodingWorker.class, "getErasureCodingWorker");
    method(task, ExtendedBlock.class, "getBlockGroup");
    method(task, ExtendedBlock.class, "getBlock", int.class);
    method(task, long.class, "getBlockLen", int.class);
    method(task, boolean.class, "isValidationEnabled");
    method(task, void.class, "initDecoderIfNecessary");
    method(task, long.class, "getPositionInBlock");
    method(task, void.class, "updatePositionInBlock", long.class);
    method(task, long.class, "getMaxTargetLength");
    method(task, int.class, "getXmits");
    method(task, void.class, "incrBytesRead", boolean.class, long.class);
    method(task, long.class, "getBytesRead");
    method(task, long.class, "getRemoteBytesRead");
    method(task, long.class, "getBytesWritten");
    method(task, void.class, "cleanup");
    Class<?> writer = StripedWriter.class;
    method(writer, void.class, "init");
    method(writer, int[].class, "getRealTargetIndices");
    method(writer, ByteBuffer[].class, "getRealTargetBuffers", int.class);
    method(writer, int.class, "transferData2Targets");
    method(writer, void.class, "clearBuffers");
    method(writer, void.class, "endTargetBlocks");
    method(writer, void.class, "close");
    method(ErasureCodingWorker.class, float.class, "getXmitWeight");
    Class<?> datanode = DataNode.class;
    method(datanode, DataNodeMetrics.class, "getMetrics");
    method(datanode, FsDatasetSpi.class, "getFSDataset");
    method(datanode, Token.class, "getBlockAccessToken", ExtendedBlock.class, EnumSet.class,
        StorageType[].class, String[].class);
    method(datanode, DataTransferThrottler.class, "getEcReconstuctReadThrottler");
    method(datanode, DataTransferThrottler.class, "getEcReconstuctWriteThrottler");
    method(datanode, void.class, "reportCorruptedBlocks", CorruptedBlocks.class);
    method(datanode, void.class, "decrementXmitsInProgress", int.class);
  }

  /**
   * Finds a method where the virtual machine would.
   *
   * @throws IllegalStateException when this Hadoop has none
   */
  static void method(Class<?> owner, Class<?> result, String name, Class<?>... parameters) {
    for (Class<?> place = owner; place != null; place = place.getSuperclass()) {
      for (Method method : place.getDeclaredMethods()) {
        if (method.getName().equals(name) && method.getReturnType() == result
            && Arrays.equals(method.getParameterTypes(), parameters)
            && !Modifier.isPrivate(method.getModifiers())) {
          return;
        }
      }
    }
    throw new IllegalStateException("this Hadoop has no " + owner.getName() + "." + name
        + " as it is called");
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
