//! Files that grow and shrink: one change or none, and no byte from before where a hole was left.

use crate::fixture::{cluster, membership, one_file, place, segments, spec};
use gabion_layout::{ByteRange, NodeId, StripeId};
use gabion_meta::{
    Displaced, Existing, FILE_BYTES_MAX, FencingToken, FileRecord, Holder, MemoryStore, Meta,
    MetaError, NewAttributes, Placement, Put, Rewrite, SizeChange, WallClock, WallTime,
};

/// Bytes of a segment of the test's pool.
const SEGMENT: u64 = 4096;

fn lease(meta: &Meta<MemoryStore>, stripe: StripeId) -> Displaced {
    let incarnation = meta.incarnation();
    let holder = Holder::Coordinator { incarnation };
    let lease = meta
        .acquire(stripe, holder, &membership(), 1000)
        .expect("it has no other holder");
    Displaced {
        stripe,
        epoch: lease.epoch,
    }
}

fn begin(
    meta: &Meta<MemoryStore>,
    file: &FileRecord,
    displaced: &[(u64, StripeId)],
    offsets: &[u64],
    size: SizeChange,
) -> Result<Put, MetaError> {
    let leased = displaced
        .iter()
        .map(|&(at, stripe)| (at, lease(meta, stripe)));
    let rewrite = Rewrite {
        inline: None,
        displaced: leased.collect(),
        offsets: offsets.to_vec(),
        copied: Vec::new(),
        size,
        token: FencingToken::default(),
    };
    let places = vec![place(1); offsets.len()];
    meta.begin_replacement(file.put, &rewrite, &places, 5)
}

fn change(
    meta: &Meta<MemoryStore>,
    file: &FileRecord,
    displaced: &[(u64, StripeId)],
    offsets: &[u64],
    size: SizeChange,
) -> Result<(), MetaError> {
    let put = begin(meta, file, displaced, offsets, size)?;
    meta.commit_replacement(put.id).map(drop)
}

fn offsets(meta: &Meta<MemoryStore>, file: &FileRecord) -> Vec<u64> {
    let (_, stripes) = meta.layout_of(file.put).expect("the file is there");
    stripes.into_iter().map(|(offset, _)| offset).collect()
}

#[test]
fn a_write_far_behind_the_end_leaves_a_hole() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let size = SizeChange::AtLeast(9 * SEGMENT + 5);
    change(&meta, &file, &[], &[9 * SEGMENT], size).unwrap();
    let grown = meta.file("f").unwrap();
    assert_eq!((grown.size_bytes, grown.stripe_count), (9 * SEGMENT + 5, 2));
    assert_eq!(offsets(&meta, &file), [0, 9 * SEGMENT]);
    assert_eq!((meta.stripe_count(), meta.check()), (Ok(2), Ok(vec![])));
    let again = change(&meta, &file, &[], &[9 * SEGMENT], size);
    assert!(matches!(again, Err(MetaError::FileChanged(_))), "{again:?}");
}

#[test]
fn a_removed_file_becomes_garbage_in_small_transactions() {
    let (meta, pool) = cluster();
    let (file, other) = (one_file(&meta, &pool, "f"), one_file(&meta, &pool, "g"));
    let size = SizeChange::AtLeast(5 * SEGMENT);
    let offsets: Vec<u64> = (1..5).map(|at| at * SEGMENT).collect();
    change(&meta, &file, &[], &offsets, size).unwrap();
    let stripes = segments(&meta, &file);
    assert_eq!(meta.discard_removed(2), Ok(false), "nothing is removed");
    let before = meta.change_count();
    assert_eq!(meta.discard_removed(2), Ok(false));
    assert_eq!(meta.change_count(), before, "nothing is written then");
    meta.remove_file("f", file.put, (0, 144)).unwrap();
    meta.remove_file("g", other.put, (0, 145)).unwrap();
    // The name is free at once.
    one_file(&meta, &pool, "f");
    let garbage = |meta: &Meta<MemoryStore>| {
        let garbage = meta.garbage(None, 99).unwrap();
        garbage
            .into_iter()
            .map(|stripe| stripe.id)
            .collect::<Vec<_>>()
    };
    assert_eq!((garbage(&meta), meta.check()), (vec![], Ok(vec![])));
    assert_eq!(meta.discard_removed(2), Ok(true));
    assert_eq!(
        (garbage(&meta), meta.check()),
        (stripes[..2].to_vec(), Ok(vec![]))
    );
    // The coordinator restarts in between.
    let meta = Meta::open(meta.into_store(), WallClock::stopped(WallTime::default())).unwrap();
    assert_eq!(meta.discard_removed(3), Ok(true), "the other file is left");
    assert_eq!((meta.stripe_count(), meta.check()), (Ok(2), Ok(vec![])));
    assert_eq!(meta.discard_removed(3), Ok(false));
    assert_eq!((meta.stripe_count(), meta.check()), (Ok(1), Ok(vec![])));
    assert_eq!(garbage(&meta).len(), 6);
}

