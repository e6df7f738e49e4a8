//! Backups that end at any step, whose log gets a new base at any step, or whose directory has something else.

use super::*;
use crate::{ClusterId, KeyValue as _, Meta, RedbStore, Row, WallClock, WallTime};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tempfile::TempDir;

/// A store with a log, and all its states by the numbers of their changes.
struct Place {
    directory: TempDir,
    store: RedbStore,
    states: RefCell<Vec<Vec<Row>>>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = RedbStore::create(&directory.path().join("store")).unwrap();
        let store = store.with_log(&directory.path().join("log")).unwrap();
        Self {
            directory,
            store,
            states: RefCell::new(vec![Vec::new()]),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log(&self) -> PathBuf {
        self.path("log")
    }

    fn backup(&self) -> PathBuf {
        self.path("backup")
    }

    /// Makes some changes, of which each is a block of the log.
    fn change(&self, count: u8) {
        for at in 0..count {
            let number = self.last() + 1;
            // Tags that no table has.
            let (key, value) = ([100 + at % 3], vec![number as u8; 40 + usize::from(at)]);
            self.store.write(|txn| txn.put(&key, &value)).unwrap();
            self.states.borrow_mut().push(rows(&self.store));
        }
    }

    /// Gives the log several files.
    fn change_in_files(&self, counts: &[u8]) {
        for count in counts {
            self.store.end_log_file();
            self.change(*count);
        }
    }

    /// The number of the last change.
    fn last(&self) -> u64 {
        self.states.borrow().len() as u64 - 1
    }

    /// Restores a backup, whose rows must be those of its change, and returns the number of this.
    fn restored(&self, backup: &Path) -> Result<u64, MetaError> {
        let path = self.path("restored");
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        let restored = RedbStore::restore(&path, backup)?;
        let store = RedbStore::open(&path)?;
        let states = self.states.borrow();
        let expected = &states[restored.last as usize];
        assert!(rows(&store) == *expected, "change {}", restored.last);
        Ok(restored.last)
    }

    /// Makes a backup that must have all changes.
    fn back_up(&self, backup: &Path) -> BackedUp {
        let done = back_up(&self.log(), backup).unwrap();
        assert_eq!(done.last, self.last());
        assert_eq!(self.restored(backup), Ok(done.last));
        done
    }
}

fn rows(store: &RedbStore) -> Vec<Row> {
    store
        .read(|txn| txn.scan(b"", &[u8::MAX], usize::MAX))
        .unwrap()
}

/// The files of a directory with their bytes; a lock has none.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        files.insert(name, fs::read(entry.path()).unwrap());
    }
    files.remove("lock");
    files
}

fn total_bytes(directory: &Path) -> u64 {
    let files = files(directory);
    files.values().map(|bytes| bytes.len() as u64).sum()
}

fn copy_directory(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    fs::create_dir(to).unwrap();
    for (name, bytes) in files(from) {
        fs::write(to.join(name), bytes).unwrap();
    }
}

/// What happens at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// The operation fails.
    Error,
    /// The process ends before the operation.
    Kill,
}

/// Backs up until a step; none if there was no such step.
fn until_step(from: &Path, to: &Path, step: usize, fault: Fault) -> Option<&'static str> {
    let count = Cell::new(0);
    let reached = Cell::new(None);
    let steps = |operation: &'static str| -> io::Result<()> {
        count.set(count.get() + 1);
        if count.get() <= step {
            return Ok(());
        }
        reached.set(Some(operation));
        match fault {
            Fault::Error => Err(io::Error::other("a fault")),
            Fault::Kill => panic!("killed"),
        }
    };
    let done = catch_unwind(AssertUnwindSafe(|| {
        back_up_in_steps((from, to), false, &steps)
    }));
    let is_done = matches!(done, Ok(Ok(_)));
    assert_eq!(reached.get().is_none(), is_done, "step {step}");
    reached.get()
}

