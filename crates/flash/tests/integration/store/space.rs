//! Space: allotted, freed, and left.

use crate::store::machine::{Draws, Machine, Store, geometry};
use gabion_flash::{FileId, FlashError, PAGE_BYTES};

const PAGE: u64 = PAGE_BYTES as u64;

/// Writes new pages of a file until there is no space, and returns how many.
fn fill(store: &Store, file: FileId, draws: &mut Draws) -> u64 {
    for page in 0.. {
        match store.write(file, page * PAGE, &draws.bytes(PAGE_BYTES)) {
            Ok(()) => {}
            Err(FlashError::NoSpace { .. }) => return page,
            Err(error) => panic!("page {page}: {error}"),
        }
    }
    unreachable!("every store fills up")
}

#[test]
fn allotted_pages_can_be_written_when_the_store_is_full() {
    let machine = Machine::new(geometry(1), 8);
    let store = machine.format();
    let mut draws = Draws::new(3);
    let kept = store.create("kept").expect("room");
    store.allocate(kept, 100, 20 * PAGE).expect("room");
    assert_eq!(store.length(kept).expect("it is there"), 100 + 20 * PAGE);
    assert_eq!(store.usage().allotted_pages, 21);
    let other = store.create("other").expect("room");
    let room = store.available_bytes() / PAGE;
    assert_eq!(fill(&store, other, &mut draws), room);
    let refused = store.allocate(kept, 0, 22 * PAGE).unwrap_err();
    assert!(matches!(refused, FlashError::NoSpace { .. }), "{refused}");
    // A restart keeps the promise.
    drop(store);
    let store = machine.open(None).expect("it was closed in order");
    assert_eq!(store.usage().allotted_pages, 21);
    let bytes = draws.bytes(20 * PAGE_BYTES);
    store.write(kept, 100, &bytes).expect("it was allotted");
    assert_eq!(store.usage().allotted_pages, 0);
    for _ in 0..300 {
        let page = draws.below(20) * PAGE;
        store
            .write(kept, page, &draws.bytes(PAGE_BYTES))
            .expect("overwrites find room");
    }
    assert_eq!(store.available_bytes(), 0);
}

#[test]
fn holes_shorter_files_and_deletion_give_space_back() {
    let machine = Machine::new(geometry(1), 8);
    let store = machine.format();
    let file = store.create("file").expect("room");
    let all = store.available_bytes();
    store.allocate(file, 0, 40 * PAGE).expect("room");
    store
        .write(file, 0, &vec![7; 10 * PAGE_BYTES])
        .expect("room");
    let left = |store: &Store| (all - store.available_bytes()) / PAGE;
    assert_eq!(left(&store), 40);
    store.punch_hole(file, 5 * PAGE, 10 * PAGE).expect("a hole");
    assert_eq!(left(&store), 30);
    store.allocate(file, 12 * PAGE, 2 * PAGE).expect("room");
    assert_eq!(left(&store), 32);
    store.set_length(file, 20 * PAGE + 1).expect("it is longer");
    assert_eq!(left(&store), 13);
    store.sync().expect("nothing fails");
    drop(store);
    let store = machine.open(None).expect("it was closed in order");
    assert_eq!(left(&store), 13);
    assert_eq!(store.length(file).expect("it is there"), 20 * PAGE + 1);
    store.delete(file).expect("it is there");
    assert_eq!(store.available_bytes(), all);
}

#[test]
fn a_file_without_a_name_lives_until_it_is_deleted_or_the_store_is_opened() {
    let machine = Machine::new(geometry(1), 8);
    let store = machine.format();
    let all = store.available_bytes();
    let [old, new] = ["old", "new"].map(|name| store.create(name).expect("room"));
    store.write(old, 0, b"old").expect("room");
    store.write(new, 0, b"new").expect("room");
    assert_eq!(store.rename(new, "old").expect("both are there"), Some(old));
    assert_eq!(store.find("old"), Some(new));
    // It changes, but does not get the name back.
    store.write(old, 9000, b"longer").expect("it lives");
    let mut bytes = [0; 3];
    store.read(old, 0, &mut bytes).expect("it lives");
    assert_eq!((&bytes, store.find("old")), (b"old", Some(new)));
    store.unlink(new).expect("it has a name");
    assert!(store.list("").is_empty());
    store.read(new, 0, &mut bytes).expect("it lives");
    assert_eq!(&bytes, b"new");
    drop(store);
    let store = machine.open(None).expect("it was closed in order");
    assert!(store.list("").is_empty());
    let gone = store.read(old, 0, &mut bytes).unwrap_err();
    assert!(matches!(gone, FlashError::NoSuchFile { .. }), "{gone}");
    // The first page of the table stays.
    assert_eq!(store.available_bytes(), all - PAGE);
}