#[test]
fn a_part_of_a_file_names_the_extents_around_it() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    // The neighbours of its rows are of other files.
    one_file(&meta, &pool, "g");
    let size = SizeChange::AtLeast(9 * SEGMENT);
    change(&meta, &file, &[], &[4 * SEGMENT, 7 * SEGMENT], size).unwrap();
    let part = |from: u64, to: u64| {
        let range = ByteRange::new(from * SEGMENT, (to - from) * SEGMENT);
        let (record, part) = meta.layout_within(file.put, range).unwrap();
        assert_eq!(record, meta.file("f").unwrap());
        let offsets = part.stripes.iter().map(|(offset, _)| offset / SEGMENT);
        let segment = |offset: Option<u64>| offset.map(|offset| offset / SEGMENT);
        let offsets: Vec<u64> = offsets.collect();
        (segment(part.before), offsets, segment(part.behind))
    };
    assert_eq!(part(0, 20), (None, vec![0, 4, 7], None));
    assert_eq!(part(0, 4), (None, vec![0], Some(4)));
    assert_eq!(part(1, 4), (Some(0), vec![], Some(4)));
    assert_eq!(part(4, 8), (Some(0), vec![4, 7], None));
    assert_eq!(part(8, 20), (Some(7), vec![], None));
    meta.remove_file("f", file.put, (0, 146)).unwrap();
    let gone = meta.layout_within(file.put, ByteRange::new(0, 1));
    assert_eq!(gone, Err(MetaError::FileGone(file.put)));
}

#[test]
fn a_hole_is_not_filled_while_its_old_stripe_may_be_served() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let old = segments(&meta, &file)[0];
    change(&meta, &file, &[(0, old)], &[], SizeChange::AtLeast(0)).unwrap();
    let after = meta.file("f").unwrap();
    assert_eq!((after.size_bytes, after.stripe_count), (SEGMENT, 0));
    let refill = || begin(&meta, &file, &[], &[0], SizeChange::AtLeast(0));
    assert_eq!(refill(), Err(MetaError::StillServed(old)));
    meta.withdrawn(&[old]).unwrap();
    let put = refill().unwrap();
    assert!(meta.commit_replacement(put.id).is_ok());
    assert_eq!(meta.check(), Ok(vec![]));
    meta.remove_file("f", file.put, (0, 147)).unwrap();
    assert_eq!(meta.check(), Ok(vec![]), "nothing of its holes is left");
}

#[test]
fn a_replacement_does_not_fill_a_hole_that_others_have_made_anew_since_it_began() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let size = SizeChange::AtLeast(2 * SEGMENT);
    change(&meta, &file, &[], &[], size).unwrap();
    let hole = [SEGMENT];
    let late = begin(&meta, &file, &[], &hole, SizeChange::AtLeast(0)).unwrap();
    // Another client fills the hole, and a third one empties it again: a reader may have the second one's layout.
    change(&meta, &file, &[], &hole, SizeChange::AtLeast(0)).unwrap();
    let between = segments(&meta, &file)[1];
    let emptied = [(SEGMENT, between)];
    change(&meta, &file, &emptied, &[], SizeChange::AtLeast(0)).unwrap();
    let refused = meta.commit_replacement(late.id);
    assert_eq!(refused, Err(MetaError::StillServed(between)));
    meta.withdrawn(&[between]).unwrap();
    meta.commit_replacement(late.id).unwrap();
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_hole_that_a_truncation_has_cut_off_is_not_filled() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    change(&meta, &file, &[], &[], SizeChange::AtLeast(3 * SEGMENT)).unwrap();
    let hole = [2 * SEGMENT];
    let late = begin(&meta, &file, &[], &hole, SizeChange::AtLeast(0)).unwrap();
    change(&meta, &file, &[], &[], SizeChange::Exactly(2 * SEGMENT)).unwrap();
    let refused = meta.commit_replacement(late.id);
    assert!(
        matches!(refused, Err(MetaError::FileChanged(_))),
        "{refused:?}"
    );
    assert_eq!(meta.abort_put(late.id), Ok(true));
    assert_eq!((offsets(&meta, &file), meta.check()), (vec![0], Ok(vec![])));
    // One that gives the file these bytes again has its place.
    let size = SizeChange::AtLeast(3 * SEGMENT);
    change(&meta, &file, &[], &hole, size).unwrap();
    assert_eq!(offsets(&meta, &file), [0, 2 * SEGMENT]);
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_truncation_takes_all_bytes_behind_the_end_or_does_nothing() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let size = SizeChange::AtLeast(3 * SEGMENT);
    change(&meta, &file, &[], &[SEGMENT, 2 * SEGMENT], size).unwrap();
    let stripes = segments(&meta, &file);
    let behind = [(SEGMENT, stripes[1]), (2 * SEGMENT, stripes[2])];
    // A stripe that reaches past the new end cannot stay, even if it begins before.
    for end in [SEGMENT + 100, 100] {
        let partial = change(&meta, &file, &behind[1..], &[], SizeChange::Exactly(end));
        assert!(
            matches!(partial, Err(MetaError::FileChanged(_))),
            "{partial:?}"
        );
    }
    let put = begin(
        &meta,
        &file,
        &behind,
        &[SEGMENT],
        SizeChange::Exactly(SEGMENT + 100),
    );
    let put = put.unwrap();
    // Meanwhile, another client writes far behind.
    let far = SizeChange::AtLeast(8 * SEGMENT);
    change(&meta, &file, &[], &[7 * SEGMENT], far).unwrap();
    let late = meta.commit_replacement(put.id);
    assert!(matches!(late, Err(MetaError::FileChanged(_))), "{late:?}");
    assert_eq!(meta.abort_put(put.id), Ok(true));
    let far = (7 * SEGMENT, segments(&meta, &file)[3]);
    let all = [behind[0], behind[1], far];
    let size = SizeChange::Exactly(SEGMENT + 100);
    change(&meta, &file, &all, &[SEGMENT], size).unwrap();
    assert_eq!(offsets(&meta, &file), [0, SEGMENT]);
    assert_eq!(meta.file("f").unwrap().size_bytes, SEGMENT + 100);
    assert_eq!((meta.stripe_count(), meta.check()), (Ok(2), Ok(vec![])));
}

