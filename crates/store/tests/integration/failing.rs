//! Disks that fail while the process lives, and processes that end while the page cache lives on.

use crate::crash::SCRIPT;
use crate::crashes::CrashDisk;
use crate::model::{CHUNK_BYTES, INDICES, Model, SCHEMES};
use crate::{OPTIONS, append, chunk, is_segment, open, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{ByteRange, ChunkId, Keeping, Sequence, StripeId};
use gabion_store::{
    ChunkSpec, Cut, Damage, Disk, RecordKind, SimDisk, Store, StoreError, chunk_path,
};
use rustix::io::Errno;
use std::sync::Arc;

const BYTES: usize = CHUNK_BYTES as usize;
const FIRST: Cut = Cut::Exactly(Sequence(0));

/// A disk with the chunks 1-0 and 2-0, closed in order.
fn two_chunks() -> SimDisk {
    let disk = SimDisk::new(3);
    let (store, _) = open(&disk);
    for stripe in 1..=2 {
        let bytes = pattern(stripe, BYTES);
        write_chunk(&store, chunk(stripe, 0), spec(1, CHUNK_BYTES, 0), &bytes).unwrap();
    }
    store.sync_all().unwrap();
    disk
}

fn whole(store: &Store, id: ChunkId, cut: Cut) -> Result<Vec<u8>, StoreError> {
    read(store, id, 0, CHUNK_BYTES, cut)
}

/// An update of the chunk's first bytes, durable.
fn update(store: &Store, id: ChunkId, sequence: u64) -> Result<(), StoreError> {
    let kind = RecordKind::NewBytes;
    let lsn = append(store, id, stamp(1, sequence), kind, 0, b"new")?;
    store.sync(lsn)
}

fn is_damage_of(id: ChunkId, error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt { chunk, .. } if *chunk == id)
}

/// Checks that the store serves and updates chunk 2-0, and is not latched.
fn check_lives(store: &Store) {
    let other = chunk(2, 0);
    assert_eq!(whole(store, other, FIRST).unwrap(), pattern(2, BYTES));
    update(store, other, 1).unwrap();
    store.prove_writable().unwrap();
    assert_eq!(store.failure(), None);
}

#[test]
fn a_page_that_cannot_be_read_costs_its_bytes() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    let id = chunk(1, 0);
    disk.lose_page(&chunk_path(id), 8192 + 4096);
    let lost = ByteRange::new(4096, 4096);
    assert!(is_damage_of(id, &whole(&store, id, FIRST).unwrap_err()));
    let found = read(&store, id, 0, 4096, FIRST).unwrap();
    assert_eq!(found, pattern(1, BYTES)[..4096]);
    let damage = Damage {
        chunk: id,
        range: lost,
    };
    assert_eq!(store.scrub(id).unwrap(), [damage]);
    check_lives(&store);
}

#[test]
fn a_header_that_cannot_be_read_costs_its_chunk() {
    let disk = two_chunks();
    let id = chunk(1, 0);
    disk.lose_page(&chunk_path(id), 0);
    let (store, _) = open(&disk);
    assert!(is_damage_of(id, &whole(&store, id, FIRST).unwrap_err()));
    assert_eq!(store.chunk_info(id).unwrap().spec, None);
    check_lives(&store);
}

#[test]
fn one_failed_open_costs_no_chunk() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    disk.fail_next_open();
    let found = whole(&store, chunk(1, 0), FIRST).unwrap();
    assert_eq!(found, pattern(1, BYTES));
    check_lives(&store);
}

#[test]
fn one_failed_read_of_a_header_costs_no_chunk() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    disk.fail_next_read();
    let found = whole(&store, chunk(1, 0), FIRST).unwrap();
    assert_eq!(found, pattern(1, BYTES));
    assert_eq!(disk.take_failed_reads(), [chunk_path(chunk(1, 0))]);
    check_lives(&store);
}

