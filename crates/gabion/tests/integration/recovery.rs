//! A recovery: the metadata are lost after their last backup. A coordinator on the restored backup serves what the
//! nodes still confirm, names the rest, and changes nothing.

use crate::support::{TestCluster, fails, fails_on, gabion, path_text, pattern, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};

/// Bytes of a file with one stripe, whose chunks are on six of the eight nodes.
const SMALL: usize = 60_000;
/// Bytes of a file with four stripes.
const LARGE: usize = 200_000;
/// Files of one stripe.
const COUNT: u64 = 10;
const NODES: u64 = 8;

/// A recovering coordinator, killed at its end.
struct Recovering(Child);

impl Recovering {
    /// Starts one in the place of a cluster's coordinator.
    fn start(cluster: &TestCluster) -> Self {
        let log = File::create(cluster.path("recovery.log")).expect("create a log");
        let listen = format!("--listen={}", cluster.coordinator());
        let data = cluster.path("cluster/coordinator");
        let data = format!("--data={}", path_text(&data));
        let process = gabion(&["coordinator", &listen, &data, "--recover"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let process = Self(process.expect("the binary runs"));
        wait_for("the recovery answers", || {
            cluster.output(&["ls"]).status.success()
        });
        process
    }
}

impl Drop for Recovering {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn small(number: u64) -> (String, Vec<u8>) {
    (format!("file-{number}"), pattern(SMALL, number))
}

/// The stripes of a file, and the nodes of each.
fn stripes(cluster: &TestCluster, name: &str) -> Vec<(u64, BTreeSet<u64>)> {
    let stat = cluster.json(&["stat", name]);
    let stripes = stat["stripes"].as_array().expect("a list").iter();
    let numbers = |value: &Value| {
        let list = value.as_array().expect("a list").iter();
        list.map(|number| number.as_u64().expect("a number"))
            .collect()
    };
    stripes
        .map(|stripe| {
            let id = stripe["stripe"].as_u64().expect("an id");
            (id, numbers(&stripe["nodes"]))
        })
        .collect()
}

fn ids(cluster: &TestCluster, name: &str) -> BTreeSet<u64> {
    let stripes = stripes(cluster, name).into_iter();
    stripes.map(|(id, _)| id).collect()
}

fn names_below(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("a node's directory") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("its type").is_dir() {
            names_below(&entry.path(), names);
        } else {
            let name = entry.file_name().into_string();
            names.insert(name.expect("chunks have plain names"));
        }
    }
}

/// The chunk files of each node.
fn chunk_files(cluster: &TestCluster) -> Vec<BTreeSet<String>> {
    let of = |node: u64| {
        let mut names = BTreeSet::new();
        let chunks = cluster.path(&format!("cluster/nodes/{node}/store/chunks"));
        names_below(&chunks, &mut names);
        names
    };
    (0..NODES).map(of).collect()
}

/// Waits until no node has chunks of these stripes.
fn wait_until_removed(cluster: &TestCluster, gone: &BTreeSet<u64>) {
    wait_for("the nodes have removed the chunks", || {
        let files = chunk_files(cluster);
        let has = |id: &u64| {
            let prefix = format!("{id:016x}-");
            let mut names = files.iter().flatten();
            names.any(|name| name.starts_with(&prefix))
        };
        !gone.iter().any(has)
    });
}

/// The finding about a file; null if there is none.
fn finding(found: &Value, name: &str) -> Value {
    let mut files = found["findings"].as_array().expect("a list").iter();
    let file = files.find(|file| file["name"] == name);
    file.cloned().unwrap_or_default()
}

/// Changes the cluster after its backup. Returns the node that is lost then.
fn change(cluster: &TestCluster) -> u64 {
    let mut gone = ids(cluster, "replaced");
    gone.extend(ids(cluster, "removed"));
    gone.extend(ids(cluster, "shared"));
    // The write gives the file a new stripe. The old layout leads to the stripe of the snapshot, which has the old
    // bytes.
    cluster.run(&["snapshot", "shared", "snapshot-of-shared"]);
    cluster.write("shared", 0, &pattern(512, 98));
    cluster.write("file-0", 20_000, &pattern(512, 99));
    let file = cluster.path("new");
    fs::write(&file, pattern(LARGE, 51)).expect("write a temporary file");
    cluster.run(&["put", path_text(&file), "replaced", "--replace"]);
    cluster.run(&["rm", "removed"]);
    cluster.put("later", &pattern(LARGE, 52));
    wait_until_removed(cluster, &gone);
    // A repair elsewhere changes the layouts of the stripes that this node is in.
    let used = &stripes(cluster, "file-0")[0].1;
    let lost = (0..NODES).find(|node| !used.contains(node));
    let lost = lost.expect("a stripe is on six nodes of eight");
    cluster.run(&["chaos", "kill-node", &lost.to_string()]);
    cluster.wait_until_failed(&[lost]);
    cluster.run(&["repair"]);
    wait_for("the chunks of the lost node are rebuilt", || {
        cluster.json(&["repair", "status"])["light"] == "green"
    });
    lost
}

/// What the operator gets out of the cluster, file by file. `moved` are the small files whose layouts have changed.
fn check_reads(cluster: &TestCluster, found: &Value, moved: &BTreeSet<String>) {
    let mut written = pattern(SMALL, 0);
    written[20_000..20_512].copy_from_slice(&pattern(512, 99));
    assert!(
        cluster.get("file-0") == written,
        "the bytes of the last write are read"
    );
    for (name, bytes) in (1..COUNT).map(small) {
        if moved.contains(&name) {
            let target = cluster.path("refused");
            let error = fails_on(cluster, &["get", &name, path_text(&target)], 1);
            assert!(error.contains("is not served"), "{error}");
            assert!(!target.exists(), "no local file is left behind");
            let file = finding(found, &name);
            assert_eq!(file["served"], false, "{name}: {found}");
            assert_eq!(file["stripes"]["newer_on_nodes"], 1, "{name}: {found}");
        } else {
            assert!(cluster.get(&name) == bytes, "{name}");
            assert_eq!(finding(found, &name), Value::Null, "{name}");
        }
    }
    for (name, count) in [("replaced", 4), ("removed", 4), ("shared", 1)] {
        let file = finding(found, name);
        assert_eq!(file["served"], false, "{found}");
        assert_eq!(file["stripes"]["missing"], count, "{found}");
        let error = fails_on(cluster, &["get", name, "/dev/null"], 1);
        assert!(error.contains(&format!("missing: {count}")), "{error}");
    }
    assert!(cluster.get("tiny") == pattern(100, 60));
    assert_eq!(finding(found, "tiny")["bytes_of_metadata"], true, "{found}");
    assert_eq!(finding(found, "sparse")["bytes_of_metadata"], true);
    let listed = cluster.run(&["ls"]);
    assert!(
        listed.contains("removed") && !listed.contains("later"),
        "{listed}"
    );
}

/// Each of these is refused, in one sentence that gives no wrong advice.
fn check_refusals(cluster: &TestCluster) {
    let (file, patch) = (cluster.path("new"), cluster.path("patch"));
    fs::write(&patch, pattern(50, 70)).expect("write a temporary file");
    let (file, patch) = (path_text(&file), path_text(&patch));
    let changes = [
        &["mkdir", "directory"][..],
        &["rm", "file-0"],
        &["rm", "--prefix=file-"],
        // In place, and inline.
        &["write", "file-0", "--offset=1", patch],
        &["write", "tiny", "--offset=1", patch],
        &["append", "file-0", patch],
        &["append", "tiny", patch],
        &["punch", "file-0", "--offset=0", "--length=9"],
        &["punch", "tiny", "--offset=0", "--length=9"],
        &["mv", "file-0", "other"],
        &["put", file, "one-more"],
        &["truncate", "file-0", "--size=1"],
        &["snapshot", "file-0", "snapshot"],
        &["node", "drain", "0"],
    ];
    let refusal = |arguments: &[&str]| {
        let mut error = String::new();
        // If the coordinator's answer comes too late, the command can only say that.
        wait_for("the coordinator answers in time", || {
            error = fails_on(cluster, arguments, 1);
            !error.contains("did not answer in time")
        });
        assert!(error.contains("changes nothing"), "{arguments:?}: {error}");
        error
    };
    for change in changes {
        let error = refusal(change);
        for wrong in ["check its address", "took longer", "lease", "unknown"] {
            assert!(!error.contains(wrong), "{change:?}: {error}");
        }
    }
    refusal(&["health"]);
}

/// The stripes of no file of the metadata that nodes hold.
fn strangers(found: &Value) -> BTreeSet<u64> {
    let nodes = found["unknown_to_metadata"].as_array().expect("a list");
    let stripes = nodes
        .iter()
        .flat_map(|node| node["stripes"].as_array().expect("a list"));
    stripes
        .map(|stripe| stripe.as_u64().expect("an id"))
        .collect()
}

/// Restores the metadata from a backup. Before that, and without the authority, no recovery starts.
fn restore(cluster: &TestCluster, file: &Path, backup: &str) {
    let directory = cluster.path("cluster/coordinator");
    let data = format!("--data={}", path_text(&directory));
    let recover = ["coordinator", "--listen=127.0.0.1:0", &data, "--recover"];
    let error = fails(&recover, 1);
    assert!(error.contains("gabion metadata restore"), "{error}");
    let target = format!("redb:{}", path_text(file));
    cluster.run(&["metadata", "restore", "--from", backup, "--to", &target]);
    let (authority, aside) = (directory.join("ca"), cluster.path("ca"));
    fs::rename(&authority, &aside).expect("move the authority away");
    let error = fails(&recover, 2);
    assert!(
        error.contains("put the copy of this directory back"),
        "{error}"
    );
    fs::rename(&aside, &authority).expect("put the authority back");
}

#[test]
fn a_restored_backup_older_than_the_nodes_serves_what_holds_and_harms_nothing() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (log, backup) = (place.path().join("log"), place.path().join("backup"));
    let (log, backup) = (path_text(&log), path_text(&backup));
    let option = format!("--metadata-log={log}");
    // So long a lease that a busy machine delays no node for it: the repair would move the chunks of that one too.
    let cluster = TestCluster::start_with(4, 2, &["--lease-ms=10000", "--grace-s=3600", &option]);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=16KiB"]);
    for (name, bytes) in (0..COUNT).map(small) {
        cluster.put(&name, &bytes);
    }
    cluster.put("replaced", &pattern(LARGE, 50));
    cluster.put("removed", &pattern(LARGE, 53));
    cluster.put("shared", &pattern(SMALL, 54));
    cluster.put("tiny", &pattern(100, 60));
    cluster.put("sparse", &pattern(SMALL, 61));
    cluster.run(&["truncate", "sparse", "--size=400000"]);
    let error = fails_on(&cluster, &["metadata", "recovery"], 1);
    assert!(error.contains("recovers nothing"), "{error}");
    cluster.run(&["metadata", "backup", "--from", log, "--to", backup]);
    let before: Vec<(String, BTreeSet<u64>)> = (1..COUNT)
        .map(|number| small(number).0)
        .map(|name| (name.clone(), stripes(&cluster, &name).remove(0).1))
        .collect();
    let lost = change(&cluster);
    let moved = before
        .into_iter()
        .filter(|(_, nodes)| nodes.contains(&lost));
    let moved: BTreeSet<String> = moved.map(|(name, _)| name).collect();
    let mut unknown = ids(&cluster, "later");
    for name in ["replaced", "shared", "snapshot-of-shared"] {
        unknown.extend(ids(&cluster, name));
    }

    // The metadata and their log are lost.
    cluster.run(&["chaos", "kill-coordinator"]);
    let file = cluster.path("cluster/coordinator/metadata.redb");
    let newest = cluster.path("newest.redb");
    fs::rename(&file, &newest).expect("move the metadata away");
    restore(&cluster, &file, backup);
    let chunks = chunk_files(&cluster);
    let recovering = Recovering::start(&cluster);
    let mut found = Value::Null;
    wait_for("all nodes but the lost one answer", || {
        found = cluster.json(&["metadata", "recovery"]);
        found["silent_nodes"] == json!([lost])
    });
    assert_eq!(found["files"], COUNT + 5, "{found}");
    assert_eq!(strangers(&found), unknown, "{found}");
    check_reads(&cluster, &found, &moved);
    check_refusals(&cluster);
    assert!(chunk_files(&cluster) == chunks, "no chunk has come or gone");
    drop(recovering);

    // The newest metadata are found again.
    fs::remove_file(&file).expect("remove the restored metadata");
    fs::rename(&newest, &file).expect("put the newest metadata back");
    cluster.up();
    wait_for("the cluster is green", || {
        cluster.json(&["cluster", "status"])["light"] == "green"
    });
    for (name, bytes) in (1..COUNT).map(small) {
        assert!(cluster.get(&name) == bytes, "{name}");
    }
    assert!(cluster.get("replaced") == pattern(LARGE, 51));
    assert!(cluster.get("later") == pattern(LARGE, 52));
    cluster.assert_no_damage();
}
