//! Update schemes on clusters of real processes: under each, what was written is read back, with and
//! without the parity that follows; and reserved space follows the workload.

use crate::support::{TestCluster, path_text, pattern, wait_for};
use gabion_planner::update::SCHEMES;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const KIB: usize = 1024;

#[test]
fn every_update_scheme_reads_back_what_was_written_with_a_node_down_too() {
    let cluster = TestCluster::start(3, 2);
    let mut expected = pattern(400 * KIB, 1);
    let at_once = SCHEMES.iter().filter(|known| !known.appends());
    let schemes: Vec<&str> = at_once.clone().map(|known| known.scheme.name()).collect();
    for known in at_once {
        let scheme = known.scheme.name();
        let update = format!("--update={scheme}");
        let pools = cluster.json(&[
            "pool",
            "create",
            scheme,
            "--code=rdp(4)",
            "--chunk=64KiB",
            &update,
        ]);
        assert_eq!(pools[0]["update"], scheme);
        let has_reserve = !pools[0]["reserve_bytes"].is_null();
        assert_eq!(has_reserve, known.reserves_space());
        let file = cluster.path("base");
        std::fs::write(&file, &expected).expect("write a temporary file");
        let pool = format!("--pool={scheme}");
        cluster.run(&["put", path_text(&file), scheme, &pool]);
    }
    for round in 0..8 {
        let (offset, length) = ((round * 31_337) % (370 * KIB), 20_000);
        let new = pattern(length, 100 + round as u64);
        for scheme in &schemes {
            cluster.write(scheme, offset, &new);
        }
        expected[offset..offset + length].copy_from_slice(&new);
    }
    let check = |when: &str| {
        for scheme in &schemes {
            assert!(cluster.get(scheme) == expected, "{scheme}, {when}");
        }
    };
    check("with all nodes");
    cluster.run(&["chaos", "kill-node", "1"]);
    cluster.wait_until_failed(&[1]);
    check("with a node down");
    cluster.run(&["chaos", "start-node", "1"]);
    cluster.wait_until_failed(&[]);
    cluster.assert_no_damage();
}

/// Bytes that the disk holds for a directory's files and those below it. A file that is deleted
/// meanwhile counts as none.
fn allocated_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let sizes = entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => allocated_bytes(&entry.path()),
            Ok(found) => found.blocks() * 512,
            Err(_) => 0,
        });
    sizes.sum()
}

/// Bytes that the disk holds for the chunks of all nodes of a cluster.
fn chunk_bytes(cluster: &TestCluster, node_count: u32) -> u64 {
    let nodes = cluster.path("cluster").join("nodes");
    let chunks = |node: u32| nodes.join(node.to_string()).join("store").join("chunks");
    (0..node_count)
        .map(|node| allocated_bytes(&chunks(node)))
        .sum()
}

#[test]
fn reserves_take_space_at_the_first_update_and_follow_the_updates() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&[
        "pool",
        "create",
        "vm",
        "--code=rs(4,2)",
        "--chunk=256KiB",
        "--reserve-bytes=1MiB",
        "--reserve-period=2s",
    ]);
    let (chunks, reserves) = ((6 * 256) << 10, 2 << 20);
    let mut expected = pattern(1024 * KIB, 1);
    cluster.put("disk", &expected);
    let empty = chunk_bytes(&cluster, 6);
    assert!(
        empty >= chunks && empty < chunks + reserves / 4,
        "{empty} bytes allocated"
    );
    let new = pattern(4 * KIB, 7);
    cluster.write("disk", 0, &new);
    expected[..new.len()].copy_from_slice(&new);
    let full = chunk_bytes(&cluster, 6);
    assert!(full >= empty + reserves, "{full} bytes allocated");
    wait_for("unused reserves are given back", || {
        chunk_bytes(&cluster, 6) + reserves <= full
    });
    let least = chunk_bytes(&cluster, 6);
    let mut round = 0;
    wait_for("reserves grow again under updates", || {
        let new = pattern(4 * KIB, 1000 + round);
        let offset = (round as usize * 37 % 1020) * KIB;
        cluster.write("disk", offset, &new);
        expected[offset..offset + new.len()].copy_from_slice(&new);
        round += 1;
        chunk_bytes(&cluster, 6) >= least + (512 << 10)
    });
    assert!(cluster.get("disk") == expected);
    cluster.run(&["chaos", "kill-node", "0"]);
    cluster.wait_until_failed(&[0]);
    assert!(
        cluster.get("disk") == expected,
        "parity disagrees with data"
    );
}
