//! Scripts of clients and incidents that seeds seldom have. Each module has a script and its tests.

mod cached_hole;
mod conversion;
mod cut_node;
mod filled_holes;
mod flush_in_doubt;
mod hung_disk;
mod open_files;
mod silent_node;
mod taken_twice;
mod trees;
mod zeroed_twice;

use crate::race::Raced;
use std::fmt::Debug;

/// Runs a script without its incident, and then with the incident at every `stride`-th of its steps. Returns the number
/// of steps.
fn run_at_steps(setting: &dyn Debug, stride: usize, run: impl Fn(u64) -> Raced) -> u64 {
    let check = |step| {
        let run = run(step);
        let log = || run.log.join("\n");
        assert_eq!(run.failure, None, "{}\n{setting:?}, step {step}", log());
        run.step_count
    };
    let step_count = check(u64::MAX);
    assert!(step_count > stride as u64, "it has steps: {step_count}");
    for step in (0..step_count).step_by(stride) {
        check(step);
    }
    step_count
}
