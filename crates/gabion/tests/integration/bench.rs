//! `gabion bench`: what it measures, and what it leaves behind.

use crate::support::{TestCluster, fails_on, path_text};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::process::Stdio;

fn with_pools() -> TestCluster {
    let cluster = TestCluster::start(3, 4);
    cluster.run(&["pool", "create", "coded", "--code=rs(6,3)", "--chunk=64KiB"]);
    cluster.run(&["pool", "create", "copied", "--code=rep(3)", "--chunk=64KiB"]);
    cluster
}

/// Short measurements of one kind of request.
const SHORT: [&str; 5] = [
    "bench",
    "--seconds=1",
    "--size=4MiB",
    "--block=4KiB",
    "--depth=4",
];

fn with_short(more: &[&'static str]) -> Vec<&'static str> {
    [&SHORT[..], more].concat()
}

fn number(line: &Value, field: &str) -> u64 {
    line[field].as_u64().expect("a number")
}

#[test]
fn a_bench_compares_pools_and_counts_what_requests_cost() {
    let cluster = with_pools();
    let plot = cluster.path("rates.svg");
    let plot_option = format!("--plot={}", path_text(&plot));
    let mut arguments = with_short(&["--pool=coded", "--pool=copied", "--workload=randwrite,read"]);
    arguments.push(&plot_option);
    let report = cluster.json(&arguments);
    let lines = report["lines"].as_array().expect("lines");
    let named = |line: &Value| (line["pool"].clone(), line["workload"].clone());
    let mut all: Vec<_> = lines.iter().map(named).collect();
    all.dedup();
    assert_eq!(all.len(), 4, "two workloads on two pools: {all:?}");
    for line in lines {
        let count = number(line, "requests");
        assert_eq!(number(line, "bytes"), count * number(line, "block_bytes"));
        let histogram = line["latencies_us"].as_array().expect("a histogram");
        let counted: u64 = histogram
            .iter()
            .map(|range| range[1].as_u64().expect("a count"))
            .sum();
        assert!(count > 0 && counted == count, "{line}");
    }
    let writes = lines.iter().filter(|line| line["workload"] == "randwrite");
    for line in writes {
        // The plan of a write of 4 KiB crosses racks with at least one parity or copy, and a write is durable on
        // more than one node.
        let (planned, metered) = (
            number(line, "planned_cross_rack_bytes"),
            number(line, "metered_cross_rack_bytes"),
        );
        assert_eq!(planned, metered, "{line}");
        assert!(planned >= number(line, "bytes"), "{line}");
        assert!(
            number(&line["stores"], "sync_count") >= number(line, "requests"),
            "{line}"
        );
    }
    assert_eq!(number(&report, "verified_bytes"), 2 * (4 << 20));
    let drawn = fs::read_to_string(&plot).expect("the plot is there");
    assert!(
        drawn.contains("<svg") && drawn.contains("copied"),
        "{drawn}"
    );
    assert_eq!(
        cluster
            .run(&["ls", "--format=json"])
            .matches("bench-")
            .count(),
        0
    );
}

#[test]
fn a_bench_kills_a_node_measures_its_repair_and_starts_it_again() {
    let cluster = with_pools();
    let more = [
        "--pool=coded",
        "--workload=randread,randwrite",
        "--kill-node=2",
    ];
    let report = cluster.json(&with_short(&more));
    let states: Vec<&Value> = report["lines"].as_array().expect("lines").iter().collect();
    let count_of = |state: &str| states.iter().filter(|line| line["state"] == state).count();
    assert_eq!(
        (count_of("as found"), count_of("degraded")),
        (2, 2),
        "{report}"
    );
    assert!(report["longest_wait_ms"].as_f64().expect("a time") > 0.0);
    assert!(
        report["repair_seconds"].as_f64().expect("a time") > 0.0,
        "{report}"
    );
    assert_eq!(number(&report, "verified_bytes"), 4 << 20);
    cluster.run(&["chaos", "kill-node", "2"]);
}

#[test]
fn an_interrupted_bench_removes_its_files() {
    let cluster = with_pools();
    let mut bench = cluster.command(&["bench", "--pool=copied", "--seconds=600", "--size=1MiB"]);
    let bench = bench
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let has_file = || {
        cluster
            .run(&["ls", "--format=json"])
            .contains("bench-copied-")
    };
    while !has_file() {}
    let pid = rustix::process::Pid::from_child(&bench);
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    let ended = bench.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(1));
    assert!(!has_file());
}

#[test]
fn a_bench_refuses_what_it_cannot_measure() {
    let cluster = with_pools();
    let coordinator = format!("--coordinator={}", cluster.coordinator());
    for (arguments, sentence) in [
        (
            &["bench"][..],
            "choose the pools to measure with --pool; there are coded, copied",
        ),
        (
            &["bench", "--pool=none"],
            "there is no pool \"none\"; there are coded, copied",
        ),
        (&["bench", "--pool=coded", "--pool=coded"], "is named twice"),
        (
            &["bench", "--pool=coded", "--size=1KiB"],
            "a block is larger than the file",
        ),
        (&["bench", "--pool=coded", "--kill-node=99"], "99"),
        (
            &["bench", "--pool=coded", "--kill-node=1", &coordinator],
            "name the cluster's directory with --dir",
        ),
        (&["bench", "--pool=coded", "--depth=0"], "--depth"),
        (&["bench", "--pool=coded", "--workload=trim"], "randwrite"),
        (&["bench", "--pool=coded", "--plot=/"], "is a directory"),
    ] {
        let said = fails_on(&cluster, arguments, 2);
        assert!(said.contains(sentence), "{arguments:?}: {said}");
    }
    assert!(!cluster.run(&["ls", "--format=json"]).contains("bench-"));
}
