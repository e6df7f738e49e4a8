//! Files through the kernel: a cluster of real processes, mounted once or twice.

use crate::support::mount::{Mounted, can_mount};
use crate::support::{TestCluster, complaint, fails, fails_on, path_text, pattern, text, wait_for};
use gabion_client::NewFile;
use rustix::fs::{CWD, RenameFlags, removexattr, renameat_with, setxattr};
use rustix::fs::{XattrFlags, getxattr, listxattr};
use rustix::io::Errno;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, SystemTime};

const MIB: usize = 1 << 20;

/// A cluster with a pool whose segments have 256 KiB.
pub(crate) fn cluster() -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=64KiB"]);
    cluster
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    names.map(|name| name.expect("a text")).collect()
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn files_directories_and_links_are_those_of_the_cluster() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    cluster.put("before", b"stored before");
    let mounted = Mounted::start(&cluster, "p", &[]);
    let at = |name: &str| mounted.path(name);
    assert_eq!(read(&at("before")), "stored before");

    let bytes = pattern(3 * MIB + 77, 1);
    fs::create_dir(at("d")).expect("a new directory");
    fs::write(at("d/big"), &bytes).expect("a new file");
    assert!(fs::read(at("d/big")).expect("it is there") == bytes);
    assert!(cluster.get("d/big") == bytes);
    let mut part = vec![0; 1000];
    let big = File::options().read(true).write(true).open(at("d/big"));
    let big = big.expect("it is there");
    big.write_all_at(b"in place", 700_000).expect("a write");
    big.read_exact_at(&mut part, 700_000).expect("a read");
    assert_eq!(&part[..8], b"in place");
    drop(big);

    fs::hard_link(at("before"), at("d/second")).expect("a new name");
    assert_eq!(fs::metadata(at("before")).expect("it is there").nlink(), 2);
    symlink("d/second", at("link")).expect("a new link");
    assert_eq!(
        fs::read_link(at("link")).expect("a link"),
        Path::new("d/second")
    );
    assert_eq!(read(&at("link")), "stored before");
    fs::rename(at("d"), at("e")).expect("a rename");
    assert_eq!(read(&at("e/second")), "stored before");
    fs::remove_file(at("before")).expect("it is there");
    assert_eq!(read(&at("e/second")), "stored before");
    assert_eq!(names(&at("")), set(["e", "link"]));
    assert_eq!(names(&at("e")), set(["big", "second"]));

    for (result, number) in [
        (fs::create_dir(at("e")), Errno::EXIST),
        (fs::remove_dir(at("e")), Errno::NOTEMPTY),
        (fs::remove_file(at("none")), Errno::NOENT),
        (fs::remove_dir(at("link")), Errno::NOTDIR),
        (fs::rename(at("link"), at("e")), Errno::ISDIR),
        (fs::create_dir(at("e/big/x")), Errno::NOTDIR),
        (fs::create_dir(at(&"n".repeat(256))), Errno::NAMETOOLONG),
        (fs::create_dir(at("a\nb")), Errno::INVAL),
        (File::create_new(at("e/big")).map(drop), Errno::EXIST),
    ] {
        assert_eq!(errno(result), Some(number.raw_os_error()));
    }
}

#[test]
fn two_names_are_exchanged_while_their_files_are_open() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &[]);
    let at = |name: &str| mounted.path(name);
    let exchange = |one: &str, other: &str| {
        let (one, other) = (at(one), at(other));
        renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)
    };
    fs::create_dir_all(at("d/below")).expect("a new directory");
    fs::write(at("blue"), "first").expect("a new file");
    fs::write(at("d/green"), "second").expect("a new file");
    fs::hard_link(at("blue"), at("also")).expect("a new name");
    symlink("d/green", at("link")).expect("a new link");
    let open = File::open(at("blue")).expect("it is there");

    exchange("blue", "d/green").expect("both are there");
    assert_eq!(
        (read(&at("blue")), read(&at("d/green"))),
        ("second".into(), "first".into())
    );
    assert_eq!(
        (read(&at("link")), read(&at("also"))),
        ("first".into(), "first".into())
    );
    let mut bytes = [0; 5];
    open.read_exact_at(&mut bytes, 0).expect("a read");
    assert_eq!(&bytes, b"first");
    exchange("also", "d/green").expect("two names of one file stay");
    assert_eq!(
        (read(&at("also")), read(&at("d/green"))),
        ("first".into(), "first".into())
    );
    exchange("blue", "link").expect("both are there");
    assert_eq!(
        fs::read_link(at("blue")).expect("a link"),
        Path::new("d/green")
    );
    exchange("d", "link").expect("both are there");
    assert_eq!(
        (read(&at("d")), read(&at("link/green"))),
        ("second".into(), "first".into())
    );
    assert_eq!(names(&at("link")), set(["below", "green"]));

    assert_eq!(exchange("d", "none"), Err(Errno::NOENT));
    assert_eq!(exchange("link", "link/below"), Err(Errno::INVAL));
    assert!(cluster.get("link/green") == b"first");
}

