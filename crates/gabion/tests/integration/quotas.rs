//! Quotas of pools and of directories on clusters of real processes, by the command line and through a mount.

use crate::support::mount::{Mounted, can_mount};
use crate::support::{TestCluster, complaint, fails, fails_on, path_text, pattern, wait_for};
use rustix::io::Errno;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

const KIB: usize = 1024;
/// Data bytes of a full stripe of these tests' pool.
const STRIPE: usize = 256 * KIB;

/// A cluster whose pool may use some stripes.
fn cluster(stripe_count: usize) -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=64KiB"]);
    limit(&cluster, &format!("--bytes={}", stripe_count * STRIPE));
    cluster
}

fn limit(cluster: &TestCluster, limit: &str) {
    cluster.run(&["pool", "quota", "p", limit]);
}

fn used(cluster: &TestCluster) -> (u64, u64) {
    let quota = cluster.json(&["pool", "quota", "p"]);
    let number = |name: &str| quota[name].as_u64().expect("a number");
    (number("used_bytes"), number("used_files"))
}

/// Waits until the bytes of removed files are given back.
fn wait_for_stripes(cluster: &TestCluster, count: usize) {
    let is_used = || used(cluster).0 == (count * STRIPE) as u64;
    wait_for("the stripes of removed files are garbage", is_used);
}

/// Stores bytes from standard input, whose length the client does not know. Returns what it complains of.
fn put_stream(cluster: &TestCluster, name: &str, bytes: &[u8]) -> Result<(), String> {
    let source = cluster.path("stream");
    fs::write(&source, bytes).expect("a directory of the test");
    let source = fs::File::open(source).expect("it is there");
    let mut command = cluster.command(&["put", "-", name]);
    let output = command.stdin(source).output().expect("the command runs");
    if output.status.success() {
        return Ok(());
    }
    assert_eq!(output.status.code(), Some(1));
    Err(complaint(&output))
}

#[test]
fn a_full_quota_refuses_growth_and_nothing_else() {
    let cluster = cluster(4);
    let bytes = pattern(3 * STRIPE, 1);
    cluster.put("a", &bytes);
    let source = cluster.path("source");
    fs::write(&source, pattern(2 * STRIPE, 2)).expect("a directory of the test");
    let source = path_text(&source).to_owned();
    let refused = fails_on(&cluster, &["put", &source, "b"], 1);
    assert!(
        refused.contains("pool p uses") && refused.contains("of its quota"),
        "{refused}"
    );
    fails_on(&cluster, &["stat", "b"], 1);
    assert_eq!(used(&cluster), (3 * STRIPE as u64, 1));

    // The last stripe of the quota, from a stream that asks for places ahead of its bytes.
    let one = pattern(STRIPE, 3);
    put_stream(&cluster, "b", &one).expect("there is room");
    assert!(cluster.get("b") == one);
    let refused = put_stream(&cluster, "c", &one).expect_err("there is no room");
    assert!(refused.contains("of its quota"), "{refused}");
    // A refused append leaves the file as it is, also one that would begin within its last stripe.
    for _ in 0..3 {
        let refused = fails_on(&cluster, &["append", "b", &source], 1);
        assert!(refused.contains("of its quota"), "{refused}");
        assert!(cluster.get("b") == one);
    }
    assert_eq!(used(&cluster), (4 * STRIPE as u64, 2));

    // In place, and across stripes.
    cluster.write("a", 10, b"in place");
    let spanning = pattern(2 * STRIPE - 100, 4);
    cluster.write("a", STRIPE / 2, &spanning);
    let mut expected = bytes;
    expected[10..18].copy_from_slice(b"in place");
    expected[STRIPE / 2..][..spanning.len()].copy_from_slice(&spanning);
    assert!(cluster.get("a") == expected);

    // The place of a removed file, and of a truncated one.
    cluster.run(&["rm", "b"]);
    wait_for_stripes(&cluster, 3);
    put_stream(&cluster, "c", &one).expect("there is room again");
    cluster.run(&["truncate", "a", "--size", &STRIPE.to_string()]);
    wait_for_stripes(&cluster, 2);
    cluster.run(&["truncate", "a", "--size", "1TiB"]);
    assert_eq!(used(&cluster).0, 2 * STRIPE as u64, "holes use nothing");
}

