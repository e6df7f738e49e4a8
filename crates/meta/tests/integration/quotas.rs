//! Quotas: no pool gets more than it may use, what gives back as much as it takes is never refused, and everything
//! that ends is counted no longer.

use crate::fixture::{
    cluster, cluster_with_lifecycle, discard_all, one_file, place, segments, take,
};
use gabion_layout::{StripeId, StripeRecord};
use gabion_meta::{
    Existing, FileRecord, Inode, Limit, MemoryStore, Meta, MetaError, NewAttributes, PoolRecord,
    PoolUse, Put, Quota, QuotaChange, QuotaError, Rewrite, SizeChange,
};

/// Data bytes of a segment of the fixture's pool.
const SEGMENT: u64 = 4096;

/// A cluster whose pool may use some segments.
fn limited(segment_count: u64) -> (Meta<MemoryStore>, PoolRecord) {
    let (meta, pool) = cluster();
    let change = QuotaChange {
        bytes: Some(Limit::AtMost(segment_count * SEGMENT)),
        files: None,
    };
    meta.set_quota("main", change).expect("the pool is there");
    (meta, pool)
}

fn begin(
    meta: &Meta<MemoryStore>,
    pool: &PoolRecord,
    name: &str,
    count: u64,
) -> Result<Put, MetaError> {
    let target = (name, Existing::IsReplaced, NewAttributes::FILE);
    let places = vec![place(0); count as usize];
    meta.begin_put(target, pool.id, count * SEGMENT, &places, 1)
}

fn limit_files(meta: &Meta<MemoryStore>, count: u64) {
    let change = QuotaChange {
        bytes: None,
        files: Some(Limit::AtMost(count)),
    };
    meta.set_quota("main", change).expect("the pool is there");
}

fn used(meta: &Meta<MemoryStore>, pool: &PoolRecord) -> (u64, u64) {
    assert_eq!(meta.check(), Ok(vec![]));
    let PoolUse { bytes, files } = meta.quota(pool.id).expect("the pool is there").1;
    assert_eq!(bytes % SEGMENT, 0);
    (bytes / SEGMENT, files)
}

/// Begins a change of a file that keeps its size, with the leases of the displaced stripes.
fn replace(
    meta: &Meta<MemoryStore>,
    file: &FileRecord,
    displaced: &[u64],
    offsets: &[u64],
) -> Result<Put, MetaError> {
    let (_, stripes) = meta.layout_of(file.put)?;
    let is_displaced = |(offset, _): &&(u64, StripeRecord)| displaced.contains(offset);
    let (places, old): (Vec<u64>, Vec<StripeId>) = stripes
        .iter()
        .filter(is_displaced)
        .map(|(offset, stripe)| (*offset, stripe.id))
        .unzip();
    let displaced = places.into_iter().zip(take(meta, &old)).collect();
    let rewrite = Rewrite {
        offsets: offsets.to_vec(),
        displaced,
        copied: Vec::new(),
        size: SizeChange::AtLeast(offsets.iter().max().map_or(0, |last| last + SEGMENT)),
        inline: None,
        token: meta.exclusive(file.put)?.token,
    };
    let places = vec![place(1); offsets.len()];
    meta.begin_replacement(file.put, &rewrite, &places, 5)
}

#[track_caller]
fn assert_full<T: std::fmt::Debug>(answer: Result<T, MetaError>, used: u64, more: u64) {
    match answer {
        Err(MetaError::Quota(QuotaError::Bytes {
            used: told,
            more: asked,
            ..
        })) => assert_eq!((told, asked), (used * SEGMENT, more * SEGMENT)),
        other => panic!("not refused for its bytes: {other:?}"),
    }
}

#[test]
fn open_puts_count_until_they_end() {
    let (meta, pool) = limited(3);
    let first = begin(&meta, &pool, "a", 2).expect("there is room");
    assert_full(begin(&meta, &pool, "b", 2), 2, 2);
    assert_eq!(used(&meta, &pool), (2, 0), "a refused put takes nothing");
    begin(&meta, &pool, "b", 1).expect("there is room for one more");
    assert_eq!(meta.abort_put(first.id), Ok(true));
    assert_eq!(used(&meta, &pool), (1, 0));
    let again = begin(&meta, &pool, "a", 2).expect("there is room again");
    meta.commit_put(again.id, 2).expect("a free name");
    assert_eq!(used(&meta, &pool), (3, 1));
}

