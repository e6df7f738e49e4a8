//! Kills helpers, requestors and the coordinator at random moments while all chunks of a failed node are
//! made elsewhere and writers go on updating, round after round: all data is there, redundancy is
//! restored without the failed node, and no acknowledged update is lost. In the end nodes store the
//! chunks that count, and nothing that a repair has left half-made or made for nothing.
//!
//! `GABION_CRASH_ROUNDS` sets the rounds, `GABION_CRASH_SEED` what is drawn.

use crate::support::{Load, TestCluster, gabion, path_text, pattern, text, wait_for};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KIB: usize = 1024;
/// Rounds unless told otherwise.
const ROUNDS: u64 = 3;
const WRITERS: usize = 2;
const NODES: u64 = 9;
/// Each writer has a part of the file for itself: some stripes, and the end of one.
const PART: usize = 1500 * KIB;
/// So slow that a recovery takes some seconds: three chunks a second, each of which is sent four times.
const LIMIT: &str = "--total=750kB";

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

/// One writer, and its knowledge of its part of the file.
struct Writer {
    number: usize,
    /// As all acknowledged writes have left it.
    acknowledged: Vec<u8>,
    /// The same with a write that was not acknowledged when the round ended.
    attempted: Option<Vec<u8>>,
    draw: Draw,
    acknowledged_count: u64,
}

impl Writer {
    /// Writes until it is over. A write that fails is made again, with the same bytes, until it
    /// succeeds: how a client would go on.
    fn write(&mut self, cluster: &TestCluster, is_over: &AtomicBool) {
        let file = cluster.path(&format!("new-{}", self.number));
        loop {
            let length = 1 + self.draw.below(40 * KIB as u64) as usize;
            let offset = self.draw.below((PART - length) as u64) as usize;
            let new = pattern(length, self.draw.below(u64::MAX));
            std::fs::write(&file, &new).expect("write a temporary file");
            let at = format!("--offset={}", self.number * PART + offset);
            let mut attempted = self.acknowledged.clone();
            attempted[offset..offset + length].copy_from_slice(&new);
            loop {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                self.attempted = Some(attempted.clone());
                let mut command = cluster.command(&["write", "disk", &at, path_text(&file)]);
                command.stdout(Stdio::null()).stderr(Stdio::null());
                if command.status().expect("the binary runs").success() {
                    break;
                }
            }
            self.attempted = None;
            self.acknowledged = attempted;
            self.acknowledged_count += 1;
        }
    }

    /// Compares its part of the file with what may be there, and takes over which of it is.
    fn check(&mut self, file: &[u8], round: u64) {
        let found = &file[self.number * PART..(self.number + 1) * PART];
        if let Some(attempted) = self.attempted.take()
            && found == attempted
        {
            self.acknowledged = attempted;
        }
        assert!(
            found == self.acknowledged,
            "round {round}: writer {} finds something else than it wrote",
            self.number
        );
    }
}

/// The coordinator's process, which the test kills and starts without the nodes.
struct Coordinator<'a> {
    cluster: &'a TestCluster,
    process: Option<Child>,
}

impl Coordinator<'_> {
    /// Kills the coordinator and starts another.
    fn replace(&mut self) {
        let mut own = self.process.take();
        match &mut own {
            Some(process) => {
                process.kill().expect("the child is ours");
                process.wait().expect("the child is ours");
            }
            None => self.kill_first(),
        }
        let listen = format!("--listen={}", self.cluster.coordinator());
        let data = format!(
            "--data={}",
            path_text(&self.cluster.path("cluster/coordinator"))
        );
        let arguments = [
            "coordinator",
            &listen,
            &data,
            "--lease-ms=1000",
            "--grace-s=3600",
        ];
        let mut command = gabion(&arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.process = Some(command.spawn().expect("the binary runs"));
    }

    /// Kills the one that `cluster up` has started.
    fn kill_first(&self) {
        let run_file = self.cluster.path("cluster/run/coordinator");
        let running = std::fs::read(run_file).expect("what 'cluster up' has noted");
        let running: serde_json::Value = serde_json::from_slice(&running).expect("JSON");
        let pid = running["pid"].to_string();
        let killed = Command::new("kill").args(["-9", &pid]).status();
        assert!(killed.expect("there is a kill").success());
    }
}

impl Drop for Coordinator<'_> {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It may have ended by itself, and then the test has failed already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The cluster's state of repair, once the coordinator answers.
fn repair_status(cluster: &TestCluster) -> serde_json::Value {
    let mut status = None;
    wait_for("the coordinator answers", || {
        let output = cluster.output(&["--format=json", "repair", "status"]);
        status = serde_json::from_slice(&output.stdout).ok();
        status.is_some()
    });
    status.expect("it has answered")
}

/// Disturbs a recovery: kills nodes and the coordinator, one after another, and has them back. How often
/// there was still something to repair afterwards.
fn disturb(
    cluster: &TestCluster,
    coordinator: &mut Coordinator<'_>,
    lost: u64,
    draw: &mut Draw,
) -> u64 {
    let mut in_time_count = 0;
    for _ in 0..=draw.below(3) {
        // The moments are the test's only use of time, and any will do.
        std::thread::sleep(Duration::from_millis(draw.below(700)));
        if draw.below(2) == 0 {
            coordinator.replace();
        } else {
            // Helper, requestor or neither, as it comes.
            let node = ((lost + 1 + draw.below(NODES - 1)) % NODES).to_string();
            let killed = cluster.output(&["chaos", "kill-node", &node]);
            assert!(killed.status.success(), "{}", text(&killed.stderr));
            std::thread::sleep(Duration::from_millis(draw.below(1_500)));
            wait_for("the node is back", || {
                cluster
                    .output(&["chaos", "start-node", &node])
                    .status
                    .success()
            });
        }
        in_time_count += u64::from(repair_status(cluster)["light"] != "green");
    }
    in_time_count
}

