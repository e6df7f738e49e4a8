package gabion.hdfs;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.util.DataChecksum;

/** Rebuilds by agents, for a DataNode or a reader. */
public final class AgentCalls {
  private static final int CONNECT_MS = 3_000;
  /** Beyond the agent's own limit of a stall: the agent replaces helpers and goes on. */
  private static final int SILENCE_STALLS = 4;
  /** Beyond the agent's own limit of a task, so that the agent can say what it has found. */
  private static final int GRACE_MS = 5_000;

  private final Settings settings;

  /** Calls with these settings. */
  public AgentCalls(Settings settings) {
    this.settings = settings;
  }

  /** A live block of a group. */
  public static final class Source {
    final int index;
    final DatanodeInfo datanode;
    final Token<BlockTokenIdentifier> token;

    /** A block with this index in its group, and a token that permits to read it. */
    public Source(int index, DatanodeInfo datanode, Token<BlockTokenIdentifier> token) {
      this.index = index;
      this.datanode = datanode;
      this.token = token;
    }

    /** Its place in the group. */
    public int index() {
      return index;
    }
  }

  /** What to rebuild, and from what. */
  public static final class Request {
    final ErasureCodingPolicy policy;
    final ExtendedBlock group;
    final String location;
    final List<Source> sources;
    final int[] targets;
    final long from;
    final long length;
    private String scheme;
    private Settings.Path path;

    /** Whole blocks {@code targets} of {@code group}, for a DataNode at this network location. */
    public Request(ErasureCodingPolicy policy, ExtendedBlock group, String location,
        List<Source> sources, int[] targets) {
      this(policy, group, location, sources, targets, 0, Long.MAX_VALUE);
    }

    /** The bytes of these blocks in a range of positions. */
    public Request(ErasureCodingPolicy policy, ExtendedBlock group, String location,
        List<Source> sources, int[] targets, long from, long length) {
      this.policy = policy;
      this.group = group;
      this.location = location;
      this.sources = sources;
      this.targets = targets;
      this.from = from;
      this.length = length;
    }

    /** Does as an order says, and not as the settings say. */
    public void by(Order order) {
      scheme = order.scheme;
      path = order.path;
    }
  }

  /** Takes the rebuilt bytes. */
  public interface Sink {
    /** How the group's blocks are checksummed; the first call. */
    void begin(DataChecksum checksum, int rowBytes) throws IOException;

    /** The next bytes of all targets, in the request's order. Short ones have fewer, or none. */
    void row(long offset, ByteBuffer[] bytes) throws IOException;

    /** What the agent has moved and found; always the last call of a rebuild that an agent has ended. */
    void end(int runCount, long receivedBytes, List<Integer> corrupt) throws IOException;
  }

  /** The name of the scheme for tasks without an order. */
  public String scheme() {
    return settings.scheme;
  }

  /**
   * Has blocks rebuilt.
   *
   * @param agent the agent beside the asking DataNode, or beside any other for a reader
   * @throws IOException when the agent cannot be reached
   */
  public Rebuild start(InetSocketAddress agent, Request request) throws IOException {
    int silenceMs = Math.min(settings.stallMs * SILENCE_STALLS, settings.deadlineMs);
    Frames frames =
        Frames.connect(agent, CONNECT_MS, silenceMs, settings.deadlineMs + GRACE_MS);
    try {
      frames.send(Frames.REBUILD, out -> write(request, out));
      return new Rebuild(frames, request.targets.length);
    } catch (IOException | RuntimeException e) {
      frames.close();
      throw e;
    }
  }

  /** The agent beside a DataNode. */
  public InetSocketAddress agentOf(String host, int transferPort) {
    return new InetSocketAddress(host, transferPort + settings.agentPortOffset);
  }

  /** A rebuild that is going on. To close it before its end cancels it. */
  public final class Rebuild implements Closeable {
    private final Frames frames;
    private final int targetCount;
    private boolean hasBegun;

    private Rebuild(Frames frames, int targetCount) {
      this.frames = frames;
      this.targetCount = targetCount;
    }

