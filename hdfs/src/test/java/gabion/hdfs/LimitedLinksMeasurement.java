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
import java.util.regex.Matcher;
import java.util.regex.Pattern;
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
 * Before a recovery by agents is timed, the new DataNode rebuilds a small block, because a JVM that has just started
 * loads classes. Hadoop's own code is measured on the same cluster with the agents stopped. At the end a cluster with
 * Hadoop's default settings and without the plugin recovers a node. A line of the report is a name and seconds, unless
 * the name says otherwise.
 */
public final class LimitedLinksMeasurement {
  private static final int K = Integer.getInteger("gabion.k", 6);
  private static final int M = Integer.getInteger("gabion.m", 3);
  private static final int N = K + M;
  /** The holders of blocks and a new one. */
  private static final int NODE_COUNT = N + 1;
  private static final int BLOCK_BYTES = Integer.getInteger("gabion.mib", 16) << 20;
  private static final int CELL_BYTES = 1 << 20;
  private static final int CELL_COUNT_MAX = 1 << 14;
  /** A file's cell begins at its number in these bytes. */
  private static final byte[] PATTERN = pattern();
  private static final int GROUP_COUNT = Integer.getInteger("gabion.groups", 8);
  /** Bytes of the blocks that are repaired and read by themselves. */
  private static final int SINGLE_BYTES =
      Integer.getInteger("gabion.single-mib", BLOCK_BYTES >> 20) << 20;
  private static final String RATE = System.getProperty("gabion.rate", "100mbit");
  /** What is measured: reads, one (block), node, and default, the recovery of a node by HDFS without the plugin. */
  private static final List<String> PARTS =
      List.of(System.getProperty("gabion.parts", "reads,one,node,default").split(","));
  /** Schemes by which a recovery rebuilds one block and a node. */
  private static final String[] SCHEMES =
      System.getProperty("gabion.schemes", "conventional,ppr,pipeline").split(",");
  /** The plugin's line in a DataNode's log. */
  private static final Pattern REBUILT =
      Pattern.compile("Gabion's agents have rebuilt .* in (\\d+) ms");
  private static final String POLICY = "RS-" + K + "-" + M + "-1024k";
  /** A file with blocks of one cell. */
  private static final org.apache.hadoop.fs.Path SMALL = new org.apache.hadoop.fs.Path("/small");
  private static final String BRIDGE = "gbh-br";
  private static final int WAIT_S = 400;

