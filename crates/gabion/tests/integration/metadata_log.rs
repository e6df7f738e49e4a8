//! The metadata log of real coordinators: the disk of the metadata is lost, or an old copy is put in its place, under
//! load, and every acknowledged change is there again. Backups of the log are made under load, too.

use crate::support::{Load, TestCluster, fails, fails_on, path_text, pattern, wait_for};
use gabion_meta::{KeyValue as _, RedbStore, Row};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
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
    let wrong = cluster.path("cluster");
    for from in ["/proc/self", path_text(&wrong)] {
        let restore = ["metadata", "restore", "--from", from, "--to", &other];
        let error = fails_on(&cluster, &restore, 1);
        assert!(error.contains("no metadata log"), "{error}");
    }
    assert!(!wrong.join("lock").exists(), "it is no log's directory");
    assert!(!cluster.path("other.redb.unfinished").exists());
    let error = fails_on(
        &cluster,
        &["metadata", "restore", "--from", log, "--to=r.redb"],
        2,
    );
    assert!(error.contains("write redb:FILE"), "{error}");
    let error = fails(&["coordinator", "--data=x", "--metadata-log=x"], 2);
    assert!(error.contains("on another disk"), "{error}");
}

/// A copy of metadata that contradict themselves fails, and nothing is left of it.
fn refuse_to_copy_faults(cluster: &TestCluster, file: &Path, name: &str) {
    let faulty = cluster.path("faulty.redb");
    fs::copy(file, &faulty).expect("a copy");
    let store = RedbStore::open(&faulty).expect("the copy");
    let deleted = store.write(|txn| {
        let rows = txn.scan(b"", &[u8::MAX], usize::MAX)?;
        let mut names = rows
            .iter()
            .filter(|(key, _)| key.ends_with(name.as_bytes()));
        let (key, _) = names.next().expect("the file has a name");
        txn.delete(key)
    });
    deleted.expect("a change");
    drop(store);
    let from = format!("redb:{}", path_text(&faulty));
    let target = cluster.path("copy.redb");
    let to = format!("redb:{}", path_text(&target));
    let error = fails_on(
        cluster,
        &["metadata", "copy", "--from", &from, "--to", &to],
        1,
    );
    assert!(error.contains("inconsistent"), "{error}");
    assert!(!target.exists(), "a coordinator would take it for metadata");
    assert!(!cluster.path("copy.redb.unfinished").exists());
    let error = fails_on(
        cluster,
        &["metadata", "copy", "--from", &from, "--to=redb:no/such/f"],
        1,
    );
    assert!(
        error.contains("the directory no/such does not exist"),
        "{error}"
    );
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
    refuse_to_copy_faults(&cluster, &file, &names[0]);
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

/// The files of a backup whose names begin like this, and how many bytes they have.
fn files(directory: &Path, prefix: &str) -> (Vec<PathBuf>, u64) {
    let entries = fs::read_dir(directory).expect("the backup is there");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(prefix))
        })
        .collect();
    paths.sort();
    let lengths = paths.iter().map(|path| fs::metadata(path).expect("a file"));
    let bytes = lengths.map(|metadata| metadata.len()).sum();
    (paths, bytes)
}

/// Restores a log or a backup, checks its rows, and returns its last change and them.
fn restored(cluster: &TestCluster, from: &str, name: &str) -> (Value, Vec<Row>) {
    let file = cluster.path(name);
    let place = format!("redb:{}", path_text(&file));
    let done = cluster.json(&["metadata", "restore", "--from", from, "--to", &place]);
    cluster.run(&["metadata", "check", "--of", &place]);
    let store = RedbStore::open(&file).expect("the file was restored");
    let rows = store.read(|txn| txn.scan(b"", &[u8::MAX], usize::MAX));
    (done["last"].clone(), rows.expect("its rows"))
}

fn check_names(rows: &[Row], names: &[String]) {
    for name in names {
        let mut keys = rows.iter().map(|(key, _)| key);
        assert!(keys.any(|key| key.ends_with(name.as_bytes())), "{name}");
    }
}

