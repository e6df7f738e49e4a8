//! Snapshots and clones on clusters of real processes.

use crate::support::nbd::{ImageServer, has_nbd_tools, tool};
use crate::support::rounds::Rounds;
use crate::support::{TestCluster, fails_on, path_text, pattern, wait_for};
use gabion_layout::ByteRange;

const KIB: usize = 1024;
/// Bytes of a stripe of these tests' pool.
const STRIPE: usize = 256 * KIB;
/// Stripes of the file that is written.
const STRIPE_COUNT: usize = 4;

fn cluster() -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    cluster
}

/// The number at the beginning of each stripe.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let number = |stripe: &[u8]| u64::from_le_bytes(stripe[..8].try_into().expect("8 bytes"));
    bytes.chunks(STRIPE).map(number).collect()
}

#[test]
fn a_snapshot_has_all_writes_up_to_an_instant_and_none_behind_it() {
    let cluster = cluster();
    cluster.put("disk", &vec![0; STRIPE_COUNT * STRIPE]);
    let rounds = Rounds {
        place_count: STRIPE_COUNT,
        write: |stripe, round: u64| cluster.write("disk", stripe * STRIPE, &round.to_le_bytes()),
        read: |name: &str| numbers(&cluster.get(name)),
    };
    let (mut taken, done_count) = rounds.snapshots(&cluster, "disk", 8);
    let last = numbers(&cluster.get("disk"));
    assert_eq!(last.iter().sum::<u64>(), done_count);
    // In no order.
    for at in [3, 0, 5] {
        let (name, _) = taken.remove(at);
        cluster.run(&["rm", &name]);
        for (name, rounds) in &taken {
            assert_eq!(&numbers(&cluster.get(name)), rounds, "{name}");
        }
    }
    cluster.wait_until_failed(&[]);
    for (name, _) in taken {
        cluster.run(&["rm", &name]);
    }
    assert_eq!(numbers(&cluster.get("disk")), last);
    cluster.assert_no_damage();
}

