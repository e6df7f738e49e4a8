//! The space that the cluster tells, against the space that its directories take.
//!
//! Raw and reserved bytes are those of chunk files. A node's directory also has its journal, which begins with two
//! segments of 64 KiB and grows with use, and its own files and directories, for which [`OWN_BYTES`] are allowed.

use crate::support::mount::{Mounted, can_mount};
use crate::support::{TestCluster, path_text, pattern, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// Most bytes of a node's identity, lock, certificate and directories, beside 2 % of its chunks.
const OWN_BYTES: u64 = 256 << 10;
/// Data bytes of a stripe of the pool `vm`.
const STRIPE: u64 = 2 * MIB;
const NODES: u64 = 6;

/// Disk space of a directory and all in it, as `du` counts it.
fn du(directory: &Path) -> u64 {
    let mut bytes = fs::metadata(directory)
        .expect("the directory is there")
        .blocks()
        * 512;
    for entry in fs::read_dir(directory).expect("the directory is there") {
        let entry = entry.expect("the directory is readable");
        // A file may have been removed since it was listed.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        bytes += if metadata.is_dir() {
            du(&entry.path())
        } else {
            metadata.blocks() * 512
        };
    }
    bytes
}

fn nodes_du(cluster: &TestCluster, node_count: u64) -> u64 {
    let directories = (0..node_count).map(|node| cluster.path(&format!("cluster/nodes/{node}")));
    directories.map(|directory| du(&directory)).sum()
}

/// The same without the nodes' journals.
fn chunks_du(cluster: &TestCluster) -> u64 {
    let journals =
        (0..NODES).map(|node| cluster.path(&format!("cluster/nodes/{node}/store/journal")));
    let journal_bytes: u64 = journals.map(|journal| du(&journal)).sum();
    nodes_du(cluster, NODES) - journal_bytes
}

/// Whether raw and reserved bytes are those of the nodes' directories, up to 2 % and the nodes' own files.
fn agrees_with_du(cluster: &TestCluster, told: u64) -> bool {
    let found = chunks_du(cluster);
    told <= found + found / 50 && found <= told + told / 50 + NODES * OWN_BYTES
}

fn number(value: &Value, field: &str) -> u64 {
    let number = value[field].as_u64();
    number.unwrap_or_else(|| panic!("{field} of {value}"))
}

/// The space of all files by `stat`: logical, inline, raw and reserved bytes. A stripe of several files counts once,
/// and each of these files tells it as shared.
fn space_by_stat(cluster: &TestCluster) -> [u64; 4] {
    let (mut logical, mut inline) = (0, 0);
    let mut stripes: BTreeMap<u64, (u64, u64, Vec<bool>)> = BTreeMap::new();
    let files = cluster.json(&["ls"]);
    for file in files.as_array().expect("a list of files") {
        let stat = cluster.json(&["stat", file["name"].as_str().expect("a name")]);
        logical += number(&stat, "bytes");
        inline += number(&stat, "inline_bytes");
        let (mut raw, mut reserved, mut shared_raw) = (0, 0, 0);
        for stripe in stat["stripes"].as_array().expect("a list of stripes") {
            let is_shared = stripe["shared"].as_bool().expect("it is told");
            let own = (
                number(stripe, "raw_bytes"),
                number(stripe, "reserved_bytes"),
            );
            let known = stripes.entry(number(stripe, "stripe"));
            known
                .or_insert((own.0, own.1, Vec::new()))
                .2
                .push(is_shared);
            (raw, reserved) = (raw + own.0, reserved + own.1);
            shared_raw += if is_shared { own.0 } else { 0 };
        }
        let told = ["raw_bytes", "reserved_bytes", "shared_raw_bytes"];
        assert_eq!(
            told.map(|field| number(&stat, field)),
            [raw, reserved, shared_raw],
            "{stat}"
        );
    }
    let is_told = |shared: &[bool]| shared.len() == 1 || shared.iter().all(|&shared| shared);
    assert!(
        stripes.values().all(|(.., shared)| is_told(shared)),
        "{stripes:?}"
    );
    let raw = stripes.values().map(|(raw, ..)| raw).sum();
    let reserved = stripes.values().map(|(_, reserved, _)| reserved).sum();
    [logical, inline, raw, reserved]
}

