//! Groups, their order and a loss of power, on a disk that loses what is not synced.

use super::*;
use crate::{
    ClusterId, Existing, Meta, NewAttributes, OpenFiles, PoolSpec, PutId, WallClock, WallTime,
};
use gabion_layout::{Survive, UpdateScheme};
use redb::StorageBackend;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A disk that loses what is not synced when its power fails.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    opened: Condvar,
    sync_count: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Syncs wait.
    is_shut: bool,
    is_sync_waiting: bool,
}

impl Disk {
    fn shut(&self, is_shut: bool) {
        self.0.state.lock().unwrap().is_shut = is_shut;
        self.0.opened.notify_all();
    }

    /// Waits until a sync waits: its writer has the engine meanwhile.
    fn until_sync_waits(&self) {
        while !self.0.state.lock().unwrap().is_sync_waiting {
            thread::yield_now();
        }
    }

    /// The disk after a loss of power.
    fn after_power_loss(&self) -> Self {
        let synced = self.0.state.lock().unwrap().synced.clone();
        let left = Self::default();
        left.0.state.lock().unwrap().now = synced;
        left
    }

    fn open(&self) -> RedbStore {
        RedbStore::over(builder().create_with_backend(self.clone()).unwrap()).unwrap()
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.state.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.state.lock().unwrap();
        let from = offset as usize;
        let bytes = state.now.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.state.lock().unwrap().now.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_count.fetch_add(1, Ordering::Relaxed);
        let mut state = self.0.state.lock().unwrap();
        state.is_sync_waiting |= state.is_shut;
        let mut state = self.0.opened.wait_while(state, |s| s.is_shut).unwrap();
        state.synced = state.now.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.0.state.lock().unwrap();
        let from = offset as usize;
        state.now[from..from + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn put(store: &RedbStore, key: &[u8], value: &[u8]) {
    store.write(|txn| txn.put(key, value)).unwrap();
}

fn rows(store: &RedbStore) -> Vec<Row> {
    store
        .read(|txn| txn.scan(b"", b"\xff", usize::MAX))
        .unwrap()
}

fn first_row(disk: &Disk) -> RedbStore {
    let store = disk.open();
    let txn = store.database.begin_write().unwrap();
    txn.open_table(ROWS).unwrap();
    txn.commit().unwrap();
    store
}

#[test]
fn what_was_acknowledged_or_read_is_there_after_a_loss_of_power() {
    let disk = Disk::default();
    let store = first_row(&disk);
    let acknowledged = Mutex::new(Vec::new());
    let left_count = AtomicU64::new(4);
    let write = |writer: u8| {
        for at in 0..60 {
            let key = [writer, at];
            put(&store, &key, b"value");
            acknowledged.lock().unwrap().push(key.to_vec());
        }
        left_count.fetch_sub(1, Ordering::Relaxed);
    };
    let check = || {
        while left_count.load(Ordering::Relaxed) > 0 {
            // First what others know, then the power fails.
            let mut known = acknowledged.lock().unwrap().clone();
            known.extend(rows(&store).into_iter().map(|(key, _)| key));
            let left = rows(&disk.after_power_loss().open());
            let is_left = |key: &Vec<u8>| left.iter().any(|(other, _)| other == key);
            assert!(known.iter().all(is_left));
        }
    };
    thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || write(writer));
        }
        scope.spawn(check);
    });
    assert_eq!(rows(&store).len(), 240);
}

#[test]
fn transactions_that_wait_share_a_sync() {
    const COUNT: u8 = 20;
    let disk = Disk::default();
    let store = first_row(&disk);
    disk.shut(true);
    let before = disk.0.sync_count.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let store = &store;
        scope.spawn(move || put(store, &[COUNT], b"value"));
        disk.until_sync_waits();
        for writer in 0..COUNT {
            scope.spawn(move || put(store, &[writer], b"value"));
        }
        while store.group.last().number < u64::from(COUNT) + 1 {
            thread::yield_now();
        }
        disk.shut(false);
    });
    let syncs = disk.0.sync_count.load(Ordering::Relaxed) - before;
    assert!(syncs <= u64::from(COUNT) / 2, "{syncs} syncs");
    assert_eq!(
        rows(&disk.after_power_loss().open()).len(),
        usize::from(COUNT) + 1
    );
}

#[test]
fn transactions_see_changes_that_are_being_committed_and_readers_only_durable_ones() {
    let disk = Disk::default();
    let store = first_row(&disk);
    put(&store, b"count", &[0]);
    let count = || {
        let raise = |txn: &mut dyn WriteTxn| {
            let present = txn.get(b"count")?.map_or(0, |value| value[0]);
            txn.put(b"count", &[present + 1])
        };
        store.write(raise).unwrap();
    };
    let seen = || rows(&store)[0].1[0];
    disk.shut(true);
    thread::scope(|scope| {
        scope.spawn(count);
        disk.until_sync_waits();
        for _ in 0..2 {
            scope.spawn(count);
        }
        while store.group.last().number < 4 {
            thread::yield_now();
        }
        assert_eq!(seen(), 0, "nothing is durable yet");
        disk.shut(false);
    });
    assert_eq!(seen(), 3);
}

#[test]
fn a_refusal_waits_for_the_changes_that_it_has_seen() {
    let disk = Disk::default();
    let store = first_row(&disk);
    let refused_count = AtomicU64::new(0);
    let refuse = |txn: &mut dyn WriteTxn| {
        assert!(txn.get(b"a")?.is_some(), "it sees the change");
        refused_count.fetch_add(1, Ordering::Relaxed);
        Err::<(), _>(MetaError::NoCluster)
    };
    disk.shut(true);
    thread::scope(|scope| {
        let store = &store;
        scope.spawn(move || put(store, b"a", b"1"));
        disk.until_sync_waits();
        let refused = scope.spawn(|| store.write(refuse));
        while refused_count.load(Ordering::Relaxed) == 0 || store.group.waiting_count() > 0 {
            thread::yield_now();
        }
        for _ in 0..20 {
            thread::yield_now();
            assert!(!refused.is_finished(), "the change is not durable yet");
        }
        disk.shut(false);
        assert_eq!(refused.join().unwrap(), Err(MetaError::NoCluster));
    });
}

