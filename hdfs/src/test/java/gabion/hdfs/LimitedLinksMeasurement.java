package gabion.hdfs;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
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
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockManagerTestUtil;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.junit.Test;

/**
 * Repairs over limited links: each DataNode is a process in a network namespace of its own, beside its agent, and each
 * namespace has one link of limited rate. It needs root and iproute2, and runs only when it is named:
 * {@code mvn test -Dtest=LimitedLinksMeasurement}. Hadoop's own code is measured on the same cluster with the agents stopped.
 */
public final class LimitedLinksMeasurement {
  private static final int K = 6;
  private static final int NODE_COUNT = 10;
  private static final int BLOCK_BYTES = 16 << 20;
  private static final int CELL_BYTES = 1 << 20;
  private static final int GROUP_COUNT = Integer.getInteger("gabion.groups", 8);
  private static final String RATE = System.getProperty("gabion.rate", "100mbit");
  private static final String SCHEME = System.getProperty("gabion.scheme", "pipeline");
  /** Whether only the repair of one block by agents is measured. */
  private static final boolean IS_BRIEF = Boolean.getBoolean("gabion.brief");
  private static final String BRIDGE = "gbh-br";
  private static final int WAIT_S = 240;

  private final Path base = Files.createTempDirectory(Paths.get("/dev/shm"), "gabion-hdfs-");
  private final Map<Integer, Process> dataNodes = new TreeMap<>();
  private final Map<Integer, Process> agents = new TreeMap<>();
  private final StringBuilder report = new StringBuilder();
  private MiniDFSCluster hdfs;
  private DistributedFileSystem files;

  public LimitedLinksMeasurement() throws IOException {}

  @Test
  public void repairs() throws Exception {
    try {
      begin();
      say("direct send of a block: %.2f s", direct());
      org.apache.hadoop.fs.Path single = write("/single", 1);
      if (IS_BRIEF) {
        repair("one block, " + SCHEME, List.of(single), nodeOf(single, 1), true);
        return;
      }
      say("normal read: %s s; the cells of one block: %s s", reader("hadoop", single, "all"),
          reader("hadoop", single, "block"));
      int first = nodeOf(single, 1);
      degradedReads(single, first);
      repair("one block, " + SCHEME, List.of(single), first, true);
      repair("one block, Hadoop", List.of(single), nodeOf(single, 2), false);
      List<org.apache.hadoop.fs.Path> many = new ArrayList<>();
      for (int i = 0; i < GROUP_COUNT; i++) {
        many.add(write("/many-" + i, 1));
      }
      if (GROUP_COUNT > 0) {
        repair("a node, " + SCHEME, many, nodeOf(many.get(0), 0), true);
        repair("a node, Hadoop", many, nodeOf(many.get(0), 3), false);
      }
      Files.write(Paths.get("target/limited-links.txt"),
          report.toString().getBytes(StandardCharsets.UTF_8));
    } finally {
      end();
    }
  }

  private void say(String form, Object... values) {
    String line = String.format(form, values);
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
    for (int node = 0; node < NODE_COUNT; node++) {
      startDataNode(node);
      startAgent(node);
    }
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
    while (files.getDataNodeStats(DatanodeReportType.LIVE).length < NODE_COUNT) {
      assertTrue("the DataNodes do not come up", System.nanoTime() < end);
      Thread.sleep(200);
    }
    files.enableErasureCodingPolicy("RS-6-3-1024k");
    files.setErasureCodingPolicy(new org.apache.hadoop.fs.Path("/"), "RS-6-3-1024k");
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
    AgentCluster.noticeLossesFast(conf);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_WORK_MULTIPLIER_PER_ITERATION, 10);
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
    conf.set(DFSConfigKeys.DFS_DATANODE_PLUGINS_KEY, GabionPlugin.class.getName());
    conf.set(Settings.SCHEME, SCHEME);
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

  private static byte[] bytes(int groups) {
    byte[] bytes = new byte[groups * K * BLOCK_BYTES];
    new Random(7).nextBytes(bytes);
    return bytes;
  }

  private org.apache.hadoop.fs.Path write(String name, int groups) throws IOException {
    org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(name);
    try (FSDataOutputStream out = files.create(path)) {
      out.write(bytes(groups));
    }
    return path;
  }

