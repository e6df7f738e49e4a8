//! A coordinator's work on its rows: it opens them, reads them, and changes them.

use super::cluster::{NOW_MS, clock, lock, membership, place, spec};
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, Generation, NodeId, PoolId, RackId, Sequence,
    StaleChunk, Start, StripeId,
};
use gabion_meta::{
    ClientSessionId, DirectoryId, Existing, FencingToken, Held, Holder, InlineWrite, Inode,
    LockMode, MemoryStore, Meta, MetaError, NewAttributes, PutId, SeenName, SessionId,
};

type Cluster = Meta<MemoryStore>;

/// Rows that are read at once.
const LIMIT: usize = 50;
/// Ids that are tried, beside those of rows.
const ID_COUNT: u64 = 12;

/// Opens the rows, reads them, and changes them by the operations that `choice` selects.
pub(super) fn open_and_use(store: MemoryStore, choice: u8) {
    let Some(meta) = ignore(Meta::open(store, clock())) else {
        return;
    };
    reads(&meta);
    let steps: [fn(&Cluster); 4] = [change_names, change_stripes, change_files, change_nodes];
    for (at, step) in steps.iter().enumerate() {
        if choice >> at & 1 == 1 {
            step(&meta);
        }
    }
    ignore(meta.check());
}

/// An operation may be refused, with a sentence.
fn ignore<T>(outcome: Result<T, MetaError>) -> Option<T> {
    outcome
        .inspect_err(|error| assert!(!error.to_string().is_empty()))
        .ok()
}

fn puts() -> impl Iterator<Item = PutId> {
    (0..ID_COUNT).map(PutId)
}

fn stripes() -> impl Iterator<Item = StripeId> {
    (0..ID_COUNT + 4).map(StripeId)
}

fn reads(meta: &Cluster) {
    ignore(meta.nodes());
    ignore(meta.topology());
    ignore(meta.standings());
    ignore(meta.pools());
    ignore(meta.puts());
    ignore(meta.sessions());
    ignore(meta.client_sessions());
    ignore(meta.locked_files(ClientSessionId(0)));
    ignore(meta.progress());
    ignore(meta.ticket_keys());
    ignore(meta.repair_settings());
    ignore(meta.phases());
    ignore(meta.all_former_holders());
    ignore(meta.hidden_stripes());
    ignore(meta.stripe_count());
    ignore(meta.lifetime_ms());
    ignore(meta.stripes(None, LIMIT));
    ignore(meta.garbage(None, LIMIT));
    ignore(meta.orphans(None, LIMIT));
    for name in ["main", "blocks", "blocks-encoded"] {
        ignore(meta.pool_named(name));
    }
    for pool in 0..4 {
        ignore(meta.quota(PoolId(pool)));
    }
    for node in (0..7).map(NodeId) {
        ignore(meta.stripes_on(node, None, LIMIT));
        ignore(meta.facts_on(node, (None, None), LIMIT));
        let some: Vec<StripeId> = stripes().collect();
        ignore(meta.facts_among(node, &some));
    }
    read_names(meta);
    stripes().for_each(|stripe| read_stripe(meta, stripe));
}

fn read_names(meta: &Cluster) {
    ignore(meta.files("", None, LIMIT));
    ignore(meta.files_by_put(None, LIMIT));
    ignore(meta.list("", None, Some("/"), LIMIT));
    ignore(meta.list("dir/", Some("dir/a"), Some("u"), LIMIT));
    for name in [
        "a",
        "dir/b",
        "dir/sub/c",
        "dir/hard",
        "dir/soft",
        "clone",
        "snapshot",
        "block",
    ] {
        ignore(meta.inode(name));
        ignore(meta.file(name));
        ignore(meta.layout(name));
    }
    for directory in (0..5).map(DirectoryId) {
        ignore(meta.read_directory(directory, None, LIMIT));
        ignore(meta.inode_status(Inode::Directory(directory)));
        ignore(meta.user_attributes(Inode::Directory(directory)));
    }
    for put in puts() {
        ignore(meta.file_of(put));
        ignore(meta.inline_bytes(put));
        ignore(meta.layout_of(put));
        ignore(meta.layout_within(put, ByteRange::new(1000, 3000)));
        ignore(meta.inode_status(Inode::File(put)));
        ignore(meta.target(put));
        ignore(meta.exclusive(put));
        ignore(meta.requested_form(put));
        ignore(meta.served_dropped(put));
        ignore(meta.pool_of_put(put));
        ignore(meta.entered_stripes(put, 0, LIMIT));
        ignore(meta.find_lock(
            ClientSessionId(0),
            put,
            &lock(3, Some(LockMode::Exclusive), 5),
        ));
        ignore(meta.unsettled(&[put], &std::collections::BTreeMap::new()));
    }
}

