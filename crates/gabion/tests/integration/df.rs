//! The space that the cluster tells, against the space that its directories take.

use crate::support::{TestCluster, pattern, wait_for};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Disk space of a directory and all in it, as `du` counts it.
fn du(directory: &Path) -> u64 {
    let mut bytes = fs::metadata(directory)
        .expect("the directory is there")
        .blocks()
        * 512;
    for entry in fs::read_dir(directory).expect("the directory is there") {
        let entry = entry.expect("the directory is readable");
        // A file may have been removed since it was listed.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        bytes += if metadata.is_dir() {
            du(&entry.path())
        } else {
            metadata.blocks() * 512
        };
    }
    bytes
}

fn nodes_du(cluster: &TestCluster, node_count: u64) -> u64 {
    let directories = (0..node_count).map(|node| cluster.path(&format!("cluster/nodes/{node}")));
    directories.map(|directory| du(&directory)).sum()
}

fn sum_of_nodes(df: &Value, field: &str) -> u64 {
    let nodes = df["nodes"].as_array().expect("a list of nodes").iter();
    nodes
        .map(|node| node[field].as_u64().expect("a number"))
        .sum()
}

fn is_near(told: u64, found: u64) -> bool {
    told.abs_diff(found) * 50 <= found
}

#[test]
fn an_empty_cluster_takes_little_space() {
    let cluster = TestCluster::start(6, 2);
    let empty = nodes_du(&cluster, 12);
    assert!(empty < 50 * MIB, "{empty} bytes");
}

#[test]
fn df_agrees_with_the_directories_of_nodes() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(2,2)", "--chunk=1MiB"]);
    cluster.put("disk", &pattern(64 << 20, 1));
    let df = || cluster.json(&["df"]);
    wait_for("all nodes have told their space", || {
        let told = sum_of_nodes(&df(), "used_bytes");
        told > 128 * MIB && is_near(told, nodes_du(&cluster, 6))
    });
    let new = df();
    assert_eq!(new["all"]["logical_bytes"], 64 * MIB);
    assert_eq!(new["all"]["raw_bytes"], 128 * MIB);
    assert_eq!(new["pools"][0]["reserved_bytes"], 0, "no update yet");
    cluster.write("disk", 0, &pattern(4096, 2));
    wait_for("two parity chunks have reserves", || {
        df()["pools"][0]["reserved_bytes"] == 2 * MIB
    });
    let updated = df();
    assert_eq!(sum_of_nodes(&updated, "reserved_bytes"), 2 * MIB);
    let (told, found) = (sum_of_nodes(&updated, "used_bytes"), nodes_du(&cluster, 6));
    assert!(is_near(told, found), "{told} bytes told, {found} found");
    let text = cluster.run(&["df"]);
    assert!(text.contains("vm") && text.contains("128 MiB"), "{text}");
    assert_eq!(
        updated["nodes_not_counted"].as_array().map(Vec::len),
        Some(0)
    );
    cluster.run(&["chaos", "kill-node", "4"]);
    cluster.wait_until_failed(&[4]);
    assert_eq!(df()["nodes_not_counted"], serde_json::json!([4]));
    let text = cluster.run(&["df"]);
    assert!(text.contains("1 node is not counted"), "{text}");
}
