//! A process that ends after a failed sync, and a next one that finds the same page cache.

use crate::store::machine::{Draws, Machine, Store, geometry};
use crate::store::model::Model;
use gabion_flash::FlashError;

fn contents(store: &Store) -> [u8; 3] {
    let file = store.find("file").expect("its creation was acknowledged");
    let mut bytes = [0; 3];
    store.read(file, 0, &mut bytes).expect("it has three bytes");
    bytes
}

#[test]
fn a_write_whose_sync_failed_does_not_come_back_as_durable() {
    for granule_bytes in [8, 512, 4096] {
        let machine = Machine::new(geometry(1), granule_bytes);
        let store = machine.format();
        let file = store.create("file").unwrap();
        store.write(file, 0, b"old").unwrap();
        machine.nvram.fail_persist(1);
        store.write(file, 0, b"new").unwrap_err();
        let refused = store.write(file, 0, b"two").unwrap_err();
        assert!(matches!(refused, FlashError::Failed { .. }), "{refused}");
        drop(store);
        let found = contents(&machine.open(None).unwrap());
        assert_eq!(&found, b"old", "granules of {granule_bytes} bytes");
        for seed in 0..4 {
            let survivor = machine.after_crash(seed).open(None).unwrap();
            assert_eq!(contents(&survivor), found);
        }
    }
}

/// Runs a workload until its `number`-th sync fails, restarts the process alone, and then cuts the
/// power.
fn check_failed_sync(number: u64) {
    let mut draws = Draws::new(number + 1);
    let machine = Machine::new(geometry(1), if number.is_multiple_of(2) { 8 } else { 512 });
    let mut model = Model::default();
    let store = machine.format();
    machine.nvram.fail_persist(number);
    while model.step(&store, &mut draws).is_ok() {}
    drop(store);
    let context = |problem| panic!("sync {number}: {problem}");
    // The model takes over what the restarted process finds.
    let restarted = machine.open(None).expect("a restart reads the memory");
    model.check(&restarted).unwrap_or_else(context);
    for seed in 0..3 {
        let survivor = machine
            .after_crash(seed)
            .open(None)
            .expect("a crash loses nothing durable");
        model.clone().check(&survivor).unwrap_or_else(context);
    }
}

#[test]
fn what_a_restarted_process_finds_after_a_failed_sync_survives_the_power() {
    for number in 1..=60 {
        check_failed_sync(number);
    }
}
