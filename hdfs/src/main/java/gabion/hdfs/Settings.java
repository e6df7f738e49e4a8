package gabion.hdfs;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.SecurityUtil;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.UserGroupInformation.AuthenticationMethod;

/** The plugin's settings, keys {@code gabion.*} of hdfs-site.xml. */
public final class Settings {
  /** Whether the plugin takes over reconstruction: {@code true} by default. */
  public static final String ENABLED = "gabion.enabled";
  /** Repair scheme: {@code pipeline} (default), {@code cyclic}, {@code ppr} or {@code conventional}. */
  public static final String SCHEME = "gabion.scheme";
  /** Bytes that are read, combined and sent at a time: 65536 by default, a multiple of 512 up to 1048576. */
  public static final String SLICE_BYTES = "gabion.slice.bytes";
  /** An agent's port less its DataNode's transfer port: 1000 by default. */
  public static final String AGENT_PORT_OFFSET = "gabion.agent.port-offset";
  /** The plugin's port on loopback less the DataNode's transfer port: 1001 by default. */
  public static final String PLUGIN_PORT_OFFSET = "gabion.plugin.port-offset";
  /** Milliseconds without progress after which helpers are replaced: 5000 by default. */
  public static final String STALL_MS = "gabion.stall.ms";
  /**
   * Time limit of a task in milliseconds: 200000 by default, below the 300 s after which the NameNode gives a task to
   * another DataNode. Hadoop's own task runs after that.
   */
  public static final String DEADLINE_MS = "gabion.deadline.ms";

  /** The order of helpers: {@code rack-aware} (default) or {@code weighted}, by the rates of links. */
  public static final String PATH = "gabion.path";
  /**
   * Rates of links between network locations for weighted paths: {@code FROM TO MBIT}, with commas between them. {@code *}
   * is any location.
   */
  public static final String RATES = "gabion.rates";

  private static final Set<String> SCHEMES = Set.of("pipeline", "cyclic", "ppr", "conventional");

  final boolean enabled;
  final String scheme;
  final int sliceBytes;
  final int agentPortOffset;
  final int pluginPortOffset;
  final int stallMs;
  final int deadlineMs;
  final Path path;
  final LinkRates rates;

  /** How helpers are put in order. */
  enum Path {
    /** The path enters each rack once. */
    RACK_AWARE("rack-aware"),
    /** In the order of the request. */
    LISTED("scheduled"),
    /** The path whose slowest link is the fastest. */
    WEIGHTED("weighted");

    final String text;

    Path(String text) {
      this.text = text;
    }

    /**
     * The path of this name.
     *
     * @throws IllegalArgumentException if there is none
     */
    static Path named(String text, String of, Path... allowed) {
      List<String> names = new ArrayList<>();
      for (Path path : allowed) {
        if (path.text.equals(text)) {
          return path;
        }
        names.add(path.text);
      }
      throw new IllegalArgumentException(
          of + " is '" + text + "'; use " + String.join(" or ", names));
    }
  }

  /**
   * Reads the settings.
   *
   * @throws IllegalArgumentException for a value that is not allowed
   */
  public Settings(Configuration conf) {
    enabled = conf.getBoolean(ENABLED, true);
    scheme = conf.getTrimmed(SCHEME, "pipeline");
    sliceBytes = conf.getInt(SLICE_BYTES, 64 << 10);
    agentPortOffset = conf.getInt(AGENT_PORT_OFFSET, 1000);
    pluginPortOffset = conf.getInt(PLUGIN_PORT_OFFSET, 1001);
    stallMs = conf.getInt(STALL_MS, 5_000);
    deadlineMs = conf.getInt(DEADLINE_MS, 200_000);
    path = Path.named(conf.getTrimmed(PATH, Path.RACK_AWARE.text), PATH, Path.RACK_AWARE,
        Path.WEIGHTED);
    rates = new LinkRates(conf.getTrimmed(RATES, ""));
    checkScheme(SCHEME, scheme);
    if (path == Path.WEIGHTED && rates.isEmpty()) {
      throw new IllegalArgumentException(PATH + " is weighted; set the rates of links, " + RATES);
    }
    between(SLICE_BYTES, sliceBytes, 512, 1 << 20);
    if (sliceBytes % 512 != 0) {
      throw new IllegalArgumentException(
          SLICE_BYTES + " is " + sliceBytes + "; use a multiple of 512");
    }
    between(STALL_MS, stallMs, 100, 60_000);
    between(DEADLINE_MS, deadlineMs, 1_000, 3_600_000);
  }

  /**
   * Refuses a scheme that agents do not have.
   *
   * @throws IllegalArgumentException for an unknown name
   */
  static void checkScheme(String of, String scheme) {
    if (!SCHEMES.contains(scheme)) {
      throw new IllegalArgumentException(
          of + " is '" + scheme + "'; use pipeline, cyclic, ppr or conventional");
    }
  }

  /** Whether agents are used. */
  public boolean isEnabled() {
    return enabled;
  }

  /** Whether this cluster authenticates its users by Kerberos. Agents do not authenticate their callers. */
  public static boolean isSecure(Configuration conf) {
    return UserGroupInformation.isSecurityEnabled()
        || SecurityUtil.getAuthenticationMethod(conf) != AuthenticationMethod.SIMPLE;
  }

  private static void between(String key, int value, int least, int most) {
    if (value < least || value > most) {
      throw new IllegalArgumentException(
          key + " is " + value + "; use " + least + " to " + most);
    }
  }
}