#[test]
fn modes_owners_times_and_attributes_are_kept() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &["-o", "attr_timeout=0"]);
    let file = mounted.path("f");
    fs::write(&file, b"bytes").expect("a new file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("a new mode");
    chown(&file, Some(7), Some(8)).expect("a new owner");
    let open = File::options()
        .write(true)
        .open(&file)
        .expect("it is there");
    open.write_all_at(b"B", 0).expect("a write");
    let then = SystemTime::UNIX_EPOCH - Duration::from_millis(2_700);
    let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
    open.set_times(times).expect("new times");
    drop(open);
    let known = fs::metadata(&file).expect("it is there");
    assert_eq!(
        (known.mode() & 0o7777, known.uid(), known.gid()),
        (0o640, 7, 8)
    );
    assert_eq!(
        known.modified().expect("a time"),
        then,
        "it is that of the process"
    );
    assert_eq!(known.accessed().expect("a time"), then);
    let stat = cluster.json(&["stat", "f"]);
    assert_eq!(stat["attributes"]["modified"], "1969-12-31T23:59:57.3Z");

    // A write in place, of which the cluster's metadata knows nothing, is told when the file is closed.
    let mut open = File::options()
        .write(true)
        .open(&file)
        .expect("it is there");
    open.write_all(b"C").expect("a write");
    let shown = open.metadata().and_then(|known| known.modified());
    assert!(shown.expect("a time") > SystemTime::UNIX_EPOCH);
    drop(open);
    let stat = cluster.json(&["stat", "f"]);
    let modified = stat["attributes"]["modified"].as_str().expect("a text");
    assert!(modified > "2000", "{modified}");

    setxattr(&file, "user.colour", b"red", XattrFlags::CREATE).expect("a new attribute");
    let again = setxattr(&file, "user.colour", b"blue", XattrFlags::CREATE);
    assert_eq!(again, Err(Errno::EXIST));
    let value = |name: &str| {
        let mut value = vec![0; 256];
        let length = getxattr(&file, name, &mut value)?;
        value.truncate(length);
        Ok::<_, Errno>(value)
    };
    assert_eq!(value("user.colour").as_deref(), Ok(&b"red"[..]));
    assert_eq!(value("user.gabion.pool").as_deref(), Ok(&b"p"[..]));
    assert_eq!(value("user.gabion.other"), Err(Errno::NODATA));
    let mut list = vec![0; 256];
    let length = listxattr(&file, &mut list).expect("a list");
    let all = "user.colour\0";
    assert_eq!(&list[..length], all.as_bytes());
    removexattr(&file, "user.colour").expect("it is there");
    assert_eq!(value("user.colour"), Err(Errno::NODATA));
    let own = setxattr(&file, "user.gabion.pool", b"q", XattrFlags::empty());
    assert_eq!(own, Err(Errno::PERM));
    let foreign = setxattr(&file, "trusted.x", b"q", XattrFlags::empty());
    assert_eq!(foreign, Err(Errno::OPNOTSUPP));
}

#[test]
fn an_attribute_shows_the_failures_that_a_file_survives_now() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &[]);
    let attribute = |name: &str, attribute: &str| {
        let mut value = vec![0; 100];
        let length = getxattr(mounted.path(name), attribute, &mut value)?;
        value.truncate(length);
        Ok::<_, Errno>(text(&value))
    };
    let left = |name: &str| attribute(name, "user.gabion.failures_left");
    fs::write(mounted.path("f"), [7; 5000]).expect("a new file");
    fs::write(mounted.path("empty"), b"").expect("a new file");
    fs::write(mounted.path("small"), b"bytes").expect("a new file");
    assert_eq!(left("f").as_deref(), Ok("2"));
    assert_eq!(left("empty"), Err(Errno::NODATA));
    assert_eq!(left("small"), Err(Errno::NODATA), "no stripe has its bytes");
    let layout = attribute("small", "user.gabion.layout");
    assert!(layout.is_ok_and(|layout| layout.ends_with("stripes=0 inline_bytes=5")));
    assert_eq!(left(""), Err(Errno::NODATA), "a directory");
    cluster.run(&["chaos", "kill-node", "3"]);
    cluster.wait_until_failed(&[3]);
    assert_eq!(left("f").as_deref(), Ok("1"));
}

