//! Devices that fail, rot, and are replaced under load.

use crate::store::machine::{Draws, Machine, Store, geometry};
use crate::store::model::Model;
use gabion_flash::{FlashError, FlashStore, PAGE_BYTES, Power, SimDevice};

/// A store with some random history.
pub(crate) fn used(parity_devices: usize, seed: u64) -> (Machine, Store, Model, Draws) {
    let machine = Machine::new(geometry(parity_devices), 512);
    let store = machine.format();
    let mut model = Model::default();
    let mut draws = Draws::new(seed);
    for _ in 0..250 {
        model.step(&store, &mut draws).expect("nothing fails");
    }
    (machine, store, model, draws)
}

#[test]
fn a_device_is_removed_and_replaced_under_load() {
    for seed in 0..6 {
        let (machine, store, mut model, mut draws) = used(1, seed);
        let index = seed as usize % 4;
        store.remove_device(index).expect("one may be missing");
        let refused = store.remove_device((index + 1) % 4).unwrap_err();
        assert!(matches!(
            refused,
            FlashError::TooManyMissing {
                missing: 2,
                survivable: 1
            }
        ));
        model.check(&store).expect("reads rebuild what is missing");
        for _ in 0..100 {
            model.step(&store, &mut draws).expect("writes go on");
        }
        assert!(store.usage().degraded_stripes > 0);
        let fresh = SimDevice::new(&machine.power, machine.geometry.device_bytes() as usize);
        store
            .replace_device(index, fresh.clone())
            .expect("it is large enough");
        let refused = store.remove_device((index + 1) % 4).unwrap_err();
        assert!(
            matches!(refused, FlashError::TooManyMissing { .. }),
            "{refused}"
        );
        let mut rebuilt = 0;
        while store.rebuild().expect("three devices suffice") {
            rebuilt += 1;
            model.step(&store, &mut draws).expect("writes go on");
        }
        assert!(rebuilt > 3, "{rebuilt} stripes");
        assert_eq!(store.usage().degraded_stripes, 0);
        model.settle();
        store.sync().expect("nothing fails");
        drop(store);
        // Now another device may fail: the new one holds its chunks.
        let machine = Machine {
            devices: (0..4)
                .map(|at| {
                    if at == index {
                        fresh.clone()
                    } else {
                        machine.devices[at].clone()
                    }
                })
                .collect(),
            ..machine
        };
        let store = machine
            .open(Some((index + 1) % 4))
            .expect("three devices suffice");
        model.check(&store).expect("everything is there");
    }
}

#[test]
fn a_device_that_fails_writes_is_marked_as_failed() {
    let machine = Machine::new(geometry(1), 512);
    let broken = Power::on();
    let mut devices = machine.devices.clone();
    devices[1] = SimDevice::new(&broken, machine.geometry.device_bytes() as usize);
    let store = gabion_flash::FlashStore::format(
        machine.geometry,
        1,
        devices,
        machine.nvram.clone(),
        machine.options,
    )
    .expect("all works yet");
    broken.off_at(broken.operation_count() + 20);
    let mut model = Model::default();
    let mut draws = Draws::new(3);
    for _ in 0..250 {
        model.step(&store, &mut draws).expect("one device may fail");
    }
    assert_eq!(store.absent_devices(), [1]);
    model.check(&store).expect("everything is there");
}

#[test]
fn rot_is_found_and_rebuilt_and_never_served() {
    let (machine, store, mut model, _) = used(1, 8);
    rot_all(&machine, 2);
    model.check(&store).expect("the others rebuild it");
    rot_all(&machine, 0);
    let problem = model.check(&store).unwrap_err();
    assert!(problem.contains("damaged"), "{problem}");
}

/// Rots a byte of each page of a device that holds stripes.
fn rot_all(machine: &Machine, device: usize) {
    rot_every(machine, device, 1);
}

/// Rots a byte of the first page of each `page_count` pages. The first page of a chunk of four may hold a summary.
fn rot_every(machine: &Machine, device: usize, page_count: usize) {
    let pages = 4..machine.geometry.device_bytes() / PAGE_BYTES as u64;
    for page in pages.step_by(page_count) {
        machine.devices[device].rot(page * PAGE_BYTES as u64 + page % 4096);
    }
}