#[test]
fn a_range_is_located_where_its_pages_are() {
    let machine = Machine::new(geometry(1), 8);
    let store = machine.format();
    let file = store.create("file").expect("room");
    // Two pages that were written apart, a hole, and a page behind it.
    store.write(file, PAGE, &[1; PAGE_BYTES]).expect("room");
    store.write(file, 0, &[2; PAGE_BYTES]).expect("room");
    store.write(file, 3 * PAGE, &[3; PAGE_BYTES]).expect("room");
    let found = store.locate(file, 100, 4 * PAGE).expect("it is there");
    let offsets: Vec<(u64, u64)> = found.iter().map(|at| (at.offset, at.length)).collect();
    assert_eq!(offsets, [(100, PAGE - 100), (PAGE, PAGE), (3 * PAGE, PAGE)]);
    assert_eq!(found[0].place % PAGE, 100);
    assert_eq!(found[0].place - 100, found[1].place + PAGE);
}

/// Leaves space for `stripe_count` stripes below each device.
fn leave_room(machine: &Machine, stripe_count: usize) {
    let pages = machine.geometry.chunk_bytes as usize / PAGE_BYTES;
    for device in &machine.devices {
        device.leave_room(stripe_count * pages);
    }
}

#[test]
fn a_full_file_system_below_refuses_new_pages_and_no_page_that_was_granted() {
    let machine = Machine::new(geometry(1), 8);
    leave_room(&machine, 16);
    let store = machine.format();
    let mut draws = Draws::new(5);
    let kept = store.create("kept").expect("room");
    store.allocate(kept, 0, 20 * PAGE).expect("room");
    let other = store.create("other").expect("room");
    let written = (0..1000).find(|page| {
        let written = store.write(other, page * PAGE, &draws.bytes(PAGE_BYTES));
        matches!(written, Err(FlashError::FullBelow { .. }))
    });
    let written = written.expect("the file system below is full before the store is");
    assert!(written > 0);
    assert_eq!(store.available_bytes(), 0);
    let refused = store.allocate(kept, 0, 40 * PAGE).unwrap_err();
    assert!(matches!(refused, FlashError::FullBelow { .. }), "{refused}");
    let overwrite = |store: &Store, draws: &mut Draws| {
        for _ in 0..600 {
            let page = draws.below(20) * PAGE;
            let bytes = draws.bytes(PAGE_BYTES);
            store.write(kept, page, &bytes).expect("it was allotted");
            let page = draws.below(written) * PAGE;
            store.write(other, page, &bytes).expect("it was written");
        }
        assert_eq!(store.absent_devices(), []);
    };
    overwrite(&store, &mut draws);
    drop(store);
    // The same holds after a restart.
    let store = machine.open(None).expect("it was closed in order");
    overwrite(&store, &mut draws);
    leave_room(&machine, 1000);
    store.maintain().expect("nothing fails");
    assert!(store.available_bytes() > 0);
    let bytes = draws.bytes(PAGE_BYTES);
    store.write(other, written * PAGE, &bytes).expect("room");
    let mut found = vec![0; PAGE_BYTES];
    let length = store.read(other, written * PAGE, &mut found);
    assert_eq!(length.expect("it is there"), PAGE_BYTES);
    assert!(found == bytes);
}

#[test]
fn a_start_that_finds_no_room_below_serves_and_goes_on_when_there_is_some() {
    let machine = Machine::new(geometry(1), 8);
    let store = machine.format();
    let mut draws = Draws::new(9);
    let file = store.create("file").expect("room");
    let bytes = draws.bytes(60 * PAGE_BYTES);
    store.write(file, 0, &bytes).expect("room");
    drop(store);
    // As after a copy that preserved holes.
    leave_room(&machine, 0);
    let store = machine
        .open(None)
        .expect("a full file system is no failure");
    let refused = (0..200).find_map(|at| {
        let offset = at % 60 * PAGE;
        let page = &bytes[offset as usize..][..PAGE_BYTES];
        store.write(file, offset, page).err()
    });
    let refused = refused.expect("there is no room for a stripe");
    assert!(matches!(refused, FlashError::FullBelow { .. }), "{refused}");
    assert_eq!(store.absent_devices(), []);
    leave_room(&machine, 1000);
    for at in 0..200 {
        let offset = at % 60 * PAGE;
        let page = &bytes[offset as usize..][..PAGE_BYTES];
        store.write(file, offset, page).expect("room");
    }
    let mut found = vec![0; bytes.len()];
    store.read(file, 0, &mut found).expect("it is there");
    assert!(found == bytes);
}
