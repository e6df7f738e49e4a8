package gabion.hdfs;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.Semaphore;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hdfs.protocol.BlockLocalPathInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.security.token.block.BlockPoolTokenSecretManager;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier.AccessMode;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.erasurecode.TakeOver;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.util.Daemon;
import org.apache.hadoop.util.Time;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Tells this machine's agent where a block lies, if the block is finalized and the asker's token permits to read it. It also
 * takes the orders of a recovery, if their tokens permit to write. It listens on loopback only.
 */
final class BlockServer implements Closeable {
  private static final Logger LOG = LoggerFactory.getLogger(BlockServer.class);
  /** Connections that are served at the same time; further ones are closed. */
  private static final int CONNECTION_COUNT_MAX = 64;
  /** Time limit of a whole request. */
  private static final int REQUEST_MS = 5_000;
  private static final int SHORTAGE_PAUSE_MS = 50;
  static final int TOKEN_BYTES_MAX = 64 << 10;
  /** A token, the longest name of a pool, and four numbers; or an order. */
  private static final int REQUEST_BYTES_MAX = TOKEN_BYTES_MAX + (64 << 10) + 64;
  /** Orders at a time, so that some connections are left for blocks. */
  private static final int ORDER_COUNT_MAX = 32;
  /** How long the DataNode may take to finalize a block of which it was sent everything. */
  private static final int FINALIZE_MS = 10_000;
  private static final int POLL_MS = 20;

  private final DataNode datanode;
  private final RepairMetrics metrics;
  private final TakeOver takeOver;
  private final ServerSocket listener;
  private final ThreadPoolExecutor threads;
  private final Semaphore orders = new Semaphore(ORDER_COUNT_MAX);

  BlockServer(DataNode datanode, RepairMetrics metrics, TakeOver takeOver, int port)
      throws IOException {
    this.datanode = datanode;
    this.metrics = metrics;
    this.takeOver = takeOver;
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
      Frames.Frame request = frames.receive(REQUEST_BYTES_MAX);
      String refusal;
      try {
        answer(frames, request);
        return;
      } catch (Refusal e) {
        refusal = String.valueOf(e.getMessage());
      }
      byte[] reason = refusal.getBytes(java.nio.charset.StandardCharsets.UTF_8);
      frames.send(Frames.REFUSED, out -> out.write(reason));
    } catch (Throwable e) {
      LOG.debug("The connection of an agent has failed", e);
    }
  }

  /** Something that is not done. */
  private static final class Refusal extends Exception {
    Refusal(Exception cause) {
      super(cause.getMessage(), cause);
    }
  }

  private void answer(Frames frames, Frames.Frame request) throws IOException, Refusal {
    switch (request.kind) {
      case Frames.OPEN:
        BlockLocalPathInfo place;
        try {
          place = open(Frames.fields(request));
        } catch (IOException | RuntimeException e) {
          metrics.refused.incr();
          LOG.info("A block is refused to the agent: {}", e.getMessage());
          throw new Refusal(e);
        }
        metrics.opened.incr();
        frames.send(Frames.OPENED, out -> {
          out.writeUTF(place.getBlockPath());
          out.writeUTF(place.getMetaPath());
        });
        return;
      case Frames.ORDER:
        boolean isByAgents;
        try {
          isByAgents = rebuild(Order.read(Frames.fields(request)));
        } catch (IOException | RuntimeException e) {
          LOG.info("An order is refused: {}", e.getMessage());
          throw new Refusal(e);
        }
        frames.send(Frames.DONE, out -> out.writeBoolean(isByAgents));
        return;
      default:
        throw new IOException("an agent sent a message of kind " + request.kind);
    }
  }

  /** Rebuilds a block here, if the order's token permits it. */
  private boolean rebuild(Order order) throws IOException {
    String pool = order.group.getBlockPoolId();
    ExtendedBlock block =
        StripedBlockUtil.constructInternalBlock(order.group, order.policy, order.target);
    BlockPoolTokenSecretManager tokens = datanode.getBlockPoolTokenSecretManager();
    if (tokens.isBlockPoolRegistered(pool)) {
      tokens.checkAccess(order.token, null, block, AccessMode.WRITE);
    }
    if (datanode.getFSDataset().getStoredBlock(pool, block.getBlockId()) != null) {
      throw new IOException(block + " is here already");
    }
    if (!orders.tryAcquire()) {
      throw new IOException("the DataNode has too many orders; order less at a time");
    }
    try {
      boolean isByAgents = takeOver.rebuild(order);
      awaitFinalized(block);
      return isByAgents;
    } finally {
      orders.release();
    }
  }

  /** Waits for a block that was sent. Hadoop's writer does not hear whether the DataNode has taken it. */
  private void awaitFinalized(ExtendedBlock block) throws IOException {
    long end = Time.monotonicNow() + FINALIZE_MS;
    while (!datanode.getFSDataset().isValidBlock(block)) {
      if (Time.monotonicNow() >= end) {
        throw new IOException("the DataNode has not taken " + block + "; see its log");
      }
      try {
        Thread.sleep(POLL_MS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new InterruptedIOException("the plugin has been stopped");
      }
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
