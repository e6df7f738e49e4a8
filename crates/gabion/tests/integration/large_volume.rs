//! A volume of 1 TiB: writers overwrite places all over it while it is snapshotted, cloned, renamed and cut.

use crate::support::writers::Draw;
use crate::support::{TestCluster, fails_on, wait_for};
use bytes::Bytes;
use gabion_client::{Client, File};
use gabion_layout::ByteRange;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::task::block_in_place;

const TIB: u64 = 1 << 40;
const BLOCK: u64 = 4096;
const WRITER_COUNT: usize = 4;
/// Places of each writer.
const PLACE_COUNT: usize = 12;
const SNAPSHOT_COUNT: usize = 4;

/// A block of the volume that one writer overwrites with a growing number.
struct Place {
    offset: u64,
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

impl Place {
    /// The numbers that were acknowledged by now, and those that were begun.
    fn acknowledged(places: &[Self]) -> Vec<u64> {
        let all = places.iter();
        all.map(|place| place.acknowledged.load(Ordering::SeqCst))
            .collect()
    }

    fn begun(places: &[Self]) -> Vec<u64> {
        let all = places.iter();
        all.map(|place| place.begun.load(Ordering::SeqCst))
            .collect()
    }
}

/// Places in the lower half of the volume, each in a segment of its own.
fn places() -> Vec<Place> {
    let mut draw = Draw(2026);
    let mut offsets = std::collections::BTreeSet::new();
    while offsets.len() < WRITER_COUNT * PLACE_COUNT {
        offsets.insert(draw.below(TIB / 2 / (1 << 20)) << 20);
    }
    let place = |offset| Place {
        offset: offset + BLOCK,
        begun: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
    };
    offsets.into_iter().map(place).collect()
}

/// Overwrites a writer's places in turn until it is told to end.
async fn write(file: File, places: Arc<Vec<Place>>, writer: usize, ends: Arc<AtomicBool>) {
    let own = &places[writer * PLACE_COUNT..(writer + 1) * PLACE_COUNT];
    for number in 1.. {
        for place in own {
            place.begun.store(number, Ordering::SeqCst);
            let block = number.to_le_bytes().repeat(BLOCK as usize / 8);
            file.write(place.offset, Bytes::from(block))
                .await
                .expect("the cluster answers");
            place.acknowledged.store(number, Ordering::SeqCst);
            if ends.load(Ordering::SeqCst) {
                return;
            }
        }
    }
}

/// The numbers in the places of a file. Each block is whole.
async fn numbers(client: &Client, name: &str, places: &[Place]) -> Vec<u64> {
    let file = client.open(name).await.expect("the cluster answers");
    let mut numbers = Vec::new();
    for place in places {
        let block = file
            .read(ByteRange::new(place.offset, BLOCK))
            .await
            .expect("the cluster answers");
        let number = u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
        let whole = number.to_le_bytes().repeat(BLOCK as usize / 8);
        assert!(block == whole, "{name} at {}", place.offset);
        numbers.push(number);
    }
    numbers
}

/// Whether each number is at least the first one and at most the second.
fn are_between(numbers: &[u64], least: &[u64], most: &[u64]) -> bool {
    let limits = least.iter().zip(most);
    numbers
        .iter()
        .zip(limits)
        .all(|(number, (least, most))| (least..=most).contains(&number))
}

/// The name of a snapshot or clone, and the numbers that its places have at least and at most.
type Limits = (String, Vec<u64>, Vec<u64>);

/// Changes the volume as a whole while writers overwrite their places: snapshots and a clone, a rename, a truncation.
/// Ends when all places were written before and after that.
async fn change_under_writers(
    cluster: &TestCluster,
    disk: &File,
    places: &Arc<Vec<Place>>,
) -> Vec<Limits> {
    let ends = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITER_COUNT)
        .map(|writer| {
            let state = (disk.clone(), Arc::clone(places), Arc::clone(&ends));
            tokio::spawn(write(state.0, state.1, writer, state.2))
        })
        .collect();
    // Each place has a number, so that no later comparison is of holes alone.
    block_in_place(|| {
        let are_there = || !Place::acknowledged(places).contains(&0);
        wait_for("all places are written", are_there);
    });
    let mut limits = Vec::new();
    for number in 0..SNAPSHOT_COUNT {
        let least = Place::acknowledged(places);
        let (kind, name) = if number == 0 {
            ("clone", "copy")
        } else {
            ("snapshot", "kept")
        };
        block_in_place(|| {
            cluster.run(&[kind, "disk", &format!("{name}{number}")]);
        });
        limits.push((format!("{name}{number}"), least, Place::begun(places)));
    }
    block_in_place(|| {
        cluster.run(&["mv", "disk", "moved/volume"]);
        cluster.run(&["truncate", "moved/volume", "--size=512GiB"]);
        cluster.run(&["truncate", "moved/volume", "--size=1TiB"]);
    });
    // The writers go on after all of this.
    let after = Place::acknowledged(places);
    block_in_place(|| {
        let go_on = || {
            let now = Place::acknowledged(places);
            now.iter().zip(&after).all(|(now, then)| now > then)
        };
        wait_for("all places are written again", go_on);
    });
    ends.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.expect("it does not panic");
    }
    limits
}