#[test]
fn appends_get_ranges_of_their_own_also_after_a_lost_answer() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let grow = |from, by, token| {
        meta.grow_from(file.put, (from, by), (token, 0), FencingToken::default())
            .map(|grown| grown.1)
    };
    assert_eq!(grow(SEGMENT, 10, 1), Ok(true));
    assert_eq!(grow(SEGMENT, 20, 2), Ok(false), "another was faster");
    assert_eq!(grow(SEGMENT + 10, 20, 2), Ok(true));
    assert_eq!(grow(SEGMENT, 10, 1), Ok(true), "the answer was lost");
    assert_eq!(meta.file("f").unwrap().size_bytes, SEGMENT + 30);
    assert_eq!(
        meta.grow(file.put, 5, 0).unwrap().0.size_bytes,
        SEGMENT + 30
    );
    assert_eq!(meta.refuse(4), Ok(false));
    let from = SEGMENT + 30;
    assert_eq!(grow(from, 1, 4), Err(MetaError::WasRefused), "a late copy");
    assert_eq!(meta.refuse_growth(file.put, 5), Ok(None));
    assert_eq!(grow(from, 1, 5), Err(MetaError::WasRefused), "a late copy");
    // Another copy of the request was faster.
    let made = meta.refuse_growth(file.put, 2).unwrap();
    assert_eq!(made.expect("it was made").size_bytes, from);
    let large = meta.grow(file.put, FILE_BYTES_MAX + 1, 0);
    assert_eq!(large, Err(MetaError::FileTooLarge));
    assert_eq!(grow(u64::MAX, 1, 3), Err(MetaError::FileTooLarge));
    meta.remove_file("f", file.put, (0, 148)).unwrap();
    assert_eq!(
        meta.grow(file.put, 1, 0),
        Err(MetaError::FileGone(file.put))
    );
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_late_growth_does_not_undo_a_truncation() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    let old = segments(&meta, &file)[0];
    change(&meta, &file, &[(0, old)], &[], SizeChange::Exactly(0)).unwrap();
    let size = |grown: Result<(FileRecord, bool), MetaError>| {
        let (file, is_done) = grown.expect("the file is there");
        (file.size_bytes, is_done)
    };
    // A node may serve what the truncation has removed, and nothing may rest on it before.
    let waits = meta.grow(file.put, 0, 1).map(|_| ());
    assert_eq!(waits, Err(MetaError::StillServed(old)));
    assert_eq!(meta.served_dropped(file.put), Ok(vec![old]));
    meta.withdrawn(&[old]).unwrap();
    assert_eq!(meta.served_dropped(file.put), Ok(vec![]));
    // Both were asked for before.
    assert_eq!(size(meta.grow(file.put, 100, 0)), (0, false));
    assert_eq!(
        size(meta.grow_from(file.put, (0, 9), (1, 0), FencingToken::default())),
        (0, false)
    );
    assert_eq!(size(meta.grow(file.put, 100, 1)), (100, true));
    assert_eq!(size(meta.grow(file.put, 50, 0)), (100, true), "it has them");
}

