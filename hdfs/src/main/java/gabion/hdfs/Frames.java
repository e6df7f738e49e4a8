package gabion.hdfs;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.Arrays;
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

  /** The last byte is the version of the protocol. */
  private static final byte[] HELLO = {'g', 'a', 'b', 'h', 'd', 'f', 's', 1};
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
  private final DataInputStream in;
  private final DataOutputStream out;

  private Frames(Socket socket) throws IOException {
    this.socket = socket;
    socket.setTcpNoDelay(true);
    in = new DataInputStream(new java.io.BufferedInputStream(socket.getInputStream(), 256 << 10));
    out = new DataOutputStream(new java.io.BufferedOutputStream(socket.getOutputStream()));
  }

  /** Connects to an agent. */
  static Frames connect(InetSocketAddress agent, int connectMs, int silenceMs) throws IOException {
    Socket socket = new Socket();
    try {
      socket.connect(agent, connectMs);
      socket.setSoTimeout(silenceMs);
      Frames frames = new Frames(socket);
      frames.out.write(HELLO);
      return frames;
    } catch (IOException e) {
      socket.close();
      throw e;
    }
  }

  /** Takes an agent's connection, and reads its hello. */
  static Frames accept(Socket socket, int silenceMs) throws IOException {
    socket.setSoTimeout(silenceMs);
    Frames frames = new Frames(socket);
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

  Frame receive() throws IOException {
    int length = in.readInt();
    int sum = in.readInt();
    byte kind = in.readByte();
    if (length < 0 || length > BODY_BYTES_MAX) {
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