/// Ends a backup at each step. What was there before is there after it, and the next backup is as any other.
fn check_each_step(place: &Place, before: &Path, fault: Fault) {
    let backup = place.backup();
    let known = before.exists().then(|| place.restored(before).unwrap());
    let whole = place.path("whole");
    if before.exists() {
        copy_directory(before, &whole);
    }
    place.back_up(&whole);
    let mut reached = Vec::new();
    for step in 0.. {
        if backup.exists() {
            fs::remove_dir_all(&backup).unwrap();
        }
        if before.exists() {
            copy_directory(before, &backup);
        }
        let Some(operation) = until_step(&place.log(), &backup, step, fault) else {
            break;
        };
        reached.push(operation);
        match place.restored(&backup) {
            Ok(last) => assert!(known <= Some(last), "{fault:?} at step {step}"),
            // A base comes first.
            Err(error) => assert!(known.is_none(), "{fault:?} at step {step}: {error}"),
        }
        place.back_up(&backup);
        assert!(files(&backup) == files(&whole), "{fault:?} at step {step}");
    }
    for operation in ["read", "sync the log", "create", "write", "sync", "rename"] {
        assert!(reached.contains(&operation), "{operation} of {reached:?}");
    }
    if known.is_some() {
        assert!(reached.contains(&"remove"), "{reached:?}");
    }
}

#[test]
fn each_backup_copies_what_is_new() {
    let place = Place::new();
    let backup = place.backup();
    place.change(5);
    let first = place.back_up(&backup);
    assert_eq!(first.copied_bytes, total_bytes(&backup));
    assert_eq!(first.copied_bytes, total_bytes(&place.log()));
    assert_eq!((first.base, first.torn_bytes), (0, 0));
    let again = place.back_up(&backup);
    assert_eq!((again.copied_bytes, again.digest), (0, first.digest));
    let mut known_bytes = first.copied_bytes;
    for round in 0..6 {
        if round % 2 == 1 {
            place.store.end_log_file();
        }
        place.change(4);
        let done = place.back_up(&backup);
        let bytes = total_bytes(&backup);
        assert_eq!(done.copied_bytes, bytes - known_bytes, "round {round}");
        assert_ne!(done.digest, first.digest);
        known_bytes = bytes;
    }
    assert!(files(&backup) == files(&place.log()));
}

#[test]
fn files_that_a_new_base_replaces_leave_the_backup() {
    let place = Place::new();
    let backup = place.backup();
    place.change_in_files(&[3, 4]);
    place.back_up(&backup);
    // The log's new base ends where the backup does.
    place.store.write_base().unwrap();
    place.change(1);
    let done = place.back_up(&backup);
    assert_eq!(done.base, place.last() - 1);
    assert!(files(&backup) == files(&place.log()));
    // What the backup lacks is in the new base alone.
    for counts in [vec![1, 2], vec![2, 1, 3]] {
        place.change_in_files(&counts);
        place.store.write_base().unwrap();
        place.change(2);
        let done = place.back_up(&backup);
        assert_eq!(done.base, place.last() - 2);
        assert!(files(&backup) == files(&place.log()));
        place.change(1);
        place.back_up(&backup);
    }
    // A base at the end of the log, behind which no file has changes yet.
    place.change_in_files(&[2]);
    place.store.write_base().unwrap();
    let done = place.back_up(&backup);
    assert_eq!(done.base, place.last());
    assert!(files(&backup) == files(&place.log()));
}

#[test]
fn a_backup_that_ends_at_any_step_can_be_restored_and_goes_on() {
    for fault in [Fault::Error, Fault::Kill] {
        let place = Place::new();
        place.change_in_files(&[2, 3]);
        let before = place.path("before");
        // The first backup.
        check_each_step(&place, &before, fault);
        // One with a new base, a grown file and a new one.
        place.back_up(&before);
        place.change(2);
        place.store.write_base().unwrap();
        place.change(1);
        place.change_in_files(&[2]);
        check_each_step(&place, &before, fault);
        // One whose changes since the last one are in the base alone.
        fs::remove_dir_all(&before).unwrap();
        place.back_up(&before);
        place.change_in_files(&[2, 2]);
        place.store.write_base().unwrap();
        place.change_in_files(&[1, 1]);
        check_each_step(&place, &before, fault);
    }
}

