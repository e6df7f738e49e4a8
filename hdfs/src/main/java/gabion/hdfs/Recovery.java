package gabion.hdfs;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.NameNodeProxies;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo.AdminStates;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier.AccessMode;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenSecretManager;
import org.apache.hadoop.hdfs.security.token.block.ExportedBlockKeys;
import org.apache.hadoop.hdfs.server.protocol.DatanodeStorageReport;
import org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol;
import org.apache.hadoop.hdfs.server.protocol.StorageReport;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;
import org.apache.hadoop.security.token.Token;

/**
 * The recovery of all lost blocks: it gathers them from the NameNode, has an agent plan one schedule for many of them, and
 * orders each block from the DataNode that shall have it.
 */
final class Recovery {
  /** Blocks of one schedule. */
  private static final int BATCH_COUNT = 256;
  /** An agent takes part in 64 runs at a time. */
  private static final int RUN_COUNT_MAX = 48;
  private static final int CONNECT_MS = 3_000;
  private static final int SCHEDULE_MS = 60_000;
  /** How long the NameNode may take to hear of new blocks. */
  private static final int REPORT_MS = 10_000;
  /** Pauses between questions to the NameNode: the first, and the longest. */
  private static final int POLL_MS = 10;
  private static final int POLL_MS_MAX = 1_000;
  /** Rounds after the first, for blocks whose rebuild has failed. */
  private static final int RETRY_COUNT_MAX = 2;
  private static final int LOST = 0xffff;
  /** Different reasons of a report. */
  private static final int REASON_COUNT_MAX = 8;

  /** What to do, and how. */
  static final class Options {
    String below = "/";
    String scheme;
    boolean isBalanced = true;
    Settings.Path path = Settings.Path.LISTED;
    /** DataNodes that may get blocks, by transfer address; empty for all. */
    final Set<String> onto = new HashSet<>();
    int perDataNode = 4;
    boolean isDry;
  }

  /** What was done. */
  static final class Result {
    final AtomicInteger byAgents = new AtomicInteger();
    final AtomicInteger byHadoop = new AtomicInteger();
    final AtomicInteger failed = new AtomicInteger();
    final AtomicLong bytes = new AtomicLong();
    final Set<String> requestors = Collections.synchronizedSet(new HashSet<>());
    /** Why the last order has failed; null if none has. */
    volatile String lastFailure;
    int lost;
    int left;
    int withoutPlace;
    /** Blocks of groups of which too few others live. */
    int withoutHelpers;
    /** Blocks that agents cannot plan, by the reason. */
    final Map<String, Integer> unplanned = new TreeMap<>();
    double seconds;

    private void leaveOut(String reason) {
      boolean isNamed = unplanned.size() < REASON_COUNT_MAX || unplanned.containsKey(reason);
      unplanned.merge(isNamed ? reason : "other reasons", 1, Integer::sum);
    }
  }

  /** An agent does not plan what it is asked for. */
  private static final class NoPlan extends IOException {
    NoPlan(String reason) {
      super(reason);
    }
  }

  /** A lost block, the DataNode that gets it, and its helpers in order. */
  private static final class Job {
    final LostBlocks.Group group;
    final int lost;
    final List<Integer> candidates = new ArrayList<>();
    int requestor;
    List<Integer> path = new ArrayList<>();

    Job(LostBlocks.Group group, int lost) {
      this.group = group;
      this.lost = lost;
    }

    /** Whether a schedule can have it: all the group's blocks have bytes, and live ones are at different DataNodes. */
    boolean isRegular() {
      Set<String> places = new HashSet<>();
      for (int index = 0; index < group.places.length; index++) {
        DatanodeInfo place = group.places[index];
        if (group.bytesOf(index) == 0
            || place != null && !places.add(place.getDatanodeUuid())) {
          return false;
        }
      }
      return true;
    }
  }

