//! Puts of many stripes: they enter the map of the file some at a time, so that no transaction grows with the file.

use crate::fixture::{cluster_in, discard_all, place};
use gabion_layout::{ChunkIndex, StripeId};
use gabion_meta::{
    Existing, KeyValue, MemoryStore, Meta, MetaError, NewAttributes, PENDING_STRIPES_MAX,
    PoolRecord, PutId, ReadTxn, Row, WriteTxn,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of a segment of the fixture's pool.
const SEGMENT: u64 = 4096;
/// Stripes that the test's client reserves at a time.
const BATCH: u64 = 256;
/// Rows that a transaction reads in lists and changes: it makes at most as many stripes of six chunks garbage as a put
/// may have pending.
const ROWS_MAX: usize = PENDING_STRIPES_MAX as usize * (6 + 12) + 40;

/// A store that counts the rows which each transaction changes.
#[derive(Default)]
struct Counting {
    store: MemoryStore,
    most: AtomicUsize,
    last: AtomicUsize,
}

struct Counted<'t> {
    txn: &'t mut dyn WriteTxn,
    count: &'t Cell<usize>,
}

impl ReadTxn for Counted<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        self.txn.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError> {
        let rows = self.txn.scan(start, end, limit)?;
        self.count.set(self.count.get() + rows.len());
        Ok(rows)
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        self.txn.last(start, end)
    }
}

impl WriteTxn for Counted<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), MetaError> {
        self.count.set(self.count.get() + 1);
        self.txn.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {
        self.count.set(self.count.get() + 1);
        self.txn.delete(key)
    }
}

impl KeyValue for Counting {
    fn read<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        self.store.read(body)
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        let count = Cell::new(0);
        let done = self.store.write(|txn| {
            count.set(0);
            body(&mut Counted { txn, count: &count })
        });
        self.most.fetch_max(count.get(), Relaxed);
        self.last.store(count.get(), Relaxed);
        done
    }

    fn leads(&self) -> Result<(), MetaError> {
        self.store.leads()
    }
}

fn begin<K: KeyValue>(meta: &Meta<K>, pool: &PoolRecord, name: &str, count: u64) -> PutId {
    let new = (name, Existing::IsReplaced, NewAttributes::FILE);
    let places = vec![place(0); count as usize];
    let put = meta.begin_put(new, pool.id, count * SEGMENT, &places, 1);
    put.expect("a free name").id
}

/// Stores as a client does: it reserves stripes when those before are stored.
fn store<K: KeyValue>(meta: &Meta<K>, put: PutId, (from, to): (u64, u64)) {
    for (step, stored) in (from..to).step_by(BATCH as usize).enumerate() {
        meta.enter_stripes(put, stored).expect("it is open");
        let more = BATCH.min(to - stored);
        let size = (stored + more) * SEGMENT;
        let places = vec![place(1); more as usize];
        let extended = meta.extend_put(put, (step as u64, stored), size, &places, 2);
        assert_eq!(extended.expect("it is open").0, stored);
    }
}

#[test]
fn no_transaction_and_no_record_of_a_put_grows_with_its_file() {
    const COUNT: u64 = 20 * BATCH + 7;
    let (meta, pool) = cluster_in(Counting::default());
    let put = begin(&meta, &pool, "f", BATCH);
    store(&meta, put, (BATCH, COUNT));
    let record = meta.puts().expect("it is readable").remove(0);
    assert!(record.runs.len() <= 3, "{record:?}");
    assert_eq!(meta.files("", None, 9), Ok(vec![]), "nothing is visible");
    let file = meta.commit_put(put, 3).expect("a free name");
    let last = meta.store().last.load(Relaxed);
    assert!(last < 7 * 20 + 2 * BATCH as usize * 20, "{last} rows");
    assert_eq!(
        (file.stripe_count, file.size_bytes),
        (COUNT, COUNT * SEGMENT)
    );
    let (_, stripes) = meta.layout_of(put).expect("it is committed");
    let offsets: Vec<u64> = stripes.iter().map(|(offset, _)| *offset).collect();
    assert!(offsets.into_iter().eq((0..COUNT).map(|at| at * SEGMENT)));
    assert_eq!(meta.check(), Ok(vec![]));

    // Another one replaces it, and a third one is aborted.
    let other = begin(&meta, &pool, "f", BATCH);
    store(&meta, other, (BATCH, COUNT));
    meta.commit_put(other, 4).expect("it replaces the file");
    let third = begin(&meta, &pool, "f", BATCH);
    store(&meta, third, (BATCH, COUNT));
    assert_eq!(meta.abort_put(third), Ok(true));
    assert_eq!(meta.check(), Ok(vec![]));
    while meta.discard_removed(512).expect("it works") {}
    assert_eq!(meta.stripe_count(), Ok(COUNT));
    assert_eq!(meta.check(), Ok(vec![]));
    let most = meta.store().most.load(Relaxed);
    assert!(most <= ROWS_MAX, "{most} rows of at most {ROWS_MAX}");
}

