package gabion.hdfs;

import java.io.IOException;
import java.io.PrintStream;
import java.util.List;
import java.util.Locale;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.util.GenericOptionsParser;

/** The command {@code hadoop jar gabion-hdfs.jar recover}. */
public final class Recover {
  private static final String USAGE = "usage: hadoop jar gabion-hdfs.jar recover [OPTION...]\n"
      + "Rebuilds all lost blocks of erasure-coded files, by Gabion's agents and one schedule.\n"
      + "Run it as HDFS's superuser.\n"
      + "  --below DIRECTORY        only files below it; default /\n"
      + "  --onto HOST:PORT,...     only onto these live DataNodes (transfer addresses); default all\n"
      + "  --scheme NAME            pipeline, cyclic, ppr or conventional; default gabion.scheme\n"
      + "  --schedule NAME          balanced or greedy; default balanced\n"
      + "  --path NAME              scheduled, rack-aware or weighted (by the DataNodes'\n"
      + "                           gabion.rates); default scheduled\n"
      + "  --per-datanode COUNT     rebuilds at a time onto one DataNode, 1 to 32; default 4\n"
      + "  --dry-run                count lost blocks, and rebuild nothing\n"
      + "Exit code 0: no block is lost (any more); 1: some are, or the command has failed; 2: wrong use.";

  private Recover() {}

  /** A wrong use of the command. */
  static final class UsageException extends Exception {
    UsageException(String message) {
      super(message);
    }
  }

  /** Runs the command; exits with 2 after wrong use, and with 1 if blocks are lost at its end. */
  public static void main(String[] words) throws Exception {
    Configuration conf = new HdfsConfiguration();
    String[] own = new GenericOptionsParser(conf, words).getRemainingArgs();
    System.exit(run(conf, own, System.out, System.err));
  }

  static int run(Configuration conf, String[] words, PrintStream out, PrintStream err)
      throws InterruptedException {
    Recovery.Options options;
    try {
      options = options(words);
    } catch (UsageException | IllegalArgumentException e) {
      err.println(e.getMessage() + "\n" + USAGE);
      return 2;
    }
    try {
      Recovery.Result result = new Recovery(conf, options).run();
      report(result, options, out);
      return result.left == 0 ? 0 : 1;
    } catch (UsageException e) {
      err.println("recover: " + e.getMessage());
      return 2;
    } catch (IOException | IllegalArgumentException e) {
      err.println("recover: " + e.getMessage());
      return 1;
    }
  }

  private static void report(Recovery.Result result, Recovery.Options options, PrintStream out) {
    if (options.isDry) {
      out.printf("%d blocks are lost%n", result.lost);
    } else {
      out.printf(Locale.ROOT, "%d blocks were lost; agents rebuilt %d, Hadoop's own code %d, onto %d "
              + "DataNodes in %.2f s (%.1f MiB/s); %d are still lost%n", result.lost,
          result.byAgents.get(), result.byHadoop.get(), result.requestors.size(), result.seconds,
          result.bytes.get() / 1048576.0 / result.seconds, result.left);
    }
    if (result.withoutHelpers > 0) {
      out.printf("for %d blocks too few other blocks of their group live%n", result.withoutHelpers);
    }
    result.unplanned.forEach((reason, count) ->
        out.printf("for %d blocks an agent has no plan: %s%n", count, reason));
    if (result.withoutPlace > 0) {
      out.printf("for %d blocks no DataNode has room and no other block of their group%n",
          result.withoutPlace);
    }
    if (result.lastFailure != null) {
      out.printf("%d orders have failed, the last by %s%n", result.failed.get(),
          result.lastFailure);
    }
  }

  static Recovery.Options options(String[] words) throws UsageException {
    Recovery.Options options = new Recovery.Options();
    if (words.length == 0 || !words[0].equals("recover")) {
      throw new UsageException("the only command is recover");
    }
    for (int i = 1; i < words.length; i++) {
      String option = words[i];
      if (option.equals("--dry-run")) {
        options.isDry = true;
        continue;
      }
      if (i + 1 == words.length) {
        throw new UsageException(option + " is unknown, or has no value");
      }
      String value = words[++i];
      switch (option) {
        case "--below":
          options.below = LostBlocks.clean(option, value);
          break;
        case "--onto":
          options.onto.addAll(List.of(value.split(",")));
          break;
        case "--scheme":
          Settings.checkScheme(option, value);
          options.scheme = value;
          break;
        case "--schedule":
          if (!value.equals("balanced") && !value.equals("greedy")) {
            throw new UsageException("--schedule is '" + value + "'; use balanced or greedy");
          }
          options.isBalanced = value.equals("balanced");
          break;
        case "--path":
          options.path = Settings.Path.named(value, option, Settings.Path.LISTED,
              Settings.Path.RACK_AWARE, Settings.Path.WEIGHTED);
          break;
        case "--per-datanode":
          options.perDataNode = count(value);
          break;
        default:
          throw new UsageException("there is no option " + option);
      }
    }
    return options;
  }

  private static int count(String value) throws UsageException {
    try {
      int count = Integer.parseInt(value);
      if (count >= 1 && count <= 32) {
        return count;
      }
    } catch (NumberFormatException e) {
      // Refused below.
    }
    throw new UsageException("--per-datanode is '" + value + "'; use 1 to 32");
  }
}
