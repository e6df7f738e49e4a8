//! Kills every process of a cluster at arbitrary moments of puts and writes, and starts it again:
//! what was acknowledged is there, and what was not is wholly there or wholly absent.

use crate::support::{TestCluster, path_text, pattern};

const KIB: usize = 1024;
const ROUNDS: u64 = 4;

/// Starts a command that writes `bytes`, lets it run for a moment that differs by `round`, kills the
/// whole cluster under it, and says whether it had been acknowledged.
fn kill_during(cluster: &TestCluster, arguments: &[&str], bytes: &[u8], round: u64) -> bool {
    let mut child = cluster.start_with_input(arguments, bytes);
    // The moment of the kill is the test's only use of time, and any moment will do.
    std::thread::sleep(std::time::Duration::from_millis(5 + round * 17));
    cluster.kill_all();
    let acknowledged = child
        .try_wait()
        .expect("the child is ours")
        .is_some_and(|s| s.success());
    if !acknowledged {
        child.kill().expect("the child is ours");
    }
    child.wait().expect("the child is ours");
    cluster.up();
    acknowledged
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_half_done() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let mut expected = pattern(256 * KIB, 7);
    cluster.put("disk", &expected);
    for round in 0..ROUNDS {
        // One update over three chunks of the only stripe: 100 KiB from the middle of chunk 0.
        let (offset, length) = (40 * KIB, 100 * KIB);
        let new = pattern(length, 1000 + round);
        let arguments = ["write", "disk", &format!("--offset={offset}"), "-"];
        let acknowledged = kill_during(&cluster, &arguments, &new, round);
        let got = cluster.get("disk");
        let mut updated = expected.clone();
        updated[offset..offset + length].copy_from_slice(&new);
        if acknowledged || got == updated {
            expected = updated;
        }
        assert!(
            got == expected,
            "round {round}, acknowledged {acknowledged}: a mixture"
        );
        check_parity(&cluster, &expected);
    }
    for round in 0..ROUNDS {
        let name = format!("file-{round}");
        let bytes = pattern(700 * KIB, 2000 + round);
        let acknowledged = kill_during(&cluster, &["put", "-", &name], &bytes, round * 2);
        let files = cluster.json(&["ls"]);
        let is_there = files
            .as_array()
            .unwrap()
            .iter()
            .any(|f| f["name"] == name.as_str());
        assert!(
            is_there || !acknowledged,
            "round {round}: an acknowledged file is gone"
        );
        if is_there {
            assert!(
                cluster.get(&name) == bytes,
                "round {round}: a file is visible but not whole"
            );
        }
        assert!(cluster.get("disk") == expected, "round {round}");
    }
}

/// Reads with one node down, so that parity must agree with data; any one node will do.
fn check_parity(cluster: &TestCluster, expected: &[u8]) {
    cluster.run(&["chaos", "kill-node", "0"]);
    cluster.wait_until_failed(&[0]);
    let file = cluster.path("degraded");
    cluster.run(&["get", "disk", path_text(&file)]);
    assert!(
        std::fs::read(&file).expect("get has made the file") == expected,
        "parity disagrees with data"
    );
    cluster.run(&["chaos", "start-node", "0"]);
    cluster.wait_until_failed(&[]);
}
