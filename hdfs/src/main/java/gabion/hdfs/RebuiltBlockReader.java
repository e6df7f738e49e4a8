package gabion.hdfs;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.List;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.hdfs.BlockReader;
import org.apache.hadoop.hdfs.shortcircuit.ClientMmap;
import org.apache.hadoop.util.DataChecksum;

/** Reads a lost block as if it lived: agents rebuild its bytes on the way. */
public final class RebuiltBlockReader implements BlockReader, AgentCalls.Sink {
  private final AgentCalls.Rebuild rebuild;
  private final Runnable onFailure;
  private boolean hasMore = true;
  private long position;
  private ByteBuffer row = ByteBuffer.allocate(0);

  private RebuiltBlockReader(AgentCalls.Rebuild rebuild, long position, Runnable onFailure) {
    this.rebuild = rebuild;
    this.position = position;
    this.onFailure = onFailure;
  }

  /**
   * A reader of the one target of a request, rebuilt by this agent, when all the helpers are ready.
   *
   * @param onFailure is run when the agent fails later
   * @throws IOException when the agent cannot be reached, or cannot begin
   */
  public static RebuiltBlockReader open(AgentCalls agents, InetSocketAddress agent,
      AgentCalls.Request request, Runnable onFailure) throws IOException {
    AgentCalls.Rebuild rebuild = agents.start(agent, request);
    try {
      RebuiltBlockReader reader = new RebuiltBlockReader(rebuild, request.from, onFailure);
      // The first message is about checksums.
      reader.hasMore = rebuild.next(reader);
      return reader;
    } catch (IOException | RuntimeException e) {
      rebuild.close();
      throw e;
    }
  }

  @Override
  public void begin(DataChecksum checksum, int rowBytes) {
    // The bytes were verified where they were read.
  }

  @Override
  public void row(long offset, ByteBuffer[] bytes) throws IOException {
    if (offset != position) {
      throw new IOException("the agent sent bytes from " + offset + " on, not from " + position);
    }
    row = bytes[0];
    position += row.remaining();
  }

  @Override
  public void end(int runCount, long receivedBytes, List<Integer> corrupt) {
    // The next reconstruction, or Hadoop's scanner, reports a corrupt block: a reader may not.
  }

  /** Whether there are bytes, after the next row has come if it must. */
  private boolean fill() throws IOException {
    try {
      while (!row.hasRemaining() && hasMore) {
        hasMore = rebuild.next(this);
      }
    } catch (IOException e) {
      onFailure.run();
      throw e;
    }
    return row.hasRemaining();
  }

  @Override
  public int read(ByteBuffer place) throws IOException {
    if (!fill()) {
      return -1;
    }
    ByteBuffer taken = row.duplicate();
    taken.limit(taken.position() + Math.min(place.remaining(), taken.remaining()));
    int count = taken.remaining();
    place.put(taken);
    row.position(row.position() + count);
    return count;
  }

  @Override
  public int read(byte[] place, int offset, int length) throws IOException {
    return read(ByteBuffer.wrap(place, offset, length));
  }

  @Override
  public long skip(long count) throws IOException {
    long left = count;
    while (left > 0 && fill()) {
      int step = (int) Math.min(left, row.remaining());
      row.position(row.position() + step);
      left -= step;
    }
    return count - left;
  }

  @Override
  public int available() {
    return row.remaining();
  }

  @Override
  public void readFully(byte[] place, int offset, int length) throws IOException {
    if (readAll(place, offset, length) < length) {
      throw new java.io.EOFException("the block ends before the bytes that are wanted");
    }
  }

  @Override
  public int readAll(byte[] place, int offset, int length) throws IOException {
    int count = 0;
    while (count < length) {
      int read = read(place, offset + count, length - count);
      if (read < 0) {
        break;
      }
      count += read;
    }
    return count;
  }

  @Override
  public boolean isShortCircuit() {
    return false;
  }

  @Override
  public ClientMmap getClientMmap(EnumSet<ReadOption> options) {
    return null;
  }

  @Override
  public DataChecksum getDataChecksum() {
    return null;
  }

  @Override
  public int getNetworkDistance() {
    return Integer.MAX_VALUE;
  }

  @Override
  public void close() throws IOException {
    hasMore = false;
    rebuild.close();
  }
}
