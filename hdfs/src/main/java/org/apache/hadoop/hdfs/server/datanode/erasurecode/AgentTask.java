package org.apache.hadoop.hdfs.server.datanode.erasurecode;

import gabion.hdfs.AgentCalls;
import gabion.hdfs.Order;
import gabion.hdfs.RepairMetrics;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSUtilClient.CorruptedBlocks;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier.AccessMode;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.metrics.DataNodeMetrics;
import org.apache.hadoop.util.DataChecksum;
import org.apache.hadoop.util.Time;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A task of striped reconstruction, done by agents: they give the lost blocks' bytes, and Hadoop's own writer sends them to
 * the targets. After any failure Hadoop's own task runs from the start.
 */
final class AgentTask implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger(AgentTask.class);
  /** How long the targets' DataNodes may take to drop what a failed try has written. */
  private static final long DROP_MS = 10_000;
  /** Twice the longest task: agents' and Hadoop's own. */
  private static final long AWAIT_MINUTES = 120;

  private final StripedBlockReconstructor task;
  private final TakeOver.Fields fields;
  private final DataNode datanode;
  private final AgentCalls agents;
  private final RepairMetrics metrics;
  private final ErasureCodingPolicy policy;
  private final StripedWriter writer;
  private final StripedReader reader;
  /** The order of a recovery; null if the NameNode has ordered the task. */
  private final Order order;
  private final CompletableFuture<Boolean> done = new CompletableFuture<>();
  private DatanodeInfo[] sources;
  private byte[] live;
  private int[] targets;
  private boolean hasWritten;

  AgentTask(StripedBlockReconstructor task, TakeOver.Fields fields, DataNode datanode,
      AgentCalls agents, RepairMetrics metrics, Order order) {
    this.order = order;
    this.task = task;
    this.fields = fields;
    this.datanode = datanode;
    this.agents = agents;
    this.metrics = metrics;
    policy = (ErasureCodingPolicy) TakeOver.get(fields.policy, task);
    writer = (StripedWriter) TakeOver.get(fields.writer, task);
    reader = task.getStripedReader();
  }

  @Override
  public void run() {
    try {
      done.complete(rebuiltByAgents());
    } catch (Throwable e) {
      LOG.warn("Blocks of {} are not rebuilt", task.getBlockGroup(), e);
      done.completeExceptionally(e);
    }
  }

  /**
   * Waits for the end of the task, and of Hadoop's own if that follows; tells whether agents have done it.
   *
   * @throws IOException when the blocks are not rebuilt
   */
  boolean await() throws IOException {
    try {
      return done.get(AWAIT_MINUTES, TimeUnit.MINUTES);
    } catch (ExecutionException e) {
      throw new IOException("the task has failed: " + e.getCause().getMessage(), e);
    } catch (TimeoutException e) {
      throw new IOException("the task has not ended", e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("the plugin has been stopped");
    }
  }

  private boolean rebuiltByAgents() throws IOException {
    boolean isDone = false;
    try {
      rebuild();
      isDone = true;
    } catch (Throwable e) {
      LOG.warn("Gabion's agents have not rebuilt blocks of {}; Hadoop's own task does it",
          task.getBlockGroup(), e);
    }
    if (isDone) {
      try {
        finish();
      } catch (Throwable e) {
        // The blocks are rebuilt all the same.
        LOG.warn("A task is not cleaned up", e);
      }
      return true;
    }
    metrics.fellBack();
    try {
      reset();
    } catch (Throwable e) {
      LOG.warn("A failed try is not cleaned up", e);
    }
    task.run();
    // Hadoop's task throws nothing when it fails.
    if (task.getPositionInBlock() < task.getMaxTargetLength()) {
      throw new IOException("neither agents nor Hadoop's own code could do it; see the log");
    }
    return false;
  }

  private void rebuild() throws IOException {
    if (task.isValidationEnabled()) {
      throw new IOException("blocks are to be validated by Hadoop's decoder");
    }
    long begin = Time.monotonicNow();
    AgentCalls.Request request = request();
    // Hadoop's buffers are of the kind that its decoder prefers.
    task.initDecoderIfNecessary();
    AgentCalls.Sink sink = new Targets();
    try (AgentCalls.Rebuild rebuild =
        agents.start(agents.agentOf("127.0.0.1", datanode.getXferPort()), request)) {
      while (rebuild.next(sink)) {
        // The sink has taken it.
      }
    }
    if (task.getPositionInBlock() < task.getMaxTargetLength()) {
      throw new IOException("the agent has sent " + task.getPositionInBlock() + " bytes of "
          + task.getMaxTargetLength());
    }
    writer.endTargetBlocks();
    // A target that failed on the way has no block.
    int[] written = writer.getRealTargetIndices();
    long bytes = 0;
    for (int target : written) {
      bytes += task.getBlockLen(target);
    }
    long millis = Time.monotonicNow() - begin;
    metrics.repaired(written.length, bytes, millis);
    LOG.info("Gabion's agents have rebuilt {} blocks of {}: {} bytes in {} ms", written.length,
        task.getBlockGroup(), bytes, millis);
  }

  private AgentCalls.Request request() throws IOException {
    sources = (DatanodeInfo[]) TakeOver.get(fields.sources, reader);
    live = (byte[]) TakeOver.get(fields.liveIndices, reader);
    short[] indices = (short[]) TakeOver.get(fields.targetIndices, writer);
    DatanodeInfo[] requestors = (DatanodeInfo[]) TakeOver.get(fields.targets, writer);
    BitSet known = new BitSet();
    List<AgentCalls.Source> helpers = new ArrayList<>();
    for (int i = 0; i < live.length; i++) {
      // A block with several replicas, as during decommissioning, helps once.
      if (!known.get(live[i])) {
        known.set(live[i]);
        helpers.add(new AgentCalls.Source(live[i], sources[i],
            datanode.getBlockAccessToken(task.getBlock(live[i]), EnumSet.of(AccessMode.READ),
                StorageType.EMPTY_ARRAY, new String[0])));
      }
    }
    targets = new int[indices.length];
    for (int i = 0; i < indices.length; i++) {
      targets[i] = indices[i];
      if (known.get(targets[i])) {
        throw new IOException("block " + targets[i] + " is not missing");
      }
      known.set(targets[i]);
    }
    String location = requestors[0].getNetworkLocation();
    for (DatanodeInfo requestor : requestors) {
      if (requestor.getDatanodeUuid().equals(datanode.getDatanodeUuid())) {
        location = requestor.getNetworkLocation();
      }
    }
    if (order != null) {
      helpers.sort(Comparator.comparingInt(helper -> order.placeOf(helper.index())));
    }
    AgentCalls.Request request =
        new AgentCalls.Request(policy, task.getBlockGroup(), location, helpers, targets);
    if (order != null) {
      request.by(order);
    }
    return request;
  }

  private String scheme() {
    return order == null ? agents.scheme() : order.scheme();
  }

  /** Gives the rebuilt bytes to Hadoop's writer. */
  private final class Targets implements AgentCalls.Sink {
    @Override
    public void begin(DataChecksum checksum, int rowBytes) throws IOException {
      TakeOver.set(fields.checksum, reader, checksum);
      TakeOver.set(fields.bufferSize, reader, rowBytes);
      hasWritten = true;
      writer.init();
    }

    @Override
    public void row(long offset, ByteBuffer[] bytes) throws IOException {
      if (!hasWritten || offset != task.getPositionInBlock()) {
        throw new IOException("the agent sent bytes from " + offset + " on, not from "
            + task.getPositionInBlock());
      }
      int length = 0;
      for (ByteBuffer slice : bytes) {
        length = Math.max(length, slice.remaining());
      }
      throttle(length);
      int[] real = writer.getRealTargetIndices();
      ByteBuffer[] buffers = writer.getRealTargetBuffers(length);
      for (int i = 0; i < real.length; i++) {
        int place = placeOf(real[i]);
        long left = task.getBlockLen(real[i]) - offset;
        if (bytes[place].remaining() != Math.max(0, Math.min(left, length))) {
          throw new IOException("the agent sent " + bytes[place].remaining() + " bytes of "
              + Math.min(left, length));
        }
        buffers[i].clear();
        buffers[i].put(bytes[place]);
        buffers[i].flip();
      }
      if (writer.transferData2Targets() == 0) {
        throw new IOException("no target takes the rebuilt bytes");
      }
      task.updatePositionInBlock(length);
      writer.clearBuffers();
    }

    private int placeOf(int target) throws IOException {
      for (int i = 0; i < targets.length; i++) {
        if (targets[i] == target) {
          return i;
        }
      }
      throw new IOException("block " + target + " was not asked for");
    }

    /** Hadoop's limits of reconstruction: what comes into this DataNode, and what leaves it for targets. */
    private void throttle(int length) {
      int streamCount = scheme().equals("conventional") ? policy.getNumDataUnits() : 1;
      if (datanode.getEcReconstuctReadThrottler() != null) {
        datanode.getEcReconstuctReadThrottler().throttle((long) length * streamCount);
      }
      if (datanode.getEcReconstuctWriteThrottler() != null) {
        datanode.getEcReconstuctWriteThrottler().throttle((long) length * targets.length);
      }
    }

    @Override
    public void end(int runCount, long receivedBytes, List<Integer> corrupt) throws IOException {
      task.incrBytesRead(false, receivedBytes);
      CorruptedBlocks found = new CorruptedBlocks();
      for (int index : corrupt) {
        for (int i = 0; i < live.length; i++) {
          if (live[i] == index) {
            found.addCorruptedBlock(task.getBlock(index), sources[i]);
            break;
          }
        }
      }
      metrics.ran(runCount, receivedBytes, corrupt.size());
      try {
        datanode.reportCorruptedBlocks(found);
      } catch (IOException | RuntimeException e) {
        // The rebuilt bytes are right all the same; Hadoop's scanner or the next task reports the blocks.
        LOG.warn("Corrupt blocks of {} are not reported", task.getBlockGroup(), e);
      }
    }
  }

  /**
   * What Hadoop's own task does at its end. The reader was not begun, so it has nothing to close; it would fail to free
   * the buffers of a group with fewer cells than data blocks, which it gets when it begins.
   */
  private void finish() {
    float weight = task.getErasureCodingWorker().getXmitWeight();
    datanode.decrementXmitsInProgress(Math.max((int) (task.getXmits() * weight), 1));
    DataNodeMetrics counts = datanode.getMetrics();
    counts.incrECReconstructionTasks();
    counts.incrECReconstructionBytesRead(task.getBytesRead());
    counts.incrECReconstructionRemoteBytesRead(task.getRemoteBytesRead());
    counts.incrECReconstructionBytesWritten(task.getBytesWritten());
    try {
      writer.close();
    } finally {
      task.cleanup();
    }
  }

  /** Drops what a failed try has written, and lets Hadoop's task begin at the start. */
  private void reset() throws InterruptedException {
    if (!hasWritten) {
      return;
    }
    try {
      writer.close();
    } finally {
      forgetWriters();
    }
    TakeOver.set(fields.checksum, reader, null);
    // A DataNode whose connection has ended drops the replica soon; until then it takes no other.
    long end = Time.monotonicNow() + DROP_MS;
    while (isBeingWritten() && Time.monotonicNow() < end) {
      Thread.sleep(20);
    }
  }

  /** Hadoop's writer takes a target for good that has succeeded before. */
  private void forgetWriters() {
    Arrays.fill((boolean[]) TakeOver.get(fields.targetsStatus, writer), false);
    Arrays.fill((Object[]) TakeOver.get(fields.writers, writer), null);
    task.updatePositionInBlock(-task.getPositionInBlock());
  }

  private boolean isBeingWritten() {
    for (int target : targets) {
      ExtendedBlock block = task.getBlock(target);
      try {
        if (datanode.getFSDataset().getStoredBlock(block.getBlockPoolId(), block.getBlockId())
            != null) {
          return true;
        }
      } catch (IOException e) {
        return false;
      }
    }
    return false;
  }
}