#[test]
fn two_mounts_see_each_others_files_when_they_open_them() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let one = Mounted::start(&cluster, "p", &["-o", "attr_timeout=60"]);
    let other = Mounted::start(&cluster, "p:/", &["-o", "attr_timeout=60"]);
    fs::write(one.path("f"), b"first").expect("a new file");
    assert_eq!(read(&other.path("f")), "first");
    fs::write(one.path("f"), b"a longer second").expect("it is there");
    assert_eq!(read(&other.path("f")), "a longer second");
    let mut open = File::options().write(true).open(other.path("f"));
    let open = open.as_mut().expect("it is there");
    open.write_all(b"THE").expect("a write");
    assert_eq!(read(&one.path("f")), "THEonger second");
    open.set_len(4).expect("a new size");
    assert_eq!(read(&one.path("f")), "THEo");
}

#[test]
fn a_file_without_names_stays_for_its_handles() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &[]);
    let at = |name: &str| mounted.path(name);
    let open = |name: &str| {
        let options = || OpenOptions::new().read(true).write(true).clone();
        options().create(true).open(at(name)).expect("a file")
    };
    let in_cluster = || {
        let listed = cluster.json(&["ls"]);
        let rows = listed.as_array().expect("a list").iter();
        let names = rows.map(|row| row["name"].as_str().expect("a name").to_owned());
        names.collect::<BTreeSet<_>>()
    };
    fs::create_dir(at("d")).expect("a new directory");
    let mut removed = open("d/removed");
    removed.write_all(b"first").expect("a write");
    fs::remove_file(at("d/removed")).expect("it is there");
    assert_eq!(removed.metadata().expect("it is open").nlink(), 0);
    assert_eq!(names(&at("d")), set([]));
    assert!(!at("d/removed").exists());
    assert_eq!(in_cluster(), set([]));
    fs::remove_dir(at("d")).expect("it is empty");
    removed.write_all(b" and second").expect("a write");
    removed.set_len(10).expect("a new size");
    removed.rewind().expect("an offset");
    let mut bytes = String::new();
    removed.read_to_string(&mut bytes).expect("a read");
    assert_eq!(bytes, "first and ");

    let mut replaced = open("replaced");
    replaced.write_all(b"old").expect("a write");
    fs::write(at("new"), b"new").expect("a new file");
    fs::rename(at("new"), at("replaced")).expect("a rename");
    assert_eq!(read(&at("replaced")), "new");
    let mut old = [0; 3];
    replaced.read_exact_at(&mut old, 0).expect("a read");
    assert_eq!(&old, b"old");
    assert_eq!(names(&at("")), set(["replaced"]));

    assert_eq!(in_cluster(), set(["replaced"]));
    let count = |name: &str| cluster.json(&["df"])["all"][name].as_u64();
    assert_eq!((count("files"), count("orphans")), (Some(3), Some(2)));

    drop((removed, replaced));
    wait_for("the files are removed", || {
        (count("files"), count("orphans")) == (Some(1), Some(0))
    });
}

/// Runs two functions at the same time.
fn at_once<T: Send>(one: impl FnOnce() -> T + Send, other: impl FnOnce() -> T + Send) -> [T; 2] {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let one = scope.spawn(|| {
            start.wait();
            one()
        });
        start.wait();
        let other = other();
        [one.join().expect("it does not panic"), other]
    })
}

