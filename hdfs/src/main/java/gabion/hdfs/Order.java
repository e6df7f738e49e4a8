package gabion.hdfs;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.protocol.DatanodeID;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo.DatanodeInfoBuilder;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.server.protocol.BlockECReconstructionCommand.BlockECReconstructionInfo;
import org.apache.hadoop.io.erasurecode.ECSchema;
import org.apache.hadoop.security.token.Token;

/** A recovery's order to a DataNode: to rebuild one lost block of a group, from these blocks. */
public final class Order {
  final ErasureCodingPolicy policy;
  final ExtendedBlock group;
  final int target;
  final StorageType storageType;
  /** The network location of the DataNode that gets the order. */
  final String location;
  final String scheme;
  final Settings.Path path;
  /** The live blocks, in the order of the path if there is a schedule. */
  final List<Integer> indices;
  /** The DataNodes of these blocks. */
  final List<DatanodeInfo> sources;
  /** The permission to write the block; empty where there are no tokens. */
  final Token<BlockTokenIdentifier> token;

  Order(ErasureCodingPolicy policy, ExtendedBlock group, int target, StorageType storageType,
      String location, String scheme, Settings.Path path, List<Integer> indices,
      List<DatanodeInfo> sources, Token<BlockTokenIdentifier> token) {
    this.policy = policy;
    this.group = group;
    this.target = target;
    this.storageType = storageType;
    this.location = location;
    this.scheme = scheme;
    this.path = path;
    this.indices = indices;
    this.sources = sources;
    this.token = token;
  }

  /** What comes first on the path: its place in the list of sources; behind the last if it is no source. */
  public int placeOf(int index) {
    int place = indices.indexOf(index);
    return place < 0 ? indices.size() : place;
  }

  /** The order as Hadoop has it, for the DataNode with this id. */
  public BlockECReconstructionInfo task(DatanodeID own) {
    DatanodeInfo target =
        new DatanodeInfoBuilder().setNodeID(own).setNetworkLocation(location).build();
    byte[] live = new byte[indices.size()];
    List<Byte> others = new ArrayList<>();
    for (int i = 0; i < live.length; i++) {
      live[i] = (byte) (int) indices.get(i);
    }
    for (int index = 0; index < policy.getNumDataUnits() + policy.getNumParityUnits(); index++) {
      if (index != this.target && !indices.contains(index)) {
        others.add((byte) index);
      }
    }
    byte[] excluded = new byte[others.size()];
    for (int i = 0; i < excluded.length; i++) {
      excluded[i] = others.get(i);
    }
    return new BlockECReconstructionInfo(group, sources.toArray(new DatanodeInfo[0]),
        new DatanodeInfo[] {target}, new String[] {""}, new StorageType[] {storageType}, live,
        excluded, policy);
  }

  /** The name of the scheme. */
  public String scheme() {
    return scheme;
  }

  void write(DataOutputStream out) throws IOException {
    out.writeUTF(policy.getCodecName());
    out.writeByte(policy.getNumDataUnits());
    out.writeByte(policy.getNumParityUnits());
    out.writeInt(policy.getCellSize());
    out.writeUTF(group.getBlockPoolId());
    out.writeLong(group.getBlockId());
    out.writeLong(group.getGenerationStamp());
    out.writeLong(group.getNumBytes());
    out.writeByte(target);
    out.writeUTF(storageType.name());
    out.writeUTF(location);
    out.writeUTF(scheme);
    out.writeByte(path.ordinal());
    out.writeByte(indices.size());
    for (int i = 0; i < indices.size(); i++) {
      DatanodeInfo source = sources.get(i);
      out.writeByte(indices.get(i));
      out.writeUTF(source.getIpAddr());
      out.writeUTF(source.getHostName());
      out.writeUTF(source.getDatanodeUuid());
      out.writeInt(source.getXferPort());
      out.writeInt(source.getInfoPort());
      out.writeInt(source.getInfoSecurePort());
      out.writeInt(source.getIpcPort());
      out.writeUTF(source.getNetworkLocation());
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    token.write(new DataOutputStream(bytes));
    out.writeInt(bytes.size());
    bytes.writeTo(out);
  }

  /**
   * Reads what {@link #write} has written.
   *
   * @throws IOException when it is no order
   */
  static Order read(DataInputStream in) throws IOException {
    String codec = in.readUTF();
    int k = in.readUnsignedByte();
    int m = in.readUnsignedByte();
    int cellBytes = in.readInt();
    String pool = in.readUTF();
    long id = in.readLong();
    long stamp = in.readLong();
    long length = in.readLong();
    int target = in.readUnsignedByte();
    StorageType type;
    ErasureCodingPolicy policy;
    Settings.Path[] paths = Settings.Path.values();
    String typeName = in.readUTF();
    try {
      type = StorageType.valueOf(typeName);
      policy = new ErasureCodingPolicy(new ECSchema(codec, k, m), cellBytes);
    } catch (IllegalArgumentException e) {
      throw new IOException("an order has no policy or no type of storage", e);
    }
    String location = in.readUTF();
    String scheme = in.readUTF();
    int path = in.readUnsignedByte();
    if (length <= 0 || target >= k + m || path >= paths.length) {
      throw new IOException("an order is for a block that its group does not have");
    }
    List<Integer> indices = new ArrayList<>();
    List<DatanodeInfo> sources = new ArrayList<>();
    for (int left = in.readUnsignedByte(); left > 0; left--) {
      int index = in.readUnsignedByte();
      if (index >= k + m || index == target || indices.contains(index)) {
        throw new IOException("an order has a source that its group does not have");
      }
      indices.add(index);
      sources.add(new DatanodeInfoBuilder().setIpAddr(in.readUTF()).setHostName(in.readUTF())
          .setDatanodeUuid(in.readUTF()).setXferPort(in.readInt()).setInfoPort(in.readInt())
          .setInfoSecurePort(in.readInt()).setIpcPort(in.readInt())
          .setNetworkLocation(in.readUTF()).build());
    }
    int tokenBytes = in.readInt();
    if (tokenBytes < 0 || tokenBytes > BlockServer.TOKEN_BYTES_MAX) {
      throw new IOException("a token of " + tokenBytes + " bytes is not allowed");
    }
    Token<BlockTokenIdentifier> token = new Token<>();
    if (tokenBytes > 0) {
      token.readFields(in);
    }
    return new Order(policy, new ExtendedBlock(pool, id, length, stamp), target, type, location,
        scheme, paths[path], indices, sources, token);
  }
}
