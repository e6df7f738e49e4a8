package org.apache.hadoop.hdfs;

import gabion.hdfs.AgentCalls;
import gabion.hdfs.Settings;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.HdfsBlockLocation;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.client.HdfsClientConfigKeys;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo.DatanodeInfoBuilder;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.util.Time;

/**
 * A client that sees a lost data block at a DataNode that does not exist. Its streams read such a block from an agent; when
 * the agent fails, the stream takes the DataNode for dead and decodes as Hadoop does.
 */
final class GabionClient extends DFSClient {
  /** How the id of a DataNode that does not exist begins. */
  private static final String VIRTUAL = "gabion-rebuilds-block-";

  /** How long an agent that has failed is not asked. */
  private static final long FAILED_MS = 60_000;

  /** Null where agents are not asked. */
  private final AgentCalls agents;
  /** When agents have failed, by the transfer addresses of their DataNodes. */
  private final Map<String, Long> failures = new ConcurrentHashMap<>();

  GabionClient(URI uri, Configuration conf, FileSystem.Statistics statistics)
      throws IOException {
    super(uri, conf, statistics);
    Settings settings = new Settings(conf);
    boolean isProtected = conf.getBoolean("dfs.encrypt.data.transfer", false)
        || !conf.getTrimmed(HdfsClientConfigKeys.DFS_DATA_TRANSFER_PROTECTION_KEY, "").isEmpty();
    boolean isUsed = settings.isEnabled() && !isProtected && !Settings.isSecure(conf);
    agents = isUsed ? new AgentCalls(settings) : null;
  }

  /** Where a lost block is rebuilt; null if the DataNode is a real one. */
  AgentCalls agentsFor(DatanodeInfo datanode) {
    return datanode.getDatanodeUuid().startsWith(VIRTUAL) ? agents : null;
  }

  /** Notes that the agent beside this DataNode has failed. */
  void failed(String transferAddress) {
    failures.put(transferAddress, Time.monotonicNow());
  }

  /** Whether the agent beside this DataNode has failed a short time ago. */
  boolean hasFailed(String transferAddress) {
    Long at = failures.get(transferAddress);
    if (at != null && Time.monotonicNow() - at >= FAILED_MS) {
      failures.remove(transferAddress, at);
      return false;
    }
    return at != null;
  }

  @Override
  public DFSInputStream open(String src, int bufferSize, boolean verifyChecksum)
      throws IOException {
    checkOpen();
    LocatedBlocks blocks = getLocatedBlocks(src, 0);
    if (blocks == null || blocks.getErasureCodingPolicy() == null || agents == null) {
      return super.open(src, bufferSize, verifyChecksum);
    }
    return new GabionInputStream(this, src, verifyChecksum, blocks);
  }

  @Override
  public LocatedBlocks getLocatedBlocks(String src, long start, long length)
      throws IOException {
    LocatedBlocks blocks = super.getLocatedBlocks(src, start, length);
    if (blocks == null || blocks.getErasureCodingPolicy() == null || agents == null) {
      return blocks;
    }
    List<LocatedBlock> seen = new ArrayList<>();
    for (LocatedBlock block : blocks.getLocatedBlocks()) {
      seen.add(withLost((LocatedStripedBlock) block, blocks.getErasureCodingPolicy()));
    }
    LocatedBlock last = blocks.getLastLocatedBlock();
    return new LocatedBlocks(blocks.getFileLength(), blocks.isUnderConstruction(), seen,
        last == null ? null
            : withLost((LocatedStripedBlock) last, blocks.getErasureCodingPolicy()),
        blocks.isLastBlockComplete(), blocks.getFileEncryptionInfo(),
        blocks.getErasureCodingPolicy());
  }

  /** Schedulers are told about real DataNodes only. */
  @Override
  public BlockLocation[] getBlockLocations(String src, long start, long length)
      throws IOException {
    LocatedBlocks blocks = super.getLocatedBlocks(src, start, length);
    BlockLocation[] locations = DFSUtilClient.locatedBlocks2Locations(blocks);
    HdfsBlockLocation[] found = new HdfsBlockLocation[locations.length];
    for (int i = 0; i < locations.length; i++) {
      found[i] = new HdfsBlockLocation(locations[i], blocks.get(i));
    }
    return found;
  }

  /**
   * A place in a group's list of live blocks whose agent has not failed: one with parity, which the reader leaves alone,
   * if there is one.
   */
  private int placeOfAgent(LocatedStripedBlock group, int dataCount, int number) {
    List<Integer> parity = new ArrayList<>();
    List<Integer> data = new ArrayList<>();
    for (int i = 0; i < group.getBlockIndices().length; i++) {
      (group.getBlockIndices()[i] >= dataCount ? parity : data).add(i);
    }
    for (List<Integer> places : List.of(parity, data)) {
      for (int step = 0; step < places.size(); step++) {
        int place = places.get((number + step) % places.size());
        if (!hasFailed(group.getLocations()[place].getXferAddr())) {
          return place;
        }
      }
    }
    return number % group.getLocations().length;
  }

  /** The same group, whose lost data blocks are at DataNodes that do not exist. */
  private LocatedBlock withLost(LocatedStripedBlock group, ErasureCodingPolicy policy) {
    BitSet live = new BitSet();
    for (byte index : group.getBlockIndices()) {
      live.set(index);
    }
    int dataCount = policy.getNumDataUnits();
    List<Integer> lost = new ArrayList<>();
    for (int index = 0; index < dataCount; index++) {
      if (!live.get(index) && StripedBlockUtil.getInternalBlockLength(
          group.getBlockSize(), policy, index) > 0) {
        lost.add(index);
      }
    }
    int rowCount = (int) Math.min(dataCount,
        (group.getBlockSize() + policy.getCellSize() - 1) / policy.getCellSize());
    if (lost.isEmpty() || live.cardinality() < rowCount) {
      return group;
    }
    int liveCount = group.getLocations().length;
    int count = liveCount + lost.size();
    DatanodeInfo[] places = Arrays.copyOf(group.getLocations(), count, DatanodeInfo[].class);
    String[] storages = Arrays.copyOf(group.getStorageIDs(), count);
    StorageType[] types = Arrays.copyOf(group.getStorageTypes(), count);
    byte[] indices = Arrays.copyOf(group.getBlockIndices(), count);
    Token<BlockTokenIdentifier>[] tokens = Arrays.copyOf(group.getBlockTokens(), count);
    for (int i = 0; i < lost.size(); i++) {
      int at = liveCount + i;
      // The agent beside a live block's DataNode rebuilds it.
      DatanodeInfo near = places[placeOfAgent(group, dataCount, i)];
      places[at] = new DatanodeInfoBuilder().setNodeID(near)
          .setDatanodeUuid(VIRTUAL + group.getBlock().getBlockId() + "-" + lost.get(i))
          .setNetworkLocation(near.getNetworkLocation()).build();
      storages[at] = "";
      types[at] = StorageType.DISK;
      indices[at] = (byte) (int) lost.get(i);
      tokens[at] = new Token<>();
    }
    LocatedStripedBlock seen = new LocatedStripedBlock(group.getBlock(), places, storages, types,
        indices, group.getStartOffset(), group.isCorrupt(), group.getCachedLocations());
    seen.setBlockTokens(tokens);
    return seen;
  }
}
