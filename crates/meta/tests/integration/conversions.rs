//! Guarantees of conversions: blocks and stripes are replaced in one step, no node updates the new
//! ones while the old may be served, and requests live as long as their file.

use crate::fixture::{cluster_with_lifecycle, membership, segments, spec, take};
use gabion_layout::{EncodeAfter, Lifecycle, NodeId, PoolId, ReplicaPlacement, StripeId, Survive};
use gabion_meta::{
    Displaced, Existing, FencingToken, FileRecord, Holder, MemoryStore, Meta, MetaError,
    NewAttributes, Placement, PoolRecord, PoolSpec, Put, RequestedForm, Rewrite, SizeChange,
    StripeStatus,
};

fn encoded(pool: &PoolRecord) -> PoolId {
    pool.lifecycle.expect("blocks become stripes").encoded
}

fn place(nodes: &[u32], chunk_bytes: u64) -> Placement {
    Placement {
        chunk_bytes,
        nodes: nodes.iter().copied().map(NodeId).collect(),
    }
}

/// A file of one segment of full blocks and one of blocks of 512 bytes.
fn file(meta: &Meta<MemoryStore>, pool: &PoolRecord) -> FileRecord {
    let blocks = (0..8).map(|at| place(&[0, 2, 4], if at < 4 { 1024 } else { 512 }));
    let blocks: Vec<Placement> = blocks.collect();
    let put = meta.begin_put(
        ("f", Existing::Stays, NewAttributes::FILE),
        pool.id,
        4096 + 100,
        &blocks,
        1,
    );
    let put = put.expect("the blocks make two segments");
    meta.commit_put(put.id, 2).expect("a free name")
}

fn by_node(meta: &Meta<MemoryStore>, stripe: StripeId) -> Result<(), MetaError> {
    let (node, incarnation) = (NodeId(0), 1);
    let holder = Holder::Node { node, incarnation };
    meta.acquire(stripe, holder, &membership(), 1000)
        .map(|_| ())
}

/// Reserves a stripe in place of the first segment.
fn begin(meta: &Meta<MemoryStore>, pool: &PoolRecord, file: &FileRecord) -> Put {
    let places = [place(&[0, 2, 4, 6, 8, 10], 1024)];
    let put = meta.begin_conversion(file.put, encoded(pool), &places, 5);
    put.expect("there is room")
}

#[test]
fn blocks_become_a_stripe_and_then_blocks_again() {
    let (meta, pool) = cluster_with_lifecycle();
    let file = file(&meta, &pool);
    let put = begin(&meta, &pool, &file);
    let before = segments(&meta, &file);
    let old = take(&meta, &before[..4]);
    assert_eq!(
        meta.commit_conversion(put.id, file.put, &old),
        Ok(put.stripes.clone())
    );
    let after = meta.file("f").unwrap();
    assert_eq!(after.stripe_count, 5);
    assert_eq!(segments(&meta, &after)[0], put.stripes[0].id);
    assert_eq!(segments(&meta, &after)[1..], before[4..]);
    assert_eq!((after.put, meta.stripe_count()), (file.put, Ok(5)));
    for old in &old {
        assert_eq!(meta.stripe_status(old.stripe), Ok(StripeStatus::Garbage));
    }
    assert_eq!(meta.check(), Ok(vec![]));

    let blocks = vec![place(&[1, 3, 5], 1024); 4];
    let back = meta
        .begin_conversion(file.put, pool.id, &blocks, 6)
        .unwrap();
    // A reader of the first blocks would not see an update of the second ones, which name the stripe alone.
    let stripe = take(&meta, &segments(&meta, &after)[..1]);
    let early = meta.commit_conversion(back.id, file.put, &stripe);
    assert!(matches!(early, Err(MetaError::Held { .. })), "{early:?}");
    for old in old {
        meta.reclaimed(old.stripe).unwrap();
    }
    meta.commit_conversion(back.id, file.put, &stripe).unwrap();
    let ids: Vec<StripeId> = back.stripes.iter().map(|stripe| stripe.id).collect();
    assert_eq!(segments(&meta, &meta.file("f").unwrap())[..4], ids);
    assert_eq!((meta.stripe_count(), meta.check()), (Ok(8), Ok(vec![])));
}

#[test]
fn no_node_updates_new_stripes_while_the_old_may_be_served() {
    let (meta, pool) = cluster_with_lifecycle();
    let file = file(&meta, &pool);
    let put = begin(&meta, &pool, &file);
    let old = take(&meta, &segments(&meta, &file)[..4]);
    let new = meta.commit_conversion(put.id, file.put, &old).unwrap()[0].id;
    for old in &old {
        assert!(matches!(by_node(&meta, new), Err(MetaError::Held { .. })));
        take(&meta, &[new]);
        meta.reclaimed(old.stripe).unwrap();
    }
    let epoch = take(&meta, &[new])[0].epoch;
    meta.release(new, epoch).unwrap();
    assert_eq!(by_node(&meta, new), Ok(()));
}

