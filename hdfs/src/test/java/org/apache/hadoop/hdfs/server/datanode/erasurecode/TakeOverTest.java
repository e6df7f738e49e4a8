package org.apache.hadoop.hdfs.server.datanode.erasurecode;

import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import org.junit.Test;

/** What the plugin needs of Hadoop is found before anything is changed. */
public final class TakeOverTest {
  @Test
  public void methodsOfAnotherHadoopAreNoticed() {
    TakeOver.method(StripedBlockReconstructor.class, long.class, "getBlockLen", int.class);
    for (Runnable wrong : new Runnable[] {
      () -> TakeOver.method(StripedWriter.class, void.class, "initialize"),
      () -> TakeOver.method(StripedWriter.class, int.class, "init"),
      () -> TakeOver.method(StripedWriter.class, void.class, "init", int.class),
      // It exists, and is private.
      () -> TakeOver.method(StripedWriter.class, int.class, "getRealTargets"),
    }) {
      IllegalStateException error = assertThrows(IllegalStateException.class, wrong::run);
      assertTrue(error.getMessage(), error.getMessage().contains("this Hadoop has no"));
    }
  }
}