#[test]
fn extents_begin_where_segments_do_and_within_the_file() {
    let (meta, pool) = cluster();
    let file = one_file(&meta, &pool, "f");
    for at in [SEGMENT + 1, 5 * SEGMENT, SEGMENT - 1] {
        let wrong = begin(&meta, &file, &[], &[at], SizeChange::AtLeast(2 * SEGMENT));
        assert!(
            matches!(wrong, Err(MetaError::Placement { .. })),
            "{wrong:?}"
        );
    }
    for chunk_bytes in [0, 1025] {
        let rewrite = Rewrite {
            inline: None,
            displaced: vec![],
            offsets: vec![SEGMENT],
            copied: Vec::new(),
            size: SizeChange::AtLeast(2 * SEGMENT),
            token: FencingToken::default(),
        };
        let place = Placement {
            chunk_bytes,
            ..place(1)
        };
        let wrong = meta.begin_replacement(file.put, &rewrite, &[place], 5);
        assert!(
            matches!(wrong, Err(MetaError::Placement { .. })),
            "{wrong:?}"
        );
    }
    let size = SizeChange::AtLeast(FILE_BYTES_MAX + 1);
    let large = begin(&meta, &file, &[], &[], size);
    assert_eq!(large, Err(MetaError::FileTooLarge));
    assert_eq!(meta.puts(), Ok(vec![]), "a refused one reserves nothing");
}

#[test]
fn a_put_of_unknown_size_is_extended_once_a_step() {
    let (meta, pool) = cluster();
    let put = meta.begin_put(
        ("f", Existing::Stays, NewAttributes::FILE),
        pool.id,
        SEGMENT,
        &[place(0)],
        1,
    );
    let put = put.unwrap();
    let extend = |at: (u64, u64), size: u64, count: usize| {
        meta.extend_put(put.id, at, size, &vec![place(0); count], 2)
    };
    let (_, all) = extend((0, 1), 3 * SEGMENT, 2).unwrap();
    assert_eq!((all.len(), &all[0]), (3, &put.stripes[0]));
    let again = extend((0, 1), 3 * SEGMENT, 2);
    assert_eq!(again, Ok((0, all.clone())), "repeated");
    // Another segment placed again, then the end: one stripe is too many, and the last one is small.
    let nodes: Vec<NodeId> = place(1).nodes;
    let anew = meta
        .place_anew(put.id, all[1].id, all[1].id, &nodes)
        .unwrap();
    let small = Placement {
        chunk_bytes: 256,
        ..place(0)
    };
    let last = meta.extend_put(put.id, (1, 2), 2 * SEGMENT + 900, &[small], 3);
    let (_, last) = last.unwrap();
    assert_eq!(last[..2], [put.stripes[0].clone(), anew.clone()]);
    let late = extend((0, 1), 3 * SEGMENT, 2);
    assert_eq!(
        late,
        Err(MetaError::PutStep {
            put: put.id,
            step: 2
        })
    );
    assert_eq!(meta.check(), Ok(vec![]));
    let dropped: Vec<StripeId> = meta
        .garbage(None, 9)
        .unwrap()
        .iter()
        .map(|s| s.id)
        .collect();
    assert_eq!(dropped, [all[1].id, all[2].id]);
    let file = meta.commit_put(put.id, 4).unwrap();
    assert_eq!((file.size_bytes, file.stripe_count), (2 * SEGMENT + 900, 3));
    assert_eq!(
        meta.layout_of(file.put).unwrap().1.last(),
        Some(&(2 * SEGMENT, last[2].clone()))
    );
    assert_eq!(meta.check(), Ok(vec![]));
    let over = extend((2, 0), 0, 0);
    assert_eq!(over, Err(MetaError::UnknownPut(put.id)));
}

#[test]
fn the_smallest_chunk_holds_the_data_in_whole_pages_and_rows() {
    let pool = |sub_chunks, chunk_bytes| gabion_meta::PoolSpec {
        sub_chunks,
        chunk_bytes,
        ..spec()
    };
    let large = pool(1, 1 << 20);
    assert_eq!(large.segment_bytes(), 4 << 20);
    let of = |bytes| large.least_chunk_bytes(bytes);
    assert_eq!(
        [of(0), of(1), of(16_384), of(16_385)],
        [0, 4096, 4096, 8192]
    );
    assert_eq!(of(u64::MAX), 1 << 20, "the full chunk at most");
    assert_eq!(pool(6, 6 << 20).least_chunk_bytes(1), 3 * 4096);
    assert_eq!(pool(6, 6000).least_chunk_bytes(1), 6000);
}
