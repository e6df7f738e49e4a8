//! The nodes' metered bytes are the bytes of the plans, exactly, by racks of sender and receiver and by purpose: traces
//! are replayed on a cluster of real processes under each update scheme.

use crate::support::{TestCluster, becomes, path_text, pattern, run, trace, wait_for};
use gabion_planner::update::{Descriptor, SCHEMES, Traffic as Counting};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const KIB: usize = 1024;
/// Replays until one has no request that was tried again.
const REPLAYS_MAX: u32 = 10;
/// Clusters until one has no exchange of chunks that failed half-way.
const CLUSTERS_MAX: u32 = 5;
/// Maximum wait, in seconds, for an exchange that is under way.
const EXCHANGE_MAX_S: u64 = 60;

/// Payload bytes by sender's rack, receiver's rack and purpose.
type Traffic = BTreeMap<(Option<u64>, Option<u64>, String), u64>;

/// Rows of a report's or a status's traffic, and what their field `bytes` says.
fn traffic(rows: &Value, bytes: &str) -> Traffic {
    let rows = rows.as_array().expect("a list").iter();
    let place = |row: &Value| {
        let purpose = row["purpose"].as_str().expect("a purpose").to_owned();
        let racks = (row["from_rack"].as_u64(), row["to_rack"].as_u64());
        (racks.0, racks.1, purpose)
    };
    rows.map(|row| (place(row), row[bytes].as_u64().expect("a count")))
        .collect()
}

/// Returns the bytes that the nodes have sent so far, by the status.
fn sent(cluster: &TestCluster) -> Traffic {
    let mut all = traffic(&cluster.json(&["cluster", "status"])["traffic"], "bytes");
    all.retain(|(from, _, _), _| from.is_some());
    all
}

/// Replays the first requests of a trace under a scheme, holds what was metered against what was planned,
/// and gives the bytes of updates that crossed racks.
fn check(cluster: &TestCluster, of: &Descriptor, trace: &str, first: u32) -> u64 {
    let scheme = of.scheme.name();
    let name = format!("{scheme}-{first}");
    let replay = |first: u32| {
        let arguments = [
            "lab",
            "replay",
            "--trace",
            trace,
            &format!("--pool={scheme}"),
            &format!("--name={name}"),
            &format!("--first={first}"),
            // One at a time, so that nothing is tried again; what failed half-way is in no plan.
            "--depth=1",
        ];
        let folded = ["--size=200KiB", "--verify"];
        cluster.json(&[&arguments[..], &folded].concat())
    };
    // Makes the file; what is sent for that is planned too, but not part of the report.
    replay(1);
    // On a machine that stands still for seconds, a request is tried again or a read asks a second source. Then plans
    // and meters differ, and the replay says nothing. A fault of the counting shows in each replay.
    let mut differences = Vec::new();
    let attempt = |_| {
        let before = sent(cluster);
        let report = replay(first);
        let metered = traffic(&report["traffic"], "metered_bytes");
        let planned = traffic(&report["traffic"], "planned_bytes");
        if metered != planned {
            differences.push(format!("metered {metered:?}, planned {planned:?}"));
            return None;
        }
        let after = sent(cluster);
        for (place, bytes) in metered.iter().filter(|(place, _)| place.0.is_some()) {
            // The comparison in the end is the client's, too, and not in the report.
            let grown = after[place] - before.get(place).copied().unwrap_or(0);
            let is_it = grown == *bytes || (place.2 == "client" && grown > *bytes);
            assert!(is_it, "{scheme}: {place:?} grew by {grown}, not {bytes}");
        }
        Some((report, metered))
    };
    let found = (0..REPLAYS_MAX).find_map(attempt);
    let Some((report, metered)) = found else {
        panic!("{scheme}: {differences:#?}")
    };
    let purposes: &[&str] = match of.traffic {
        // Its commits send nothing.
        Counting::Originals => &["replica"],
        Counting::AppendPhases => &["replica", "commit"],
        Counting::EachChunk | Counting::EachStripe => &["update"],
    };
    for purpose in purposes {
        let moved = metered.keys().any(|(_, _, moved)| moved == purpose);
        assert!(moved, "{scheme}: nothing was sent as {purpose}");
    }
    let crossed = |purpose: &str| report["cross_rack"][purpose]["metered_bytes"].as_u64();
    ["update", "replica", "commit"]
        .into_iter()
        .filter_map(crossed)
        .sum()
}

/// Nine nodes whose leases do not end on a busy machine: what is tried again is planned once and metered twice.
fn patient_cluster() -> TestCluster {
    TestCluster::start_with(3, 3, &["--lease-ms=15000", "--grace-s=3600"])
}

#[test]
fn metered_bytes_are_planned_bytes_by_rack_pair_and_purpose() {
    let cluster = patient_cluster();
    for of in &SCHEMES {
        let scheme = of.scheme.name();
        let update = format!("--update={scheme}");
        let mut create = vec![
            "pool",
            "create",
            scheme,
            "--code=rs(4,3)",
            "--chunk=8KiB",
            &update,
        ];
        if of.appends() {
            create.push("--commit-bytes=16KiB");
        }
        cluster.run(&create);
    }
    let synthetic = cluster.path("synthetic.csv");
    let synthetic = path_text(&synthetic);
    let out = format!("--out={synthetic}");
    run(&["lab", "synth", "--volume=rsrch_1", "--one-in=100", &out]);
    let traces = [
        (Some(synthetic.to_owned()), 60),
        (trace("msr/wdev_1.csv"), 61),
    ];
    for (trace, first) in traces {
        let Some(trace) = trace else { continue };
        let bytes: BTreeMap<&str, u64> = SCHEMES
            .iter()
            .map(|of| (of.scheme.name(), check(&cluster, of, &trace, first)))
            .collect();
        let (by_delta, through_collectors) = (bytes["plr"], bytes["rackcu"]);
        assert!(
            through_collectors < by_delta,
            "rackcu sends {through_collectors} bytes and plr {by_delta}"
        );
    }
}

