//! The harness notices a target that panics, one whose panic is caught, and one that allocates without bound.

use gabion_fuzz::Target;
use gabion_fuzz::campaign::{Failure, run, run_one};
use std::panic::catch_unwind;
use std::process::Command;

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target {
        name,
        run,
        seeds: || vec![vec![1, 2], vec![3]],
        input_bytes_max: 16,
        memory_bytes_max: 1 << 20,
        test_input_count: 100,
    }
}

static SOUND: Target = target("sound", |_| {});
static PANICS: Target = target("panics", |input| assert!(input != [3], "a bug"));
static CATCHES: Target = target("catches", |input| {
    if input == [3] {
        assert!(catch_unwind(|| panic!("a bug")).is_err());
    }
});
static GROWS: Target = target("grows", |input| {
    if input.len() == 2 {
        drop(vec![0_u8; 2 << 20]);
    }
});

#[test]
fn a_sound_target_runs_its_corpus_and_mutations() {
    let summary = run(&SOUND, 100, 7).unwrap();
    assert_eq!(summary.input_count, 102);
}

#[test]
fn a_panic_is_a_failure_with_its_input_even_if_the_product_catches_it() {
    for target in [&PANICS, &CATCHES] {
        let failure = Failure {
            input: vec![3],
            number: 1,
        };
        assert_eq!(run(target, 0, 7), Err(failure), "{}", target.name);
    }
}

#[test]
fn memory_within_the_limit_is_measured() {
    let held = run_one(&GROWS, &[1]).unwrap();
    assert!(held < 1 << 20);
}

/// Set for the process that runs the growing target, which ends it.
const GROWING: &str = "GABION_FUZZ_GROWS";

#[test]
fn too_much_memory_ends_the_process_and_names_target_and_input() {
    if std::env::var_os(GROWING).is_some() {
        let _ = run(&GROWS, 0, 7);
        return;
    }
    let test = "harness::too_much_memory_ends_the_process_and_names_target_and_input";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(GROWING, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success());
    assert!(
        said.contains("fuzz target grows holds") && said.contains("for the input 0102"),
        "{said}"
    );
}
