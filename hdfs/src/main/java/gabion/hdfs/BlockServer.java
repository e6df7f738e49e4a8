package gabion.hdfs;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hdfs.protocol.BlockLocalPathInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.security.token.block.BlockPoolTokenSecretManager;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier.AccessMode;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.util.Daemon;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Tells this machine's agent where a block lies, if the block is finalized and the asker's token permits to read it.
 * It listens on loopback only.
 */
final class BlockServer implements Closeable {
  private static final Logger LOG = LoggerFactory.getLogger(BlockServer.class);
  /** Connections that are served at the same time; further ones are closed. */
  private static final int CONNECTION_COUNT_MAX = 64;
  /** Time limit of a whole request. */
  private static final int REQUEST_MS = 5_000;
  private static final int SHORTAGE_PAUSE_MS = 50;
  private static final int TOKEN_BYTES_MAX = 64 << 10;
  /** A token, the longest name of a pool, and four numbers. */
  private static final int OPEN_BYTES_MAX = TOKEN_BYTES_MAX + (64 << 10) + 64;

  private final DataNode datanode;
  private final RepairMetrics metrics;
  private final ServerSocket listener;
  private final ThreadPoolExecutor threads;

  BlockServer(DataNode datanode, RepairMetrics metrics, int port) throws IOException {
    this.datanode = datanode;
    this.metrics = metrics;
    listener = new ServerSocket();
    listener.setReuseAddress(true);
    try {
      listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
    } catch (IOException e) {
      listener.close();
      throw new IOException("cannot listen on port " + port + " of loopback", e);
    }
    threads = new ThreadPoolExecutor(0, CONNECTION_COUNT_MAX, 60, TimeUnit.SECONDS,
        new SynchronousQueue<>(), new Daemon.DaemonFactory());
    Daemon acceptor = new Daemon(this::accept);
    acceptor.setName("gabion-blocks-" + port);
    acceptor.start();
  }

  private void accept() {
    while (!listener.isClosed()) {
      try {
        Socket socket = listener.accept();
        try {
          threads.execute(() -> serve(socket));
        } catch (Throwable e) {
          // All threads are busy, or the machine has no more.
          socket.close();
        }
      } catch (Throwable e) {
        if (!listener.isClosed()) {
          LOG.warn("Cannot accept a connection of an agent", e);
          pause();
        }
      }
    }
  }

  /** Gives a shortage, as of descriptors, time to pass. */
  private static void pause() {
    try {
      Thread.sleep(SHORTAGE_PAUSE_MS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private void serve(Socket socket) {
    try (Socket closing = socket; Frames frames = Frames.accept(closing, REQUEST_MS, REQUEST_MS)) {
      Frames.Frame request = frames.receive(OPEN_BYTES_MAX);
      if (request.kind != Frames.OPEN) {
        throw new IOException("an agent sent a message of kind " + request.kind);
      }
      String refusal;
      try {
        BlockLocalPathInfo place = open(Frames.fields(request));
        metrics.opened.incr();
        frames.send(Frames.OPENED, out -> {
          out.writeUTF(place.getBlockPath());
          out.writeUTF(place.getMetaPath());
        });
        return;
      } catch (IOException | RuntimeException e) {
        refusal = String.valueOf(e.getMessage());
        metrics.refused.incr();
        LOG.info("A block is refused to the agent: {}", refusal);
      }
      byte[] reason = refusal.getBytes(java.nio.charset.StandardCharsets.UTF_8);
      frames.send(Frames.REFUSED, out -> out.write(reason));
    } catch (Throwable e) {
      LOG.debug("The connection of an agent has failed", e);
    }
  }

  private BlockLocalPathInfo open(DataInputStream in) throws IOException {
    String pool = in.readUTF();
    long id = in.readLong();
    long stamp = in.readLong();
    long length = in.readLong();
    int tokenBytes = in.readInt();
    if (tokenBytes < 0 || tokenBytes > TOKEN_BYTES_MAX) {
      throw new IOException("a token of " + tokenBytes + " bytes is not allowed");
    }
    Token<BlockTokenIdentifier> token = new Token<>();
    if (tokenBytes > 0) {
      token.readFields(in);
    }
    ExtendedBlock block = new ExtendedBlock(pool, id, length, stamp);
    BlockPoolTokenSecretManager tokens = datanode.getBlockPoolTokenSecretManager();
    // A pool has keys exactly when its NameNode wants tokens.
    if (tokens.isBlockPoolRegistered(pool)) {
      tokens.checkAccess(token, null, block, AccessMode.READ);
    }
    if (!datanode.getFSDataset().isValidBlock(block)) {
      throw new IOException("there is no finalized " + block);
    }
    long has = datanode.getFSDataset().getLength(block);
    BlockLocalPathInfo place = datanode.getFSDataset().getBlockLocalPathInfo(block);
    // The look-up raises the stamp of its argument to that of the replica.
    if (has != length || block.getGenerationStamp() != stamp) {
      throw new IOException(block + " has " + has + " bytes; its stamp was " + stamp
          + " and its length " + length);
    }
    return place;
  }

  @Override
  public void close() throws IOException {
    listener.close();
    threads.shutdownNow();
  }
}
