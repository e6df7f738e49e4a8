package gabion.hdfs;

import static org.junit.Assert.assertEquals;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.StringJoiner;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;
import org.apache.hadoop.io.erasurecode.CodecUtil;
import org.apache.hadoop.io.erasurecode.ECSchema;
import org.apache.hadoop.io.erasurecode.ErasureCoderOptions;
import org.apache.hadoop.io.erasurecode.rawcoder.RawErasureEncoder;
import org.junit.Test;

/**
 * What Hadoop's own coders and layout give. The agents' tests compare theirs with the same file. To write it anew, run this
 * test with {@code -Dgabion.write.answers=true}.
 */
public final class KnownAnswersTest {
  private static final Path ANSWERS = Paths.get("../crates/hdfs/src/tests/hadoop_answers.txt");
  private static final int UNIT_BYTES = 48;
  private static final Object[][] CODES = {
    {"rs", 3, 2}, {"rs", 6, 3}, {"rs", 10, 4}, {"rs-legacy", 6, 3}, {"rs-legacy", 3, 2}, {"xor", 2, 1},
  };
  private static final long[] GROUP_BYTES = {1, 99, 100, 101, 250, 600, 601, 1234, 123_456};

  @Test
  public void hadoopStillGivesTheKnownAnswers() throws IOException {
    StringBuilder answers = new StringBuilder();
    for (Object[] code : CODES) {
      answers.append(parities((String) code[0], (int) code[1], (int) code[2]));
      answers.append(lengths((String) code[0], (int) code[1], (int) code[2]));
    }
    if (Boolean.getBoolean("gabion.write.answers")) {
      Files.write(ANSWERS, answers.toString().getBytes(StandardCharsets.UTF_8));
    }
    String known = new String(Files.readAllBytes(ANSWERS), StandardCharsets.UTF_8);
    assertEquals(known, answers.toString());
  }

  /** A line with the parity of fixed data, in hexadecimal. */
  private static String parities(String codec, int k, int m) throws IOException {
    RawErasureEncoder encoder =
        CodecUtil.createRawEncoder(new Configuration(), codec, new ErasureCoderOptions(k, m));
    byte[][] data = new byte[k][UNIT_BYTES];
    for (int unit = 0; unit < k; unit++) {
      for (int at = 0; at < UNIT_BYTES; at++) {
        data[unit][at] = (byte) (unit * 131 + at * 31 + at * at % 251 + 7);
      }
    }
    byte[][] parity = new byte[m][UNIT_BYTES];
    encoder.encode(data, parity);
    StringJoiner line = new StringJoiner(" ", "", "\n");
    line.add("parity").add(codec).add("" + k).add("" + m);
    for (byte[] unit : parity) {
      StringBuilder text = new StringBuilder();
      for (byte value : unit) {
        text.append(String.format("%02x", value));
      }
      line.add(text);
    }
    return line.toString();
  }

  /** Lines with the lengths of a group's blocks, for cells of 100 bytes. */
  private static String lengths(String codec, int k, int m) {
    ErasureCodingPolicy policy = new ErasureCodingPolicy(new ECSchema(codec, k, m), 1024);
    StringBuilder lines = new StringBuilder();
    for (long bytes : GROUP_BYTES) {
      StringJoiner line = new StringJoiner(" ", "", "\n");
      line.add("lengths").add(codec).add("" + k).add("" + m).add("" + bytes);
      for (int block = 0; block < k + m; block++) {
        line.add("" + StripedBlockUtil.getInternalBlockLength(bytes, 100, k, block));
      }
      lines.append(line);
    }
    return lines.toString();
  }
}
