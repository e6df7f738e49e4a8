//! Crashes at every step of a conversion: nothing is lost, and no stripe that counts ever has less than it
//! promises. And the watch that says so is held to finding what a worse coordinator would do.

use gabion_sim::conversion::{Ended, Incident, NODE_COUNT, Task, Victim, Writes, convert};

/// A crash that ends before the node is declared failed.
const SHORT_MS: u64 = 300;
/// One that is not: what the victim had is made elsewhere.
const LONG_MS: u64 = 9_000;

fn describe(ended: &Ended, what: &str) -> String {
    let reason = ended.failure.as_deref().unwrap_or("no failure");
    format!("{}\n{what}: {reason}", ended.log.join("\n"))
}

/// Tries a crash of everybody before every step.
fn crash_everywhere(task: Task, down_ms: u64) {
    let quiet = convert(task, None);
    assert_eq!(quiet.failure, None, "{}", describe(&quiet, "no incident"));
    assert!(quiet.step_count > 50, "{} steps", quiet.step_count);
    let nodes = (1..=NODE_COUNT).map(Victim::Node);
    for victim in nodes.chain([Victim::Coordinator]) {
        for step in 0..quiet.step_count {
            let ended = convert(task, Some((step, Incident::Crash(victim, down_ms))));
            let what = || describe(&ended, &format!("{task:?}, {victim:?} before step {step}"));
            assert!(ended.has_happened, "{}", what());
            assert_eq!(ended.failure, None, "{}", what());
        }
    }
}

const ENCODE: Task = Task {
    encodes: true,
    writes: Writes::None,
};
const PROMOTE: Task = Task {
    encodes: false,
    writes: Writes::None,
};

#[test]
fn crashes_at_every_step_of_an_encoding() {
    crash_everywhere(ENCODE, SHORT_MS);
}

#[test]
fn crashes_at_every_step_of_a_promotion() {
    crash_everywhere(PROMOTE, SHORT_MS);
}

#[test]
fn failures_at_every_step_of_an_encoding() {
    crash_everywhere(ENCODE, LONG_MS);
}

#[test]
fn failures_at_every_step_of_a_promotion() {
    crash_everywhere(PROMOTE, LONG_MS);
}

#[test]
fn crashes_at_every_step_of_an_encoding_with_an_update() {
    let writes = Writes::Once;
    crash_everywhere(Task { writes, ..ENCODE }, SHORT_MS);
}

/// A coordinator that removed old chunks before its commit would be caught at once, whenever it did.
#[test]
fn old_chunks_that_go_too_early_are_missed() {
    for task in [ENCODE, PROMOTE] {
        let step_count = convert(task, None).step_count;
        let mut missed_count = 0;
        for step in 0..step_count {
            let ended = convert(task, Some((step, Incident::RemoveOld)));
            let why = ended.failure.as_deref().unwrap_or_default();
            assert_eq!(
                ended.has_happened,
                why.contains("may not have it after a crash"),
                "{}",
                describe(&ended, &format!("{task:?}, step {step}"))
            );
            missed_count += u64::from(ended.has_happened);
        }
        assert!(
            missed_count > step_count / 2,
            "{missed_count} of {step_count}"
        );
    }
}

/// A coordinator that committed what was not read back would be caught when it did: chunks that are spoiled
/// before they are read back are made anew, and those that are spoiled between that and the commit are found by
/// the watch. Behind the commit a bit that rots is a loss like any other, and not the watch's to find.
#[test]
fn new_chunks_that_are_not_whole_are_missed() {
    for task in [ENCODE, PROMOTE] {
        let step_count = convert(task, None).step_count;
        let (mut mended_count, mut missed_count) = (0, 0);
        for step in 0..step_count {
            let ended = convert(task, Some((step, Incident::SpoilNew)));
            let why = ended.failure.as_deref().unwrap_or_default();
            mended_count += u64::from(ended.has_happened && why.is_empty());
            missed_count += u64::from(why.contains("after a loss of power"));
        }
        assert!(
            mended_count > 0 && missed_count > 0,
            "{task:?}: {mended_count}, {missed_count}"
        );
    }
}

/// If a segment is updated continually, two conversions of it fail. The third attempt keeps the leases: updates wait
/// until it ends, and go on in the new stripes. An attempt that loses a message fails, too, and begins the count anew.
#[test]
fn updates_without_end_wait_once() {
    for task in [ENCODE, PROMOTE] {
        let writes = Writes::Always;
        let ended = convert(Task { writes, ..task }, None);
        assert_eq!(ended.failure, None, "{}", describe(&ended, "no incident"));
        let counts = &ended.acknowledged_counts;
        let attempt_count = ended.attempt_count;
        assert!(
            attempt_count >= 3 && counts.len() == attempt_count,
            "{task:?}: {attempt_count} attempts; acknowledged before the first, in it, and so on, but not in the last: \
            {counts:?}"
        );
        assert_eq!(ended.outrun_count, 2, "{task:?}: {counts:?}");
        let outrun = &counts[attempt_count - 2..];
        assert!(
            outrun.iter().all(|&count| count > 0),
            "{task:?}: {counts:?}"
        );
    }
}
