//! Small files whose bytes are in the metadata, on clusters of real processes.

use crate::support::{Load, TestCluster, fails_on, pattern, wait_for};
use gabion_layout::ByteRange;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The usual limit of inline files.
const LIMIT: usize = 4096;

fn cluster() -> TestCluster {
    let cluster = TestCluster::start_with(3, 2, &["--lease-ms=1500"]);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=16KiB"]);
    cluster
}

/// The inline bytes of a file, and the number of its stripes.
fn place(cluster: &TestCluster, name: &str) -> (u64, usize) {
    let stat = cluster.json(&["stat", name]);
    let inline = stat["inline_bytes"].as_u64().expect("a number");
    (inline, stat["stripes"].as_array().expect("a list").len())
}

#[test]
fn files_up_to_the_limit_are_inline_and_larger_ones_in_stripes() {
    let cluster = cluster();
    let sizes = [0, 1, LIMIT - 1, LIMIT, LIMIT + 1];
    for (at, size) in sizes.into_iter().enumerate() {
        let (bytes, name) = (pattern(size, at as u64), format!("f{at}"));
        cluster.put(&name, &bytes);
        let expected = if size > LIMIT {
            (0, 1)
        } else {
            (size as u64, 0)
        };
        assert_eq!(place(&cluster, &name), expected, "{size} bytes");
        assert!(cluster.get(&name) == bytes, "{size} bytes");
    }
    let inline: u64 = [0, 1, LIMIT - 1, LIMIT]
        .map(|size| size as u64)
        .iter()
        .sum();
    let usage = cluster.json(&["df"]);
    assert_eq!(usage["pools"][0]["inline_bytes"], inline);
    let (quota, stripes) = (&usage["pools"][0]["quota"], 4 * 4096);
    assert_eq!(
        quota["used_bytes"].as_u64(),
        Some(inline + stripes),
        "{quota}"
    );
    assert!(
        cluster
            .run(&["stat", "f2"])
            .contains("as safe as the metadata")
    );
    assert_eq!(cluster.json(&["pool", "ls"])[0]["inline_bytes"], LIMIT);

    cluster.run(&[
        "pool",
        "create",
        "none",
        "--code=rs(4,2)",
        "--chunk=16KiB",
        "--inline=0",
    ]);
    let file = cluster.path("small");
    std::fs::write(&file, pattern(10, 9)).expect("a temporary file");
    let file = file.to_str().expect("UTF-8");
    cluster.run(&["put", file, "small", "--pool=none"]);
    assert_eq!(place(&cluster, "small"), (0, 1));
    let create = |options: &[&str]| {
        let command: Vec<&str> = ["pool", "create", "more"]
            .iter()
            .chain(options)
            .copied()
            .collect();
        fails_on(&cluster, &command, 2)
    };
    let error = create(&["--inline=17KiB"]);
    assert!(error.contains("at most 16 KiB"), "{error}");
    let error = create(&["--inline=1KiB", "--write=replicate:3"]);
    assert!(error.contains("omit --inline"), "{error}");
}

#[test]
fn a_small_file_is_changed_in_the_metadata_until_it_outgrows_them() {
    let cluster = cluster();
    let mut expected = pattern(1000, 1);
    cluster.put("f", &expected);
    let write = |expected: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        cluster.write("f", at, bytes);
        expected.resize(expected.len().max(at + bytes.len()), 0);
        expected[at..at + bytes.len()].copy_from_slice(bytes);
        assert!(
            cluster.get("f") == *expected,
            "{} bytes at {at}",
            bytes.len()
        );
    };
    write(&mut expected, 10, &pattern(50, 2));
    write(&mut expected, 1500, &pattern(100, 3));
    assert_eq!(place(&cluster, "f"), (1600, 0));
    cluster.run(&["snapshot", "f", "before"]);
    cluster.run(&["punch", "f", "--offset=0", "--length=20"]);
    expected[..20].fill(0);
    assert!(cluster.get("f") == expected);
    cluster.run(&["truncate", "f", "--size=1200"]);
    cluster.run(&["truncate", "f", "--size=1300"]);
    expected.truncate(1200);
    expected.resize(1300, 0);
    assert_eq!(place(&cluster, "f"), (1200, 0));
    assert!(cluster.get("f") == expected);
    let file = cluster.path("more");
    let more = pattern(4000, 4);
    std::fs::write(&file, &more).expect("a temporary file");
    cluster.run(&["append", "f", file.to_str().expect("UTF-8")]);
    expected.extend(&more);
    assert!(cluster.get("f") == expected);
    assert_eq!(place(&cluster, "f"), (0, 1));
    write(&mut expected, 100, &pattern(50, 5));
    // It is never inline again.
    cluster.run(&["truncate", "f", "--size=0"]);
    cluster.write("f", 0, b"small");
    assert_eq!(place(&cluster, "f"), (0, 1));
    assert_eq!(place(&cluster, "before"), (1600, 0));
    // A file that grows without bytes keeps its own, until it is written far from them.
    cluster.put("g", &pattern(10, 6));
    cluster.run(&["truncate", "g", "--size=10MiB"]);
    assert_eq!(place(&cluster, "g"), (10, 0));
    cluster.write("g", 9 << 20, b"far");
    let g = cluster.get("g");
    assert_eq!((place(&cluster, "g"), g.len()), ((0, 2), 10 << 20));
    assert!(g[..10] == pattern(10, 6) && g[9 << 20..][..3] == *b"far");
    let holes = g.iter().filter(|byte| **byte != 0).count();
    assert!(holes <= 13, "{holes} bytes are not zero");
}

