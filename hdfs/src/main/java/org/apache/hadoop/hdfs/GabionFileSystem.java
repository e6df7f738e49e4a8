package org.apache.hadoop.hdfs;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;

/**
 * HDFS for clients whose reads of lost blocks are rebuilt by Gabion's agents: {@code fs.hdfs.impl}. It lies in Hadoop's
 * package because the client is made there.
 */
public final class GabionFileSystem extends DistributedFileSystem {
  @Override
  void initDFSClient(URI uri, Configuration conf) throws IOException {
    dfs = client(uri, conf, statistics);
  }

  /** A client whose reads of lost blocks are rebuilt by agents. */
  public static DFSClient client(URI uri, Configuration conf, Statistics statistics)
      throws IOException {
    return new GabionClient(uri, conf, statistics);
  }
}
