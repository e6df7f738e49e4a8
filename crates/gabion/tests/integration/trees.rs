//! Snapshots and clones of directories on clusters of real processes.

use crate::support::mount::{Mounted, can_mount};
use crate::support::rounds::Rounds;
use crate::support::{TestCluster, fails_on, path_text, pattern};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

/// Bytes of a stripe of these tests' pool.
const STRIPE: usize = 256 << 10;
/// Files that are written in turn.
const FILES: [&str; 3] = ["d/one", "d/below/two", "d/below/three"];

fn cluster() -> TestCluster {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    cluster
}

/// The round that each file shows below another directory.
fn rounds(cluster: &TestCluster, directory: &str) -> Vec<u64> {
    let round = |file: &&str| {
        let bytes = cluster.get(&file.replacen('d', directory, 1));
        u64::from_le_bytes(bytes[100..108].try_into().expect("8 bytes"))
    };
    FILES.iter().map(round).collect()
}

#[test]
fn a_snapshot_of_a_directory_has_all_writes_up_to_an_instant_and_none_behind_it() {
    let cluster = cluster();
    for file in FILES {
        cluster.put(file, &vec![0; STRIPE + 500]);
    }
    let load = Rounds {
        place_count: FILES.len(),
        write: |file, round: u64| cluster.write(FILES[file], 100, &round.to_le_bytes()),
        read: |directory: &str| rounds(&cluster, directory),
    };
    let (mut taken, done_count) = load.snapshots(&cluster, "d", 6);
    let last = rounds(&cluster, "d");
    assert_eq!(last.iter().sum::<u64>(), done_count);
    // In no order.
    for at in [3, 0] {
        let (name, _) = taken.remove(at);
        cluster.run(&["rm", "--prefix", &format!("{name}/")]);
        cluster.run(&["rmdir", &format!("{name}/below")]);
        cluster.run(&["rmdir", &name]);
        for (name, expected) in &taken {
            assert_eq!(&rounds(&cluster, name), expected, "{name}");
        }
    }
    assert_eq!(rounds(&cluster, "d"), last);
    cluster.assert_no_damage();
}

#[test]
fn a_clone_of_a_directory_is_written_and_its_snapshot_is_not() {
    let cluster = cluster();
    let large = pattern(STRIPE + 1000, 1);
    cluster.put("d/large", &large);
    cluster.put("d/below/small", b"inline bytes");
    cluster.run(&["ln", "d/large", "d/below/hard"]);
    cluster.run(&["ln", "--symbolic", "../large", "d/below/soft", "--pool=vm"]);
    cluster.run(&["mkdir", "d/empty"]);
    cluster.run(&["chmod", "640", "d/large"]);
    cluster.run(&["snapshot", "d", "kept/d@1"]);
    let made = cluster.json(&["clone", "kept/d@1", "copy"]);
    assert_eq!(
        (&made["directory"], &made["read_only"]),
        (&true.into(), &false.into())
    );
    cluster.write("d/large", 0, b"new in the original");
    cluster.write("copy/below/hard", 5, b"new in the clone");
    cluster.write("copy/below/small", 0, b"INLINE");
    let mut changed = large.clone();
    changed[5..21].copy_from_slice(b"new in the clone");
    assert!(cluster.get("copy/large") == changed, "one file, two names");
    assert!(cluster.get("kept/d@1/large") == large);
    assert!(cluster.get("kept/d@1/below/hard") == large);
    assert_eq!(cluster.get("kept/d@1/below/small"), b"inline bytes");
    assert_eq!(cluster.get("copy/below/small"), b"INLINE bytes");
    let stat = cluster.json(&["stat", "kept/d@1/below/hard"]);
    assert_eq!(
        (&stat["read_only"], &stat["names"]),
        (&true.into(), &2.into())
    );
    assert_eq!(stat["attributes"]["mode"], "0640", "{stat}");
    let directory = cluster.json(&["stat", "kept/d@1/empty"]);
    assert_eq!(directory["read_only"], true);
    let link = cluster.json(&["stat", "kept/d@1/below/soft"]);
    assert_eq!(link["symlink_to"], "../large");

    refuses_changes(&cluster);
    cluster.kill_all();
    cluster.up();
    assert!(cluster.get("kept/d@1/large") == large);
    cluster.run(&["rm", "--prefix", "d/"]);
    assert!(cluster.get("copy/below/hard") == changed);
}

