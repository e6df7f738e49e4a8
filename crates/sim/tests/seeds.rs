//! A fixed number of seeds keep every promise, and a seed is the whole story.

use gabion_sim::{Options, Report, simulate};

/// Seeds of each test run: a quarter of a minute, unoptimised.
const SEEDS: std::ops::Range<u64> = 1000..1100;

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
    for seed in SEEDS {
        let report = simulate(seed, &options);
        assert_eq!(report.failure, None, "{}", describe(&report));
        acknowledged += report.acknowledged_count;
        reads += report.read_count;
    }
    let seed_count = SEEDS.end - SEEDS.start;
    // A cluster that does nothing breaks no promise either.
    assert!(
        acknowledged > 10 * seed_count && reads > 10 * seed_count,
        "{seed_count} seeds have seen only {acknowledged} updates and {reads} reads"
    );
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    let options = Options {
        storm_count: 1,
        ..Options::default()
    };
    let first = simulate(3, &options);
    assert_eq!(simulate(3, &options), first);
    assert_ne!(simulate(4, &options).digest, first.digest);
}
