//! A cluster's directory: what it was made with holds, and one command at a time starts and stops it.

use crate::support::{
    TestCluster, complaint, coordinator_of, fails_on, gabion, path_text, processes_of, text,
    wait_for,
};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

#[test]
fn options_that_differ_from_the_clusters_are_refused() {
    let cluster = TestCluster::start_with(2, 2, &["--lease-ms=1000", "--inner=800Mbit"]);
    for (option, has, wants) in [
        ("--racks", "2", "3"),
        ("--nodes-per-rack", "2", "4"),
        ("--inner", "800Mbit", "400Mbit"),
        ("--cross", "unlimited", "100Mbit"),
        ("--engine", "files", "tween"),
        ("--log-limit", "256 MiB", "1 MiB"),
        ("--reserve-budget", "16 MiB", "1 MiB"),
        ("--lease-ms", "1000", "2000"),
        ("--grace-s", "60", "5"),
        ("--repair-parallel", "4", "1"),
        ("--placement-seed", "none", "7"),
    ] {
        let given = format!("{option}={}", wants.replace(' ', ""));
        let error = fails_on(&cluster, &["cluster", "up", &given], 2);
        let sentence = format!("has {option} {has}, not {wants}");
        assert!(error.contains(&sentence), "{error}");
        assert_eq!(error.trim().lines().count(), 1, "{error}");
    }
    cluster.run(&[
        "cluster",
        "up",
        "--racks=2",
        "--inner=0.8Gbit",
        "--lease-ms=1000",
    ]);
    cluster.run(&["cluster", "down"]);
    cluster.run(&["cluster", "up", "--lease-ms=700"]);
    let error = fails_on(&cluster, &["cluster", "up", "--lease-ms=1000"], 2);
    assert!(error.contains("has --lease-ms 700, not 1000"), "{error}");
}

/// A shell may still have the directory of an earlier cluster in its environment.
#[test]
fn a_cluster_is_used_whatever_cluster_the_environment_names() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().join("cluster");
    let elsewhere = |arguments: &[&str]| {
        gabion(arguments)
            .env_remove("GABION_NO_CONSOLE")
            .env("GABION_DIR", directory.path().join("gone"))
            .output()
            .expect("the binary runs")
    };
    let in_place = ["--dir", path_text(&place)];
    let size = ["--racks=1", "--nodes-per-rack=1"];
    let up = elsewhere(&[&["cluster", "up"], &size[..], &in_place].concat());
    let said = text(&up.stderr);
    assert!(up.status.success(), "{said}");
    let printed = text(&up.stdout);
    assert!(printed.contains("console: http"), "{printed}{said}");

    let coordinator = coordinator_of(&place);
    let certificate = place.join("coordinator/operator");
    let by_address = [
        &["ls", "--coordinator", &coordinator, "--tls"][..],
        &[path_text(&certificate)],
    ];
    let listed = elsewhere(&by_address.concat());
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let down = elsewhere(&[&["cluster", "down"], &in_place[..]].concat());
    assert!(down.status.success(), "{}", text(&down.stderr));
}

