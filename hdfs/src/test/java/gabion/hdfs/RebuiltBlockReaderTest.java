package gabion.hdfs;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.io.erasurecode.ECSchema;
import org.junit.After;
import org.junit.Test;

/** Readers of a lost block, and agents that end late, never, or with too many bytes. */
public final class RebuiltBlockReaderTest {
  private static final byte[] BYTES = {3, 1, 4, 1, 5, 9, 2, 6};
  private static final int LONG_MS = 200_000;

  private ServerSocket listener;
  private Thread agent;
  private boolean hasFailed;
  private final List<Integer> corrupt = new ArrayList<>();

  /** What an agent sends, after how the blocks are checksummed. */
  private interface Agent {
    void send(Frames frames) throws Exception;
  }

  /** A reader of all bytes from this agent. */
  private RebuiltBlockReader open(int stallMs, Agent answers) throws Exception {
    listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
    agent = new Thread(() -> {
      try (Frames frames = Frames.accept(listener.accept(), LONG_MS, LONG_MS)) {
        frames.receive();
        frames.send(Frames.CHECKSUM, out -> {
          out.writeByte(2);
          out.writeInt(512);
        });
        answers.send(frames);
        // Until the reader closes its connection.
        frames.receive();
      } catch (Exception e) {
        // The reader has gone.
      }
    });
    agent.start();
    Configuration conf = new Configuration(false);
    conf.setInt(Settings.STALL_MS, stallMs);
    AgentCalls.Request request = new AgentCalls.Request(
        new ErasureCodingPolicy(new ECSchema("xor", 2, 1), 1024),
        new ExtendedBlock("pool", -16, 4096, 1), "/rack", List.of(), new int[] {0}, 0, BYTES.length);
    RebuiltBlockReader.Listener heard = new RebuiltBlockReader.Listener() {
      @Override
      public void failed() {
        hasFailed = true;
      }

      @Override
      public void corrupt(List<Integer> indices) {
        corrupt.addAll(indices);
      }
    };
    return RebuiltBlockReader.open(new AgentCalls(new Settings(conf)),
        (InetSocketAddress) listener.getLocalSocketAddress(), request, heard);
  }

  @After
  public void end() throws Exception {
    agent.join();
    listener.close();
  }

  private static void row(DataOutputStream out, byte[]... parts) throws IOException {
    out.writeLong(0);
    int length = 0;
    for (byte[] part : parts) {
      length += part.length;
    }
    out.writeInt(length);
    for (byte[] part : parts) {
      out.write(part);
    }
  }

  private static void rebuilt(DataOutputStream out) throws IOException {
    out.writeLong(16);
    out.writeInt(2);
    out.writeByte(1);
    out.writeByte(2);
    out.writeUTF("");
  }

  @Test
  public void theLastBytesDoNotWaitForTheAgentsEnd() throws Exception {
    CountDownLatch isRead = new CountDownLatch(1);
    byte[] read = new byte[BYTES.length];
    try (RebuiltBlockReader reader = open(30_000, frames -> {
      frames.send(Frames.ROW, out -> row(out, BYTES));
      isRead.await();
      frames.send(Frames.REBUILT, RebuiltBlockReaderTest::rebuilt);
    })) {
      reader.readFully(read, 0, read.length);
      isRead.countDown();
      assertArrayEquals(BYTES, read);
    }
    // What the agent has found is heard all the same.
    assertEquals(List.of(2), corrupt);
    assertFalse(hasFailed);
  }

  @Test
  public void anAgentThatDoesNotEndHasFailed() throws Exception {
    byte[] read = new byte[BYTES.length];
    RebuiltBlockReader reader = open(2_000, frames -> frames.send(Frames.ROW, out -> row(out, BYTES)));
    reader.readFully(read, 0, read.length);
    assertArrayEquals(BYTES, read);
    assertFalse(hasFailed);
    assertEquals(-1, reader.read(read, 0, 1));
    assertTrue(hasFailed);
    reader.close();
  }

  @Test
  public void moreBytesThanAreWantedAreRefused() throws Exception {
    try (RebuiltBlockReader reader = open(30_000,
        frames -> frames.send(Frames.ROW, out -> row(out, BYTES, BYTES)))) {
      assertThrows(IOException.class, () -> reader.read(new byte[1], 0, 1));
      assertTrue(hasFailed);
    }
  }
}