#[test]
fn a_chunk_file_that_vanished_costs_its_chunk() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    let id = chunk(1, 0);
    gabion_store::Disk::remove(&disk, &chunk_path(id)).unwrap();
    assert!(is_damage_of(id, &whole(&store, id, FIRST).unwrap_err()));
    assert_ne!(store.scrub(id).unwrap(), []);
    check_lives(&store);
    write_chunk(&store, id, spec(1, CHUNK_BYTES, 0), &pattern(9, BYTES)).unwrap();
    assert_eq!(whole(&store, id, FIRST).unwrap(), pattern(9, BYTES));
}

#[test]
fn removing_a_chunk_whose_file_vanished_succeeds() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    let id = chunk(1, 0);
    gabion_store::Disk::remove(&disk, &chunk_path(id)).unwrap();
    store.remove(id).unwrap();
    assert!(matches!(
        store.chunk_info(id),
        Err(StoreError::NoSuchChunk { .. })
    ));
    check_lives(&store);
}

#[test]
fn setting_a_chunk_aside_whose_file_vanished_succeeds() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    let id = chunk(1, 0);
    gabion_store::Disk::remove(&disk, &chunk_path(id)).unwrap();
    store.set_aside(&[id]).unwrap();
    assert_eq!(store.trash().unwrap(), [""; 0]);
    check_lives(&store);
}

#[test]
fn a_page_of_the_journal_that_cannot_be_read_costs_the_records_in_it() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    let id = chunk(1, 0);
    let kind = RecordKind::NewBytes;
    append(&store, id, stamp(1, 1), kind, 0, &pattern(5, 9000)).unwrap();
    store.sync_all().unwrap();
    drop(store);
    let tail = disk.files().into_iter().filter(|path| is_segment(path));
    let tail = tail.max().unwrap();
    // The record's head is in the first page of frames; the second has nothing but its bytes.
    disk.lose_page(&tail, 8192);
    let (store, report) = open(&disk);
    let damaged: Vec<ChunkId> = report.damage.iter().map(|damage| damage.chunk).collect();
    assert_eq!(damaged, [id], "its head names its chunk");
    let newest = Cut::Newest(Sequence(1));
    assert!(is_damage_of(id, &whole(&store, id, newest).unwrap_err()));
    check_lives(&store);
}

#[test]
fn a_head_in_the_journal_that_cannot_be_read_is_no_torn_tail() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    let id = chunk(1, 0);
    let kind = RecordKind::NewBytes;
    append(&store, id, stamp(1, 1), kind, 0, b"acknowledged").unwrap();
    store.sync_all().unwrap();
    drop(store);
    let tail = disk.files().into_iter().filter(|path| is_segment(path));
    disk.lose_page(&tail.max().unwrap(), 4096);
    let (store, report) = open(&disk);
    assert_ne!(report.journal_damage, []);
    // It may have been a record of either chunk, so neither is served before it is repaired.
    for stripe in 1..=2 {
        let id = chunk(stripe, 0);
        assert!(is_damage_of(id, &whole(&store, id, FIRST).unwrap_err()));
        write_chunk(&store, id, spec(1, CHUNK_BYTES, 0), &pattern(stripe, BYTES)).unwrap();
    }
    check_lives(&store);
}

#[test]
fn a_lack_of_descriptors_refuses_and_fails_nothing() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    let is_busy = |error: StoreError| matches!(error, StoreError::Busy { .. });
    disk.give_descriptors(false);
    let id = chunk(1, 0);
    assert!(is_busy(whole(&store, id, FIRST).unwrap_err()));
    assert!(is_busy(update(&store, id, 1).unwrap_err()));
    assert!(is_busy(store.create(id, spec(1, 100, 0)).unwrap_err()));
    assert!(is_busy(store.scrub(id).unwrap_err()));
    disk.give_descriptors(true);
    assert_eq!(whole(&store, id, FIRST).unwrap(), pattern(1, BYTES));
    check_lives(&store);
}

/// The journal's segments, oldest first.
fn segments(disk: &SimDisk) -> Vec<String> {
    let files = disk.files().into_iter();
    files.filter(|path| is_segment(path)).collect()
}

/// Ways to lose the front of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    Header,
    WholeFile,
}

