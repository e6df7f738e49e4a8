//! `gabion explain`: where a byte lies, and what happens to it.

use crate::support::{TestCluster, fails_on, pattern, wait_for};
use serde_json::Value;

const KIB: usize = 1 << 10;

#[test]
fn a_byte_is_found_on_the_node_that_has_it() {
    let cluster = TestCluster::start(3, 3);
    cluster.run(&["pool", "create", "coded", "--code=rs(4,2)", "--chunk=64KiB"]);
    cluster.put("disk", &pattern(400 * KIB, 1));
    // The second chunk of the second stripe; and a file whose own name ends with what looks like an offset.
    let explained = cluster.json(&["explain", "disk:321KiB"]);
    let stat = cluster.json(&["stat", "disk"]);
    let stripe = &stat["stripes"][1];
    assert_eq!(explained["stripe"], stripe["stripe"]);
    assert_eq!(explained["stripe_offset"], stripe["offset"]);
    let within = 321 * KIB as u64 - stripe["offset"].as_u64().expect("an offset");
    let chunk_bytes = stripe["chunk_bytes"].as_u64().expect("a size");
    let chunk = within / chunk_bytes;
    assert_eq!(explained["chunk"], chunk);
    assert_eq!(explained["chunk_offset"], within % chunk_bytes);
    let nodes: Vec<&Value> = explained["chunks"]
        .as_array()
        .expect("chunks")
        .iter()
        .collect();
    let nodes: Vec<&Value> = nodes.iter().map(|chunk| &chunk["node"]).collect();
    assert_eq!(
        nodes,
        stripe["nodes"]
            .as_array()
            .expect("nodes")
            .iter()
            .collect::<Vec<_>>()
    );
    cluster.put("disk:4KiB", &pattern(KIB, 2));
    assert_eq!(cluster.json(&["explain", "disk:4KiB"])["name"], "disk:4KiB");
}

#[test]
fn a_lost_chunk_is_decoded_and_counted() {
    let cluster = TestCluster::start(3, 3);
    cluster.run(&["pool", "create", "coded", "--code=rs(4,2)", "--chunk=64KiB"]);
    cluster.put("disk", &pattern(256 * KIB, 1));
    let explained = cluster.json(&["explain", "disk"]);
    assert_eq!(explained["failures_left"], 2);
    let node = explained["chunks"][0]["node"].to_string();
    cluster.run(&["chaos", "kill-node", &node]);
    wait_for("the chunk counts as lost", || {
        cluster.json(&["explain", "disk"])["chunks"][0]["state"] == "lost"
    });
    assert_eq!(cluster.json(&["explain", "disk"])["failures_left"], 1);
    let said = cluster.run(&["explain", "disk"]);
    assert!(
        said.contains("a read decodes it from 4 other chunks"),
        "{said}"
    );
    assert!(said.contains("survives 1 further loss"), "{said}");
}

#[test]
fn holes_and_bytes_that_are_not_there_are_told() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "coded", "--code=rs(4,2)", "--chunk=64KiB"]);
    cluster.run(&["create", "volume", "--size=1GiB"]);
    assert_eq!(cluster.json(&["explain", "volume:5MiB"])["hole"], true);
    cluster.put("empty", &[]);
    for (what, code, sentence) in [
        ("volume:2GiB", 2, "there is no byte"),
        ("empty", 2, "is empty"),
        ("nothing", 1, "there is no file"),
    ] {
        let said = fails_on(&cluster, &["explain", what], code);
        assert!(said.contains(sentence), "{what}: {said}");
    }
}
