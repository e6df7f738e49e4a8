//! Kills processes of a cluster with SIGKILL at random moments while several writers update one file,
//! round after round, under each update scheme: what was acknowledged is there, what was not is wholly
//! there or wholly absent, and no chunk is damaged.
//!
//! `GABION_CRASH_ROUNDS` sets the rounds of each scheme, `GABION_CRASH_SEED` what is drawn.

use crate::support::writers::{Draw, Writer, told};
use crate::support::{Load, TestCluster, pattern, text, wait_for};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const KIB: usize = 1024;
/// Rounds of each scheme unless told otherwise: 55 in all.
const ROUNDS: u64 = 11;
const WRITERS: usize = 3;
const NODES: u64 = 6;
/// Each writer has a part of the file for itself, which spans chunks and a stripe's end.
const PART: usize = 150 * KIB;

/// One round: writers write, something is killed, everything is started again.
fn kill_under_load(cluster: &TestCluster, writers: &mut [Writer], draw: &mut Draw) {
    let is_over = AtomicBool::new(false);
    // The moments are the test's only use of time, and any will do.
    let until_kill = Duration::from_millis(draw.below(250));
    let acknowledgements = writers[0].acknowledgements();
    let victim = (draw.below(3) == 0).then(|| draw.below(NODES).to_string());
    std::thread::scope(|scope| {
        let _load = Load::until_dropped(&is_over);
        for writer in writers.iter_mut() {
            scope.spawn(|| writer.write(cluster, &is_over));
        }
        acknowledgements.wait_for_next();
        std::thread::sleep(until_kill);
        if let Some(node) = &victim {
            cluster.run(&["chaos", "kill-node", node]);
            std::thread::sleep(Duration::from_millis(50));
        } else {
            cluster.kill_all();
        }
    });
    // A client's connection may have been given a dead process's port for a moment.
    wait_for("the cluster is up again", || {
        let up = cluster.output(&["cluster", "up", "--lease-ms=1000", "--grace-s=3600"]);
        if !up.status.success() {
            println!("{}", text(&up.stderr));
        }
        up.status.success()
    });
}

/// The options of the scheme's pool are its name and what else is to be said.
fn crash_rounds(scheme: &str, further: &[&str]) {
    let rounds = told("GABION_CRASH_ROUNDS", ROUNDS);
    let seed = told("GABION_CRASH_SEED", 1);
    println!("{rounds} rounds of {scheme}, seed {seed}");
    let cluster = TestCluster::start(3, NODES as u32 / 3);
    let update = format!("--update={scheme}");
    let pool = [
        "pool",
        "create",
        "vm",
        "--code=rs(4,2)",
        "--chunk=64KiB",
        &update,
    ];
    cluster.run(&[&pool, further].concat());
    let mut expected = pattern(WRITERS * PART, seed);
    cluster.put("disk", &expected);
    let mut writers = Writer::of_parts(&expected, PART, seed);
    let mut draw = Draw(seed);
    for round in 0..rounds {
        kill_under_load(&cluster, &mut writers, &mut draw);
        expected = cluster.get("disk");
        for writer in &mut writers {
            writer.check(&expected, &format!("round {round}"));
        }
        cluster.assert_no_damage();
    }
    let written = writers[0].acknowledgements().count();
    println!("{scheme}: {written} acknowledged writes");
    // With a node down parity has to agree with data.
    cluster.run(&["chaos", "kill-node", "0"]);
    cluster.wait_until_failed(&[0]);
    assert!(
        cluster.get("disk") == expected,
        "parity disagrees with data"
    );
}

#[test]
fn full_overwrite_keeps_its_promise() {
    crash_rounds("fo", &[]);
}

#[test]
fn full_logging_keeps_its_promise() {
    crash_rounds("fl", &[]);
}

#[test]
fn parity_logging_keeps_its_promise() {
    crash_rounds("pl", &[]);
}

#[test]
fn parity_logging_with_reserved_space_keeps_its_promise() {
    crash_rounds("plr", &[]);
}

#[test]
fn rack_coordinated_updates_keep_their_promise() {
    crash_rounds("rackcu", &[]);
}

#[test]
fn parix_keeps_its_promise() {
    crash_rounds("parix", &[]);
}

#[test]
fn cross_rack_aware_updates_keep_their_promise() {
    // Commits are many, and chunks move after some.
    crash_rounds("cau", &["--grouping=authors", "--commit-bytes=64KiB"]);
}
