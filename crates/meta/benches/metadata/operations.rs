//! Operations on files' metadata, timed on any engine. The bench of `sql` uses this file too.

use gabion_layout::{NodeId, RackId, UpdateScheme};
use gabion_meta::{
    ClusterId, Existing, FileRecord, KeyValue, Meta, NewAttributes, Placement, PoolRecord,
    PoolSpec, WallClock, WallTime,
};
use std::time::Instant;

const CHUNK_BYTES: u64 = 4096;
/// The bytes of an inline file.
const INLINE_BYTES: u64 = 4096;
const NODE_COUNT: u32 = 9;
/// Spreads the numbers of requests, which clients draw at random; it is odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Clients that work at a time.
const CLIENT_COUNTS: [u64; 2] = [1, 16];

/// Makes files in stripes and inline, opens and renames them, about `count` for each number of clients, and reports
/// each rate: the operation, the clients, and how many a second.
pub(crate) fn rates<K: KeyValue + Sync>(
    (meta, pool): (&Meta<K>, &PoolRecord),
    count: u64,
    report: impl Fn(&str, u64, f64),
) {
    for clients in CLIENT_COUNTS {
        let each = count * (1 + clients / 4) / clients;
        let rate = |what, work: &(dyn Fn(u64, u64) + Sync)| {
            let took = together(clients, |client| {
                (0..each).for_each(|at| work(client, at));
            });
            report(what, clients, (clients * each) as f64 / took);
        };
        let name = |client: u64, at: u64| format!("{clients:02}/{client:02}/{at:06}");
        rate("creations", &|client, at| {
            create(meta, pool, &name(client, at));
        });
        rate("puts", &|client, at| {
            let number = (clients << 48 | client << 32 | at).wrapping_mul(SPREAD);
            put_inline(meta, pool, &format!("inline/{}", name(client, at)), number);
        });
        rate("openings", &|client, at| {
            meta.layout(&name(client, at)).expect("it was created");
        });
        rate("renames", &|client, at| {
            let file = meta.file(&name(client, at)).expect("it was created");
            let to = format!("{}.old", file.name);
            let renamed = meta.rename(
                (file.put, &file.name),
                (file.generation, meta.change_count()),
                &to,
                Existing::Stays,
            );
            renamed.expect("a free name");
        });
    }
}

/// Makes a file: two transactions, of which the first reserves its stripe. Returns its record.
pub(crate) fn create<K: KeyValue>(meta: &Meta<K>, pool: &PoolRecord, name: &str) -> FileRecord {
    let size_bytes = 6 * CHUNK_BYTES;
    let place = Placement {
        chunk_bytes: CHUNK_BYTES,
        nodes: (0..NODE_COUNT).map(NodeId).collect(),
    };
    let put = meta.begin_put(
        (name, Existing::Stays, NewAttributes::FILE),
        pool.id,
        size_bytes,
        &[place],
        0,
    );
    let put = put.expect("a new file").id;
    meta.commit_put(put, 0).expect("the put is there")
}

/// Stores a file inline: one transaction.
fn put_inline<K: KeyValue>(meta: &Meta<K>, pool: &PoolRecord, name: &str, number: u64) {
    let new = (name, Existing::Stays, NewAttributes::FILE);
    let stored = meta.put_inline(new, pool.id, &[7; INLINE_BYTES as usize], (number, 0));
    stored.expect("a new file");
}

/// The seconds that clients take together, one thread each.
pub(crate) fn together(clients: u64, work: impl Fn(u64) + Sync) -> f64 {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..clients {
            let work = &work;
            scope.spawn(move || work(client));
        }
    });
    began.elapsed().as_secs_f64()
}

/// A new cluster with a pool `rs(6,3)`.
pub(crate) fn cluster<K: KeyValue>(store: K) -> (Meta<K>, PoolRecord) {
    let meta = Meta::create(store, ClusterId(1), WallClock::stopped(WallTime::default()))
        .expect("a new cluster");
    for node in 0..NODE_COUNT {
        let address = format!("host:{}", 7000 + node);
        let joined = meta.join(None, RackId(node / 3), &address, 1 << 40, 0);
        joined.expect("a new node");
    }
    let spec = PoolSpec {
        name: "p".to_owned(),
        code: "rs(6,3)".to_owned(),
        k: 6,
        m: 3,
        sub_chunks: 1,
        chunk_bytes: CHUNK_BYTES,
        survive: "1-rack".parse().expect("a promise"),
        chunks_per_rack: 3,
        update: UpdateScheme::Pl,
        reserve: None,
        append: None,
        inline_bytes: INLINE_BYTES,
    };
    let pool = meta.create_pool(&spec).expect("a new pool");
    (meta, pool)
}
