//! What nodes meter is what plans say, to the byte, by racks of sender and receiver and by purpose: traces
//! are replayed on a cluster of real processes under each update scheme.

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use support::{TestCluster, path_text, run, trace};

const SCHEMES: [&str; 5] = ["fo", "fl", "pl", "plr", "rackcu"];

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

/// What the nodes have sent so far, as the status tells.
fn sent(cluster: &TestCluster) -> Traffic {
    let mut all = traffic(&cluster.json(&["cluster", "status"])["traffic"], "bytes");
    all.retain(|(from, _, _), _| from.is_some());
    all
}

/// Replays the first requests of a trace under a scheme, holds what was metered against what was planned,
/// and gives the bytes of updates that crossed racks.
fn check(cluster: &TestCluster, scheme: &str, trace: &str, first: u32) -> u64 {
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
    let before = sent(cluster);
    let report = replay(first);
    let metered = traffic(&report["traffic"], "metered_bytes");
    assert_eq!(
        metered,
        traffic(&report["traffic"], "planned_bytes"),
        "{scheme}"
    );
    let after = sent(cluster);
    for (place, bytes) in metered.iter().filter(|(place, _)| place.0.is_some()) {
        // The comparison in the end is the client's, too, and not in the report.
        let grown = after[place] - before.get(place).copied().unwrap_or(0);
        let is_it = grown == *bytes || (place.2 == "client" && grown > *bytes);
        assert!(is_it, "{scheme}: {place:?} grew by {grown}, not {bytes}");
    }
    for purpose in ["update", "encode", "client"] {
        let moved = metered.keys().any(|(_, _, moved)| moved == purpose);
        assert!(moved, "{scheme}: nothing was sent as {purpose}");
    }
    report["cross_rack"]["update"]["metered_bytes"]
        .as_u64()
        .expect("updates cross racks")
}

#[test]
fn metered_bytes_are_planned_bytes_by_rack_pair_and_purpose() {
    let cluster = TestCluster::start(3, 3);
    for scheme in SCHEMES {
        let update = format!("--update={scheme}");
        cluster.run(&[
            "pool",
            "create",
            scheme,
            "--code=rs(4,3)",
            "--chunk=8KiB",
            &update,
        ]);
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
        let bytes: Vec<u64> = SCHEMES
            .iter()
            .map(|scheme| check(&cluster, scheme, &trace, first))
            .collect();
        let [.., by_delta, through_collectors] = bytes.as_slice() else {
            unreachable!("there are five schemes");
        };
        assert!(
            through_collectors < by_delta,
            "rackcu sends {through_collectors} bytes and plr {by_delta}"
        );
    }
}
