package gabion.hdfs;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.io.erasurecode.ECSchema;
import org.apache.hadoop.util.DataChecksum;
import org.junit.Test;

/** Agents that do what they must not. */
public final class AgentCallsTest {
  /** More than anything takes on a slow machine. */
  private static final int LONG_MS = 200_000;

  /** What an agent sends after the request. */
  private interface Agent {
    void send(Frames frames) throws IOException;
  }

  private static final AgentCalls.Sink SINK = new AgentCalls.Sink() {
    @Override
    public void begin(DataChecksum checksum, int rowBytes) {
      // The message counts, not what it says.
    }

    @Override
    public void row(long offset, ByteBuffer[] bytes) {
      assertTrue(bytes[0].hasRemaining());
    }

    @Override
    public void end(int runCount, long receivedBytes, List<Integer> corrupt) {
      // As above.
    }
  };

  private static void begin(Frames frames) throws IOException {
    frames.send(Frames.CHECKSUM, out -> {
      out.writeByte(2);
      out.writeInt(512);
    });
  }

  private static void row(Frames frames, int length) throws IOException {
    frames.send(Frames.ROW, out -> {
      out.writeLong(0);
      out.writeInt(length);
      out.write(new byte[length]);
    });
  }

  /** The error of a rebuild by this agent. */
  private static IOException rebuildBy(Agent agent, int deadlineMs) throws Exception {
    Configuration conf = new Configuration(false);
    conf.setInt(Settings.DEADLINE_MS, deadlineMs);
    conf.setInt(Settings.STALL_MS, 60_000);
    Settings settings = new Settings(conf);
    try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      Thread thread = new Thread(() -> {
        try (Frames frames = Frames.accept(listener.accept(), LONG_MS, LONG_MS)) {
          frames.receive();
          agent.send(frames);
          frames.receive();
        } catch (IOException e) {
          // The caller has gone.
        }
      });
      thread.start();
      AgentCalls.Request request = new AgentCalls.Request(
          new ErasureCodingPolicy(new ECSchema("xor", 2, 1), 1024),
          new ExtendedBlock("pool", -16, 4096, 1), "/rack", List.of(), new int[] {0});
      InetSocketAddress place = (InetSocketAddress) listener.getLocalSocketAddress();
      IOException error = assertThrows(IOException.class, () -> {
        try (AgentCalls.Rebuild rebuild = new AgentCalls(settings).start(place, request)) {
          while (rebuild.next(SINK)) {
            // Until it fails.
          }
        }
      });
      thread.join();
      return error;
    }
  }

  @Test
  public void messagesOutOfPlaceAreRefused() throws Exception {
    assertEquals("the agent has begun twice", rebuildBy(frames -> {
      begin(frames);
      begin(frames);
    }, LONG_MS).getMessage());
    assertEquals("the agent sent a row without bytes", rebuildBy(frames -> {
      begin(frames);
      row(frames, 0);
    }, LONG_MS).getMessage());
    assertEquals("the agent sent bytes before their checksums' type",
        rebuildBy(frames -> row(frames, 8), LONG_MS).getMessage());
  }

  @Test
  public void anAgentThatNeverEndsIsLeft() throws Exception {
    IOException error = rebuildBy(frames -> {
      begin(frames);
      while (true) {
        row(frames, 8);
      }
    }, 1_000);
    assertTrue(error.toString(), error instanceof SocketTimeoutException);
  }
}
