//! The metadata log of real coordinators: the disk of the metadata is lost, or an old copy is put in its place, under
//! load, and every acknowledged change is there again.

use crate::support::{Load, TestCluster, fails_on, path_text, pattern, wait_for};
use rustix::process::Signal;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A cluster with a metadata log beside its directory.
fn cluster(log: &str) -> TestCluster {
    let option = format!("--metadata-log={log}");
    let behaviour = ["--lease-ms=1500", "--grace-s=3600", &option];
    let cluster = TestCluster::start_with(3, 2, &behaviour);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=16KiB"]);
    cluster
}

/// Puts files one after another until the load is over, and notes each that was acknowledged.
fn put_files(cluster: &TestCluster, writer: u64, is_over: &AtomicBool, done: &Mutex<Vec<String>>) {
    for number in 0..1000 {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("file-{writer}-{number}");
        let bytes = pattern(5000, writer * 1000 + number);
        let child = cluster.start_with_input(&["put", "-", &name], &bytes);
        let output = child.wait_with_output().expect("the command ends");
        if output.status.success() {
            done.lock().expect("no panic").push(name);
        }
    }
}

/// Runs `fault` while files are put, and returns the names of those that were acknowledged.
fn under_load(cluster: &TestCluster, first_writer: u64, fault: impl FnOnce()) -> Vec<String> {
    let (is_over, done) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let _load = Load::until_dropped(&is_over);
        for writer in first_writer..first_writer + 3 {
            let (is_over, done) = (&is_over, &done);
            scope.spawn(move || put_files(cluster, writer, is_over, done));
        }
        let count = || done.lock().expect("no panic").len();
        wait_for("some files are acknowledged", || count() >= 6);
        fault();
    });
    done.into_inner().expect("no panic")
}

fn check(cluster: &TestCluster, names: &[String]) {
    for name in names {
        let mut numbers = name.split('-').skip(1).map(str::parse::<u64>);
        let mut next = || numbers.next().expect("a number").expect("a number");
        let seed = next() * 1000 + next();
        assert!(cluster.get(name) == pattern(5000, seed), "{name}");
    }
}

#[test]
fn a_coordinator_whose_disk_is_lost_goes_on_from_its_log() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let log = place.path().join("log");
    let log = path_text(&log);
    let cluster = cluster(log);
    let file = cluster.path("cluster/coordinator/metadata.redb");
    let target = format!("redb:{}", path_text(&file));
    let restore = ["metadata", "restore", "--from", log, "--to", &target];
    let error = fails_on(&cluster, &restore, 1);
    assert!(error.contains("already exists"), "{error}");
    let mut names = Vec::new();
    for round in 0..3 {
        let done = under_load(&cluster, round * 3, || {
            cluster.signal("coordinator", Signal::KILL);
            fs::remove_file(&file).expect("it was there");
        });
        names.extend(done);
        let error = fails_on(&cluster, &["cluster", "up"], 1);
        assert!(error.contains("metadata.redb is not there"), "{error}");
        let restored = cluster.json(&restore);
        assert!(restored["last"].as_u64() > Some(0), "{restored}");
        cluster.up();
        check(&cluster, &names);
    }
    let other = cluster.path("other.redb");
    let other = format!("redb:{}", path_text(&other));
    let in_use = ["metadata", "restore", "--from", log, "--to", &other];
    let error = fails_on(&cluster, &in_use, 1);
    assert!(error.contains("in use"), "{error}");
    let error = fails_on(
        &cluster,
        &["metadata", "restore", "--from=/proc/self", "--to", &other],
        1,
    );
    assert!(error.contains("no metadata log"), "{error}");
}

#[test]
fn an_old_copy_of_the_metadata_takes_over_what_the_log_has() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let log = place.path().join("log");
    let cluster = cluster(path_text(&log));
    let file = cluster.path("cluster/coordinator/metadata.redb");
    let copy = cluster.path("old-copy");
    let mut names = under_load(&cluster, 0, || {});
    cluster.run(&["cluster", "down"]);
    fs::copy(&file, &copy).expect("a copy");
    cluster.up();
    names.extend(under_load(&cluster, 3, || {}));
    cluster.signal("coordinator", Signal::KILL);
    cluster.run(&["cluster", "down"]);
    fs::copy(&copy, &file).expect("a copy");
    cluster.up();
    check(&cluster, &names);
    assert_eq!(cluster.json(&["cluster", "status"])["light"], "green");
}
