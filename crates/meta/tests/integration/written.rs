//! The stripes of which updates may be on their way: which they are, and that the search reads no more than them.

use crate::counted::Counted;
use crate::fixture::{cluster, cluster_in, membership, place, segments};
use gabion_layout::{Epoch, NodeId, StripeId};
use gabion_meta::{
    Existing, FileRecord, Holder, Inode, KeyValue, Lease, Meta, NewAttributes, PoolRecord, PutId,
    SnapshotError,
};
use std::collections::{BTreeMap, BTreeSet};

const NODE: Holder = Holder::Node {
    node: NodeId(0),
    incarnation: 1,
};

/// Stores a file of full stripes.
fn file<K: KeyValue>(
    meta: &Meta<K>,
    pool: &PoolRecord,
    name: &str,
    stripe_count: usize,
) -> FileRecord {
    let places = vec![place(0); stripe_count];
    let new = (name, Existing::Stays, NewAttributes::FILE);
    let put = meta.begin_put(new, pool.id, 4096 * stripe_count as u64, &places, 10);
    let put = put.expect("a free name").id;
    meta.commit_put(put, 20).expect("a free name")
}

/// Makes a node the primary of a stripe of a file.
fn lead<K: KeyValue>(meta: &Meta<K>, file: PutId, stripe: StripeId) -> Lease {
    let lease = meta.acquire_to_write((file, stripe), NODE, &membership(), 1000);
    lease.expect("no other process has it")
}

/// As the coordinator settles a stripe.
fn settle<K: KeyValue>(meta: &Meta<K>, stripe: StripeId) {
    let incarnation = meta.incarnation();
    let ours = Holder::Coordinator { incarnation };
    let lease = meta.acquire(stripe, ours, &membership(), 1000);
    let epoch = lease.expect("the coordinator gets all leases").epoch;
    assert_eq!(meta.release_settled(stripe, epoch), Ok(true));
}

fn unsettled<K: KeyValue>(meta: &Meta<K>, file: PutId) -> Vec<StripeId> {
    let none = BTreeMap::new();
    meta.unsettled(&[file], &none).expect("the store works")
}

/// The number of rows that a snapshot reads. The file has `stripe_count` stripes, and three of them have primaries.
fn rows_of_a_snapshot(stripe_count: usize) -> u64 {
    let (meta, pool) = cluster_in(Counted::default());
    let file = file(&meta, &pool, "f", stripe_count).put;
    let stripes = segments(&meta, &meta.file("f").expect("it is there"));
    let leases: Vec<Lease> = stripes[5..8]
        .iter()
        .map(|stripe| lead(&meta, file, *stripe))
        .collect();
    let terms = leases.iter().map(|lease| (lease.stripe, lease.epoch));
    let vouched: BTreeMap<_, _> = terms.collect();
    meta.store().take();
    let inode = Inode::File(file);
    let written = meta.check_snapshot(inode, "s", 7).expect("it can be");
    assert!(written.is_some_and(|written| written.contains_key(&file)));
    assert_eq!(meta.unsettled(&[file], &vouched), Ok(vec![]));
    let frozen = meta.freeze(&[file]).expect("it is there");
    assert_eq!(unsettled(&meta, file), stripes[5..8]);
    meta.snapshot((inode, &frozen), "s", true, (7, 30))
        .expect("it is frozen");
    meta.thaw(&[file]).expect("it is there");
    let row_count = meta.store().take();
    assert_eq!(unsettled(&meta, file), [], "its stripes are shared now");
    row_count
}

#[test]
fn a_snapshot_reads_as_many_rows_of_a_large_file_as_of_a_small_one() {
    let (small, large) = (rows_of_a_snapshot(10), rows_of_a_snapshot(500));
    assert!(large <= small, "{large} rows, not {small}");
}

#[test]
fn stripes_are_unsettled_from_the_first_update_in_place_until_they_are_settled() {
    let (meta, pool) = cluster();
    let file = file(&meta, &pool, "f", 3);
    let stripes = segments(&meta, &file);
    let stripe = stripes[1];
    // Its node needs the token before an update, and has not asked for it.
    let lease = meta.acquire(stripe, NODE, &membership(), 1000);
    assert!(lease.is_ok(), "{lease:?}");
    assert_eq!(unsettled(&meta, file.put), []);
    meta.token_to_update(file.put, stripe).expect("it may");
    assert_eq!(unsettled(&meta, file.put), [stripe]);
    let lease = lead(&meta, file.put, stripe);
    for (epoch, expected) in [
        (lease.epoch, vec![]),
        (Epoch(lease.epoch.0 - 1), vec![stripe]),
    ] {
        let vouched = BTreeMap::from([(stripe, epoch)]);
        assert_eq!(meta.unsettled(&[file.put], &vouched), Ok(expected));
    }
    assert_eq!(meta.release(stripe, lease.epoch), Ok(true));
    assert_eq!(unsettled(&meta, file.put), [stripe], "it was not settled");
    settle(&meta, stripe);
    assert_eq!(unsettled(&meta, file.put), []);
    assert_eq!(meta.check(), Ok(vec![]));
    lead(&meta, file.put, stripe);
    assert_eq!(
        unsettled(&meta, file.put),
        [stripe],
        "it has a primary again"
    );
    // A file that is gone has none, nor have its stripes.
    meta.remove_file("f", file.put, (0, 9))
        .expect("it is there");
    assert_eq!(unsettled(&meta, file.put), []);
    while meta.discard_removed(9).expect("the store works") {}
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_stripe_that_a_snapshot_shares_is_not_noted() {
    let (meta, pool) = cluster();
    let file = file(&meta, &pool, "f", 1);
    let stripe = segments(&meta, &file)[0];
    let frozen = meta.freeze(&[file.put]).expect("it is there");
    let source = (Inode::File(file.put), &frozen);
    meta.snapshot(source, "s", true, (3, 30))
        .expect("it is frozen");
    meta.thaw(&[file.put]).expect("it is there");
    lead(&meta, file.put, stripe);
    let shared = Err(SnapshotError::Shared(stripe).into());
    assert_eq!(meta.token_to_update(file.put, stripe), shared);
    assert_eq!(unsettled(&meta, file.put), []);
}

#[test]
fn a_search_of_many_stripes_finds_all_of_them() {
    let (meta, pool) = cluster();
    let names = ["a", "b", "c", "d"];
    let files = names.map(|name| file(&meta, &pool, name, 450));
    let mut expected = BTreeSet::new();
    for file in &files {
        for stripe in segments(&meta, file) {
            lead(&meta, file.put, stripe);
            expected.insert(stripe);
        }
    }
    let files = files.map(|file| file.put);
    let found = meta.unsettled(&files, &BTreeMap::new()).expect("it works");
    assert_eq!(found.len(), expected.len(), "each once");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}
