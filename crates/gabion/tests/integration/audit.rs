//! The audit log of real coordinators.

use crate::support::{TestCluster, complaint, fails, path_text, run, wait_for};
use serde_json::Value;

/// Waits until `count` orders are on record with their outcomes, and returns them.
fn orders(cluster: &TestCluster, count: usize) -> Vec<Value> {
    let mut orders = Vec::new();
    wait_for("all orders have outcomes", || {
        let found = cluster.json(&["audit"]);
        orders.clone_from(found.as_array().expect("a list"));
        orders.len() == count && orders.iter().all(|order| !order["outcome"].is_null())
    });
    orders
}

#[test]
fn deletions_and_settings_are_on_record_before_they_are_done() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=4KiB"]);
    cluster.put("a", b"one");
    cluster.put("b", b"two");
    cluster.run(&["mv", "a", "c/d"]);
    cluster.run(&["rm", "b"]);
    orders(&cluster, 3);
    // Another process goes on.
    cluster.run(&["chaos", "kill-coordinator"]);
    cluster.up();
    cluster.run(&["repair", "limit", "--total=1MB"]);
    let said: Vec<_> = orders(&cluster, 4)
        .iter()
        .map(|order| {
            assert_eq!(order["outcome"], "done", "{order}");
            let text = |key: &str| order[key].as_str().expect(key).to_owned();
            assert_eq!(text("certificate").len(), 32, "{order}");
            (text("role"), text("operation"), text("subject"))
        })
        .collect();
    let expected = [
        ("operator", "setting", "pool p is made"),
        ("operator", "rename", "a"),
        ("operator", "remove", "b"),
        (
            "operator",
            "setting",
            "limits of repairs: in all 1000000 bytes a second",
        ),
    ];
    let expected = expected.map(|(role, operation, subject)| {
        (role.to_owned(), operation.to_owned(), subject.to_owned())
    });
    assert_eq!(said, expected);
}

#[test]
fn without_its_record_no_order_is_carried_out() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=4KiB"]);
    cluster.put("c/d", b"one");
    // A coordinator that cannot read its log does not start.
    let audit = cluster.path("cluster/coordinator/audit");
    cluster.kill_all();
    let away = cluster.path("away");
    std::fs::rename(&audit, &away).unwrap();
    std::fs::write(&audit, "no directory").unwrap();
    let refused = cluster.output(&["cluster", "up"]);
    let said = complaint(&refused);
    assert!(
        !refused.status.success() && said.contains("audit log"),
        "{said}"
    );
    std::fs::remove_file(&audit).unwrap();
    std::fs::rename(&away, &audit).unwrap();
    cluster.up();
    // The process has opened no file yet.
    std::fs::rename(&audit, &away).unwrap();
    std::fs::write(&audit, "no directory").unwrap();
    let refused = cluster.output(&["rm", "c/d"]);
    let said = complaint(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("the audit log cannot be written"), "{said}");
    assert!(said.contains("nothing was changed"), "{said}");
    assert_eq!(cluster.get("c/d"), b"one");
    let is_told = |cluster: &TestCluster| {
        let health = cluster.output(&["health"]);
        String::from_utf8_lossy(&health.stdout).contains("deletions and settings are refused")
    };
    assert!(is_told(&cluster), "the health hides it");
    std::fs::remove_file(&audit).unwrap();
    std::fs::rename(&away, &audit).unwrap();
    wait_for("the log can be written again", || !is_told(&cluster));
    let events = cluster.run(&["events"]);
    assert!(events.contains("can be written again"), "{events}");
    cluster.run(&["rm", "c/d"]);
    orders(&cluster, 2);
    a_removed_file_is_noticed(&cluster);
    check_finds_a_changed_record(&cluster);
}

/// A tired operator cleans up while the coordinator runs.
fn a_removed_file_is_noticed(cluster: &TestCluster) {
    let data = cluster.path("cluster/coordinator");
    let audit = data.join("audit");
    let check = ["audit", "--check", "--data", path_text(&data)];
    let copy = cluster.path("copy");
    let copied = copy.join("audit");
    std::fs::create_dir_all(&copied).expect("the log's files");
    for entry in std::fs::read_dir(&audit).expect("the log's files") {
        let entry = entry.expect("the log's files");
        std::fs::copy(entry.path(), copied.join(entry.file_name())).expect("the log's files");
    }
    let newest = std::fs::read_dir(&audit).expect("the log's files");
    let newest = newest
        .map(|entry| entry.expect("the log's files").path())
        .max()
        .expect("the log's files");
    std::fs::remove_file(&newest).expect("the log's files");
    cluster.put("e", b"two");
    cluster.run(&["rm", "e"]);
    let events = cluster.run(&["events"]);
    assert!(events.contains("was removed or replaced"), "{events}");
    let found = fails(&check, 1);
    assert!(
        found.contains("was changed after the coordinator wrote it"),
        "{found}"
    );
    // The copy has all that was there then, and a seal shows that it lacks the newest records.
    let of_copy = ["audit", "--check", "--data", path_text(&copy)];
    let seal = run(&of_copy);
    let seal = seal.trim().rsplit(' ').next().expect("a seal").to_owned();
    run(&[&of_copy[..], &["--seal", &seal]].concat());
    let wrong = seal.replace(|digit| digit != '0', "0");
    let missing = fails(&[&of_copy[..], &["--seal", &wrong]].concat(), 1);
    assert!(missing.contains("no record has the seal"), "{missing}");
    std::fs::remove_dir_all(&audit).expect("the log's files");
    std::fs::rename(&copied, &audit).expect("the log's files");
}

fn check_finds_a_changed_record(cluster: &TestCluster) {
    let audit = cluster.path("cluster/coordinator/audit");
    let data = cluster.path("cluster/coordinator");
    let check = ["audit", "--check", "--data", path_text(&data)];
    let whole = run(&check);
    assert!(
        whole.contains("form an unbroken chain; the last seal is"),
        "{whole}"
    );
    let first = audit.join("0000000000000001.jsonl");
    let changed = std::fs::read_to_string(&first).expect("a file");
    let changed = changed.replace("pool p", "pool q");
    std::fs::write(&first, changed).expect("a disk with room");
    let broken = fails(&check, 1);
    assert!(
        broken.contains("was changed after the coordinator wrote it"),
        "{broken}"
    );
    let none = fails(&["audit", "--data", path_text(&audit)], 1);
    assert!(none.contains("has no audit log"), "{none}");
}