/// Files of every kind, and every change that takes or frees space.
fn use_space(cluster: &TestCluster) {
    let put = |pool: &str, name: &str, length: u64| {
        let file = cluster.path("file");
        fs::write(&file, pattern(length as usize, 3)).expect("write a temporary file");
        cluster.run(&["put", "--pool", pool, path_text(&file), name]);
    };
    put("vm", "disk", 16 * STRIPE);
    put("wide", "archive", 9 * MIB + 1);
    put("vm", "removed", 4 * STRIPE);
    put("vm", "cut", 4 * STRIPE);
    for at in 0..8 {
        put("vm", &format!("small/{at}"), 100 << 10);
    }
    put("vm", "inline", 1000);
    cluster.run(&["create", "holes", "--pool=vm", "--size=1GiB"]);
    for at in [100 * MIB, 500 * MIB, 700 * MIB] {
        cluster.write("holes", at as usize, &pattern(5000, 4));
    }
    // Each of these updates begins two reserves.
    for stripe in 0..8 {
        cluster.write("disk", (stripe * STRIPE) as usize, &pattern(4096, 5));
    }
    cluster.write("removed", 7, &pattern(4096, 6));
    cluster.write("archive", 7, &pattern(4096, 6));
    cluster.run(&["snapshot", "disk", "disk@1"]);
    // Two stripes of the file are its own now; the reserve of one is that of the snapshot's stripe.
    cluster.write("disk", 3, &pattern(4096, 7));
    cluster.write("disk", (9 * STRIPE) as usize, &pattern(4096, 7));
    cluster.run(&["rm", "removed"]);
    cluster.run(&["truncate", "cut", &format!("--size={}", STRIPE + 1000)]);
    let (offset, length) = (
        format!("--offset={}", 498 * MIB),
        format!("--length={}", 8 * MIB),
    );
    cluster.run(&["punch", "holes", &offset, &length]);
}

fn sum_of_nodes(df: &Value, field: &str) -> u64 {
    let nodes = df["nodes"].as_array().expect("a list of nodes").iter();
    nodes
        .map(|node| node[field].as_u64().expect("a number"))
        .sum()
}

fn is_near(told: u64, found: u64) -> bool {
    told.abs_diff(found) * 50 <= found
}

#[test]
fn an_empty_cluster_takes_little_space() {
    let cluster = TestCluster::start(6, 2);
    let empty = nodes_du(&cluster, 12);
    assert!(empty < 50 * MIB, "{empty} bytes");
}

#[test]
fn df_agrees_with_the_directories_of_nodes() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(2,2)", "--chunk=1MiB"]);
    cluster.put("disk", &pattern(64 << 20, 1));
    let df = || cluster.json(&["df"]);
    wait_for("all nodes have told their space", || {
        let told = sum_of_nodes(&df(), "used_bytes");
        told > 128 * MIB && is_near(told, nodes_du(&cluster, 6))
    });
    let new = df();
    assert_eq!(new["all"]["logical_bytes"], 64 * MIB);
    // 128 chunks, each with a header and checksums.
    assert_eq!(new["all"]["raw_bytes"], 128 * (MIB + 8192));
    assert_eq!(new["pools"][0]["reserved_bytes"], 0, "no update yet");
    cluster.write("disk", 0, &pattern(4096, 2));
    wait_for("two parity chunks have reserves", || {
        df()["pools"][0]["reserved_bytes"] == 2 * MIB
    });
    let updated = df();
    assert_eq!(sum_of_nodes(&updated, "reserved_bytes"), 2 * MIB);
    let (told, found) = (sum_of_nodes(&updated, "used_bytes"), nodes_du(&cluster, 6));
    assert!(is_near(told, found), "{told} bytes told, {found} found");
    let text = cluster.run(&["df"]);
    assert!(text.contains("vm") && text.contains("129 MiB"), "{text}");
    assert_eq!(
        updated["nodes_not_counted"].as_array().map(Vec::len),
        Some(0)
    );
    cluster.run(&["chaos", "kill-node", "4"]);
    cluster.wait_until_failed(&[4]);
    assert_eq!(df()["nodes_not_counted"], serde_json::json!([4]));
    let text = cluster.run(&["df"]);
    assert!(text.contains("1 node is not counted"), "{text}");
}

