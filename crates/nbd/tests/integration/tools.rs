//! Debian's NBD tools against the server: nbdinfo, nbdcopy, libnbd's Python, qemu-img, qemu-io and fio.

use crate::memory::SEGMENT;
use crate::serving::{SIZE, Serving};
use gabion_layout::ByteRange;
use gabion_nbd::Limits;
use std::path::Path;
use std::process::Output;
use tokio::process::Command;

/// Whether the machine has all of these tools.
pub(crate) fn has(tools: &[&str]) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |tool: &str| std::env::split_paths(&paths).any(|place| place.join(tool).exists());
    let missing: Vec<&str> = tools
        .iter()
        .copied()
        .filter(|tool| !is_there(tool))
        .collect();
    if !missing.is_empty() {
        println!(
            "skipped: {} not installed; the packages are libnbd-bin, python3-libnbd, nbd-client, qemu-utils and fio",
            missing.join(", ")
        );
    }
    missing.is_empty()
}

pub(crate) async fn output(tool: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(tool);
    command.args(arguments).kill_on_drop(true);
    command.output().await.expect("the tool runs")
}

/// Runs a tool, which must succeed, and gives its stdout.
pub(crate) async fn run(tool: &str, arguments: &[&str]) -> String {
    let output = output(tool, arguments).await;
    let (said, complaint) = (text(&output.stdout), text(&output.stderr));
    let status = output.status;
    assert!(
        status.success(),
        "{tool} {arguments:?}: {status}\n{said}\n{complaint}"
    );
    said
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn path_text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Bytes that differ everywhere and are the same in each run.
fn pattern(length: usize) -> Vec<u8> {
    let bytes = (0..length as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as u8);
    bytes.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdinfo_shows_the_exports_and_what_they_can() {
    if !has(&["nbdinfo"]) {
        return;
    }
    let serving = Serving::start(Limits::default()).await;
    for uri in [serving.tcp("vm/disk"), serving.unix("vm/disk")] {
        let said = run("nbdinfo", &[&uri]).await;
        for expected in [
            "newstyle-fixed without TLS, using structured packets",
            "export-size: 67108864",
            "base:allocation",
            "gabion:failures-left",
            "is_read_only: false",
            "can_cache: true",
            "can_df: true",
            "can_fast_zero: true",
            "can_flush: true",
            "can_fua: true",
            "can_multi_conn: true",
            "can_trim: true",
            "can_zero: true",
            "block_size_minimum: 1\n",
            "block_size_preferred: 4096",
            "block_size_maximum: 33554432",
        ] {
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
    let said = run("nbdinfo", &[&serving.tcp("vm/old")]).await;
    assert!(said.contains("is_read_only: true"), "{said}");
    assert!(said.contains("can_trim: false"), "{said}");
    let said = run("nbdinfo", &["--list", "--json", &serving.tcp("")]).await;
    assert!(
        said.contains("\"vm/disk\"") && said.contains("\"vm/old\""),
        "{said}"
    );
    for (export, expected) in [
        ("vm/none", "No such file or directory"),
        ("", "No such file or directory"),
        ("vm/broken", "Operation not supported"),
    ] {
        let refused = output("nbdinfo", &[&serving.tcp(export)]).await;
        assert!(!refused.status.success());
        let complaint = text(&refused.stderr);
        assert!(complaint.contains(expected), "{export}: {complaint}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdcopy_copies_both_ways_and_keeps_holes() {
    if !has(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    let serving = Serving::start(Limits::default()).await;
    let (source, copy) = (serving.path("source"), serving.path("copy"));
    let mut bytes = pattern(2 << 20);
    bytes.resize(SIZE as usize, 0);
    std::fs::write(&source, &bytes[..2 << 20]).expect("a file");
    let file = std::fs::OpenOptions::new().write(true).open(&source);
    file.and_then(|file| file.set_len(SIZE)).expect("a hole");
    for uri in [serving.tcp("vm/disk"), serving.unix("vm/disk")] {
        run(
            "nbdcopy",
            &["--destination-is-zero", path_text(&source), &uri],
        )
        .await;
        run("nbdcopy", &["--connections=4", &uri, path_text(&copy)]).await;
        assert!(std::fs::read(&copy).expect("a copy") == bytes);
    }
    let map = run("nbdinfo", &["--map", &serving.tcp("vm/disk")]).await;
    let words: Vec<&str> = map.split_whitespace().collect();
    let hole = (SIZE - (2 << 20)).to_string();
    let expected = [
        "0",
        "2097152",
        "0",
        "data",
        "2097152",
        &hole,
        "3",
        "hole,zero",
    ];
    assert_eq!(words, expected);
    let map = run(
        "nbdinfo",
        &["--map=gabion:failures-left", &serving.tcp("vm/disk")],
    )
    .await;
    assert!(map.starts_with("         0     2097152    2"), "{map}");
    // Holes of the source that must be zero become holes.
    run("nbdcopy", &[path_text(&source), &serving.tcp("vm/disk")]).await;
    let zeros = ByteRange::new(2 << 20, SEGMENT);
    assert!(serving.disk.bytes(zeros).iter().all(|&byte| byte == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libnbd_runs_each_command_and_gets_each_error() {
    let python = "/usr/bin/python3";
    if !has(&["nbdsh"]) {
        return;
    }
    let serving = Serving::start(Limits::default()).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/commands.py");
    let exports = ["vm/disk", "vm/old", "vm/odd"].map(|export| serving.unix(export));
    let [disk, old, odd] = &exports;
    let said = run(python, &[script, disk, old, odd]).await;
    assert!(said.ends_with("all commands done\n"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qemu_converts_checks_and_writes() {
    if !has(&["qemu-img", "qemu-io"]) {
        return;
    }
    let serving = Serving::start(Limits::default()).await;
    let (raw, qcow) = (serving.path("raw"), serving.path("qcow"));
    let (raw, qcow, uri) = (path_text(&raw), path_text(&qcow), serving.tcp("vm/disk"));
    std::fs::write(raw, pattern(SIZE as usize / 2)).expect("a file");
    let size = (SIZE / 2).to_string();
    run(
        "qemu-img",
        &["resize", "-q", "-f", "raw", raw, &(SIZE.to_string())],
    )
    .await;
    run(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", raw, &uri],
    )
    .await;
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", raw, &uri],
    )
    .await;
    // An image format on the export, with its own checks.
    run("qemu-img", &["create", "-q", "-f", "qcow2", qcow, &size]).await;
    let write = ["-f", "qcow2", "-c", "write -P 5 1M 3M", qcow];
    run("qemu-io", &write).await;
    run(
        "qemu-img",
        &["convert", "-n", "-f", "qcow2", "-O", "raw", qcow, &uri],
    )
    .await;
    let five = serving.disk.bytes(ByteRange::new(1 << 20, 3 << 20));
    assert!(five.iter().all(|&byte| byte == 5));
    run("qemu-img", &["create", "-q", "-f", "qcow2", &uri, &size]).await;
    let script = [
        "-f",
        "qcow2",
        "-c",
        "write -P 9 0 1M",
        "-c",
        "write -z 512k 64k",
        "-c",
        "discard 768k 128k",
        "-c",
        "write -P 1 -f 1M 4k",
        "-c",
        "flush",
        "-c",
        "read -P 9 0 512k",
        "-c",
        "read -P 0 512k 64k",
        "-c",
        "read -P 1 1M 4k",
        &uri,
    ];
    let said = run("qemu-io", &script).await;
    assert!(!said.contains("failed"), "{said}");
    let said = run("qemu-img", &["check", "-f", "qcow2", &uri]).await;
    assert!(said.contains("No errors"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fio_verifies_what_it_wrote() {
    if !has(&["fio"]) {
        return;
    }
    let serving = Serving::start(Limits::default()).await;
    let uri = format!("--uri={}", serving.unix("vm/disk"));
    let job = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bsrange=512-64k",
        "--offset=8M",
        "--size=16M",
        "--io_size=32M",
        "--iodepth=32",
        "--verify=crc32c",
        "--verify_fatal=1",
        // Its state would be a file in the working directory.
        "--verify_state_save=0",
        "--randseed=7",
    ];
    let said = run("fio", &job).await;
    assert!(said.contains("err= 0"), "{said}");
}
