package gabion.hdfs;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.junit.AfterClass;
import org.junit.After;
import org.junit.BeforeClass;
import org.junit.Test;

/** Blocks of dead DataNodes come back, and who has rebuilt them. */
public final class RebuildTest {
  private static final int K = 3;
  private static final int M = 2;
  private static AgentCluster cluster;

  private final List<DataNodeProperties> stopped = new ArrayList<>();
  private final long repaired = cluster.count("RepairedBlocks");
  private final long fallbacks = cluster.count("Fallbacks");
  private final long corrupt = cluster.count("CorruptSources");

  @BeforeClass
  public static void begin() throws Exception {
    Configuration conf = new Configuration(false);
    // One agent hangs for twice this time.
    conf.setInt(Settings.STALL_MS, 10_000);
    cluster = new AgentCluster("rs", K, M, K + M + 2, conf);
  }

  @AfterClass
  public static void end() {
    if (cluster != null) {
      cluster.close();
    }
  }

  @After
  public void restore() throws Exception {
    cluster.deleteAll();
    for (DataNodeProperties datanode : stopped) {
      cluster.restart(datanode);
    }
    stopped.clear();
  }

  private void kill(int port) throws Exception {
    stopped.add(cluster.kill(port));
  }

  private static void assertSame(AgentCluster.Replica expected, AgentCluster.Replica rebuilt) {
    assertTrue(expected.port != rebuilt.port);
    assertArrayEquals(expected.bytes, rebuilt.bytes);
    assertArrayEquals(expected.sums, rebuilt.sums);
  }

  @Test
  public void blocksOfAKilledDataNodeAreRebuiltByAgents() throws Exception {
    // A byte; a short cell; whole rows; several groups, the last one with short cells.
    int[] lengths = {1, AgentCluster.CELL_BYTES + 77, 6 * AgentCluster.CELL_BYTES,
        2 * K * AgentCluster.BLOCK_BYTES + 5 * AgentCluster.CELL_BYTES + 1234};
    List<Path> paths = new ArrayList<>();
    List<FileChecksum> sums = new ArrayList<>();
    for (int length : lengths) {
      paths.add(cluster.write(length));
      sums.add(cluster.files.getFileChecksum(paths.get(paths.size() - 1)));
    }
    int victim = cluster.replicas(paths.get(2)).get(1).port;
    List<Map<Integer, AgentCluster.Replica>> before = new ArrayList<>();
    int lost = 0;
    for (Path path : paths) {
      for (LocatedBlock group : cluster.groups(path)) {
        Map<Integer, AgentCluster.Replica> replicas = cluster.replicas(group);
        lost += replicas.values().stream().filter(replica -> replica.port == victim).count();
        before.add(replicas);
      }
    }
    kill(victim);
    int at = 0;
    for (int i = 0; i < lengths.length; i++) {
      cluster.awaitWhole(paths.get(i));
      assertEquals(sums.get(i), cluster.files.getFileChecksum(paths.get(i)));
      cluster.check(paths.get(i), lengths[i]);
      for (LocatedBlock group : cluster.groups(paths.get(i))) {
        Map<Integer, AgentCluster.Replica> expected = before.get(at++);
        Map<Integer, AgentCluster.Replica> now = cluster.replicas(group);
        for (Map.Entry<Integer, AgentCluster.Replica> entry : expected.entrySet()) {
          if (entry.getValue().port == victim) {
            assertSame(entry.getValue(), now.get(entry.getKey()));
          }
        }
      }
    }
    cluster.awaitCount("RepairedBlocks", repaired + lost);
    assertEquals(cluster.counts(), fallbacks, cluster.count("Fallbacks"));
    assertEquals(cluster.counts(), repaired + lost, cluster.count("RepairedBlocks"));
    assertTrue(cluster.fsck(), cluster.fsck().contains("is HEALTHY"));
  }

  @Test
  public void twoLostBlocksOfAGroupAreRebuiltTogether() throws Exception {
    int length = 2 * K * AgentCluster.CELL_BYTES + 999;
    Path path = cluster.write(length);
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    kill(before.get(0).port);
    kill(before.get(4).port);
    cluster.awaitWhole(path);
    assertSame(before.get(0), cluster.replicas(path).get(0));
    assertSame(before.get(4), cluster.replicas(path).get(4));
    assertEquals(cluster.counts(), fallbacks, cluster.count("Fallbacks"));
    cluster.check(path, length);
  }

