//! Files that grow, shrink and have holes, on clusters of real processes.

use crate::support::writers::Draw;
use crate::support::{TestCluster, fails_on, pattern, wait_for};
use gabion_client::{ClientError, File};
use gabion_layout::ByteRange;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

const KIB: u64 = 1024;
/// Bytes of a stripe of these tests' pool.
const STRIPE: u64 = 64 * KIB;
/// Most bytes of the file that changes at random.
const SIZE_MAX: u64 = 12 * STRIPE;

fn cluster() -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=16KiB"]);
    cluster
}

fn stat(cluster: &TestCluster, name: &str, field: &str) -> u64 {
    let stat = cluster.json(&["stat", name]);
    stat[field].as_u64().expect("a number")
}

/// Puts a stream of unknown size.
fn put_stream(cluster: &TestCluster, name: &str, bytes: &[u8]) {
    let mut child = cluster.start_with_input(&["put", "-", name], bytes);
    let status = child.wait().expect("the child is ours");
    assert!(status.success(), "{name}: {} bytes", bytes.len());
}

#[test]
fn streams_of_any_size_are_stored_and_take_no_more_space_than_files() {
    let cluster = cluster();
    let (full, first) = (STRIPE as usize, 1 << 20);
    for (at, length) in [
        0,
        1,
        full - 1,
        full,
        first - 1,
        first,
        first + 1,
        3 * first + 5,
    ]
    .into_iter()
    .enumerate()
    {
        let (bytes, stream, file) = (
            pattern(length, at as u64),
            format!("stream{at}"),
            format!("file{at}"),
        );
        put_stream(&cluster, &stream, &bytes);
        cluster.put(&file, &bytes);
        assert!(cluster.get(&stream) == bytes, "{length} bytes");
        let chunks = |name: &str| {
            let stripes = cluster.json(&["stat", name])["stripes"].clone();
            let stripes = stripes.as_array().expect("a list").clone();
            let chunks = stripes.iter().map(|stripe| stripe["chunk_bytes"].as_u64());
            chunks.collect::<Vec<_>>()
        };
        assert_eq!(chunks(&stream), chunks(&file), "{length} bytes");
    }
    let usage = cluster.json(&["df"]);
    assert_eq!(usage["pools"][0]["files"], 16);
}