#[test]
fn a_replaced_block_keeps_its_size() {
    let (meta, pool) = cluster_with_lifecycle();
    let file = file(&meta, &pool);
    let old = take(&meta, &segments(&meta, &file)[..1])[0];
    let rewrite = Rewrite {
        displaced: vec![(0, old)],
        offsets: vec![0],
        copied: Vec::new(),
        size: SizeChange::AtLeast(0),
        inline: None,
        token: FencingToken::default(),
    };
    let replace = |chunk_bytes| {
        let places = [place(&[0, 2, 4], chunk_bytes)];
        meta.begin_replacement(file.put, &rewrite, &places, 5)
    };
    for other in [512, 2048, 1 << 62, 0] {
        assert_eq!(replace(other), Err(MetaError::FixedSize), "{other}");
    }
    let put = replace(1024).unwrap();
    meta.commit_replacement(put.id).unwrap();
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn an_overtaken_conversion_is_refused() {
    let (meta, pool) = cluster_with_lifecycle();
    let file = file(&meta, &pool);
    let put = begin(&meta, &pool, &file);
    let old = take(&meta, &segments(&meta, &file)[..4]);
    let refused = |old: &[Displaced]| meta.commit_conversion(put.id, file.put, old).unwrap_err();
    assert!(
        matches!(refused(&old[..3]), MetaError::Placement { .. }),
        "three blocks do not form a stripe"
    );
    let apart = [old[0], old[1], old[3]];
    assert_eq!(refused(&apart), MetaError::UnknownStripe(old[3].stripe));
    // Another holder has had the lease of one since.
    meta.release(old[2].stripe, old[2].epoch).unwrap();
    by_node(&meta, old[2].stripe).unwrap();
    assert!(matches!(refused(&old), MetaError::LeaseLost { .. }));
    assert_eq!(meta.file("f"), Ok(file));
    assert_eq!(meta.abort_put(put.id), Ok(true));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn blocks_come_in_whole_segments_and_pools_keep_one_promise() {
    let (meta, pool) = cluster_with_lifecycle();
    for blocks in [
        vec![place(&[0, 2, 4], 1024); 3],
        vec![place(&[0, 2, 4], 1024); 5],
        [1024, 1024, 1024, 512]
            .map(|b| place(&[0, 2, 4], b))
            .to_vec(),
    ] {
        let refused = meta.begin_put(
            ("g", Existing::Stays, NewAttributes::FILE),
            pool.id,
            4096,
            &blocks,
            1,
        );
        assert!(
            matches!(refused, Err(MetaError::Placement { .. })),
            "{refused:?}"
        );
    }
    let other = PoolSpec {
        name: "other".to_owned(),
        survive: Survive::Nodes(1),
        ..pool.spec.clone()
    };
    let encoded = PoolSpec {
        name: "other-encoded".to_owned(),
        ..spec()
    };
    let (after, placement) = (EncodeAfter::Full, ReplicaPlacement::Rr);
    let refused = meta.create_pool_with_lifecycle(&other, &encoded, after, placement);
    assert!(matches!(refused, Err(MetaError::Pool(_))), "{refused:?}");
    let lifecycle = Lifecycle {
        encoded: encoded_of(&meta),
        after: EncodeAfter::Asked,
        placement: ReplicaPlacement::Ear,
    };
    assert_eq!(
        meta.pool_named("blocks").unwrap().lifecycle,
        Some(lifecycle)
    );
}

fn encoded_of(meta: &Meta<MemoryStore>) -> PoolId {
    meta.pool_named("blocks-encoded")
        .expect("it was made with its pool")
        .id
}

#[test]
fn requested_forms_end_with_their_file() {
    let (meta, pool) = cluster_with_lifecycle();
    let put = file(&meta, &pool).put;
    assert_eq!(meta.requested_form(put), Ok(None));
    meta.request_form(put, RequestedForm::Encoded).unwrap();
    let since_ms = 77;
    meta.request_form(put, RequestedForm::Replicated { since_ms })
        .unwrap();
    meta.rename((put, "f"), (0, 108), "g", Existing::Stays)
        .unwrap();
    assert_eq!(
        meta.requested_form(put),
        Ok(Some(RequestedForm::Replicated { since_ms }))
    );
    meta.remove_file("g", put, (1, 107)).unwrap();
    assert_eq!(meta.requested_form(put), Ok(None));
    assert_eq!(
        meta.request_form(put, RequestedForm::Encoded),
        Err(MetaError::FileGone(put))
    );
}
