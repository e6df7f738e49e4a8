package gabion.hdfs;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.AbstractFileSystem;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.GabionHdfs;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.GabionFileSystem;
import org.apache.hadoop.test.GenericTestUtils;
import org.junit.Test;

/** Reads of lost blocks by {@code fs.hdfs.impl}. */
public final class ReadTest {
  @Test
  public void lostBlocksAreReadFromAgents() throws Exception {
    Configuration conf = new Configuration(false);
    conf.setBoolean(DFSConfigKeys.DFS_BLOCK_ACCESS_TOKEN_ENABLE_KEY, true);
    // Nothing is rebuilt meanwhile.
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_MAX_STREAMS_KEY, 0);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_STREAMS_HARD_LIMIT_KEY, 0);
    try (AgentCluster cluster = new AgentCluster("rs", 3, 2, 5, conf)) {
      int length = 3 * AgentCluster.BLOCK_BYTES + 4 * AgentCluster.CELL_BYTES + 777;
      Path path = cluster.write(length);
      Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
      cluster.kill(before.get(1).port);
      Configuration reading = new Configuration(cluster.hdfs.getConfiguration(0));
      reading.setClass("fs.hdfs.impl", GabionFileSystem.class, FileSystem.class);
      try (FileSystem files = FileSystem.newInstance(cluster.hdfs.getURI(), reading)) {
        assertTrue(files instanceof GabionFileSystem);
        long opened = cluster.count("Opened");
        readAll(files, path, length);
        assertTrue(cluster.counts(), cluster.count("Opened") >= opened + 3);
        readPieces(files, path, length);
        onlyRealPlacesAreTold(files, path);
        // Without agents Hadoop decodes by itself.
        for (int port : cluster.ports()) {
          cluster.killAgent(port);
        }
        readAll(files, path, length);
        // A stream asks two of the four, and the client asks none of them again for a minute.
        readAll(files, path, length);
        for (int port : cluster.ports()) {
          cluster.startAgent(port);
        }
        opened = cluster.count("Opened");
        readAll(files, path, length);
        assertEquals(cluster.counts(), opened, cluster.count("Opened"));
      }
    }
  }

  @Test
  public void applicationsOfFileContextReadFromAgentsAndReadersReportCorruptBlocks()
      throws Exception {
    Configuration conf = new Configuration(false);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_MAX_STREAMS_KEY, 0);
    conf.setInt(DFSConfigKeys.DFS_NAMENODE_REPLICATION_STREAMS_HARD_LIMIT_KEY, 0);
    try (AgentCluster cluster = new AgentCluster("rs", 3, 2, 5, conf)) {
      Configuration reading = new Configuration(cluster.hdfs.getConfiguration(0));
      reading.setClass("fs.AbstractFileSystem.hdfs.impl", GabionHdfs.class,
          AbstractFileSystem.class);
      FileContext context = FileContext.getFileContext(cluster.hdfs.getURI(), reading);
      int length = 3 * 4 * AgentCluster.CELL_BYTES;
      List<Path> paths = new ArrayList<>();
      List<Integer> corrupt = new ArrayList<>();
      // Three of four live blocks help, and which is left out changes from group to group.
      for (int i = 0; i < 8; i++) {
        Path path = cluster.write(length);
        paths.add(path);
        corrupt.add(cluster.replicas(path).get(3).port);
        // A block with parity, which readers leave to agents.
        try (RandomAccessFile file =
            new RandomAccessFile(cluster.replicas(path).get(3).file, "rw")) {
          file.seek(70_000);
          int old = file.read();
          file.seek(70_000);
          file.write(old ^ 1);
        }
      }
      int victim = cluster.replicas(paths.get(0)).get(1).port;
      cluster.kill(victim);
      long opened = cluster.count("Opened");
      byte[] read = new byte[length];
      for (Path path : paths) {
        try (FSDataInputStream in = context.open(path)) {
          in.readFully(read);
        }
        assertTrue(Arrays.equals(expected(length), read));
      }
      assertTrue(cluster.counts(), cluster.count("Opened") > opened);
      GenericTestUtils.waitFor(() -> {
        try {
          boolean isReported = false;
          for (int i = 0; i < paths.size(); i++) {
            isReported |= corrupt.get(i) != victim && !cluster.replicas(paths.get(i)).containsKey(3);
          }
          return isReported;
        } catch (IOException e) {
          return false;
        }
      }, 100, AgentCluster.WAIT_MS);
    }
  }

  private static byte[] expected(int length) {
    byte[] bytes = new byte[length];
    new Random(length).nextBytes(bytes);
    return bytes;
  }

  private static void readAll(FileSystem files, Path path, int length) throws Exception {
    byte[] read = new byte[length];
    try (FSDataInputStream in = files.open(path)) {
      in.readFully(read);
      assertEquals(-1, in.read());
    }
    assertTrue(Arrays.equals(expected(length), read));
  }

  private static void readPieces(FileSystem files, Path path, int length) throws Exception {
    byte[] whole = expected(length);
    Random random = new Random(1);
    try (FSDataInputStream in = files.open(path)) {
      for (int i = 0; i < 20; i++) {
        int from = random.nextInt(length - 1);
        byte[] piece = new byte[1 + random.nextInt(Math.min(300_000, length - from))];
        if (i % 2 == 0) {
          in.readFully(from, piece);
        } else {
          in.seek(from);
          in.readFully(piece);
        }
        assertArrayEquals(Arrays.copyOfRange(whole, from, from + piece.length), piece);
      }
    }
  }

  private static void onlyRealPlacesAreTold(FileSystem files, Path path) throws Exception {
    FileStatus status = files.getFileStatus(path);
    // Four of five blocks of the first group live.
    assertEquals(4, files.getFileBlockLocations(status, 0, 1)[0].getHosts().length);
  }
}
