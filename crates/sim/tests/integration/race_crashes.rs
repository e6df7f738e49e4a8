//! The coordinator or a node dies at many steps of a change of files, and starts again.

use gabion_layout::UpdateScheme;
use gabion_sim::race::Raced;
use gabion_sim::race_crashes::{Change, Crash};

/// Steps between two crashes.
const STRIDE: usize = 29;
const SCHEME: UpdateScheme = UpdateScheme::Plr;

fn fail(crash: &Crash, step: u64, raced: &Raced) -> ! {
    let (log, step_count) = (raced.log.join("\n"), raced.step_count);
    panic!(
        "{log}\n{crash:?} at step {step} of {step_count}: {:?}",
        raced.failure
    );
}

/// Each change meets one of the two crashes of each process.
fn check(changes: impl Iterator<Item = Change>) {
    for (turn, change) in changes.enumerate() {
        let crashes = Crash::all(SCHEME, &change);
        let step_count = match crashes[0].step_count() {
            Ok(step_count) => step_count,
            Err(quiet) => fail(&crashes[0], u64::MAX, &quiet),
        };
        for (victim, crashes) in crashes.chunks(2).enumerate() {
            let crash = &crashes[(turn + victim) % 2];
            let from = 5 * victim + turn;
            if let Err((step, raced)) = crash.run_at(step_count, (from, STRIDE)) {
                fail(crash, step, &raced);
            }
        }
    }
}

fn is_on_file(change: &Change) -> bool {
    matches!(change, Change::OnFile(_))
}

/// An update beside a replacement that has begun before the crash is not lost.
#[test]
fn crashes_during_changes_of_a_file_lose_nothing() {
    check(Change::all().into_iter().filter(is_on_file));
}

/// A put goes on when the coordinator is back, and a name is given or taken once.
#[test]
fn crashes_during_puts_and_changes_of_names_lose_nothing() {
    check(
        Change::all()
            .into_iter()
            .filter(|change| !is_on_file(change)),
    );
}
