//! The store on an array of SSDs: the same model, the same crashes, and a device that fails in
//! between.

use crate::crash::live_and_crash;
use crate::crashes::{CrashDisk, SimFlash};
use crate::model::{Model, Op, SCHEMES};
use crate::{OPTIONS, Random, pattern, read, spec, write_chunk};
use gabion_layout::Sequence;
use gabion_store::{Cut, RecordKind, Store};
use std::sync::Arc;

#[test]
fn random_operations_and_crashes_of_an_array_keep_to_the_model() {
    let seeds = std::env::var("GABION_STORE_FLASH_SEEDS").ok();
    let seeds: u64 = seeds.and_then(|count| count.parse().ok()).unwrap_or(40);
    for seed in 0..seeds {
        live_and_crash::<SimFlash>(seed, 1200);
    }
}

#[test]
fn a_store_lives_through_the_loss_of_any_device() {
    for index in 0..4 {
        let mut random = Random(index);
        let seed = index + 100;
        let mut model = Model::<SimFlash>::new(seed, SCHEMES[3]);
        let mut run = |model: &mut Model<SimFlash>| {
            for _ in 0..60 {
                model.run(Op::random(&mut random)).unwrap();
            }
            model.check();
        };
        run(&mut model);
        model.disk.store().remove_device(index as usize).unwrap();
        model.check();
        run(&mut model);
        model.store.sync_all().unwrap();
        // A start without it.
        let survivor = model.disk.after_crash(seed);
        model.reopen(survivor.without_device(index as usize));
        run(&mut model);
        assert_eq!(model.disk.store().absent_devices(), [index as usize]);
    }
}

#[test]
fn a_store_comes_back_from_an_array_as_it_was_left() {
    let disk = SimFlash::fresh(1);
    let (store, report) = Store::open(Arc::new(disk.clone()), OPTIONS).unwrap();
    assert!(report.is_new);
    let bytes = pattern(1, 100_000);
    let id = crate::chunk(3, 0);
    write_chunk(&store, id, spec(1, 100_000, 0), &bytes).unwrap();
    drop(store);
    let (store, report) = Store::open(Arc::new(disk.after_crash(1)), OPTIONS).unwrap();
    assert_eq!((report.chunk_count, report.damage.len()), (1, 0));
    let found = read(&store, id, 0, 100_000, Cut::Exactly(Sequence(0))).unwrap();
    assert!(found == bytes);
    store.remove(id).unwrap();
    assert_eq!(store.chunks().unwrap(), []);
}

#[test]
fn a_store_outlives_a_full_file_system_below_its_array() {
    let disk = SimFlash::with_room_for(30);
    let (store, _) = Store::open(Arc::new(disk.clone()), OPTIONS).unwrap();
    let bytes = pattern(1, 30_000);
    let id = |number| crate::chunk(number, 0);
    let write = |store: &Store, number| write_chunk(store, id(number), spec(1, 30_000, 0), &bytes);
    let refused = (0..100).find_map(|number| Some((number, write(&store, number).err()?)));
    let (written, refused) = refused.expect("the file system below gets full");
    assert!(refused.is_no_space() && written > 0, "{refused}");
    // Promises go on as long as the journal needs no new segment.
    let update = |store: &Store, sequence| {
        let stamp = crate::stamp(1, sequence);
        let kind = RecordKind::NewBytes;
        crate::append(store, id(0), stamp, kind, 100, &bytes[..2000])?;
        store.commit(id(0).stripe, Sequence(sequence))?;
        store.apply(id(0).stripe).map(drop)
    };
    let refused = (1..100).find_map(|at| Some((at, update(&store, at).err()?)));
    let (next, refused) = refused.expect("the journal is full");
    assert!(refused.is_no_space() && next > 1, "{refused}");
    assert_eq!(store.failure(), None);
    assert_eq!(disk.store().absent_devices(), []);
    drop(store);
    let disk = disk.after_crash(3);
    let (store, report) = Store::open(Arc::new(disk.clone()), OPTIONS).unwrap();
    assert_eq!(report.damage.len(), 0);
    disk.leave_room(1000);
    disk.store().maintain().unwrap();
    for sequence in next..next + 50 {
        update(&store, sequence).unwrap();
    }
    write(&store, written).unwrap();
}