#[test]
fn an_append_into_the_last_stripe_needs_no_room() {
    let cluster = cluster(4);
    let mut expected = pattern(5000, 1);
    cluster.put("log", &expected);
    let source = cluster.path("source");
    let mut append = |length: usize, seed: u64| {
        let more = pattern(length, seed);
        fs::write(&source, &more).expect("a directory of the test");
        let output = cluster
            .command(&["append", "log", path_text(&source)])
            .output()
            .expect("the command runs");
        if output.status.success() {
            expected.extend(more);
        }
        assert!(cluster.get("log") == expected);
        output.status.success()
    };
    let stripe = || cluster.json(&["stat", "log"])["stripes"][0]["stripe"].as_u64();
    let (bytes, _) = used(&cluster);
    limit(&cluster, &format!("--bytes={bytes}"));
    let before = stripe();
    assert!(before.is_some());
    for seed in 2..5 {
        assert!(append(20, seed), "there is room in the stripe");
    }
    assert_eq!(stripe(), before, "in place");
    assert!(!append(bytes as usize, 5), "the quota is full");
    assert_eq!(used(&cluster).0, bytes);
}

#[tokio::test]
async fn an_append_to_a_file_that_another_client_has_cut_needs_room_for_its_bytes_alone() {
    let cluster = cluster(4);
    let expected = pattern(2 * STRIPE, 1);
    cluster.put("logs/log", &expected);
    let client = cluster.client().await;
    let file = client.open("logs/log").await.expect("it is there");
    cluster.run(&["truncate", "logs/log", "--size=10000"]);
    cluster.run(&["quota", "logs", &format!("--bytes={STRIPE}")]);
    let more = pattern(100, 2);
    let offset = file.append(more.clone().into()).await;
    assert_eq!(offset.expect("there is room for 100 bytes"), 10_000);
    assert!(cluster.get("logs/log") == [&expected[..10_000], &more].concat());
}

#[test]
fn files_are_limited_and_a_quota_is_shown_and_lifted() {
    let cluster = cluster(8);
    limit(&cluster, "--files=2");
    cluster.put("a", b"one");
    cluster.run(&["snapshot", "a", "s"]);
    let refused = fails_on(&cluster, &["clone", "a", "b"], 1);
    assert!(
        refused.contains("has as many files as its quota permits, 2"),
        "{refused}"
    );
    let source = cluster.path("source");
    fs::write(&source, b"in the place of a file").expect("a directory of the test");
    cluster.run(&["put", "--replace", path_text(&source), "a"]);

    let shown = cluster.run(&["pool", "quota", "p"]);
    assert!(
        shown.contains("files") && shown.contains("2.0 MiB"),
        "{shown}"
    );
    let df = cluster.run(&["df"]);
    assert!(
        df.contains("quota of p: ") && df.contains("2 of 2 files used"),
        "{df}"
    );
    let pools = &cluster.json(&["df"])["pools"];
    assert_eq!(pools[0]["quota"]["quota_files"], 2);
    let events = cluster.run(&["events"]);
    assert!(
        events.contains("quota of pool p: at most 2 files"),
        "{events}"
    );

    limit(&cluster, "--files=none");
    cluster.run(&["clone", "a", "b"]);
    let quota = cluster.json(&["pool", "quota", "p", "--bytes=none"]);
    assert_eq!(
        (&quota["quota_bytes"], &quota["quota_files"]),
        (&Value::Null, &Value::Null)
    );

    for wrong in ["--bytes=much", "--files=-1", "--files=1.5"] {
        fails(&["pool", "quota", "p", wrong], 2);
    }
    let unknown = fails_on(&cluster, &["pool", "quota", "q", "--files=1"], 1);
    assert!(unknown.contains("there is no pool 'q'"), "{unknown}");
}