#[test]
fn a_put_that_grows_is_refused_and_keeps_what_it_has() {
    let (meta, pool) = limited(3);
    let put = begin(&meta, &pool, "a", 2).expect("there is room");
    let extended = meta.extend_put(put.id, (0, 2), 4 * SEGMENT, &[place(0), place(0)], 2);
    assert_full(extended, 2, 2);
    let extended = meta.extend_put(put.id, (0, 2), 3 * SEGMENT, &[place(0)], 2);
    assert_eq!(extended.map(|(_, stripes)| stripes.len()), Ok(3));
    // The room that it gives back serves what it takes.
    let extended = meta.extend_put(put.id, (1, 1), 3 * SEGMENT, &[place(0), place(0)], 2);
    assert_eq!(extended.map(|(_, stripes)| stripes.len()), Ok(3));
    meta.commit_put(put.id, 3).expect("a free name");
    assert_eq!(used(&meta, &pool), (3, 1));
}

#[test]
fn a_stripe_that_takes_the_place_of_another_is_never_refused() {
    let (meta, pool) = limited(1);
    let file = one_file(&meta, &pool, "a");
    let lower = QuotaChange {
        bytes: Some(Limit::AtMost(1)),
        files: Some(Limit::AtMost(0)),
    };
    meta.set_quota("main", lower).expect("the pool is there");
    let old = segments(&meta, &file)[0];
    let put = replace(&meta, &file, &[0], &[0]).expect("it takes no more than it gives back");
    assert_eq!(
        used(&meta, &pool),
        (2, 1),
        "both are there until the commit"
    );
    meta.commit_replacement(put.id)
        .expect("nothing has changed");
    assert_eq!(used(&meta, &pool), (1, 1));
    let is_garbage = meta.reclaimed(old);
    assert_eq!(is_garbage, Ok(true), "no node serves it any more");
    let grown = replace(&meta, &file, &[0], &[0, SEGMENT]);
    assert_full(grown, 1, 1);
    assert_full(replace(&meta, &file, &[], &[SEGMENT]), 1, 1);
    let holed = replace(&meta, &file, &[0], &[]).expect("a hole takes nothing");
    meta.commit_replacement(holed.id)
        .expect("nothing has changed");
    assert_eq!(used(&meta, &pool), (0, 1));
}

#[test]
fn a_removed_file_gives_its_bytes_back_when_its_stripes_are_garbage() {
    let (meta, pool) = limited(1);
    let file = one_file(&meta, &pool, "a");
    meta.remove_file("a", file.put, (0, 3))
        .expect("it is there");
    assert_eq!(used(&meta, &pool), (1, 0));
    assert_full(begin(&meta, &pool, "b", 1), 1, 1);
    discard_all(&meta);
    assert_eq!(used(&meta, &pool), (0, 0));
    begin(&meta, &pool, "b", 1).expect("there is room again");
    assert_eq!(meta.file_of(file.put), Err(MetaError::FileGone(file.put)));
}

#[test]
fn files_are_counted_at_their_commit() {
    let (meta, pool) = cluster();
    limit_files(&meta, 1);
    let first = begin(&meta, &pool, "a", 1).expect("there is no file");
    let second = begin(&meta, &pool, "b", 1).expect("there is no file yet");
    meta.commit_put(first.id, 2).expect("it is the first");
    let full = MetaError::Quota(QuotaError::Files {
        pool: "main".to_owned(),
        limit: 1,
    });
    assert_eq!(meta.commit_put(second.id, 2), Err(full.clone()));
    assert_eq!(begin(&meta, &pool, "c", 1), Err(full.clone()));
    let attributes = NewAttributes::FILE;
    let link = meta.make_symlink("l", "a", (pool.id, attributes), (7, 3));
    assert_eq!(link, Err(full.clone()));
    let source = meta.file("a").expect("it is there").put;
    let tokens = meta.freeze(&[source]).expect("it is there");
    let refused = meta.snapshot((Inode::File(source), &tokens), "s", true, (8, 3));
    assert_eq!(refused, Err(full));
    meta.thaw(&[source]).expect("it is there");
    limit_files(&meta, 0);
    let over = begin(&meta, &pool, "a", 1).expect("it takes the place of a file");
    meta.commit_put(over.id, 4)
        .expect("it takes the place of a file");
    assert_eq!(used(&meta, &pool).1, 1);
    limit_files(&meta, 2);
    meta.commit_put(second.id, 5)
        .expect("the refused put is still open");
    assert_eq!(used(&meta, &pool).1, 2);
}

