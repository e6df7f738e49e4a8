//! Reports of a cluster when nodes die and come back: its status and its log.

use crate::support::{TestCluster, fails_on, pattern, text, wait_for};
use gabion_layout::{NodeId, RackId};
use gabion_protocol::message::{CoordinatorReply, Flow, StoreFailure};
use gabion_wire::{Connection, Endpoint, Handler, Hello, Options, PeerIdentity, Role};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

#[test]
fn status_and_log_tell_of_a_node_that_dies_and_of_repairs() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(2,2)", "--chunk=64KiB"]);
    cluster.put("disk", &pattern(1 << 20, 1));
    let status = || cluster.json(&["cluster", "status"]);
    let health_as_json = || cluster.output(&["--format=json", "health"]);
    let mut green = Value::Null;
    wait_for("every node was heard lately", || {
        green = status();
        let heard_ms = green["heard_at_most_ms_ago"].as_u64();
        green["light"] == "green" && heard_ms.is_some_and(|ms| ms < 1_000)
    });
    assert_eq!(green["troubles"].as_array().unwrap().len(), 0);
    assert!(green["nodes"][1]["space"]["free_bytes"].as_u64().unwrap() > 0);
    assert!(
        cluster
            .run(&["cluster", "status"])
            .contains("green: every node answers")
    );
    let said = cluster.run(&["cluster", "status"]).replace('\n', " ");
    let is_dated = said.contains("every node reported within");
    assert!(is_dated, "it does not say how old it is:\n{said}");
    cluster.run(&["chaos", "kill-node", "1"]);
    wait_for("the node is missed", || status()["light"] != "green");
    cluster.wait_until_failed(&[1]);
    let yellow = status();
    let troubles = yellow["troubles"].as_array().unwrap();
    assert!(troubles.contains(&"node 1 has failed".into()), "{yellow}");
    assert!(yellow["degraded_stripes"].as_u64().unwrap() > 0, "{yellow}");
    // On a busy machine, another node may be missed for a moment too.
    wait_for(
        "health tells of problems, but no stripe at the brink",
        || {
            let health = cluster.output(&["health"]);
            assert!(text(&health.stdout).contains("node 1 has failed"));
            health.status.code() == Some(3)
        },
    );
    cluster.run(&["chaos", "kill-node", "2"]);
    cluster.wait_until_failed(&[1, 2]);
    let health = cluster.output(&["health"]);
    assert_eq!(
        health.status.code(),
        Some(4),
        "a stripe survives no further failure"
    );
    cluster.run(&["chaos", "start-node", "2"]);
    cluster.run(&["repair", "--watch"]);
    cluster.run(&["chaos", "start-node", "1"]);
    wait_for("all is well", || status()["light"] == "green");
    wait_for("health tells of no trouble", || {
        let health: Value = serde_json::from_str(&text(&health_as_json().stdout)).expect("JSON");
        (&health["light"], &health["troubles"]) == (&"green".into(), &Value::Array(vec![]))
    });
    check_log(&cluster);
}

/// The log tells of the death of node 1, of repairs and of its return.
fn check_log(cluster: &TestCluster) {
    let log = cluster.run(&["cluster", "log"]);
    for words in [
        "node 1 is suspect",
        "node 1 has failed",
        "the repair of stripe",
        "begins",
        "has ended",
        "node 1 has joined",
    ] {
        assert!(log.contains(words), "no '{words}' in:\n{log}");
    }
    assert!(!log.contains('\u{1b}'), "colours are for terminals");
    assert_eq!(
        cluster.run(&["cluster", "log", "--last=1"]).lines().count(),
        1
    );
    fails_on(cluster, &["cluster", "log", "--last=some"], 2);
}

/// Takes part in no runs.
struct Nothing;

impl Handler for Nothing {
    fn flow(&self, _: &Arc<Connection>, _: Flow) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_tells_why_a_store_has_failed() {
    let cluster = TestCluster::start_with(1, 2, &["--insecure"]);
    let identity = PeerIdentity {
        node: Some(NodeId(1)),
        rack: Some(RackId(0)),
    };
    let hello = Hello {
        cluster: None,
        role: Role::Node,
        identity,
    };
    let handler = Arc::new(Nothing) as Arc<dyn Handler>;
    let endpoint = Endpoint::new(hello, handler, Options::default(), Arc::default());
    let connection = Connection::connect(&cluster.coordinator(), &endpoint).await;
    let failure = StoreFailure {
        node: NodeId(1),
        incarnation: 1,
        reason: "cannot sync journal/7: the disk is gone".to_owned(),
    };
    let deadline = Instant::now() + Duration::from_mins(2);
    let told = connection.expect("the coordinator listens");
    let told = told.call_coordinator(&failure.into(), deadline).await;
    assert_eq!(told.expect("it answers"), CoordinatorReply::Done);
    let log = cluster.json(&["cluster", "log", "--last=100"]);
    let lines = log.as_array().expect("lines").iter();
    let mut lines = lines.filter_map(Value::as_str);
    let found = lines.find(|line| line.contains("store has failed"));
    let line = found.unwrap_or_else(|| panic!("no line tells of it:\n{log}"));
    let is_whole = line.contains("node 1") && line.contains("the disk is gone");
    assert!(is_whole, "{line}");
}
