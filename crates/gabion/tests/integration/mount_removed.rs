//! Removed files that a mount has open: any client may remove them and the coordinator may restart, and they stay until
//! they are closed. Their space is free when the mount closes them, ends or dies.

use crate::support::mount::{Mounted, can_mount};
use crate::support::{TestCluster, pattern, wait_for};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

const KIB: usize = 1024;

fn cluster() -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=64KiB"]);
    cluster
}

fn both(path: &Path) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true);
    options.open(path).expect("it is opened or made")
}

/// The files of the pool, those of them without names, and the bytes of all chunks and in the metadata.
fn used(cluster: &TestCluster) -> (u64, u64, u64) {
    let all = cluster.json(&["df"])["all"].clone();
    let number = |name: &str| all[name].as_u64().expect("a number");
    (
        number("files"),
        number("orphans"),
        number("raw_bytes") + number("inline_bytes"),
    )
}

/// What a program does with a removed file that it has open.
fn use_removed(file: &File, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    file.read_exact_at(&mut read, 0).expect("a read");
    assert!(read == bytes, "the bytes have changed");
    file.write_all_at(b"changed", 3).expect("a write");
    file.write_all_at(b"longer", bytes.len() as u64)
        .expect("a write at the end");
    file.sync_all().expect("a sync");
    let status = file.metadata().expect("it is open");
    assert_eq!((status.nlink(), status.len()), (0, bytes.len() as u64 + 6));
    file.set_len(10).expect("a new size");
    let mut read = [0; 10];
    file.read_exact_at(&mut read, 0).expect("a read");
    assert_eq!(&read[3..], b"changed");
    file.set_len(bytes.len() as u64).expect("a new size");
    file.write_all_at(bytes, 0).expect("a write");
}

#[test]
fn a_file_that_another_client_removes_goes_on_until_it_is_closed() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let [here, there] = [(); 2].map(|()| Mounted::start(&cluster, "p", &[]));
    let (large, small) = (pattern(900 * KIB, 1), pattern(100, 2));
    let ways: [(&str, &dyn Fn()); 4] = [
        ("unlinked", &|| {
            fs::remove_file(there.path("unlinked")).expect("it is there");
        }),
        ("replaced", &|| {
            fs::write(there.path("new"), b"new").expect("a new file");
            fs::rename(there.path("new"), there.path("replaced")).expect("a rename");
        }),
        ("removed", &|| {
            cluster.run(&["rm", "removed"]);
        }),
        ("own", &|| {
            fs::remove_file(here.path("own")).expect("it is there");
        }),
    ];
    for (name, remove) in ways {
        for bytes in [&large, &small] {
            let file = both(&here.path(name));
            (&file).write_all(bytes).expect("a write");
            remove();
            use_removed(&file, bytes);
            // A mount that has not opened the file finds nothing, or the new file.
            wait_for("the name is gone", || {
                there.path(name).exists() == (name == "replaced")
            });
            use_removed(&file, bytes);
            assert_eq!(used(&cluster).1, 1, "{name}");
            drop(file);
            if name == "replaced" {
                fs::remove_file(there.path(name)).expect("the new file");
            }
            wait_for("the space is free", || used(&cluster) == (0, 0, 0));
            wait_for("the name is free", || !here.path(name).exists());
        }
    }
}

#[test]
fn the_last_mount_that_has_a_removed_file_open_frees_it() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let [one, mut other] = [(); 2].map(|()| Mounted::start(&cluster, "p", &[]));
    let bytes = pattern(300 * KIB, 3);
    fs::write(one.path("f"), &bytes).expect("a new file");
    let [first, second] = [&one, &other].map(|mounted| both(&mounted.path("f")));
    cluster.run(&["rm", "f"]);
    use_removed(&first, &bytes);
    use_removed(&second, &bytes);
    drop(first);
    use_removed(&second, &bytes);
    assert_eq!(used(&cluster).1, 1);
    // An unmount closes what is open.
    other.signal(Signal::TERM);
    assert_eq!(other.wait(), Some(0));
    wait_for("the space is free", || used(&cluster) == (0, 0, 0));
    drop(second);
}

