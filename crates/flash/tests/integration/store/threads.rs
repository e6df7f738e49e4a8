//! Concurrent writers, a reader and maintenance, and the behaviour of a full store.

use crate::store::machine::{Machine, geometry};
use gabion_flash::{FlashError, PAGE_BYTES};
use std::sync::atomic::{AtomicBool, Ordering};

/// A page that records its position and version.
fn page(file: u64, number: u64, version: u64) -> Vec<u8> {
    let words = [file, number, version];
    let word = |at: usize| words[at % 3].wrapping_mul(0x9e37_79b9) + at as u64 / 3;
    (0..PAGE_BYTES / 8)
        .flat_map(|at| word(at).to_le_bytes())
        .collect()
}

#[test]
fn writers_readers_and_maintenance_do_not_disturb_each_other() {
    const VERSIONS: u64 = 60;
    let machine = Machine::new(geometry(1), 512);
    let store = machine.format();
    let files: Vec<_> = (0..3)
        .map(|file| store.create(&format!("file {file}")).expect("room"))
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0_u64..3)
            .zip(&files)
            .map(|(file, &id)| {
                let store = &store;
                scope.spawn(move || {
                    for version in 1..=VERSIONS {
                        for number in 0..20 {
                            let at = number * PAGE_BYTES as u64;
                            store
                                .write(id, at, &page(file, number, version))
                                .expect("room");
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                store.maintain().expect("nothing fails");
                store.collect().expect("nothing fails");
            }
        });
        scope.spawn(|| {
            let mut found = vec![0; PAGE_BYTES];
            while !is_over.load(Ordering::Relaxed) {
                for (file, &id) in (0_u64..).zip(&files) {
                    if store.read(id, 0, &mut found).expect("nothing fails") == PAGE_BYTES {
                        let known = (0..=VERSIONS).any(|version| found == page(file, 0, version));
                        assert!(known || found.iter().all(|&byte| byte == 0), "a torn page");
                    }
                }
            }
        });
        let ends: Vec<_> = writers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok), "writers do not panic");
    });
    drop(store);
    let store = machine.after_crash(4).open(None).expect("it opens");
    let mut found = vec![0; PAGE_BYTES];
    for (file, &id) in (0_u64..).zip(&files) {
        for number in 0..20 {
            store
                .read(id, number * PAGE_BYTES as u64, &mut found)
                .expect("it is there");
            assert!(
                found == page(file, number, VERSIONS),
                "file {file}, page {number}"
            );
        }
    }
}

#[test]
fn a_full_store_refuses_new_pages_and_takes_overwrites() {
    let machine = Machine::new(geometry(1), 8);
    let store = machine.format();
    let file = store.create("all").expect("room");
    let mut count = 0;
    let error = loop {
        match store.write(file, count * PAGE_BYTES as u64, &page(0, count, 1)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FlashError::NoSpace { .. }), "{error}");
    // The table of files has a page too.
    assert_eq!(count + 1, machine.geometry.capacity_pages());
    for round in 0..3 {
        for number in 0..count {
            let number = (number * 7 + round) % count;
            let at = number * PAGE_BYTES as u64;
            store
                .write(file, at, &page(0, number, 2 + round))
                .expect("overwrites find room");
        }
    }
    store.delete(file).expect("it is there");
    assert_eq!(store.usage().live_pages, 1);
    let file = store.create("next").expect("room");
    store.write(file, 0, &page(1, 0, 1)).expect("room");
}

#[test]
fn a_constantly_rewritten_page_stays_in_its_buffer() {
    let machine = Machine::new(geometry(1), 8);
    let store = machine.format();
    let file = store.create("hot").expect("room");
    for version in 0..500 {
        store.write(file, 0, &page(0, 0, version)).expect("room");
    }
    let counts = store.counts();
    // The first write made the file longer, which is a page of the table.
    assert_eq!(counts.written_pages, 500);
    assert!(counts.absorbed_pages >= 499, "{counts:?}");
    assert_eq!(counts.flushed_stripes, 0);
}
