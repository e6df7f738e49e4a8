package org.apache.hadoop.hdfs.server.blockmanagement;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.hdfs.protocol.Block;

/** Lets the time of a NameNode's orders be over at once. */
public final class ForgottenOrders {
  private ForgottenOrders() {}

  /**
   * Forgets which rebuilds of these blocks were ordered, so that those that are still needed are ordered anew. The caller
   * has the lock for writing.
   */
  public static void forget(BlockManager manager, List<Block> blocks) throws IOException {
    for (Block block : blocks) {
      BlockInfo stored = manager.getStoredBlock(block);
      manager.pendingReconstruction.remove(stored);
      manager.checkRedundancy(manager.getBlockCollection(stored));
    }
  }
}
