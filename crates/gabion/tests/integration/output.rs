//! Targets of a command's output: files, links, devices, FIFOs, pipes and a stdout that is full.

use crate::support::{TestCluster, fails, fails_on, gabion, path_text, pattern, run, text};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SYNTH: [&str; 4] = ["lab", "synth", "--volume", "wdev_1"];

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo").success());
}

/// Returns the output of a command, and the bytes that come out of a FIFO while it runs.
fn through_fifo(fifo: &Path, mut command: Command) -> (Output, Vec<u8>) {
    let path = fifo.to_owned();
    let reader = std::thread::spawn(move || fs::read(path).expect("read the FIFO"));
    let output = command.output().expect("the binary runs");
    (output, reader.join().expect("the reader ends"))
}

#[test]
fn get_writes_where_its_target_leads_and_destroys_nothing() {
    let cluster = TestCluster::start(2, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(2,2)", "--chunk=64KiB"]);
    let expected = pattern(300 << 10, 1);
    cluster.put("disk", &expected);
    let target = |name: &str| cluster.path(name);

    // A user's file beside the target stays, whatever it is called.
    fs::write(target("copy.part"), b"mine").unwrap();
    fs::write(target("copy"), b"old").unwrap();
    cluster.run(&["get", "disk", path_text(&target("copy"))]);
    assert!(fs::read(target("copy")).unwrap() == expected);
    assert_eq!(fs::read(target("copy.part")).unwrap(), b"mine");

    // A link stays a link.
    fs::write(target("real"), b"old").unwrap();
    symlink("real", target("link")).unwrap();
    cluster.run(&["get", "disk", path_text(&target("link"))]);
    assert!(fs::symlink_metadata(target("link")).unwrap().is_symlink());
    assert!(fs::read(target("real")).unwrap() == expected);
    symlink("nowhere", target("dangling")).unwrap();
    let error = fails_on(
        &cluster,
        &["get", "disk", path_text(&target("dangling"))],
        2,
    );
    assert!(error.contains("not there"), "{error}");

    // Devices and FIFOs are written and stay what they are.
    cluster.run(&["get", "disk", "/dev/null"]);
    assert!(
        fs::metadata("/dev/null")
            .unwrap()
            .file_type()
            .is_char_device()
    );
    make_fifo(&target("fifo"));
    let get = cluster.command(&["get", "disk", path_text(&target("fifo"))]);
    let (output, got) = through_fifo(&target("fifo"), get);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(got == expected);
    assert!(fs::metadata(target("fifo")).unwrap().file_type().is_fifo());

    for stdout in ["-", "/dev/stdout"] {
        let output = cluster.output(&["get", "disk", stdout]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(
            output.stdout == expected,
            "{stdout} gets the file and nothing else"
        );
    }

    let error = fails_on(&cluster, &["get", "disk", path_text(&target(""))], 2);
    assert!(error.contains("is a directory"), "{error}");
    let error = fails_on(&cluster, &["get", "disk", "/dev/full"], 1);
    assert!(error.contains("cannot write /dev/full"), "{error}");
    let left = fs::read_dir(target("")).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = left.filter(|name| name.starts_with(".gabion")).collect();
    assert!(left.is_empty(), "{left:?}");
    a_reader_may_leave(&cluster);
}

/// A reader that has seen enough ends the command without a word.
fn a_reader_may_leave(cluster: &TestCluster) {
    let pipe = format!(
        "'{}' get disk - | head -c 1000 | wc -c; echo ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_gabion")
    );
    let output = Command::new("bash")
        .args(["-c", &pipe])
        .env("GABION_DIR", cluster.path("cluster"))
        .output()
        .expect("bash runs");
    let said = text(&output.stdout);
    let said: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(said[0], "1000");
    assert!(["0", "141"].contains(&said[1]), "{said:?}");
    assert_eq!(text(&output.stderr), "");
}

/// Fails when a command prints a line that is wider than 100 characters, whether it succeeds or not.
fn check_columns(cluster: &TestCluster, arguments: &[&str]) {
    let output = cluster.output(arguments);
    for line in [text(&output.stdout), text(&output.stderr)]
        .concat()
        .lines()
    {
        let columns = line.chars().count();
        assert!(
            columns <= 100,
            "gabion {arguments:?} has {columns} columns:\n{line}"
        );
    }
}

#[test]
fn what_people_read_fits_in_100_columns() {
    let cluster = TestCluster::start(3, 4);
    let check = |line: &str| check_columns(&cluster, &line.split(' ').collect::<Vec<_>>());
    fs::write(cluster.path("bytes"), pattern(1 << 20, 1)).unwrap();
    let bytes = cluster.path("bytes");
    let put = |name: &str, pool: &str| {
        let pool = format!("--pool={pool}");
        cluster.run(&["put", path_text(&bytes), name, &pool]);
    };
    for pool in [
        "vm --survive 1-rack --chunk=64KiB",
        "late --update=cau --chunk=64KiB --code=rs(4,2) --survive=2-nodes --grouping=authors",
        "copies --write=replicate:3 --encode-after=1h --chunk=64KiB --code=rs(4,2)",
    ] {
        check(&format!("pool create {pool}"));
    }
    put("disk", "vm");
    put("late", "late");
    put("copied", "copies");
    cluster.write("late", 100, b"changed");
    for line in [
        "",
        "--help",
        "cluster up",
        "cluster up --lease-ms=12345",
        "cluster status",
        "cluster links",
        "pool ls",
        "pool encode copies",
        "pool promote copies",
        "ls",
        "stat disk",
        "stat nothing",
        "rm nothing",
        "plan show disk --repair 0:1",
        "plan show disk --update 4096:100",
        "repair limit --node=parsecs",
        "cluster up --inner=parsecs",
        "repair status",
        "repair limit --node=10MB --rack=20MB --total=30MB --p99-ms=50",
        "scrub",
        "node drain 99",
        "node accept 4",
        "chaos flip-bit 99",
        "get disk /nowhere/at/all",
        "put /nowhere/at/all disk",
        "pool create other --survive=3-racks",
        "pool create other --update=fo --reserve-bytes=1MiB",
        "pool create other --encode-after=1h",
        "chaos kill-node 5",
        "cluster status",
        "repair --watch",
        "repair status",
        "cluster status",
        "lab list",
    ] {
        check(line);
    }
    check_columns(&cluster, &[]);
}

#[test]
fn synth_writes_where_its_target_leads() {
    let directory = tempfile::tempdir().unwrap();
    let target = |name: &str| directory.path().join(name);
    let synth = |out: &str| {
        let mut all = SYNTH.to_vec();
        all.extend(["--out", out]);
        gabion(&all)
    };
    fs::write(target("trace.csv.part"), b"mine").unwrap();
    symlink("trace.csv", target("link")).unwrap();
    fs::write(target("trace.csv"), b"old").unwrap();
    assert!(
        synth(path_text(&target("link")))
            .output()
            .unwrap()
            .status
            .success()
    );
    let rows = fs::read(target("trace.csv")).unwrap();
    assert!(rows.len() > 1000);
    assert_eq!(fs::read(target("trace.csv.part")).unwrap(), b"mine");
    make_fifo(&target("fifo"));
    let (output, got) = through_fifo(&target("fifo"), synth(path_text(&target("fifo"))));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(got == rows);
    assert!(synth("-").output().unwrap().stdout == rows);
    let all = |out| [&SYNTH[..], &["--out", out]].concat();
    let error = fails(&all(path_text(directory.path())), 2);
    assert!(error.contains("is a directory"), "{error}");
    let error = fails(&all("/dev/full"), 1);
    assert!(error.contains("cannot write /dev/full"), "{error}");
}

#[test]
fn a_full_stdout_and_a_reader_that_has_gone_end_a_command_quietly() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for arguments in [
        &["--help"][..],
        &["lab", "list"],
        &["lab", "list", "--format=json"],
    ] {
        assert!(run(arguments).len() > 100);
        let output = gabion(arguments).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let error = text(&output.stderr);
        assert!(error.contains("cannot write stdout"), "{error}");
        assert_eq!(error.trim().lines().count(), 1, "{error}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = gabion(arguments);
        let output = command
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(141), "{arguments:?}");
        assert_eq!(text(&output.stderr), "");
    }
    let output = gabion(&["ls"]).stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "and stderr may be full too");
}
