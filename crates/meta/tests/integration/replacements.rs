//! Guarantees of replacements: one change, or none.

use crate::fixture::{
    cluster, cluster_at, membership, one_file, one_stripe, place, segments, take, ticking_clock,
};
use gabion_layout::{ChunkIndex, Epoch, NodeId, Sequence, StripeId};
use gabion_meta::{
    Displaced, Exclusion, Existing, FileRecord, Holder, MemoryStore, Meta, MetaError,
    NewAttributes, PoolRecord, Put, PutId, Rewrite, SizeChange, StripeStatus, WallClock, WallTime,
};

/// A file of three full segments.
fn three(meta: &Meta<MemoryStore>, pool: &PoolRecord) -> FileRecord {
    let places = [place(0), place(0), place(0)];
    let put = meta
        .begin_put(
            ("f", Existing::Stays, NewAttributes::FILE),
            pool.id,
            3 * 4096,
            &places,
            1,
        )
        .expect("a step of the test's own preparation");
    meta.commit_put(put.id, 2)
        .expect("a step of the test's own preparation")
}

fn begin(
    meta: &Meta<MemoryStore>,
    file: &FileRecord,
    displaced: &[Displaced],
) -> Result<Put, MetaError> {
    let (_, stripes) = meta.layout_of(file.put)?;
    let offset = |old: &Displaced| {
        let at = stripes.iter().find(|(_, stripe)| stripe.id == old.stripe);
        at.map_or(0, |(offset, _)| *offset)
    };
    let displaced = displaced.iter().map(|&old| (offset(&old), old));
    let displaced: Vec<_> = displaced.collect();
    let rewrite = Rewrite {
        inline: None,
        offsets: displaced.iter().map(|(offset, _)| *offset).collect(),
        displaced,
        copied: Vec::new(),
        size: SizeChange::AtLeast(0),
        token: meta.exclusive(file.put)?.token,
    };
    let places = vec![place(1); rewrite.offsets.len()];
    meta.begin_replacement(file.put, &rewrite, &places, 5)
}

fn acquire(meta: &Meta<MemoryStore>, stripe: StripeId) -> Result<Epoch, MetaError> {
    let holder = Holder::Node {
        node: NodeId(0),
        incarnation: 1,
    };
    let lease = meta.acquire(stripe, holder, &membership(), 1000);
    lease.map(|lease| lease.epoch)
}

#[test]
fn stripes_change_all_at_once_and_the_file_stays_the_same() {
    let (meta, pool) = cluster_at(MemoryStore::new(), ticking_clock());
    let file = three(&meta, &pool);
    let first = segments(&meta, &file)[0];
    let displaced = take(&meta, &segments(&meta, &file)[1..]);
    let put = begin(&meta, &file, &displaced).unwrap();
    assert_eq!(meta.file("f"), Ok(file.clone()), "nothing is seen yet");
    assert_eq!(
        meta.commit_put(put.id, 9),
        Err(MetaError::UnknownPut(put.id)),
        "it brings no file of its own"
    );
    assert_eq!(meta.check(), Ok(vec![]));
    assert_eq!(meta.commit_replacement(put.id), Ok(put.stripes.clone()));
    let (after, stripes) = meta.layout("f").unwrap();
    assert!(after.attributes.modified > file.attributes.modified);
    let attributes = file.attributes;
    assert_eq!(
        FileRecord {
            attributes,
            ..after
        },
        file
    );
    let stripes: Vec<_> = stripes.into_iter().map(|(_, stripe)| stripe).collect();
    assert_eq!((stripes[0].id, &stripes[1..]), (first, &put.stripes[..]));
    assert_eq!(meta.stripe_count(), Ok(3));
    for old in &displaced {
        assert_eq!(meta.stripe_status(old.stripe), Ok(StripeStatus::Garbage));
        assert!(acquire(&meta, old.stripe).is_err());
    }
    let early = acquire(&meta, put.stripes[0].id);
    assert!(
        matches!(early, Err(MetaError::Held { .. })),
        "the old one may be served: {early:?}"
    );
    for old in displaced {
        assert_eq!(meta.reclaimed(old.stripe), Ok(true));
    }
    assert_eq!(acquire(&meta, put.stripes[0].id), Ok(Epoch(1)));
    assert_eq!(meta.check(), Ok(vec![]));
    let again = meta.commit_replacement(put.id);
    assert_eq!(again, Err(MetaError::CommittedBefore(put.id)));
    // A replacement of the new stripes does not change that.
    let file = meta.file("f").unwrap();
    let next = begin(&meta, &file, &take(&meta, &segments(&meta, &file))).unwrap();
    assert!(meta.commit_replacement(next.id).is_ok());
    let again = meta.commit_replacement(put.id);
    assert_eq!(again, Err(MetaError::CommittedBefore(put.id)));
}