#[test]
fn df_stat_and_the_directories_of_nodes_agree_after_every_kind_of_change() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(2,2)", "--chunk=1MiB"]);
    let wide = ["pool", "create", "wide", "--code=rs(4,2)", "--chunk=256KiB"];
    cluster.run(&wide);
    use_space(&cluster);
    let told = || {
        let all = cluster.json(&["df"])["all"].clone();
        [
            "logical_bytes",
            "inline_bytes",
            "raw_bytes",
            "reserved_bytes",
        ]
        .map(|field| number(&all, field))
    };
    wait_for("df, stat and du agree", || {
        let told = told();
        let [.., raw, reserved] = told;
        agrees_with_du(&cluster, raw + reserved) && told == space_by_stat(&cluster)
    });
    let df = cluster.json(&["df"]);
    assert_eq!(number(&df["all"], "inline_bytes"), 1000);
    let vm = &df["pools"][0];
    // Holes are in the logical bytes alone. Whole stripes are 16 of the disk and 2 that it has written since, 1 of the
    // cut file and 2 in holes. Short ones are those of 8 small files and the end of the cut file. Each has four
    // chunks, and each chunk a header and checksums.
    assert!(number(vm, "logical_bytes") > 1 << 30, "{df}");
    let raw = number(vm, "raw_bytes");
    let chunks = |stripes: u64, bytes: u64| 4 * stripes * (bytes + 8192);
    let expected = chunks(21, MIB) + chunks(8, 52 << 10) + chunks(1, 4096);
    assert_eq!(raw, expected, "{df}");
    // Eight updated stripes of the disk, and what the writes behind the snapshot and into holes have begun. Nodes learn
    // smaller reserves from the first ones, so the sum differs from run to run.
    let reserved = number(vm, "reserved_bytes");
    assert!((2 * MIB..=16 * 2 * MIB).contains(&reserved), "{df}");
    assert_eq!(
        number(&df["all"], "used_bytes"),
        sum_of_nodes(&df, "used_bytes")
    );
    assert_eq!(
        number(&df["all"], "free_bytes"),
        sum_of_nodes(&df, "free_bytes")
    );
    // A list of pools tells the same, and its cost has the reserves that are there.
    let pools = cluster.json(&["pool", "ls"]);
    let pool = &pools[0];
    for field in ["logical_bytes", "raw_bytes", "reserved_bytes"] {
        assert_eq!(pool[field], vm[field], "{field}");
    }
    assert_eq!(pool["reserved_share_is_learnt"], true);
    let used = number(&cluster.json(&["pool", "quota", "vm"]), "used_bytes");
    let share = reserved as f64 / (used - 1000) as f64;
    let usable = pool["usable_share"].as_f64().expect("a number");
    assert!((usable - 1.0 / (2.0 + share)).abs() < 1e-9, "{pool}");
    assert!((0.33..0.47).contains(&usable), "{pool}");
    for text in [
        cluster.run(&["df"]),
        cluster.run(&["stat", "disk"]),
        cluster.run(&["pool", "ls"]),
    ] {
        let is_narrow = text.lines().all(|line| line.chars().count() <= 100);
        assert!(is_narrow && text.contains("reserved"), "{text}");
    }
    let snapshot = cluster.run(&["stat", "disk@1"]);
    let snapshot = snapshot.replace("\n  ", " ");
    assert!(snapshot.contains("in shared stripes"), "{snapshot}");
}

#[test]
fn a_mount_shows_the_space_without_reserves_and_without_nodes_that_leave() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(2,2)", "--chunk=1MiB"]);
    wait_for("every node has told its space", || {
        cluster.json(&["df"])["nodes"].as_array().map(Vec::len) == Some(NODES as usize)
    });
    let mounted = Mounted::start(&cluster, "vm", &[]);
    let shown = || {
        let space = rustix::fs::statvfs(mounted.path("")).expect("it is mounted");
        (
            space.f_bavail * space.f_frsize,
            space.f_blocks * space.f_frsize,
        )
    };
    let is_about = |shown: u64, bytes: u64| shown.abs_diff(bytes) * 20 <= bytes;
    // Two data chunks, two parity chunks, and a reserve behind each of these: a third is for data. Others use the disk
    // too, so it may change between two commands.
    let mut total_before = 0;
    wait_for("the mount shows a third of all nodes' space", || {
        let df = cluster.json(&["df"]);
        let (free, total) = shown();
        total_before = total;
        println!("{free} of {total} bytes are free: {df}");
        is_about(free, number(&df["all"], "free_bytes") / 3)
            && is_about(total, number(&df["all"], "capacity_bytes") / 3)
    });
    cluster.run(&["node", "drain", "5"]);
    wait_for("the mount shows a third of five nodes' space", || {
        let df = cluster.json(&["df"]);
        // Null while its space is not known, on a machine that stands still for seconds.
        if df["nodes"][5]["free_bytes"] != 0 {
            return false;
        }
        let free_bytes = number(&df["all"], "free_bytes");
        assert_eq!(free_bytes, sum_of_nodes(&df, "free_bytes"));
        let (free, total) = shown();
        let pools = cluster.json(&["pool", "ls"]);
        println!("{free} of {total} bytes are free: {df}, {pools}");
        is_about(free, free_bytes / 3)
            && is_about(total, total_before / 6 * 5)
            && is_about(number(&pools[0], "free_data_bytes"), free)
    });
}

#[test]
fn a_new_pool_tells_its_free_space_and_what_its_first_reserves_cost() {
    let cluster = TestCluster::start(3, 2);
    let create = ["pool", "create", "vm", "--code=rs(4,2)", "--chunk=1MiB"];
    wait_for("every node has told its space", || {
        cluster.json(&["df"])["nodes"].as_array().map(Vec::len) == Some(6)
    });
    let made = cluster.json(&create);
    let pool = &made[0];
    // Two reserves of a chunk for four data chunks, beside two parity chunks: eight chunks for four.
    assert_eq!(pool["usable_share"], 0.5);
    assert_eq!(pool["share_of_three_replicas"], 2.0 / 3.0);
    assert_eq!(pool["reserved_share_is_learnt"], false);
    let free = number(pool, "free_bytes");
    assert!(
        free > 0 && number(pool, "free_data_bytes") == free / 2,
        "{pool}"
    );
    let text = cluster.run(&["pool", "create", "fo", "--code=rs(4,2)", "--update=fo"]);
    assert!(
        text.contains("66.7%") && text.contains("free on all nodes"),
        "{text}"
    );
}
