//! Changes that find what another client has not ended yet.

use gabion_sim::zeroed_twice::{Zeroing, zeroed_twice};

/// Steps between two runs.
const STRIDE: usize = 2;
const NODE_COUNT: usize = 4;

#[test]
fn zeroing_what_another_client_is_zeroing_ends_when_no_reader_sees_the_old_bytes() {
    for zeroing in [Zeroing::Punch, Zeroing::Truncate, Zeroing::Divide] {
        let check = |node, step| {
            let run = zeroed_twice(zeroing, node, step);
            let log = || run.log.join("\n");
            assert_eq!(
                run.failure,
                None,
                "{}\n{zeroing:?}, node {node}, step {step}",
                log()
            );
            run.step_count
        };
        let step_count = check(0, u64::MAX);
        assert!(step_count > STRIDE as u64, "a change has steps");
        for node in 0..NODE_COUNT {
            for step in (0..step_count).step_by(STRIDE) {
                check(node, step);
            }
        }
    }
}
