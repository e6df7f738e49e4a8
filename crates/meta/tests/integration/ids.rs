//! Ids come from leased blocks: no transaction changes a row for them, none is used again, and metadata know which
//! stripes they have ever issued.

use crate::fixture::{cluster, one_file, place, segments};
use gabion_layout::StripeId;
use gabion_meta::{KeyValue, MemoryStore, Meta, PutId, Row, WallClock, WallTime};
use std::collections::BTreeSet;

/// The keys of the counters of leased ids.
const LEASES: [[u8; 2]; 3] = [[2, 2], [2, 3], [2, 8]];

fn reopened(store: MemoryStore) -> Meta<MemoryStore> {
    Meta::open(store, WallClock::stopped(WallTime::default())).expect("the cluster")
}

/// A store with the same rows, as an old copy has them.
fn copied(rows: &[Row]) -> MemoryStore {
    let copy = MemoryStore::new();
    copy.write(|txn| rows.iter().try_for_each(|(key, value)| txn.put(key, value)))
        .expect("an empty store");
    copy
}

/// The keys of rows that differ.
fn changed(before: &[Row], after: &[Row]) -> BTreeSet<Vec<u8>> {
    let before: BTreeSet<&Row> = before.iter().collect();
    let after: BTreeSet<&Row> = after.iter().collect();
    let differing = before.symmetric_difference(&after);
    differing.map(|(key, _)| key.clone()).collect()
}

#[test]
fn a_put_changes_no_row_for_its_ids() {
    let (meta, pool) = cluster();
    one_file(&meta, &pool, "a/b/first");
    let before = meta.store().rows();
    one_file(&meta, &pool, "c/d/second");
    let changed = changed(&before, &meta.store().rows());
    for lease in LEASES {
        assert!(!changed.contains(lease.as_slice()), "{lease:?}");
    }
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn no_id_is_used_again_after_a_restart() {
    let (mut meta, pool) = cluster();
    let (mut puts, mut stripes) = (BTreeSet::new(), BTreeSet::new());
    for run in 0..3 {
        for file in 0..3 {
            let file = one_file(&meta, &pool, &format!("{run}/{file}"));
            assert!(puts.last().is_none_or(|last: &PutId| *last < file.put));
            puts.insert(file.put);
            for stripe in segments(&meta, &file) {
                assert!(stripes.last().is_none_or(|last: &StripeId| *last < stripe));
                stripes.insert(stripe);
            }
        }
        meta = reopened(meta.into_store());
    }
    assert_eq!((puts.len(), stripes.len()), (9, 9));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_request_for_more_ids_than_a_block_has_gets_them() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f").put;
    let places = vec![place(0); 5_000];
    let put = meta.begin_conversion(file, pool.id, &places, 1);
    let put = put.expect("places");
    assert_eq!(put.stripes.len(), 5_000);
    assert!(meta.was_handed_out(put.stripes[4_999].id));
    assert!(!meta.was_handed_out(StripeId(put.stripes[4_999].id.0 + 1)));
}

#[test]
fn an_old_copy_does_not_take_leased_ids_for_issued_ones() {
    let (meta, pool) = cluster();
    let known = segments(&meta, &one_file(&meta, &pool, "known"))[0];
    let rows = meta.store().rows();
    let unknown = segments(&meta, &one_file(&meta, &pool, "unknown"))[0];
    assert!(meta.was_handed_out(known) && meta.was_handed_out(unknown));
    // Both ids are of one block, and the copy has its lease.
    let copy = reopened(copied(&rows));
    assert!(copy.was_handed_out(known));
    assert!(!copy.was_handed_out(unknown));
    let own = segments(&copy, &one_file(&copy, &pool, "own"))[0];
    assert!(copy.was_handed_out(own) && !copy.was_handed_out(unknown));
}

#[test]
fn a_reclaimed_stripe_was_issued_also_after_restarts() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let stripe = segments(&meta, &file)[0];
    meta.remove_file("f", file.put, (0, 1)).unwrap();
    assert_eq!(meta.discard_removed(9), Ok(false));
    assert_eq!(meta.reclaimed(stripe), Ok(true));
    let meta = reopened(reopened(meta.into_store()).into_store());
    assert!(meta.was_handed_out(stripe));
    assert!(!meta.was_handed_out(StripeId(stripe.0 + 1)));
}