/// A client that asks late must not take "unknown" for "never".
#[test]
fn a_replacement_that_is_forgotten_is_not_called_unknown() {
    let (mut meta, pool) = cluster();
    let file = three(&meta, &pool);
    let put = begin(&meta, &file, &take(&meta, &segments(&meta, &file))).unwrap();
    assert!(meta.commit_replacement(put.id).is_ok());
    let aborted = |meta: &Meta<MemoryStore>| {
        let name = ("g", Existing::Stays, NewAttributes::FILE);
        let put = meta.begin_put(name, pool.id, 0, &[], 6).unwrap();
        assert_eq!(meta.abort_put(put.id), Ok(true));
        put.id
    };
    // Each run of the coordinator leases a block of 4,096 ids.
    for _ in 0..256 {
        meta = Meta::open(meta.into_store(), WallClock::stopped(WallTime::default())).unwrap();
        let never = aborted(&meta);
        let asked = meta.commit_replacement(never);
        assert_eq!(asked, Err(MetaError::UnknownPut(never)));
    }
    let again = meta.commit_replacement(put.id);
    assert_eq!(again, Err(MetaError::CommittedBefore(put.id)));
    // Commits forget old ones, two at a time.
    for name in ["h", "i"] {
        let name = (name, Existing::Stays, NewAttributes::FILE);
        let next = meta.begin_put(name, pool.id, 0, &[], 6).unwrap();
        assert!(meta.commit_put(next.id, 6).is_ok());
    }
    let again = meta.commit_replacement(put.id);
    assert_eq!(again, Err(MetaError::PutForgotten(put.id)));
}