#[test]
fn names_that_go_at_the_same_time_leave_the_file_to_its_handles() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &["-o", "attr_timeout=0"]);
    let directories = [mounted.path("a"), mounted.path("b")];
    for directory in &directories {
        fs::create_dir(directory).expect("a new directory");
    }
    for round in 0..20 {
        let name = format!("f{round}");
        let [one, other] = directories
            .each_ref()
            .map(|directory| directory.join(&name));
        fs::write(&one, b"bytes").expect("a new file");
        fs::hard_link(&one, &other).expect("a new name");
        let open = File::open(&one).expect("it is there");
        if round % 2 == 0 {
            let removed = at_once(|| fs::remove_file(&one), || fs::remove_file(&other));
            assert!(removed.iter().all(Result::is_ok), "{removed:?}");
        } else {
            let new = directories
                .each_ref()
                .map(|directory| directory.join("new"));
            for new in &new {
                fs::write(new, b"other").expect("a new file");
            }
            let renamed = at_once(|| fs::rename(&new[0], &one), || fs::rename(&new[1], &other));
            assert!(renamed.iter().all(Result::is_ok), "{renamed:?}");
        }
        open.metadata()
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}

#[test]
fn handles_that_open_a_file_at_the_same_time_see_each_others_sizes() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &["-o", "attr_timeout=60"]);
    for round in 0..20 {
        let path = mounted.path(&format!("f{round}"));
        File::create_new(&path).expect("a new file");
        let open = || File::options().read(true).write(true).open(&path);
        let [one, other] = at_once(open, open).map(|open| open.expect("it is there"));
        for (written, read) in [(&one, &other), (&other, &one)] {
            let mut bytes = [0; 5];
            written.write_all_at(b"bytes", 0).expect("a write");
            let count = read.read_at(&mut bytes, 0).expect("a read");
            assert_eq!(&bytes[..count], b"bytes", "round {round}");
        }
    }
}

#[test]
fn the_time_of_a_write_neither_stays_nor_goes_back_because_of_another_mount() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    times_of_writes(&cluster, "p");
    // All bytes are in stripes, which change in place.
    let stripes = ["pool", "create", "s", "--code=rs(4,2)", "--inline=0"];
    cluster.run(&stripes);
    times_of_writes(&cluster, "s");
}

fn times_of_writes(cluster: &TestCluster, pool: &str) {
    let mounts = [(); 2].map(|()| Mounted::start(cluster, pool, &["-o", "attr_timeout=0"]));
    let [here, there] = mounts.each_ref().map(|mount| mount.path(pool));
    let modified = || {
        fs::metadata(&there)
            .and_then(|known| known.modified())
            .expect("a time")
    };
    let open = |path: &Path| File::options().write(true).open(path).expect("it is there");
    File::create_new(&here).expect("a new file");
    // This mount still takes it for empty when it writes.
    let empty = open(&here);
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let other = open(&there);
    other.write_all_at(b"bytes", 0).expect("a write");
    other.set_modified(then).expect("a new time");
    drop(other);
    assert_eq!(modified(), then);
    empty.write_all_at(b"B", 0).expect("a write");
    drop(empty);
    assert!(modified() > then, "the write has a time");

    let first = open(&here);
    first.write_all_at(b"first", 0).expect("a write");
    let second = open(&there);
    second.write_all_at(b"later", 0).expect("a write");
    drop(second);
    let later = modified();
    drop(first);
    assert!(modified() >= later, "the earlier write was told later");
}

#[test]
fn times_of_any_century_are_kept_and_none_ends_the_mount() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &[]);
    fs::write(mounted.path("f"), b"x").expect("a new file");
    let file = File::open(mounted.path("f")).expect("it is there");
    for seconds in [i64::MIN, -2, 0, 1 << 40, i64::MAX] {
        let time = rustix::fs::Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::futimens(&file, &times).expect("a time");
        let shown = file.metadata().expect("it is there");
        assert_eq!(shown.mtime(), seconds);
    }
    assert_eq!(read(&mounted.path("f")), "x", "the mount goes on");
}

#[test]
fn a_program_loses_its_set_id_bits_when_it_is_written() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &["-o", "allow_other"]);
    let program = mounted.path("program");
    for write in ["echo evil > $0", "echo evil >> $0", ": > $0"] {
        fs::write(&program, b"good").expect("a file");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).expect("a mode");
        // Another user, who may write it.
        let written = std::process::Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(["sh", "-c", write])
            .arg(&program)
            .status();
        assert!(written.expect("setpriv runs").success(), "{write}");
        let mode = fs::metadata(&program).expect("it is there").mode();
        assert_eq!(mode & 0o7777, 0o777, "{write}");
    }
}