  private final Path base = Files.createTempDirectory(Paths.get("/dev/shm"), "gabion-hdfs-");
  private final Map<Integer, Process> dataNodes = new TreeMap<>();
  private final Map<Integer, Process> agents = new TreeMap<>();
  private final List<org.apache.hadoop.fs.Path> written = new ArrayList<>();
  private final StringBuilder report = new StringBuilder();
  /** Whether HDFS has its default settings, and no plugin. */
  private boolean isDefault;
  private MiniDFSCluster hdfs;
  private DistributedFileSystem files;
  /** The DataNode that was killed last. */
  private int dead;
  /** The DataNode that was started last, without blocks. */
  private int fresh;

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
      if (PARTS.contains("reads") || PARTS.contains("one")) {
        write("/single", SINGLE_BYTES);
        say("direct", direct());
        if (PARTS.contains("reads")) {
          reads("normal", "hadoop");
        }
        startNew(N);
        one();
      } else {
        startNew(N);
      }
      if (PARTS.contains("node")) {
        node();
      }
      if (PARTS.contains("default")) {
        end();
        isDefault = true;
        begin();
        writeMany();
        startNew(N);
        byHadoop("node.hadoop-default");
      }
      say("load", Double.parseDouble(
          Files.readString(Paths.get("/proc/loadavg")).split(" ")[0]));
    } finally {
      end();
      Runtime.getRuntime().removeShutdownHook(cleaning);
    }
  }

  /** Degraded reads, and repairs of one block. */
  private void one() throws Exception {
    // A NameNode in safe mode orders no work.
    files.setSafeMode(SafeModeAction.ENTER);
    kill(nodeOf(written.get(0), 1));
    if (PARTS.contains("reads")) {
      reads("agents", "agents");
      reads("hadoop", "hadoop");
    }
    recover("one." + SCHEMES[0], SCHEMES[0]);
    if (!PARTS.contains("one")) {
      return;
    }
    for (int i = 1; i < SCHEMES.length; i++) {
      files.setSafeMode(SafeModeAction.ENTER);
      kill(nodeOf(written.get(0), 1));
      recover("one." + SCHEMES[i], SCHEMES[i]);
    }
    kill(nodeOf(written.get(0), 1));
    byNameNode("one.ordered-by-hdfs");
    byHadoop("one.hadoop");
  }

  /** Recoveries of all blocks of a node. */
  private void node() throws Exception {
    // The new DataNode is to have no block of the files either.
    kill(dead);
    for (org.apache.hadoop.fs.Path path : written) {
      files.delete(path, false);
    }
    written.clear();
    writeMany();
    startNew(dead);
    for (String scheme : SCHEMES) {
      files.setSafeMode(SafeModeAction.ENTER);
      kill(nodeOf(written.get(0), 1));
      double before = agentSeconds();
      recover("node." + scheme, scheme);
      double gib = (double) K * ((long) GROUP_COUNT * BLOCK_BYTES + CELL_BYTES) / (1 << 30);
      say("core-seconds-per-gib." + scheme, (agentSeconds() - before) / gib);
    }
    kill(nodeOf(written.get(0), 1));
    byNameNode("node.ordered-by-hdfs");
    byHadoop("node.hadoop-tuned");
  }

  private void writeMany() throws IOException {
    for (int i = 0; i < GROUP_COUNT; i++) {
      write("/many-" + i, BLOCK_BYTES);
    }
  }

  /** Processor time of all agents. */
  private double agentSeconds() {
    double seconds = 0;
    for (Process agent : agents.values()) {
      seconds += agent.info().totalCpuDuration().orElseThrow().toMillis() / 1e3;
    }
    return seconds;
  }

  private void say(String name, double seconds) throws IOException {
    String line = String.format(Locale.ROOT, "%s %.3f", name, seconds);
    report.append(line).append('\n');
    String file = System.getProperty("gabion.report", "target/limited-links.txt");
    Files.write(Paths.get(file), report.toString().getBytes(StandardCharsets.UTF_8));
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
    write(SMALL, CELL_BYTES);
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
    fresh = node;
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
  private void tune(Configuration conf) {
    conf.setLong(DFSConfigKeys.DFS_BLOCK_SIZE_KEY, BLOCK_BYTES);
    if (!isDefault) {
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
    if (!isDefault) {
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
    if (isDefault) {
      return;
    }
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
        + SINGLE_BYTES + ");s.shutdown(1)";
    Process sender = inSpace(0, base.resolve("direct").toFile(), "python3", "-c",
        "import time;t=time.time()\n" + send + "\ns.recv(1)\nprint(time.time()-t)");
    assertEquals(0, sender.waitFor());
    assertEquals(0, receiver.waitFor());
    List<String> lines = Files.readAllLines(base.resolve("direct"));
    return Double.parseDouble(lines.get(lines.size() - 1));
  }

  private static byte[] pattern() {
    byte[] bytes = new byte[CELL_BYTES + CELL_COUNT_MAX];
    new Random(7).nextBytes(bytes);
    return bytes;
  }

  private void write(String name, int blockBytes) throws IOException {
    org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(name);
    write(path, blockBytes);
    written.add(path);
  }

  private void write(org.apache.hadoop.fs.Path path, int blockBytes) throws IOException {
    try (FSDataOutputStream out =
        files.create(path, false, 1 << 16, (short) 1, (long) blockBytes)) {
      for (int cell = 0; cell < blockBytes / CELL_BYTES * K; cell++) {
        out.write(PATTERN, cell, CELL_BYTES);
      }
    }
  }

  /** Seconds in which these cells of a file are read; {@code step} is the distance to the next. */
  private static double read(FileSystem from, org.apache.hadoop.fs.Path path, int first, int step)
      throws IOException {
    long cells = from.getFileStatus(path).getLen() / CELL_BYTES;
    byte[] read = new byte[CELL_BYTES];
    long begin = System.nanoTime();
    try (FSDataInputStream in = from.open(path)) {
      for (int cell = first; cell < cells; cell += step) {
        if (step == 1) {
          in.readFully(read);
        } else {
          in.readFully((long) cell * CELL_BYTES, read);
        }
        if (!Arrays.equals(read, 0, CELL_BYTES, PATTERN, cell, cell + CELL_BYTES)) {
          throw new IOException("wrong bytes in cell " + cell + " of " + path);
        }
      }
    }
    return (System.nanoTime() - begin) / 1e9;
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
    Process reader = inSpace(NODE_COUNT, log, "java", "-Xmx300m", "-Dgabion.k=" + K, "-cp",
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
    try (FileSystem from = FileSystem.newInstance(java.net.URI.create(words[0]), conf)) {
      boolean isAll = words[3].equals("all");
      double seconds = read(from, path, isAll ? 0 : 1, isAll ? 1 : K);
      System.out.printf(Locale.ROOT, "%.3f%n", seconds);
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
    order(conf, scheme, SMALL.toString());
    long begin = System.nanoTime();
    order(conf, scheme, "/");
    whole(name, begin);
    if (name.startsWith("one.")) {
      say(name + ".task", taskSeconds());
    }
    files.setSafeMode(SafeModeAction.LEAVE);
    startNew(dead);
  }

  private static void order(Configuration conf, String scheme, String below) throws Exception {
    ByteArrayOutputStream said = new ByteArrayOutputStream();
    PrintStream out = new PrintStream(said, true, "UTF-8");
    int code = Recover.run(conf, new String[] {"recover", "--scheme", scheme, "--below", below,
        "--per-datanode", "4"}, out, out);
    assertEquals(said.toString("UTF-8"), 0, code);
    assertTrue(said.toString("UTF-8"), said.toString("UTF-8").contains("Hadoop's own code 0,"));
  }

  /** How long the last task took by itself, as its DataNode logs it. */
  private double taskSeconds() throws IOException {
    Matcher task = REBUILT.matcher(Files.readString(base.resolve("node-" + fresh).resolve("log")));
    double seconds = 0;
    while (task.find()) {
      seconds = Integer.parseInt(task.group(1)) / 1e3;
    }
    return seconds;
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

  private void await(org.apache.hadoop.fs.Path path, long end) throws Exception {
    while (group(path).getLocations().length < N) {
      assertTrue(path + " is not repaired", System.nanoTime() < end);
      Thread.sleep(10);
    }
  }

  /** Waits until all files are whole, and checks their bytes. */
  private void whole(String name, long begin) throws Exception {
    long end = begin + TimeUnit.SECONDS.toNanos(WAIT_S);
    for (org.apache.hadoop.fs.Path path : written) {
      await(path, end);
    }
    say(name, (System.nanoTime() - begin) / 1e9);
    await(SMALL, end);
    for (org.apache.hadoop.fs.Path path : written) {
      read(files, path, 0, 1);
    }
  }

  private void end() throws Exception {
    for (Process process : agents.values()) {
      process.destroyForcibly().waitFor();
    }
    for (Process process : dataNodes.values()) {
      process.destroyForcibly().waitFor();
    }
    agents.clear();
    dataNodes.clear();
    written.clear();
    for (int node = 0; node <= NODE_COUNT; node++) {
      sh("ip netns del gbh-" + node + " 2>/dev/null; ip link del gbh-" + node + "-h 2>/dev/null; true");
    }
    sh("ip link del " + BRIDGE + " 2>/dev/null; true");
    // Last, because it takes long on a busy machine.
    if (hdfs != null) {
      hdfs.shutdown();
      hdfs = null;
    }
    sh("rm -rf " + base);
  }
}
