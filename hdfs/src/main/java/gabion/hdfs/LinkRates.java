package gabion.hdfs;

import java.util.HashMap;
import java.util.Map;

/** Rates of links between network locations, in Mbit/s. */
final class LinkRates {
  private static final String ANY = "*";

  private final Map<String, Integer> rates = new HashMap<>();

  /**
   * Reads {@code FROM TO MBIT, FROM TO MBIT, ...}.
   *
   * @throws IllegalArgumentException for any other text
   */
  LinkRates(String text) {
    if (text.isEmpty()) {
      return;
    }
    for (String link : text.split(",")) {
      String[] words = link.trim().split("\\s+");
      int rate = 0;
      try {
        rate = words.length == 3 ? Integer.parseInt(words[2]) : 0;
      } catch (NumberFormatException e) {
        // Refused below.
      }
      if (rate <= 0) {
        throw new IllegalArgumentException(Settings.RATES + " has '" + link.trim()
            + "'; use FROM TO MBIT with a rate above 0, and commas between links");
      }
      rates.put(words[0] + " " + words[1], rate);
    }
  }

  boolean isEmpty() {
    return rates.isEmpty();
  }

  /** The rate from one location to another; 0 if there is no link. */
  int between(String from, String to) {
    for (String key : new String[] {from + " " + to, from + " " + ANY, ANY + " " + to,
        ANY + " " + ANY}) {
      Integer rate = rates.get(key);
      if (rate != null) {
        return rate;
      }
    }
    return 0;
  }
}