#[test]
fn appends_of_two_mounts_lose_nothing() {
    const COUNT: usize = 100;
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounts = [0, 1].map(|_| Mounted::start(&cluster, "p", &[]));
    std::thread::scope(|scope| {
        for (mounted, letter) in mounts.iter().zip(["a", "b"]) {
            scope.spawn(move || {
                let mut options = OpenOptions::new();
                let log = options.append(true).create(true).open(mounted.path("log"));
                let mut log = log.expect("a log");
                for _ in 0..COUNT {
                    let line = letter.repeat(99) + "\n";
                    log.write_all(line.as_bytes()).expect("a write");
                }
            });
        }
    });
    let log = read(&mounts[0].path("log"));
    for letter in ["a", "b"] {
        let line = letter.repeat(99);
        assert_eq!(log.lines().filter(|one| *one == line).count(), COUNT);
    }
    assert_eq!(log.len(), 2 * COUNT * 100);
}

#[test]
fn a_listing_misses_nothing_while_its_entries_are_removed() {
    const COUNT: usize = 3_000;
    const KEPT_COUNT: usize = 500;
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &[]);
    let runtime = tokio::runtime::Runtime::new().expect("a run-time");
    let client = runtime.block_on(cluster.client());
    let all: Vec<String> = (0..COUNT).map(|number| format!("d/{number:05}")).collect();
    runtime
        .block_on(async {
            let made = all.iter().map(|name| client.create(NewFile::named(name)));
            futures::future::try_join_all(made).await
        })
        .expect("new files");
    let mut seen = BTreeSet::new();
    let mut batch = Vec::new();
    for entry in fs::read_dir(mounted.path("d")).expect("a directory") {
        let name = entry.expect("an entry").file_name();
        let name = name.into_string().expect("a text");
        assert!(seen.insert(name.clone()), "{name} comes twice");
        batch.push(name);
        if batch.len() < KEPT_COUNT {
            continue;
        }
        // A few through the kernel, and the others by another client, in the middle of the listing.
        for name in batch.drain(..10) {
            fs::remove_file(mounted.path("d").join(name)).expect("it is there");
        }
        runtime
            .block_on(async {
                let removed = batch.drain(..).map(|name| client.rm(format!("d/{name}")));
                futures::future::try_join_all(removed).await
            })
            .expect("they are there");
    }
    assert_eq!(seen.len(), COUNT);
    assert_eq!(names(&mounted.path("d")), set([]));
    fs::remove_dir(mounted.path("d")).expect("it is empty");
}

#[test]
fn a_mount_outlives_a_dead_node_and_a_restarted_coordinator() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &[]);
    let bytes = pattern(2 * MIB, 3);
    fs::write(mounted.path("f"), &bytes).expect("a new file");
    let open = File::options()
        .read(true)
        .write(true)
        .open(mounted.path("f"));
    let open = open.expect("it is there");
    cluster.run(&["chaos", "kill-node", "2"]);
    let mut found = vec![0; bytes.len()];
    open.read_exact_at(&mut found, 0)
        .expect("lost chunks are decoded");
    assert!(found == bytes);
    open.write_all_at(b"with a dead node", 5_000)
        .expect("a write");
    cluster.run(&["chaos", "kill-coordinator"]);
    let reader = std::thread::spawn({
        let path = mounted.path("f");
        move || fs::read(path)
    });
    cluster.up();
    let again = reader
        .join()
        .expect("it has ended")
        .expect("it is served again");
    assert_eq!(&again[5_000..5_016], b"with a dead node");
    assert!(again[5_016..] == bytes[5_016..] && again[..5_000] == bytes[..5_000]);
}

#[test]
fn a_read_only_mount_of_a_directory_shows_it_and_refuses_changes() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    cluster.put("a/b/f", b"bytes");
    let mounted = Mounted::start(&cluster, "p:/a/b", &["-o", "ro,_netdev,nofail"]);
    assert_eq!(names(&mounted.path("")), set(["f"]));
    assert_eq!(read(&mounted.path("f")), "bytes");
    for result in [
        fs::write(mounted.path("f"), b"x"),
        fs::create_dir(mounted.path("d")),
        fs::remove_file(mounted.path("f")),
    ] {
        assert_eq!(errno(result), Some(Errno::ROFS.raw_os_error()));
    }
}

