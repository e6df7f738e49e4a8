package gabion.hdfs;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FilterInputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32C;

/**
 * A connection between a plugin and its agent: eight bytes of hello, then frames of length, CRC32C, kind and body.
 * docs/hdfs.md has the format.
 */
final class Frames implements Closeable {
  static final byte REBUILD = 1;
  static final byte CHECKSUM = 2;
  static final byte ROW = 3;
  static final byte REBUILT = 4;
  static final byte FAILED = 5;
  static final byte OPEN = 6;
  static final byte OPENED = 7;
  static final byte REFUSED = 8;
  static final byte SCHEDULE = 9;
  static final byte SCHEDULED = 10;
  static final byte ORDER = 11;
  static final byte DONE = 12;

  /** The last byte is the version of the protocol. */
  private static final byte[] HELLO = {'g', 'a', 'b', 'h', 'd', 'f', 's', 2};
  private static final int BODY_BYTES_MAX = (4 << 20) + (1 << 10);

  /** A received frame. */
  static final class Frame {
    final byte kind;
    final byte[] body;

    Frame(byte kind, byte[] body) {
      this.kind = kind;
      this.body = body;
    }
  }

  /** Writes the body of a frame. */
  interface Body {
    void write(DataOutputStream out) throws IOException;
  }

  private final Socket socket;
  private final TimedInput timed;
  private final DataInputStream in;
  private final DataOutputStream out;

  /** The bytes of a socket. None is waited for longer than the silence, nor beyond the end of the whole time. */
  private static final class TimedInput extends FilterInputStream {
    private final Socket socket;
    private final int silenceMs;
    private long end;

    TimedInput(Socket socket, int silenceMs, int totalMs) throws IOException {
      super(socket.getInputStream());
      this.socket = socket;
      this.silenceMs = silenceMs;
      end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(totalMs);
    }

    /** Shortens the whole time to this from now, if more is left. */
    void endWithin(int leftMs) {
      long sooner = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(leftMs);
      if (sooner - end < 0) {
        end = sooner;
      }
    }

    private void limit() throws IOException {
      long leftMs = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
      if (leftMs <= 0) {
        throw new SocketTimeoutException("the time of the whole call is over");
      }
      socket.setSoTimeout((int) Math.min(silenceMs, leftMs));
    }

    @Override
    public int read() throws IOException {
      limit();
      return super.read();
    }

    @Override
    public int read(byte[] place, int offset, int length) throws IOException {
      limit();
      return super.read(place, offset, length);
    }
  }

  private Frames(Socket socket, int silenceMs, int totalMs) throws IOException {
    this.socket = socket;
    socket.setTcpNoDelay(true);
    timed = new TimedInput(socket, silenceMs, totalMs);
    in = new DataInputStream(new java.io.BufferedInputStream(timed, 256 << 10));
    out = new DataOutputStream(new java.io.BufferedOutputStream(socket.getOutputStream()));
  }

  /** Connects to an agent, which may be silent for a time, and has a time for all it sends. */
  static Frames connect(InetSocketAddress agent, int connectMs, int silenceMs, int totalMs)
      throws IOException {
    Socket socket = new Socket();
    try {
      socket.connect(agent, connectMs);
      Frames frames = new Frames(socket, silenceMs, totalMs);
      frames.out.write(HELLO);
      return frames;
    } catch (IOException | RuntimeException e) {
      socket.close();
      throw e;
    }
  }

  /** Takes an agent's connection with the same limits, and reads its hello. */
  static Frames accept(Socket socket, int silenceMs, int totalMs) throws IOException {
    Frames frames = new Frames(socket, silenceMs, totalMs);
    byte[] hello = new byte[HELLO.length];
    frames.in.readFully(hello);
    if (!Arrays.equals(hello, HELLO)) {
      throw new IOException("the peer speaks another version; install one version of Gabion");
    }
    return frames;
  }

  void send(byte kind, Body body) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    body.write(new DataOutputStream(bytes));
    byte[] written = bytes.toByteArray();
    out.writeInt(written.length);
    out.writeInt(checksum(kind, written));
    out.writeByte(kind);
    out.write(written);
    out.flush();
  }

  /** Waits for all further frames no longer than this. */
  void endWithin(int leftMs) {
    timed.endWithin(leftMs);
  }

  Frame receive() throws IOException {
    return receive(BODY_BYTES_MAX);
  }

  /** The next frame. A body of more than {@code bytesMax} bytes is refused. */
  Frame receive(int bytesMax) throws IOException {
    int length = in.readInt();
    int sum = in.readInt();
    byte kind = in.readByte();
    if (length < 0 || length > bytesMax) {
      throw new IOException("a frame of " + length + " bytes is not allowed");
    }
    byte[] body = new byte[length];
    in.readFully(body);
    if (checksum(kind, body) != sum) {
      throw new IOException("a frame was damaged on its way");
    }
    return new Frame(kind, body);
  }

  /** A frame's fields, read one after another; ends with {@link EOFException} behind the last. */
  static DataInputStream fields(Frame frame) {
    return new DataInputStream(new java.io.ByteArrayInputStream(frame.body));
  }

  private static int checksum(byte kind, byte[] body) {
    CRC32C sum = new CRC32C();
    sum.update(kind);
    sum.update(body, 0, body.length);
    return (int) sum.getValue();
  }

  @Override
  public void close() throws IOException {
    socket.close();
  }
}