  private final Options options;
  private final Settings settings;
  private final Configuration conf;
  private final ClientProtocol namenode;
  private final NamenodeProtocol keys;
  private final List<DatanodeInfo> nodes = new ArrayList<>();
  private final List<Map<StorageType, Long>> room = new ArrayList<>();
  private final Map<String, Integer> numbers = new HashMap<>();
  /** DataNodes that have not done an order: they get none in later rounds, if there are others. */
  private final Set<String> avoided = Collections.synchronizedSet(new HashSet<>());

  Recovery(Configuration conf, Options options) throws IOException {
    this(conf, options, proxy(conf, ClientProtocol.class), proxy(conf, NamenodeProtocol.class));
  }

  Recovery(Configuration conf, Options options, ClientProtocol namenode, NamenodeProtocol keys)
      throws IOException {
    this.conf = conf;
    this.options = options;
    this.namenode = namenode;
    this.keys = keys;
    settings = new Settings(conf);
    if (Settings.isSecure(conf)) {
      throw new IOException("with Kerberos security agents take no orders");
    }
  }

  private static <T> T proxy(Configuration conf, Class<T> protocol) throws IOException {
    URI name = FileSystem.getDefaultUri(conf);
    return NameNodeProxies.createProxy(conf, name, protocol).getProxy();
  }

  /**
   * Recovers everything that is lost now.
   *
   * @throws Recover.UsageException if the options name a directory or a DataNode that does not exist
   */
  Result run() throws IOException, InterruptedException, Recover.UsageException {
    Result result = new Result();
    long begin = System.nanoTime();
    learnNodes();
    checkNames();
    List<LostBlocks.Group> groups = LostBlocks.below(namenode, options.below);
    result.lost = count(groups);
    result.left = result.lost;
    rebuildable(groups, result);
    for (int round = 0; result.left > 0 && round <= RETRY_COUNT_MAX && !options.isDry; round++) {
      int before = result.left;
      int avoidedBefore = avoided.size();
      round(groups, result);
      groups = awaitReports(result);
      result.left = count(groups);
      if (result.left == before && avoided.size() == avoidedBefore) {
        break;
      }
    }
    result.seconds = (System.nanoTime() - begin) / 1e9;
    return result;
  }

  private void checkNames() throws IOException, Recover.UsageException {
    if (namenode.getFileInfo(options.below) == null) {
      throw new Recover.UsageException(
          "--below is '" + options.below + "', which does not exist; name a directory of this HDFS");
    }
    for (String address : options.onto) {
      if (nodes.stream().noneMatch(node -> hasAddress(node, address))) {
        throw new Recover.UsageException("--onto names '" + address
            + "', but no live DataNode has this transfer address; see 'hdfs dfsadmin -report'");
      }
    }
  }

  private static boolean hasAddress(DatanodeInfo node, String address) {
    return address.equals(node.getXferAddr()) || address.equals(node.getXferAddrWithHostname());
  }

  /** The groups of which enough blocks live; counts the lost blocks of the others. */
  private List<LostBlocks.Group> rebuildable(List<LostBlocks.Group> groups, Result result) {
    List<LostBlocks.Group> found = new ArrayList<>(groups);
    found.removeIf(group -> !group.canBeRebuilt(numbers.keySet()));
    result.withoutHelpers = count(groups) - count(found);
    return found;
  }

  private static int count(List<LostBlocks.Group> groups) {
    int count = 0;
    for (LostBlocks.Group group : groups) {
      count += group.lost.size();
    }
    return count;
  }

  /** The groups that are still not whole when the NameNode has heard of all new blocks. */
  private List<LostBlocks.Group> awaitReports(Result result)
      throws IOException, InterruptedException {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(REPORT_MS);
    for (int pauseMs = POLL_MS; ; pauseMs = Math.min(2 * pauseMs, POLL_MS_MAX)) {
      List<LostBlocks.Group> groups = LostBlocks.below(namenode, options.below);
      if (count(groups) <= result.lost - result.byAgents.get() - result.byHadoop.get()
          || System.nanoTime() > end) {
        return groups;
      }
      Thread.sleep(pauseMs);
    }
  }

