//! A node that returns with many unknown chunks waits for the operator's word, then sets them aside and
//! joins.

use crate::support::{TestCluster, fails_on, pattern, wait_for};
use serde_json::Value;
use std::path::{Path, PathBuf};

const NODE: u64 = 4;

/// The files below a directory, at any depth. None if it is not there.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.append(&mut files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

fn store(cluster: &TestCluster, node: u64) -> PathBuf {
    cluster.path(&format!("cluster/nodes/{node}/store"))
}

/// The status's sentence about the node's join, while it waits.
fn waiting(status: &Value) -> Option<&str> {
    let troubles = status["troubles"].as_array().expect("sentences");
    let mut troubles = troubles.iter().filter_map(Value::as_str);
    troubles.find(|trouble| trouble.contains("waits to join"))
}

#[test]
fn a_node_with_many_unknown_chunks_joins_when_the_operator_says_so() {
    // So long that a busy machine delays no living node until it is repaired.
    let cluster = TestCluster::start_with(3, 3, &["--lease-ms=5000", "--grace-s=5"]);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let kept = pattern(1 << 20, 15);
    cluster.put("kept", &kept);
    cluster.put("gone", &pattern(16 << 20, 16));
    cluster.run(&["chaos", "kill-node", &NODE.to_string()]);
    let held = files_below(&store(&cluster, NODE).join("chunks")).len();
    assert!(held > 20, "{held} chunks");
    wait_for("the node's chunks are repaired elsewhere", || {
        let status = cluster.json(&["cluster", "status"]);
        status["lost_chunks"] == 0 && status["repair"]["repaired_chunks"].as_u64() > Some(0)
    });
    cluster.run(&["rm", "gone"]);
    wait_for("nothing of the removed file is left on other nodes", || {
        let others = (0..9).filter(|&node| node != NODE);
        let files = others.map(|node| files_below(&store(&cluster, node).join("chunks")).len());
        // The other file has 4 stripes of 6 chunks.
        files.sum::<usize>() == 24
    });

    let error = fails_on(&cluster, &["node", "accept", &NODE.to_string()], 1);
    assert!(error.contains("does not wait"), "{error}");
    let said = cluster.run(&["chaos", "start-node", &NODE.to_string()]);
    assert!(said.contains("node 4 waits to join"), "{said}");
    let said = cluster.run(&["chaos", "start-node", &NODE.to_string()]);
    assert!(said.contains("node 4 waits to join"), "it runs: {said}");
    let status = cluster.json(&["cluster", "status"]);
    let sentence = waiting(&status).expect("it waits until it is told");
    assert!(sentence.contains("gabion node accept 4"), "{sentence}");
    assert_ne!(status["light"], "green");
    assert_eq!(status["nodes"][NODE as usize]["state"], "failed");

    cluster.run(&["node", "accept", &NODE.to_string()]);
    wait_for("the node joins", || {
        let status = cluster.json(&["cluster", "status"]);
        status["nodes"][NODE as usize]["state"] == "up"
    });
    // Some may have been of the file that is kept, and made elsewhere meanwhile.
    let trash = files_below(&store(&cluster, NODE).join("trash")).len();
    assert_eq!(trash, held, "nothing is deleted");
    assert!(cluster.get("kept") == kept);
}
