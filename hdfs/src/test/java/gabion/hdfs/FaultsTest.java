package gabion.hdfs;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo.DatanodeInfoBuilder;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.FaultInjectorFileIoEvents;
import org.apache.hadoop.hdfs.server.datanode.FileIoProvider;
import org.apache.hadoop.hdfs.server.datanode.fsdataset.FsVolumeSpi;
import org.apache.hadoop.hdfs.server.protocol.BlockECReconstructionCommand.BlockECReconstructionInfo;
import org.apache.hadoop.hdfs.util.Canceler;
import org.apache.hadoop.hdfs.util.DataTransferThrottler;
import org.apache.hadoop.io.erasurecode.ECSchema;
import org.apache.hadoop.test.GenericTestUtils;
import org.junit.After;
import org.junit.AfterClass;
import org.junit.Before;
import org.junit.BeforeClass;
import org.junit.Test;

/**
 * Faults while a block is being rebuilt, which a gate holds back until the fault is there. Nothing is lost, and no half
 * block is ever finalized.
 */
public final class FaultsTest {
  private static final int K = 3;
  private static final int M = 2;
  /** More than all sockets and queues on the way hold, so that a block that is half written is not yet read. */
  private static final int BLOCK_BYTES = 16 << 20;
  /** Hadoop's own limit of what a DataNode sends to targets. */
  private static final int RATE = 2_000_000;
  private static final int LENGTH = K * BLOCK_BYTES;
  private static AgentCluster cluster;

  private final List<DataNodeProperties> stopped = new ArrayList<>();
  private final List<Integer> stoppedAgents = new ArrayList<>();
  private final List<ServerSocket> fakes = new ArrayList<>();
  private final Map<DataNode, Long> opened = new HashMap<>();
  private final Map<DataNode, Object> limits = new HashMap<>();
  private final Gate gate = new Gate();
  private final long repaired = cluster.count("RepairedBlocks");
  private final long runs = cluster.count("Runs");
  private final long fallbacks = cluster.count("Fallbacks");

  @BeforeClass
  public static void begin() throws Exception {
    Configuration conf = new Configuration(false);
    conf.setLong(DFSConfigKeys.DFS_BLOCK_SIZE_KEY, BLOCK_BYTES);
    conf.setLong(DFSConfigKeys.DFS_DATANODE_EC_RECONSTRUCT_WRITE_BANDWIDTHPERSEC_KEY, RATE);
    conf.setBoolean(DFSConfigKeys.DFS_DATANODE_ENABLE_FILEIO_FAULT_INJECTION_KEY, true);
    // The gate must not look as an agent that hangs.
    conf.setInt(Settings.STALL_MS, 60_000);
    cluster = new AgentCluster("rs", K, M, K + M + 2, conf);
  }

  @AfterClass
  public static void end() {
    if (cluster != null) {
      cluster.close();
    }
  }

  /** In the place of Hadoop's limit: until it is opened, a rebuild goes on row by row, and takes two minutes. */
  private static final class Gate extends DataTransferThrottler {
    private static final int ROW_MS = 500;
    private final CountDownLatch opened = new CountDownLatch(1);

    Gate() {
      super(RATE);
    }

    void open() {
      opened.countDown();
    }

    @Override
    public void throttle(long bytes) {
      throttle(bytes, null);
    }