#[test]
fn a_killed_client_frees_the_space_of_its_put_and_a_slow_one_keeps_its_own() {
    // A put of unknown size reserves 1 MiB at first.
    const RESERVED: u64 = 1 << 20;
    let cluster = cluster();
    let bytes = pattern(300 << 10, 4);
    let start = |name: &str| {
        let mut command = cluster.command(&["put", "-", name]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("the binary runs");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin
            .write_all(&bytes)
            .expect("the command reads its stdin");
        (child, stdin)
    };
    let used = || {
        let quota = cluster.json(&["pool", "quota", "vm"]);
        quota["used_bytes"].as_u64().expect("a number")
    };
    let (mut slow, rest) = start("slow");
    wait_for("the slow put has its places", || used() == RESERVED);
    let (mut killed, _kept) = start("killed");
    wait_for("both have their places", || used() == 2 * RESERVED);
    killed.kill().expect("the child is ours");
    killed.wait().expect("the child is ours");
    // The lease of the killed client ends 30 s after its last renewal. The slow put is older, and still there.
    wait_for("one has lost its places", || used() == RESERVED);
    drop(rest);
    assert!(slow.wait().expect("the child is ours").success());
    assert!(cluster.get("slow") == bytes);
    let listed = cluster.json(&["ls"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
}

#[test]
fn a_file_that_the_kernel_makes_while_it_is_read_is_stored_whole() {
    let cluster = cluster();
    let version = fs::read("/proc/version").expect("Linux has it");
    assert!(!version.is_empty());
    cluster.run(&["put", "/proc/version", "version"]);
    assert_eq!(cluster.get("version"), version);
    cluster.run(&["append", "version", "/proc/version"]);
    assert_eq!(cluster.get("version"), version.repeat(2));
}

#[test]
fn a_stream_is_stored_as_replicated_blocks_too() {
    let cluster = TestCluster::start(4, 2);
    cluster.run(&[
        "pool",
        "create",
        "p",
        "--code=rs(4,2)",
        "--chunk=16KiB",
        "--write=replicate:3",
        "--encode-after=1h",
    ]);
    for (at, length) in [1, 16 * KIB, 40 * KIB, STRIPE, (1 << 20) + 70 * KIB]
        .into_iter()
        .enumerate()
    {
        let bytes = pattern(length as usize, at as u64);
        let name = format!("stream{at}");
        put_stream(&cluster, &name, &bytes);
        assert!(cluster.get(&name) == bytes, "{length} bytes");
    }
    let error = fails_on(&cluster, &["truncate", "stream0", "--size=0"], 1);
    assert!(error.contains("fixed sizes"), "{error}");
    let error = fails_on(&cluster, &["create", "sparse", "--size=1MiB"], 1);
    assert!(error.contains("fixed sizes"), "{error}");
    assert!(
        !cluster.run(&["ls"]).contains("sparse"),
        "nothing is left of it"
    );
}

#[test]
fn a_large_file_of_holes_takes_no_space_and_local_copies_have_holes_too() {
    let cluster = cluster();
    cluster.run(&["create", "disk", "--size=1TiB"]);
    assert_eq!(stat(&cluster, "disk", "hole_bytes"), 1 << 40);
    let (bytes, at) = (pattern(100_000, 1), 900 << 30);
    cluster.write("disk", at, &bytes);
    assert_eq!(stat(&cluster, "disk", "bytes"), 1 << 40);
    let stripes = cluster.json(&["stat", "disk"])["stripes"].clone();
    assert!(
        stripes.as_array().is_some_and(|s| s.len() <= 3),
        "{stripes}"
    );
    let size = format!("--size={}", (900_u64 << 30) + 50_000);
    cluster.run(&["truncate", "disk", &size]);
    let copy = cluster.path("copy");
    cluster.run(&["get", "disk", copy.to_str().expect("UTF-8")]);
    let metadata = std::fs::metadata(&copy).expect("the copy is there");
    assert_eq!(metadata.len(), (900 << 30) + 50_000);
    let taken = std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
    assert!(taken < 1 << 20, "{taken} bytes");
    cluster.run(&["mv", "disk", "moved"]);
    let command = ["get", "moved", "-", &format!("--offset={at}")];
    let output = cluster.output(&command);
    assert!(output.stdout == bytes[..50_000]);
    // Bytes that were cut off do not come back.
    cluster.run(&["truncate", "moved", "--size=1TiB"]);
    let command = [&command[..], &["--length=100000"]].concat();
    let output = cluster.output(&command);
    assert!(output.stdout[..50_000] == bytes[..50_000]);
    assert!(output.stdout[50_000..].iter().all(|&byte| byte == 0));
}

#[test]
fn wrong_sizes_are_refused_in_one_sentence() {
    let cluster = cluster();
    cluster.put("f", &pattern(1000, 1));
    let input = |arguments: &[&str]| {
        let mut command = cluster.command(arguments);
        command.stdin(Stdio::null());
        let output = command.output().expect("the command runs");
        let error = String::from_utf8(output.stderr).expect("text");
        (output.status.code(), error)
    };
    let (code, error) = input(&[
        "write",
        "f",
        "--offset=9223372036854775807",
        "/etc/hostname",
    ]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("at most 9223372036854775807"), "{error}");
    let error = fails_on(
        &cluster,
        &["truncate", "f", "--size=9223372036854775808"],
        2,
    );
    let words: Vec<_> = error.split_whitespace().collect();
    let sentence = words.join(" ");
    assert!(sentence.contains("at most 9223372036854775807 bytes"));
    let error = fails_on(&cluster, &["truncate", "g", "--size=1"], 1);
    assert!(error.contains("no file 'g'"), "{error}");
    let error = fails_on(&cluster, &["append", "f", "/"], 2);
    assert!(error.contains("is a directory"), "{error}");
    fails_on(&cluster, &["create", "f"], 1);
    fails_on(&cluster, &["punch", "f"], 2);
    cluster.run(&["punch", "f", "--offset=1000", "--length=1"]);
    let error = fails_on(&cluster, &["punch", "f", "--offset=1001", "--length=1"], 2);
    assert!(error.contains("f has 1000 bytes"), "{error}");
    let error = fails_on(&cluster, &["punch", "f", "--offset=0", "--length=0"], 2);
    assert!(error.contains("at least one byte"), "{error}");
    let error = fails_on(&cluster, &["cp", "f", "f"], 2);
    assert!(error.contains("the source itself"), "{error}");
    assert_eq!(stat(&cluster, "f", "bytes"), 1000, "nothing has changed");
}

#[test]
fn a_volume_is_stored_where_its_trace_touches_it() {
    let cluster = cluster();
    let trace = cluster.path("far.csv");
    let row = |at: u64, length: u64| {
        let offset = (1 << 50) + (at << 30);
        format!("128166372003061629,web,0,Write,{offset},{length},100\n")
    };
    let replay = |name: &str, rows: String| {
        std::fs::write(&trace, rows).expect("the trace is written");
        let trace = trace.to_str().expect("UTF-8").to_owned();
        let name = format!("--name={name}");
        ["lab", "replay", "--verify", "--trace", &trace, &name].map(str::to_owned)
    };
    // What is only read takes no space, and is zero.
    let read = row(1, 4096).replace("Write", "Read");
    let far = replay("far", row(0, 4096) + &read + &row(3, 512));
    let printed = cluster.run(&far.each_ref().map(String::as_str));
    assert!(printed.contains("4.5 KiB written"), "{printed}");
    let size = (1 << 50) + (3 << 30) + 512;
    assert_eq!(stat(&cluster, "far", "bytes"), size);
    assert_eq!(stat(&cluster, "far", "hole_bytes"), size - STRIPE - 512);
    let long = replay("long", (0..10_000).map(|at| row(at, 1 << 30)).collect());
    let error = fails_on(&cluster, &long.each_ref().map(String::as_str), 2);
    assert!(error.contains("are free there; fold the trace"), "{error}");
}

#[tokio::test]
async fn a_file_of_many_windows_is_read_written_and_cut_across_their_borders() {
    let cluster = TestCluster::start(3, 1);
    cluster.run(&["pool", "create", "small", "--code=rs(2,1)", "--chunk=4KiB"]);
    let client = cluster.client().await;
    // A look-up returns 512 stripes of 8 KiB.
    let (border, size) = (4 << 20, (4 << 20) + 200 * KIB);
    let mut model = pattern(size as usize, 1);
    cluster.put("f", &model);
    assert!(cluster.get("f") == model);
    let file = client.open("f").await.unwrap();
    for (at, length) in [(border - 3000, 6000), (border - 8 * KIB, 16 * KIB)] {
        let bytes = pattern(length as usize, at);
        file.write(at, bytes.clone().into()).await.unwrap();
        model[at as usize..(at + length) as usize].copy_from_slice(&bytes);
    }
    let hole = ByteRange::new(border - 20 * KIB, 40 * KIB);
    file.punch(hole).await.unwrap();
    model[hole.offset as usize..hole.end() as usize].fill(0);
    assert!(cluster.get("f") == model);
    let all = ByteRange::new(0, size);
    let stored = file.stored_within(all).await.unwrap();
    assert_eq!(stored.len(), 2, "the hole spans the border: {stored:?}");
    // Far behind the end, with windows between that have no stripe.
    let far = 1 << 40;
    file.write(far, pattern(5000, 2).into()).await.unwrap();
    let stat = client.stat("f").await.unwrap();
    assert_eq!(stat.layout.offsets.last(), Some(&far));
    assert_eq!(stat.layout.stripes.len(), stat.failures_left.len());
    assert!(file.read(all).await.unwrap() == model);
    file.truncate(border + 8 * KIB + 1).await.unwrap();
    file.truncate(border - 30 * KIB).await.unwrap();
    file.truncate(size).await.unwrap();
    model[(border - 30 * KIB) as usize..].fill(0);
    assert!(cluster.get("f") == model);
    let stored = file
        .stored_within(ByteRange::new(0, u64::MAX))
        .await
        .unwrap();
    assert!(stored.iter().all(|part| part.end() <= border), "{stored:?}");
}

#[test]
fn appends_of_many_writers_stay_whole() {
    let cluster = cluster();
    cluster.run(&["create", "log"]);
    let lines: Vec<Vec<u8>> = (0..12)
        .map(|at| pattern(5000 + 37 * at, at as u64))
        .collect();
    let children: Vec<_> = lines
        .iter()
        .map(|line| cluster.start_with_input(&["append", "log", "-", "--format=json"], line))
        .collect();
    for mut child in children {
        assert!(child.wait().expect("the child is ours").success());
    }
    let log = cluster.get("log");
    assert_eq!(log.len(), lines.iter().map(Vec::len).sum::<usize>());
    for line in lines {
        assert!(log.windows(line.len()).any(|part| part == line));
    }
}

/// A random change of the file, and of its model.
async fn step(
    dice: &mut Draw,
    file: &File,
    model: &mut Vec<u8>,
    seed: u64,
) -> Result<(), ClientError> {
    let size = model.len() as u64;
    let (offset, length) = (dice.below(SIZE_MAX), 1 + dice.below(2 * STRIPE));
    let bytes = pattern(length.min(SIZE_MAX - offset) as usize, seed);
    let end = offset as usize + bytes.len();
    match dice.below(8) {
        0 => {
            assert_eq!(file.append(bytes.clone().into()).await?, size);
            model.extend(bytes);
        }
        1 => {
            file.truncate(offset).await?;
            model.resize(offset as usize, 0);
        }
        2 => {
            let range = ByteRange::new(offset, length);
            file.punch(range).await?;
            let punched = offset.min(size)..(offset + length).min(size);
            model[punched.start as usize..punched.end as usize].fill(0);
        }
        3 => {
            file.grow(offset).await?;
            model.resize(model.len().max(offset as usize), 0);
        }
        kind => {
            if kind < 6 {
                file.write(offset, bytes.clone().into()).await?;
            } else {
                file.write_pieces(offset, bytes.clone().into()).await?;
            }
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&bytes);
        }
    }
    Ok(())
}

#[tokio::test]
async fn random_changes_do_what_a_vector_of_bytes_does() {
    let cluster = cluster();
    let (own, other) = (cluster.client().await, cluster.client().await);
    cluster.run(&["create", "f"]);
    let file = own.open("f").await.unwrap();
    // A handle of another client, which knows an old layout, sees the same.
    let old = other.open("f").await.unwrap();
    let (mut dice, mut model) = (Draw(7), Vec::new());
    for at in 0..150 {
        step(&mut dice, &file, &mut model, at).await.unwrap();
        if model.len() as u64 > 2 * SIZE_MAX {
            file.truncate(100).await.unwrap();
            model.truncate(100);
        }
        let all = ByteRange::new(0, model.len() as u64);
        let reader = if at % 2 == 0 { &file } else { &old };
        assert!(reader.read(all).await.unwrap() == model, "after step {at}");
        let stored = file.stored_within(all).await.unwrap();
        let mut zeros = model.clone();
        for part in stored {
            zeros[part.offset as usize..part.end() as usize].fill(0);
        }
        assert!(
            zeros.iter().all(|&byte| byte == 0),
            "after step {at}: a hole has bytes"
        );
        if at == 75 {
            cluster.kill_all();
            cluster.up();
        }
    }
    cluster.assert_no_damage();
}