    /**
     * Passes the agent's next message on.
     *
     * @return whether more messages follow
     * @throws IOException when the agent is silent, is late, or has failed
     */
    public boolean next(Sink sink) throws IOException {
      Frames.Frame frame = frames.receive();
      DataInputStream in = Frames.fields(frame);
      switch (frame.kind) {
        case Frames.CHECKSUM:
          if (hasBegun) {
            throw new IOException("the agent has begun twice");
          }
          hasBegun = true;
          DataChecksum.Type type = DataChecksum.Type.valueOf(in.readUnsignedByte());
          sink.begin(DataChecksum.newDataChecksum(type, in.readInt()), settings.sliceBytes);
          return true;
        case Frames.ROW:
          if (!hasBegun) {
            throw new IOException("the agent sent bytes before their checksums' type");
          }
          sink.row(in.readLong(), row(frame.body, in, targetCount));
          return true;
        case Frames.REBUILT:
          end(in, sink);
          return false;
        case Frames.FAILED:
          throw new IOException("the agent has failed: " + end(in, sink));
        default:
          throw new IOException("the agent sent a message of kind " + frame.kind);
      }
    }

    /**
     * Passes on the agent's last message, which follows all rows at once. Its limit is {@code gabion.stall.ms}.
     *
     * @throws IOException when the agent sends anything else, is silent, or has failed
     */
    public void last(Sink sink) throws IOException {
      frames.endWithin(settings.stallMs);
      if (next(sink)) {
        throw new IOException("the agent sent more than it was asked for");
      }
    }

    @Override
    public void close() throws IOException {
      frames.close();
    }
  }

  /** The slices of a row, without a copy. */
  private static ByteBuffer[] row(byte[] body, DataInputStream in, int count) throws IOException {
    ByteBuffer[] slices = new ByteBuffer[count];
    long bytes = 0;
    for (int i = 0; i < count; i++) {
      int length = in.readInt();
      if (length < 0 || length > in.available()) {
        throw new IOException("the agent sent a row that ends too soon");
      }
      slices[i] = ByteBuffer.wrap(body, body.length - in.available(), length).slice();
      in.skipBytes(length);
      bytes += length;
    }
    if (bytes == 0) {
      throw new IOException("the agent sent a row without bytes");
    }
    return slices;
  }

  private static String end(DataInputStream in, Sink sink) throws IOException {
    long receivedBytes = in.readLong();
    int runCount = in.readInt();
    List<Integer> corrupt = new ArrayList<>();
    for (int left = in.readUnsignedByte(); left > 0; left--) {
      corrupt.add(in.readUnsignedByte());
    }
    String reason = in.readUTF();
    sink.end(runCount, receivedBytes, corrupt);
    return reason;
  }

  private void write(Request request, DataOutputStream out) throws IOException {
    ErasureCodingPolicy policy = request.policy;
    out.writeUTF(policy.getCodecName());
    out.writeByte(policy.getNumDataUnits());
    out.writeByte(policy.getNumParityUnits());
    out.writeInt(policy.getCellSize());
    out.writeUTF(request.group.getBlockPoolId());
    out.writeLong(request.group.getBlockId());
    out.writeLong(request.group.getGenerationStamp());
    out.writeLong(request.group.getNumBytes());
    out.writeUTF(request.scheme == null ? settings.scheme : request.scheme);
    out.writeInt(settings.sliceBytes);
    out.writeInt(settings.deadlineMs);
    out.writeInt(settings.stallMs);
    out.writeUTF(request.location);
    out.writeByte(request.sources.size());
    for (Source source : request.sources) {
      out.writeByte(source.index);
      DatanodeInfo datanode = source.datanode;
      int port = datanode.getXferPort() + settings.agentPortOffset;
      out.writeUTF(datanode.getIpAddr() + ":" + port);
      out.writeUTF(source.datanode.getNetworkLocation());
      ByteArrayOutputStream token = new ByteArrayOutputStream();
      source.token.write(new DataOutputStream(token));
      out.writeInt(token.size());
      token.writeTo(out);
    }
    out.writeByte(request.targets.length);
    for (int target : request.targets) {
      out.writeByte(target);
    }
    out.writeLong(request.from);
    out.writeLong(request.length);
    Settings.Path path = request.path == null ? settings.path : request.path;
    out.writeByte(path.ordinal());
    if (path != Settings.Path.WEIGHTED) {
      return;
    }
    for (Source from : request.sources) {
      String location = from.datanode.getNetworkLocation();
      for (Source to : request.sources) {
        out.writeInt(settings.rates.between(location, to.datanode.getNetworkLocation()));
      }
      out.writeInt(settings.rates.between(location, request.location));
    }
  }
}
