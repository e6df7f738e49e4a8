//! Power loss at seeded points. `GABION_FLASH_CRASHES` sets their number; the default is for CI.

use crate::store::machine::{Draws, Machine, geometry};
use crate::store::model::Model;
use gabion_flash::{FlashStore, Victims};

/// Losses of power within a seed's life of a store.
const ROUNDS: u64 = 5;

fn crash_count() -> u64 {
    let asked = std::env::var("GABION_FLASH_CRASHES").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(150)
}

fn machine(seed: u64) -> Machine {
    let granule_bytes = if seed.is_multiple_of(2) { 8 } else { 512 };
    let victims = if seed.is_multiple_of(3) {
        Victims::CostBenefit
    } else {
        Victims::Greedy
    };
    Machine::new(
        geometry(1 + usize::from(seed.is_multiple_of(5))),
        granule_bytes,
    )
    .with_victims(victims)
}

/// Runs through several crashes. Returns the stripes that were collected and flushed.
fn live(seed: u64) -> (u64, u64) {
    let mut draws = Draws::new(seed);
    let mut machine = machine(seed);
    let mut model = Model::default();
    let mut store = machine.format();
    let mut lived = (0, 0);
    for round in 0..ROUNDS {
        let now = machine.power.operation_count();
        machine.power.off_at(now + 1 + draws.below(1500));
        let error = loop {
            if let Err(error) = model.step(&store, &mut draws) {
                break error;
            }
        };
        let counts = store.counts();
        lived = (
            lived.0 + counts.collected_stripes,
            lived.1 + counts.flushed_stripes,
        );
        let context = format!("seed {seed}, round {round}, after: {error}");
        assert!(machine.power.is_off(), "{context}");
        machine = machine.after_crash(draws.below(u64::MAX));
        // The power may fail again while the store is opened.
        machine.power.off_at(1 + draws.below(60));
        if let Ok(opened) = machine.open(None) {
            drop(opened);
        }
        machine = machine.after_crash(draws.below(u64::MAX));
        let usage = machine.open(None).map(|store| store.usage());
        let is_whole = usage.is_ok_and(|usage| usage.degraded_stripes == 0);
        let absent = (is_whole && draws.below(4) == 0).then(|| draws.below(4) as usize);
        store = machine
            .open(absent)
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        if let Err(problem) = model.check(&store) {
            panic!("{context}: {problem}");
        }
        if let Some(index) = absent {
            store
                .replace_device(index, machine.devices[index].clone())
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            // With a chance of about a half, the next crash comes before the rebuild has ended.
            while draws.below(8) != 0 && store.rebuild().expect("enough devices are there") {}
        }
    }
    lived
}

#[test]
fn no_acknowledged_write_is_lost_wherever_the_power_goes_out() {
    let mut seen = (0, 0);
    for seed in 0..crash_count().div_ceil(ROUNDS) {
        let (collected, flushed) = live(seed);
        seen = (seen.0 + collected, seen.1 + flushed);
    }
    // A workload that never collects or flushes would prove nothing.
    assert!(seen.0 > crash_count() / 2, "{} collected", seen.0);
    assert!(seen.1 > crash_count(), "{} flushed", seen.1);
}

#[test]
fn the_map_is_rebuilt_from_the_log_when_the_memory_is_lost() {
    for seed in 0..10 {
        let machine = machine(seed * 3);
        let mut draws = Draws::new(seed);
        let store = machine.format();
        let file = store.create("kept").expect("room");
        // Whole stripes go to the devices at once, so no buffer holds any of them.
        let bytes = draws.bytes(55 * gabion_flash::PAGE_BYTES);
        store.write(file, 0, &bytes).expect("room");
        // Enough pages of another file, so that the table's page is flushed too.
        let other = store.create("other").expect("room");
        for page in 0..80 {
            store
                .write(other, page * 4096, &draws.bytes(4096))
                .expect("room");
        }
        store.delete(other).expect("it is there");
        let third = store.create("third").expect("room");
        for page in 0..60 {
            store
                .write(third, page * 4096, &draws.bytes(4096))
                .expect("room");
        }
        drop(store);
        let fresh = Machine::new(machine.geometry, 8);
        let absent = (seed.is_multiple_of(2)).then_some(seed as usize % 4);
        let store = FlashStore::open_without_nvram(
            machine.given(absent),
            fresh.nvram.clone(),
            machine.options,
        )
        .expect("the devices suffice");
        let file = store.find("kept").expect("it was flushed");
        let mut found = vec![0; bytes.len()];
        assert_eq!(
            store.read(file, 0, &mut found).expect("it is there"),
            bytes.len()
        );
        assert!(found == bytes, "seed {seed}");
        // The store works on, and opens again from its new memory.
        store.write(file, 5, b"new").expect("room");
        drop(store);
        let store = FlashStore::open(machine.given(absent), fresh.nvram.clone(), machine.options);
        let store = store.expect("it was rebuilt");
        store.read(file, 0, &mut found[..8]).expect("it is there");
        assert_eq!(&found[5..8], b"new");
    }
}