#[test]
fn a_mount_has_the_space_of_its_quota() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(4);
    limit(&cluster, "--files=2");
    let mounted = Mounted::start(&cluster, "p", &[]);
    let file = fs::File::create(mounted.path("f")).expect("a new file");
    for stripe in 0..3 {
        let bytes = pattern(STRIPE, stripe);
        file.write_all_at(&bytes, stripe * STRIPE as u64)
            .expect("there is room");
    }
    let space = rustix::fs::statvfs(mounted.path("f")).expect("it is mounted");
    assert_eq!(space.f_blocks * space.f_frsize, 4 * STRIPE as u64);
    assert_eq!(space.f_bavail * space.f_frsize, STRIPE as u64);
    assert_eq!((space.f_files, space.f_ffree), (2, 1));

    let last = file.write_all_at(&pattern(STRIPE, 9), 5 * STRIPE as u64);
    last.expect("there is room for one more");
    let refused = file.write_all_at(b"more", 9 * STRIPE as u64);
    let refused = refused
        .and_then(|()| file.sync_all())
        .expect_err("the quota is full");
    assert_eq!(refused.raw_os_error(), Some(Errno::DQUOT.raw_os_error()));
    // A refused append, and a refused write that begins within the last stripe, leave the file as it is.
    let before = cluster.get("f");
    assert_eq!(before.len(), 6 * STRIPE);
    let mut log = fs::File::options()
        .append(true)
        .open(mounted.path("f"))
        .expect("it is there");
    let refused = log.write_all(b"more").expect_err("the quota is full");
    assert_eq!(refused.raw_os_error(), Some(Errno::DQUOT.raw_os_error()));
    assert!(cluster.get("f") == before, "nothing of it happened");
    // The kernel may hand over the part within the last stripe by itself.
    let part = match file.write_at(&[7; 100], 6 * STRIPE as u64 - 10) {
        Ok(part) => part,
        Err(refused) => {
            assert_eq!(refused.raw_os_error(), Some(Errno::DQUOT.raw_os_error()));
            0
        }
    };
    assert!(part == 0 || part == 10, "{part} bytes were written");
    let mut expected = before;
    expected[6 * STRIPE - 10..][..part].fill(7);
    assert!(cluster.get("f") == expected);
    file.write_all_at(b"over it", 2 * STRIPE as u64)
        .expect("an overwrite is not refused");
    fs::write(mounted.path("g"), b"").expect("the second file");
    let third = fs::write(mounted.path("h"), b"").expect_err("the third file");
    assert_eq!(third.raw_os_error(), Some(Errno::DQUOT.raw_os_error()));
}

/// A cluster without a quota of its pool, with a directory that may have this much below it.
fn with_directory(limits: &[&str]) -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=64KiB"]);
    cluster.run(&["mkdir", "d"]);
    cluster.run(&[&["quota", "d"], limits].concat());
    cluster
}

/// The bytes, and the files and directories, below the directory.
fn below(cluster: &TestCluster) -> (u64, u64) {
    let quota = &cluster.json(&["quota", "d"])["quota"];
    let number = |name: &str| quota[name].as_u64().expect("a number");
    (number("used_bytes"), number("used_files"))
}

/// Names stay on their side of the border of the directory's quota, and no other quota is below it.
fn refuse_names_across_the_border(cluster: &TestCluster) {
    cluster.put("outside", b"bytes");
    for command in [
        &["mv", "outside", "d/in"][..],
        &["mv", "d/below/a", "out"],
        &["ln", "outside", "d/in"],
        &["mv", "d/below", "out"],
        &["mv", "--exchange", "outside", "d/below/a"],
    ] {
        let refused = fails_on(cluster, command, 1);
        assert!(
            refused.contains("copy it there, then remove it here"),
            "{refused}"
        );
    }
    cluster.run(&["mv", "d", "e/d"]);
    cluster.run(&["mv", "e/d", "d"]);
    let refused = fails_on(cluster, &["quota", "d/below", "--files=1"], 2);
    assert!(
        refused.contains("only one of them can have a quota"),
        "{refused}"
    );
    assert!(refused.contains("DIRECTORY --remove"), "{refused}");
}