fn read_stripe(meta: &Cluster, stripe: StripeId) {
    ignore(meta.stripe(stripe));
    ignore(meta.stripe_status(stripe));
    ignore(meta.ended_stripe(stripe));
    ignore(meta.lease(stripe));
    ignore(meta.last_epoch(stripe));
    ignore(meta.appends(stripe));
    ignore(meta.former_holders(stripe));
    ignore(meta.absent_holders(stripe));
    ignore(meta.is_withdrawn(stripe));
    let _ = meta.was_handed_out(stripe);
    let chunk = ChunkId {
        stripe,
        index: ChunkIndex(1),
    };
    ignore(meta.may_have_missed(chunk, Sequence(1)));
    ignore(meta.judge(&Held {
        node: NodeId(2),
        chunk,
        epoch: Epoch(1),
        mark: Sequence(1),
        undecided: &[(Epoch(1), Sequence(2))],
    }));
}

fn change_names(meta: &Cluster) {
    let file = ignore(meta.file("a"));
    if let Some(file) = &file {
        let seen = |number| (file.generation, number);
        ignore(meta.link(file.put, seen(61), "other"));
        ignore(meta.rename((file.put, "a"), seen(62), "dir/moved", Existing::Stays));
        ignore(meta.remove_file("dir/hard", file.put, seen(63)));
    }
    for directory in (1..4).map(DirectoryId) {
        let Some(status) = ignore(meta.inode_status(Inode::Directory(directory))) else {
            continue;
        };
        let seen = |number| (status.generation, number + directory.0);
        ignore(meta.rename_directory(directory, seen(70), "elsewhere/d", Existing::IsReplaced));
        ignore(meta.remove_directory(directory, seen(80)));
    }
    let seen = ["a", "dir"].map(|path| {
        let status = ignore(meta.inode(path))?;
        Some(SeenName {
            at: path.into(),
            inode: status.inode,
            generation: status.generation,
        })
    });
    if let [Some(one), Some(other)] = seen {
        ignore(meta.exchange_names(&[one, other], 65));
    }
    ignore(meta.make_directory("x/y", NewAttributes::FILE, 64));
    for put in puts() {
        let Some(tokens) = ignore(meta.freeze(&[put])) else {
            continue;
        };
        let (source, to) = ((Inode::File(put), &tokens), format!("copy{}", put.0));
        let times = (90 + put.0, NOW_MS);
        ignore(meta.snapshot(source, to, put.0.is_multiple_of(2), times));
        for id in (1..4).map(DirectoryId) {
            let (source, to) = ((Inode::Directory(id), &tokens), format!("tree{}", id.0));
            ignore(meta.snapshot(source, to, true, (80 + id.0, NOW_MS)));
        }
        ignore(meta.thaw(&[put]));
    }
    ignore(meta.free_orphans(&(0..8).map(PutId).collect::<Vec<_>>()));
    while ignore(meta.discard_removed(8)) == Some(true) {}
    ignore(meta.merge_maps(3));
}

