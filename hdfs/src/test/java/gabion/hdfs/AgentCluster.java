package gabion.hdfs;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.protocol.Block;
import org.apache.hadoop.hdfs.protocol.BlockLocalPathInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.server.blockmanagement.ForgottenOrders;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.FSNamesystem;
import org.apache.hadoop.hdfs.tools.DFSck;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;
import org.apache.hadoop.io.erasurecode.ECSchema;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.test.GenericTestUtils;
import org.apache.hadoop.test.MetricsAsserts;
import org.apache.hadoop.util.ToolRunner;

/** A whole HDFS in this process with the plugin in each DataNode, and an agent's process beside each. */
final class AgentCluster implements AutoCloseable {
  static final int CELL_BYTES = 64 << 10;
  static final int BLOCK_BYTES = 1 << 20;
  /** How long a test waits for what must come; only one that hangs waits so long. */
  static final int WAIT_MS = 600_000;
  /** Beyond what a slow machine needs for a rebuild. A test whose fault loses an order calls {@link #forgetOrders}. */
  private static final int ORDER_SECONDS = 300;
  private static final int STARTS_MAX = 5;

  final MiniDFSCluster hdfs;
  final DistributedFileSystem files;
  final ErasureCodingPolicy policy;
  /** By transfer port. */
  private final Map<Integer, Process> agents = new TreeMap<>();
  private static final String[] COUNTS = {"RepairedTasks", "RepairedBlocks", "Runs", "Fallbacks",
    "CorruptSources", "Opened", "Refused"};
  /** The counts of plugins that were killed. */
  private final Map<String, Long> retired = new TreeMap<>();
  private int written;

  /** A block of a group as it lies on a DataNode. */
  static final class Replica {
    final int port;
    final byte[] bytes;
    final byte[] sums;
    final File file;

    Replica(int port, File file, File sumsFile) throws IOException {
      this.port = port;
      this.file = file;
      bytes = Files.readAllBytes(file.toPath());
      sums = Files.readAllBytes(sumsFile.toPath());
    }
  }

