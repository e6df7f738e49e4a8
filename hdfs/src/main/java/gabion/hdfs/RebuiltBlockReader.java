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
  /** What the reader of a block finds besides the bytes. */
  public interface Listener {
    /** The agent has failed. */
    void failed();

    /** These blocks of the group do not match their checksums. */
    void corrupt(List<Integer> indices);
  }

  private final AgentCalls.Rebuild rebuild;
  private final Listener listener;
  private boolean hasMore = true;
  private long position;
  /** Behind the last byte that is wanted. */
  private final long end;
  private ByteBuffer row = ByteBuffer.allocate(0);

  private RebuiltBlockReader(AgentCalls.Rebuild rebuild, AgentCalls.Request request, Listener listener) {
    this.rebuild = rebuild;
    position = request.from;
    end = request.from + request.length;
    this.listener = listener;
  }

  /**
   * A reader of the one target of a request, rebuilt by this agent, when all the helpers are ready.
   *
   * @param listener hears of corrupt blocks, and when the agent fails later
   * @throws IOException when the agent cannot be reached, or cannot begin
   */
  public static RebuiltBlockReader open(AgentCalls agents, InetSocketAddress agent,
      AgentCalls.Request request, Listener listener) throws IOException {
    AgentCalls.Rebuild rebuild = agents.start(agent, request);
    try {
      RebuiltBlockReader reader = new RebuiltBlockReader(rebuild, request, listener);
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
    if (bytes[0].remaining() > end - position) {
      throw new IOException("the agent sent bytes behind " + end);
    }
    row = bytes[0];
    position += row.remaining();
  }

  @Override
  public void end(int runCount, long receivedBytes, List<Integer> corrupt) {
    if (!corrupt.isEmpty()) {
      listener.corrupt(corrupt);
    }
  }

  /** Whether there are bytes, after the next row has come if it must. The agent's end is taken behind the last byte. */
  private boolean fill() throws IOException {
    if (!row.hasRemaining()) {
      takeEnd();
    }
    try {
      while (!row.hasRemaining() && hasMore) {
        hasMore = rebuild.next(this);
      }
    } catch (IOException e) {
      listener.failed();
      throw e;
    }
    return row.hasRemaining();
  }

  /**
   * If all rows are here, hears what the agent has found. The bytes are right even if it says nothing, because each was
   * verified before it was sent; so they are never held back for it.
   */
  private void takeEnd() {
    if (!hasMore || position < end) {
      return;
    }
    hasMore = false;
    try {
      rebuild.last(this);
    } catch (IOException e) {
      listener.failed();
    }
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
    try {
      takeEnd();
    } finally {
      hasMore = false;
      rebuild.close();
    }
  }
}
