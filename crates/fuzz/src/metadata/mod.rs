//! Rows of metadata: a valid store of which an input changes rows, then the check of all rows, the main reads, and the
//! operations that change them.
//!
//! Each row's value is decoded by its table. What a row says may contradict others: operations refuse that, and never
//! panic.

mod cluster;
mod usage;

use crate::mutation::Dice;
use crate::script::{Script, edit};
use crate::target::Target;
use cluster::rows;
use gabion_meta::{KeyValue, MemoryStore, Row, check_rows};

/// The target.
pub(crate) const TARGET: Target = Target {
    name: "metadata-rows",
    run,
    seeds,
    input_bytes_max: 512,
    memory_bytes_max: 32 << 20,
    test_input_count: 3_000,
};

/// Rows that an input changes.
const CHANGE_COUNT_MAX: usize = 4;
/// Tables have tags below this.
const TAG_END: u8 = 58;

/// The first byte: whether operations follow the reads, and which. Then changes of rows.
fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let choice = script.u8();
    let mut changed = rows().to_vec();
    let mut count = 0;
    while !script.is_empty() && count < CHANGE_COUNT_MAX {
        change(&mut changed, &mut script);
        count += 1;
    }
    let store = MemoryStore::new();
    store
        .write(|txn| {
            changed
                .iter()
                .try_for_each(|(key, value)| txn.put(key, value))
        })
        .expect("the store is in memory");
    match check_rows(&store) {
        Ok(faults) => assert!(faults.iter().all(|fault| !fault.is_empty())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    usage::open_and_use(store, choice);
}

/// Changes, removes or adds one row.
fn change(rows: &mut Vec<Row>, script: &mut Script<'_>) {
    let at = script.below(rows.len());
    let operation = script.u8() % 16;
    if rows.is_empty() || operation == 0 {
        let mut key = vec![script.u8() % TAG_END];
        key.extend_from_slice(script.piece());
        let mut value = vec![1 + script.u8() % 4];
        value.extend_from_slice(script.piece());
        rows.push((key, value));
        return;
    }
    match operation {
        1 => drop(rows.remove(at)),
        2 => edit(&mut rows[at].0, script),
        3 => {
            let (key, _) = rows[at].clone();
            let value = rows[script.below(rows.len())].1.clone();
            rows.push((key, value));
        }
        4 => {
            let (mut key, value) = rows[at].clone();
            edit(&mut key, script);
            rows.push((key, value));
        }
        5 => {
            let replacement = script.piece();
            rows[at].1.truncate(1);
            rows[at].1.extend_from_slice(replacement);
        }
        _ => {
            // The version stays: another one is refused at once.
            let (_, value) = &mut rows[at];
            let mut body = value.split_off(1.min(value.len()));
            edit(&mut body, script);
            value.append(&mut body);
        }
    }
}

/// Each row changed in one place.
fn seeds() -> Vec<Vec<u8>> {
    let mut dice = Dice::new(3);
    let mut seeds = vec![vec![0], vec![255]];
    for at in 0..rows().len() as u16 {
        let [low, high] = at.to_le_bytes();
        let mut seed = vec![dice.any() as u8, low, high, 6, 6];
        seed.extend((0..8).map(|_| dice.any() as u8));
        // A position near the beginning of the value.
        (seed[5], seed[6]) = (dice.below(6) as u8, 0);
        seeds.push(seed);
    }
    seeds
}