  private void round(List<LostBlocks.Group> groups, Result result)
      throws IOException, InterruptedException {
    learnNodes();
    List<Job> jobs = new ArrayList<>();
    result.withoutPlace = 0;
    result.unplanned.clear();
    for (LostBlocks.Group group : rebuildable(groups, result)) {
      List<Integer> candidates = candidates(group);
      for (int i = 0; i < group.lost.size(); i++) {
        Job job = new Job(group, group.lost.get(i));
        // Lost blocks of one group go to different DataNodes.
        for (int at = i; at < candidates.size(); at += group.lost.size()) {
          job.candidates.add(candidates.get(at));
        }
        if (job.candidates.isEmpty()) {
          result.withoutPlace++;
        } else {
          jobs.add(job);
        }
      }
    }
    for (int from = 0; from < jobs.size(); from += BATCH_COUNT) {
      List<Job> batch = jobs.subList(from, Math.min(jobs.size(), from + BATCH_COUNT));
      order(schedule(batch, result), result);
    }
  }

  /** The DataNodes that live, and the room on their storages. */
  private void learnNodes() throws IOException {
    nodes.clear();
    room.clear();
    numbers.clear();
    for (DatanodeStorageReport report
        : namenode.getDatanodeStorageReport(DatanodeReportType.LIVE)) {
      DatanodeInfo node = report.getDatanodeInfo();
      Map<StorageType, Long> left = new TreeMap<>();
      for (StorageReport storage : report.getStorageReports()) {
        left.merge(storage.getStorage().getStorageType(), storage.getRemaining(), Math::max);
      }
      numbers.put(node.getDatanodeUuid(), nodes.size());
      nodes.add(node);
      room.add(left);
    }
  }

  /** The DataNodes that may get a block of this group: in racks with few of its blocks, if there are any. */
  private List<Integer> candidates(LostBlocks.Group group) {
    Map<String, Integer> perRack = new HashMap<>();
    Set<String> holders = new HashSet<>();
    for (DatanodeInfo place : group.places) {
      if (place != null) {
        perRack.merge(place.getNetworkLocation(), 1, Integer::sum);
        holders.add(place.getDatanodeUuid());
      }
    }
    long bytes = group.bytesOf(group.policy.getNumDataUnits());
    List<Integer> candidates = new ArrayList<>();
    Set<String> racks = new HashSet<>();
    for (int number = 0; number < nodes.size(); number++) {
      DatanodeInfo node = nodes.get(number);
      racks.add(node.getNetworkLocation());
      boolean isNamed = options.onto.isEmpty()
          || options.onto.stream().anyMatch(address -> hasAddress(node, address));
      long left = room.get(number).getOrDefault(group.storageType, 0L);
      if (isNamed && !holders.contains(node.getDatanodeUuid()) && left > bytes
          && node.getAdminState() == AdminStates.NORMAL) {
        candidates.add(number);
      }
    }
    int limit = (group.places.length + racks.size() - 1) / racks.size();
    List<Integer> within = new ArrayList<>(candidates);
    within.removeIf(number ->
        perRack.getOrDefault(nodes.get(number).getNetworkLocation(), 0) >= limit);
    // A block in a crowded rack is better than none; the NameNode moves it later.
    List<Integer> allowed = within.size() >= group.lost.size() ? within : candidates;
    List<Integer> good = new ArrayList<>(allowed);
    good.removeIf(number -> avoided.contains(nodes.get(number).getDatanodeUuid()));
    return good.size() >= group.lost.size() ? good : allowed;
  }

  /** Gives each job its requestor and its path; leaves out those for which there is no plan. */
  private List<Job> schedule(List<Job> batch, Result result) throws IOException {
    List<Job> scheduled = new ArrayList<>();
    List<Job> regular = new ArrayList<>();
    int turn = 0;
    for (Job job : batch) {
      if (job.isRegular()) {
        regular.add(job);
      } else {
        job.requestor = job.candidates.get(turn++ % job.candidates.size());
        scheduled.add(job);
      }
    }
    List<Job> planned = regular.isEmpty() ? regular : planned(regular, result);
    if (planned.size() < regular.size() && planned.size() > 1) {
      // They have the plans of several schedules, and get those of one.
      try {
        ask(planned);
      } catch (NoPlan e) {
        // The plans of several are as valid.
      }
    }
    scheduled.addAll(planned);
    return scheduled;
  }