impl Loss {
    fn strike(self, disk: &SimDisk, segment: &str) {
        match self {
            Self::Header => disk.lose_page(segment, 0),
            Self::WholeFile => disk.break_path(segment, Errno::IO.raw_os_error()),
        }
    }
}

/// Makes the journal long and keeps one segment of it: everything is applied.
fn age(disk: &SimDisk) {
    let (store, _) = open(disk);
    for sequence in 1..=40 {
        let bytes = pattern(sequence, 9000);
        let kind = RecordKind::NewBytes;
        append(&store, chunk(3, 0), stamp(1, sequence), kind, 0, &bytes).unwrap();
        store.sync_all().unwrap();
        store.commit(StripeId(3), Sequence(sequence)).unwrap();
        store.apply(StripeId(3)).unwrap();
    }
}

#[test]
fn the_only_segment_without_its_front_costs_all_chunks_however_young() {
    for loss in [Loss::Header, Loss::WholeFile] {
        let disk = two_chunks();
        let (store, _) = open(&disk);
        let bytes = pattern(3, BYTES);
        write_chunk(&store, chunk(3, 0), spec(1, CHUNK_BYTES, 0), &bytes).unwrap();
        drop(store);
        age(&disk);
        let (store, _) = open(&disk);
        let young = pattern(1, BYTES);
        write_chunk(&store, chunk(1, 0), spec(1, CHUNK_BYTES, 0), &young).unwrap();
        update(&store, chunk(1, 0), 1).unwrap();
        drop(store);
        let only = segments(&disk);
        assert_eq!(only.len(), 1, "{only:?}");
        loss.strike(&disk, &only[0]);
        for start in 0..2 {
            let (store, report) = open(&disk);
            assert_ne!(report.journal_damage, [], "{loss:?}, start {start}");
            for stripe in 1..=3 {
                let id = chunk(stripe, 0);
                let refused = whole(&store, id, FIRST).unwrap_err();
                assert!(is_damage_of(id, &refused), "{loss:?}, start {start}");
            }
        }
        let (store, _) = open(&disk);
        for stripe in 1..=3 {
            let bytes = pattern(stripe, BYTES);
            write_chunk(&store, chunk(stripe, 0), spec(1, CHUNK_BYTES, 0), &bytes).unwrap();
        }
        check_lives(&store);
        store.apply(StripeId(2)).unwrap();
        drop(store);
        let (store, report) = open(&disk);
        assert_eq!(report.damage, [], "{loss:?}");
        assert_eq!(whole(&store, chunk(1, 0), FIRST).unwrap(), young);
    }
}

/// A disk whose journal has several segments, each with a pending record of chunk 1-0; also the
/// chunk's newest update.
fn several_segments() -> (SimDisk, Sequence) {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    let mut sequence = 0;
    while segments(&disk).len() < 3 {
        sequence += 1;
        let bytes = pattern(sequence, 9000);
        let kind = RecordKind::NewBytes;
        append(&store, chunk(1, 0), stamp(1, sequence), kind, 0, &bytes).unwrap();
        store.sync_all().unwrap();
    }
    (disk, Sequence(sequence))
}

#[test]
fn a_header_of_a_segment_that_cannot_be_read_costs_nothing_beside_whole_segments() {
    let (disk, newest) = several_segments();
    let expected = {
        let (store, _) = open(&disk.after_crash(1));
        whole(&store, chunk(1, 0), Cut::Newest(newest)).unwrap()
    };
    for segment in segments(&disk) {
        let copy = disk.after_crash(1);
        copy.lose_page(&segment, 0);
        for start in 0..2 {
            let (store, report) = open(&copy);
            assert_eq!(report.damage, [], "{segment}, start {start}");
            let ranges: Vec<ByteRange> = report
                .journal_damage
                .iter()
                .map(|lost| lost.range)
                .collect();
            assert_eq!(ranges, [ByteRange::new(0, 4096)], "{segment}");
            assert_eq!(report.pending_count, newest.0);
            let found = whole(&store, chunk(1, 0), Cut::Newest(newest)).unwrap();
            assert!(found == expected, "{segment}, start {start}");
        }
    }
}

