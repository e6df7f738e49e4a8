//! Writes that span stripes, on clusters of real processes: wholly there or wholly absent, even if
//! any process is killed at any time.

use crate::support::{TestCluster, pattern};
use std::process::Child;
use std::time::Duration;

const KIB: usize = 1024;
/// Bytes of a stripe of these tests' pool.
const STRIPE: usize = 256 * KIB;
const ROUNDS: u64 = 6;

fn start_write(cluster: &TestCluster, offset: usize, bytes: &[u8]) -> Child {
    let arguments = ["write", "disk", &format!("--offset={offset}"), "-"];
    cluster.start_with_input(&arguments, bytes)
}

#[test]
fn a_write_over_three_stripes_is_there_or_not_after_everything_was_killed() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let mut expected = pattern(4 * STRIPE - 1000, 1);
    cluster.put("disk", &expected);
    // From the end of the first stripe, over the second, into the third.
    let (offset, length) = (STRIPE - 5000, STRIPE + 12_000);
    let mut acknowledged_count = 0;
    for round in 0..ROUNDS {
        let new = pattern(length, 100 + round);
        let mut child = start_write(&cluster, offset, &new);
        // The moment of the kill is the test's only use of time, and any moment will do.
        std::thread::sleep(Duration::from_millis(5 + round * 23));
        cluster.kill_all();
        let ended = child.try_wait().expect("the child is ours");
        let acknowledged = ended.is_some_and(|status| status.success());
        if !acknowledged {
            child.kill().expect("the child is ours");
            child.wait().expect("the child is ours");
        }
        acknowledged_count += u32::from(acknowledged);
        cluster.up();
        let mut updated = expected.clone();
        updated[offset..offset + length].copy_from_slice(&new);
        let got = cluster.get("disk");
        if acknowledged || got == updated {
            expected = updated;
        }
        assert!(
            got == expected,
            "round {round}, acknowledged {acknowledged}: a mixture"
        );
    }
    // A write that was left half-done blocks no later one for good.
    let new = pattern(length, 7);
    cluster.write("disk", offset, &new);
    expected[offset..offset + length].copy_from_slice(&new);
    assert!(cluster.get("disk") == expected, "{acknowledged_count}");
}

#[test]
fn writers_that_overlap_neither_deadlock_nor_lose_each_other_s_bytes() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let mut expected = pattern(3 * STRIPE, 1);
    cluster.put("disk", &expected);
    // Two that share the middle stripe, and small ones in each stripe; no two share a byte.
    let writes = [
        (STRIPE - 3000, 5000),
        (2 * STRIPE - 3000, 5000),
        (100, 50),
        (STRIPE + 70 * KIB, 9),
        (3 * STRIPE - 20, 20),
    ];
    for round in 0..3 {
        let writes = writes.iter().zip(0..);
        let new: Vec<_> = writes
            .map(|(&(offset, length), at)| (offset, pattern(length, 10 * round + at)))
            .collect();
        let children: Vec<_> = new
            .iter()
            .map(|(offset, bytes)| start_write(&cluster, *offset, bytes))
            .collect();
        for mut child in children {
            assert!(child.wait().expect("the child is ours").success());
        }
        for (offset, bytes) in new {
            expected[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        assert!(cluster.get("disk") == expected, "round {round}");
    }
}

#[test]
fn a_lost_chunk_does_not_keep_a_stripe_from_being_rewritten() {
    let cluster = TestCluster::start(3, 3);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let mut expected = pattern(3 * STRIPE, 1);
    cluster.put("disk", &expected);
    cluster.run(&["chaos", "kill-node", "4"]);
    cluster.wait_until_failed(&[4]);
    let (offset, length) = (100 * KIB, 2 * STRIPE);
    let new = pattern(length, 2);
    cluster.write("disk", offset, &new);
    expected[offset..offset + length].copy_from_slice(&new);
    assert!(cluster.get("disk") == expected, "without the node");
    cluster.run(&["chaos", "start-node", "4"]);
    cluster.wait_until_failed(&[]);
    assert!(cluster.get("disk") == expected, "with the node back");
}
