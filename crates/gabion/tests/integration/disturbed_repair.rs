//! The repair of one large chunk of which a helper dies halfway, or has bad bytes.

use crate::support::{TestCluster, pattern, wait_for};

const CHUNK_BYTES: u64 = 4 << 20;

/// Seven nodes, each a rack of its own, so that what racks send says what nodes do; and a stripe of six
/// chunks.
fn cluster_of_one_stripe() -> (TestCluster, Vec<u8>, Vec<u64>) {
    let cluster = TestCluster::start(7, 1);
    // In place, so that a chunk's file ends with its data, which a bit is to be flipped in.
    let form = ["--code=rs(4,2)", "--chunk=4MiB", "--update=fo"];
    cluster.run(&[&["pool", "create", "vm"], &form[..]].concat());
    let bytes = pattern(4 * CHUNK_BYTES as usize, 3);
    cluster.put("disk", &bytes);
    let layout = cluster.json(&["stat", "disk"]);
    let nodes = layout["stripes"][0]["nodes"].as_array().expect("a list");
    let nodes = nodes.iter().map(|node| node.as_u64().expect("an id"));
    let nodes = nodes.collect();
    (cluster, bytes, nodes)
}

/// Returns the bytes that were sent for repairs, by the rack of the sender: each node has its own.
fn sent(cluster: &TestCluster) -> Vec<(u64, u64)> {
    let status = cluster.json(&["repair", "status"]);
    let pairs = status["sent_by_racks"].as_array().expect("a list").iter();
    let number = |pair: &serde_json::Value, name: &str| pair[name].as_u64().expect("a number");
    pairs
        .map(|pair| (number(pair, "from_rack"), number(pair, "bytes")))
        .collect()
}

fn sum(sent: &[(u64, u64)]) -> u64 {
    sent.iter().map(|(_, bytes)| bytes).sum()
}

fn repair_of(cluster: &TestCluster) -> serde_json::Value {
    cluster.json(&["cluster", "status"])["repair"].clone()
}

/// Loses chunk 1, begins its slow repair, and says who helps once a part of it is sent.
fn helper_after(cluster: &TestCluster, nodes: &[u64], percent: u64) -> u64 {
    // Four helpers send a chunk each, which takes some six seconds so.
    cluster.run(&["repair", "limit", "--total=3MB"]);
    cluster.run(&["chaos", "kill-node", &nodes[1].to_string()]);
    cluster.wait_until_failed(&[nodes[1]]);
    cluster.run(&["repair"]);
    wait_for("a part of it is sent", || {
        sum(&sent(cluster)) >= 4 * CHUNK_BYTES * percent / 100
    });
    sent(cluster)[0].0
}

#[test]
fn a_repair_goes_on_from_where_it_was_when_its_helper_died() {
    let (cluster, bytes, nodes) = cluster_of_one_stripe();
    let helper = helper_after(&cluster, &nodes, 40);
    cluster.run(&["chaos", "kill-node", &helper.to_string()]);
    wait_for("the chunk is made", || {
        repair_of(&cluster)["repaired_chunks"] == 1
    });
    assert_eq!(repair_of(&cluster)["resumed"], 1);
    let all = sum(&sent(&cluster));
    assert!(
        all < 4 * CHUNK_BYTES * 5 / 4,
        "{all} bytes were sent, as if it had begun anew"
    );
    assert!(cluster.get("disk") == bytes, "with two nodes away");
}

#[test]
fn a_helper_with_bad_bytes_is_found_out_left_out_and_repaired_too() {
    let (cluster, bytes, nodes) = cluster_of_one_stripe();
    let helper = helper_after(&cluster, &nodes, 10).to_string();
    // Near the end of its chunk, where it has not been read yet.
    cluster.run(&["chaos", "flip-bit", &helper, "--byte=1000"]);
    cluster.run(&["repair", "limit", "--total=100MB"]);
    wait_for("both are whole", || {
        cluster.json(&["repair", "status"])["light"] == "green"
    });
    assert_eq!(repair_of(&cluster)["repaired_chunks"], 2);
    // A scrub asks every node, and this one would not answer.
    cluster.run(&["chaos", "start-node", &nodes[1].to_string()]);
    cluster.assert_no_damage();
    assert!(cluster.get("disk") == bytes);
}