  @Test
  public void aCorruptSourceIsReportedAndReplaced() throws Exception {
    int length = 4 * K * AgentCluster.CELL_BYTES;
    // Three of four live blocks help, and which is left out changes from group to group.
    for (int tries = 0; tries < 6 && cluster.count("CorruptSources") == corrupt; tries++) {
      Path path = cluster.write(length);
      Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
      try (RandomAccessFile file = new RandomAccessFile(before.get(1).file, "rw")) {
        file.seek(70_000);
        file.write(before.get(1).bytes[70_000] ^ 1);
      }
      kill(before.get(3).port);
      cluster.awaitWhole(path);
      assertSame(before.get(3), cluster.replicas(path).get(3));
      cluster.check(path, length);
      restore();
    }
    assertTrue(cluster.counts(), cluster.count("CorruptSources") > corrupt);
    assertEquals(cluster.counts(), fallbacks, cluster.count("Fallbacks"));
  }

  @Test
  public void aMissingFileOfASourceIsNoObstacle() throws Exception {
    Path path = cluster.write(2 * K * AgentCluster.CELL_BYTES);
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    assertTrue(before.get(2).file.delete());
    kill(before.get(0).port);
    cluster.awaitWholeBut(path, 2);
    assertSame(before.get(0), cluster.replicas(path).get(0));
    assertEquals(cluster.counts(), fallbacks, cluster.count("Fallbacks"));
  }

  @Test
  public void aHungAgentIsReplaced() throws Exception {
    Path path = cluster.write(2 * K * AgentCluster.CELL_BYTES);
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    cluster.signalAgent(before.get(1).port, "STOP");
    try {
      kill(before.get(0).port);
      cluster.awaitWhole(path);
      assertSame(before.get(0), cluster.replicas(path).get(0));
      cluster.awaitCount("RepairedBlocks", repaired + 1);
      assertEquals(cluster.counts(), fallbacks, cluster.count("Fallbacks"));
    } finally {
      cluster.signalAgent(before.get(1).port, "CONT");
    }
  }

  @Test
  public void hadoopRebuildsWhatAgentsCannot() throws Exception {
    Path path = cluster.write(2 * K * AgentCluster.CELL_BYTES + 5);
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    List<Integer> ports = cluster.ports();
    for (int port : ports) {
      cluster.killAgent(port);
    }
    try {
      kill(before.get(0).port);
      cluster.awaitWhole(path);
      assertSame(before.get(0), cluster.replicas(path).get(0));
      assertTrue(cluster.counts(), cluster.count("Fallbacks") > fallbacks);
      assertEquals(cluster.counts(), repaired, cluster.count("RepairedBlocks"));
    } finally {
      for (int port : ports) {
        cluster.startAgent(port);
      }
    }
  }

  /** Agents that send the first row of zeros, and go. */
  private static ServerSocket halfAnAgent(int port) throws IOException {
    ServerSocket listener = new ServerSocket(port, 50, InetAddress.getLoopbackAddress());
    Thread thread = new Thread(() -> {
      while (!listener.isClosed()) {
        try (Frames frames = Frames.accept(listener.accept(), AgentCluster.WAIT_MS, AgentCluster.WAIT_MS)) {
          frames.receive();
          frames.send(Frames.CHECKSUM, out -> {
            out.writeByte(2);
            out.writeInt(512);
          });
          frames.send(Frames.ROW, out -> {
            out.writeLong(0);
            out.writeInt(AgentCluster.CELL_BYTES);
            out.write(new byte[AgentCluster.CELL_BYTES]);
          });
        } catch (IOException e) {
          // The next one comes, or the test is over.
        }
      }
    });
    thread.setDaemon(true);
    thread.start();
    return listener;
  }

  @Test
  public void noHalfBlockIsEverFinalized() throws Exception {
    int length = 4 * K * AgentCluster.CELL_BYTES;
    Path path = cluster.write(length);
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    List<Integer> ports = cluster.ports();
    List<ServerSocket> fakes = new ArrayList<>();
    for (int port : ports) {
      cluster.killAgent(port);
      fakes.add(halfAnAgent(port + 1000));
    }
    try {
      kill(before.get(1).port);
      cluster.awaitWhole(path);
      assertSame(before.get(1), cluster.replicas(path).get(1));
      assertTrue(cluster.counts(), cluster.count("Fallbacks") > fallbacks);
      assertEquals(cluster.counts(), repaired, cluster.count("RepairedBlocks"));
      cluster.check(path, length);
    } finally {
      for (ServerSocket fake : fakes) {
        fake.close();
      }
      for (int port : ports) {
        cluster.startAgent(port);
      }
    }
  }

  @Test
  public void aFileThatIsDeletedMeanwhileHarmsNothing() throws Exception {
    Path gone = cluster.write(8 * K * AgentCluster.CELL_BYTES);
    int length = 3 * K * AgentCluster.CELL_BYTES;
    Path path = cluster.write(length);
    Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
    kill(before.get(2).port);
    assertTrue(cluster.files.delete(gone, false));
    cluster.awaitWhole(path);
    assertSame(before.get(2), cluster.replicas(path).get(2));
    assertEquals(cluster.counts(), fallbacks, cluster.count("Fallbacks"));
  }
}
