//! Replacements of a device that a loss of power or a failure ends halfway.

use crate::store::devices::used;
use crate::store::machine::{Machine, Store};
use crate::store::model::Model;
use gabion_flash::{FlashError, Power, SimDevice};

/// The place of the replaced device.
const INDEX: usize = 2;

fn blank(power: &Power, machine: &Machine) -> SimDevice {
    SimDevice::new(power, machine.geometry.device_bytes() as usize)
}

/// Rebuilds the array, and checks that it works without any one of the other devices.
fn check_rebuilt(machine: &Machine, store: Store, model: &Model, context: &str) {
    model
        .clone()
        .check(&store)
        .unwrap_or_else(|problem| panic!("{context}, before the rebuild: {problem}"));
    while store.rebuild().expect("three devices suffice") {}
    assert_eq!(store.usage().degraded_stripes, 0, "{context}");
    drop(store);
    for absent in (0..4).filter(|&other| other != INDEX) {
        let store = machine.open(Some(absent)).expect("three devices suffice");
        model
            .clone()
            .check(&store)
            .unwrap_or_else(|problem| panic!("{context}, without device {absent}: {problem}"));
    }
}

/// Cuts the power at an operation of a replacement, and checks the next start. Returns whether
/// the power went out, and whether the start took the device for a member.
fn cut_at(machine: &Machine, model: &Model, cut: u64, seed: u64) -> (bool, bool) {
    let context = format!("operation {cut}, seed {seed}");
    let mut machine = machine.after_crash(seed);
    let store = machine.open(Some(INDEX)).expect("three devices suffice");
    machine.devices[INDEX] = blank(&machine.power, &machine);
    machine.power.off_at(machine.power.operation_count() + cut);
    let replaced = store.replace_device(INDEX, machine.devices[INDEX].clone());
    let is_cut = machine.power.is_off();
    assert_eq!(replaced.is_err(), is_cut, "{context}");
    drop(store);
    let mut machine = machine.after_crash(seed);
    if let Ok(store) = machine.open(None) {
        let usage = store.usage();
        assert_eq!(usage.degraded_stripes, usage.sealed_stripes, "{context}");
        check_rebuilt(&machine, store, model, &context);
        return (is_cut, true);
    }
    let store = machine.open(Some(INDEX)).expect("three devices suffice");
    machine.devices[INDEX] = blank(&machine.power, &machine);
    store
        .replace_device(INDEX, machine.devices[INDEX].clone())
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    check_rebuilt(&machine, store, model, &context);
    (is_cut, false)
}

#[test]
fn a_blank_device_never_counts_as_whole_wherever_the_power_goes_out() {
    let (machine, store, mut model, _) = used(1, 4);
    store.sync().expect("nothing fails");
    model.settle();
    drop(store);
    let (mut members, mut strangers) = (0, 0);
    for cut in 1.. {
        let mut is_cut = false;
        for seed in 0..4 {
            let is_member;
            (is_cut, is_member) = cut_at(&machine, &model, cut, seed);
            members += u32::from(is_cut && is_member);
            strangers += u32::from(is_cut && !is_member);
        }
        if !is_cut {
            break;
        }
    }
    assert!(
        members > 0,
        "some cuts come between the header and its sync"
    );
    assert!(strangers > 20, "{strangers} cuts come before the header");
}

#[test]
fn a_replacement_that_failed_halfway_can_be_repeated() {
    // The header's write or its sync fails; the process goes on, or starts again.
    for (failing, is_restarted) in [(1, false), (2, false), (1, true), (2, true)] {
        let context = format!("operation {failing} fails, restarted: {is_restarted}");
        let (mut machine, mut store, mut model, mut draws) = used(1, 9);
        store.remove_device(INDEX).expect("one may be missing");
        let broken = Power::on();
        broken.off_at(failing);
        store
            .replace_device(INDEX, blank(&broken, &machine))
            .unwrap_err();
        assert_eq!(store.absent_devices(), [INDEX], "{context}");
        if is_restarted {
            store = machine.open(Some(INDEX)).expect("three devices suffice");
        }
        for _ in 0..50 {
            model.step(&store, &mut draws).expect("writes go on");
        }
        machine.devices[INDEX] = blank(&machine.power, &machine);
        store
            .replace_device(INDEX, machine.devices[INDEX].clone())
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        store.sync().expect("nothing fails");
        model.settle();
        check_rebuilt(&machine, store, &model, &context);
    }
}

#[test]
fn a_device_gets_no_header_before_its_missing_chunks_are_durably_marked() {
    let (machine, store, ..) = used(1, 9);
    store.remove_device(INDEX).expect("one may be missing");
    let device = blank(&machine.power, &machine);
    machine.nvram.fail_persist(1);
    store.replace_device(INDEX, device.clone()).unwrap_err();
    assert!(!store.is_own_device(INDEX, &device));
    assert_eq!(store.absent_devices(), [INDEX]);
}

#[test]
fn a_device_that_is_too_small_changes_nothing() {
    let (machine, store, ..) = used(1, 9);
    store.remove_device(INDEX).expect("one may be missing");
    let before = machine.power.operation_count();
    let small = SimDevice::new(
        &machine.power,
        machine.geometry.device_bytes() as usize - 4096,
    );
    let refused = store.replace_device(INDEX, small).unwrap_err();
    assert!(
        matches!(refused, FlashError::Unsupported { .. }),
        "{refused}"
    );
    assert_eq!(machine.power.operation_count(), before);
}