/// A snapshot refuses changes, and lies neither below its directory nor over another one.
fn refuses_changes(cluster: &TestCluster) {
    let file = cluster.path("new");
    fs::write(&file, b"new bytes").expect("write a temporary file");
    let file = path_text(&file);
    let changes: [(&[&str], &str); 7] = [
        (&["put", file, "kept/d@1/new"], "directory of a snapshot"),
        (&["mkdir", "kept/d@1/below/new"], "directory of a snapshot"),
        (
            &["mv", "d/large", "kept/d@1/new"],
            "directory of a snapshot",
        ),
        (
            &["ln", "d/large", "kept/d@1/new"],
            "directory of a snapshot",
        ),
        (
            &["write", "kept/d@1/large", file, "--offset=3"],
            "is a snapshot",
        ),
        (
            &["snapshot", "d", "d/below/self"],
            "below the directory itself",
        ),
        (&["snapshot", "d", "copy"], "is a directory already"),
    ];
    for (change, why) in changes {
        // A name that cannot be is wrong use.
        let code = if why.starts_with("below") { 2 } else { 1 };
        let error = fails_on(cluster, change, code);
        assert!(error.contains(why), "{change:?}: {error}");
    }
}

#[test]
fn a_mount_shows_a_snapshot_of_a_directory_and_refuses_changes_in_it() {
    if !can_mount() {
        return;
    }
    let cluster = cluster();
    let mounted = Mounted::start(&cluster, "vm", &[]);
    let at = |name: &str| mounted.path(name);
    fs::create_dir_all(at("d/below")).expect("a new directory");
    fs::write(at("d/one"), pattern(STRIPE, 1)).expect("a new file");
    fs::write(at("d/below/two"), "small").expect("a new file");
    fs::hard_link(at("d/one"), at("d/below/hard")).expect("a new name");
    symlink("below/two", at("d/soft")).expect("a new link");
    fs::set_permissions(at("d/below"), fs::Permissions::from_mode(0o750)).expect("it is there");
    let old = fs::metadata(at("d/below")).expect("it is there");
    cluster.run(&["snapshot", "d", "d@1"]);
    fs::write(at("d/below/two"), "changed").expect("it is writable");
    assert_eq!(fs::read_to_string(at("d@1/soft")).expect("a file"), "small");
    let new = fs::metadata(at("d@1/below")).expect("it is made");
    let of = |meta: &fs::Metadata| (meta.mode(), meta.uid(), meta.mtime(), meta.mtime_nsec());
    assert_eq!(of(&old), of(&new));
    let (one, hard) = (
        fs::metadata(at("d@1/one")),
        fs::metadata(at("d@1/below/hard")),
    );
    let (one, hard) = (one.expect("it is made"), hard.expect("it is made"));
    assert_eq!((one.ino(), one.nlink()), (hard.ino(), 2));
    for refused in [
        fs::write(at("d@1/below/two"), "no"),
        fs::write(at("d@1/new"), "no"),
        fs::create_dir(at("d@1/below/new")),
        fs::rename(at("d/one"), at("d@1/new")),
        fs::rename(at("d@1/one"), at("d@1/other")),
        fs::hard_link(at("d/one"), at("d@1/new")),
        symlink("one", at("d@1/new")),
    ] {
        let number = refused.err().and_then(|error| error.raw_os_error());
        assert_eq!(number, Some(Errno::ROFS.raw_os_error()));
    }
    fs::remove_dir_all(at("d@1")).expect("a snapshot is removed as any directory");
    assert!(fs::read(at("d/one")).expect("it is there") == pattern(STRIPE, 1));
}
