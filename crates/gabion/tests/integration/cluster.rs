//! Clusters of real processes: store, update, lose, read on, repair, find damage.

use crate::support::{TestCluster, complaint, fails, fails_on, path_text, pattern, wait_for};
use rustix::process::Signal;

const KIB: usize = 1024;

#[test]
fn a_node_that_is_killed_and_started_at_once_is_a_new_process() {
    let cluster = TestCluster::start(2, 1);
    let pid = || {
        let running = std::fs::read(cluster.path("cluster/run/node-1")).expect("it was started");
        let running: serde_json::Value = serde_json::from_slice(&running).expect("JSON");
        running["pid"].as_u64().expect("a pid")
    };
    for _ in 0..3 {
        let before = pid();
        cluster.run(&["chaos", "kill-node", "1"]);
        cluster.run(&["chaos", "start-node", "1"]);
        assert_ne!(pid(), before);
    }
}

#[test]
fn a_start_right_after_a_kill_finds_no_running_process() {
    let cluster = TestCluster::start(2, 1);
    for process in ["coordinator", "node-1"].repeat(3) {
        cluster.signal(process, Signal::KILL);
        cluster.up();
        // Without a coordinator this fails.
        cluster.run(&["cluster", "status"]);
    }
    wait_for("the node is up", || {
        cluster.json(&["cluster", "status"])["light"] == "green"
    });
}

#[test]
fn a_file_lives_through_updates_damage_and_the_loss_of_nodes() {
    let cluster = TestCluster::start(3, 3);
    let pools = cluster.json(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    assert_eq!(pools[0]["chunk_writes_per_update"], 3);
    assert_eq!(pools[0]["update"], "plr");
    assert_eq!(pools[0]["reserve_bytes"], 64 * KIB);
    let mut expected = pattern(600 * KIB + 17, 1);
    cluster.put("disk", &expected);
    assert!(cluster.get("disk") == expected);

    // Updates: small, across chunks, across stripes, the last byte, the same bytes twice.
    let updates = [
        (5, 1),
        (64 * KIB - 100, 300),
        (256 * KIB - 5000, 90_000),
        (600 * KIB + 16, 1),
        (5, 2),
    ];
    for (at, (offset, length)) in updates.into_iter().enumerate() {
        let new = pattern(length, 100 + at as u64);
        cluster.write("disk", offset, &new);
        expected[offset..offset + length].copy_from_slice(&new);
        assert!(cluster.get("disk") == expected, "after update {at}");
    }

    // A flipped bit is served around, reported and repaired.
    let stat = cluster.json(&["stat", "disk"]);
    let holder = stat["stripes"][0]["nodes"][0].to_string();
    cluster.run(&["chaos", "flip-bit", &holder]);
    assert!(cluster.get("disk") == expected, "with a flipped bit");
    let scrub = cluster.run(&["scrub"]);
    wait_for("the damage is repaired", || {
        cluster.json(&["cluster", "status"])["lost_chunks"] == 0
            && cluster.json(&["scrub"])["damage"]
                .as_array()
                .is_some_and(Vec::is_empty)
    });
    assert!(scrub.contains("damage"), "{scrub}");

    // A node dies: reads go on, writes that need it are refused, repair brings all back.
    cluster.run(&["chaos", "kill-node", "4"]);
    cluster.wait_until_failed(&[4]);
    assert!(cluster.get("disk") == expected, "degraded");
    let plan = cluster.run(&["plan", "show", "disk", "--repair=0:1"]);
    assert!(
        plan.contains("repair") && plan.contains("combine"),
        "{plan}"
    );
    let repaired = cluster.json(&["repair", "--scheme=pipeline", "--watch"]);
    assert_eq!(repaired["lost_chunks"], 0);
    let stat = cluster.json(&["stat", "disk"]);
    for stripe in stat["stripes"].as_array().unwrap() {
        assert_eq!(stripe["failures_left"], 2, "{stripe}");
        assert!(
            !stripe["nodes"].as_array().unwrap().contains(&4.into()),
            "{stripe}"
        );
    }
    assert!(cluster.get("disk") == expected, "repaired");

    // The dead node returns with old chunks, and none of them is served.
    cluster.write("disk", 1000, b"newer than what node 4 has");
    expected[1000..1026].copy_from_slice(b"newer than what node 4 has");
    cluster.run(&["chaos", "start-node", "4"]);
    cluster.wait_until_failed(&[]);
    assert!(cluster.get("disk") == expected, "after the return");

    cluster.run(&["rm", "disk"]);
    assert_eq!(cluster.json(&["ls"]).as_array().unwrap().len(), 0);
}

#[test]
fn impossible_requests_are_refused_in_plain_words() {
    let cluster = TestCluster::start(2, 2);
    let refused = |arguments: &[&str]| {
        let output = cluster.output(arguments);
        assert!(!output.status.success(), "gabion {arguments:?} must fail");
        let error = complaint(&output);
        assert_eq!(error.trim().lines().count(), 1, "{error}");
        error
    };
    let error = refused(&["pool", "create", "p", "--survive=2-racks"]);
    assert!(error.contains("2-racks"), "{error}");
    let error = refused(&["pool", "create", "p", "--code=rs(6,3)"]);
    assert!(
        error.contains("rs(6,3)") || error.contains("9 chunks"),
        "{error}"
    );
    for (option, expected) in [
        ("--chunk=1000", "4096 to"),
        ("--reserve-period=9999999999d", "a year"),
    ] {
        let plr = ["pool", "create", "p", "--update=plr", option];
        let error = fails_on(&cluster, &plr, 2);
        assert!(error.contains(expected), "{option}: {error}");
    }
    let error = fails_on(&cluster, &["pool", "encode", "nothing"], 1);
    assert!(error.contains("no pool 'nothing'"), "{error}");
    let error = refused(&["get", "nothing", "/dev/null"]);
    assert!(error.contains("nothing"), "{error}");
    let error = refused(&["plan", "show", "nothing", "--update=0:1"]);
    assert!(error.contains("nothing"), "{error}");
    let file = cluster.path("file");
    std::fs::write(&file, b"0123456789").unwrap();
    let error = refused(&["put", path_text(&file), "f"]);
    assert!(error.contains("pool"), "{error}");
    cluster.run(&["pool", "create", "p", "--survive=1-rack"]);
    cluster.run(&["put", path_text(&file), "f"]);
    let error = refused(&["put", path_text(&file), "f"]);
    assert!(error.contains('f'), "{error}");
    let far = "--offset=9223372036854775807";
    let error = fails_on(&cluster, &["write", "f", far, path_text(&file)], 2);
    assert!(error.contains("at most 9223372036854775807"), "{error}");
    let directory = path_text(&cluster.path("")).to_owned();
    let error = fails_on(&cluster, &["write", "f", "--offset=0", &directory], 2);
    assert!(error.contains("is a directory"), "{error}");
    let error = fails_on(&cluster, &["pool", "promote", "p"], 1);
    assert!(error.contains("can be replicated again"), "{error}");
    let error = refused(&["chaos", "kill-node", "9"]);
    assert!(error.contains("0 to 3"), "{error}");
    let error = refused(&["put", path_text(&cluster.path("missing")), "g"]);
    assert!(error.contains("missing"), "{error}");
    let used = cluster.path("cluster");
    let error = fails(
        &["cluster", "up", "--dir", path_text(used.parent().unwrap())],
        2,
    );
    assert!(error.contains("not empty"), "{error}");
}

#[test]
fn each_command_prints_json_if_asked() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--chunk=64KiB", "--update=cau"]);
    cluster.put("f", &[b'0'; 5000]);
    let plans = cluster.json(&["plan", "show", "f", "--update=0:1"]);
    assert!(
        plans[0]["plan"]
            .as_str()
            .is_some_and(|plan| plan.contains("cost")),
        "{plans}"
    );
    assert_eq!(cluster.json(&["pool", "commit", "p"])["committed"], true);
    let node = cluster.json(&["stat", "f"])["stripes"][0]["nodes"][0].to_string();
    let flipped = cluster.json(&["chaos", "flip-bit", &node]);
    assert!(flipped["flipped_file"].is_string(), "{flipped}");
    assert_eq!(
        cluster.json(&["chaos", "kill-node", "1"])["state"],
        "killed"
    );
    assert_eq!(cluster.json(&["chaos", "start-node", "1"])["state"], "runs");
    let log = cluster.json(&["cluster", "log", "--last=3"]);
    assert_eq!(log.as_array().map(Vec::len), Some(3), "{log}");
    assert_eq!(
        cluster.json(&["chaos", "kill-coordinator"])["coordinator"],
        "killed"
    );
    assert_eq!(cluster.json(&["cluster", "down"])["stopped_processes"], 6);
}

