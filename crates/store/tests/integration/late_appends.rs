//! Operations during a sync: it does not make records durable that are appended then, and holds up no reader of the
//! identity.

use crate::{OPTIONS, append, chunk, open, pattern, spec, stamp, write_chunk};
use gabion_layout::{ByteRange, StripeId};
use gabion_store::RecordKind::NewBytes;
use gabion_store::{Disk, DiskFile, Identity, PhysicalExtent, SimDisk, Store};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Action = Box<dyn FnOnce() + Send>;

/// A disk that runs another operation once, as soon as a file is synced.
#[derive(Clone)]
struct BusyDisk {
    disk: SimDisk,
    action: Arc<Mutex<Option<Action>>>,
}

struct BusyFile {
    file: Arc<dyn DiskFile>,
    action: Arc<Mutex<Option<Action>>>,
}

impl BusyDisk {
    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let action = Arc::clone(&self.action);
        Arc::new(BusyFile { file, action })
    }
}

impl Disk for BusyDisk {
    gabion_store::pass_on! { disk:
        fn create_directory(&self, path: &str) -> io::Result<()>;
        fn rename(&self, from: &str, to: &str) -> io::Result<()>;
        fn remove(&self, path: &str) -> io::Result<()>;
        fn list(&self, directory: &str) -> io::Result<Vec<String>>;
        fn sync_directory(&self, directory: &str) -> io::Result<()>;
        fn available_bytes(&self) -> io::Result<u64>;
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(path).map(|file| self.file(file))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path).map(|file| self.file(file))
    }
}

impl DiskFile for BusyFile {
    gabion_store::pass_on! { file:
        fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()>;
        fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
        fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()>;
        fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<()>;
        fn extents(&self, range: ByteRange) -> io::Result<Vec<PhysicalExtent>>;
        fn length(&self) -> io::Result<u64>;
        fn set_length(&self, bytes: u64) -> io::Result<()>;
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()?;
        let action = self.action.lock().unwrap().take();
        if let Some(action) = action {
            action();
        }
        Ok(())
    }
}

#[test]
fn a_sync_does_not_claim_what_was_appended_while_it_ran() {
    let busy = BusyDisk {
        disk: SimDisk::new(1),
        action: Arc::default(),
    };
    let (store, _) = Store::open(Arc::new(busy.clone()), OPTIONS).unwrap();
    let id = chunk(1, 0);
    write_chunk(&store, id, spec(1, 10_000, 0), &pattern(1, 10_000)).unwrap();
    let first = append(&store, id, stamp(1, 1), NewBytes, 0, b"first").unwrap();
    let second = Arc::new(Mutex::new(None));
    let (late, slot) = (store.clone(), Arc::clone(&second));
    *busy.action.lock().unwrap() = Some(Box::new(move || {
        let lsn = append(&late, id, stamp(1, 2), NewBytes, 5, b"second").unwrap();
        *slot.lock().unwrap() = Some(lsn);
    }));
    store.sync(first).unwrap();
    let second = second.lock().unwrap().expect("it was appended");
    store.sync(second).unwrap();
    for seed in 0..20 {
        let (again, _) = open(&busy.disk.after_crash(seed));
        let records = again.held(StripeId(1)).unwrap().records;
        assert_eq!(records.len(), 2, "seed {seed}");
    }
}

#[test]
fn the_identity_is_readable_while_the_disk_holds_up_its_replacement() {
    let busy = BusyDisk {
        disk: SimDisk::new(1),
        action: Arc::default(),
    };
    let (store, _) = Store::open(Arc::new(busy.clone()), OPTIONS).unwrap();
    let before = store.identity();
    let after = Identity {
        metadata_changes: Some(7),
        ..before.clone()
    };
    let (reader, seen) = (store.clone(), Arc::new(Mutex::new(None)));
    let slot = Arc::clone(&seen);
    // The sync ends only when another thread has read the identity, or after a while.
    *busy.action.lock().unwrap() = Some(Box::new(move || {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || drop(sender.send(reader.identity())));
        *slot.lock().unwrap() = receiver.recv_timeout(Duration::from_secs(10)).ok();
    }));
    store.set_identity(&after).unwrap();
    assert_eq!(seen.lock().unwrap().take(), Some(before));
    assert_eq!(store.identity(), after);
}