#[test]
fn the_log_may_get_a_new_base_and_lose_files_at_each_step() {
    let place = Place::new();
    let backup = place.backup();
    place.change_in_files(&[2, 2]);
    let mut disturbed_count = 0;
    for step in 0..60 {
        let count = Cell::new(0);
        let before = place.last();
        let steps = |_: &'static str| -> io::Result<()> {
            if count.replace(count.get() + 1) == step {
                place.change_in_files(&[2, 1]);
                place.store.write_base().unwrap();
                place.change(1);
            }
            Ok(())
        };
        let done = back_up_in_steps((&place.log(), &backup), false, &steps).unwrap();
        disturbed_count += usize::from(count.get() > step);
        assert!(done.last >= before, "step {step}");
        assert_eq!(place.restored(&backup), Ok(done.last), "step {step}");
        place.change(1);
        if step % 3 == 0 {
            place.back_up(&backup);
        }
        place.change_in_files(&[1]);
    }
    assert!(disturbed_count > 10, "{disturbed_count} of 60");
}

#[test]
fn a_block_that_is_not_whole_is_left_out_until_it_is() {
    let place = Place::new();
    place.change(3);
    let path = files(&place.log()).into_keys().next_back().unwrap();
    let path = place.log().join(path);
    let before = fs::read(&path).unwrap();
    place.change(1);
    let whole = fs::read(&path).unwrap();
    let backup = place.backup();
    for length in before.len()..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let done = back_up(&place.log(), &backup).unwrap();
        let torn_bytes = (length - before.len()) as u64;
        assert_eq!((done.last, done.torn_bytes), (3, torn_bytes));
        assert_eq!(place.restored(&backup), Ok(3));
    }
    fs::write(&path, &whole).unwrap();
    place.back_up(&backup);
    // A copy of the log by other means may have a part of a block.
    let copy = place.path("copy");
    copy_directory(&place.log(), &copy);
    let last = copy.join(path.file_name().unwrap());
    let mut torn = fs::read(&last).unwrap();
    torn.extend([7; 30]);
    fs::write(&last, torn).unwrap();
    place.back_up(&copy);
    place.change_in_files(&[1]);
    place.back_up(&copy);
    assert!(files(&copy) == files(&place.log()));
}

#[test]
fn damage_before_the_end_changes_nothing_in_the_backup() {
    let place = Place::new();
    place.change(2);
    let backup = place.backup();
    place.back_up(&backup);
    place.change(2);
    place.store.write_base().unwrap();
    place.change(1);
    place.change_in_files(&[2, 1]);
    let kept = files(&backup);
    let newest = files(&place.log());
    for (name, bytes) in &newest {
        let path = place.log().join(name);
        let is_last = newest.keys().next_back() == Some(name);
        // The last block of the last file may be torn.
        let end = if is_last { 28 } else { bytes.len() };
        for byte in 0..end {
            let mut bad = bytes.clone();
            bad[byte] ^= 16;
            fs::write(&path, &bad).unwrap();
            let refused = back_up(&place.log(), &backup).unwrap_err();
            let is_told = matches!(
                refused,
                BackupError::Log(LogError::Damaged { .. } | LogError::Gap { .. })
            );
            assert!(is_told, "{name}, byte {byte}: {refused}");
            assert!(files(&backup) == kept, "{name}, byte {byte}");
        }
        fs::write(&path, bytes).unwrap();
    }
    place.back_up(&backup);
    // A damaged backup is not continued.
    let name = files(&backup).into_keys().next_back().unwrap();
    for name in [name, format!("base-{:020}", 4)] {
        let path = backup.join(name);
        let whole = fs::read(&path).unwrap();
        let mut bad = whole.clone();
        bad[9] ^= 1;
        fs::write(&path, &bad).unwrap();
        place.change(1);
        let refused = back_up(&place.log(), &backup).unwrap_err();
        let is_told = matches!(refused, BackupError::Damaged { at: 0, .. });
        assert!(is_told, "{refused}");
        assert!(fs::read(&path).unwrap() == bad, "it is left as it is");
        fs::write(&path, whole).unwrap();
        place.back_up(&backup);
    }
}

