//! Every target, without coverage: its corpus, then a number of mutations that takes about 5 s.

use gabion_fuzz::campaign::{hexadecimal, run};
use gabion_fuzz::{TARGETS, find};

/// The seed of all runs, so that a run's inputs are always the same.
const SEED: u64 = 1;

/// Runs a target; `GABION_FUZZ_FACTOR` multiplies its inputs.
fn check(name: &str) {
    let target = find(name).expect("a target of this name");
    let factor = std::env::var("GABION_FUZZ_FACTOR").ok();
    let factor = factor.map_or(1, |factor| factor.parse().expect("a whole number"));
    let start = std::time::Instant::now();
    match run(target, target.test_input_count * factor, SEED) {
        Ok(summary) => println!(
            "{name}: {} inputs, {} bytes of memory at most, {:.1?}",
            summary.input_count,
            summary.memory_bytes_max,
            start.elapsed()
        ),
        Err(failure) => panic!(
            "{name} fails for input {} of seed {SEED}; save it in crates/fuzz/corpus/{name}: {}",
            failure.number,
            hexadecimal(&failure.input)
        ),
    }
}

macro_rules! targets {
    ($($function:ident: $name:literal,)+) => {
        $(
            #[test]
            fn $function() {
                check($name);
            }
        )+

        #[test]
        fn every_target_has_a_test() {
            let tested = [$($name),+];
            assert!(TARGETS.iter().map(|target| target.name).eq(tested));
            let listed = include_str!("../../corpus/TARGETS");
            assert!(listed.lines().eq(tested), "cargo xtask fuzz reads this list");
        }
    };
}

targets! {
    hello: "hello",
    frames: "frames",
    messages: "messages",
    plans: "plans",
    chunk_files: "chunk-files",
    journals: "journals",
    reserves: "reserves",
    metadata_rows: "metadata-rows",
    nbd: "nbd",
    trace_rows: "trace-rows",
    compressed_traces: "compressed-traces",
}
