//! Kills with SIGKILL exactly those processes on which an update or a commit hangs, while several writers
//! update a file and commits are made: the collector node of `RackCU`, a parity node, the primary, the
//! coordinator. What was acknowledged is there while the process is gone, and after it has returned.
//!
//! `GABION_CRASH_ROUNDS` sets how often each is killed, `GABION_CRASH_SEED` what is drawn.

use crate::support::writers::{Draw, FILE, Writer, told};
use crate::support::{Load, TestCluster, pattern, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KIB: usize = 1024;
const WRITERS: usize = 2;
/// Two stripes for each writer. Most writes change several chunks.
const PART: usize = 96 * KIB;

/// The node that is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    /// A node that gathers deltas of other racks and sends more than its own on.
    Collector,
    /// The first parity chunk's node.
    Parity,
    /// The node that clients ask first.
    Primary,
    Coordinator,
}

impl Victim {
    const ALL: [Self; 4] = [
        Self::Collector,
        Self::Parity,
        Self::Primary,
        Self::Coordinator,
    ];

    /// The node, unless it is the coordinator. None at all when the scheme has none.
    fn node(self, cluster: &TestCluster) -> Option<u64> {
        let stripe = &cluster.json(&["stat", FILE])["stripes"][0];
        match self {
            Self::Collector => collector(&cluster.run(&["plan", "show", FILE, "--update=0:48KiB"])),
            Self::Parity => stripe["nodes"][6].as_u64(),
            Self::Primary => stripe["nodes"][0].as_u64(),
            Self::Coordinator => None,
        }
    }
}

/// The node of a plan in its printed form that gets something from another rack and sends something to
/// another.
fn collector(plan: &str) -> Option<u64> {
    let word_after = |line: &str, word: &str| {
        let mut words = line.split_whitespace().skip_while(|other| *other != word);
        words.nth(1)?.parse::<u64>().ok()
    };
    let across: Vec<&str> = plan
        .lines()
        .filter(|line| line.contains(" across to "))
        .collect();
    let gets = |line: &&str| word_after(line.split_once(" to ")?.1, "node");
    let sends = |line: &&str| word_after(line, "node");
    let senders: Vec<u64> = across.iter().filter_map(sends).collect();
    across
        .iter()
        .filter_map(gets)
        .find(|node| senders.contains(node))
}

/// Writes and commits until a process is killed, and a little longer.
fn kill_under_load(
    cluster: &TestCluster,
    writers: &mut [Writer],
    draw: &mut Draw,
    (victim, node): (Victim, Option<u64>),
) {
    let is_over = AtomicBool::new(false);
    // The moments are the test's only use of time.
    let until_kill = Duration::from_millis(draw.below(300));
    let acknowledgements = writers[0].acknowledgements();
    let until_end = Duration::from_millis(draw.below(200));
    std::thread::scope(|scope| {
        let _load = Load::until_dropped(&is_over);
        for writer in writers.iter_mut() {
            scope.spawn(|| writer.write(cluster, &is_over));
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                // It fails while a process is gone.
                let _ = cluster.output(&["pool", "commit", "vm"]);
            }
        });
        acknowledgements.wait_for_next();
        std::thread::sleep(until_kill);
        match node {
            Some(node) => cluster.run(&["chaos", "kill-node", &node.to_string()]),
            None => cluster.run(&["chaos", "kill-coordinator"]),
        };
        std::thread::sleep(until_end);
    });
    match node {
        Some(node) => cluster.wait_until_failed(&[node]),
        None => cluster.up(),
    }
    let file = cluster.get(FILE);
    for writer in writers.iter_mut() {
        writer.check(&file, &format!("without the {victim:?}"));
    }
    cluster.up();
    cluster.wait_until_failed(&[]);
    let file = cluster.get(FILE);
    for writer in writers.iter_mut() {
        writer.check(&file, &format!("after the {victim:?} has returned"));
    }
    wait_for("all chunks are whole", || {
        cluster.json(&["cluster", "status"])["lost_chunks"] == 0
    });
}

fn kills(scheme: &str, victims: &[Victim], further: &[&str]) {
    let rounds = told("GABION_CRASH_ROUNDS", 1);
    let seed = told("GABION_CRASH_SEED", 1);
    println!("{rounds} rounds of {scheme}, seed {seed}");
    let cluster = TestCluster::start(5, 2);
    let update = format!("--update={scheme}");
    let pool = [
        "pool",
        "create",
        "vm",
        "--code=rs(6,4)",
        "--chunk=8KiB",
        &update,
    ];
    cluster.run(&[&pool, further].concat());
    let initial = pattern(WRITERS * PART, seed);
    cluster.put(FILE, &initial);
    let mut writers = Writer::of_parts(&initial, PART, seed);
    let mut draw = Draw(seed);
    for _ in 0..rounds {
        for &victim in victims {
            let node = victim.node(&cluster);
            assert_eq!(node.is_none(), victim == Victim::Coordinator, "{victim:?}");
            kill_under_load(&cluster, &mut writers, &mut draw, (victim, node));
        }
    }
    let written = writers[0].acknowledgements().count();
    println!("{scheme}: {written} acknowledged writes");
    cluster.assert_no_damage();
}

#[test]
fn nothing_acknowledged_is_lost_with_a_process_of_rackcu() {
    kills("rackcu", &Victim::ALL, &[]);
}

#[test]
fn nothing_acknowledged_is_lost_with_a_process_of_cau() {
    let further = ["--commit-bytes=64KiB", "--grouping=authors"];
    kills("cau", &Victim::ALL[1..], &further);
}

#[test]
fn nothing_acknowledged_is_lost_with_a_process_of_parix() {
    kills("parix", &Victim::ALL[1..], &["--commit-bytes=64KiB"]);
}