/// The rows of a status's field for bytes that data grouping has moved.
fn grouped(cluster: &TestCluster, field: &str) -> Traffic {
    let mut all = traffic(&cluster.json(&["cluster", "status"])[field], "bytes");
    all.retain(|(_, _, purpose), _| purpose == "grouping");
    all
}

/// Puts files of one stripe until one has a parity chunk in each of three racks, and gives its name: where
/// a rack has two, moving data into another gains nothing.
fn put_evenly(cluster: &TestCluster, bytes: &[u8]) -> String {
    let is_even = |name: &String| {
        cluster.put(name, bytes);
        let stripe = cluster.json(&["stat", name])["stripes"][0].clone();
        let parity = stripe["nodes"].as_array().expect("nodes")[6..].iter();
        let racks: BTreeSet<u64> = parity
            .map(|node| node.as_u64().expect("an id") / 3)
            .collect();
        racks.len() == 3
    };
    let mut names = (0..60).map(|number| format!("disk-{number}"));
    let found = names.find(is_even);
    found.expect("about every third placement is like that")
}

#[test]
fn chunks_that_grouping_moves_are_metered_as_planned() {
    // On a machine that stands still for seconds, an exchange fails half-way: what it has sent is in no plan.
    let is_as_planned = |_: &u32| grouping_is_metered_as_planned(&patient_cluster());
    let found = (0..CLUSTERS_MAX).find(is_as_planned);
    assert!(found.is_some(), "no cluster has sent what was planned");
}

/// The nodes of a file's stripe, as placed and sorted, and its generation.
fn nodes(cluster: &TestCluster, file: &str) -> (Vec<u64>, Vec<u64>, Option<u64>) {
    let stripe = cluster.json(&["stat", file])["stripes"][0].clone();
    let nodes = stripe["nodes"].as_array().expect("nodes").iter();
    let placed: Vec<u64> = nodes.map(|node| node.as_u64().expect("an id")).collect();
    let mut sorted = placed.clone();
    sorted.sort_unstable();
    (placed, sorted, stripe["generation"].as_u64())
}

/// Has chunks of a file moved by data grouping, and returns whether what was sent became what was planned.
fn grouping_is_metered_as_planned(cluster: &TestCluster) -> bool {
    cluster.run(&[
        "pool",
        "create",
        "vm",
        "--code=rs(6,3)",
        "--chunk=16KiB",
        "--update=cau",
        "--grouping=authors",
    ]);
    let mut expected = pattern(6 * 16 * KIB, 1);
    let disk = &put_evenly(cluster, &expected);
    let before = nodes(cluster, disk);
    let moved = |cluster: &TestCluster| cluster.json(&["cluster", "status"])["grouped_chunks"] != 0;
    cluster.write(disk, 0, &expected[..100]);
    let left = |cluster: &TestCluster| {
        let stripe = &cluster.json(&["stat", disk])["stripes"][0];
        (
            stripe["failures_left"].as_i64(),
            stripe["appending"].as_bool(),
        )
    };
    assert_eq!(left(cluster), (Some(1), Some(true)), "there is one copy");
    cluster.run(&["pool", "commit", "vm"]);
    assert_eq!(left(cluster), (Some(3), Some(false)));
    // Every two data chunks in turn, until two are in different racks that can be brought together.
    let pairs = (0..6).flat_map(|a| (a + 1..6).map(move |b| (a, b)));
    for (turn, (a, b)) in pairs.enumerate() {
        for chunk in [a, b] {
            let new = pattern(1000, 10 + turn as u64);
            let at = chunk * 16 * KIB + 100;
            cluster.write(disk, at, &new);
            expected[at..at + new.len()].copy_from_slice(&new);
        }
        cluster.run(&["pool", "commit", "vm"]);
        if moved(cluster) {
            break;
        }
    }
    wait_for("chunks have moved", || moved(cluster));
    let after = nodes(cluster, disk);
    assert_eq!(after.1, before.1, "racks keep as many chunks as they had");
    assert!(after.2 > before.2, "the generation is raised");
    assert!(cluster.get(disk) == expected);
    // Another exchange may be under way, since chunks were committed together again.
    let is_as_planned = || {
        let sent = grouped(cluster, "traffic");
        !sent.is_empty() && sent == grouped(cluster, "planned")
    };
    if !becomes(EXCHANGE_MAX_S, is_as_planned) {
        let of = |field| grouped(cluster, field);
        println!("sent {:?}, planned {:?}", of("traffic"), of("planned"));
        return false;
    }
    // Parity knows where the chunks are.
    let first = after.0[0].to_string();
    cluster.run(&["chaos", "kill-node", &first]);
    cluster.wait_until_failed(&[after.0[0]]);
    assert!(cluster.get(disk) == expected);
    true
}