#[test]
fn clones_and_their_file_change_apart_from_each_other() {
    let cluster = cluster();
    let first = pattern(3 * STRIPE + 1000, 1);
    cluster.put("disk", &first);
    cluster.run(&["snapshot", "disk", "disk@1"]);
    cluster.run(&["clone", "disk@1", "copies/one"]);
    cluster.run(&["clone", "copies/one", "two"]);
    let mut expected = [("disk", first.clone()), ("copies/one", first.clone())];
    // Over a border of stripes, within one, and behind the end.
    for (offset, length) in [
        (STRIPE - 500, 1000),
        (2 * STRIPE + 7, 90),
        (first.len() - 5, 3000),
    ] {
        for (seed, (name, bytes)) in expected.iter_mut().enumerate() {
            let new = pattern(length, 10 * seed as u64 + offset as u64);
            cluster.write(name, offset, &new);
            bytes.resize(bytes.len().max(offset + length), 0);
            bytes[offset..offset + length].copy_from_slice(&new);
        }
    }
    cluster.run(&["truncate", "two", "--size=300000"]);
    cluster.run(&["truncate", "two", "--size=400000"]);
    let mut shrunk = first[..300_000].to_vec();
    shrunk.resize(400_000, 0);
    let check = |expected: &[(&str, Vec<u8>)]| {
        for (name, bytes) in expected {
            assert!(&cluster.get(name) == bytes, "{name}");
        }
        assert!(cluster.get("two") == shrunk, "two");
    };
    check(&expected);
    assert!(cluster.get("disk@1") == first, "the snapshot");
    let stat = cluster.json(&["stat", "disk@1"]);
    assert_eq!(
        (&stat["read_only"], &stat["shared_stripes"]),
        (&true.into(), &4.into())
    );
    cluster.run(&["punch", "copies/one", "--offset=0", "--length=262144"]);
    expected[1].1[..STRIPE].fill(0);
    let holes = cluster.json(&["stat", "copies/one"])["hole_bytes"].as_u64();
    assert_eq!(holes, Some(STRIPE as u64), "the hole takes no space");
    cluster.run(&["rm", "disk@1"]);
    check(&expected);
    cluster.kill_all();
    cluster.up();
    check(&expected);
    cluster.run(&["rm", "disk"]);
    check(&expected[1..]);
    cluster.run(&["rm", "copies/one"]);
    check(&[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_removed_file_open_reads_nothing_of_its_clone() {
    const PART: usize = 16 * KIB;
    let cluster = cluster();
    let bytes = pattern(STRIPE, 1);
    cluster.put("disk", &bytes);
    cluster.run(&["clone", "disk", "copy"]);
    let client = cluster.client().await;
    let file = client.open("disk").await.expect("it is there");
    let range = ByteRange::new(0, PART as u64);
    assert!(file.read(range).await.expect("it is readable") == bytes[..PART]);
    cluster.run(&["rm", "disk"]);
    let is_alone = || cluster.json(&["stat", "copy"])["shared_stripes"] == 0;
    wait_for("the clone takes the stripes over", is_alone);
    cluster.write("copy", 0, &pattern(PART, 2));
    // It reads by the layout that it knows, and learns from the nodes that this is old.
    if let Ok(read) = file.read(range).await {
        assert!(read == bytes[..PART], "bytes of another file");
    }
    assert!(cluster.get("copy")[..PART] == pattern(PART, 2));
}

#[test]
fn a_snapshot_is_never_changed_and_wrong_ones_are_refused() {
    let cluster = cluster();
    let bytes = pattern(1000, 1);
    cluster.put("disk", &bytes);
    cluster.run(&["snapshot", "disk", "disk@1"]);
    let file = cluster.path("new");
    std::fs::write(&file, b"new bytes").expect("write a temporary file");
    let file = path_text(&file);
    for change in [
        &["write", "disk@1", file, "--offset=3"][..],
        &["append", "disk@1", file],
        &["truncate", "disk@1", "--size=3"],
        &["truncate", "disk@1", "--size=3000"],
        &["punch", "disk@1", "--offset=0", "--length=1000"],
    ] {
        let error = fails_on(&cluster, change, 1);
        assert!(
            error.contains("disk@1 is a snapshot"),
            "{change:?}: {error}"
        );
    }
    let replicated = ["--code=rs(2,2)", "--write=replicate:3", "--encode-after=1h"];
    cluster.run(&[&["pool", "create", "blocks"][..], &replicated].concat());
    cluster.run(&["put", file, "block", "--pool=blocks"]);
    cluster.run(&["mkdir", "folder"]);
    cluster.run(&["ln", "--symbolic", "disk", "link", "--pool=vm"]);
    for (arguments, expected) in [
        (["none", "s"], "no file and no directory 'none'"),
        (["link", "s"], "symbolic link"),
        (["disk", "disk"], "already exists"),
        (["disk", "folder"], "is a directory"),
        (["disk", "disk/s"], "not a directory"),
        (["block", "s"], "replicates blocks first"),
    ] {
        for command in ["snapshot", "clone"] {
            let error = fails_on(&cluster, &[command, arguments[0], arguments[1]], 1);
            assert!(error.contains(expected), "{command} {arguments:?}: {error}");
        }
    }
    let error = fails_on(&cluster, &["snapshot", "disk", ""], 2);
    assert!(error.contains("name"), "{error}");
    assert!(cluster.get("disk@1") == bytes);
    // Its name and its attributes are not its bytes.
    cluster.run(&["mv", "disk@1", "kept"]);
    cluster.write("disk", 0, b"more");
    assert!(cluster.get("kept") == bytes);
}

#[test]
fn the_snapshot_of_an_attached_image_is_taken_while_its_server_writes_on() {
    if !has_nbd_tools() {
        return;
    }
    let cluster = cluster();
    cluster.run(&["image", "create", "vm/disk", "--size=4MiB"]);
    let server = ImageServer::start(&cluster, &["vm/disk"]);
    let (uri, source, copy) = (
        server.uri("vm/disk"),
        cluster.path("in"),
        cluster.path("out"),
    );
    let (source, copy) = (path_text(&source), path_text(&copy));
    let size = 4 << 20;
    std::fs::write(source, pattern(size, 1)).expect("write a temporary file");
    tool("nbdcopy", &[source, &uri]);
    std::fs::write(source, pattern(size, 2)).expect("write a temporary file");
    let copying = std::process::Command::new("nbdcopy")
        .args([source, &uri])
        .spawn();
    let mut copying = copying.expect("nbdcopy runs");
    cluster.run(&["snapshot", "vm/disk", "vm/disk@1"]);
    assert!(copying.wait().expect("the child is ours").success());
    cluster.run(&["snapshot", "vm/disk", "vm/disk@2"]);
    std::fs::write(source, pattern(size, 3)).expect("write a temporary file");
    tool("nbdcopy", &[source, &uri]);
    for (name, seed) in [("vm/disk@2", 2), ("vm/disk", 3)] {
        assert!(cluster.get(name) == pattern(size, seed), "{name}");
    }
    let (one, two) = (pattern(size, 1), pattern(size, 2));
    let early = cluster.get("vm/disk@1");
    let sectors = early.chunks(512).zip(one.chunks(512).zip(two.chunks(512)));
    let mut sectors = sectors;
    assert!(
        sectors.all(|(found, (one, two))| found == one || found == two),
        "a sector is neither from before nor from behind the copy"
    );
    // A snapshot is exported for reading only.
    let reader = ImageServer::start(&cluster, &["vm/disk@2"]);
    let uri = reader.uri("vm/disk@2");
    assert!(tool("nbdinfo", &[&uri]).contains("is_read_only: true"));
    tool("nbdcopy", &[&uri, copy]);
    assert!(std::fs::read(copy).expect("the copy") == two);
}
