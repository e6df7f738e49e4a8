package gabion.hdfs;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.util.EnumSet;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier.AccessMode;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;
import org.apache.hadoop.security.token.Token;
import org.junit.Test;

/** Agents in an HDFS that wants block access tokens. */
public final class TokensTest {
  @Test
  public void tokensAreSentAndVerified() throws Exception {
    Configuration conf = new Configuration(false);
    conf.setBoolean(DFSConfigKeys.DFS_BLOCK_ACCESS_TOKEN_ENABLE_KEY, true);
    try (AgentCluster cluster = new AgentCluster("xor", 2, 1, 4, conf)) {
      int length = 5 * AgentCluster.CELL_BYTES + 3;
      Path path = cluster.write(length);
      Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
      refuseStrangers(cluster, path, before);
      cluster.kill(before.get(0).port);
      cluster.awaitWhole(path);
      assertArrayEquals(before.get(0).bytes, cluster.replicas(path).get(0).bytes);
      cluster.awaitCount("RepairedBlocks", 1);
      assertEquals(cluster.counts(), 1, cluster.count("RepairedBlocks"));
      assertEquals(cluster.counts(), 0, cluster.count("Fallbacks"));
      cluster.check(path, length);
    }
  }

  private static void refuseStrangers(AgentCluster cluster, Path path,
      Map<Integer, AgentCluster.Replica> replicas) throws Exception {
    int port = replicas.get(1).port;
    DataNode datanode = cluster.dataNode(port);
    ExtendedBlock group = cluster.groups(path).get(0).getBlock();
    ExtendedBlock block = StripedBlockUtil.constructInternalBlock(group, cluster.policy, 1);
    ExtendedBlock other = StripedBlockUtil.constructInternalBlock(group, cluster.policy, 0);
    assertEquals(Frames.OPENED, open(port, block, token(datanode, block, AccessMode.READ)));
    assertEquals(Frames.REFUSED, open(port, block, token(datanode, block, AccessMode.WRITE)));
    assertEquals(Frames.REFUSED, open(port, block, token(datanode, other, AccessMode.READ)));
    assertEquals(Frames.REFUSED, open(port, block, new Token<>()));
    Token<BlockTokenIdentifier> forged = token(datanode, block, AccessMode.READ);
    byte[] password = forged.getPassword();
    password[0] ^= 1;
    assertEquals(Frames.REFUSED, open(port, block, forged));
    // With a token, but not as the DataNode has it.
    block.setNumBytes(block.getNumBytes() - 1);
    assertEquals(Frames.REFUSED, open(port, block, token(datanode, block, AccessMode.READ)));
    block.setNumBytes(block.getNumBytes() + 1);
    block.setGenerationStamp(block.getGenerationStamp() - 1);
    assertEquals(Frames.REFUSED, open(port, block, token(datanode, block, AccessMode.READ)));
    assertTrue(cluster.count("Refused") >= 6);
    try (Frames frames = connect(port)) {
      // The plugin may close before it has read everything, so that the send itself can fail.
      IOException closed = assertThrows(IOException.class, () -> {
        frames.send(Frames.OPEN, out -> out.write(new byte[200 << 10]));
        frames.receive();
      });
      assertFalse(closed.toString(), closed instanceof SocketTimeoutException);
    }
  }

  private static Token<BlockTokenIdentifier> token(DataNode datanode, ExtendedBlock block,
      AccessMode mode) throws IOException {
    return datanode.getBlockAccessToken(
        block, EnumSet.of(mode), StorageType.EMPTY_ARRAY, new String[0]);
  }

  /** A connection to the plugin. */
  private static Frames connect(int port) throws IOException {
    InetSocketAddress plugin = new InetSocketAddress(InetAddress.getLoopbackAddress(), port + 1001);
    return Frames.connect(plugin, AgentCluster.WAIT_MS, AgentCluster.WAIT_MS, AgentCluster.WAIT_MS);
  }

  /** The kind of the plugin's answer to an agent. */
  private static byte open(int port, ExtendedBlock block, Token<BlockTokenIdentifier> token)
      throws IOException {
    try (Frames frames = connect(port)) {
      frames.send(Frames.OPEN, out -> {
        out.writeUTF(block.getBlockPoolId());
        out.writeLong(block.getBlockId());
        out.writeLong(block.getGenerationStamp());
        out.writeLong(block.getNumBytes());
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        token.write(new DataOutputStream(bytes));
        out.writeInt(bytes.size());
        bytes.writeTo(out);
      });
      return frames.receive().kind;
    }
  }
}