    @Override
    public void throttle(long bytes, Canceler canceler) {
      try {
        opened.await(ROW_MS, TimeUnit.MILLISECONDS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Sets what limits a DataNode's rebuilds; returns what did. */
  private static Object limit(DataNode datanode, Object limit) throws Exception {
    Field field = DataNode.class.getDeclaredField("ecReconstuctWriteThrottler");
    field.setAccessible(true);
    Object before = field.get(datanode);
    field.set(datanode, limit);
    return before;
  }

  @Before
  public void close() throws Exception {
    for (DataNode datanode : cluster.hdfs.getDataNodes()) {
      limits.put(datanode, limit(datanode, gate));
    }
  }

  /** Lets rebuilds be as Hadoop limits them. */
  private void removeGate() throws Exception {
    gate.open();
    for (Map.Entry<DataNode, Object> entry : limits.entrySet()) {
      limit(entry.getKey(), entry.getValue());
    }
  }

  @After
  public void restore() throws Exception {
    removeGate();
    for (ServerSocket fake : fakes) {
      fake.close();
    }
    for (int port : stoppedAgents) {
      cluster.startAgent(port);
    }
    cluster.deleteAll();
    for (DataNodeProperties datanode : stopped) {
      cluster.restart(datanode);
    }
    for (DataNode datanode : cluster.hdfs.getDataNodes()) {
      await(() -> datanode.getXmitsInProgress() == 0);
    }
  }

  /** Something that comes true. */
  private interface Condition {
    boolean holds() throws Exception;
  }

  private static void await(Condition condition) throws Exception {
    GenericTestUtils.waitFor(() -> {
      try {
        return condition.holds();
      } catch (Exception e) {
        return false;
      }
    }, 20, AgentCluster.WAIT_MS);
  }

  private void kill(int port) throws Exception {
    stopped.add(cluster.kill(port));
  }

  private void killAgent(int port) throws Exception {
    cluster.killAgent(port);
    stoppedAgents.add(port);
  }

  /** Notes which blocks were opened until now, for {@link #hasHelped}. */
  private Path write() throws Exception {
    Path path = cluster.write(LENGTH);
    for (DataNode datanode : cluster.hdfs.getDataNodes()) {
      opened.put(datanode, AgentCluster.countOf(datanode, "Opened"));
    }
    return path;
  }

  /** Whether a DataNode's block has been opened for a rebuild. */
  private boolean hasHelped(DataNode datanode) {
    return AgentCluster.countOf(datanode, "Opened") > opened.get(datanode);
  }

  /** The port of a helper of the rebuild that is going on. */
  private int helperOf(Map<Integer, AgentCluster.Replica> live) throws Exception {
    for (AgentCluster.Replica replica : live.values()) {
      if (cluster.isUp(replica.port) && hasHelped(cluster.dataNode(replica.port))) {
        return replica.port;
      }
    }
    throw new IOException("no DataNode has helped");
  }

  private static void assertSame(AgentCluster.Replica expected, AgentCluster.Replica rebuilt) {
    assertNotNull(rebuilt);
    assertNotEquals(expected.port, rebuilt.port);
    assertArrayEquals(expected.bytes, rebuilt.bytes);
    assertArrayEquals(expected.sums, rebuilt.sums);
  }

  private void assertByAgents() throws Exception {
    assertEquals(cluster.counts(), fallbacks, cluster.count("Fallbacks"));
    cluster.awaitCount("RepairedBlocks", repaired + 1);
  }

  /** No DataNode has a finalized replica of this block with other bytes than these. */
  private static void assertNoHalf(ExtendedBlock block, AgentCluster.Replica expected)
      throws Exception {
    for (DataNode datanode : cluster.hdfs.getDataNodes()) {
      if (datanode.getFSDataset().isValidBlock(block)) {
        File file =
            new File(datanode.getFSDataset().getBlockLocalPathInfo(block).getBlockPath());
        assertArrayEquals(expected.bytes, Files.readAllBytes(file.toPath()));
      }
    }
  }

  @Test
  public void hadoopsLimitsHold() throws Exception {
    Path path = write();
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    ExtendedBlock block = cluster.block(path, 1);
    removeGate();
    cluster.files.setSafeMode(SafeModeAction.ENTER);
    kill(before.get(1).port);
    // All bytes pass the limit after this, however late anything else is.
    long begin = System.nanoTime();
    cluster.files.setSafeMode(SafeModeAction.LEAVE);
    DataNode writer = cluster.awaitHalf(block);
    assertTrue(writer.getXmitsInProgress() > 0);
    cluster.awaitWhole(path);
    double seconds = (System.nanoTime() - begin) / 1e9;
    // Hadoop's throttle lets the bytes of four periods of half a second pass at once.
    double least = BLOCK_BYTES / (double) RATE - 4 * 0.5;
    assertTrue(seconds + " s", seconds > least);
    assertSame(before.get(1), cluster.replicas(path).get(1));
    assertByAgents();
    await(() -> writer.getXmitsInProgress() == 0);
  }

  @Test
  public void aFullDiskOfTheTargetFinalizesNothing() throws Exception {
    Path path = write();
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    ExtendedBlock block = cluster.block(path, 0);
    gate.open();
    AtomicInteger refusals = new AtomicInteger();
    Map<FileIoProvider, Object> hooks = new HashMap<>();
    for (DataNode datanode : cluster.hdfs.getDataNodes()) {
      FileIoProvider provider = datanode.getFileIoProvider();
      hooks.put(provider, hook(provider, new FullDisk(refusals)));
    }
    try {
      kill(before.get(0).port);
      await(() -> cluster.count("Fallbacks") > fallbacks && refusals.get() > 1);
      assertNoHalf(block, before.get(0));
      assertFalse(cluster.replicas(path).containsKey(0));
    } finally {
      for (Map.Entry<FileIoProvider, Object> entry : hooks.entrySet()) {
        hook(entry.getKey(), entry.getValue());
      }
    }
    for (DataNode datanode : cluster.hdfs.getDataNodes()) {
      // Hadoop's own code may have done it now.
      await(() -> AgentCluster.bytesOf(datanode, block) < 0
          || datanode.getFSDataset().isValidBlock(block));
    }
    cluster.forgetOrders(path);
    cluster.awaitWhole(path);
    assertSame(before.get(0), cluster.replicas(path).get(0));
    assertNoHalf(block, before.get(0));
    cluster.check(path, LENGTH);
  }

  /** A disk that takes some bytes, and then none. */
  private static final class FullDisk extends FaultInjectorFileIoEvents {
    private static final int ROOM = 300_000;
    private final AtomicInteger refusals;
    private final AtomicInteger written = new AtomicInteger();

    FullDisk(AtomicInteger refusals) {
      super(null);
      this.refusals = refusals;
    }

    @Override
    public void beforeFileIo(FsVolumeSpi volume, FileIoProvider.OPERATION operation, long length) {
      if (operation == FileIoProvider.OPERATION.WRITE
          && written.addAndGet((int) length) > ROOM) {
        refusals.incrementAndGet();
        FullDisk.<RuntimeException>raise(new IOException("No space left on device"));
      }
    }

    /** Throws what the method's signature does not allow. */
    @SuppressWarnings("unchecked")
    private static <E extends Exception> void raise(Exception error) throws E {
      throw (E) error;
    }
  }

  /** Sets what is called before a DataNode's writes; returns what was. */
  private static Object hook(FileIoProvider provider, Object hook) throws Exception {
    Field field = FileIoProvider.class.getDeclaredField("faultInjectorEventHook");
    field.setAccessible(true);
    Object before = field.get(provider);
    field.set(provider, hook);
    return before;
  }

  @Test
  public void aTargetThatDiesLeavesTheOther() throws Exception {
    Path path = write();
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    ExtendedBlock[] blocks = {cluster.block(path, 1), cluster.block(path, 3)};
    // Only two DataNodes without a block are left, and one of them works for both: a NameNode in safe mode orders
    // nothing before both blocks are lost.
    cluster.files.setSafeMode(SafeModeAction.ENTER);
    kill(before.get(1).port);
    kill(before.get(3).port);
    cluster.files.setSafeMode(SafeModeAction.LEAVE);
    DataNode[] writers = {cluster.awaitHalf(blocks[0]), cluster.awaitHalf(blocks[1])};
    assertTrue(writers[0].getXmitsInProgress() + writers[1].getXmitsInProgress() > 0);
    assertNotEquals(writers[0].getXferPort(), writers[1].getXferPort());
    int other = writers[0].getXmitsInProgress() == 0 ? 0 : 1;
    int index = other == 0 ? 3 : 1;
    kill(writers[other].getXferPort());
    gate.open();
    await(() -> cluster.replicas(path).containsKey(index));
    assertSame(before.get(index), cluster.replicas(path).get(index));
    assertByAgents();
    // It comes back, and has dropped its half.
    cluster.restart(stopped.remove(2));
    assertNoHalf(blocks[other], before.get(other == 0 ? 1 : 3));
    cluster.forgetOrders(path);
    cluster.awaitWhole(path);
    assertSame(before.get(other == 0 ? 1 : 3), cluster.replicas(path).get(other == 0 ? 1 : 3));
    cluster.check(path, LENGTH);
  }

  @Test
  public void aMachineOfASourceThatDiesIsReplaced() throws Exception {
    Path path = write();
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    ExtendedBlock block = cluster.block(path, 2);
    kill(before.get(2).port);
    cluster.awaitHalf(block);
    int helper = helperOf(before);
    killAgent(helper);
    kill(helper);
    gate.open();
    cluster.awaitWhole(path);
    for (Map.Entry<Integer, AgentCluster.Replica> entry : before.entrySet()) {
      if (entry.getKey() == 2 || entry.getValue().port == helper) {
        assertSame(entry.getValue(), cluster.replicas(path).get(entry.getKey()));
      }
    }
    assertByAgents();
    // Without the dead machine in a second run, and its block.
    assertTrue(cluster.counts(), cluster.count("Runs") >= runs + 3);
    cluster.check(path, LENGTH);
  }

  @Test
  public void theRequestorsEndFreesItsHelpers() throws Exception {
    Path path = write();
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    ExtendedBlock block = cluster.block(path, 4);
    kill(before.get(4).port);
    DataNode requestor = cluster.awaitHalf(block);
    await(() -> connections() > 0);
    // A NameNode in safe mode orders no other rebuild.
    cluster.files.setSafeMode(SafeModeAction.ENTER);
    kill(requestor.getXferPort());
    await(() -> connections() == 0);
    assertNoHalf(block, before.get(4));
    gate.open();
    cluster.forgetOrders(path);
    cluster.files.setSafeMode(SafeModeAction.LEAVE);
    cluster.awaitWhole(path);
    assertSame(before.get(4), cluster.replicas(path).get(4));
    cluster.check(path, LENGTH);
  }

  /** Established connections to agents. */
  private static long connections() throws IOException {
    long count = 0;
    for (String line : Files.readAllLines(Paths.get("/proc/net/tcp"))) {
      String[] words = line.trim().split(" +");
      if (words[3].equals("01")) {
        int port = Integer.parseInt(words[1].split(":")[1], 16);
        count += cluster.ports().contains(port - 1000) ? 1 : 0;
      }
    }
    return count;
  }

  @Test
  public void aFileThatIsDeletedMeanwhileLeavesNothing() throws Exception {
    Path path = write();
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    ExtendedBlock block = cluster.block(path, 0);
    kill(before.get(0).port);
    cluster.awaitHalf(block);
    assertTrue(cluster.files.delete(path, false));
    gate.open();
    for (DataNode datanode : cluster.hdfs.getDataNodes()) {
      await(() -> datanode.getXmitsInProgress() == 0);
      await(() -> AgentCluster.bytesOf(datanode, block) < 0);
    }
  }

  @Test
  public void aFileThatIsAppendedToMeanwhileIsWhole() throws Exception {
    Path path = write();
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    kill(before.get(1).port);
    cluster.awaitHalf(cluster.block(path, 1));
    byte[] more = new byte[AgentCluster.CELL_BYTES + 9];
    new Random(9).nextBytes(more);
    EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.APPEND, CreateFlag.NEW_BLOCK);
    try (FSDataOutputStream out = cluster.files.append(path, flags, 4096, null)) {
      out.write(more);
    }
    gate.open();
    cluster.awaitWhole(path);
    assertSame(before.get(1), cluster.replicas(path).get(1));
    assertByAgents();
    byte[] read = new byte[more.length];
    try (FSDataInputStream in = cluster.files.open(path)) {
      in.readFully(LENGTH, read);
    }
    assertArrayEquals(more, read);
    cluster.check(path, LENGTH);
  }

  @Test
  public void aSourceThatIsTruncatedMeanwhileIsReplaced() throws Exception {
    Path path = write();
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    kill(before.get(1).port);
    cluster.awaitHalf(cluster.block(path, 1));
    int helper = helperOf(before);
    for (AgentCluster.Replica replica : before.values()) {
      if (replica.port == helper) {
        try (RandomAccessFile file = new RandomAccessFile(replica.file, "rw")) {
          file.setLength(BLOCK_BYTES - 77_777);
        }
      }
    }
    gate.open();
    cluster.awaitWhole(path);
    assertSame(before.get(1), cluster.replicas(path).get(1));
    assertByAgents();
    // Without the truncated block in a second run.
    assertEquals(cluster.counts(), runs + 2, cluster.count("Runs"));
  }

  /** An agent that closes connections of other versions, as ours does, or answers in its own way. */
  private void startOther(int port, AtomicInteger calls, byte[] answer) throws Exception {
    killAgent(port);
    ServerSocket listener = new ServerSocket();
    listener.setReuseAddress(true);
    listener.bind(new java.net.InetSocketAddress(InetAddress.getLoopbackAddress(), port + 1000));
    fakes.add(listener);
    Thread thread = new Thread(() -> {
      while (!listener.isClosed()) {
        try (Socket socket = listener.accept()) {
          calls.incrementAndGet();
          socket.getInputStream().readNBytes(8);
          socket.getOutputStream().write(answer);
        } catch (IOException e) {
          // The next one comes, or the test is over.
        }
      }
    });
    thread.setDaemon(true);
    thread.start();
  }

  @Test
  public void anAgentOfAnotherVersionIsReplaced() throws Exception {
    AtomicInteger calls = new AtomicInteger();
    byte[] answer = {'g', 'a', 'b', 'h', 'd', 'f', 's', 99, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    Path path = write();
    gate.open();
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    // Of four live blocks three help, so another one is asked too.
    int other = before.get(2).port;
    startOther(other, calls, answer);
    kill(before.get(0).port);
    cluster.awaitWhole(path);
    assertSame(before.get(0), cluster.replicas(path).get(0));
    assertByAgents();
    // With two of them too few are left, and Hadoop does it; what it does is right too.
    startOther(before.get(3).port, calls, new byte[0]);
    kill(before.get(4).port);
    cluster.awaitWhole(path);
    assertSame(before.get(4), cluster.replicas(path).get(4));
    assertTrue(cluster.counts(), cluster.count("Fallbacks") > fallbacks);
    assertTrue(calls.get() > 0);
    cluster.check(path, LENGTH);
  }

  @Test
  public void aWrongPolicyRebuildsNothing() throws Exception {
    Path path = write();
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    LocatedStripedBlock group = (LocatedStripedBlock) cluster.groups(path).get(0);
    DataNode target = null;
    for (DataNode datanode : cluster.hdfs.getDataNodes()) {
      if (before.values().stream().allMatch(r -> r.port != datanode.getXferPort())) {
        target = datanode;
      }
    }
    int lost = 0;
    ExtendedBlock block = cluster.block(path, lost);
    int failures = 0;
    ECSchema[] schemas = {new ECSchema("nope", K, M), new ECSchema("rs", 2, M)};
    for (ECSchema schema : schemas) {
      order(target, group, lost, new ErasureCodingPolicy(schema, AgentCluster.CELL_BYTES));
      DataNode busy = target;
      await(() -> busy.getXmitsInProgress() == 0);
      failures++;
      assertEquals(cluster.counts(), fallbacks + failures, cluster.count("Fallbacks"));
      assertNoHalf(block, before.get(lost));
      assertTrue(AgentCluster.bytesOf(target, block) < 0);
    }
    assertEquals(cluster.counts(), repaired, cluster.count("RepairedBlocks"));
    cluster.check(path, LENGTH);
  }

  /** Has a DataNode rebuild a block that is not lost, with this policy. */
  private static void order(DataNode target, LocatedStripedBlock group, int lost,
      ErasureCodingPolicy policy) {
    List<DatanodeInfo> sources = new ArrayList<>();
    byte[] live = new byte[group.getBlockIndices().length];
    int count = 0;
    for (int i = 0; i < live.length; i++) {
      int index = group.getBlockIndices()[i];
      if (index != lost && index < policy.getNumDataUnits() + policy.getNumParityUnits()) {
        live[count++] = (byte) index;
        sources.add(group.getLocations()[i]);
      }
    }
    DatanodeInfo place = new DatanodeInfoBuilder().setNodeID(target.getDatanodeId())
        .setNetworkLocation("/default-rack").build();
    target.getErasureCodingWorker().processErasureCodingTasks(List.of(
        new BlockECReconstructionInfo(group.getBlock(), sources.toArray(new DatanodeInfo[0]),
            new DatanodeInfo[] {place}, new String[] {""}, new StorageType[] {StorageType.DISK},
            Arrays.copyOf(live, count), new byte[0], policy)));
  }
}