  /** Has HDFS notice losses and hand out their repairs within seconds. */
  static void noticeLossesFast(Configuration conf) {
    conf.setInt(DFSConfigKeys.DFS_HEARTBEAT_INTERVAL_KEY, 1);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REDUNDANCY_INTERVAL_SECONDS_KEY, 1);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_MAX_STREAMS_KEY, 20);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_STREAMS_HARD_LIMIT_KEY, 40);
    conf.setBoolean(DFSConfigKeys.DFS_NAMENODE_REDUNDANCY_CONSIDERLOAD_KEY, false);
  }

  AgentCluster(String codec, int k, int m, int dataNodeCount, Configuration more) throws Exception {
    Configuration conf = new HdfsConfiguration();
    conf.set(DFSConfigKeys.DFS_DATANODE_PLUGINS_KEY, GabionPlugin.class.getName());
    conf.setLong(DFSConfigKeys.DFS_BLOCK_SIZE_KEY, BLOCK_BYTES);
    noticeLossesFast(conf);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_RECONSTRUCTION_PENDING_TIMEOUT_SEC_KEY, ORDER_SECONDS);
    // Slow agents are not replaced. A test with an agent that hangs sets less.
    conf.setInt(Settings.STALL_MS, 30_000);
    more.forEach(entry -> conf.set(entry.getKey(), entry.getValue()));
    Configuration[] overlays = new Configuration[dataNodeCount];
    int[] ports = freePorts(dataNodeCount);
    for (int i = 0; i < dataNodeCount; i++) {
      overlays[i] = new Configuration(false);
      overlays[i].set(DFSConfigKeys.DFS_DATANODE_ADDRESS_KEY, "127.0.0.1:" + ports[i]);
      overlays[i].set(DFSConfigKeys.DFS_DATANODE_HTTP_ADDRESS_KEY, "127.0.0.1:0");
      overlays[i].set(DFSConfigKeys.DFS_DATANODE_IPC_ADDRESS_KEY, "127.0.0.1:0");
    }
    hdfs = new MiniDFSCluster.Builder(conf).numDataNodes(dataNodeCount).storagesPerDatanode(1)
        .checkDataNodeAddrConfig(true).dataNodeConfOverlays(overlays).build();
    try {
      hdfs.waitActive();
      files = hdfs.getFileSystem();
      ErasureCodingPolicy wanted = new ErasureCodingPolicy(new ECSchema(codec, k, m), CELL_BYTES);
      policy = files.addErasureCodingPolicies(new ErasureCodingPolicy[] {wanted})[0].getPolicy();
      files.enableErasureCodingPolicy(policy.getName());
      files.setErasureCodingPolicy(new Path("/"), policy.getName());
      for (int port : ports) {
        startAgent(port);
      }
    } catch (Exception e) {
      close();
      throw e;
    }
  }

  private static int[] freePorts(int count) throws IOException {
    Random random = new Random();
    for (int tries = 0; tries < 100; tries++) {
      int base = 12_000 + 2 * random.nextInt(8_000);
      int[] ports = new int[count];
      for (int i = 0; i < count; i++) {
        ports[i] = base + 2 * i;
      }
      if (areFree(ports)) {
        return ports;
      }
    }
    throw new IOException("no ports are free");
  }

  private static boolean areFree(int[] ports) {
    for (int port : ports) {
      for (int offset : new int[] {0, 1000, 1001}) {
        try (ServerSocket socket =
            new ServerSocket(port + offset, 1, InetAddress.getLoopbackAddress())) {
          socket.setReuseAddress(true);
        } catch (IOException e) {
          return false;
        }
      }
    }
    return true;
  }

  void startAgent(int port) throws IOException {
    String binary = System.getProperty("gabion.binary");
    Process agent = new ProcessBuilder(binary, "hdfs-agent", "--transfer-port", "" + port,
        "--listen", "127.0.0.1:" + (port + 1000)).redirectError(ProcessBuilder.Redirect.INHERIT)
        .start();
    agents.put(port, agent);
    BufferedReader out =
        new BufferedReader(new InputStreamReader(agent.getInputStream(), StandardCharsets.UTF_8));
    String line = out.readLine();
    if (line == null || !line.contains("hdfs-agent://")) {
      throw new IOException("the agent of " + port + " has not started: " + line);
    }
  }

  void killAgent(int port) throws InterruptedException {
    Process agent = agents.remove(port);
    agent.destroyForcibly();
    assertTrue(agent.waitFor(WAIT_MS, TimeUnit.MILLISECONDS));
  }

  /** Stops or continues an agent's process. */
  void signalAgent(int port, String signal) throws Exception {
    long pid = agents.get(port).pid();
    assertEquals(0, new ProcessBuilder("kill", "-" + signal, "" + pid).start().waitFor());
  }

  List<Integer> ports() {
    return new ArrayList<>(agents.keySet());
  }

  /** Writes a file of random bytes. */
  Path write(int length) throws IOException {
    Path path = new Path("/file-" + written++);
    byte[] bytes = new byte[length];
    new Random(length).nextBytes(bytes);
    try (FSDataOutputStream out = files.create(path)) {
      out.write(bytes);
    }
    return path;
  }

  /** Deletes all files. */
  void deleteAll() throws IOException {
    for (int file = 0; file < written; file++) {
      files.delete(new Path("/file-" + file), false);
    }
  }

  /** Reads a file, and compares it with what was written. */
  void check(Path path, int length) throws IOException {
    byte[] expected = new byte[length];
    new Random(length).nextBytes(expected);
    byte[] read = new byte[length];
    try (var in = files.open(path)) {
      in.readFully(0, read);
    }
    assertTrue("the bytes of " + path, Arrays.equals(expected, read));
  }

  private LocatedBlock[] blocksOf(LocatedBlock group) {
    return StripedBlockUtil.parseStripedBlockGroup((LocatedStripedBlock) group,
        policy.getCellSize(), policy.getNumDataUnits(), policy.getNumParityUnits());
  }

  /** The groups of a file. */
  List<LocatedBlock> groups(Path path) throws IOException {
    long length = files.getFileStatus(path).getLen();
    return files.getClient().getLocatedBlocks(path.toString(), 0, length).getLocatedBlocks();
  }

  /** The blocks of a file's first group that live, by their index. */
  Map<Integer, Replica> replicas(Path path) throws IOException {
    return replicas(groups(path).get(0));
  }

  Map<Integer, Replica> replicas(LocatedBlock group) throws IOException {
    Map<Integer, Replica> replicas = new TreeMap<>();
    LocatedBlock[] blocks = blocksOf(group);
    for (int index = 0; index < blocks.length; index++) {
      if (blocks[index] == null) {
        continue;
      }
      for (DatanodeInfo place : blocks[index].getLocations()) {
        ExtendedBlock block = blocks[index].getBlock();
        DataNode datanode = hdfs.getDataNode(place.getIpcPort());
        if (datanode != null && datanode.isDatanodeUp()) {
          try {
            BlockLocalPathInfo info = datanode.getFSDataset().getBlockLocalPathInfo(block);
            replicas.put(index, new Replica(place.getXferPort(), new File(info.getBlockPath()),
                new File(info.getMetaPath())));
          } catch (IOException e) {
            // The DataNode has no such file any more.
          }
        }
      }
    }
    return replicas;
  }

  /** The DataNode with this transfer port. */
  DataNode dataNode(int port) throws IOException {
    for (DataNode datanode : hdfs.getDataNodes()) {
      if (datanode.getXferPort() == port) {
        return datanode;
      }
    }
    throw new IOException("no DataNode has port " + port);
  }

  /** A block of a file's first group. */
  ExtendedBlock block(Path path, int index) throws IOException {
    return StripedBlockUtil.constructInternalBlock(groups(path).get(0).getBlock(), policy, index);
  }

  /** Waits until some bytes of a block were written to a DataNode, and not all. */
  DataNode awaitHalf(ExtendedBlock block) throws Exception {
    DataNode[] writing = new DataNode[1];
    GenericTestUtils.waitFor(() -> {
      for (DataNode datanode : hdfs.getDataNodes()) {
        long written = bytesOf(datanode, block);
        if (written > 0 && !datanode.getFSDataset().isValidBlock(block)) {
          writing[0] = datanode;
        }
      }
      return writing[0] != null;
    }, 5, WAIT_MS);
    return writing[0];
  }

  /** The bytes of a block on a DataNode's disk, in any state; -1 if there are none. */
  static long bytesOf(DataNode datanode, ExtendedBlock block) {
    try {
      Block stored =
          datanode.getFSDataset().getStoredBlock(block.getBlockPoolId(), block.getBlockId());
      return stored == null ? -1 : stored.getNumBytes();
    } catch (IOException | RuntimeException e) {
      // It is being stopped.
      return -1;
    }
  }

  /** One of a plugin's counts. */
  static long countOf(DataNode datanode, String name) {
    String source = "GabionRepair-" + datanode.getXferPort();
    return MetricsAsserts.getLongCounter(name, MetricsAsserts.getMetrics(source));
  }

  /** Stops a DataNode, and tells the NameNode that it is dead. Its agent stays. */
  DataNodeProperties kill(int port) throws Exception {
    for (int i = 0; i < hdfs.getDataNodes().size(); i++) {
      DataNode datanode = hdfs.getDataNodes().get(i);
      if (datanode.getXferPort() == port) {
        var id = datanode.getDatanodeId();
        for (String name : COUNTS) {
          retired.merge(name, liveCount(datanode, name), Long::sum);
        }
        DataNodeProperties stopped = hdfs.stopDataNode(i);
        hdfs.setDataNodeDead(id);
        return stopped;
      }
    }
    throw new IOException("no DataNode has port " + port);
  }

  /** Starts a DataNode again, at its ports. Its new port for HTTP may be one of them by chance; then it starts anew. */
  void restart(DataNodeProperties stopped) throws Exception {
    boolean started = false;
    for (int attempt = 1; !started; attempt++) {
      try {
        started = hdfs.restartDataNode(stopped, true);
      } catch (BindException e) {
        if (attempt == STARTS_MAX) {
          throw e;
        }
      }
    }
    hdfs.waitActive();
  }

  /** Waits until all blocks of a file's groups live on DataNodes that are up. */
  void awaitWhole(Path path) throws Exception {
    awaitWholeBut(path, -1);
  }

  /** The same without the block of one index, whose file is gone. */
  void awaitWholeBut(Path path, int index) throws Exception {
    try {
      GenericTestUtils.waitFor(() -> {
        try {
          boolean whole = true;
          for (LocatedBlock group : groups(path)) {
            whole &= isWhole(group, index);
          }
          return whole;
        } catch (IOException e) {
          return false;
        }
      }, 200, WAIT_MS);
    } catch (TimeoutException e) {
      throw new AssertionError(path + " was not repaired; " + counts(), e);
    }
  }

  private boolean isWhole(LocatedBlock group, int except) throws IOException {
    int expected = 0;
    for (int i = 0; i < policy.getNumDataUnits() + policy.getNumParityUnits(); i++) {
      if (i != except && StripedBlockUtil.getInternalBlockLength(group.getBlockSize(), policy, i) > 0) {
        expected++;
      }
    }
    Map<Integer, Replica> replicas = replicas(group);
    replicas.remove(except);
    return !group.isCorrupt() && replicas.size() == expected;
  }

  /** Whether a DataNode runs. */
  boolean isUp(int port) {
    for (DataNode datanode : hdfs.getDataNodes()) {
      if (datanode.getXferPort() == port) {
        return true;
      }
    }
    return false;
  }

  /** One of the plugins' counts, over all DataNodes that have the plugin, and those that were killed. */
  long count(String name) {
    return retired.getOrDefault(name, 0L) + liveCount(name);
  }

  private long liveCount(String name) {
    long sum = 0;
    for (DataNode datanode : hdfs.getDataNodes()) {
      sum += liveCount(datanode, name);
    }
    return sum;
  }

  /** One of a plugin's counts; 0 if the DataNode has no plugin. */
  private static long liveCount(DataNode datanode, String name) {
    String source = "GabionRepair-" + datanode.getXferPort();
    boolean isCounted = DefaultMetricsSystem.instance().getSource(source) != null;
    return isCounted ? countOf(datanode, name) : 0;
  }

  /** Waits until one of the plugins' counts is at least this: a rebuilt block is there before it is counted. */
  void awaitCount(String name, long least) throws Exception {
    try {
      GenericTestUtils.waitFor(() -> count(name) >= least, 20, WAIT_MS);
    } catch (TimeoutException e) {
      throw new AssertionError(name + " is not " + least + "; " + counts(), e);
    }
  }

  /**
   * Has the NameNode order those rebuilds of a file anew that were not done, as it does by itself when their time is
   * over. First the DataNodes end what they do.
   */
  void forgetOrders(Path path) throws Exception {
    List<Block> groups = new ArrayList<>();
    for (LocatedBlock group : groups(path)) {
      groups.add(group.getBlock().getLocalBlock());
    }
    GenericTestUtils.waitFor(() -> {
      for (DataNode datanode : hdfs.getDataNodes()) {
        if (datanode.getXmitsInProgress() > 0) {
          return false;
        }
      }
      return true;
    }, 20, WAIT_MS);
    FSNamesystem names = hdfs.getNamesystem();
    names.writeLock();
    try {
      ForgottenOrders.forget(names.getBlockManager(), groups);
    } finally {
      names.writeUnlock();
    }
  }

  String counts() {
    StringBuilder text = new StringBuilder();
    for (String name : COUNTS) {
      text.append(name).append(' ').append(count(name)).append(", ");
    }
    return text.toString();
  }

  /** What {@code hdfs fsck /} says. */
  String fsck() throws Exception {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ToolRunner.run(new DFSck(hdfs.getConfiguration(0), new PrintStream(out, true, "UTF-8")),
        new String[] {"/"});
    return out.toString("UTF-8");
  }

  @Override
  public void close() {
    for (Process agent : agents.values()) {
      agent.destroyForcibly();
    }
    hdfs.shutdown(true);
  }
}
