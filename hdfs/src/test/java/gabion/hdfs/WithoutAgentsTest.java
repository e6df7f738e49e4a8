package gabion.hdfs;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonConfigurationKeysPublic;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.junit.Test;

/** A plugin that takes over nothing leaves a DataNode as it was. */
public final class WithoutAgentsTest {
  @Test
  public void aWrongSettingLeavesReconstructionToHadoop() throws Exception {
    Configuration conf = new Configuration(false);
    conf.set(Settings.SCHEME, "by-pigeon");
    try (AgentCluster cluster = new AgentCluster("xor", 2, 1, 4, conf)) {
      int length = 3 * AgentCluster.CELL_BYTES;
      Path path = cluster.write(length);
      Map<Integer, AgentCluster.Replica> before = cluster.replicas(path);
      for (DataNode datanode : cluster.hdfs.getDataNodes()) {
        String name = "GabionRepair-" + datanode.getXferPort();
        assertNull(DefaultMetricsSystem.instance().getSource(name));
      }
      cluster.kill(before.get(1).port);
      cluster.awaitWhole(path);
      assertArrayEquals(before.get(1).bytes, cluster.replicas(path).get(1).bytes);
      cluster.check(path, length);
    }
  }

  @Test
  public void kerberosKeepsThePluginOut() {
    Configuration conf = new Configuration(false);
    assertFalse(Settings.isSecure(conf));
    conf.set(CommonConfigurationKeysPublic.HADOOP_SECURITY_AUTHENTICATION, "kerberos");
    assertTrue(Settings.isSecure(conf));
  }

  @Test
  public void ratesOfLinksAreFoundByLocations() {
    LinkRates rates = new LinkRates("/a /b 10, /a * 20,* /c 30");
    assertEquals(10, rates.between("/a", "/b"));
    assertEquals(20, rates.between("/a", "/c"));
    assertEquals(30, rates.between("/b", "/c"));
    assertEquals(0, rates.between("/b", "/a"));
    assertEquals(40, new LinkRates("* * 40").between("/x", "/y"));
  }

  @Test
  public void settingsOutsideTheirRangeAreRefused() {
    assertEquals("pipeline", new Settings(new Configuration(false)).scheme);
    for (String[] wrong : new String[][] {
      {Settings.SCHEME, "ring"}, {Settings.SLICE_BYTES, "100"}, {Settings.SLICE_BYTES, "5000"},
      {Settings.SLICE_BYTES, "8388608"},
      {Settings.STALL_MS, "0"}, {Settings.DEADLINE_MS, "-1"}, {Settings.PATH, "scheduled"},
      {Settings.PATH, "weighted"}, {Settings.RATES, "/a /b"}, {Settings.RATES, "/a /b 0"},
      {Settings.RATES, "/a /b 1, /b"},
    }) {
      Configuration conf = new Configuration(false);
      conf.set(wrong[0], wrong[1]);
      IllegalArgumentException error =
          assertThrows(IllegalArgumentException.class, () -> new Settings(conf));
      assertEquals(wrong[0], error.getMessage().split(" ")[0]);
    }
  }
}
