//! Kills processes of a cluster with SIGKILL at random moments while several writers update one file,
//! round after round, under each update scheme: what was acknowledged is there, what was not is wholly
//! there or wholly absent, and no chunk is damaged.
//!
//! `GABION_CRASH_ROUNDS` sets the rounds of each scheme, `GABION_CRASH_SEED` what is drawn.

mod support;

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{TestCluster, path_text, pattern, text, wait_for};

const KIB: usize = 1024;
/// Rounds of each scheme unless told otherwise: 55 in all.
const ROUNDS: u64 = 11;
const WRITERS: usize = 3;
const NODES: u64 = 6;
/// Each writer has a part of the file for itself, which spans chunks and a stripe's end.
const PART: usize = 150 * KIB;

/// A generator for tests: not good, but the same everywhere.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

fn told(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name);
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

/// What one writer knows of its part of the file.
struct Writer {
    number: usize,
    /// As all acknowledged writes have left it.
    acknowledged: Vec<u8>,
    /// The same with the last write, of which nothing was heard.
    attempted: Option<Vec<u8>>,
    draw: Draw,
    acknowledged_count: u64,
}

impl Writer {
    fn range(&self) -> std::ops::Range<usize> {
        self.number * PART..(self.number + 1) * PART
    }

    /// Writes until it is over, or a write fails.
    fn write(&mut self, cluster: &TestCluster, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Acquire) {
            let length = 1 + self.draw.below(40 * KIB as u64) as usize;
            let offset = self.draw.below((PART - length) as u64) as usize;
            let new = pattern(length, self.draw.below(u64::MAX));
            let file = cluster.path(&format!("new-{}", self.number));
            std::fs::write(&file, &new).expect("write a temporary file");
            let at = format!("--offset={}", self.range().start + offset);
            let mut attempted = self.acknowledged.clone();
            attempted[offset..offset + length].copy_from_slice(&new);
            let mut command = cluster.command(&["write", "disk", &at, path_text(&file)]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            if !ends_well(command.spawn().expect("the binary runs"), is_over) {
                self.attempted = Some(attempted);
                return;
            }
            self.acknowledged = attempted;
            self.acknowledged_count += 1;
        }
    }

    /// Compares its part of the file with what may be there, and takes over which of it is.
    fn check(&mut self, file: &[u8], round: u64) {
        let found = &file[self.range()];
        if let Some(attempted) = self.attempted.take()
            && found == attempted
        {
            self.acknowledged = attempted;
        }
        let is_right = found == self.acknowledged;
        assert!(
            is_right,
            "round {round}: writer {} finds a mixture",
            self.number
        );
    }
}

/// Waits for a command. Whether it said that it was done, before it was over.
fn ends_well(mut child: Child, is_over: &AtomicBool) -> bool {
    loop {
        if let Some(status) = child.try_wait().expect("the child is ours") {
            return status.success();
        }
        if is_over.load(Ordering::Acquire) {
            child.kill().expect("the child is ours");
            // It may have ended between the two.
            return child.wait().expect("the child is ours").success();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One round: writers write, something is killed, everything is started again.
fn kill_under_load(cluster: &TestCluster, writers: &mut [Writer], draw: &mut Draw) {
    let is_over = AtomicBool::new(false);
    // The moments are the test's only use of time, and any will do.
    let until_kill = Duration::from_millis(20 + draw.below(250));
    let victim = (draw.below(3) == 0).then(|| draw.below(NODES).to_string());
    std::thread::scope(|scope| {
        for writer in writers.iter_mut() {
            scope.spawn(|| writer.write(cluster, &is_over));
        }
        std::thread::sleep(until_kill);
        if let Some(node) = &victim {
            cluster.run(&["chaos", "kill-node", node]);
            std::thread::sleep(Duration::from_millis(50));
        } else {
            cluster.kill_all();
        }
        is_over.store(true, Ordering::Release);
    });
    // Whoever connects to somewhere may have been given a dead process's port for a moment.
    wait_for("the cluster is up again", || {
        let up = cluster.output(&["cluster", "up", "--lease-ms=1000", "--grace-s=3600"]);
        if !up.status.success() {
            println!("{}", text(&up.stderr));
        }
        up.status.success()
    });
}

fn crash_rounds(scheme: &str) {
    let rounds = told("GABION_CRASH_ROUNDS", ROUNDS);
    let seed = told("GABION_CRASH_SEED", 1);
    println!("{rounds} rounds of {scheme}, seed {seed}");
    let cluster = TestCluster::start(3, NODES as u32 / 3);
    let update = format!("--update={scheme}");
    cluster.run(&[
        "pool",
        "create",
        "vm",
        "--code=rs(4,2)",
        "--chunk=64KiB",
        &update,
    ]);
    let mut expected = pattern(WRITERS * PART, seed);
    cluster.put("disk", &expected);
    let parts = expected.chunks(PART).enumerate();
    let mut writers: Vec<Writer> = parts
        .map(|(number, part)| Writer {
            number,
            acknowledged: part.to_vec(),
            attempted: None,
            draw: Draw(seed + number as u64),
            acknowledged_count: 0,
        })
        .collect();
    let mut draw = Draw(seed);
    for round in 0..rounds {
        kill_under_load(&cluster, &mut writers, &mut draw);
        expected = cluster.get("disk");
        for writer in &mut writers {
            writer.check(&expected, round);
        }
        let scrubbed = cluster.json(&["scrub"]);
        let is_clean = |list: &str| scrubbed[list].as_array().is_some_and(Vec::is_empty);
        assert!(is_clean("damage"), "round {round}: {scrubbed}");
    }
    let written: u64 = writers.iter().map(|writer| writer.acknowledged_count).sum();
    println!("{scheme}: {written} acknowledged writes");
    assert!(written >= rounds, "there was no load");
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
    crash_rounds("fo");
}

#[test]
fn full_logging_keeps_its_promise() {
    crash_rounds("fl");
}

#[test]
fn parity_logging_keeps_its_promise() {
    crash_rounds("pl");
}

#[test]
fn parity_logging_with_reserved_space_keeps_its_promise() {
    crash_rounds("plr");
}

#[test]
fn rack_coordinated_updates_keep_their_promise() {
    crash_rounds("rackcu");
}

#[test]
fn parix_keeps_its_promise() {
    crash_rounds("parix");
}

#[test]
fn cross_rack_aware_updates_keep_their_promise() {
    crash_rounds("cau");
}
