//! The rows of a cluster that has something in nearly every table, made once by operations.

use gabion_layout::{
    ChunkIndex, EncodeAfter, Epoch, NodeId, PoolId, RackId, ReplicaPlacement, Sequence, Start,
    StripeId, Survive, UpdateScheme,
};
use gabion_meta::{
    ClusterId, Displaced, Exclusion, Existing, FencingToken, FileRecord, Holder, Inode, LockChange,
    LockKind, LockMode, LockOwner, LockRange, Membership, MemoryStore, Meta, MetaError,
    NewAttributes, Placement, PoolSpec, Progress, QuotaChange, RequestedForm, Rewrite, Row, Secret,
    SessionId, SizeChange, TicketKey, Timing, WallClock, WallTime,
};
use std::sync::OnceLock;

pub(super) const TIMING: Timing = Timing {
    lease_ms: 100,
    margin_ms: 10,
    grace_ms: 1000,
};

/// The time of all operations.
pub(super) const NOW_MS: u64 = 1000;

pub(super) fn clock() -> WallClock {
    WallClock::stopped(WallTime::default())
}

/// The rows.
pub(super) fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let meta = Meta::create(MemoryStore::new(), ClusterId(0xfeed), clock());
        let meta = meta.expect("the store is empty");
        furnish(&meta).expect("every operation is valid");
        assert_eq!(meta.check(), Ok(Vec::new()));
        meta.store().rows()
    })
}

/// A pool of `rs(2,1)` on any nodes.
pub(super) fn spec(name: &str) -> PoolSpec {
    PoolSpec {
        name: name.to_owned(),
        code: "rs(2,1)".to_owned(),
        k: 2,
        m: 1,
        sub_chunks: 1,
        chunk_bytes: 1024,
        survive: Survive::Nodes(1),
        chunks_per_rack: 2,
        update: UpdateScheme::Pl,
        reserve: None,
        append: None,
        inline_bytes: 1000,
    }
}

/// A full stripe on nodes from `first` on.
pub(super) fn place(first: u32) -> Placement {
    Placement {
        chunk_bytes: 1024,
        nodes: (first..first + 3).map(NodeId).collect(),
    }
}

/// Nodes 0 to 5, of which those up to 3 are up.
pub(super) fn membership() -> Membership {
    let mut membership = Membership::new(TIMING);
    for node in 0..4 {
        membership.heartbeat(NodeId(node), 1, NOW_MS);
    }
    membership
}

pub(super) fn lock(number: u64, mode: Option<LockMode>, first: u64) -> LockChange {
    LockChange {
        owner: LockOwner {
            kind: LockKind::Range,
            number,
        },
        mode,
        range: LockRange {
            first,
            last: first + 9,
        },
        process: 7,
    }
}

type Cluster = Meta<MemoryStore>;

fn file(meta: &Cluster, pool: PoolId, name: &str, stripes: u32) -> Result<FileRecord, MetaError> {
    let places: Vec<Placement> = (0..stripes).map(|at| place(at % 3)).collect();
    let named = (name, Existing::Stays, NewAttributes::FILE);
    let put = meta.begin_put(named, pool, u64::from(stripes) * 2048, &places, 10)?;
    meta.commit_put(put.id, 20)
}

fn furnish(meta: &Cluster) -> Result<(), MetaError> {
    for node in 0..6u32 {
        let address = format!("10.0.0.{node}:7000");
        meta.join(None, RackId(node / 2), &address, 1 << 40, 5)?;
        meta.declare_returned(
            NodeId(node),
            Start {
                number: 1,
                nonce: 9,
            },
            0,
        )?;
    }
    let pool = meta.create_pool(&spec("main"))?.id;
    let blocks = PoolSpec {
        name: "blocks".to_owned(),
        code: "rep(3)".to_owned(),
        k: 1,
        m: 2,
        survive: Survive::Nodes(2),
        ..spec("")
    };
    let (after, placement) = (EncodeAfter::Asked, ReplicaPlacement::Ear);
    let encoded = PoolSpec {
        code: "rs(2,2)".to_owned(),
        m: 2,
        survive: Survive::Nodes(2),
        ..spec("blocks-encoded")
    };
    let blocks = meta.create_pool_with_lifecycle(&blocks, &encoded, after, placement)?;
    let files = [
        file(meta, pool, "a", 3)?,
        file(meta, pool, "dir/b", 1)?,
        file(meta, pool, "dir/sub/c", 2)?,
        file(meta, pool, "dir/gone", 1)?,
    ];
    let small = ("small", Existing::Stays, NewAttributes::FILE);
    meta.put_inline(small, pool, b"inline bytes", (55, 10))?;
    meta.begin_put(
        ("open", Existing::IsReplaced, NewAttributes::FILE),
        pool,
        4096,
        &[place(0), place(1)],
        10,
    )?;
    let named = ("block", Existing::Stays, NewAttributes::FILE);
    let one = meta.begin_put(named, blocks.id, 2048, &[place(0), place(1)], 10)?;
    let block = meta.commit_put(one.id, 20)?;
    meta.request_form(block.put, RequestedForm::Encoded)?;
    names(meta, pool, &files)?;
    stripes(meta, &files)?;
    settings(meta, &files)
}

