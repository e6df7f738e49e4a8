//! A disk that is full: new data is refused in plain words, and what is stored stays readable. The
//! full disk is a small memory file system, which only root may mount; without that right the test
//! says that it is skipped. The store's own tests fill a simulated disk at every operation.

use crate::support::nbd::{ImageServer, NBD_CLIENT, PYTHON, has_nbd_tools, tool};
use crate::support::{
    TestCluster, complaint, fails_on, gabion, path_text, pattern, text, wait_for,
};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const MIB: usize = 1 << 20;

/// A small mounted file system.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size_mib: usize) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={size_mib}m"), "tmpfs"])
            .arg(directory.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            println!("skipped: mounting a small file system needs root");
        }
        mounted.then_some(Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn used_mib(&self) -> u64 {
        self.measured_mib("used")
    }

    fn measured_mib(&self, column: &str) -> u64 {
        let mut df = Command::new("df");
        df.args(["--block-size=MiB", &format!("--output={column}")])
            .arg(self.path());
        let output = text(&df.output().expect("df runs").stdout);
        let figure = output.lines().last().expect("a line for the file system");
        let figure = figure.trim().trim_end_matches("MiB");
        figure.parse().expect("df prints a number")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let cluster = self.path().join("cluster");
        let _ = gabion(&["cluster", "down"])
            .env("GABION_DIR", cluster)
            .output();
        let _ = Command::new("umount").arg(self.path()).output();
    }
}

#[test]
fn a_full_disk_refuses_new_files_and_keeps_old_ones() {
    let Some(disk) = SmallDisk::mount(800) else {
        return;
    };
    let cluster = disk.path().join("cluster");
    let run = |arguments: &[&str]| {
        gabion(arguments)
            .env("GABION_DIR", &cluster)
            .output()
            .expect("the binary runs")
    };
    let succeeds = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(
            output.status.success(),
            "gabion {arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    succeeds(&["cluster", "up", "--racks=2", "--nodes-per-rack=2"]);
    succeeds(&["pool", "create", "vm", "--code=rs(2,2)", "--chunk=1MiB"]);
    let files = tempfile::tempdir().expect("a temporary directory");
    let (source, copy) = (files.path().join("source"), files.path().join("copy"));
    let bytes = pattern(30 * MIB, 5);
    fs::write(&source, &bytes).expect("write a temporary file");
    // Each file takes 90 MiB, a third of it reserved behind parity chunks, of a disk whose last 256 MiB
    // belong to the journals.
    let mut stored = Vec::new();
    let refused = loop {
        let name = format!("file-{}", stored.len());
        let output = run(&["put", path_text(&source), &name]);
        if !output.status.success() {
            break output;
        }
        stored.push(name);
        assert!(stored.len() < 10, "the disk never got full");
    };
    assert!(stored.len() >= 2);
    assert_eq!(refused.status.code(), Some(1));
    let sentence = complaint(&refused);
    assert!(sentence.contains("disk is full"), "{sentence}");
    assert_eq!(sentence.trim().lines().count(), 1, "{sentence}");
    let listed = succeeds(&["ls"]);
    assert!(
        !listed.contains(&format!("file-{} ", stored.len())),
        "{listed}"
    );
    for name in &stored {
        succeeds(&["get", name, path_text(&copy)]);
        assert!(
            fs::read(&copy).expect("get has made the file") == bytes,
            "{name}"
        );
    }
    let put_again = || run(&["put", path_text(&source), "later"]);
    // Two for one: the journals and the metadata have grown meanwhile.
    let remove = || drop(succeeds(&["rm", &stored[0], &stored[1]]));
    room_comes_back(&disk, remove, put_again);
    // A client of an image gets the error that guests know, and its reads go on.
    if has_nbd_tools() {
        succeeds(&["image", "create", "vm/disk", "--size=1GiB"]);
        let server = ImageServer::start_in(&cluster, &["vm/disk"]);
        tool(PYTHON, &[NBD_CLIENT, "full", &server.uri("vm/disk")]);
    }
}

#[test]
fn a_full_disk_of_the_metadata_refuses_what_takes_space_and_the_coordinator_goes_on() {
    let Some(disk) = SmallDisk::mount(128) else {
        return;
    };
    let cluster = TestCluster::start(2, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(2,2)", "--chunk=64KiB"]);
    cluster.run(&["cluster", "down"]);
    let directory = cluster.path("cluster/coordinator");
    let moved = disk.path().join("coordinator");
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(&directory).arg(&moved);
    assert!(copy.status().is_ok_and(|status| status.success()));
    fs::remove_dir_all(&directory).expect("it is there");
    std::os::unix::fs::symlink(&moved, &directory).expect("a link");
    cluster.up();
    let source = cluster.path("source");
    fs::write(&source, pattern(3000, 1)).expect("write a temporary file");
    let source = path_text(&source);
    for name in ["small", "kept"] {
        cluster.run(&["put", source, name]);
    }
    let filler = disk.path().join("filler");
    let left = usize::try_from(disk.measured_mib("avail")).expect("it fits");
    fs::write(&filler, vec![1; (left - 4) * MIB]).expect("there is room");
    // The coordinator looks at its disk once a second.
    let refused = || {
        let output = cluster.output(&["put", "--replace", source, "more"]);
        (!output.status.success()).then(|| complaint(&output))
    };
    let mut sentence = None;
    wait_for("a put is refused", || {
        sentence = refused();
        sentence.is_some()
    });
    let sentence = sentence.expect("it was waited for");
    let expected = "the disk of the metadata is full";
    assert!(sentence.contains(expected), "{sentence}");
    assert_eq!(sentence.trim().lines().count(), 1, "{sentence}");
    let error = fails_on(&cluster, &["snapshot", "kept", "kept-now"], 1);
    assert!(error.contains(expected), "{error}");
    // What is stored is read and removed.
    let copy = cluster.path("copy");
    cluster.run(&["get", "kept", path_text(&copy)]);
    assert!(fs::read(&copy).expect("get has made the file") == pattern(3000, 1));
    cluster.run(&["rm", "small"]);
    fs::remove_file(&filler).expect("it is there");
    wait_for("a put has room again", || refused().is_none());
}

/// The room of removed files can be taken again. A refused put leaves chunks for a moment, which take the room of the
/// next one, so each attempt waits for their end.
fn room_comes_back(disk: &SmallDisk, remove: impl Fn(), put: impl Fn() -> Output) {
    let used_before = disk.used_mib();
    remove();
    wait_for("the room of the deleted files is taken again", || {
        wait_for("no chunks are left but those of files", || {
            disk.used_mib() + 2 * 2 * 30 <= used_before
        });
        let output = put();
        // Printed if the test fails.
        println!("{} MiB: {}", disk.used_mib(), text(&output.stderr));
        output.status.success()
    });
}
