package org.apache.hadoop.fs;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.GabionFileSystem;

/**
 * HDFS for applications that use {@link FileContext}: {@code fs.AbstractFileSystem.hdfs.impl}. Its reads of lost blocks are
 * rebuilt by Gabion's agents. It lies in Hadoop's package because the client is made there.
 */
public final class GabionHdfs extends Hdfs {
  /** The signature that {@link AbstractFileSystem#createFileSystem} needs. */
  GabionHdfs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, conf);
    DFSClient hadoops = dfs;
    dfs = GabionFileSystem.client(uri, conf, getStatistics());
    hadoops.close();
  }
}