#[test]
fn of_two_that_start_a_cluster_at_once_one_does() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().join("cluster");
    let start = || -> Child {
        gabion(&[
            "cluster",
            "up",
            "--racks=2",
            "--nodes-per-rack=1",
            "--dir",
            path_text(&place),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs")
    };
    let both = [start(), start()];
    let ended = both.map(|child| child.wait_with_output().expect("it ends"));
    let codes: Vec<_> = ended.iter().map(|output| output.status.code()).collect();
    let errors: String = ended.iter().map(complaint).collect();
    gabion(&["cluster", "down", "--dir", path_text(&place)])
        .status()
        .expect("the binary runs");
    assert!(codes.contains(&Some(0)), "{codes:?}: {errors}");
    if codes.contains(&Some(1)) {
        assert!(errors.contains("another command is starting"), "{errors}");
        assert_eq!(errors.trim().lines().count(), 1, "{errors}");
    } else {
        assert_eq!(
            codes,
            [Some(0), Some(0)],
            "the second came when the first had ended"
        );
    }
}

#[test]
fn a_first_start_that_was_interrupted_is_ended_by_the_next() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().join("cluster");
    let cluster = |verb: &str| {
        let mut command = gabion(&["cluster", verb, "--dir", path_text(&place)]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let mut first = cluster("up")
        .args(["--racks=2", "--nodes-per-rack=4"])
        .spawn()
        .expect("the binary runs");
    wait_for("some nodes to have joined", || {
        place.join("made/node-1").exists()
    });
    first.kill().expect("it runs");
    first.wait().expect("it has ended");
    let second = cluster("up").output().expect("the binary runs");
    let own_ids: Vec<bool> = (0..8)
        .map(|node| {
            let file = std::fs::read_to_string(place.join(format!("nodes/{node}/node")));
            file.is_ok_and(|text| text.lines().any(|line| line == format!("id {node}")))
        })
        .collect();
    cluster("down").status().expect("the binary runs");
    assert!(second.status.success(), "{}", complaint(&second));
    assert_eq!(own_ids, [true; 8], "each node has the id of its place");
}

#[test]
fn an_interrupted_start_says_what_ends_its_processes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().join("cluster");
    let cluster = |verb: &str| gabion(&["cluster", verb, "--dir", path_text(&place)]);
    let up = cluster("up")
        .args(["--racks=2", "--nodes-per-rack=4"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    wait_for("some nodes to have joined", || {
        place.join("made/node-1").exists()
    });
    kill_process(Pid::from_child(&up), Signal::INT).expect("it runs");
    let output = up.wait_with_output().expect("it ends");
    let down = cluster("down").status().expect("the binary runs");
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("'gabion cluster down --dir"), "{said}");
    assert!(down.success());
    assert_eq!(processes_of(&place), 0);
}

#[test]
fn a_directory_that_is_locked_is_left_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let held = std::fs::File::open(directory.path()).expect("open it");
    held.lock().expect("lock it");
    let cluster = |verb: &str| {
        let mut command = gabion(&["cluster", verb, "--dir", path_text(directory.path())]);
        command.output().expect("the binary runs")
    };
    let refused = cluster("up");
    let entries = std::fs::read_dir(directory.path()).expect("list it");
    let entry_count = entries.count();
    // No process outlives this test, even if one has started.
    drop(held);
    cluster("down");
    let error = complaint(&refused);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.contains("another command is starting"), "{error}");
    assert_eq!(entry_count, 0);
}

#[test]
fn a_cluster_comes_up_again_whatever_ports_its_nodes_get() {
    let cluster = TestCluster::start_with(3, 4, &["--lease-ms=1000"]);
    for _ in 0..6 {
        cluster.run(&["cluster", "down"]);
        let up = cluster.json(&["cluster", "up"]);
        assert_eq!(up["nodes_up"], 12);
        let status = cluster.json(&["cluster", "status"]);
        assert_eq!(status["light"], "green", "up is up: {status}");
    }
}

#[test]
fn a_node_keeps_its_port_unless_another_process_has_taken_it() {
    let cluster = TestCluster::start_with(3, 1, &["--lease-ms=1000"]);
    let address = || cluster.json(&["cluster", "status"])["nodes"][1]["address"].clone();
    let first = address();
    let port = first.as_str().expect("a text").rsplit(':').next();
    let port: u16 = port.and_then(|port| port.parse().ok()).expect("a port");
    assert!(
        (10_007..19_980).contains(&port),
        "the system assigns {port}"
    );
    cluster.run(&["chaos", "kill-node", "1"]);
    cluster.run(&["chaos", "start-node", "1"]);
    assert_eq!(address(), first);
    cluster.run(&["chaos", "kill-node", "1"]);
    let mut other = None;
    wait_for("the port is free", || {
        other = std::net::TcpListener::bind(("127.0.0.1", port)).ok();
        other.is_some()
    });
    cluster.run(&["chaos", "start-node", "1"]);
    wait_for("the node has joined with another port", || {
        cluster.json(&["cluster", "status"])["light"] == "green" && address() != first
    });
}

