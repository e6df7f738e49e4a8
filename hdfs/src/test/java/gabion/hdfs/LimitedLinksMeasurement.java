package gabion.hdfs;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.GabionFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockManagerTestUtil;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.io.erasurecode.ECSchema;
import org.junit.Test;

/**
 * Repairs over limited links: each DataNode is a process in a network namespace of its own, beside its agent, and each
 * namespace has one link of limited rate. It needs root, iproute2 and python3, and runs only when it is named:
 * {@code mvn test -Dtest=LimitedLinksMeasurement}; {@code gabion lab run ECP-10b} calls it so.
 *
 * <p>As many DataNodes as a group has blocks hold one of each group; one more is new. A DataNode is killed, and what it held
 * is rebuilt onto the new one ({@code ECPipe} section 6.3); then the killed one comes back empty as the next new one.
 * Hadoop's own code is measured on the same cluster with the agents stopped. A line of the report is a name and seconds.
 */
public final class LimitedLinksMeasurement {
  private static final int K = Integer.getInteger("gabion.k", 6);
  private static final int M = Integer.getInteger("gabion.m", 3);
  private static final int N = K + M;
  /** The holders of blocks and a new one. */
  private static final int NODE_COUNT = N + 1;
  private static final int BLOCK_BYTES = Integer.getInteger("gabion.mib", 16) << 20;
  private static final int CELL_BYTES = 1 << 20;
  private static final int GROUP_COUNT = Integer.getInteger("gabion.groups", 8);
  private static final String RATE = System.getProperty("gabion.rate", "100mbit");
  /** Whether HDFS has its default settings; then only its own recovery of a node is measured, without the plugin. */
  private static final boolean IS_DEFAULT = Boolean.getBoolean("gabion.default");
  /** Schemes by which a recovery rebuilds one block and a node. */
  private static final String[] SCHEMES =
      System.getProperty("gabion.schemes", "conventional,ppr,pipeline").split(",");
  private static final String POLICY = "RS-" + K + "-" + M + "-1024k";
  private static final String BRIDGE = "gbh-br";
  private static final int WAIT_S = 400;

  private final Path base = Files.createTempDirectory(Paths.get("/dev/shm"), "gabion-hdfs-");
  private final Map<Integer, Process> dataNodes = new TreeMap<>();
  private final Map<Integer, Process> agents = new TreeMap<>();
  private final List<org.apache.hadoop.fs.Path> written = new ArrayList<>();
  private final StringBuilder report = new StringBuilder();
  private MiniDFSCluster hdfs;
  private DistributedFileSystem files;
  /** The DataNode that was killed last. */
  private int dead;

  public LimitedLinksMeasurement() throws IOException {}

  @Test
  public void repairs() throws Exception {
    // Also when the measurement is interrupted.
    Thread cleaning = new Thread(() -> {
      try {
        end();
      } catch (Exception e) {
        System.err.println("not removed: " + e);
      }
    });
    Runtime.getRuntime().addShutdownHook(cleaning);
    try {
      begin();
      write("/single");
      if (IS_DEFAULT) {
        for (int i = 1; i < GROUP_COUNT; i++) {
          write("/many-" + i);
        }
        startNew(N);
        byHadoop("node.hadoop-default");
      } else {
        say("direct", direct());
        reads("normal", "hadoop");
        startNew(N);
        one();
        node();
        say("load", Double.parseDouble(
            Files.readString(Paths.get("/proc/loadavg")).split(" ")[0]));
      }
    } finally {
      end();
      Runtime.getRuntime().removeShutdownHook(cleaning);
      String file = System.getProperty("gabion.report", "target/limited-links.txt");
      Files.write(Paths.get(file), report.toString().getBytes(StandardCharsets.UTF_8));
    }
  }

