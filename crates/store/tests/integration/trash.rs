//! Removed chunks whose files stay in the trash.

use crate::{append, chunk, open, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{ChunkId, Sequence, StripeId};
use gabion_store::{Cut, RecordKind::NewBytes, SimDisk, Store, StoreError};

const NEW: &[u8] = b"settled, and not merged yet";
/// Offset of a small chunk's data in its file.
const DATA_OFFSET: usize = 8192;

/// A store with a chunk that a settled update has changed.
fn updated(seed: u64) -> (SimDisk, Store, ChunkId) {
    let disk = SimDisk::new(seed);
    let (store, _) = open(&disk);
    let id = chunk(1, 0);
    write_chunk(&store, id, spec(1, 10_000, 0), &pattern(1, 10_000)).unwrap();
    let lsn = append(&store, id, stamp(1, 1), NewBytes, 0, NEW).unwrap();
    store.sync(lsn).unwrap();
    store.commit(StripeId(1), Sequence(1)).unwrap();
    store.sync_all().unwrap();
    (disk, store, id)
}

/// The first bytes of the data of a file in the trash.
fn first_bytes(disk: &SimDisk, name: &str) -> Vec<u8> {
    let bytes = disk.contents(&format!("trash/{name}")).unwrap();
    bytes[DATA_OFFSET..][..NEW.len()].to_vec()
}

#[test]
fn a_chunk_that_is_set_aside_is_not_served_and_its_file_stays() {
    let (disk, store, id) = updated(1);
    store.set_aside(&[id]).unwrap();
    let names = store.trash().unwrap();
    assert_eq!(names.len(), 1);
    assert_eq!(first_bytes(&disk, &names[0]), NEW);
    drop(store);

    let (store, report) = open(&disk);
    assert_eq!(report.chunk_count, 0);
    assert_eq!(store.trash().unwrap(), names);
    assert!(matches!(
        store.chunk_info(id),
        Err(StoreError::NoSuchChunk { .. })
    ));

    // The recreated chunk has nothing of the old one, and does not take its place in the trash.
    let bytes = pattern(2, 10_000);
    write_chunk(&store, id, spec(2, 10_000, 0), &bytes).unwrap();
    let settled = Cut::Exactly(Sequence(0));
    assert_eq!(read(&store, id, 0, 10_000, settled).unwrap(), bytes);
    store.set_aside(&[id]).unwrap();
    store.set_aside(&[id]).unwrap();
    assert_eq!(store.trash().unwrap().len(), 2);
    assert_eq!(first_bytes(&disk, &names[0]), NEW);

    store.empty_trash(&names).unwrap();
    store.empty_trash(&names).unwrap();
    let left = store.trash().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(first_bytes(&disk, &left[0]), bytes[..NEW.len()]);
}

#[test]
fn a_file_in_the_trash_that_cannot_be_opened_hides_no_other() {
    let (disk, store, id) = updated(2);
    store.set_aside(&[id]).unwrap();
    write_chunk(&store, id, spec(2, 10_000, 0), &pattern(2, 10_000)).unwrap();
    store.set_aside(&[id]).unwrap();
    let names = store.trash().unwrap();
    let [bad, good] = [names[0].clone(), names[1].clone()];
    disk.break_path(&format!("trash/{bad}"), 5);
    let measured = store.trash_bytes(names);
    assert_eq!(measured.len(), 1);
    assert_eq!(measured[0].0, good);
    assert!(measured[0].1 >= 10_000, "{measured:?}");
}

#[test]
fn a_crash_leaves_a_chunk_where_it_was_or_in_the_trash() {
    let (mut kept_count, mut moved_count) = (0, 0);
    for number in 1.. {
        let (disk, store, id) = updated(number);
        disk.power_off_at(disk.counts().operation_count + number);
        let is_done = store.set_aside(&[id]).is_ok();
        for outcome in 0..4 {
            let survivor = disk.after_crash(number * 100 + outcome);
            let (store, _) = open(&survivor);
            let names = store.trash().unwrap();
            if store.chunk_info(id).is_ok() {
                assert!(!is_done && names.is_empty(), "{number}: {names:?}");
                let upto = Cut::Exactly(Sequence(1));
                let found = read(&store, id, 0, NEW.len() as u64, upto).unwrap();
                assert_eq!(found, NEW);
                kept_count += 1;
            } else {
                assert_eq!(names.len(), 1, "after a crash at operation {number}");
                assert_eq!(first_bytes(&survivor, &names[0]), NEW);
                moved_count += 1;
            }
        }
        if is_done {
            break;
        }
    }
    assert!(
        kept_count > 4 && moved_count > 4,
        "{kept_count} {moved_count}"
    );
}