/// Whether all bytes of a range are this one.
async fn has_only(byte: u8, file: &File, range: ByteRange) -> bool {
    let bytes = file.read(range).await.expect("the cluster answers");
    bytes.iter().all(|&found| found == byte)
}

/// Bytes of the disk below a directory.
fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry"));
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // A node has removed it.
        Err(_) => 0,
    });
    sizes.sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_of_a_tebibyte_is_changed_as_a_whole_while_it_is_written() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=16KiB"]);
    let before = disk_bytes(&cluster.path("cluster"));
    cluster.run(&["create", "disk", "--size=1TiB"]);
    let client = cluster.client().await;
    let disk = client.open("disk").await.expect("the cluster answers");
    assert_eq!(disk.size_bytes(), TIB);
    // Bytes of the upper half, which the truncation takes away.
    let upper = ByteRange::new(TIB - BLOCK, BLOCK);
    disk.write(upper.offset, Bytes::from(vec![7; BLOCK as usize]))
        .await
        .expect("the cluster answers");

    let places = Arc::new(places());
    let limits = change_under_writers(&cluster, &disk, &places).await;
    let final_numbers = numbers(&client, "moved/volume", &places).await;
    assert!(are_between(
        &final_numbers,
        &Place::acknowledged(&places),
        &Place::begun(&places)
    ));
    let cut = client
        .open("moved/volume")
        .await
        .expect("the cluster answers");
    assert_eq!(cut.size_bytes(), TIB);
    assert!(has_only(0, &cut, upper).await);
    for (name, least, most) in &limits {
        let found = numbers(&client, name, &places).await;
        assert!(are_between(&found, least, most), "{name}: {found:?}");
        let kept = client.open(name).await.expect("the cluster answers");
        assert!(has_only(7, &kept, upper).await, "{name}");
    }
    // The clone changes apart from the volume.
    let copy = client.open("copy0").await.expect("the cluster answers");
    let other = Bytes::from(vec![9; BLOCK as usize]);
    copy.write(places[0].offset, other)
        .await
        .expect("the cluster answers");
    assert_eq!(
        numbers(&client, "moved/volume", &places).await,
        final_numbers
    );
    drop((copy, cut, disk));

    // Some hundred segments of 64 KiB were written, each a few times anew for a snapshot.
    let taken = disk_bytes(&cluster.path("cluster")) - before;
    assert!(taken < 200 << 20, "{taken} bytes of the disk");
    cluster.run(&["rm", "kept2", "moved/volume", "copy0", "kept1"]);
    let found = numbers(&client, "kept3", &places).await;
    let (_, least, highest) = &limits[3];
    assert!(
        are_between(&found, least, highest),
        "it outlives what it shared stripes with"
    );
    let error = fails_on(&cluster, &["truncate", "kept3", "--size=1"], 1);
    assert!(error.contains("snapshot"), "{error}");
}