  /** Has these jobs planned, by halves if an agent refuses them together, and gives those that have a plan. */
  private List<Job> planned(List<Job> jobs, Result result) throws IOException {
    try {
      ask(jobs);
      return jobs;
    } catch (NoPlan e) {
      if (jobs.size() == 1) {
        result.leaveOut(e.getMessage());
        return List.of();
      }
    }
    int half = jobs.size() / 2;
    List<Job> planned = new ArrayList<>(planned(jobs.subList(0, half), result));
    planned.addAll(planned(jobs.subList(half, jobs.size()), result));
    return planned;
  }

  /**
   * Asks one agent after another for a schedule.
   *
   * @throws NoPlan when an agent refuses the jobs
   * @throws IOException when no agent answers
   */
  private void ask(List<Job> jobs) throws IOException {
    IOException last = new IOException("no DataNode lives");
    for (int tries = 0; tries < Math.min(3, nodes.size()); tries++) {
      DatanodeInfo node = nodes.get((jobs.size() + tries) % nodes.size());
      try {
        ask(node, jobs);
        return;
      } catch (NoPlan e) {
        throw e;
      } catch (IOException e) {
        last = new IOException("the agent beside " + node.getXferAddr() + " plans nothing: "
            + e.getMessage(), e);
      }
    }
    throw last;
  }

  private InetSocketAddress agentOf(DatanodeInfo node) {
    return new InetSocketAddress(node.getIpAddr(), node.getXferPort() + settings.agentPortOffset);
  }

  private void ask(DatanodeInfo node, List<Job> jobs) throws IOException {
    try (Frames frames = Frames.connect(agentOf(node), CONNECT_MS, SCHEDULE_MS, SCHEDULE_MS)) {
      frames.send(Frames.SCHEDULE, out -> write(jobs, out));
      Frames.Frame answer = frames.receive();
      if (answer.kind == Frames.REFUSED) {
        throw new NoPlan(new String(answer.body, java.nio.charset.StandardCharsets.UTF_8));
      }
      if (answer.kind != Frames.SCHEDULED) {
        throw new IOException("its answer is no schedule");
      }
      DataInputStream in = new DataInputStream(new ByteArrayInputStream(answer.body));
      in.readLong();
      for (Job job : jobs) {
        job.requestor = in.readUnsignedShort();
        List<Integer> path = new ArrayList<>();
        for (int left = in.readUnsignedByte(); left > 0; left--) {
          int index = in.readUnsignedByte();
          if (index >= job.group.places.length || job.group.places[index] == null) {
            throw new IOException("it has chosen a helper whose block is lost");
          }
          path.add(index);
        }
        if (!job.candidates.contains(job.requestor)) {
          throw new IOException("it has chosen a DataNode that may not have the block");
        }
        job.path = path;
      }
    }
  }

  private void write(List<Job> jobs, DataOutputStream out) throws IOException {
    out.writeByte(options.isBalanced ? 1 : 0);
    out.writeShort(nodes.size());
    for (DatanodeInfo node : nodes) {
      out.writeUTF(node.getNetworkLocation());
    }
    out.writeShort(jobs.size());
    for (Job job : jobs) {
      LostBlocks.Group group = job.group;
      out.writeUTF(group.policy.getCodecName());
      out.writeByte(group.policy.getNumDataUnits());
      out.writeByte(group.policy.getNumParityUnits());
      out.writeLong(group.block.getBlockId());
      out.writeLong(group.bytesOf(group.policy.getNumDataUnits()));
      out.writeByte(job.lost);
      for (DatanodeInfo place : group.places) {
        Integer number = place == null ? null : numbers.get(place.getDatanodeUuid());
        out.writeShort(number == null ? LOST : number);
      }
      out.writeShort(job.candidates.size());
      for (int candidate : job.candidates) {
        out.writeShort(candidate);
      }
    }
  }

