//! Errors for users when files of a node's store vanish, and when a node cannot be asked.

use crate::support::{TestCluster, fails_on, pattern, wait_for};
use std::fs;
use std::path::PathBuf;

/// The chunk files of a node.
fn chunk_files(cluster: &TestCluster, node: usize) -> Vec<PathBuf> {
    let chunks = cluster.path(&format!("cluster/nodes/{node}/store/chunks"));
    let directories = fs::read_dir(chunks).expect("the node has chunks");
    let files = directories.flat_map(|directory| {
        let directory = directory.expect("a directory").path();
        fs::read_dir(directory).expect("it can be listed")
    });
    files.map(|file| file.expect("a file").path()).collect()
}

#[test]
fn a_chunk_file_that_vanished_costs_its_chunk_and_not_its_node() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=64KiB"]);
    let mut precious = pattern(900_000, 1);
    cluster.put("precious", &precious);
    let before = chunk_files(&cluster, 3);
    cluster.put("doomed", &pattern(200_000, 2));
    let mut files = chunk_files(&cluster, 3);
    files.retain(|file| !before.contains(file));
    fs::remove_file(&files[0]).expect("it is there");
    cluster.run(&["rm", "doomed"]);
    // A scrub finds what nothing has read since.
    fs::remove_file(&before[0]).expect("it is there");
    let found = cluster.json(&["scrub"]);
    assert_eq!(found["damage"].as_array().map(Vec::len), Some(1), "{found}");
    wait_for("the chunk to be made again", || before[0].exists());
    // Reads and writes find it too.
    fs::remove_file(&before[0]).expect("it was made again");
    cluster.write("precious", 100, b"hello");
    precious[100..105].copy_from_slice(b"hello");
    assert!(cluster.get("precious") == precious);
    cluster.run(&["scrub"]);
    wait_for("the chunk to be made again", || before[0].exists());
    let nodes = cluster.json(&["cluster", "status"]);
    assert!(!nodes.to_string().contains("failed\""), "{nodes}");
    assert!(cluster.get("precious") == precious);
}

#[test]
fn a_scrub_that_could_not_ask_a_node_fails_and_names_it() {
    let cluster = TestCluster::start(3, 1);
    cluster.run(&["chaos", "kill-node", "1"]);
    cluster.wait_until_failed(&[1]);
    let said = fails_on(&cluster, &["scrub"], 1);
    assert!(said.contains("could not reach node 1"), "{said}");
}