#[test]
fn a_segment_that_cannot_be_opened_costs_the_chunks_that_were_there_before() {
    let (disk, newest) = several_segments();
    for segment in segments(&disk) {
        let copy = disk.after_crash(1);
        Loss::WholeFile.strike(&copy, &segment);
        let (store, report) = open(&copy);
        assert_ne!(report.journal_damage, [], "{segment}");
        let id = chunk(1, 0);
        let refused = whole(&store, id, Cut::Newest(newest)).unwrap_err();
        assert!(is_damage_of(id, &refused), "{segment}");
    }
}

#[test]
fn a_segment_that_the_system_refuses_to_open_fails_the_start_and_loses_nothing() {
    let (disk, newest) = several_segments();
    let segment = &segments(&disk)[1];
    for error in [Errno::ACCESS, Errno::MFILE] {
        disk.break_path(segment, error.raw_os_error());
        let refused = Store::open(Arc::new(disk.clone()), OPTIONS).unwrap_err();
        let sentence = format!("cannot open {segment}");
        assert!(refused.to_string().starts_with(&sentence), "{refused}");
    }
    disk.mend_path(segment);
    let (_, report) = open(&disk);
    assert_eq!((report.damage, report.pending_count), (vec![], newest.0));
}

/// The directory of a chunk's file.
fn directory_of(id: ChunkId) -> String {
    let path = chunk_path(id);
    path.rsplit_once('/').unwrap().0.to_owned()
}

#[test]
fn a_chunk_directory_that_cannot_be_listed_fails_the_start_and_loses_nothing() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    update(&store, chunk(1, 0), 1).unwrap();
    drop(store);
    let directory = directory_of(chunk(1, 0));
    for (error, because) in [
        (Errno::IO, format!("cannot list {directory}: ")),
        (Errno::ACCESS, format!("cannot list {directory}: ")),
        (
            Errno::MFILE,
            format!("cannot list {directory} for lack of descriptors"),
        ),
        (
            Errno::NFILE,
            format!("cannot list {directory} for lack of descriptors"),
        ),
    ] {
        disk.break_path(&directory, error.raw_os_error());
        let refused = Store::open(Arc::new(disk.clone()), OPTIONS).unwrap_err();
        assert!(refused.to_string().starts_with(&because), "{refused}");
    }
    disk.mend_path(&directory);
    let (store, report) = open(&disk);
    assert_eq!((report.chunk_count, report.pending_count), (2, 1));
    assert_eq!(report.damage, []);
    let newest = whole(&store, chunk(1, 0), Cut::Newest(Sequence(1))).unwrap();
    assert_eq!(&newest[..3], b"new");
}

#[test]
fn a_file_among_the_chunk_directories_stays_and_fails_nothing() {
    let disk = two_chunks();
    gabion_store::Disk::create(&disk, "chunks/notes").unwrap();
    let (store, report) = open(&disk);
    assert_eq!(report.foreign, ["chunks/notes"]);
    assert_eq!(report.chunk_count, 2);
    check_lives(&store);
}

#[test]
fn a_journal_without_a_descriptor_for_its_next_segment_waits_for_one() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    let id = chunk(2, 0);
    whole(&store, id, FIRST).unwrap();
    disk.give_descriptors(false);
    let mut sequence = 0;
    let refused = loop {
        sequence += 1;
        let kind = RecordKind::NewBytes;
        let bytes = pattern(sequence, 5000);
        match append(&store, id, stamp(1, sequence), kind, 0, &bytes) {
            Ok(lsn) => store.sync(lsn).unwrap(),
            Err(error) => break error,
        }
        assert!(sequence < 100, "the journal never needed another segment");
    };
    assert!(matches!(refused, StoreError::Busy { .. }), "{refused}");
    assert_eq!(store.failure(), None);
    disk.give_descriptors(true);
    append(
        &store,
        id,
        stamp(1, sequence),
        RecordKind::NewBytes,
        0,
        b"x",
    )
    .unwrap();
    store.sync_all().unwrap();
}

