//! Clients that cache segments, on clusters of real processes.

use crate::support::{TestCluster, pattern};
use gabion_client::{Client, ClientError, ClientOptions};
use gabion_layout::ByteRange;
use std::time::{Duration, Instant};

const KIB: usize = 1024;
/// Bytes of a stripe of these tests' pool.
const STRIPE: usize = 256 * KIB;

/// A cluster with a file of 2 1/2 stripes, and the file's bytes.
fn cluster_with_disk() -> (TestCluster, Vec<u8>) {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let bytes = pattern(2 * STRIPE + STRIPE / 2, 1);
    cluster.put("disk", &bytes);
    (cluster, bytes)
}

async fn connect(cluster: &TestCluster, deadline_s: u64) -> Client {
    let options = ClientOptions {
        cache_bytes: 4 << 20,
        deadline: Duration::from_secs(deadline_s),
        ..ClientOptions::default()
    };
    let coordinator = cluster.coordinator();
    let client = gabion_wire::connect(&coordinator, cluster.security(), options).await;
    client.expect("the coordinator answers")
}

fn range(offset: usize, length: usize) -> ByteRange {
    ByteRange::new(offset as u64, length as u64)
}

#[tokio::test]
async fn an_open_after_a_close_reads_the_written_bytes() {
    let (cluster, mut expected) = cluster_with_disk();
    let (writing, reading) = (connect(&cluster, 30).await, connect(&cluster, 30).await);
    let all = range(0, expected.len());
    let before = reading.open_cached("disk").await.unwrap();
    assert!(before.read(all).await.unwrap() == expected);

    // Many writes into one of the three stripes, each over the end of the one before.
    let file = writing.open_cached("disk").await.unwrap();
    for at in 0..40 {
        let (offset, new) = (at * 6000, pattern(7000, 100 + at as u64));
        expected[offset..offset + new.len()].copy_from_slice(&new);
        file.write(offset as u64, new.into()).await.unwrap();
    }
    assert_eq!(file.read(all).await.unwrap(), expected, "one's own writes");
    assert!(before.read(all).await.unwrap() != expected);
    file.close().await.unwrap();
    let counts = writing.cache_counts();
    assert_eq!((counts.update_count, counts.changed_bytes), (1, 0));
    assert_eq!((counts.write_count, counts.coalesced_write_count), (40, 39));

    let after = reading.open_cached("disk").await.unwrap();
    assert!(after.read(all).await.unwrap() == expected);
    let counts = reading.cache_counts();
    assert_eq!((counts.confirmed_count, counts.outdated_count), (2, 1));
    assert_eq!(counts.fetched_bytes as usize, expected.len() + STRIPE);

    // And it was durable when it was closed.
    cluster.kill_all();
    cluster.up();
    assert!(cluster.get("disk") == expected);
}

#[tokio::test]
async fn a_flush_that_fails_keeps_what_the_next_one_writes() {
    let (cluster, mut expected) = cluster_with_disk();
    let client = connect(&cluster, 2).await;
    let file = client.open_cached("disk").await.unwrap();
    for offset in [3, STRIPE + 5] {
        let new = pattern(1000, offset as u64);
        expected[offset..offset + 1000].copy_from_slice(&new);
        file.write(offset as u64, new.into()).await.unwrap();
    }
    cluster.kill_all();
    let error = file.flush().await.unwrap_err();
    assert!(
        matches!(error, ClientError::NotWrittenBack { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("stay in the cache"), "{error}");
    assert_eq!(client.cache_counts().changed_bytes, 2000);
    let kept = file.read(range(STRIPE + 5, 1000)).await.unwrap();
    assert!(kept == expected[STRIPE + 5..][..1000]);
    let error = file.close().await.unwrap_err();
    assert!(
        matches!(error, ClientError::NotWrittenBack { .. }),
        "{error}"
    );

    cluster.up();
    // The cluster may need more than this client's patience to be ready.
    let begun = Instant::now();
    while let Err(error) = client.flush_cache().await {
        assert!(begun.elapsed() < Duration::from_mins(4), "{error}");
    }
    assert_eq!(client.cache_counts().changed_bytes, 0);
    assert!(cluster.get("disk") == expected);
}

#[tokio::test]
async fn a_stripe_that_was_replaced_is_neither_served_nor_undone() {
    let (cluster, mut expected) = cluster_with_disk();
    let client = connect(&cluster, 30).await;
    let file = client.open_cached("disk").await.unwrap();
    let all = range(0, expected.len());
    file.read(all).await.unwrap();
    let ours = pattern(500, 3);
    file.write(STRIPE as u64 + 1000, ours.clone().into())
        .await
        .unwrap();
    // Another client writes over the border, so both stripes are written anew.
    let theirs = pattern(2000, 4);
    cluster.write("disk", STRIPE - 1000, &theirs);
    file.close().await.unwrap();
    expected[STRIPE - 1000..STRIPE + 1000].copy_from_slice(&theirs);
    expected[STRIPE + 1000..STRIPE + 1500].copy_from_slice(&ours);
    assert!(cluster.get("disk") == expected);
    let file = client.open_cached("disk").await.unwrap();
    assert!(file.read(all).await.unwrap() == expected);
}

#[tokio::test]
async fn changes_of_a_deleted_file_can_only_be_discarded() {
    let (cluster, _) = cluster_with_disk();
    let client = connect(&cluster, 2).await;
    let file = client.open_cached("disk").await.unwrap();
    file.write(7, vec![1; 300].into()).await.unwrap();
    cluster.run(&["rm", "disk"]);
    file.close().await.unwrap_err();
    // A file of the same name is another one, and has none of the changes.
    let expected = pattern(STRIPE, 9);
    cluster.put("disk", &expected);
    client.flush_cache().await.unwrap_err();
    let file = client.open_cached("disk").await.unwrap();
    assert!(file.read(range(0, STRIPE)).await.unwrap() == expected);
    assert_eq!(client.discard_changes("disk").await, 300);
    client.flush_cache().await.unwrap();
    file.close().await.unwrap();
    assert!(cluster.get("disk") == expected);
}