#[test]
fn the_command_returns_when_the_mount_is_ready_and_unmounts_it() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = path_text(directory.path());
    for (arguments, code, words) in [
        (&["mount", "none", at] as &[&str], 1, "no pool 'none'"),
        (&["mount", "p:/none", at], 1, "no directory '/none'"),
        (&["mount", "p", "/none/at/all"], 1, "No such file"),
        (&["mount", "p", "/dev/null"], 1, "not a directory"),
        (&["mount", "p", at, "-o", "ro,bogus"], 2, "option 'bogus'"),
        (&["mount", "p:none", at], 2, "POOL:/path"),
        (&["umount", at], 2, "is not mounted by gabion"),
        (&["umount", "/proc"], 2, "is not mounted by gabion"),
    ] {
        let error = fails_on(&cluster, arguments, code);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    let said = cluster.run(&["mount", "p", at, "-o", "rw"]);
    assert_eq!(said, format!("ready {at}\n"));
    let second = fails_on(&cluster, &["mount", "p", at], 1);
    assert!(second.contains("already has a mount"), "{second}");
    let file = File::create_new(directory.path().join("f")).expect("a new file");
    let busy = fails(&["umount", at], 1);
    assert!(busy.contains("is busy"), "{busy}");
    drop(file);
    // The kernel has told the mount's process by then, which removes nothing else.
    cluster.run(&["umount", at]);
    assert!(names(directory.path()).is_empty());
    assert_eq!(cluster.get("f"), b"");
}

#[test]
fn the_helper_of_mount_serves_lines_of_fstab() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    cluster.put("d/f", b"bytes");
    let directory = cluster.path("mounted");
    fs::create_dir(&directory).expect("a new directory");
    let at = path_text(&directory);
    let helper = cluster.path("mount.fuse.gabion");
    symlink(env!("CARGO_BIN_EXE_gabion"), &helper).expect("a new link");
    let (coordinator, tls) = (
        cluster.coordinator(),
        cluster.path("cluster/coordinator/operator"),
    );
    let options = format!(
        "rw,_netdev,coordinator={coordinator},tls={}",
        path_text(&tls)
    );
    let mounted = Command::new(helper)
        .args(["p:/d", at, "-v", "-t", "fuse.gabion", "-o", &options])
        .output()
        .expect("the binary runs");
    assert!(mounted.status.success(), "{}", complaint(&mounted));
    assert_eq!(read(&directory.join("f")), "bytes");
    cluster.run(&["umount", at]);
}

#[test]
fn requests_are_counted_by_their_operations() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has one").to_string();
    drop(listener);
    let option = format!("--metrics={address}");
    let mounted = Mounted::start(&cluster, "p", &[&option]);
    fs::write(mounted.path("f"), b"bytes").expect("a new file");
    let refused = fs::create_dir(mounted.path("f"));
    assert_eq!(errno(refused), Some(Errno::EXIST.raw_os_error()));
    let mut stream = TcpStream::connect(&address).expect("metrics are served");
    let request = "GET /metrics HTTP/1.0\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    for expected in [
        "gabion_fuse_request_seconds_count{operation=\"create\"} 1\n",
        "gabion_fuse_request_seconds_count{operation=\"write\"} 1\n",
        "gabion_fuse_errors_total{operation=\"lookup\",error=\"ENOENT\"}",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_process_that_ends_unmounts_and_a_dead_one_is_unmounted() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mut ended = Mounted::start(&cluster, "p", &[]);
    let open = File::create_new(ended.path("f")).expect("a new file");
    fs::remove_file(ended.path("f")).expect("it is there");
    ended.signal(Signal::TERM);
    assert_eq!(ended.wait(), Some(0), "though a file is open");
    assert!(names(&ended.path("")).is_empty());
    wait_for("its removed file goes with it", || {
        cluster.json(&["df"])["all"]["files"].as_u64() == Some(0)
    });
    drop(open);

    let mut dead = Mounted::start(&cluster, "p", &[]);
    dead.signal(Signal::KILL);
    dead.wait();
    let refused = fs::read_dir(dead.path("")).expect_err("its process is dead");
    assert_eq!(refused.kind(), ErrorKind::NotConnected);
    let at = dead.path("");
    let error = fails_on(&cluster, &["mount", "p", path_text(&at)], 1);
    assert!(error.contains("process that has died"), "{error}");
    assert!(dead.unmount(&[]).status.success());
    assert!(names(&at).is_empty());
}