/// The names of all files in a directory, and in those below it.
fn files_below(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).expect("a node's directory") {
        let entry = entry.expect("a node's directory");
        if entry.file_type().expect("a file that stays").is_dir() {
            files_below(&entry.path(), names);
        } else {
            names.insert(text(entry.file_name().as_encoded_bytes()));
        }
    }
}

/// The files that nodes have for chunks, each with its node: what layouts say, and what there is.
fn chunk_files(cluster: &TestCluster) -> [BTreeSet<(u64, String)>; 2] {
    let layout = cluster.json(&["stat", "disk"]);
    let mut expected = BTreeSet::new();
    for stripe in layout["stripes"].as_array().expect("a list") {
        let id = stripe["stripe"].as_u64().expect("an id");
        let nodes = stripe["nodes"].as_array().expect("a list").iter();
        for (index, node) in nodes.enumerate() {
            let name = format!("{id:016x}-{index:02x}");
            expected.insert((node.as_u64().expect("an id"), name));
        }
    }
    let mut found = BTreeSet::new();
    for node in 0..NODES {
        let mut names = BTreeSet::new();
        for part in ["chunks", "tmp"] {
            let directory = cluster.path(&format!("cluster/nodes/{node}/store/{part}"));
            files_below(&directory, &mut names);
        }
        found.extend(names.into_iter().map(|name| (node, name)));
    }
    [expected, found]
}

/// A scrub finds no damage. It cannot ask node `lost`, names it, and fails for that. On a busy machine it is made
/// again until it can ask all others.
fn check_scrub(cluster: &TestCluster, lost: u64, round: u64) {
    wait_for("a scrub reaches all nodes but the lost one", || {
        let scrub = cluster.output(&["--format=json", "scrub"]);
        assert_eq!(scrub.status.code(), Some(1), "round {round}: {scrub:?}");
        let scrubbed: serde_json::Value = serde_json::from_slice(&scrub.stdout).expect("JSON");
        let damage = scrubbed["damage"].as_array().expect("a list");
        assert!(damage.is_empty(), "round {round}: {scrubbed}");
        let unreachable = scrubbed["unreachable_nodes"].as_array().expect("a list");
        let lost = serde_json::json!(lost);
        assert!(unreachable.contains(&lost), "round {round}: {scrubbed}");
        unreachable.len() == 1
    });
}

#[test]
fn a_full_node_recovery_survives_crashes_of_all_who_take_part() {
    let rounds = told("GABION_CRASH_ROUNDS", ROUNDS);
    let seed = told("GABION_CRASH_SEED", 1);
    println!("{rounds} rounds, seed {seed}");
    let cluster = TestCluster::start(3, NODES as u32 / 3);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let whole = pattern(WRITERS * PART, seed);
    cluster.put("disk", &whole);
    cluster.run(&["repair", "limit", LIMIT]);
    let parts = whole.chunks(PART).enumerate();
    let mut writers: Vec<Writer> = parts
        .map(|(number, part)| Writer {
            number,
            acknowledged: part.to_vec(),
            attempted: None,
            draw: Draw(seed + number as u64),
            acknowledged_count: 0,
        })
        .collect();
    let mut coordinator = Coordinator {
        cluster: &cluster,
        process: None,
    };
    let mut draw = Draw(seed);
    let mut in_time_count = 0;
    for round in 0..rounds {
        let lost = draw.below(NODES);
        cluster.run(&["chaos", "kill-node", &lost.to_string()]);
        cluster.wait_until_failed(&[lost]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _load = Load::until_dropped(&is_over);
            for writer in &mut writers {
                scope.spawn(|| writer.write(&cluster, &is_over));
            }
            cluster.run(&["repair"]);
            in_time_count += disturb(&cluster, &mut coordinator, lost, &mut draw);
            wait_for("redundancy is restored without the lost node", || {
                repair_status(&cluster)["light"] == "green"
            });
        });
        let file = cluster.get("disk");
        for writer in &mut writers {
            writer.check(&file, round);
        }
        check_scrub(&cluster, lost, round);
        cluster.run(&["chaos", "start-node", &lost.to_string()]);
        cluster.wait_until_failed(&[]);
    }
    let written: u64 = writers.iter().map(|writer| writer.acknowledged_count).sum();
    println!("{written} acknowledged writes, {in_time_count} kills during recoveries");
    assert!(in_time_count > 0, "no recovery was disturbed");
    // Chunks that a killed coordinator had made go when their node joins the next time.
    for node in 0..NODES {
        cluster.run(&["chaos", "kill-node", &node.to_string()]);
        cluster.run(&["chaos", "start-node", &node.to_string()]);
    }
    // Puts whose clients have gone silent are kept for half a minute.
    wait_for("nodes store what counts and nothing else", || {
        let [expected, found] = chunk_files(&cluster);
        expected == found
    });
    assert!(written >= rounds, "there was no load");
}
