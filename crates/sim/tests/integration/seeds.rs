//! A fixed number of seeds keep every promise, and a seed is the whole story.

use gabion_layout::UpdateScheme;
use gabion_sim::{Coverage, Fault, FaultCounts, Options, Report, scheme_of, simulate};

/// Seeds of each test run: half a minute, unoptimised.
const SEEDS: std::ops::Range<u64> = 360..420;

/// Least coverage of all seeds of a run together, in the order of [`Coverage::rows`]: a fraction of the usual
/// counts. What is too rare to require it here has tests of its own below.
const COVERAGE_AT_LEAST: [u64; Coverage::ROW_COUNT] = [
    80, 450, 220, 75, 0, 110, 5, 30, 50, 1000, 90, 180, 0, 700, 45, 15, 100, 50, 15, 25, 300, 0, 3,
    0, 0, 3, 20, 50, 120, 100, 30, 5, 8, 50, 150, 250, 60, 6, 15, 8, 300, 0, 50, 0,
];

/// Most runs of all seeds together that may be unknown to all nodes: some times the usual count. A client that is told
/// so cannot go on by itself.
const FORGOTTEN_AT_MOST: u64 = 30;

/// Seeds of pools under CAU among which chunks are grouped: one in thirty does that.
const GROUPING_SEED_COUNT_MAX: usize = 200;

/// Seeds among which a node has no room for bytes, and an end of a broken link is evicted: one in ten sees each.
const RARE_SEEDS: std::ops::Range<u64> = 1_000_000..1_000_150;

/// Seeds with hostile peers.
const HOSTILE_SEEDS: std::ops::Range<u64> = 0..100;

/// Seeds among which a write that is made twice meets another.
const TWICE_SEEDS: std::ops::Range<u64> = 0..30;

fn describe(report: &Report) -> String {
    let reason = report.failure.as_deref().unwrap_or("no failure");
    let log = report.log.join("\n");
    let seed = report.seed;
    format!("{log}\nseed {seed}: {reason}\nrun it again with: cargo xtask sim --seed {seed}")
}

#[test]
fn seeds_keep_every_promise() {
    let options = Options::default();
    let (mut acknowledged, mut reads) = (0, 0);
    let (mut coverage, mut faults) = (Coverage::default(), FaultCounts::new());
    for seed in SEEDS {
        let report = simulate(seed, &options);
        assert_eq!(report.failure, None, "{}", describe(&report));
        acknowledged += report.acknowledged_count;
        reads += report.read_count;
        coverage += report.coverage;
        for (fault, count) in report.faults {
            *faults.entry(fault).or_default() += count;
        }
    }
    for fault in Fault::all() {
        let count = faults.get(&fault).copied().unwrap_or(0);
        assert!(count >= 2, "{fault:?} has happened {count} times");
    }
    let seed_count = SEEDS.end - SEEDS.start;
    // A cluster that does nothing breaks no promise either.
    assert!(
        acknowledged > 10 * seed_count && reads > 10 * seed_count,
        "{seed_count} seeds have seen only {acknowledged} updates and {reads} reads"
    );
    for ((what, count), at_least) in coverage.rows().into_iter().zip(COVERAGE_AT_LEAST) {
        assert!(
            count >= at_least,
            "{seed_count} seeds have seen only {count} {what}"
        );
    }
    let forgotten_count = coverage.forgotten_count;
    assert!(
        forgotten_count <= FORGOTTEN_AT_MOST,
        "{forgotten_count} updates were forgotten in {seed_count} seeds"
    );
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    let options = Options {
        fault_period_count: 1,
        ..Options::default()
    };
    let first = simulate(3, &options);
    assert_eq!(simulate(3, &options), first);
    assert_ne!(simulate(4, &options).digest, first.digest);
}

/// A system that makes a write twice, over what was written in the meantime. What clients see is enough to find that.
#[test]
fn a_write_that_is_made_twice_is_found() {
    let options = Options {
        writes_twice: true,
        ..Options::default()
    };
    let mut failures = TWICE_SEEDS.filter_map(|seed| simulate(seed, &options).failure);
    let is_seen = failures.any(|failure| failure.contains(" comes before "));
    assert!(
        is_seen,
        "no write was made twice, or the checker does not see it"
    );
}

/// Chunks that data grouping moves under faults keep every promise, too.
#[test]
fn chunks_are_grouped_under_faults() {
    let is_cau = |seed: &u64| scheme_of(*seed) == UpdateScheme::Cau;
    let mut reports = (0..)
        .filter(is_cau)
        .map(|seed| simulate(seed, &Options::default()))
        .take(GROUPING_SEED_COUNT_MAX);
    let has_grouped = reports.any(|report| {
        assert_eq!(report.failure, None, "{}", describe(&report));
        let mut coverage = report.coverage.rows().into_iter();
        coverage.any(|(what, count)| what == "chunks grouped" && count > 0)
    });
    assert!(has_grouped, "no chunk was grouped");
}

/// Nodes without room for the bytes of updates, and evictions for a single link, keep every promise, too.
#[test]
fn rare_events_happen() {
    let mut missing = vec!["pieces without room", "evictions for a link"];
    for seed in RARE_SEEDS {
        let report = simulate(seed, &Options::default());
        assert_eq!(report.failure, None, "{}", describe(&report));
        let seen = report.coverage.rows();
        missing.retain(|what| !seen.iter().any(|(row, count)| row == what && *count > 0));
        if missing.is_empty() {
            return;
        }
    }
    panic!("the seeds have not seen {missing:?}");
}

#[test]
fn hostile_peers_crash_no_process() {
    let options = Options {
        has_hostile_peers: true,
        ..Options::default()
    };
    let (mut altered_count, mut acknowledged_count) = (0, 0);
    for seed in HOSTILE_SEEDS {
        let report = simulate(seed, &options);
        assert_eq!(report.failure, None, "{}", describe(&report));
        altered_count += report.altered_count;
        acknowledged_count += report.acknowledged_count;
    }
    // A cluster that is stopped at once receives nothing.
    assert!(
        altered_count > 10_000 && acknowledged_count > 1_000,
        "{altered_count} altered messages, {acknowledged_count} updates"
    );
}