#[test]
fn a_dead_disk_is_told_from_a_bad_page() {
    let disk = two_chunks();
    let (store, _) = open(&disk);
    disk.die();
    assert!(is_damage_of(
        chunk(1, 0),
        &whole(&store, chunk(1, 0), FIRST).unwrap_err()
    ));
    assert_eq!(store.failure(), None, "a read shows nothing of writes");
    store.prove_writable().unwrap_err();
    assert!(store.failure().is_some());
}

/// The store's reported state, which is durable then.
fn said(store: &Store) -> Vec<String> {
    store.sync_all().unwrap();
    let mut said = Vec::new();
    for stripe in 1..=2 {
        said.push(format!("{:?}", store.collect(StripeId(stripe)).ok()));
        for index in INDICES {
            let id = chunk(stripe, index);
            let newest = whole(store, id, Cut::Newest(Sequence(1000)));
            said.push(format!("{:?} {newest:?}", store.chunk_info(id).ok()));
        }
    }
    said
}

/// Lets one operation fail, restarts the process alone, and then cuts the power.
fn check_failed_operation(number: u64, keepings: [Keeping; 2]) -> bool {
    let mut model: Model = Model::new(number, keepings);
    model
        .disk
        .fail_operation(model.disk.operation_count() + number);
    let has_failed = SCRIPT.into_iter().any(|op| model.run(op).is_err());
    model.disk.restart_process();
    let (restarted, _) = open(&model.disk);
    let before = said(&restarted);
    for seed in 0..4 {
        let (survivor, _) = open(&model.disk.after_crash(seed));
        assert_eq!(said(&survivor), before, "operation {number}, {keepings:?}");
    }
    has_failed
}

#[test]
fn what_a_restarted_process_says_after_a_failed_operation_survives_the_power() {
    for keepings in SCHEMES {
        let mut failed_count = 0;
        let mut end: Model = Model::new(0, keepings);
        let begun = end.disk.operation_count();
        for op in SCRIPT {
            end.run(op).unwrap();
        }
        for number in 1..=end.disk.operation_count() - begun {
            failed_count += u32::from(check_failed_operation(number, keepings));
        }
        assert!(failed_count > 50, "{failed_count} failures were noticed");
    }
}

#[test]
fn a_record_whose_sync_failed_does_not_come_back_as_durable() {
    let reserve = Keeping::Reserve { bytes: 12_288 };
    for keeping in [Keeping::InPlace, reserve] {
        let disk = SimDisk::new(3);
        let (store, _) = open(&disk);
        let id = chunk(1, 0);
        let spec = ChunkSpec {
            keeping,
            ..spec(1, CHUNK_BYTES, 0)
        };
        write_chunk(&store, id, spec, &pattern(1, BYTES)).unwrap();
        let lsn = append(&store, id, stamp(1, 1), RecordKind::NewBytes, 0, b"new").unwrap();
        disk.fail_operation(disk.counts().operation_count + 1);
        store.sync(lsn).unwrap_err();
        drop(store);
        disk.restart_process();
        let (store, _) = open(&disk);
        // As a new primary would ask. The answer must hold nothing that a power failure can undo.
        let state = store.collect(StripeId(1)).unwrap();
        assert_eq!(state.records, [], "{keeping:?}");
        disk.crash();
        let (store, _) = open(&disk);
        assert_eq!(store.collect(StripeId(1)).unwrap(), state);
    }
}

/// The file that holds the newest records of chunk 1-0.
fn holder(disk: &SimDisk, keeping: Keeping) -> String {
    if let Keeping::Reserve { .. } = keeping {
        return chunk_path(chunk(1, 0));
    }
    let segments = disk.files().into_iter().filter(|path| is_segment(path));
    segments.max().expect("there is a journal")
}

