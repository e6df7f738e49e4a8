//! What a mount keeps of names and attributes ends when another client changes them, long before `attr_timeout`.

use crate::support::mount::{Mounted, can_mount};
use crate::support::{TestCluster, wait_for};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Longer than any test: what is seen before was not seen because of the timeout.
const AN_HOUR: [&str; 2] = ["-o", "attr_timeout=3600"];

fn cluster() -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=64KiB"]);
    cluster
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a new mode");
}

#[test]
fn names_attributes_and_bytes_that_another_mount_changes_are_soon_seen() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let [one, other] = [(); 2].map(|()| Mounted::start(&cluster, "p", &AN_HOUR));
    fs::create_dir(one.path("d")).expect("a new directory");
    for name in ["f", "d/removed", "d/renamed", "d/replaced", "new"] {
        fs::write(one.path(name), format!("{name} ")).expect("a new file");
    }
    fs::create_dir(one.path("d/gone")).expect("a new directory");
    let kept = ["d", "f", "d/removed", "d/renamed", "d/replaced", "d/gone"];
    for name in kept {
        assert!(other.path(name).exists(), "{name}");
    }
    // The kernel keeps the pages of a file that stays open, too.
    let open = File::open(other.path("f")).expect("it is there");
    let read = || {
        let mut bytes = [0; 16];
        let length = open.read_at(&mut bytes, 0).expect("a read");
        String::from_utf8(bytes[..length].to_vec()).expect("a text")
    };
    assert_eq!(read(), "f ");
    let replaced = fs::metadata(other.path("d/replaced")).expect("it is there");

    set_mode(&one.path("f"), 0o604);
    wait_for("the mode is seen", || mode(&other.path("f")) == 0o604);
    let mut longer = File::options().append(true).open(one.path("f"));
    let longer = longer.as_mut().expect("it is there");
    longer.write_all(b"and more").expect("a write");
    wait_for("the bytes are seen", || read() == "f and more");
    longer.set_len(3).expect("a new size");
    wait_for("the end is seen", || read() == "f a");
    fs::remove_file(one.path("d/removed")).expect("it is there");
    wait_for("it is gone", || !other.path("d/removed").exists());
    fs::rename(one.path("d/renamed"), one.path("d/again")).expect("a rename");
    wait_for("the old name is gone", || !other.path("d/renamed").exists());
    assert!(other.path("d/again").exists());
    fs::rename(one.path("new"), one.path("d/replaced")).expect("a rename");
    wait_for("another file has the name", || {
        let now = fs::metadata(other.path("d/replaced")).expect("it is there");
        now.ino() != replaced.ino()
    });
    fs::remove_dir(one.path("d/gone")).expect("it is empty");
    wait_for("it is gone", || !other.path("d/gone").exists());
    // Commands are clients as any other.
    cluster.run(&["rm", "d/again"]);
    wait_for("it is gone", || !other.path("d/again").exists());
}

#[test]
fn a_mount_follows_again_when_the_coordinator_is_back() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let [one, other] = [(); 2].map(|()| Mounted::start(&cluster, "p", &AN_HOUR));
    fs::write(one.path("f"), b"bytes").expect("a new file");
    assert!(other.path("f").exists());
    cluster.run(&["chaos", "kill-coordinator"]);
    cluster.up();
    // Each mount asks again within some seconds. Changes before that are not told.
    let mut next = 0;
    wait_for("a change is seen", || {
        next = (next + 1) % 0o100;
        set_mode(&one.path("f"), 0o600 + next);
        std::thread::sleep(std::time::Duration::from_millis(100));
        mode(&other.path("f")) == 0o600 + next
    });
}

/// The number of requests of a mount for an operation.
fn request_count(metrics: &str, operation: &str) -> u64 {
    let mut stream = TcpStream::connect(metrics).expect("metrics are served");
    let request = "GET /metrics HTTP/1.0\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let begin = format!("gabion_fuse_request_seconds_count{{operation=\"{operation}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&begin));
    count.map_or(0, |count| count.parse().expect("a number"))
}

#[test]
fn a_mount_keeps_what_it_has_changed_itself() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let metrics = listener.local_addr().expect("it has one").to_string();
    drop(listener);
    let option = format!("--metrics={metrics}");
    let one = Mounted::start(&cluster, "p", &[AN_HOUR[0], AN_HOUR[1], &option]);
    let other = Mounted::start(&cluster, "p", &AN_HOUR);
    fs::write(one.path("last"), b"").expect("a new file");
    let at = |file: u32| one.path(&format!("f{file}"));
    for file in 0..20 {
        fs::create_dir(at(file)).expect("a new directory");
        fs::rename(at(file), at(file + 100)).expect("a rename");
        fs::create_dir(at(file)).expect("a new directory");
        set_mode(&at(file), 0o700);
        assert_eq!(mode(&at(file)), 0o700);
    }
    // A later change of the other mount is told behind these.
    set_mode(&other.path("last"), 0o604);
    wait_for("the mode is seen", || mode(&one.path("last")) == 0o604);
    let before = ["lookup", "getattr"].map(|operation| request_count(&metrics, operation));
    for file in 0..20 {
        assert_eq!(mode(&at(file)), 0o700);
    }
    let after = ["lookup", "getattr"].map(|operation| request_count(&metrics, operation));
    // The parent's own attributes may be asked for once.
    assert!(
        after[0] == before[0] && after[1] <= before[1] + 1,
        "{before:?} {after:?}"
    );
}