#[test]
fn a_backup_that_is_made_under_load_is_restored() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (log, backup) = (place.path().join("log"), place.path().join("backup"));
    let cluster = cluster(path_text(&log));
    let command = [
        "metadata",
        "backup",
        "--from",
        path_text(&log),
        "--to",
        path_text(&backup),
    ];
    let mut names = under_load(&cluster, 0, || {});
    let mut first = Value::Null;
    let during = under_load(&cluster, 3, || first = cluster.json(&command));
    assert!(first["copied_bytes"].as_u64() > Some(0), "{first}");
    assert_eq!(first["digest"].as_str().map(str::len), Some(16), "{first}");
    let (last, rows) = restored(&cluster, path_text(&backup), "first.redb");
    assert_eq!(last, first["last"]);
    check_names(&rows, &names);
    names.extend(during);

    // The second one copies what is new.
    let (bases, _) = files(&backup, "base-");
    let inode = |path: &Path| fs::metadata(path).expect("a base").ino();
    let base = inode(&bases[0]);
    let (_, bytes) = files(&backup, "log-");
    names.extend(under_load(&cluster, 6, || {}));
    let second = cluster.json(&command);
    assert!(second["last"].as_u64() > first["last"].as_u64(), "{second}");
    let (_, more_bytes) = files(&backup, "log-");
    assert_eq!(second["copied_bytes"].as_u64(), Some(more_bytes - bytes));
    assert_eq!(files(&backup, "base-").0, bases);
    assert_eq!(inode(&bases[0]), base, "the base is not copied again");

    // The coordinator and its disks are gone, after the last backup.
    cluster.signal("coordinator", Signal::KILL);
    let target = format!("redb:{}", path_text(&cluster.path("whole.redb")));
    let restore = [
        "metadata",
        "restore",
        "--from",
        path_text(&log),
        "--to",
        &target,
    ];
    wait_for("the coordinator has ended", || {
        cluster.output(&restore).status.success()
    });
    let said = cluster.run(&command);
    assert!(said.contains("reaches change"), "{said}");
    let (last, rows) = restored(&cluster, path_text(&backup), "second.redb");
    let (end, expected) = restored(&cluster, path_text(&log), "log.redb");
    assert_eq!(last, end);
    assert!(rows == expected, "the backup has the rows of the log");
    check_names(&rows, &names);
    let again = cluster.json(&command);
    assert_eq!(again["copied_bytes"], 0, "{again}");
    replace_damaged_base(&cluster, &command, &bases[0]);
    refuse_other_directories(&cluster, &log, &backup);
    refuse_base_alone(&cluster, &backup);
}

/// A restore of a backup without its log files, which has no root directory. It leaves no file that looks restored.
fn refuse_base_alone(cluster: &TestCluster, backup: &Path) {
    let (alone, target) = (cluster.path("alone"), cluster.path("alone.redb"));
    fs::create_dir(&alone).expect("make a directory");
    let base = &files(backup, "base-").0[0];
    let name = base.file_name().expect("a name");
    fs::copy(base, alone.join(name)).expect("copy the base");
    let to = format!("redb:{}", path_text(&target));
    let arguments = [
        "metadata",
        "restore",
        "--from",
        path_text(&alone),
        "--to",
        &to,
    ];
    let error = fails(&arguments, 1);
    assert!(error.contains("the metadata is inconsistent"), "{error}");
    let left = fs::read_dir(cluster.path("")).expect("a directory");
    let names = left.map(|entry| entry.expect("an entry").file_name());
    let mut left = names.filter(|name| name.to_string_lossy().starts_with("alone.redb"));
    assert_eq!(left.next(), None);
}

/// A base of the backup is damaged: each run names it, and one with `--new-base` replaces it.
fn replace_damaged_base(cluster: &TestCluster, command: &[&str], base: &Path) {
    let whole = fs::read(base).expect("a base");
    let mut bad = whole.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    fs::write(base, bad).expect("damage the base");
    let error = fails_on(cluster, command, 1);
    let name = path_text(base);
    assert!(
        error.contains(&format!("{name} of the backup is damaged")),
        "{error}"
    );
    assert!(error.contains("--new-base"), "{error}");
    cluster.run(&[command, &["--new-base"]].concat());
    assert!(fs::read(base).expect("a base") == whole);
}

/// Backups at wrong places.
fn refuse_other_directories(cluster: &TestCluster, log: &Path, backup: &Path) {
    let inside = log.join("backup");
    let other = cluster.path("cluster");
    for (from, to, code, sentence) in [
        (log, &*inside, 2, "is in the directory of the metadata log"),
        (log, log, 2, "is in the directory of the metadata log"),
        (log, &*backup.join("sub"), 2, "which has another backup"),
        (&*other, backup, 1, "has no metadata log"),
        (log, &*other, 1, "is no backup of a metadata log"),
    ] {
        let (from, to) = (path_text(from), path_text(to));
        let arguments = ["metadata", "backup", "--from", from, "--to", to];
        let error = fails_on(cluster, &arguments, code);
        assert!(error.contains(sentence), "{error}");
    }
}