  /** Degraded reads, and repairs of one block. */
  private void one() throws Exception {
    // A NameNode in safe mode orders no work.
    files.setSafeMode(SafeModeAction.ENTER);
    kill(nodeOf(written.get(0), 1));
    reads("agents", "agents");
    reads("hadoop", "hadoop");
    recover("one." + SCHEMES[0], SCHEMES[0]);
    for (int i = 1; i < SCHEMES.length; i++) {
      files.setSafeMode(SafeModeAction.ENTER);
      kill(nodeOf(written.get(0), 1));
      recover("one." + SCHEMES[i], SCHEMES[i]);
    }
    kill(nodeOf(written.get(0), 1));
    byNameNode("one.ordered-by-namenode");
    byHadoop("one.hadoop");
  }

  /** Recoveries of all blocks of a node. */
  private void node() throws Exception {
    // The new DataNode is to have no block of the files either.
    kill(dead);
    for (int i = 1; i < GROUP_COUNT; i++) {
      write("/many-" + i);
    }
    startNew(dead);
    for (String scheme : SCHEMES) {
      files.setSafeMode(SafeModeAction.ENTER);
      kill(nodeOf(written.get(0), 1));
      double before = agentSeconds();
      recover("node." + scheme, scheme);
      double gib = (double) K * GROUP_COUNT * BLOCK_BYTES / (1 << 30);
      say("core-seconds-per-gib." + scheme, (agentSeconds() - before) / gib);
    }
    kill(nodeOf(written.get(0), 1));
    byNameNode("node.ordered-by-namenode");
    byHadoop("node.hadoop-tuned");
  }

  /** Processor time of all agents. */
  private double agentSeconds() {
    double seconds = 0;
    for (Process agent : agents.values()) {
      seconds += agent.info().totalCpuDuration().orElseThrow().toMillis() / 1e3;
    }
    return seconds;
  }

  private void say(String name, double seconds) {
    String line = String.format(Locale.ROOT, "%s %.3f", name, seconds);
    report.append(line).append('\n');
    System.out.println("MEASURED " + line);
  }

  private static void sh(String command) throws Exception {
    Process process = new ProcessBuilder("sh", "-c", command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(command + ": " + said, 0, process.waitFor());
  }

  private static String address(int node) {
    return "10.77.0." + (10 + node);
  }

  private void begin() throws Exception {
    sh("ip link add " + BRIDGE + " type bridge && ip addr add 10.77.0.1/24 dev " + BRIDGE
        + " && ip link set " + BRIDGE + " up");
    // The last one is the readers'.
    for (int node = 0; node <= NODE_COUNT; node++) {
      String space = "gbh-" + node;
      sh("ip netns add " + space + " && ip link add " + space + "-h type veth peer name e0 netns "
          + space + " && ip link set " + space + "-h master " + BRIDGE + " up && ip -n " + space
          + " addr add " + address(node) + "/24 dev e0 && ip -n " + space
          + " link set e0 up && ip -n " + space + " link set lo up");
      limit("dev " + space + "-h", "", "src");
      limit("dev e0", "-n " + space + " ", "dst");
    }
    Configuration conf = new HdfsConfiguration();
    conf.set("hdfs.minidfs.basedir", base.resolve("name").toString());
    conf.set(DFSConfigKeys.DFS_NAMENODE_RPC_BIND_HOST_KEY, "0.0.0.0");
    conf.setBoolean(DFSConfigKeys.DFS_NAMENODE_DATANODE_REGISTRATION_IP_HOSTNAME_CHECK_KEY, false);
    tune(conf);
    hdfs = new MiniDFSCluster.Builder(conf).numDataNodes(0).build();
    files = hdfs.getFileSystem();
    for (int node = 0; node < N; node++) {
      startDataNode(node);
      startAgent(node);
    }
    awaitNodes(N);
    ErasureCodingPolicy policy = new ErasureCodingPolicy(new ECSchema("rs", K, M), CELL_BYTES);
    files.addErasureCodingPolicies(new ErasureCodingPolicy[] {policy});
    files.enableErasureCodingPolicy(POLICY);
    files.setErasureCodingPolicy(new org.apache.hadoop.fs.Path("/"), POLICY);
  }

  private void awaitNodes(int count) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
    while (files.getDataNodeStats(DatanodeReportType.LIVE).length < count) {
      assertTrue("the DataNodes do not come up", System.nanoTime() < end);
      Thread.sleep(200);
    }
  }