#[test]
fn a_base_that_is_damaged_is_reported_by_each_backup() {
    let place = Place::new();
    place.change(3);
    place.store.write_base().unwrap();
    let backup = place.backup();
    place.back_up(&backup);
    let path = backup.join(format!("base-{:020}", 3));
    let whole = fs::read(&path).unwrap();
    // Its header is read anyway.
    for byte in [40, whole.len() / 2, whole.len() - 1] {
        let mut bad = whole.clone();
        bad[byte] ^= 1;
        fs::write(&path, &bad).unwrap();
        for change_count in [0, 1] {
            place.change(change_count);
            let refused = back_up(&place.log(), &backup).unwrap_err();
            let is_told =
                matches!(&refused, BackupError::DamagedBase { path: told, .. } if *told == path);
            assert!(is_told, "byte {byte}: {refused}");
            assert!(fs::read(&path).unwrap() == bad, "it is left as it is");
        }
    }
    fs::write(&path, whole).unwrap();
    place.back_up(&backup);
}

#[test]
fn a_damaged_base_is_replaced_on_request_and_not_before_the_new_one_is_whole() {
    let place = Place::new();
    place.change(3);
    place.store.write_base().unwrap();
    let (backup, whole) = (place.backup(), place.path("whole"));
    place.back_up(&backup);
    place.change(2);
    place.back_up(&whole);
    let path = backup.join(format!("base-{:020}", 3));
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    let log = place.log();
    for step in 0.. {
        fs::write(&path, &bad).unwrap();
        let count = Cell::new(0);
        let steps = |_: &'static str| -> io::Result<()> {
            count.set(count.get() + 1);
            if count.get() > step {
                return Err(io::Error::other("a fault"));
            }
            Ok(())
        };
        let done = back_up_in_steps((&log, &backup), true, &steps);
        let present = fs::read(&path).unwrap();
        assert!(present == bad || present == good, "step {step}");
        if done.is_ok() {
            assert!(present == good && step > 5, "step {step}");
            break;
        }
    }
    fs::write(&path, &bad).unwrap();
    back_up_with_new_base(&log, &backup).unwrap();
    assert!(files(&backup) == files(&whole));
    assert_eq!(place.restored(&backup).unwrap(), place.last());
}

#[test]
fn other_directories_are_refused() {
    let place = Place::new();
    place.change(2);
    let (log, backup) = (place.log(), place.backup());
    let refuse = |from: &Path, to: &Path| back_up(from, to).unwrap_err();
    for inside in [log.clone(), log.join("backup"), log.join("../log/backup")] {
        let refused = refuse(&log, &inside);
        assert!(matches!(refused, BackupError::Inside { .. }), "{refused}");
    }
    assert!(!log.join("backup").exists());
    let empty = place.path("empty");
    fs::create_dir(&empty).unwrap();
    for from in [&empty, &place.path("nowhere"), &place.path("store")] {
        let refused = refuse(from, &backup);
        let is_told = matches!(refused, BackupError::Log(LogError::Missing(_)));
        assert!(is_told, "{refused}");
    }
    assert!(!backup.exists(), "nothing was made");
    let refused = refuse(&log, &place.path("nowhere/backup"));
    assert!(matches!(refused, BackupError::Disk { .. }), "{refused}");
    let refused = refuse(&log, &place.path("store"));
    assert!(matches!(refused, BackupError::Disk { .. }), "{refused}");
    fs::write(empty.join("letter"), b"mine").unwrap();
    let refused = refuse(&log, &empty);
    let is_told = matches!(&refused, BackupError::Foreign { name, .. } if name == "letter");
    assert!(is_told, "{refused}");
    assert_eq!(files(&empty).len(), 1);
    place.back_up(&backup);
    let held = lock(&backup).unwrap();
    let refused = refuse(&log, &backup);
    assert!(matches!(refused, BackupError::InUse(_)), "{refused}");
    drop(held);
    place.back_up(&backup);
    fs::remove_file(backup.join(format!("base-{:020}", 0))).unwrap();
    let refused = refuse(&log, &backup);
    assert!(matches!(refused, BackupError::Gap { .. }), "{refused}");
}