#[test]
fn a_mount_that_is_killed_frees_its_removed_files_within_its_lease() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mut mounted = Mounted::start(&cluster, "p", &[]);
    let kept = both(&mounted.path("kept"));
    let file = both(&mounted.path("f"));
    for file in [&kept, &file] {
        file.write_all_at(&pattern(300 * KIB, 4), 0)
            .expect("a write");
    }
    cluster.run(&["rm", "f"]);
    assert_eq!(used(&cluster).1, 1);
    mounted.signal(Signal::KILL);
    mounted.wait();
    wait_for("the space is free", || {
        let (files, orphans, _) = used(&cluster);
        (files, orphans) == (1, 0)
    });
    assert_eq!(cluster.get("kept").len(), 300 * KIB);
    // The kernel's handles keep the dead mount busy.
    drop((kept, file));
    assert!(mounted.unmount(&[]).status.success());
}

#[test]
fn a_coordinator_that_is_killed_loses_no_file_that_is_open() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let [here, there] = [(); 2].map(|()| Mounted::start(&cluster, "p", &[]));
    let bytes = pattern(300 * KIB, 5);
    let open = |name: &str| {
        let file = both(&here.path(name));
        file.write_all_at(&bytes, 0).expect("a write");
        file
    };
    let (before, after, closed) = (open("before"), open("after"), open("closed"));
    closed.sync_all().expect("a sync");
    cluster.run(&["rm", "before"]);
    cluster.run(&["chaos", "kill-coordinator"]);
    // The mount cannot tell it.
    drop(closed);
    cluster.up();
    // The coordinator does not know yet which files are open.
    fs::remove_file(there.path("after")).expect("it is there");
    cluster.run(&["rm", "closed"]);
    for _ in 0..2 {
        use_removed(&before, &bytes);
        use_removed(&after, &bytes);
        cluster.run(&["chaos", "kill-coordinator"]);
        cluster.up();
    }
    // The coordinator waits for reports first.
    wait_for("only open files stay", || used(&cluster).1 == 2);
    use_removed(&before, &bytes);
    use_removed(&after, &bytes);
    drop((before, after));
    wait_for("the space is free", || used(&cluster) == (0, 0, 0));
}

/// Has two files open, waits for a line, and writes to both. A process of its own: each process that this one starts
/// would close the files, for which the kernel asks the mount, and the mount is stopped.
const HOLDER: &str = r#"exec 3<>"$1" 4<>"$2"; echo open; read -r
printf late >&3; echo "first $?"; printf later >&4; echo "second $?""#;

#[test]
fn a_mount_that_is_cut_off_for_too_long_loses_removed_files_alone() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &[]);
    let bytes = pattern(300 * KIB, 6);
    for name in ["lost", "kept"] {
        fs::write(mounted.path(name), &bytes).expect("a write");
    }
    let mut holder = Command::new("bash")
        .args(["-c", HOLDER, "holder"])
        .args([mounted.path("lost"), mounted.path("kept")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bash is installed");
    let mut said = BufReader::new(holder.stdout.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says so");
    assert_eq!(line, "open\n");
    cluster.run(&["rm", "lost"]);
    assert_eq!(used(&cluster).1, 1);
    mounted.signal(Signal::STOP);
    wait_for("the file is gone", || used(&cluster).1 == 0);
    mounted.signal(Signal::CONT);
    drop(holder.stdin.take());
    let ended = holder.wait_with_output().expect("it ends");
    let mut answers = String::new();
    said.read_to_string(&mut answers).expect("its words");
    assert_eq!(answers, "first 1\nsecond 0\n");
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(error.contains("Stale file handle"), "{error}");
    assert_eq!(cluster.get("kept")[..5], *b"later");
}

#[test]
fn gathered_bytes_of_a_removed_file_are_stored_and_read_as_those_of_any_other() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "p", &["-o", "cache=16MiB"]);
    let bytes = pattern(700 * KIB, 7);
    for is_own in [true, false] {
        let file = both(&mounted.path("f"));
        file.write_all_at(&bytes[..300 * KIB], 0).expect("a write");
        if is_own {
            fs::remove_file(mounted.path("f")).expect("it is there");
        } else {
            cluster.run(&["rm", "f"]);
        }
        file.write_all_at(&bytes[300 * KIB..], 300 * KIB as u64)
            .expect("a write");
        file.sync_all().expect("a sync");
        let mut read = vec![0; bytes.len()];
        file.read_exact_at(&mut read, 0).expect("a read");
        assert!(read == bytes, "the bytes have changed");
        // What is gathered at the close needs the file until it is stored.
        file.write_all_at(&bytes, bytes.len() as u64)
            .expect("a write");
        drop(file);
        wait_for("the space is free", || used(&cluster) == (0, 0, 0));
    }
}
