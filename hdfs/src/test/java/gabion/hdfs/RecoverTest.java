package gabion.hdfs;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.NameNodeProxies;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier.AccessMode;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.protocol.DatanodeStorageReport;
import org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol;
import org.apache.hadoop.io.erasurecode.ECSchema;
import org.apache.hadoop.security.token.Token;
import org.junit.After;
import org.junit.AfterClass;
import org.junit.BeforeClass;
import org.junit.Test;

/** Recoveries of all lost blocks by {@code recover}, in an HDFS with tokens whose NameNode orders no repairs. */
public final class RecoverTest {
  private static final int K = 3;
  private static final int M = 2;
  private static AgentCluster cluster;

  private final List<DataNodeProperties> stopped = new ArrayList<>();
  private final long repaired = cluster.count("RepairedBlocks");
  private final long fallbacks = cluster.count("Fallbacks");

  @BeforeClass
  public static void begin() throws Exception {
    Configuration conf = new Configuration(false);
    conf.setBoolean(DFSConfigKeys.DFS_BLOCK_ACCESS_TOKEN_ENABLE_KEY, true);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_MAX_STREAMS_KEY, 0);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_STREAMS_HARD_LIMIT_KEY, 0);
    conf.set(Settings.RATES, "* * 100");
    cluster = new AgentCluster("rs", K, M, K + M + 3, conf);
  }

  @AfterClass
  public static void end() {
    if (cluster != null) {
      cluster.close();
    }
  }

  @After
  public void restore() throws Exception {
    cluster.deleteAll();
    for (DataNodeProperties datanode : stopped) {
      cluster.restart(datanode);
    }
  }

  private void kill(int port) throws Exception {
    stopped.add(cluster.kill(port));
  }

  /** What the command says, after it has ended so. */
  private static String recover(int code, String... words) throws Exception {
    ByteArrayOutputStream said = new ByteArrayOutputStream();
    PrintStream out = new PrintStream(said, true, "UTF-8");
    List<String> all = new ArrayList<>(List.of("recover"));
    all.addAll(List.of(words));
    int ended =
        Recover.run(cluster.hdfs.getConfiguration(0), all.toArray(new String[0]), out, out);
    assertEquals(said.toString("UTF-8"), code, ended);
    return said.toString("UTF-8");
  }

  private void check(Path path, int length, List<Map<Integer, AgentCluster.Replica>> before)
      throws Exception {
    cluster.awaitWhole(path);
    cluster.check(path, length);
    int at = 0;
    for (LocatedBlock group : cluster.groups(path)) {
      Map<Integer, AgentCluster.Replica> now = cluster.replicas(group);
      for (Map.Entry<Integer, AgentCluster.Replica> entry : before.get(at).entrySet()) {
        AgentCluster.Replica replica = now.get(entry.getKey());
        assertArrayEquals(entry.getValue().bytes, replica.bytes);
        assertArrayEquals(entry.getValue().sums, replica.sums);
      }
      at++;
    }
  }

  private List<Map<Integer, AgentCluster.Replica>> replicas(Path path) throws Exception {
    List<Map<Integer, AgentCluster.Replica>> all = new ArrayList<>();
    for (LocatedBlock group : cluster.groups(path)) {
      all.add(cluster.replicas(group));
    }
    return all;
  }

  @Test
  public void aNodesBlocksAreRecoveredByOneSchedule() throws Exception {
    int[] lengths = {1, AgentCluster.CELL_BYTES + 77,
        6 * K * AgentCluster.BLOCK_BYTES + 5 * AgentCluster.CELL_BYTES + 1234};
    List<Path> paths = new ArrayList<>();
    List<List<Map<Integer, AgentCluster.Replica>>> before = new ArrayList<>();
    for (int length : lengths) {
      Path path = cluster.write(length);
      paths.add(path);
      before.add(replicas(path));
    }
    int victim = before.get(2).get(0).get(1).port;
    int lost = 0;
    for (List<Map<Integer, AgentCluster.Replica>> groups : before) {
      for (Map<Integer, AgentCluster.Replica> group : groups) {
        lost += group.values().stream().filter(replica -> replica.port == victim).count();
      }
    }
    kill(victim);
    assertTrue(recover(1, "--dry-run").startsWith(lost + " blocks are lost"));
    assertEquals(repaired, cluster.count("RepairedBlocks"));
    String said = recover(0);
    assertTrue(said, said.startsWith(lost + " blocks were lost; agents rebuilt " + lost + ","));
    for (int i = 0; i < lengths.length; i++) {
      check(paths.get(i), lengths[i], before.get(i));
    }
    assertEquals(cluster.counts(), fallbacks, cluster.count("Fallbacks"));
    assertEquals(cluster.counts(), repaired + lost, cluster.count("RepairedBlocks"));
    assertTrue(cluster.fsck(), cluster.fsck().contains("is HEALTHY"));
    assertTrue(recover(0).startsWith("0 blocks were lost"));
    assertTrue(recover(0, "--dry-run").startsWith("0 blocks are lost"));
  }

  /** Writes files of one group until one has a block on this DataNode, and not on both of the others. */
  private Path writeOnto(int port, List<Integer> others) throws Exception {
    while (true) {
      Path path = cluster.write(K * AgentCluster.CELL_BYTES);
      List<Integer> places = new ArrayList<>();
      cluster.replicas(path).values().forEach(replica -> places.add(replica.port));
      if (places.contains(port) && (others.isEmpty() || !places.containsAll(others))) {
        return path;
      }
      cluster.files.delete(path, false);
    }
  }

  @Test
  public void groupsOfWhichTooFewBlocksLiveAreNamed() throws Exception {
    Path path = cluster.write(K * AgentCluster.CELL_BYTES);
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    for (int index = 0; index < M + 1; index++) {
      kill(before.get(index).port);
    }
    for (String[] words : new String[][] {{}, {"--dry-run"}}) {
      String said = recover(1, words);
      assertTrue(said, said.contains("for 3 blocks too few other blocks of their group live"));
    }
    assertEquals(cluster.counts(), repaired, cluster.count("RepairedBlocks"));
  }

  @Test
  public void groupsThatAgentsCannotPlanHinderNoOthers() throws Exception {
    // Hadoop takes this policy, and its coder makes one parity only.
    ErasureCodingPolicy odd = cluster.files.addErasureCodingPolicies(new ErasureCodingPolicy[] {
        new ErasureCodingPolicy(new ECSchema("xor", 2, 2), AgentCluster.CELL_BYTES)})[0].getPolicy();
    cluster.files.enableErasureCodingPolicy(odd.getName());
    Path directory = new Path("/odd");
    cluster.files.mkdirs(directory);
    try {
      cluster.files.setErasureCodingPolicy(directory, odd.getName());
      Path unplanned = new Path(directory, "file");
      try (FSDataOutputStream out = cluster.files.create(unplanned)) {
        out.write(new byte[2 * AgentCluster.CELL_BYTES]);
      }
      int victim = cluster.groups(unplanned).get(0).getLocations()[0].getXferPort();
      List<Path> paths = new ArrayList<>();
      List<List<Map<Integer, AgentCluster.Replica>>> before = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        paths.add(writeOnto(victim, List.of()));
        before.add(replicas(paths.get(i)));
      }
      kill(victim);
      String said = recover(1);
      assertTrue(said, said.startsWith("4 blocks were lost; agents rebuilt 3,"));
      assertTrue(said, said.contains("; 1 are still lost"));
      assertTrue(said, said.contains("for 1 blocks an agent has no plan: the codec xor has 1 block"));
      for (int i = 0; i < paths.size(); i++) {
        check(paths.get(i), K * AgentCluster.CELL_BYTES, before.get(i));
      }
    } finally {
      cluster.files.delete(directory, true);
    }
  }

  /** A NameNode that has noticed the death of these DataNodes after it has listed their blocks. */
  private static ClientProtocol without(List<Integer> ports) {
    ClientProtocol namenode = cluster.files.getClient().getNamenode();
    InvocationHandler calls = (any, method, arguments) -> {
      try {
        Object answer = method.invoke(namenode, arguments);
        if (answer instanceof DatanodeStorageReport[]) {
          List<DatanodeStorageReport> reports = new ArrayList<>(List.of((DatanodeStorageReport[]) answer));
          reports.removeIf(report -> ports.contains(report.getDatanodeInfo().getXferPort()));
          return reports.toArray(new DatanodeStorageReport[0]);
        }
        return answer;
      } catch (InvocationTargetException e) {
        throw e.getCause();
      }
    };
    return (ClientProtocol) Proxy.newProxyInstance(ClientProtocol.class.getClassLoader(),
        new Class<?>[] {ClientProtocol.class}, calls);
  }

  @Test
  public void groupsWhoseOtherDataNodesHaveDiedHinderNoOthers() throws Exception {
    Path hopeless = cluster.write(K * AgentCluster.CELL_BYTES);
    Map<Integer, AgentCluster.Replica> places = cluster.replicas(hopeless);
    List<Integer> dead = List.of(places.get(1).port, places.get(2).port);
    Path path = writeOnto(places.get(0).port, dead);
    List<Map<Integer, AgentCluster.Replica>> before = replicas(path);
    kill(places.get(0).port);
    Configuration conf = cluster.hdfs.getConfiguration(0);
    NamenodeProtocol keys =
        NameNodeProxies.createProxy(conf, cluster.hdfs.getURI(), NamenodeProtocol.class).getProxy();
    Recovery.Result result =
        new Recovery(conf, new Recovery.Options(), without(dead), keys).run();
    assertEquals(2, result.lost);
    assertEquals(1, result.byAgents.get());
    assertEquals(1, result.withoutHelpers);
    assertEquals(1, result.left);
    check(path, K * AgentCluster.CELL_BYTES, before);
  }

  @Test
  public void namesThatDoNotExistAreRefused() throws Exception {
    Path path = cluster.write(K * AgentCluster.CELL_BYTES);
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    kill(before.get(0).port);
    String live = "127.0.0.1:" + strangerTo(before).getXferPort();
    String dead = "127.0.0.1:" + before.get(0).port;
    for (String[] words : new String[][] {{"--below", "/typo"}, {"--below", "/typo", "--dry-run"},
        {"--onto", live + ",127.0.0.1:9"}, {"--onto", dead}}) {
      String said = recover(2, words);
      assertTrue(said, said.contains(words[1].replace(live + ",", "'")));
      assertEquals(said, 1, said.lines().count());
    }
    assertEquals(cluster.counts(), repaired, cluster.count("RepairedBlocks"));
    assertTrue(recover(1, "--below", path.toString(), "--dry-run").startsWith("1 blocks are lost"));
  }

  /** Such a group has fewer cells than data blocks, and Hadoop's reader buffers of zeros for the others. */
  @Test
  public void blocksOfShortGroupsCountAsRebuiltByAgents() throws Exception {
    int[][] losses = {{1, 0}, {AgentCluster.CELL_BYTES + 77, 1}};
    for (int[] loss : losses) {
      Path path = cluster.write(loss[0]);
      List<Map<Integer, AgentCluster.Replica>> before = replicas(path);
      kill(before.get(0).get(loss[1]).port);
      String said = recover(0);
      assertTrue(said, said.startsWith("1 blocks were lost; agents rebuilt 1,"));
      check(path, loss[0], before);
      restore();
      stopped.clear();
    }
    assertEquals(cluster.counts(), fallbacks, cluster.count("Fallbacks"));
  }

  @Test
  public void severalBlocksOfAGroupGoToDifferentNodesByAnySchemeAndPath() throws Exception {
    int length = 2 * K * AgentCluster.CELL_BYTES;
    String[][] ways = {{"--scheme", "conventional", "--path", "rack-aware"},
      {"--scheme", "ppr", "--schedule", "greedy"}, {"--path", "weighted"}};
    for (String[] way : ways) {
      Path path = cluster.write(length);
      List<Map<Integer, AgentCluster.Replica>> before = replicas(path);
      kill(before.get(0).get(0).port);
      kill(before.get(0).get(4).port);
      String said = recover(0, way);
      assertTrue(said, said.startsWith("2 blocks were lost; agents rebuilt 2,"));
      check(path, length, before);
      Map<Integer, AgentCluster.Replica> now = cluster.replicas(path);
      assertNotEquals(now.get(0).port, now.get(4).port);
      restore();
      stopped.clear();
    }
    assertEquals(cluster.counts(), fallbacks, cluster.count("Fallbacks"));
  }

  @Test
  public void aNamedNodeGetsTheBlocks() throws Exception {
    int length = K * AgentCluster.CELL_BYTES;
    Path path = cluster.write(length);
    List<Map<Integer, AgentCluster.Replica>> before = replicas(path);
    int spare = 0;
    for (DataNode datanode : cluster.hdfs.getDataNodes()) {
      int port = datanode.getXferPort();
      if (before.get(0).values().stream().allMatch(replica -> replica.port != port)) {
        spare = port;
      }
    }
    kill(before.get(0).get(2).port);
    // This one has a block of the group.
    String said = recover(1, "--onto", "127.0.0.1:" + before.get(0).get(1).port);
    assertTrue(said, said.contains("1 are still lost") && said.contains("for 1 blocks"));
    recover(0, "--onto", "127.0.0.1:" + spare);
    check(path, length, before);
    assertEquals(spare, cluster.replicas(path).get(2).port);
  }

  @Test
  public void aNodeWithoutAnAgentIsAvoided() throws Exception {
    int length = K * AgentCluster.CELL_BYTES;
    Path path = cluster.write(length);
    List<Map<Integer, AgentCluster.Replica>> before = replicas(path);
    List<Integer> silent = new ArrayList<>();
    for (int port : cluster.ports()) {
      if (before.get(0).values().stream().allMatch(replica -> replica.port != port)
          && silent.size() < 2) {
        silent.add(port);
        cluster.killAgent(port);
      }
    }
    try {
      kill(before.get(0).get(3).port);
      // Two of three DataNodes without a block cannot take orders.
      recover(0);
      check(path, length, before);
      assertTrue(!silent.contains(cluster.replicas(path).get(3).port));
    } finally {
      for (int port : silent) {
        cluster.startAgent(port);
      }
    }
  }

  /** A DataNode that has none of these blocks. */
  private static DataNode strangerTo(Map<Integer, AgentCluster.Replica> replicas) {
    for (DataNode datanode : cluster.hdfs.getDataNodes()) {
      int port = datanode.getXferPort();
      if (replicas.values().stream().allMatch(replica -> replica.port != port)) {
        return datanode;
      }
    }
    throw new AssertionError("all DataNodes have a block");
  }

  /** An order to rebuild block 0 of a file's first group. */
  private static Order order(Path path, ErasureCodingPolicy policy, StorageType type,
      Token<BlockTokenIdentifier> token) throws Exception {
    LocatedStripedBlock group = (LocatedStripedBlock) cluster.groups(path).get(0);
    List<Integer> indices = new ArrayList<>();
    List<DatanodeInfo> sources = new ArrayList<>();
    for (int i = 0; i < group.getBlockIndices().length; i++) {
      if (group.getBlockIndices()[i] != 0) {
        indices.add((int) group.getBlockIndices()[i]);
        sources.add(group.getLocations()[i]);
      }
    }
    return new Order(policy, group.getBlock(), 0, type, "/default-rack", "pipeline",
        Settings.Path.LISTED, indices, sources, token);
  }

  /** Why the agent beside a DataNode refuses an order. */
  private static String refusal(DataNode target, Frames.Body order) throws Exception {
    InetSocketAddress agent =
        new InetSocketAddress(InetAddress.getLoopbackAddress(), target.getXferPort() + 1000);
    try (Frames frames = Frames.connect(agent, AgentCluster.WAIT_MS, AgentCluster.WAIT_MS,
        AgentCluster.WAIT_MS)) {
      frames.send(Frames.ORDER, order);
      Frames.Frame answer = frames.receive();
      assertEquals(Frames.REFUSED, answer.kind);
      return new String(answer.body, StandardCharsets.UTF_8);
    }
  }

  @Test
  public void anOrderThatNeitherAgentsNorHadoopCanDoHasFailed() throws Exception {
    Path path = cluster.write(K * AgentCluster.CELL_BYTES);
    DataNode target = strangerTo(cluster.replicas(path));
    ExtendedBlock block = cluster.block(path, 0);
    ErasureCodingPolicy unknown =
        new ErasureCodingPolicy(new ECSchema("nope", K, M), AgentCluster.CELL_BYTES);
    Order order = order(path, unknown, StorageType.DISK, permission(target, block));
    String refusal = refusal(target, order::write);
    assertTrue(refusal, refusal.contains("neither agents nor Hadoop's own code"));
    assertTrue(AgentCluster.bytesOf(target, block) < 0);
    assertEquals(cluster.counts(), repaired, cluster.count("RepairedBlocks"));
    assertEquals(0, target.getXmitsInProgress());
  }

  private static Token<BlockTokenIdentifier> permission(DataNode target, ExtendedBlock block)
      throws Exception {
    return target.getBlockAccessToken(block, EnumSet.of(AccessMode.WRITE),
        StorageType.EMPTY_ARRAY, new String[0]);
  }

  @Test
  public void anOrderOfABlockThatItsDataNodeDoesNotTakeHasFailed() throws Exception {
    Path path = cluster.write(K * AgentCluster.CELL_BYTES);
    DataNode target = strangerTo(cluster.replicas(path));
    ExtendedBlock block = cluster.block(path, 0);
    // It has no storage of this type, and a sender of so few bytes does not hear of that.
    Order order = order(path, cluster.policy, StorageType.ARCHIVE, permission(target, block));
    String refusal = refusal(target, order::write);
    assertTrue(refusal, refusal.contains("not taken") || refusal.contains("neither agents"));
    assertTrue(AgentCluster.bytesOf(target, block) < 0);
    assertEquals(0, target.getXmitsInProgress());
  }

  @Test
  public void ordersNeedAPermissionToWriteAndAnExistingBlockStays() throws Exception {
    Path path = cluster.write(K * AgentCluster.CELL_BYTES);
    DataNode target = strangerTo(cluster.replicas(path));
    Order order = order(path, cluster.policy, StorageType.DISK, new Token<>());
    refusal(target, order::write);
    ExtendedBlock block = cluster.block(path, 0);
    assertTrue(AgentCluster.bytesOf(target, block) < 0);
    refusal(target, out -> out.writeUTF("rs"));
    assertEquals(cluster.counts(), repaired, cluster.count("RepairedBlocks"));
  }

  @Test
  public void wrongUseIsTold() throws Exception {
    for (String[] words : new String[][] {{"--onto"}, {"--scheme", "ring"}, {"--path", "long"},
        {"--schedule", "lazy"}, {"--per-datanode", "0"}, {"--per-datanode", "x"}, {"--bogus", "1"},
        {"--below", "relative"}}) {
      assertTrue(recover(2, words).contains("usage: "));
    }
  }
}