#[test]
fn a_directory_has_no_more_than_its_quota() {
    let cluster = with_directory(&["--bytes=600KiB", "--files=3"]);
    let event = "quota of directory d: at most 614400 bytes, at most 3 files";
    assert!(cluster.run(&["events"]).contains(event));
    let bytes = pattern(500 * KIB, 1);
    cluster.put("d/below/a", &bytes);
    assert_eq!(below(&cluster), (500 * KIB as u64, 2));
    let source = cluster.path("source");
    fs::write(&source, pattern(200 * KIB, 2)).expect("a directory of the test");
    let source = path_text(&source).to_owned();
    for refused in [
        fails_on(&cluster, &["put", &source, "d/b"], 1),
        fails_on(&cluster, &["append", "d/below/a", &source], 1),
        fails_on(&cluster, &["truncate", "d/below/a", "--size=1MiB"], 1),
        put_stream(&cluster, "d/b", &pattern(200 * KIB, 2)).expect_err("there is no room"),
    ] {
        assert!(
            refused.contains("the files below 'd' have 512000 bytes"),
            "{refused}"
        );
    }
    assert!(cluster.get("d/below/a") == bytes);
    // What takes the place of as much is stored, and holes count.
    cluster.write("d/below/a", 100_000, b"in place");
    cluster.run(&["put", "--replace", &source, "d/below/a"]);
    cluster.run(&["truncate", "d/below/a", "--size=600KiB"]);
    assert_eq!(below(&cluster), (600 * KIB as u64, 2));
    cluster.run(&["mkdir", "d/last"]);
    let refused = fails_on(&cluster, &["mkdir", "d/more"], 1);
    assert!(
        refused.contains("as many files and directories below 'd' as its quota permits, 3"),
        "{refused}"
    );
    refuse_names_across_the_border(&cluster);
    // A copy with a hole gets its name below the directory, too.
    cluster.run(&["rmdir", "d/last"]);
    let shown = cluster.run(&["quota", "d", "--bytes=none"]);
    assert!(!shown.contains("no quota"), "{shown}");
    // With its last limit the quota goes, and so does the border.
    let shown = cluster.run(&["quota", "d", "--files=none"]);
    assert!(shown.contains("no quota counts d"), "{shown}");
    cluster.run(&["mv", "outside", "d/in"]);
    cluster.run(&["mv", "d/in", "outside"]);
    cluster.run(&["quota", "d", "--files=3"]);
    cluster.run(&["cp", "d/below/a", "d/below/copy"]);
    assert_eq!(below(&cluster), (1200 * KIB as u64, 3));
    let told = cluster.json(&["stat", "d/below/copy"]);
    assert_eq!(told["quota"]["directory"], "d");
    let told = cluster.json(&["df"]);
    assert_eq!(told["directories"][0]["quota_files"], 3);

    cluster.run(&["quota", "d", "--remove"]);
    assert!(cluster.json(&["quota", "d"])["quota"].is_null());
    cluster.run(&["mv", "outside", "d/in"]);
    cluster.run(&["quota", "d", "--files=4"]);
    assert_eq!(below(&cluster), (1200 * KIB as u64 + 5, 4));
}

#[test]
fn a_mount_keeps_the_quota_of_its_directory() {
    if !can_mount() {
        return;
    }
    let cluster = with_directory(&["--bytes=1MiB", "--files=4"]);
    let whole = Mounted::start(&cluster, "p", &[]);
    let mounted = Mounted::start(&cluster, "p:/d", &[]);
    let space = rustix::fs::statvfs(mounted.path("")).expect("it is mounted");
    assert_eq!(space.f_blocks * space.f_frsize, 1 << 20);
    assert_eq!((space.f_files, space.f_ffree), (4, 4));
    let space = rustix::fs::statvfs(whole.path("")).expect("it is mounted");
    assert!(space.f_blocks * space.f_frsize > 1 << 20);

    let errno = |error: std::io::Error| error.raw_os_error().map(Errno::from_raw_os_error);
    let file = mounted.path("f");
    fs::write(&file, pattern(900 * KIB, 1)).expect("there is room");
    let handle = fs::File::options()
        .write(true)
        .open(&file)
        .expect("it is there");
    let refused = handle.write_all_at(&pattern(300 * KIB, 2), 900 * KIB as u64);
    assert_eq!(refused.err().and_then(errno), Some(Errno::DQUOT));
    let refused = handle.set_len(2 << 20);
    assert_eq!(refused.err().and_then(errno), Some(Errno::DQUOT));
    handle.write_all_at(b"in place", 0).expect("no byte is new");
    let space = rustix::fs::statvfs(mounted.path("")).expect("it is mounted");
    assert!(space.f_bavail * space.f_frsize <= 124 * KIB as u64);
    assert_eq!(space.f_ffree, 3);
    // The kernel may have handed over a part of the write that was refused.
    handle.set_len(100).expect("it gets smaller");
    drop(handle);

    fs::write(whole.path("g"), "outside").expect("there is room");
    let refused = fs::rename(whole.path("g"), whole.path("d/g"));
    assert_eq!(refused.err().and_then(errno), Some(Errno::XDEV));
    let refused = fs::hard_link(whole.path("g"), whole.path("d/g"));
    assert_eq!(refused.err().and_then(errno), Some(Errno::XDEV));
    // So `mv` copies.
    let moved = std::process::Command::new("mv")
        .args([whole.path("g"), whole.path("d/g")])
        .status()
        .expect("it runs");
    assert!(moved.success());
    assert_eq!(
        fs::read(mounted.path("g")).expect("it is there"),
        b"outside"
    );
    assert!(!whole.path("g").exists());
    assert_eq!(below(&cluster).1, 2);
}
