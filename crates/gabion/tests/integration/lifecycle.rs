//! Blocks that are replicated at first, on clusters of real processes: their bytes are the same before,
//! while and after they become stripes and blocks again, even if any process is killed at any time.

use crate::support::{TestCluster, fails_on, path_text, pattern, wait_for};
use serde_json::Value;
use std::time::Duration;

const KIB: usize = 1024;
const CHUNK: usize = 64 * KIB;
/// Bytes of a segment of these tests' pools.
const SEGMENT: usize = 4 * CHUNK;
const ROUNDS: u64 = 4;

fn create(cluster: &TestCluster, name: &str, further: &[&str]) {
    let common = [
        "pool",
        "create",
        name,
        "--code=rs(4,2)",
        "--chunk=64KiB",
        "--write=replicate:3",
    ];
    cluster.run(&[&common[..], further].concat());
}

/// Returns the cluster's status of its lifecycles.
fn lifecycle(cluster: &TestCluster) -> Value {
    cluster.json(&["cluster", "status"])["lifecycle"].clone()
}

fn count(status: &Value, name: &str) -> u64 {
    status[name].as_u64().expect("a count")
}

/// Bytes between nodes of different racks that were metered as those of new stripes.
fn encode_bytes(cluster: &TestCluster) -> u64 {
    let status = cluster.json(&["cluster", "status"]);
    let rows = status["traffic"].as_array().expect("a list").iter();
    let crosses = |row: &&Value| {
        let (from, to) = (row["from_rack"].as_u64(), row["to_rack"].as_u64());
        row["purpose"] == "encode" && from.is_some() && to.is_some() && from != to
    };
    rows.filter(crosses)
        .map(|row| row["bytes"].as_u64().expect("a count"))
        .sum()
}

#[test]
fn data_is_the_same_in_every_form_and_none_crosses_racks_to_be_encoded() {
    let cluster = TestCluster::start(4, 3);
    create(&cluster, "vm", &["--encode-after=asked"]);
    let mut expected = pattern(2 * SEGMENT + 5000, 1);
    cluster.put("disk", &expected);
    let status = lifecycle(&cluster);
    assert_eq!(count(&status, "replicated_block_count"), 12);
    assert!(cluster.get("disk") == expected, "replicated");
    let mut write = |offset: usize, length: usize, seed| {
        let new = pattern(length, seed);
        cluster.write("disk", offset, &new);
        expected[offset..offset + length].copy_from_slice(&new);
        assert!(
            cluster.get("disk") == expected,
            "{length} bytes from {offset}"
        );
    };
    // Within a block, over a border of blocks, over one of segments.
    for (offset, length) in [(1000, 300), (CHUNK - 50, 100), (SEGMENT - 9, 90)] {
        write(offset, length, 2);
    }
    let before = encode_bytes(&cluster);
    let done = cluster.json(&["pool", "encode", "vm"]);
    assert_eq!((count(&done, "encoded"), count(&done, "promoted")), (3, 0));
    assert_eq!(count(&done, "encode_cross_rack_download_bytes"), 0);
    let metered = encode_bytes(&cluster) - before;
    assert_eq!(
        metered,
        count(&done, "encode_cross_rack_bytes"),
        "what was planned"
    );
    assert_eq!(count(&lifecycle(&cluster), "encoded_stripe_count"), 3);
    for (offset, length) in [(1500, 300), (CHUNK - 70, 200), (SEGMENT - 19, 90)] {
        write(offset, length, 3);
    }
    let before = encode_bytes(&cluster);
    let done = cluster.json(&["pool", "promote", "vm", "--file=disk"]);
    assert_eq!((count(&done, "encoded"), count(&done, "promoted")), (0, 3));
    assert_eq!(
        encode_bytes(&cluster) - before,
        count(&done, "promote_cross_rack_bytes")
    );
    write(SEGMENT - 1000, 3000, 4);
    let done = cluster.json(&["pool", "encode", "vm", "--file=disk"]);
    assert_eq!(
        count(&done, "encode_cross_rack_download_bytes"),
        0,
        "as at first"
    );
    write(CHUNK - 5, 10, 5);
    fails_on(&cluster, &["pool", "encode", "vm", "--file=none"], 1);
    fails_on(&cluster, &["pool", "promote", "vm-encoded"], 1);
}

#[test]
fn nothing_is_lost_if_any_process_is_killed_while_segments_change() {
    let cluster = TestCluster::start(4, 3);
    create(&cluster, "vm", &["--encode-after=asked"]);
    let mut expected = pattern(4 * SEGMENT, 1);
    cluster.put("disk", &expected);
    for round in 0..ROUNDS {
        let order = if round % 2 == 0 { "encode" } else { "promote" };
        cluster.run(&["pool", order, "vm", "--no-wait"]);
        // The moment of the kill is the test's only use of time, and any moment will do.
        std::thread::sleep(Duration::from_millis(20 + round * 37));
        if round % 3 == 2 {
            cluster.run(&["chaos", "kill-node", "5"]);
            assert!(
                cluster.get("disk") == expected,
                "round {round}, without a node"
            );
            cluster.run(&["chaos", "start-node", "5"]);
        } else {
            cluster.kill_all();
            cluster.up();
        }
        let (offset, length) = (CHUNK * round as usize - round as usize, 2000);
        let new = pattern(length, 10 + round);
        cluster.write("disk", offset, &new);
        expected[offset..offset + length].copy_from_slice(&new);
        assert!(cluster.get("disk") == expected, "round {round}");
        // The order is carried out nevertheless.
        cluster.run(&["pool", order, "vm"]);
        assert!(
            cluster.get("disk") == expected,
            "round {round}, when it was done"
        );
    }
    wait_for("no chunk is lost", || {
        cluster.json(&["cluster", "status"])["lost_chunks"] == 0
    });
    cluster.assert_no_damage();
}

#[test]
fn blocks_are_encoded_when_their_pool_says() {
    let cluster = TestCluster::start(4, 3);
    for (name, after) in [
        ("age", "1s"),
        ("quiet", "idle:1s"),
        ("whole", "full"),
        ("never", "asked"),
    ] {
        create(
            &cluster,
            name,
            &[&format!("--encode-after={after}"), "--placement=rr"],
        );
        let file = cluster.path(name);
        std::fs::write(&file, pattern(SEGMENT + 100, 1)).expect("write a temporary file");
        let pool = format!("--pool={name}");
        cluster.run(&["put", path_text(&file), name, &pool]);
    }
    // Both segments of two files, and the full one of the third.
    wait_for("five segments are encoded", || {
        count(&lifecycle(&cluster), "encoded_stripe_count") == 5
    });
    assert_eq!(count(&lifecycle(&cluster), "replicated_block_count"), 4 + 8);
    for name in ["age", "quiet", "whole", "never"] {
        assert!(cluster.get(name) == pattern(SEGMENT + 100, 1), "{name}");
    }
}