/// A handle knows the windows that it has looked up, and a window from before the file had bytes.
#[tokio::test]
async fn a_handle_that_has_seen_an_empty_file_writes_far_behind_its_bytes() {
    let cluster = cluster();
    let client = cluster.client().await;
    // A look-up returns 512 segments of 64 KiB.
    let far = 1 << 30;
    for appends in [false, true] {
        let name = format!("far-{appends}");
        cluster.put(&name, b"");
        let file = client.open(&name).await.unwrap();
        file.write(0, pattern(100, 1).into()).await.unwrap();
        if appends {
            file.grow(far).await.unwrap();
            assert_eq!(file.append(pattern(100, 2).into()).await.unwrap(), far);
        } else {
            file.write(far, pattern(100, 2).into()).await.unwrap();
        }
        assert_eq!(place(&cluster, &name), (0, 2));
        let bytes = |offset| file.read(ByteRange::new(offset, 100));
        assert!(bytes(0).await.unwrap() == pattern(100, 1));
        assert!(bytes(far).await.unwrap() == pattern(100, 2));
        assert_eq!(file.size_bytes(), far + 100);
    }
}

#[test]
fn a_full_quota_leaves_small_files_as_they_are() {
    let cluster = cluster();
    cluster.put("f", &pattern(1000, 1));
    cluster.run(&["pool", "quota", "vm", "--bytes=1100"]);
    let source = cluster.path("source");
    std::fs::write(&source, pattern(200, 2)).expect("a temporary file");
    let source = source.to_str().expect("UTF-8");
    for command in [
        &["append", "f", source][..],
        &["put", source, "g"],
        &["clone", "f", "g"],
    ] {
        let error = fails_on(&cluster, command, 1);
        assert!(error.contains("quota"), "{error}");
    }
    assert!(cluster.get("f") == pattern(1000, 1), "no zeros at its end");
    assert_eq!(cluster.json(&["df"])["pools"][0]["files"], 1);
    cluster.write("f", 0, &pattern(1000, 3));
    cluster.run(&["pool", "quota", "vm", "--bytes=1200"]);
    cluster.run(&["append", "f", source]);
    assert_eq!(cluster.get("f").len(), 1200);
}

/// The bytes of a round's file.
fn bytes_of(writer: u64, round: u64) -> Vec<u8> {
    pattern(
        200 + (writer * 37 + round * 101) as usize % 3000,
        writer << 20 | round,
    )
}

#[test]
fn acknowledged_small_files_survive_kills_of_the_coordinator() {
    let cluster = cluster();
    // The round that each writer was told of last, and the one that it has asked for.
    let rounds: Mutex<BTreeMap<u64, (Option<u64>, u64)>> = Mutex::default();
    let is_over = AtomicBool::new(false);
    let replace = |writer: u64| {
        for round in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let acknowledged = rounds
                .lock()
                .expect("no panic")
                .get(&writer)
                .and_then(|known| known.0);
            rounds
                .lock()
                .expect("no panic")
                .insert(writer, (acknowledged, round));
            let name = format!("file-{writer}");
            let put = ["put", "-", &name, "--replace"];
            let child = cluster.start_with_input(&put, &bytes_of(writer, round));
            if child
                .wait_with_output()
                .expect("the command ends")
                .status
                .success()
            {
                rounds
                    .lock()
                    .expect("no panic")
                    .insert(writer, (Some(round), round));
            }
        }
    };
    let count = || -> u64 {
        let rounds = rounds.lock().expect("no panic");
        rounds.values().filter_map(|known| known.0).sum()
    };
    std::thread::scope(|scope| {
        let _load = Load::until_dropped(&is_over);
        for writer in 0..3 {
            let replace = &replace;
            scope.spawn(move || replace(writer));
        }
        for _ in 0..3 {
            let before = count();
            wait_for("some files are replaced", || count() >= before + 6);
            cluster.signal("coordinator", Signal::KILL);
            cluster.run(&["cluster", "up"]);
        }
        let before = count();
        wait_for("files are replaced again", || count() >= before + 3);
    });
    for (writer, (acknowledged, asked)) in rounds.into_inner().expect("no panic") {
        let found = cluster.get(&format!("file-{writer}"));
        let acknowledged = acknowledged.expect("each writer was told of one");
        let is_one = (acknowledged..=asked).any(|round| found == bytes_of(writer, round));
        assert!(is_one, "file-{writer} is none of {acknowledged} to {asked}");
        let stat: Value = cluster.json(&["stat", &format!("file-{writer}")]);
        assert_eq!(stat["stripes"].as_array().map(Vec::len), Some(0));
    }
}