#[test]
fn a_dead_node_is_repaired_without_being_asked() {
    // So long that a busy machine delays no living node until it is repaired.
    let cluster = TestCluster::start_with(3, 3, &["--lease-ms=5000", "--grace-s=5"]);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let expected = pattern(700 * KIB, 3);
    cluster.put("disk", &expected);
    // Placement is random: these three hold chunks of the first stripe for certain.
    let holders = cluster.json(&["stat", "disk"])["stripes"][0]["nodes"].clone();
    let mut dead: Vec<u64> = (0..3).map(|at| holders[at].as_u64().unwrap()).collect();
    let first = dead[0];
    cluster.run(&["chaos", "kill-node", &first.to_string()]);
    wait_for("all chunks of the dead node are repaired elsewhere", || {
        let status = cluster.json(&["cluster", "status"]);
        status["lost_chunks"] == 0 && status["repair"]["repaired_chunks"].as_u64() > Some(0)
    });
    let stat = cluster.json(&["stat", "disk"]);
    for stripe in stat["stripes"].as_array().unwrap() {
        let nodes = stripe["nodes"].as_array().unwrap();
        assert!(!nodes.contains(&first.into()), "{stripe}");
    }
    // Any two further losses are survived, as if nothing had happened.
    for node in &dead[1..] {
        cluster.run(&["chaos", "kill-node", &node.to_string()]);
    }
    dead.sort_unstable();
    cluster.wait_until_failed(&dead);
    assert!(cluster.get("disk") == expected);
}

#[test]
fn a_dead_coordinator_and_a_restart_lose_nothing() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let mut expected = pattern(300 * KIB, 4);
    cluster.put("disk", &expected);
    cluster.write("disk", 12_345, b"before");
    expected[12_345..12_351].copy_from_slice(b"before");
    cluster.kill_all();
    cluster.up();
    assert!(cluster.get("disk") == expected);
    cluster.write("disk", 12_345, b"after!");
    expected[12_345..12_351].copy_from_slice(b"after!");
    assert!(cluster.get("disk") == expected);
    assert_eq!(cluster.json(&["pool", "ls"])[0]["name"], "vm");
}