#[test]
fn a_transaction_that_fails_changes_nothing_of_its_group() {
    let failed_count = AtomicU64::new(0);
    let disk = Disk::default();
    let store = first_row(&disk);
    disk.shut(true);
    thread::scope(|scope| {
        let store = &store;
        scope.spawn(move || put(store, b"a", b"1"));
        disk.until_sync_waits();
        for key in [b"b", b"c"] {
            scope.spawn(move || put(store, key, b"2"));
        }
        let failed_count = &failed_count;
        let failing = scope.spawn(move || {
            store.write(|txn| {
                txn.put(b"a", b"3")?;
                txn.delete(b"b")?;
                failed_count.fetch_add(1, Ordering::Relaxed);
                Err::<(), _>(MetaError::NoCluster)
            })
        });
        while store.group.last().number < 3 || failed_count.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        disk.shut(false);
        assert_eq!(failing.join().unwrap(), Err(MetaError::NoCluster));
    });
    let left = rows(&disk.after_power_loss().open());
    let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    assert_eq!(left, [row(b"a", b"1"), row(b"b", b"2"), row(b"c", b"2")]);
}

#[test]
fn nothing_is_acknowledged_after_the_log_has_failed() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("log");
    let disk = Disk::default();
    let store = first_row(&disk).with_log(&directory).unwrap();
    put(&store, b"a", b"1");
    lock(store.log.as_ref().unwrap()).fill_disk();
    thread::scope(|scope| {
        for writer in 0..4_u8 {
            let store = &store;
            scope.spawn(move || {
                for at in 0..5_u8 {
                    let written = store.write(|txn| txn.put(&[writer, at], b"lost"));
                    assert!(matches!(written, Err(MetaError::Log(_))), "{written:?}");
                }
            });
        }
    });
    drop(store);
    let restored = place.path().join("restored");
    RedbStore::restore(&restored, &directory).unwrap();
    let left = rows(&RedbStore::open(&restored).unwrap());
    assert_eq!(left, [(b"a".to_vec(), b"1".to_vec())]);
}

#[test]
fn a_change_is_in_the_log_before_it_is_in_the_store() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("log");
    let disk = Disk::default();
    let store = first_row(&disk).with_log(&directory).unwrap();
    put(&store, b"a", b"1");
    let synced = || rows(&disk.after_power_loss().open());
    thread::scope(|scope| {
        disk.shut(true);
        let store = &store;
        scope.spawn(move || put(store, b"b", b"2"));
        disk.until_sync_waits();
        assert_eq!(synced().len(), 1);
        // The other process is gone, as is its lock.
        let copy = place.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        for entry in std::fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        let restored = place.path().join("restored");
        RedbStore::restore(&restored, &copy).unwrap();
        assert_eq!(rows(&RedbStore::open(&restored).unwrap()).len(), 2);
        // A store that lost its power takes the change over.
        let left = disk.after_power_loss().open().with_log(&copy).unwrap();
        assert_eq!(rows(&left).len(), 2);
        disk.shut(false);
    });
}

/// Whether a client has the file open.
#[derive(Debug)]
struct IsOpen(AtomicBool);

impl OpenFiles for IsOpen {
    fn keeps(&self, _file: PutId) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn made(&self, _number: u64, _file: PutId) {}

    fn settled(&self, _files: Vec<PutId>) {}
}

/// The client closes the file after the removal has found it open and before the removal is durable.
#[test]
fn an_orphan_is_freed_although_its_removal_is_not_durable_yet() {
    let disk = Disk::default();
    let clock = WallClock::stopped(WallTime::default());
    let meta = Meta::create(first_row(&disk), ClusterId(1), clock).unwrap();
    let is_open = Arc::new(IsOpen(AtomicBool::new(true)));
    let meta = meta.with_open_files(Arc::clone(&is_open) as _);
    let spec = PoolSpec {
        name: "main".to_owned(),
        code: "rs(4,2)".to_owned(),
        k: 4,
        m: 2,
        sub_chunks: 1,
        chunk_bytes: 1024,
        survive: Survive::Racks(2),
        chunks_per_rack: 1,
        update: UpdateScheme::Pl,
        reserve: None,
        append: None,
        inline_bytes: 4096,
    };
    let pool = meta.create_pool(&spec).unwrap().id;
    let new = ("file", Existing::Stays, NewAttributes::FILE);
    let (file, _) = meta.put_inline(new, pool, b"bytes", (1, 0)).unwrap();
    let generation = meta.file("file").unwrap().generation;
    disk.shut(true);
    thread::scope(|scope| {
        let removed = scope.spawn(|| meta.remove_file("file", file, (generation, 2)));
        disk.until_sync_waits();
        let before = meta.store.group.last().number;
        is_open.0.store(false, Ordering::Relaxed);
        let freed = scope.spawn(|| meta.free_orphans(&[file]));
        let is_behind = || meta.store.group.last().number > before;
        while !is_behind() && !freed.is_finished() {
            thread::yield_now();
        }
        disk.shut(false);
        assert_eq!(removed.join().unwrap(), Ok(()));
        assert_eq!(freed.join().unwrap(), Ok(1));
    });
    assert_eq!(meta.check(), Ok(vec![]));
}
