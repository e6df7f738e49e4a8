//! Directories that are copies: of a node at an earlier time, of the coordinator's metadata at an earlier time, and
//! of a node that runs.

use crate::support::{TestCluster, complaint, gabion, path_text, pattern, text, wait_for};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const NODE: &str = "2";

/// Five nodes in as many racks, with a file.
fn start() -> (TestCluster, Vec<u8>) {
    let cluster = TestCluster::start_with(5, 1, &["--lease-ms=3000", "--grace-s=3600"]);
    cluster.run(&["pool", "create", "vm", "--code=rs(2,2)", "--chunk=64KiB"]);
    let bytes = pattern(1 << 20, 31);
    cluster.put("f", &bytes);
    (cluster, bytes)
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp runs").success());
}

/// Puts a copy in the place of a directory; gives where the directory is now.
fn swap(directory: &Path, copy: &Path) -> PathBuf {
    let aside = directory.with_extension("aside");
    fs::rename(directory, &aside).expect("move the directory away");
    fs::rename(copy, directory).expect("put the copy there");
    aside
}

fn wait_until_green(cluster: &TestCluster) {
    wait_for("the cluster is green", || {
        cluster.json(&["cluster", "status"])["light"] == "green"
    });
}

#[test]
fn a_node_on_an_earlier_copy_of_its_directory_catches_up() {
    let (cluster, mut bytes) = start();
    let directory = cluster.path("cluster/nodes").join(NODE);
    let earlier = cluster.path("earlier");
    cluster.run(&["chaos", "kill-node", NODE]);
    copy(&directory, &earlier);
    // The node starts twice, so the copy counts fewer starts than the coordinator knows.
    cluster.run(&["chaos", "start-node", NODE]);
    cluster.run(&["chaos", "kill-node", NODE]);
    cluster.run(&["chaos", "start-node", NODE]);
    wait_until_green(&cluster);
    for at in (0..bytes.len()).step_by(64 << 10) {
        let new = pattern(512, at as u64 + 1);
        bytes[at..at + 512].copy_from_slice(&new);
        cluster.write("f", at, &new);
    }
    cluster.run(&["chaos", "kill-node", NODE]);
    swap(&directory, &earlier);
    cluster.run(&["chaos", "start-node", NODE]);
    wait_for("the coordinator finds that the node went back", || {
        let log = cluster.run(&["cluster", "log"]);
        log.contains("node 2 went back in time")
    });
    wait_until_green(&cluster);
    assert!(cluster.get("f") == bytes);
    cluster.assert_no_damage();
}

#[test]
fn a_coordinator_on_an_earlier_copy_of_its_metadata_serves_nothing() {
    let (cluster, bytes) = start();
    let directory = cluster.path("cluster/coordinator");
    let earlier = cluster.path("earlier");
    cluster.run(&["chaos", "kill-coordinator"]);
    copy(&directory, &earlier);
    cluster.up();
    cluster.put("later", &bytes);
    cluster.run(&["chaos", "kill-coordinator"]);
    let newest = swap(&directory, &earlier);
    let listen = format!("--listen={}", cluster.coordinator());
    let data = format!("--data={}", path_text(&directory));
    let refused = gabion(&["coordinator", &listen, &data, "--lease-ms=500"]).output();
    let refused = refused.expect("the binary runs");
    let told = complaint(&refused);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("metadata is an old copy"), "{told}");
    let said = text(&refused.stdout);
    assert!(said.starts_with("listening "), "{said}");
    assert!(!said.contains("ready"), "it has never served: {said}");
    // The coordinator may listen, or end before it does.
    let _ = cluster.output(&["cluster", "up"]);
    wait_for("the nodes give the earlier copy away", || {
        let log = cluster.run(&["cluster", "log"]);
        log.contains("metadata is an old copy")
    });
    cluster.output(&["chaos", "kill-coordinator"]);
    fs::remove_dir_all(&directory).expect("remove the earlier copy");
    fs::rename(newest, &directory).expect("restore the newest copy");
    cluster.up();
    wait_until_green(&cluster);
    for name in ["f", "later"] {
        assert!(cluster.get(name) == bytes, "{name}");
    }
}

/// A process of a test, killed at its end.
struct OwnProcess(Child);

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_second_process_on_a_copy_of_a_node_s_directory_is_refused() {
    let (cluster, bytes) = start();
    let (twin, log) = (cluster.path("twin"), cluster.path("twin.log"));
    cluster.run(&["chaos", "kill-node", NODE]);
    copy(&cluster.path("cluster/nodes").join(NODE), &twin);
    cluster.run(&["chaos", "start-node", NODE]);
    wait_until_green(&cluster);
    let said = File::create(&log).expect("create the log");
    let process = gabion(&[
        "node",
        "--rack=2",
        &format!("--join={}", cluster.coordinator()),
        &format!("--data={}", path_text(&twin)),
    ])
    .stdout(Stdio::null())
    .stderr(said)
    .spawn();
    let process = OwnProcess(process.expect("the binary runs"));
    wait_for("the second process is refused", || {
        let said = fs::read_to_string(&log).expect("read the log");
        said.contains("node 2 already runs at")
    });
    wait_until_green(&cluster);
    assert!(cluster.get("f") == bytes);
    drop(process);
}