#[test]
fn a_file_counts_once_whatever_its_names() {
    let (meta, pool) = cluster();
    limit_files(&meta, 2);
    let file = one_file(&meta, &pool, "a");
    meta.link(file.put, (0, 1), "b").expect("a free name");
    meta.link(file.put, (1, 10), "c").expect("a free name");
    assert_eq!(used(&meta, &pool).1, 1);
    // Each put takes one of three names, so the other file stays.
    let late = begin(&meta, &pool, "c", 1).expect("there is room for one more");
    let over = begin(&meta, &pool, "b", 1).expect("there is room for one more");
    meta.commit_put(over.id, 2)
        .expect("there is room for one more");
    assert_eq!(used(&meta, &pool).1, 2);
    let refused = meta.commit_put(late.id, 3);
    assert!(matches!(refused, Err(MetaError::Quota(_))), "{refused:?}");
    meta.abort_put(late.id).expect("it is open");
    let put = meta.file("c").expect("it is there");
    meta.remove_file("c", put.put, (put.generation, 11))
        .expect("it is there");
    let attributes = NewAttributes::FILE;
    let link = |number| meta.make_symlink("l", "a", (pool.id, attributes), (number, 3));
    assert!(matches!(link(2), Err(MetaError::Quota(_))));
    let put = meta.file("a").expect("it is there");
    meta.remove_file("a", put.put, (put.generation, 3))
        .expect("it is there");
    link(4).expect("there is room again");
    assert_eq!(link(4), Ok(()), "a lost answer leads to a second request");
    assert_eq!(used(&meta, &pool).1, 2);
    let put = meta.file("l").expect("it is there");
    meta.remove_file("l", put.put, (put.generation, 5))
        .expect("it is there");
    assert_eq!(used(&meta, &pool).1, 1);
}

#[test]
fn space_of_removed_files_is_freed_for_a_request_that_needs_it() {
    let (meta, pool) = limited(1);
    let file = one_file(&meta, &pool, "a");
    meta.remove_file("a", file.put, (0, 3))
        .expect("it is there");
    assert_full(begin(&meta, &pool, "b", 1), 1, 1);
    let begun = meta.with_room(1, || begin(&meta, &pool, "b", 1));
    begun.expect("nothing else takes the room");
    let begun = meta.with_room(1, || begin(&meta, &pool, "c", 1));
    assert_full(begun, 1, 1);
}

#[test]
fn a_change_leaves_the_other_limit() {
    let (meta, pool) = limited(3);
    limit_files(&meta, 5);
    let expected = Quota {
        bytes: Limit::AtMost(3 * SEGMENT),
        files: Limit::AtMost(5),
    };
    assert_eq!(meta.quota(pool.id).map(|(quota, _)| quota), Ok(expected));
    let none = Some(Limit::Unlimited);
    let change = QuotaChange {
        bytes: none,
        files: none,
    };
    meta.set_quota("main", change).expect("the pool is there");
    assert_eq!(
        meta.quota(pool.id).map(|(quota, _)| quota),
        Ok(Quota::default())
    );
    let unknown = MetaError::UnknownPool("other".to_owned());
    assert_eq!(meta.set_quota("other", change), Err(unknown));
}

#[test]
fn blocks_and_the_stripes_that_they_become_have_one_quota() {
    let (meta, pool) = cluster_with_lifecycle();
    let change = QuotaChange {
        bytes: Some(Limit::AtMost(SEGMENT)),
        files: None,
    };
    let other = meta.set_quota("blocks-encoded", change);
    assert!(matches!(
        other,
        Err(MetaError::Quota(QuotaError::Encoded { .. }))
    ));
    meta.set_quota("blocks", change).expect("the pool is there");
    let block = || gabion_meta::Placement {
        nodes: place(0).nodes[..3].to_vec(),
        ..place(0)
    };
    let target = |name: &'static str| (name, Existing::Stays, NewAttributes::FILE);
    let places = vec![block(); 4];
    let put = meta.begin_put(target("f"), pool.id, SEGMENT, &places, 1);
    let put = put.expect("there is room");
    let file = meta.commit_put(put.id, 2).expect("a free name");
    assert_full(
        meta.begin_put(target("g"), pool.id, SEGMENT, &places, 1),
        1,
        1,
    );
    let encoded = pool.lifecycle.expect("blocks become stripes").encoded;
    let into = meta.begin_conversion(file.put, encoded, &[place(0)], 5);
    let into = into.expect("a conversion is not refused");
    let old = take(&meta, &segments(&meta, &file));
    meta.commit_conversion(into.id, file.put, &old)
        .expect("nothing has changed");
    assert_eq!(used(&meta, &pool), (1, 1));
    assert_full(
        meta.begin_put(target("g"), pool.id, SEGMENT, &places, 1),
        1,
        1,
    );
}
