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
    dfs = new GabionClient(uri, conf, statistics);
  }
}
