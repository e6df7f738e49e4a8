package org.apache.hadoop.hdfs;

import gabion.hdfs.AgentCalls;
import gabion.hdfs.RebuiltBlockReader;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;

/** A stream that reads lost blocks from agents. */
final class GabionInputStream extends DFSStripedInputStream {
  /** Failures of agents after which a stream decodes what it reads of lost blocks. */
  private static final int FAILURE_COUNT_MAX = 2;

  private final AtomicInteger failureCount = new AtomicInteger();
  private final GabionClient client;
  private final ErasureCodingPolicy policy;

  GabionInputStream(GabionClient client, String src, boolean verifyChecksum,
      LocatedBlocks blocks) throws IOException {
    super(client, src, verifyChecksum, blocks.getErasureCodingPolicy(), blocks);
    this.client = client;
    policy = blocks.getErasureCodingPolicy();
  }

  @Override
  protected BlockReader getBlockReader(LocatedBlock block, long offset, long length,
      InetSocketAddress address, StorageType type, DatanodeInfo datanode) throws IOException {
    AgentCalls agents = client.agentsFor(datanode);
    if (agents == null) {
      return super.getBlockReader(block, offset, length, address, type, datanode);
    }
    int index = StripedBlockUtil.getBlockIndex(block.getBlock().getLocalBlock());
    LocatedStripedBlock group = (LocatedStripedBlock) getBlockAt(block.getStartOffset());
    BitSet known = new BitSet();
    List<AgentCalls.Source> sources = new ArrayList<>();
    for (int i = 0; i < group.getBlockIndices().length; i++) {
      DatanodeInfo place = group.getLocations()[i];
      int other = group.getBlockIndices()[i];
      if (client.agentsFor(place) == null && !known.get(other)) {
        known.set(other);
        sources.add(new AgentCalls.Source(other, place, group.getBlockTokens()[i]));
      }
    }
    AgentCalls.Request request = new AgentCalls.Request(policy, group.getBlock(),
        datanode.getNetworkLocation(), sources, new int[] {index}, offset, length);
    String place = datanode.getXferAddr();
    if (failureCount.get() >= FAILURE_COUNT_MAX || client.hasFailed(place)) {
      throw new IOException("the agent beside " + place + " is not asked: agents have failed");
    }
    InetSocketAddress agent = agents.agentOf(datanode.getIpAddr(), datanode.getXferPort());
    RebuiltBlockReader.Listener listener = new RebuiltBlockReader.Listener() {
      @Override
      public void failed() {
        GabionInputStream.this.failed(place);
      }

      @Override
      public void corrupt(List<Integer> indices) {
        report(group, indices);
      }
    };
    try {
      return RebuiltBlockReader.open(agents, agent, request, listener);
    } catch (IOException e) {
      failed(place);
      throw e;
    }
  }

  private void failed(String place) {
    failureCount.incrementAndGet();
    client.failed(place);
  }

  /** Tells the NameNode about blocks that do not match their checksums. */
  private void report(LocatedStripedBlock group, List<Integer> indices) {
    List<LocatedBlock> corrupt = new ArrayList<>();
    for (int i = 0; i < group.getBlockIndices().length; i++) {
      DatanodeInfo place = group.getLocations()[i];
      int index = group.getBlockIndices()[i];
      if (indices.contains(index) && client.agentsFor(place) == null) {
        corrupt.add(new LocatedBlock(
            StripedBlockUtil.constructInternalBlock(group.getBlock(), policy, index),
            new DatanodeInfo[] {place}, new String[] {group.getStorageIDs()[i]},
            new StorageType[] {group.getStorageTypes()[i]}));
      }
    }
    client.reportChecksumFailure(src, corrupt.toArray(new LocatedBlock[0]));
  }
}