/// Opens the store and asks for the records of chunk 1-0, which must be those acknowledged.
fn acknowledged(disk: &SimDisk) -> Result<(), StoreError> {
    let (store, report) = Store::open(Arc::new(disk.clone()), OPTIONS)?;
    let state = store.collect(StripeId(1));
    assert_eq!((report.damage, report.journal_damage), (vec![], vec![]));
    assert_eq!(store.failure(), None);
    let records = state?.records.into_iter().map(|record| record.stamp);
    assert_eq!(records.collect::<Vec<_>>(), [stamp(1, 1)]);
    let newest = Cut::Newest(Sequence(1));
    assert_eq!(read(&store, chunk(1, 0), 0, 3, newest)?, b"new");
    Ok(())
}

#[test]
fn a_page_cache_that_hides_the_device_is_no_damage() {
    let reserve = Keeping::Reserve { bytes: 12_288 };
    for (keeping, is_kept) in [
        (Keeping::InPlace, true),
        (Keeping::InPlace, false),
        (reserve, true),
        (reserve, false),
    ] {
        let disk = SimDisk::new(3);
        let (store, _) = open(&disk);
        let id = chunk(1, 0);
        let spec = ChunkSpec {
            keeping,
            ..spec(1, CHUNK_BYTES, 0)
        };
        write_chunk(&store, id, spec, &pattern(1, BYTES)).unwrap();
        update(&store, id, 1).unwrap();
        disk.fail_next_sync();
        update(&store, id, 2).unwrap_err();
        drop(store);
        disk.restart_process();
        let path = holder(&disk, keeping);
        if is_kept {
            disk.keep_cache(&path, true);
        } else {
            disk.fail_write_back(&path);
        }
        for _ in 0..=usize::from(is_kept) {
            let refused = acknowledged(&disk).unwrap_err();
            assert!(matches!(refused, StoreError::Io { .. }), "{refused}");
            assert!(refused.to_string().contains(&path), "{refused}");
        }
        // Nothing was lost in the refused attempts.
        disk.keep_cache(&path, false);
        acknowledged(&disk).unwrap();
        disk.crash();
        acknowledged(&disk).unwrap();
    }
}

/// A process that ends while it creates a store leaves names that the next one sees, and a power
/// failure loses.
#[test]
fn a_store_that_opens_has_a_durable_format_wherever_its_creation_was_interrupted() {
    let mut interrupted_count = 0;
    for number in 1.. {
        let disk = SimDisk::new(number);
        disk.fail_operation(number);
        if Store::open(Arc::new(disk.clone()), OPTIONS).is_ok() {
            break;
        }
        interrupted_count += 1;
        disk.restart_process();
        Store::open(Arc::new(disk.clone()), OPTIONS).expect("nothing fails any more");
        assert!(disk.keeps("format"), "operation {number} failed");
    }
    assert!(interrupted_count > 5, "{interrupted_count} operations");
}

/// The file of a store of the version before.
const FORMAT_3: [u8; 16] = *b"GABIONST\x03\0\0\0\x11\x94\x33\x2d";

/// A start raises the format of an earlier store, so that the earlier program refuses it from then on. Wherever the
/// start fails, the next one does that.
#[test]
fn a_store_of_the_format_before_is_read_and_raised() {
    let mut interrupted_count = 0;
    for number in 1.. {
        let disk = two_chunks();
        let file = Disk::open(&disk, "format").unwrap();
        file.write_all_at(&FORMAT_3, 0).unwrap();
        file.sync().unwrap();
        let disk = disk.after_crash(number);
        disk.fail_operation(number);
        if Store::open(Arc::new(disk.clone()), OPTIONS).is_ok() {
            break;
        }
        interrupted_count += 1;
        let disk = disk.after_crash(number);
        let (store, report) = Store::open(Arc::new(disk.clone()), OPTIONS).unwrap();
        assert_eq!(report.damage, [], "operation {number} failed");
        assert_eq!(
            whole(&store, chunk(1, 0), FIRST).unwrap(),
            pattern(1, BYTES)
        );
        drop(store);
        let found = disk.after_crash(1).contents("format").unwrap();
        assert_eq!(found[8], 4, "operation {number} failed");
    }
    assert!(interrupted_count > 5, "{interrupted_count} operations");
}
