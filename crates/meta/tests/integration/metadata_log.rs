//! The metadata log: a second copy of a redb store, and the stores that are restored from it.

use gabion_meta::{KeyValue, LogError, MetaError, RedbStore, Row, back_up};
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn log(&self) -> PathBuf {
        self.path("log")
    }

    /// A store with a log, made or opened.
    fn open(&self, name: &str) -> Result<RedbStore, MetaError> {
        RedbStore::create(&self.path(name))?.with_log(&self.log())
    }

    /// The rows of the store that a log gives back.
    fn restored(&self, log: &Path) -> Result<Vec<Row>, MetaError> {
        let path = self.path("restored");
        if path.exists() {
            fs::remove_file(&path).expect("it is there");
        }
        RedbStore::restore(&path, log)?;
        Ok(rows(&RedbStore::open(&path)?))
    }

    /// The files of the log whose names begin like this, in their order.
    fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.log()).expect("the log is there");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let is_meant = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(prefix))
        };
        let mut files: Vec<PathBuf> = paths.filter(is_meant).collect();
        files.sort();
        files
    }
}

fn rows(store: &RedbStore) -> Vec<Row> {
    store
        .read(|txn| txn.scan(b"", &[u8::MAX], usize::MAX))
        .expect("rows")
}

fn put(store: &RedbStore, key: &[u8], value: &[u8]) {
    let written = store.write(|txn| txn.put(key, value));
    written.expect("a transaction");
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a new directory");
    for entry in fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

fn log_error(result: Result<impl Sized, MetaError>) -> LogError {
    match result {
        Err(MetaError::Log(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was accepted"),
    }
}

#[test]
fn a_log_gives_back_every_change_whatever_the_operations() {
    let operations = proptest::collection::vec(
        (
            0_u8..4,
            proptest::collection::vec((0_u8..6, proptest::option::of(0_u8..9)), 1..5),
        ),
        1..40,
    );
    let mut runner = TestRunner::new(Config::with_cases(24));
    runner
        .run(&operations, |operations| {
            let place = Place::new();
            let mut store = place.open("store").unwrap();
            for (kind, changes) in &operations {
                match kind {
                    // A restart.
                    0 => {
                        drop(store);
                        store = place.open("store").unwrap();
                    }
                    // A transaction that fails.
                    1 => {
                        let failed = store.write(|txn| {
                            txn.put(b"never", b"there")?;
                            Err::<(), _>(MetaError::NoCluster)
                        });
                        failed.unwrap_err();
                    }
                    _ => store
                        .write(|txn| {
                            changes.iter().try_for_each(|(key, value)| match value {
                                Some(value) => txn.put(&[*key], &[*value]),
                                None => txn.delete(&[*key]),
                            })
                        })
                        .unwrap(),
                }
            }
            let expected = rows(&store);
            drop(store);
            assert_eq!(place.restored(&place.log()).unwrap(), expected);
            Ok(())
        })
        .unwrap();
}

/// Copies the log again and again while it is written, and checks each copy.
fn check_copies(copy: impl Fn(&Place, usize) -> PathBuf) {
    let place = Place::new();
    let store = place.open("store").expect("a store");
    let (acknowledged, is_over) = (Mutex::new(BTreeSet::new()), AtomicBool::new(false));
    thread::scope(|scope| {
        for writer in 0..4_u8 {
            let (store, acknowledged, is_over) = (&store, &acknowledged, &is_over);
            scope.spawn(move || {
                for at in 0..1000_u32 {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = [&[writer][..], &at.to_be_bytes()].concat();
                    put(store, &key, &[7; 300]);
                    acknowledged.lock().expect("no panic").insert(key);
                }
            });
        }
        for round in 0..12 {
            let wanted = round * 20;
            while acknowledged.lock().expect("no panic").len() < wanted {
                thread::yield_now();
            }
            let known = acknowledged.lock().expect("no panic").clone();
            let copied = copy(&place, round);
            let left = place.restored(&copied).expect("it is whole");
            let left: BTreeSet<Vec<u8>> = left.into_iter().map(|(key, _)| key).collect();
            assert!(known.is_subset(&left), "copy {round}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_copy_of_the_log_has_what_was_acknowledged_before_it_was_taken() {
    check_copies(|place, round| {
        let copied = place.path(&format!("copy-{round}"));
        copy_directory(&place.log(), &copied);
        copied
    });
}

#[test]
fn a_backup_has_what_was_acknowledged_before_it_began() {
    check_copies(|place, _| {
        let backup = place.path("backup");
        back_up(&place.log(), &backup).unwrap();
        backup
    });
}

#[test]
fn a_restored_backup_may_be_backed_up_to_the_same_directory() {
    let place = Place::new();
    let store = place.open("store").unwrap();
    put(&store, b"first", b"1");
    let backup = place.path("backup");
    back_up(&place.log(), &backup).unwrap();
    drop(store);
    fs::remove_dir_all(place.log()).unwrap();
    fs::create_dir(place.log()).unwrap();
    // Both disks are lost. The restored store gets a new log, whose base is where the backup ends.
    RedbStore::restore(&place.path("new"), &backup).unwrap();
    let store = place.open("new").unwrap();
    put(&store, b"second", b"2");
    let done = back_up(&place.log(), &backup).unwrap();
    assert_eq!((done.base, done.last), (1, 2));
    assert_eq!(place.restored(&backup).unwrap(), rows(&store));
}

#[test]
fn a_store_that_went_back_takes_over_what_its_log_has() {
    let place = Place::new();
    let store = place.open("store").unwrap();
    put(&store, b"a", b"1");
    drop(store);
    fs::copy(place.path("store"), place.path("old")).unwrap();
    let store = place.open("store").unwrap();
    put(&store, b"a", b"2");
    put(&store, b"b", b"3");
    store.write(|txn| txn.delete(b"a")).unwrap();
    let newest = rows(&store);
    drop(store);
    let store = place.open("old").unwrap();
    assert_eq!(rows(&store), newest);
    put(&store, b"c", b"4");
    let newest = rows(&store);
    drop(store);
    assert_eq!(place.restored(&place.log()).unwrap(), newest);
    // The store that had those changes before has no other ones, and takes over the last.
    assert_eq!(rows(&place.open("store").unwrap()), newest);
}

#[test]
fn a_restored_store_goes_on_with_its_log() {
    let place = Place::new();
    let store = place.open("store").unwrap();
    put(&store, b"a", b"1");
    drop(store);
    let restored = RedbStore::restore(&place.path("new"), &place.log()).unwrap();
    assert_eq!((restored.transaction_count, restored.last), (1, 1));
    let store = place.open("new").unwrap();
    put(&store, b"b", b"2");
    let newest = rows(&store);
    drop(store);
    assert_eq!(place.restored(&place.log()).unwrap(), newest);
    let exists = RedbStore::restore(&place.path("new"), &place.log());
    assert!(
        matches!(exists, Err(MetaError::Exists { .. })),
        "{exists:?}"
    );
}

#[test]
fn a_store_that_changed_without_its_log_gives_it_a_new_base() {
    let place = Place::new();
    let store = place.open("store").unwrap();
    put(&store, b"a", b"1");
    drop(store);
    let store = RedbStore::open(&place.path("store")).unwrap();
    put(&store, b"b", b"2");
    drop(store);
    let store = place.open("store").unwrap();
    put(&store, b"c", b"3");
    let newest = rows(&store);
    drop(store);
    assert_eq!(place.restored(&place.log()).unwrap(), newest);
    assert_eq!(place.files("base").len(), 1, "the old one is gone");
    assert_eq!(rows(&place.open("store").unwrap()), newest);
}

#[test]
fn histories_that_have_parted_are_refused() {
    let place = Place::new();
    let store = place.open("store").unwrap();
    put(&store, b"a", b"1");
    drop(store);
    fs::copy(place.path("store"), place.path("old")).unwrap();
    let store = place.open("store").unwrap();
    put(&store, b"a", b"2");
    drop(store);
    // An old copy that has changed without the log.
    let old = RedbStore::open(&place.path("old")).unwrap();
    put(&old, b"a", b"3");
    put(&old, b"a", b"4");
    put(&old, b"a", b"5");
    drop(old);
    let refused = log_error(place.open("old"));
    let differs = matches!(
        refused,
        LogError::Differs {
            log: 2,
            store: 4,
            ..
        }
    );
    assert!(differs, "{refused}");
    // The store of another cluster, and a new one.
    let other = RedbStore::create(&place.path("other")).unwrap();
    put(&other, b"its cluster", b"1");
    drop(other);
    let refused = log_error(place.open("other"));
    assert!(matches!(refused, LogError::Differs { .. }), "{refused}");
    let refused = log_error(place.open("new"));
    assert!(matches!(refused, LogError::OfCluster(_)), "{refused}");
    // None of them has changed the log.
    let newest = rows(&place.open("store").unwrap());
    assert_eq!(newest, [(b"a".to_vec(), b"2".to_vec())]);
}

#[test]
fn a_log_whose_disk_is_away_is_missed() {
    let place = Place::new();
    put(&place.open("store").unwrap(), b"a", b"1");
    let away = place.path("away");
    fs::rename(place.log(), &away).unwrap();
    let refused = log_error(place.open("store"));
    assert!(matches!(refused, LogError::Gone(_)), "{refused}");
    fs::rename(&away, place.log()).unwrap();
    place.open("store").unwrap();
    // An empty directory is for a new log.
    fs::remove_dir_all(place.log()).unwrap();
    fs::create_dir(place.log()).unwrap();
    drop(place.open("store").unwrap());
    let restored = place.restored(&place.log()).unwrap();
    assert_eq!(restored, [(b"a".to_vec(), b"1".to_vec())]);
}

#[test]
fn stores_without_a_place_in_a_history_get_one_by_their_rows() {
    // Stores as they were before they had logs: their changes left no trace.
    let place = Place::new();
    for (name, value) in [("one", b"1"), ("other", b"2")] {
        let database = redb::Database::create(place.path(name)).unwrap();
        let txn = database.begin_write().unwrap();
        let table = redb::TableDefinition::<&[u8], &[u8]>::new("metadata");
        let mut rows = txn.open_table(table).unwrap();
        rows.insert(&b"a"[..], &value[..]).unwrap();
        drop(rows);
        txn.commit().unwrap();
    }
    put(&place.open("one").unwrap(), b"b", b"3");
    let refused = log_error(place.open("other"));
    assert!(matches!(refused, LogError::Differs { .. }), "{refused}");
    assert_eq!(rows(&place.open("one").unwrap()).len(), 2);
}

#[test]
fn one_process_uses_a_log() {
    let place = Place::new();
    let store = place.open("store").unwrap();
    let second = log_error(place.open("second"));
    assert!(matches!(second, LogError::InUse(_)), "{second}");
    let restored = RedbStore::restore(&place.path("restored"), &place.log());
    assert!(matches!(log_error(restored), LogError::InUse(_)));
    drop(store);
    place.open("store").unwrap();
    fs::create_dir(place.path("empty")).unwrap();
    let empty = RedbStore::restore(&place.path("restored"), &place.path("empty"));
    assert!(matches!(log_error(empty), LogError::Missing(_)));
    assert!(!place.path("restored").exists());
}

#[test]
fn a_torn_end_is_left_out_and_damage_before_it_is_refused() {
    let place = Place::new();
    let store = place.open("store").unwrap();
    put(&store, b"a", b"1");
    let before = fs::read(place.files("log").last().unwrap()).unwrap();
    put(&store, b"b", b"2");
    drop(store);
    let path = place.files("log").pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let keys = |place: &Place| -> Vec<u8> {
        let left = place.restored(&place.log()).unwrap();
        left.into_iter().map(|(key, _)| key[0]).collect()
    };
    for length in before.len()..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(keys(&place), *b"a", "{length} bytes");
    }
    // A disk may have the length of a block before its bytes.
    let mut hollow = whole.clone();
    hollow[before.len()..].fill(0);
    fs::write(&path, &hollow).unwrap();
    assert_eq!(keys(&place), *b"a");
    // A store that had the torn change is ahead of the log: nothing that was acknowledged is like that.
    let refused = log_error(place.open("store"));
    assert!(
        matches!(
            refused,
            LogError::Differs {
                log: 1,
                store: 2,
                ..
            }
        ),
        "{refused}"
    );
    for byte in 0..before.len() {
        let mut bad = whole.clone();
        bad[byte] ^= 4;
        fs::write(&path, &bad).unwrap();
        let refused = log_error(place.restored(&place.log()));
        let is_told = matches!(refused, LogError::Damaged { .. } | LogError::Gap { .. });
        assert!(is_told, "byte {byte}: {refused}");
    }
    fs::write(&path, &whole).unwrap();
    let base = place.files("base").pop().unwrap();
    let whole_base = fs::read(&base).unwrap();
    for byte in 0..whole_base.len() {
        let mut bad = whole_base.clone();
        bad[byte] ^= 4;
        fs::write(&base, &bad).unwrap();
        let refused = log_error(place.restored(&place.log()));
        assert!(
            matches!(refused, LogError::Damaged { .. }),
            "byte {byte}: {refused}"
        );
    }
    fs::remove_file(&base).unwrap();
    let refused = log_error(place.restored(&place.log()));
    assert!(matches!(refused, LogError::Gap { .. }), "{refused}");
}

#[test]
fn a_log_gets_a_new_base_when_it_has_grown_and_old_files_go() {
    const VALUE_BYTES: usize = 1 << 20;
    let place = Place::new();
    put(&place.open("store").unwrap(), b"first", b"1");
    fs::copy(place.path("store"), place.path("old")).unwrap();
    let store = place.open("store").unwrap();
    assert!(!store.renew_log().unwrap());
    for round in 0..70_u8 {
        put(&store, &[round % 3], &vec![round; VALUE_BYTES]);
    }
    assert!(place.files("log").len() > 3, "the log has several files");
    thread::scope(|scope| {
        let writer = scope.spawn(|| (0..20_u8).for_each(|at| put(&store, &[9, at], b"meanwhile")));
        assert!(store.renew_log().unwrap());
        writer.join().unwrap();
    });
    assert!(!store.renew_log().unwrap());
    assert_eq!(place.files("base").len(), 1);
    assert!(place.files("log").len() <= 2, "{:?}", place.files("log"));
    let newest = rows(&store);
    drop(store);
    assert_eq!(place.restored(&place.log()).unwrap(), newest);
    assert_eq!(rows(&place.open("store").unwrap()), newest);
    // The changes behind this copy are in the base alone.
    let refused = log_error(place.open("old"));
    assert!(
        matches!(refused, LogError::Older { store: 1, .. }),
        "{refused}"
    );
    // Without one of its files it is not whole.
    let store = place.open("store").unwrap();
    for round in 0..40_u8 {
        put(&store, &[round % 3], &vec![round; VALUE_BYTES]);
    }
    drop(store);
    let logs = place.files("log");
    fs::remove_file(&logs[logs.len() - 2]).unwrap();
    let refused = log_error(place.restored(&place.log()));
    assert!(matches!(refused, LogError::Gap { .. }), "{refused}");
}
