//! A client that opened a file long ago reads it: it gets what others have written since, or an error, and
//! never what was there before, also where nodes still have old chunks.

// A failed unwrap is a failed test.
#![allow(clippy::unwrap_used)]

use crate::support::{TestCluster, pattern, wait_for};
use gabion_client::{Client, ClientOptions};
use gabion_layout::ByteRange;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CHUNK_BYTES: u64 = 64 << 10;
/// In chunk 0, far from the block that is damaged.
const WITHIN: ByteRange = ByteRange {
    offset: 20_000,
    length: 100,
};
/// From chunk 0 into chunk 1: one update of both.
const ACROSS: ByteRange = ByteRange {
    offset: CHUNK_BYTES - 50,
    length: 100,
};

async fn connect(cluster: &TestCluster) -> Client {
    let options = ClientOptions {
        deadline: Duration::from_mins(4),
        ..ClientOptions::default()
    };
    gabion_wire::connect(&cluster.coordinator(), cluster.security(), options)
        .await
        .unwrap()
}

/// The only file below a directory whose name ends so.
fn file_of(directory: &Path, end: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find_map(|path| {
        if path.is_dir() {
            file_of(&path, end)
        } else {
            path.to_str().unwrap().ends_with(end).then_some(path)
        }
    })
}

/// The node below whose directory a file lies.
fn node_of(file: &Path) -> String {
    let names: Vec<&str> = file.iter().map(|name| name.to_str().unwrap()).collect();
    let at = names.iter().position(|name| *name == "nodes").unwrap();
    names[at + 1].to_owned()
}

#[tokio::test]
async fn a_chunk_that_writes_leave_out_is_read_by_no_old_layout() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let before = pattern(4 * CHUNK_BYTES as usize, 1);
    cluster.put("disk", &before);
    let (reader, writer) = (connect(&cluster).await, connect(&cluster).await);
    let old = reader.open("disk").await.unwrap();
    let new = writer.open("disk").await.unwrap();
    let bytes_before = |range: ByteRange| &before[range.offset as usize..range.end() as usize];
    assert!(old.read(WITHIN).await.unwrap() == bytes_before(WITHIN));

    cluster.run(&["repair", "pause"]);
    let chunk = file_of(&cluster.path("cluster"), "-00").unwrap();
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(chunk)
        .unwrap();
    let mut byte = [0];
    // Its bytes begin behind two blocks of header and checksums.
    file.read_exact_at(&mut byte, 8192 + 100).unwrap();
    file.write_all_at(&[!byte[0]], 8192 + 100).unwrap();
    let damaged = ByteRange::new(90, 100);
    assert!(new.read(damaged).await.unwrap() == bytes_before(damaged));
    wait_for("the damage is known", || {
        cluster.json(&["cluster", "status"])["lost_chunks"] == 1
    });
    let (within, across) = (pattern(100, 7), pattern(100, 8));
    new.write(WITHIN.offset, within.clone().into())
        .await
        .unwrap();
    new.write(ACROSS.offset, across.clone().into())
        .await
        .unwrap();

    assert!(old.read(WITHIN).await.unwrap() == within);
    assert!(old.read(ACROSS).await.unwrap() == across);
    // Through the code, with the old layout: nothing of the stale chunk may go into the sum.
    let third = file_of(&cluster.path("cluster"), "-02").unwrap();
    cluster.run(&["chaos", "kill-node", &node_of(&third)]);
    let rebuilt = ByteRange::new(2 * CHUNK_BYTES + WITHIN.offset, 100);
    assert!(old.read(rebuilt).await.unwrap() == bytes_before(rebuilt));
    assert!(old.read(WITHIN).await.unwrap() == within);
}