#[test]
fn a_commit_that_fails_anywhere_changes_nothing() {
    let (meta, pool) = cluster();
    let file = three(&meta, &pool);
    let put = begin(&meta, &file, &take(&meta, &segments(&meta, &file))).unwrap();
    let before = meta.store().rows();
    let mut failure_count = 0;
    loop {
        meta.store().fail_after(failure_count);
        let result = meta.commit_replacement(put.id);
        meta.store().heal();
        match result {
            Ok(_) => break,
            Err(MetaError::Storage { .. }) => assert!(meta.store().rows() == before),
            Err(error) => panic!("{error}"),
        }
        failure_count += 1;
    }
    assert!(failure_count > 10, "each write can fail");
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_new_lease_holder_ends_the_replacement() {
    let (meta, pool) = cluster();
    let file = three(&meta, &pool);
    let displaced = take(&meta, &segments(&meta, &file)[..2]);
    let put = begin(&meta, &file, &displaced).unwrap();
    let lost = displaced[1];
    assert!(matches!(
        acquire(&meta, lost.stripe),
        Err(MetaError::Held { .. })
    ));
    // The next run of the coordinator may commit the last one's replacement ...
    let meta = Meta::open(meta.into_store(), WallClock::stopped(WallTime::default())).unwrap();
    assert_eq!(meta.puts().unwrap().len(), 1);
    // ... until it grants a lease.
    assert_eq!(acquire(&meta, lost.stripe), Ok(Epoch(2)));
    let Displaced { stripe, epoch } = lost;
    let refused = meta.commit_replacement(put.id);
    assert_eq!(refused, Err(MetaError::LeaseLost { stripe, epoch }));
    assert_eq!(meta.file("f"), Ok(file.clone()));
    assert_eq!(meta.abort_put(put.id), Ok(true));
    let held = meta.lease(lost.stripe).unwrap().map(|lease| lease.epoch);
    assert_eq!(held, Some(Epoch(2)), "an abort ends no lease of others");
    assert_eq!(meta.lease(displaced[0].stripe), Ok(None), "but its own");
    assert_eq!(meta.garbage(None, 9), Ok(put.stripes));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_later_run_commits_an_untouched_replacement() {
    let (meta, pool) = cluster();
    let file = three(&meta, &pool);
    let put = begin(&meta, &file, &take(&meta, &segments(&meta, &file))).unwrap();
    let meta = Meta::open(meta.into_store(), WallClock::stopped(WallTime::default())).unwrap();
    assert_eq!(meta.commit_replacement(put.id), Ok(put.stripes));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn only_the_file_s_own_stripes_under_the_coordinator_s_leases_are_replaced() {
    let (meta, pool) = cluster();
    let file = three(&meta, &pool);
    let other = one_stripe(&meta, &pool, "other");
    let unheld = Displaced {
        stripe: segments(&meta, &file)[0],
        epoch: Epoch(1),
    };
    let Displaced { stripe, epoch } = unheld;
    assert_eq!(
        begin(&meta, &file, &[unheld]),
        Err(MetaError::LeaseLost { stripe, epoch })
    );
    let mut held = take(&meta, &segments(&meta, &file));
    let foreign = take(&meta, &[other]);
    assert_eq!(
        begin(&meta, &file, &foreign),
        Err(MetaError::UnknownStripe(other))
    );
    held.swap(0, 1);
    let wrong_order = begin(&meta, &file, &held);
    let twice = begin(&meta, &file, &[held[0], held[0]]);
    for refused in [wrong_order, twice] {
        assert!(
            matches!(refused, Err(MetaError::Placement { .. })),
            "{refused:?}"
        );
    }
    let stranger = FileRecord {
        put: PutId(77),
        ..file.clone()
    };
    assert_eq!(
        begin(&meta, &stranger, &held),
        Err(MetaError::FileGone(PutId(77)))
    );
    assert_eq!(meta.puts(), Ok(vec![]), "a refused one reserves nothing");
}

#[test]
fn a_removed_or_replaced_file_is_not_brought_back() {
    let (meta, pool) = cluster();
    let file = three(&meta, &pool);
    let put = begin(&meta, &file, &take(&meta, &segments(&meta, &file))).unwrap();
    meta.remove_file("f", file.put, (0, 143)).unwrap();
    assert_eq!(meta.check(), Ok(vec![]));
    let gone = MetaError::FileGone(file.put);
    assert_eq!(meta.commit_replacement(put.id), Err(gone.clone()));
    one_file(&meta, &pool, "f");
    assert_eq!(meta.commit_replacement(put.id), Err(gone));
    assert_eq!(meta.abort_put(put.id), Ok(true));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn a_chunk_that_a_settlement_left_out_is_stale_when_its_stripe_ends() {
    let (meta, pool) = cluster();
    let file = three(&meta, &pool);
    let displaced = take(&meta, &segments(&meta, &file)[..1]);
    let stripe = meta.stripe(displaced[0].stripe).unwrap();
    let exclusion = Exclusion {
        epoch: displaced[0].epoch,
        nodes: vec![stripe.nodes[1]],
        known: Sequence(0),
        stood: Vec::new(),
    };
    meta.note_settlement(stripe.id, &exclusion).unwrap();
    assert_eq!(meta.ended_stripe(stripe.id), Ok(None), "it goes on");
    let put = begin(&meta, &file, &displaced).unwrap();
    meta.commit_replacement(put.id).unwrap();
    let ended = meta.ended_stripe(stripe.id).unwrap().unwrap();
    let stale: Vec<ChunkIndex> = ended.chunks().filter(|&c| ended.is_stale(c)).collect();
    assert_eq!(stale, [ChunkIndex(1)]);
}