#[test]
fn rot_beside_a_missing_device_of_a_raid_6_is_rebuilt_and_spreads_to_no_other() {
    for rotten in 1..5 {
        let (mut machine, store, mut model, _) = used(2, 8);
        store.remove_device(0).expect("two may be missing");
        rot_all(&machine, rotten);
        model.check(&store).expect("the other three suffice");
        let fresh = SimDevice::new(&machine.power, machine.geometry.device_bytes() as usize);
        store
            .replace_device(0, fresh.clone())
            .expect("it is large enough");
        while store.rebuild().expect("no device fails") {}
        assert_eq!(store.usage().degraded_stripes, 0);
        assert_eq!(store.unreadable(), []);
        model.settle();
        store.sync().expect("nothing fails");
        drop(store);
        machine.devices[0] = fresh;
        // The new device serves for the rotten one and for another.
        for absent in (1..5).filter(|at| *at != rotten) {
            let store = machine.open(Some(absent)).expect("three devices suffice");
            model.check(&store).unwrap_or_else(|problem| {
                panic!("device {rotten} rotten, device {absent} missing: {problem}")
            });
        }
    }
}

#[test]
fn a_summary_is_rebuilt_without_rot_and_found_beside_it_when_the_memory_is_lost() {
    for rotten in 1..5 {
        let mut machine = Machine::new(geometry(2), 8);
        let store = machine.format();
        let file = store.create("kept").expect("room");
        // Whole stripes go to the devices at once; enough pages follow that the table's page does too.
        let bytes = Draws::new(rotten as u64).bytes(55 * PAGE_BYTES);
        store.write(file, 0, &bytes).expect("room");
        for page_count in [80, 60] {
            let file = store.create("other").expect("room");
            for page in 0..page_count {
                let at = page * PAGE_BYTES as u64;
                let bytes = [page as u8; PAGE_BYTES];
                store.write(file, at, &bytes).expect("room");
            }
            store.delete(file).expect("it is there");
        }
        store.remove_device(0).expect("two may be missing");
        rot_every(&machine, rotten, 4);
        let fresh = SimDevice::new(&machine.power, machine.geometry.device_bytes() as usize);
        store
            .replace_device(0, fresh.clone())
            .expect("it is large enough");
        while store.rebuild().expect("no device fails") {}
        drop(store);
        machine.devices[0] = fresh;
        for absent in (1..5).filter(|at| *at != rotten) {
            let nvram = Machine::new(machine.geometry, 8).nvram;
            let store =
                FlashStore::open_without_nvram(machine.given(Some(absent)), nvram, machine.options);
            let store = store.expect("three devices suffice");
            let mut found = vec![0; bytes.len()];
            let file = store.find("kept").expect("its inode is on the devices");
            store.read(file, 0, &mut found).expect("it is there");
            assert!(
                found == bytes,
                "device {rotten} rotten, device {absent} missing"
            );
        }
    }
}

#[test]
fn a_page_that_rot_has_put_beyond_recovery_stops_the_rebuild_of_its_stripe_alone() {
    let (machine, store, mut model, _) = used(1, 8);
    store.remove_device(0).expect("one may be missing");
    rot_all(&machine, 2);
    let problem = model.check(&store).unwrap_err();
    assert!(problem.contains("damaged"), "{problem}");
    let fresh = SimDevice::new(&machine.power, machine.geometry.device_bytes() as usize);
    store.replace_device(0, fresh).expect("it is large enough");
    let lacking = store.lacking_stripes()[0];
    while store.rebuild().expect("no device fails") {}
    let unbuilt = store.unreadable().len();
    assert!(
        0 < unbuilt,
        "of {lacking} stripes all were rebuilt from rot"
    );
    assert_eq!(store.lacking_stripes()[0] as usize, unbuilt);
}

#[test]
fn two_of_a_raid_6_may_be_missing() {
    let (_, store, mut model, mut draws) = used(2, 5);
    store.remove_device(0).expect("one may be missing");
    store.remove_device(3).expect("two may be missing");
    for _ in 0..100 {
        model.step(&store, &mut draws).expect("writes go on");
    }
    model.check(&store).expect("everything is there");
    store.remove_device(1).unwrap_err();
}

#[test]
fn devices_in_the_wrong_order_or_of_another_store_are_refused() {
    let machine = Machine::new(geometry(1), 8);
    drop(machine.format());
    let mut swapped = machine.clone();
    swapped.devices.swap(0, 1);
    let error = swapped.open(None).map(|_| ()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("give the devices in their order"),
        "{error}"
    );
    let other = Machine::new(geometry(1), 8);
    let mixed = gabion_flash::FlashStore::format(
        other.geometry,
        5,
        other.devices.clone(),
        other.nvram.clone(),
        other.options,
    );
    drop(mixed);
    let mut mixed = machine.clone();
    mixed.devices[3] = other.devices[3].clone();
    let error = mixed.open(None).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("another array"), "{error}");
}