  /** Starts a DataNode that has no block, beside those that have some. */
  private void startNew(int node) throws Exception {
    sh("rm -rf " + base.resolve("node-" + node).resolve("data"));
    startDataNode(node);
    if (!agents.containsKey(node)) {
      startAgent(node);
    }
    awaitNodes(NODE_COUNT);
  }

  /** Limits a link. What goes to or comes from each other node has a queue of its own, and they take turns. */
  private static void limit(String link, String space, String side) throws Exception {
    StringBuilder batch = new StringBuilder("qdisc add " + link + " root handle 1: htb default 99\n"
        + "class add " + link + " parent 1: classid 1:1 htb rate " + RATE + " burst 60k\n"
        + "class add " + link + " parent 1:1 classid 1:99 htb rate 1mbit ceil " + RATE
        + " burst 6k cburst 6k\n");
    for (int node = 0; node <= NODE_COUNT; node++) {
      String id = "1:" + Integer.toHexString(0x20 + node);
      batch.append("class add ").append(link).append(" parent 1:1 classid ").append(id)
          .append(" htb rate 5mbit ceil ").append(RATE).append(" burst 6k cburst 6k\n")
          .append("filter add ").append(link).append(" parent 1: protocol ip u32 match ip ")
          .append(side).append(' ').append(address(node)).append("/32 flowid ").append(id)
          .append('\n');
    }
    sh("tc " + space + "-b - <<'END'\n" + batch + "END");
  }