#[test]
fn nodes_start_though_others_cannot() {
    // More than half of the nodes must vouch for the coordinator's metadata.
    let cluster = TestCluster::start(2, 3);
    cluster.run(&["cluster", "down"]);
    let moved = |node: u32| {
        let directory = cluster.path(&format!("cluster/nodes/{node}"));
        (directory.with_extension("aside"), directory)
    };
    for node in [0, 2] {
        let (aside, directory) = moved(node);
        std::fs::rename(directory, aside).unwrap();
    }
    let error = fails_on(&cluster, &["cluster", "up"], 1);
    let lines: Vec<&str> = error.trim().lines().collect();
    let [first, second] = lines[..] else {
        panic!("two nodes failed: {error}");
    };
    assert!(first.starts_with("gabion: node-0 did not start"), "{first}");
    assert!(
        second.starts_with("gabion: node-2 did not start"),
        "{second}"
    );
    wait_for("the other nodes to be up", || {
        let status = cluster.run(&["cluster", "status", "--format=json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let nodes = status["nodes"].as_array().unwrap().iter();
        let up: Vec<bool> = nodes.map(|node| node["state"] == "up").collect();
        up == [false, true, false, true, true, true]
    });
    for node in [0, 2] {
        let (aside, directory) = moved(node);
        std::fs::rename(aside, directory).unwrap();
    }
    cluster.up();
}

#[test]
fn a_directory_whose_path_is_not_utf_8_is_refused_and_left_empty() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let directory = parent.path().join(OsStr::from_bytes(b"c\xff"));
    let up = gabion(&["cluster", "up", "--racks=1", "--nodes-per-rack=1", "--dir"])
        .arg(&directory)
        .output()
        .expect("the binary runs");
    assert_eq!(up.status.code(), Some(2), "{}", complaint(&up));
    assert!(
        complaint(&up).contains("is not UTF-8"),
        "{}",
        complaint(&up)
    );
    let entries = |at: &Path| std::fs::read_dir(at).map_or(0, Iterator::count);
    assert_eq!(entries(&directory), 0);
    assert!(entries(parent.path()) <= 1, "no other directory was made");
}

#[test]
fn a_long_lease_does_not_delay_the_start() {
    let begun = Instant::now();
    let cluster = TestCluster::start_with(1, 2, &["--lease-ms=3600000"]);
    // A heartbeat comes every 15 minutes.
    assert!(
        begun.elapsed() < Duration::from_mins(5),
        "it waited for a heartbeat"
    );
    assert_eq!(cluster.json(&["cluster", "status"])["light"], "green");
}

#[test]
fn lost_data_is_named_with_what_helps() {
    // More than half of the nodes must vouch for the coordinator's metadata.
    let cluster = TestCluster::start(1, 3);
    cluster.run(&["cluster", "down"]);
    let store = cluster.path("cluster/nodes/1/store");
    std::fs::rename(&store, cluster.path("aside")).unwrap();
    for arguments in [&["cluster", "up"][..], &["chaos", "start-node", "1"]] {
        let error = fails_on(&cluster, arguments, 1);
        assert!(error.contains("nodes/1/store is not there"), "{error}");
        assert!(
            error.contains("delete") && error.contains("made/node-1"),
            "{error}"
        );
        assert!(!error.contains("--init"), "{error}");
    }
    std::fs::rename(cluster.path("aside"), &store).unwrap();
    cluster.up();
}

#[test]
fn a_node_that_is_started_without_a_coordinator_says_what_it_waits_for() {
    let cluster = TestCluster::start(1, 2);
    cluster.run(&["cluster", "down"]);
    let mut start = cluster
        .command(&["chaos", "start-node", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let stderr = start.stderr.take().expect("stderr is piped");
    BufReader::new(stderr).read_line(&mut first).unwrap();
    start.kill().unwrap();
    start.wait().unwrap();
    assert!(first.contains("the coordinator does not run"), "{first}");
}

#[test]
fn limits_of_repairs_stay_until_they_are_removed() {
    let cluster = TestCluster::start(2, 1);
    let limits = |arguments: &[&str]| cluster.json(&[&["repair", "limit"], arguments].concat());
    assert!(cluster.run(&["repair", "limit"]).contains("no limit"));
    limits(&["--node=10MB", "--p99-ms=50"]);
    let both = limits(&["--rack=20MB"]);
    assert_eq!(both["node_bytes_per_s"], 10_000_000);
    assert_eq!(both["rack_bytes_per_s"], 20_000_000);
    assert_eq!(limits(&[]), both, "to ask changes nothing");
    assert_eq!(both["p99_target_ms"], 50);
    assert!(limits(&["--node=unlimited"])["node_bytes_per_s"].is_null());
    fails_on(&cluster, &["repair", "limit", "--none", "--rack=1MB"], 2);
    let none = limits(&["--none"]);
    assert!(none["rack_bytes_per_s"].is_null() && none["p99_target_ms"].is_null());
}