  private static double read(FileSystem from, org.apache.hadoop.fs.Path path, int groups)
      throws IOException {
    byte[] read = new byte[groups * K * BLOCK_BYTES];
    long begin = System.nanoTime();
    try (FSDataInputStream in = from.open(path)) {
      in.readFully(read);
    }
    double seconds = (System.nanoTime() - begin) / 1e9;
    assertTrue(Arrays.equals(bytes(groups), read));
    return seconds;
  }

  /** Seconds of a read in a process with a limited link of its own. */
  private String reader(String whose, org.apache.hadoop.fs.Path path, String what)
      throws Exception {
    File log = base.resolve("reader").toFile();
    Process reader = inSpace(NODE_COUNT, log, "java", "-Xmx600m", "-cp",
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
    byte[] all = bytes(1);
    try (FileSystem from = FileSystem.newInstance(java.net.URI.create(words[0]), conf)) {
      if (words[3].equals("all")) {
        System.out.printf("%.2f%n", read(from, path, 1));
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
      System.out.printf("%.2f%n", (System.nanoTime() - begin) / 1e9);
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

  /** Reads while a DataNode hangs dead and nothing is repaired. */
  private void degradedReads(org.apache.hadoop.fs.Path path, int victim) throws Exception {
    // A NameNode in safe mode orders no work.
    files.setSafeMode(SafeModeAction.ENTER);
    kill(victim);
    for (String whose : new String[] {"agents", "hadoop"}) {
      say("degraded read, %s: %s s; the cells of the lost block: %s s", whose,
          reader(whose, path, "all"), reader(whose, path, "block"));
    }
    files.setSafeMode(SafeModeAction.LEAVE);
  }

  private void kill(int node) throws Exception {
    dataNodes.get(node).destroyForcibly().waitFor();
    BlockManagerTestUtil.noticeDeadDatanode(hdfs.getNameNode(), address(node) + ":9866");
  }

  /** Kills a node if it lives, waits until the files are whole, and brings the node back empty. */
  private void repair(String what, List<org.apache.hadoop.fs.Path> paths, int victim,
      boolean byAgents) throws Exception {
    if (!byAgents) {
      for (Process agent : agents.values()) {
        agent.destroyForcibly().waitFor();
      }
    }
    int lost = 0;
    for (org.apache.hadoop.fs.Path path : paths) {
      for (DatanodeInfo place : group(path).getLocations()) {
        lost += place.getIpAddr().equals(address(victim)) ? 1 : 0;
      }
    }
    long begin = System.nanoTime();
    if (dataNodes.get(victim).isAlive()) {
      kill(victim);
    }
    long end = begin + TimeUnit.SECONDS.toNanos(WAIT_S);
    for (org.apache.hadoop.fs.Path path : paths) {
      while (group(path).getLocations().length < 9) {
        assertTrue(what + ": " + path + " is not repaired", System.nanoTime() < end);
        Thread.sleep(20);
      }
    }
    double seconds = (System.nanoTime() - begin) / 1e9;
    say("%s: %d blocks in %.2f s, with detection%s", what, lost, seconds, taskTimes());
    for (org.apache.hadoop.fs.Path path : paths) {
      read(files, path, 1);
    }
    sh("rm -rf " + base.resolve("node-" + victim).resolve("data"));
    startDataNode(victim);
    long alive = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
    while (files.getDataNodeStats(DatanodeReportType.LIVE).length < NODE_COUNT) {
      assertTrue("a DataNode does not come back", System.nanoTime() < alive);
      Thread.sleep(200);
    }
    if (!byAgents) {
      for (int node = 0; node < NODE_COUNT; node++) {
        startAgent(node);
      }
    }
  }

  /** The times of tasks that agents have done, from the DataNodes' logs, which are emptied. */
  private String taskTimes() throws IOException {
    StringBuilder times = new StringBuilder();
    for (int node = 0; node < NODE_COUNT; node++) {
      Path log = base.resolve("node-" + node).resolve("log");
      for (String line : Files.readAllLines(log)) {
        if (line.contains("agents have rebuilt")) {
          times.append(times.length() == 0 ? "; tasks: " : ", ")
              .append(line.substring(line.lastIndexOf(" in ") + 4));
        }
      }
      Files.write(log, new byte[0]);
    }
    return times.toString();
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