/// The metadata of a cluster in a directory, with a log.
fn open(directory: &Path) -> Meta<RedbStore> {
    let store = RedbStore::open(&directory.join("store")).unwrap();
    let store = store.with_log(&directory.join("log")).unwrap();
    Meta::open(store, WallClock::stopped(WallTime::default())).unwrap()
}

/// A new cluster whose coordinator has started once.
fn cluster(directory: &Path, id: u128) -> Meta<RedbStore> {
    fs::create_dir(directory).unwrap();
    let store = RedbStore::create(&directory.join("store")).unwrap();
    let store = store.with_log(&directory.join("log")).unwrap();
    let clock = WallClock::stopped(WallTime::default());
    let meta = Meta::create(store, ClusterId(id), clock).unwrap();
    meta.note_start(u64::from(id as u32)).unwrap();
    meta
}

/// Changes the metadata; with `in_base`, the log then has the changes in a new base alone.
fn go_on(meta: &Meta<RedbStore>, lease_ms: u64, in_base: bool) {
    meta.store().end_log_file();
    meta.end_longer_leases(lease_ms).unwrap();
    if in_base {
        meta.store().end_log_file();
        meta.end_longer_leases(lease_ms).unwrap();
        meta.store().write_base().unwrap();
    }
    meta.end_longer_leases(lease_ms).unwrap();
}

#[test]
fn the_backup_of_another_cluster_is_refused() {
    for in_base in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let (one, other) = (cluster(&path("one"), 1), cluster(&path("other"), 2));
        let backup = path("backup");
        back_up(&path("one/log"), &backup).unwrap();
        let kept = files(&backup);
        go_on(&other, 5, in_base);
        let refused = back_up(&path("other/log"), &backup).unwrap_err();
        let named = ClusterId(1);
        assert!(
            matches!(refused, BackupError::OtherCluster { cluster, .. } if cluster == named),
            "{refused}"
        );
        assert!(files(&backup) == kept);
        go_on(&one, 5, in_base);
        back_up(&path("one/log"), &backup).unwrap();
    }
}

#[test]
fn the_backup_of_a_store_that_went_another_way_is_refused() {
    // Which of both has started again since, and whether the log has the changes in a new base alone.
    for (restarts, in_base) in [(0, false), (0, true), (1, false), (1, true), (2, true)] {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let meta = cluster(&path("one"), 1);
        go_on(&meta, 5, false);
        drop(meta);
        // An old copy.
        fs::create_dir(path("old")).unwrap();
        fs::copy(path("one/store"), path("old/store")).unwrap();
        copy_directory(&path("one/log"), &path("old/log"));
        let meta = open(&path("one"));
        if restarts > 0 {
            meta.note_start(10).unwrap();
        }
        for lease_ms in 6..12 {
            go_on(&meta, lease_ms, false);
        }
        let backup = path("backup");
        let done = back_up(&path("one/log"), &backup).unwrap();
        let kept = files(&backup);
        // The old copy serves, makes fewer changes than the backup has, and then more.
        let old = open(&path("old"));
        old.note_start(20).unwrap();
        if restarts > 1 {
            drop(old);
            let old = open(&path("old"));
            old.note_start(30).unwrap();
        } else {
            drop(old);
        }
        let refused = back_up(&path("old/log"), &backup).unwrap_err();
        let ends_before = matches!(
            refused,
            BackupError::Ahead { backup, .. } if backup == done.last
        );
        assert!(ends_before, "{refused}");
        let old = open(&path("old"));
        for lease_ms in 20..40 {
            go_on(&old, lease_ms, false);
        }
        go_on(&old, 40, in_base);
        let refused = back_up(&path("old/log"), &backup).unwrap_err();
        assert!(
            matches!(refused, BackupError::OtherPast { .. }),
            "{restarts} restarts, {in_base}: {refused}"
        );
        assert!(files(&backup) == kept);
        // The store that the backup is of goes on with it.
        drop(meta);
        let meta = open(&path("one"));
        meta.note_start(11).unwrap();
        go_on(&meta, 50, true);
        back_up(&path("one/log"), &backup).unwrap();
    }
}
