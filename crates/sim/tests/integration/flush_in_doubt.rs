//! Flushes of a client's cache with an unknown outcome.

use gabion_layout::UpdateScheme;
use gabion_sim::flush_in_doubt::flush_in_doubt;
use gabion_sim::race::{Sharing, WITHIN};

/// Steps between two runs.
const STRIDE: usize = 11;

/// The replies are lost from steps of the flush on: of an update in place, and of a replacement of a stripe that a
/// snapshot shares.
#[test]
fn bytes_of_a_flush_in_doubt_are_not_written_again_over_later_ones() {
    for sharing in [Sharing::Never, Sharing::Now] {
        let check = |step| {
            let run = flush_in_doubt(UpdateScheme::Plr, sharing, &WITHIN, step);
            let log = || run.log.join("\n");
            assert_eq!(run.failure, None, "{}\n{sharing:?}, step {step}", log());
            run.step_count
        };
        let step_count = check(u64::MAX);
        assert!(step_count > STRIDE as u64, "a flush has steps");
        for step in (0..step_count).step_by(STRIDE) {
            check(step);
        }
    }
}
