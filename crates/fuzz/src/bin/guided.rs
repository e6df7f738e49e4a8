//! The targets on libFuzzer, which follows coverage. `cargo xtask fuzz` builds and runs it, one target in each process.
//!
//! `GABION_FUZZ_TARGET` names the target; all arguments are libFuzzer's. `GABION_FUZZ_SEEDS` names a directory that
//! gets the target's first inputs before libFuzzer reads it.

#![no_main]

use gabion_fuzz::memory::Counting;
use gabion_fuzz::{Target, campaign, corpus, find};
use std::sync::OnceLock;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

/// Finds the target, and writes its first inputs.
fn begin() -> &'static Target {
    let name = std::env::var("GABION_FUZZ_TARGET").expect("GABION_FUZZ_TARGET names a target");
    let target = find(&name).unwrap_or_else(|| panic!("there is no fuzz target {name}"));
    if let Some(directory) = std::env::var_os("GABION_FUZZ_SEEDS") {
        let inputs = corpus(target).expect("the corpus can be read");
        for (number, input) in inputs.iter().enumerate() {
            let path = std::path::Path::new(&directory).join(format!("seed-{number:05}"));
            std::fs::write(path, input).expect("the directory of seeds can be written");
        }
    }
    // State that is made once belongs to no input.
    (target.run)(&[]);
    target
}

libfuzzer_sys::fuzz_target!(init: { TARGET.get_or_init(begin); }, |input: &[u8]| {
    let target = TARGET.get_or_init(begin);
    if input.len() <= target.input_bytes_max && campaign::run_one(target, input).is_none() {
        std::process::abort();
    }
});
