//! The repair manager from the command line: status, limits, pauses, and nodes that leave.

use crate::support::{TestCluster, fails_on, pattern, wait_for};

const KIB: usize = 1024;

fn small_cluster() -> (TestCluster, Vec<u8>) {
    // So long a lease that a busy machine delays no node for it: chunks are counted, and those of that one would be
    // too.
    let cluster = TestCluster::start_with(3, 3, &["--lease-ms=10000", "--grace-s=3600"]);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    // Whole stripes, so that all chunks have one size, and so many that each node has some.
    let bytes = pattern(16 * 4 * 64 * KIB, 7);
    cluster.put("disk", &bytes);
    (cluster, bytes)
}

#[test]
fn repairs_keep_to_their_limit_and_to_a_pause_and_say_when_data_is_safe() {
    let (cluster, bytes) = small_cluster();
    let status = || cluster.json(&["repair", "status"]);
    assert_eq!(status()["light"], "green");
    cluster.run(&["repair", "pause"]);
    cluster.run(&["chaos", "kill-node", "4"]);
    cluster.wait_until_failed(&[4]);
    cluster.run(&["repair"]);
    let paused = status();
    assert_eq!(paused["paused"], true);
    assert_eq!(paused["light"], "yellow");
    let lost = paused["chunks_to_make"].as_u64().expect("a count");
    assert!(lost >= 3, "{paused}");
    assert_eq!(paused["lost_chunks"], lost);
    assert_eq!(paused["at_risk_by_failures_left"]["1"], lost);
    assert_eq!(paused["made_chunks"], 0);

    // Each repair sends four chunks, so that the limit allows four repairs a second.
    cluster.run(&["repair", "limit", "--total=1MB", "--node=10Gbit"]);
    let begun = std::time::Instant::now();
    cluster.run(&["repair", "resume"]);
    cluster.run(&["repair", "status", "--watch"]);
    let took_ms = begun.elapsed().as_millis() as u64;
    let least_ms = (lost - 2) * 4 * 65_536 / 1_000;
    assert!(took_ms >= least_ms, "{took_ms} ms for {lost} chunks");
    let done = status();
    assert_eq!(done["light"], "green");
    assert_eq!(done["made_chunks"], lost);
    // Nodes tell what they have sent with their next heartbeats.
    wait_for("all that was sent is known, to the byte", || {
        let pairs = status()["sent_by_racks"].clone();
        let pairs = pairs.as_array().expect("a list").iter();
        let sent: u64 = pairs
            .map(|pair| pair["bytes"].as_u64().expect("a count"))
            .sum();
        assert!(sent <= lost * 4 * 65_536, "{sent} is too much");
        sent == lost * 4 * 65_536
    });
    assert!(cluster.get("disk") == bytes);
    let refused = fails_on(&cluster, &["repair", "limit", "--rack=10 parsecs"], 2);
    assert!(refused.contains("is not a rate"), "{refused}");
}

#[test]
fn a_watch_that_begins_with_a_nodes_death_ends_when_its_chunks_are_repaired() {
    let (cluster, bytes) = small_cluster();
    cluster.run(&["chaos", "kill-node", "4"]);
    let watched = cluster.json(&["repair", "--watch"]);
    assert_eq!(watched["lost_chunks"], 0);
    let made = watched["repair"]["repaired_chunks"].as_u64();
    assert!(made >= Some(3), "{watched}");
    let nodes = cluster.json(&["cluster", "status"])["nodes"].clone();
    assert_eq!(nodes[4]["state"], "failed");
    assert!(cluster.get("disk") == bytes);
    fails_on(&cluster, &["node", "drain", "99"], 2);
    fails_on(&cluster, &["node", "accept", "99"], 2);
    fails_on(&cluster, &["chaos", "flip-bit", "99"], 2);
}

#[test]
fn a_drained_node_leaves_and_nothing_is_missed() {
    let (cluster, mut bytes) = small_cluster();
    cluster.run(&["node", "drain", "5", "--watch"]);
    let nodes = cluster.json(&["cluster", "status"])["nodes"].clone();
    assert_eq!(nodes[5]["departure"], "drained");
    let status = cluster.json(&["repair", "status"]);
    assert!(status["moved_chunks"].as_u64() >= Some(3), "{status}");
    assert_eq!(status["made_chunks"], 0, "nothing was decoded");
    cluster.wait_until_failed(&[5]);
    let status = cluster.json(&["repair", "status"]);
    assert_eq!(status["light"], "green", "{status}");
    cluster.run(&["scrub"]);
    let log = cluster.run(&["cluster", "log"]);
    assert!(log.contains("node 5 is drained"), "{log}");
    assert!(!log.contains("node 5 has failed"), "{log}");
    let left = fails_on(&cluster, &["chaos", "start-node", "5"], 2);
    assert!(left.contains("drained and has left"), "{left}");
    let new = pattern(100 * KIB, 8);
    cluster.write("disk", 300 * KIB, &new);
    bytes[300 * KIB..400 * KIB].copy_from_slice(&new);
    assert!(cluster.get("disk") == bytes);
    let stays = cluster.json(&["node", "drain", "5", "--cancel"]);
    assert_eq!(stays["departure"], "stays");
    cluster.run(&["chaos", "start-node", "5"]);
    wait_for("it is back", || {
        cluster.json(&["cluster", "status"])["nodes"][5]["state"] == "up"
    });
}

/// The middle rates of the links within racks and between them, as the nodes of a new cluster measure them.
fn measured_links() -> (f64, f64) {
    let cluster = TestCluster::start_with(2, 2, &["--inner=400Mbit", "--cross=80Mbit"]);
    let links = || cluster.json(&["cluster", "links"]);
    wait_for("all links are measured", || {
        links().as_array().is_some_and(|links| links.len() == 12)
    });
    let shown = cluster.run(&["cluster", "links"]);
    assert!(shown.contains("MB/s from"), "{shown}");
    // Other processes of this machine hold up the one probe or the other, so that a single link may seem
    // faster or slower than it is.
    let (mut inner, mut cross) = (Vec::new(), Vec::new());
    for link in links().as_array().expect("a list") {
        let end = |name: &str| link[name].as_u64().expect("an id");
        let rate = link["bytes_per_s"].as_f64().expect("a rate");
        if end("from") / 2 == end("to") / 2 {
            inner.push(rate);
        } else {
            cross.push(rate);
        }
    }
    let middle = |mut rates: Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    (middle(inner), middle(cross))
}

#[test]
fn nodes_measure_their_links() {
    let is_right = |(inner, cross): &(f64, f64)| *cross > 1e6 && *cross < 30e6 && inner > cross;
    // A machine that is held up during most probes shows links that are faster than they are. Measurements last for
    // minutes, so only another cluster takes them again.
    let mut rates = Vec::new();
    let is_measured = (0..3).any(|_| {
        rates.push(measured_links());
        rates.last().is_some_and(is_right)
    });
    assert!(
        is_measured,
        "links of 50 MB/s in racks and 10 MB/s between them came to {rates:?}"
    );
}
