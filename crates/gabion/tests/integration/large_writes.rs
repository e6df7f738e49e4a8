//! Writes too large for a node's journal, on a cluster of real processes: the stripe is replaced, and
//! the write is as atomic and as lasting as any other.

use crate::support::{TestCluster, pattern};

const MIB: usize = 1 << 20;

#[test]
fn a_write_too_large_for_a_record_replaces_its_stripe() {
    let cluster = TestCluster::start(3, 3);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=4MiB"]);
    let mut expected = pattern(16 * MIB, 1);
    cluster.put("disk", &expected);
    let stripe = || cluster.json(&["stat", "disk"])["stripes"][0]["stripe"].clone();
    let first = stripe();
    // Each data chunk's record is small; that of a parity chunk would bear the sum of all.
    let large = pattern(15 * MIB + 5, 2);
    cluster.write("disk", 3000, &large);
    expected[3000..3000 + large.len()].copy_from_slice(&large);
    let second = stripe();
    assert_ne!(second, first);
    let small = pattern(2 * MIB, 3);
    cluster.write("disk", 5 * MIB, &small);
    expected[5 * MIB..7 * MIB].copy_from_slice(&small);
    assert_eq!(stripe(), second, "what fits is updated in place");
    cluster.kill_all();
    cluster.up();
    assert!(cluster.get("disk") == expected);
    cluster.assert_no_damage();
}