  /** The settings with which Hadoop is fast: docs/hdfs.md has them. */
  private static void tune(Configuration conf) {
    conf.setLong(DFSConfigKeys.DFS_BLOCK_SIZE_KEY, BLOCK_BYTES);
    if (!IS_DEFAULT) {
      AgentCluster.noticeLossesFast(conf);
      conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_WORK_MULTIPLIER_PER_ITERATION, 10);
    }
  }

  private void startDataNode(int node) throws Exception {
    Path directory = Files.createDirectories(base.resolve("node-" + node));
    Configuration conf = new Configuration(false);
    tune(conf);
    conf.set("fs.defaultFS", "hdfs://10.77.0.1:" + hdfs.getNameNodePort());
    conf.set("hadoop.tmp.dir", directory.toString());
    conf.set(DFSConfigKeys.DFS_DATANODE_DATA_DIR_KEY, directory.resolve("data").toString());
    conf.set(DFSConfigKeys.DFS_DATANODE_ADDRESS_KEY, address(node) + ":9866");
    conf.set(DFSConfigKeys.DFS_DATANODE_HTTP_ADDRESS_KEY, address(node) + ":9864");
    conf.set(DFSConfigKeys.DFS_DATANODE_IPC_ADDRESS_KEY, address(node) + ":9867");
    if (!IS_DEFAULT) {
      conf.set(DFSConfigKeys.DFS_DATANODE_PLUGINS_KEY, GabionPlugin.class.getName());
    }
    for (String name : new String[] {"core-site.xml", "hdfs-site.xml"}) {
      try (var out = Files.newOutputStream(directory.resolve(name))) {
        conf.writeXml(out);
      }
    }
    Process process = inSpace(node, directory.resolve("log").toFile(), "java", "-Xmx300m",
        "-XX:TieredStopAtLevel=4", "-XX:+UseSerialGC", "-cp",
        directory + File.pathSeparator + System.getProperty("java.class.path"),
        DataNode.class.getName());
    dataNodes.put(node, process);
  }

  private void startAgent(int node) throws Exception {
    File log = base.resolve("node-" + node).resolve("agent-log").toFile();
    agents.put(node, inSpace(node, log, System.getProperty("gabion.binary"), "hdfs-agent"));
  }

  private static Process inSpace(int node, File log, String... command) throws IOException {
    List<String> words = new ArrayList<>(List.of("ip", "netns", "exec", "gbh-" + node));
    words.addAll(Arrays.asList(command));
    return new ProcessBuilder(words).redirectErrorStream(true)
        .redirectOutput(ProcessBuilder.Redirect.appendTo(log)).start();
  }

  /** Seconds to send as many bytes as a block has from one namespace to another by TCP. */
  private double direct() throws Exception {
    String receive = "import socket;s=socket.create_server(('" + address(1) + "',9999));"
        + "c=s.accept()[0]\nwhile c.recv(1<<16):pass";
    Process receiver = inSpace(1, base.resolve("direct").toFile(), "python3", "-c", receive);
    Thread.sleep(1_000);
    String send = "import socket;s=socket.create_connection(('" + address(1) + "',9999));s.sendall(b'0'*"
        + BLOCK_BYTES + ");s.shutdown(1)";
    Process sender = inSpace(0, base.resolve("direct").toFile(), "python3", "-c",
        "import time;t=time.time()\n" + send + "\ns.recv(1)\nprint(time.time()-t)");
    assertEquals(0, sender.waitFor());
    assertEquals(0, receiver.waitFor());
    List<String> lines = Files.readAllLines(base.resolve("direct"));
    return Double.parseDouble(lines.get(lines.size() - 1));
  }

  private static byte[] bytes() {
    byte[] bytes = new byte[K * BLOCK_BYTES];
    new Random(7).nextBytes(bytes);
    return bytes;
  }

  private void write(String name) throws IOException {
    org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(name);
    try (FSDataOutputStream out = files.create(path)) {
      out.write(bytes());
    }
    written.add(path);
  }

  private static double read(FileSystem from, org.apache.hadoop.fs.Path path) throws IOException {
    byte[] read = new byte[K * BLOCK_BYTES];
    long begin = System.nanoTime();
    try (FSDataInputStream in = from.open(path)) {
      in.readFully(read);
    }
    double seconds = (System.nanoTime() - begin) / 1e9;
    assertTrue(Arrays.equals(bytes(), read));
    return seconds;
  }

  /** Reads of all bytes of a file, and of the cells of block 1. */
  private void reads(String name, String whose) throws Exception {
    for (String what : new String[] {"all", "block"}) {
      double seconds = Double.parseDouble(reader(whose, written.get(0), what));
      say("read." + name + (what.equals("all") ? "" : ".cells"), seconds);
    }
  }

  /** Seconds of a read in a process with a limited link of its own. */
  private String reader(String whose, org.apache.hadoop.fs.Path path, String what)
      throws Exception {
    File log = base.resolve("reader").toFile();
    Process reader = inSpace(NODE_COUNT, log, "java", "-Xmx900m", "-Dgabion.k=" + K, "-Dgabion.m=" + M,
        "-Dgabion.mib=" + (BLOCK_BYTES >> 20), "-cp",
        System.getProperty("java.class.path"), LimitedLinksMeasurement.class.getName(),
        "hdfs://10.77.0.1:" + hdfs.getNameNodePort(), path.toString(), whose, what);
    String said = "a reader has failed; it said: ";
    assertTrue(said, reader.waitFor(WAIT_S, TimeUnit.SECONDS));
    List<String> lines = Files.readAllLines(log.toPath());
    assertEquals(said + lines, 0, reader.exitValue());
    return lines.get(lines.size() - 1);
  }

  /** A reader: the NameNode, a file, whose code, and whether it reads all or the cells of block 1. */
  public static void main(String[] words) throws Exception {
    Configuration conf = new HdfsConfiguration();
    if (words[2].equals("agents")) {
      conf.setClass("fs.hdfs.impl", GabionFileSystem.class, FileSystem.class);
    }
    org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(words[1]);
    byte[] all = bytes();
    try (FileSystem from = FileSystem.newInstance(java.net.URI.create(words[0]), conf)) {
      if (words[3].equals("all")) {
        System.out.printf(Locale.ROOT, "%.3f%n", read(from, path));
        return;
      }
      byte[] cell = new byte[CELL_BYTES];
      long begin = System.nanoTime();
      try (FSDataInputStream in = from.open(path)) {
        for (int offset = CELL_BYTES; offset < all.length; offset += K * CELL_BYTES) {
          in.readFully(offset, cell);
          if (!Arrays.equals(cell, Arrays.copyOfRange(all, offset, offset + CELL_BYTES))) {
            throw new IOException("wrong bytes at " + offset);
          }
        }
      }
      System.out.printf(Locale.ROOT, "%.3f%n", (System.nanoTime() - begin) / 1e9);
    }
  }

  private LocatedStripedBlock group(org.apache.hadoop.fs.Path path) throws IOException {
    LocatedBlock group =
        files.getClient().getLocatedBlocks(path.toString(), 0, 1).getLocatedBlocks().get(0);
    return (LocatedStripedBlock) group;
  }

  private int nodeOf(org.apache.hadoop.fs.Path path, int index) throws IOException {
    LocatedStripedBlock group = group(path);
    for (int i = 0; i < group.getBlockIndices().length; i++) {
      if (group.getBlockIndices()[i] == index) {
        String address = group.getLocations()[i].getIpAddr();
        return Integer.parseInt(address.substring(address.lastIndexOf('.') + 1)) - 10;
      }
    }
    throw new IOException("block " + index + " of " + path + " is lost");
  }

  private void kill(int node) throws Exception {
    dataNodes.get(node).destroyForcibly().waitFor();
    BlockManagerTestUtil.noticeDeadDatanode(hdfs.getNameNode(), address(node) + ":9866");
    dead = node;
  }

  /** Has a recovery rebuild what the dead DataNode held, while the NameNode orders nothing. */
  private void recover(String name, String scheme) throws Exception {
    Configuration conf = new HdfsConfiguration();
    conf.set("fs.defaultFS", "hdfs://10.77.0.1:" + hdfs.getNameNodePort());
    ByteArrayOutputStream said = new ByteArrayOutputStream();
    PrintStream out = new PrintStream(said, true, "UTF-8");
    long begin = System.nanoTime();
    int code = Recover.run(conf,
        new String[] {"recover", "--scheme", scheme, "--per-datanode", "4"}, out, out);
    assertEquals(said.toString("UTF-8"), 0, code);
    assertTrue(said.toString("UTF-8"), said.toString("UTF-8").contains("Hadoop's own code 0,"));
    whole(name, begin);
    files.setSafeMode(SafeModeAction.LEAVE);
    startNew(dead);
  }

  /** Waits until the NameNode has had the lost blocks rebuilt by the plugins. */
  private void byNameNode(String name) throws Exception {
    whole(name, System.nanoTime());
    startNew(dead);
  }

  /** Kills a node, and has Hadoop's own code rebuild what it held. */
  private void byHadoop(String name) throws Exception {
    for (Process agent : agents.values()) {
      agent.destroyForcibly().waitFor();
    }
    agents.clear();
    kill(nodeOf(written.get(0), 1));
    whole(name, System.nanoTime());
    for (int node = 0; node < NODE_COUNT; node++) {
      if (node != dead) {
        startAgent(node);
      }
    }
    startNew(dead);
  }

  /** Waits until all files are whole, and checks their bytes. */
  private void whole(String name, long begin) throws Exception {
    long end = begin + TimeUnit.SECONDS.toNanos(WAIT_S);
    for (org.apache.hadoop.fs.Path path : written) {
      while (group(path).getLocations().length < N) {
        assertTrue(name + ": " + path + " is not repaired", System.nanoTime() < end);
        Thread.sleep(10);
      }
    }
    say(name, (System.nanoTime() - begin) / 1e9);
    for (org.apache.hadoop.fs.Path path : written) {
      read(files, path);
    }
  }

  private void end() throws Exception {
    for (Process process : agents.values()) {
      process.destroyForcibly().waitFor();
    }
    for (Process process : dataNodes.values()) {
      process.destroyForcibly().waitFor();
    }
    if (hdfs != null) {
      hdfs.shutdown();
    }
    for (int node = 0; node <= NODE_COUNT; node++) {
      sh("ip netns del gbh-" + node + " 2>/dev/null; ip link del gbh-" + node + "-h 2>/dev/null; true");
    }
    sh("ip link del " + BRIDGE + " 2>/dev/null; rm -rf " + base + "; true");
  }
}
