//! Exclusive opens of two clients at the same time.

use gabion_sim::taken_twice::taken_twice;

#[test]
fn a_client_whose_take_over_was_displaced_neither_succeeds_nor_takes_the_file_back() {
    let check = |step| {
        let run = taken_twice(step);
        let log = || run.log.join("\n");
        assert_eq!(run.failure, None, "{}\nstep {step}", log());
        run.step_count
    };
    let step_count = check(u64::MAX);
    assert!(step_count > 0, "an open has steps");
    for step in 0..step_count {
        check(step);
    }
}
