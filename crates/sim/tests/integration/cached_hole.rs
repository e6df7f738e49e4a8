//! Holes under bytes in a client's cache.

use gabion_layout::UpdateScheme;
use gabion_sim::cached_hole::writes_into_a_hole_under_cached_bytes;

/// Runs it, and returns the steps of the flush.
fn check(scheme: UpdateScheme, step: Option<u64>) -> u64 {
    let run = writes_into_a_hole_under_cached_bytes(scheme, step);
    let log = || run.log.join("\n");
    assert_eq!(run.failure, None, "{}\n{scheme}, step {step:?}", log());
    run.step_count
}

#[test]
fn older_changes_in_the_cache_do_not_undo_a_write_into_a_hole() {
    for scheme in [UpdateScheme::Plr, UpdateScheme::Cau] {
        check(scheme, None);
    }
}

/// They are stored before that write, or never.
#[test]
fn a_flush_into_a_hole_with_an_unknown_outcome_does_not_undo_a_later_write() {
    let step_count = check(UpdateScheme::Plr, Some(u64::MAX));
    assert!(step_count > 10, "a flush has steps");
    for step in 0..step_count {
        check(UpdateScheme::Plr, Some(step));
    }
}