  /** Orders the blocks, some of each DataNode at a time, and waits for all. */
  private void order(List<Job> batch, Result result) throws IOException, InterruptedException {
    ExportedBlockKeys exported = keys.getBlockKeys();
    Map<Integer, ExecutorService> queues = new HashMap<>();
    for (Job job : batch) {
      int atATime =
          Math.max(1, Math.min(options.perDataNode, RUN_COUNT_MAX / job.group.places.length));
      ExecutorService queue =
          queues.computeIfAbsent(job.requestor, any -> Executors.newFixedThreadPool(atATime));
      Order order = order(job, exported);
      queue.execute(() -> await(order, job, result));
    }
    for (ExecutorService queue : queues.values()) {
      queue.shutdown();
    }
    for (ExecutorService queue : queues.values()) {
      while (!queue.awaitTermination(1, TimeUnit.HOURS)) {
        // Each order has a time limit of its own.
      }
    }
  }

  private Order order(Job job, ExportedBlockKeys exported) throws IOException {
    LostBlocks.Group group = job.group;
    List<Integer> indices = new ArrayList<>(job.path);
    for (int index = 0; index < group.places.length; index++) {
      if (group.places[index] != null && !indices.contains(index)) {
        indices.add(index);
      }
    }
    List<DatanodeInfo> sources = new ArrayList<>();
    for (int index : indices) {
      sources.add(group.places[index]);
    }
    ExtendedBlock block =
        StripedBlockUtil.constructInternalBlock(group.block, group.policy, job.lost);
    Settings.Path path = job.path.isEmpty() && options.path == Settings.Path.LISTED
        ? Settings.Path.RACK_AWARE : options.path;
    String scheme = options.scheme == null ? settings.scheme : options.scheme;
    return new Order(group.policy, group.block, job.lost, group.storageType,
        nodes.get(job.requestor).getNetworkLocation(), scheme, path, indices, sources,
        token(block, group.storageType, exported));
  }

  /** A permission to write a block, made with the NameNode's keys. */
  private Token<BlockTokenIdentifier> token(ExtendedBlock block, StorageType type,
      ExportedBlockKeys exported) throws IOException {
    if (!exported.isBlockTokenEnabled()) {
      return new Token<>();
    }
    BlockTokenSecretManager minter = new BlockTokenSecretManager(exported.getKeyUpdateInterval(),
        exported.getTokenLifetime(), block.getBlockPoolId(),
        conf.get(DFSConfigKeys.DFS_DATA_ENCRYPTION_ALGORITHM_KEY),
        conf.getBoolean(DFSConfigKeys.DFS_BLOCK_ACCESS_TOKEN_PROTOBUF_ENABLE,
            DFSConfigKeys.DFS_BLOCK_ACCESS_TOKEN_PROTOBUF_ENABLE_DEFAULT));
    minter.addKeys(exported);
    return minter.generateToken(block, EnumSet.of(AccessMode.WRITE), new StorageType[] {type},
        new String[] {""});
  }

  private void await(Order order, Job job, Result result) {
    DatanodeInfo node = nodes.get(job.requestor);
    // Hadoop's own task may follow the agents'.
    int limitMs = (int) Math.min(Integer.MAX_VALUE, 4L * settings.deadlineMs);
    try (Frames frames = Frames.connect(agentOf(node), CONNECT_MS, limitMs, limitMs)) {
      frames.send(Frames.ORDER, order::write);
      Frames.Frame answer = frames.receive();
      if (answer.kind != Frames.DONE) {
        throw new IOException(new String(answer.body, java.nio.charset.StandardCharsets.UTF_8));
      }
      boolean isByAgents = Frames.fields(answer).readBoolean();
      (isByAgents ? result.byAgents : result.byHadoop).incrementAndGet();
      result.bytes.addAndGet(job.group.bytesOf(job.lost));
      result.requestors.add(node.getXferAddr());
    } catch (IOException | RuntimeException e) {
      result.failed.incrementAndGet();
      avoided.add(node.getDatanodeUuid());
      result.lastFailure = node.getXferAddr() + ": " + e.getMessage();
    }
  }
}
