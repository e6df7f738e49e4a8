package gabion.hdfs;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.DirectoryListing;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;

/** The lost blocks of all files below a directory, as the NameNode lists their live ones. */
final class LostBlocks {
  private LostBlocks() {}

  /** A group of which blocks are lost. */
  static final class Group {
    final ErasureCodingPolicy policy;
    final ExtendedBlock block;
    /** The DataNode of each block; null if it is lost, or has no bytes. */
    final DatanodeInfo[] places;
    /** The lost blocks that have bytes. */
    final List<Integer> lost = new ArrayList<>();
    final StorageType storageType;

    private Group(LocatedStripedBlock located, ErasureCodingPolicy policy) {
      this.policy = policy;
      block = located.getBlock();
      places = new DatanodeInfo[policy.getNumDataUnits() + policy.getNumParityUnits()];
      byte[] indices = located.getBlockIndices();
      for (int i = 0; i < indices.length; i++) {
        places[indices[i]] = located.getLocations()[i];
      }
      StorageType[] types = located.getStorageTypes();
      storageType = types.length == 0 || types[0] == null ? StorageType.DISK : types[0];
      for (int index = 0; index < places.length; index++) {
        if (places[index] == null && bytesOf(index) > 0) {
          lost.add(index);
        }
      }
    }

    /** Bytes of a block. */
    long bytesOf(int index) {
      return StripedBlockUtil.getInternalBlockLength(block.getNumBytes(), policy, index);
    }

    /** Whether enough blocks are on these DataNodes, by their ids: a data block without bytes is zeros, and helps. */
    boolean canBeRebuilt(Set<String> living) {
      int count = 0;
      for (DatanodeInfo place : places) {
        count += place != null && living.contains(place.getDatanodeUuid()) ? 1 : 0;
      }
      for (int index = 0; index < policy.getNumDataUnits(); index++) {
        count += bytesOf(index) == 0 ? 1 : 0;
      }
      return count >= policy.getNumDataUnits();
    }
  }

  /** The groups with lost blocks of files below {@code root}. Files that are being written are left to the NameNode. */
  static List<Group> below(ClientProtocol namenode, String root) throws IOException {
    List<Group> found = new ArrayList<>();
    Deque<String> directories = new ArrayDeque<>();
    directories.add(root);
    while (!directories.isEmpty()) {
      String directory = directories.remove();
      byte[] after = HdfsFileStatus.EMPTY_NAME;
      DirectoryListing listing;
      do {
        listing = namenode.getListing(directory, after, true);
        if (listing == null) {
          // It has been deleted meanwhile.
          break;
        }
        for (HdfsFileStatus status : listing.getPartialListing()) {
          if (status.isDirectory()) {
            directories.add(status.getFullName(directory));
          } else if (status instanceof HdfsLocatedFileStatus
              && status.getErasureCodingPolicy() != null) {
            gather(((HdfsLocatedFileStatus) status).getLocatedBlocks(),
                status.getErasureCodingPolicy(), found);
          }
        }
        after = listing.getLastName();
      } while (listing.hasMore());
    }
    return found;
  }

  private static void gather(LocatedBlocks blocks, ErasureCodingPolicy policy,
      List<Group> found) {
    if (blocks == null) {
      return;
    }
    List<LocatedBlock> all = blocks.getLocatedBlocks();
    int complete = all.size() - (blocks.isUnderConstruction() ? 1 : 0);
    for (LocatedBlock block : all.subList(0, Math.max(complete, 0))) {
      if (block instanceof LocatedStripedBlock) {
        Group group = new Group((LocatedStripedBlock) block, policy);
        if (!group.lost.isEmpty()) {
          found.add(group);
        }
      }
    }
  }

  /**
   * A directory as the NameNode names it.
   *
   * @throws IllegalArgumentException if it is not absolute
   */
  static String clean(String of, String directory) {
    String path = new Path(directory).toUri().getPath();
    if (!path.startsWith("/")) {
      throw new IllegalArgumentException(
          of + " is '" + directory + "'; use an absolute path, such as /" + path);
    }
    return path;
  }
}
