//! Unreadable pages beside a missing device: they stop neither collection nor the rebuild of other stripes.

use crate::store::devices::used;
use crate::store::machine::{Draws, Machine, Store, geometry};
use gabion_flash::{FileId, PAGE_BYTES, SimDevice};

/// The missing device, and the one with bad sectors.
const MISSING: usize = 2;
const BAD: usize = 0;

/// Makes a stripe's chunk on the bad device unreadable.
fn spoil(machine: &Machine, stripe: u32) {
    let chunk = machine.geometry.chunk_bytes;
    let start = (u64::from(stripe) + 1) * chunk;
    for sector in (start..start + chunk).step_by(512) {
        machine.devices[BAD].spoil(sector);
    }
}

fn replace(machine: &Machine, store: &Store) {
    let blank = SimDevice::new(&machine.power, machine.geometry.device_bytes() as usize);
    store
        .replace_device(MISSING, blank)
        .expect("it is large enough");
}

/// Tries all stripes that lack chunks.
fn rebuild_all(store: &Store) {
    let count = store.lacking_stripes()[MISSING];
    for _ in 0..count {
        assert!(store.rebuild().expect("no device fails"));
    }
    assert!(!store.rebuild().expect("no stripe is tried again"));
}

/// A full file, with some stale pages in each stripe.
fn filled() -> (Machine, Store, FileId, u64) {
    let machine = Machine::new(geometry(1), 512);
    let store = machine.format();
    let file = store.create("file").expect("there is space");
    let page_count = machine.geometry.capacity_pages() * 3 / 4;
    for page in 0..page_count {
        write(&store, file, page, 1);
    }
    (machine, store, file, page_count)
}

fn write(store: &Store, file: FileId, page: u64, byte: u8) {
    let bytes = [byte; PAGE_BYTES];
    store
        .write(file, page * PAGE_BYTES as u64, &bytes)
        .unwrap_or_else(|error| panic!("page {page}: {error}"));
}

#[test]
fn collection_goes_on_beside_an_unreadable_page() {
    let mut set_aside = 0;
    for stripe in 0..24 {
        let (machine, store, file, page_count) = filled();
        store.remove_device(MISSING).expect("one may be missing");
        spoil(&machine, stripe);
        // Half of the pages stay where they are until they are collected.
        let mut draws = Draws::new(u64::from(stripe));
        for _ in 0..page_count * 4 {
            write(&store, file, draws.below(page_count / 2) * 2, 2);
        }
        while store.collect().expect("the array works") {}
        store.maintain().expect("the array works");
        let collected = store.counts().collected_stripes;
        assert!(collected > 20, "{collected} stripes");
        let unreadable = store.unreadable();
        let Some(found) = unreadable.first() else {
            continue;
        };
        set_aside += 1;
        assert_eq!((unreadable.len(), found.stripe), (1, stripe));
        let page = found.page.as_ref().expect("collection has found it");
        let at = u64::from(page.page) * PAGE_BYTES as u64;
        if page.file.is_some() {
            store.read(file, at, &mut [0; PAGE_BYTES]).unwrap_err();
        }
        // Overwritten pages give the stripe back.
        for page in 0..page_count {
            write(&store, file, page, 3);
        }
        while store.collect().expect("the array works") {}
        let mut page = [0; PAGE_BYTES];
        for number in 0..page_count {
            store
                .read(file, number * PAGE_BYTES as u64, &mut page)
                .expect("nothing unreadable is left of the file");
            assert_eq!(page, [3; PAGE_BYTES]);
        }
        assert_eq!(store.unreadable(), []);
    }
    assert!(set_aside > 3, "{set_aside} stripes were set aside");
}

#[test]
fn a_rebuild_goes_on_beyond_a_stripe_with_bad_sectors() {
    let mut left = 0;
    for stripe in 0..24 {
        let (machine, store, ..) = used(1, 7);
        store.remove_device(MISSING).expect("one may be missing");
        spoil(&machine, stripe);
        replace(&machine, &store);
        let lacking = store.lacking_stripes()[MISSING];
        assert!(lacking > 3, "{lacking} stripes");
        rebuild_all(&store);
        let unbuilt = store.lacking_stripes()[MISSING];
        let unreadable = store.unreadable();
        assert_eq!(unbuilt as usize, unreadable.len(), "stripe {stripe}");
        if unbuilt == 0 {
            continue;
        }
        left += 1;
        assert_eq!((unbuilt, unreadable[0].stripe), (1, stripe));
        // The sectors can be read again.
        machine.devices[BAD].mend();
        store.retry_unreadable();
        rebuild_all(&store);
        assert_eq!(store.usage().degraded_stripes, 0);
        assert_eq!(store.unreadable(), []);
    }
    assert!(left > 3, "{left} stripes were left");
}