#[test]
fn more_stripes_than_one_transaction_changes_are_not_reserved() {
    let (meta, pool) = cluster_in(MemoryStore::new());
    let count = PENDING_STRIPES_MAX + 1;
    let places = vec![place(0); count as usize];
    let new = ("f", Existing::Stays, NewAttributes::FILE);
    let refused = meta.begin_put(new, pool.id, count * SEGMENT, &places, 1);
    assert!(
        matches!(refused, Err(MetaError::Placement { .. })),
        "{refused:?}"
    );
    let put = begin(&meta, &pool, "f", BATCH);
    let rest = count - BATCH;
    let extend = |rest: u64| {
        let places = vec![place(0); rest as usize];
        meta.extend_put(put, (0, BATCH), (BATCH + rest) * SEGMENT, &places, 2)
    };
    assert!(matches!(extend(rest), Err(MetaError::Placement { .. })));
    meta.enter_stripes(put, 1).expect("it is open");
    assert_eq!(
        extend(rest).expect("one has entered").1.len() as u64,
        count - 1
    );
    // Stripes that have entered stay.
    let late = meta.extend_put(put, (1, 0), 0, &[], 3);
    assert_eq!(late, Err(MetaError::PutStep { put, step: 1 }));
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn stripes_that_are_placed_anew_enter_in_their_order() {
    let (meta, pool) = cluster_in(MemoryStore::new());
    let put = begin(&meta, &pool, "f", 4);
    let (_, stripes) = meta
        .extend_put(put, (0, 4), 4 * SEGMENT, &[], 2)
        .expect("it is open");
    let mut expected: Vec<StripeId> = stripes.iter().map(|stripe| stripe.id).collect();
    for at in [0, 2] {
        let nodes = place(1).nodes;
        let anew = meta.place_anew(put, expected[at], expected[at], &nodes);
        expected[at] = anew.expect("other nodes").id;
    }
    for stored in [1, 1, 3] {
        meta.enter_stripes(put, stored).expect("it is open");
        assert_eq!(meta.check(), Ok(vec![]));
    }
    // A late request finds that its stripe is stored.
    let late = meta.place_anew(put, stripes[0].id, stripes[0].id, &place(0).nodes);
    assert_eq!(late, Err(MetaError::UnknownStripe(stripes[0].id)));
    meta.commit_put(put, 3).expect("a free name");
    let (_, layout) = meta.layout_of(put).expect("it is committed");
    let found: Vec<StripeId> = layout.into_iter().map(|(_, stripe)| stripe.id).collect();
    assert_eq!(found, expected);
    assert_eq!(meta.check(), Ok(vec![]));
}

#[test]
fn the_stored_stripes_of_an_open_put_are_listed_with_what_they_have_lost() {
    let (meta, pool) = cluster_in(MemoryStore::new());
    let put = begin(&meta, &pool, "f", 3);
    let listed = |first, limit| {
        let page = meta.entered_stripes(put, first, limit);
        page.expect("it is readable")
    };
    assert!(listed(0, 9).is_empty());
    let entered = meta.enter_stripes(put, 2).expect("it is open");
    let expected: Vec<_> = [0, SEGMENT].into_iter().zip(entered.clone()).collect();
    assert_eq!(listed(0, 9), expected);
    assert_eq!(listed(0, 1), expected[..1]);
    assert_eq!(listed(1, 9), expected[1..]);
    assert!(listed(SEGMENT + 1, 9).is_empty());
    let chunk = ChunkIndex(4);
    meta.mark_stale(entered[1].id, chunk).expect("it is stored");
    let lost = &listed(SEGMENT, 9)[0].1;
    assert!(lost.is_stale(chunk), "{lost:?}");
    meta.commit_put(put, 3).expect("a free name");
    assert!(listed(0, 9).is_empty(), "it is a file's map now");
}

#[test]
fn a_put_that_fails_at_any_step_leaves_nothing_or_the_whole_file() {
    let mut steps = 0;
    loop {
        let (meta, pool) = cluster_in(MemoryStore::new());
        let put = begin(&meta, &pool, "f", 2);
        meta.store().fail_after(steps);
        let done = (|| {
            meta.enter_stripes(put, 2)?;
            meta.extend_put(put, (0, 2), 4 * SEGMENT, &[place(1), place(1)], 2)?;
            meta.enter_stripes(put, 3)?;
            meta.commit_put(put, 3)
        })();
        meta.store().heal();
        assert_eq!(meta.check(), Ok(vec![]), "after {steps} operations");
        if done.is_ok() {
            assert!(steps > 50, "it takes more operations: {steps}");
            return;
        }
        assert_eq!(meta.files("", None, 9), Ok(vec![]));
        assert_eq!(meta.abort_put(put), Ok(true));
        discard_all(&meta);
        assert_eq!(meta.stripe_count(), Ok(0), "after {steps} operations");
        assert_eq!(meta.check(), Ok(vec![]));
        steps += 1;
    }
}