/// Directories, links, removals and snapshots.
fn names(meta: &Cluster, pool: PoolId, files: &[FileRecord]) -> Result<(), MetaError> {
    meta.make_directory("empty", NewAttributes::FILE, 41)?;
    meta.link(files[0].put, (files[0].generation, 42), "dir/hard")?;
    let made = (pool, NewAttributes::FILE);
    meta.make_symlink("dir/soft", "../a", made, (43, 30))?;
    let gone = &files[3];
    meta.remove_file("dir/gone", gone.put, (gone.generation, 44))?;
    while meta.discard_removed(1)? {}
    let frozen = [files[2].put];
    let tokens = meta.freeze(&frozen)?;
    let source = (Inode::File(files[2].put), &tokens);
    meta.snapshot(source, "snapshot", true, (45, 30))?;
    meta.snapshot(source, "clone", false, (46, 30))?;
    let tree = meta.inode("dir/sub")?.inode;
    meta.snapshot((tree, &tokens), "tree", true, (47, 30))?;
    meta.thaw(&frozen)
}

/// Leases, settlements, stale chunks, a move, and a replacement that goes on.
fn stripes(meta: &Cluster, files: &[FileRecord]) -> Result<(), MetaError> {
    let (_, layout) = meta.layout_of(files[0].put)?;
    let ids: Vec<StripeId> = layout.iter().map(|(_, stripe)| stripe.id).collect();
    let holder = Holder::Node {
        node: NodeId(0),
        incarnation: 1,
    };
    let lease = meta.acquire(ids[0], holder, &membership(), NOW_MS)?;
    meta.note_phase(ids[0], lease.epoch, Sequence(3), true)?;
    meta.note_settlement(
        ids[0],
        &Exclusion {
            epoch: lease.epoch,
            nodes: vec![NodeId(2)],
            known: Sequence(2),
            stood: Vec::new(),
        },
    )?;
    meta.mark_stale(ids[1], ChunkIndex(1))?;
    let record = meta.stripe(ids[2])?;
    meta.relocate(ids[2], record.generation, ChunkIndex(2), (NodeId(5), None))?;
    let ours = Holder::Coordinator {
        incarnation: meta.incarnation(),
    };
    let (_, second) = meta.layout_of(files[1].put)?;
    let (offset, old) = &second[0];
    let taken = meta.acquire(old.id, ours, &membership(), NOW_MS)?;
    let displaced = Displaced {
        stripe: old.id,
        epoch: taken.epoch,
    };
    let rewrite = Rewrite {
        inline: None,
        displaced: vec![(*offset, displaced)],
        offsets: vec![*offset],
        copied: Vec::new(),
        size: SizeChange::AtLeast(0),
        token: meta.exclusive(files[1].put)?.token,
    };
    meta.begin_replacement(files[1].put, &rewrite, &[place(2)], 40)?;
    assert!(lease.epoch > Epoch(0));
    Ok(())
}

/// Quotas, locks, exclusive opens, keys, starts and standings.
fn settings(meta: &Cluster, files: &[FileRecord]) -> Result<(), MetaError> {
    use gabion_meta::Limit::AtMost;
    let (bytes, files_limit) = (Some(AtMost(1 << 30)), Some(AtMost(100)));
    let change = QuotaChange {
        bytes,
        files: files_limit,
    };
    meta.set_quota("main", change)?;
    let session = meta.open_session()?;
    meta.set_lock(session, files[0].put, &lock(1, Some(LockMode::Shared), 0))?;
    meta.set_lock(
        session,
        files[0].put,
        &lock(2, Some(LockMode::Exclusive), 50),
    )?;
    meta.open_exclusive(
        files[2].put,
        SessionId(5),
        meta.exclusive(files[2].put)?.token,
    )?;
    assert!(meta.exclusive(files[2].put)?.token > FencingToken(0));
    let secret = Secret([7; 32]);
    meta.set_ticket_keys(&[TicketKey {
        number: 1,
        secret: secret.clone(),
        drawn_ms: 3,
    }])?;
    meta.put_key_or(secret)?;
    meta.note_start(77)?;
    meta.note_contradicted_start(9)?;
    meta.note_granted_lease(100)?;
    meta.note_lifetime(1234)?;
    meta.declare_failed(NodeId(4))?;
    meta.drain(NodeId(3))?;
    let progress = Progress {
        incarnation: 1,
        position: 4096,
    };
    meta.note_progress(&[(NodeId(1), progress)])?;
    meta.grow_from(files[0].put, (3 * 2048, 0), (47, 0), FencingToken(0))
        .ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn most_tables_have_rows() {
        let tags: BTreeSet<u8> = rows().iter().map(|(key, _)| key[0]).collect();
        assert!(tags.len() >= 34, "only {}: {tags:?}", tags.len());
    }
}