fn change_stripes(meta: &Cluster) {
    let node = Holder::Node {
        node: NodeId(1),
        incarnation: 1,
    };
    let ours = Holder::Coordinator {
        incarnation: meta.incarnation(),
    };
    for stripe in stripes() {
        if let Some(lease) = ignore(meta.acquire(stripe, node, &membership(), NOW_MS)) {
            ignore(meta.note_phase(stripe, lease.epoch, Sequence(9), true));
            let stale = StaleChunk {
                chunk: ChunkIndex(0),
                missed_after: Some(Sequence(3)),
            };
            ignore(meta.note_degraded(stripe, lease.epoch, &[stale]));
            ignore(meta.release(stripe, lease.epoch));
        }
        if let Some(lease) = ignore(meta.acquire(stripe, ours, &membership(), NOW_MS + 500)) {
            ignore(meta.release_settled(stripe, lease.epoch));
        }
        ignore(meta.mark_stale(stripe, ChunkIndex(2)));
        if let Some(record) = ignore(meta.stripe(stripe)) {
            ignore(meta.begin_move(stripe, record.generation));
            let to = (NodeId(5), Some(Generation(2)));
            ignore(meta.relocate(stripe, record.generation, ChunkIndex(0), to));
            ignore(meta.abandon_move(stripe));
        }
        ignore(meta.withdrawn(&[stripe]));
        ignore(meta.reclaimed(stripe));
    }
    ignore(meta.forget_absences(3));
}

fn change_files(meta: &Cluster) {
    for put in puts() {
        ignore(meta.enter_stripes(put, 1));
        ignore(meta.extend_put(put, (0, 1), 4096, &[place(0)], NOW_MS));
        ignore(meta.commit_replacement(put));
        ignore(meta.commit_put(put, NOW_MS));
        ignore(meta.abort_put(put));
        ignore(meta.raise_token(put));
        let version = ignore(meta.file_of(put)).and_then(|file| file.inline);
        let write = InlineWrite {
            version: version.map_or(1, |inline| inline.version),
            offset: 5,
            bytes: b"bytes",
            token: FencingToken(1),
            number: 1000 + put.0,
        };
        ignore(meta.write_inline(put, &write));
        ignore(meta.open_exclusive(put, SessionId(6), FencingToken(1)));
        ignore(meta.close_exclusive(put, SessionId(5)));
        ignore(meta.grow(put, 5000, 0));
        ignore(meta.grow_from(put, (5000, 10), (put.0, 0), FencingToken(1)));
        ignore(meta.set_lock(ClientSessionId(0), put, &lock(1, None, 3)));
        ignore(meta.set_lock(
            ClientSessionId(0),
            put,
            &lock(4, Some(LockMode::Exclusive), 3),
        ));
    }
    ignore(meta.open_session());
    ignore(meta.close_session(ClientSessionId(0)));
    let small = ("little", Existing::IsReplaced, NewAttributes::FILE);
    ignore(meta.put_inline(small, PoolId(0), b"bytes", (999, NOW_MS)));
    let named = ("new", Existing::Stays, NewAttributes::FILE);
    if let Some(put) = ignore(meta.begin_put(named, PoolId(0), 2048, &[place(1)], NOW_MS)) {
        ignore(meta.commit_put(put.id, NOW_MS));
    }
}

fn change_nodes(meta: &Cluster) {
    ignore(meta.join(None, RackId(9), "10.0.0.9:7000", 1 << 30, 5));
    for node in (0..7).map(NodeId) {
        ignore(meta.lose_pending(node));
        ignore(meta.declare_failed(node));
        let start = Start {
            number: 2,
            nonce: 1,
        };
        ignore(meta.declare_returned(node, start, 77));
        ignore(meta.join(Some(node), RackId(1), "10.0.0.8:7000", 1 << 30, 5));
        ignore(meta.drain(node));
        ignore(meta.drained(node));
        ignore(meta.keep(node));
        ignore(meta.abandon_node(node));
    }
    ignore(meta.create_pool(&spec("another")));
    ignore(meta.note_start(78));
    ignore(meta.end_longer_leases(50));
    ignore(meta.note_granted_lease(200));
    ignore(meta.note_lifetime(5000));
}
