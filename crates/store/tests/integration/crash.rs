//! Crashes at every operation that changes the disk.

use crate::crashes::CrashDisk;
use crate::model::{Model, Op, SCHEMES};
use crate::{Random, append, chunk, open, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{Keeping, Sequence, StripeId};
use gabion_store::{ChunkSpec, Cut, RecordKind, SimDisk};
use std::sync::Arc;

/// A script of all operations: overlapping updates of both kinds, a resolution with drops, both
/// sorts of applies, a repair in place over pending records, a removal and a recreated chunk.
pub(crate) const SCRIPT: [Op; 34] = {
    const RESIZE: Op = Op::Resize {
        stripe: 1,
        index: 4,
        bytes: 4096,
    };
    const GROW: Op = Op::Resize {
        stripe: 1,
        index: 4,
        bytes: 8192,
    };
    const fn update(salt: u64, is_synced: bool) -> Op {
        Op::Update {
            stripe: 1,
            salt,
            is_synced,
        }
    }
    [
        update(1, true),
        update(2, false),
        update(3, true),
        Op::Commit { stripe: 1 },
        update(4, false),
        Op::Apply { stripe: 1 },
        update(5, true),
        update(6, false),
        update(7, false),
        Op::Resolve { stripe: 1 },
        update(8, true),
        Op::ApplyPending,
        update(9, true),
        Op::Commit { stripe: 1 },
        // Fills a reserve, with a record above the mark in it when it is merged.
        update(20, true),
        update(21, true),
        Op::Commit { stripe: 1 },
        update(22, false),
        update(23, true),
        RESIZE,
        update(24, true),
        Op::Commit { stripe: 1 },
        GROW,
        Op::Merge {
            stripe: 1,
            index: 4,
        },
        update(10, true),
        Op::Write {
            stripe: 1,
            index: 4,
        },
        update(11, true),
        Op::Write {
            stripe: 1,
            index: 0,
        },
        Op::Apply { stripe: 1 },
        Op::Remove {
            stripe: 1,
            index: 0,
        },
        update(12, true),
        Op::Write {
            stripe: 1,
            index: 0,
        },
        update(13, true),
        Op::Apply { stripe: 1 },
    ]
};

/// Runs the script until the power fails during operation `number` of the disk; `None` if it ends
/// before that.
fn run_until(number: u64, keepings: [Keeping; 2]) -> Option<Model> {
    let mut model: Model = Model::new(number, keepings);
    let begun = model.disk.operation_count();
    model.disk.power_off_at(begun + number);
    for op in SCRIPT {
        if let Err(error) = model.run(op) {
            assert!(model.disk.has_lost_power(), "{op:?} failed: {error}");
            return Some(model);
        }
    }
    None
}

#[test]
fn every_crash_of_the_script_leaves_what_was_acknowledged() {
    for keepings in SCHEMES {
        check_every_crash(keepings);
    }
}

fn check_every_crash(keepings: [Keeping; 2]) {
    let mut crash_count = 0;
    for number in 1.. {
        if run_until(number, keepings).is_none() {
            break;
        }
        for outcome in 0..4 {
            let mut model = run_until(number, keepings).expect("the script is the same");
            let survivor = model.disk.after_crash(number * 1000 + outcome);
            model.reopen(survivor);
            // The store goes on normally.
            for op in [SCRIPT[0], SCRIPT[3], SCRIPT[5]] {
                model.run(op).unwrap();
            }
            model.check();
            crash_count += 1;
        }
    }
    assert!(crash_count > 400, "only {crash_count} crashes were tried");
}

#[test]
fn a_crash_during_every_step_of_recovery_changes_nothing() {
    for keepings in SCHEMES {
        check_crashes_of_recovery(keepings);
    }
}

fn check_crashes_of_recovery(keepings: [Keeping; 2]) {
    let mut crash_count = 0;
    // Each of these leaves something to do: a torn tail, an open image, a removal half done.
    for number in (1..).step_by(11) {
        let Some(crashed) = run_until(number, keepings) else {
            break;
        };
        for step in 1.. {
            let survivor = crashed.disk.after_crash(number);
            survivor.power_off_at(step);
            let is_through =
                gabion_store::Store::open(Arc::new(survivor.clone()), crate::OPTIONS).is_ok();
            let again = survivor.after_crash(number + step);
            let mut model = run_until(number, keepings).expect("the script is the same");
            model.reopen(again);
            crash_count += 1;
            if is_through {
                break;
            }
        }
    }
    assert!(crash_count > 100, "only {crash_count} crashes were tried");
}

#[test]
fn random_operations_and_crashes_keep_to_the_model() {
    for seed in 0..120 {
        live_and_crash::<SimDisk>(seed, 150);
    }
}

/// Runs through several crashes, each within `operations` operations of the disk after the last.
pub(crate) fn live_and_crash<D: CrashDisk>(seed: u64, operations: u64) {
    let mut random = Random(seed);
    let mut model = Model::<D>::new(seed, SCHEMES[seed as usize % SCHEMES.len()]);
    for _ in 0..4 {
        let now = model.disk.operation_count();
        model.disk.power_off_at(now + 1 + random.below(operations));
        let mut is_off = false;
        for _ in 0..60 {
            if model.run(Op::random(&mut random)).is_err() {
                assert!(model.disk.has_lost_power(), "seed {seed}");
                is_off = true;
                break;
            }
        }
        if !is_off {
            model.disk.power_off_at(u64::MAX);
            model.check();
        }
        let survivor = model.disk.after_crash(random.next());
        model.reopen(survivor);
    }
}

#[test]
fn replaying_twice_is_replaying_once() {
    for number in (5..).step_by(5) {
        let keepings = SCHEMES[number as usize % SCHEMES.len()];
        let Some(mut model) = run_until(number, keepings) else {
            break;
        };
        let survivor = model.disk.after_crash(number);
        model.reopen(survivor);
        model.store.sync_all().unwrap();
        let report = model.reopen(model.disk.after_crash(number));
        assert_eq!(report.redone, []);
        assert_eq!(report.removed, []);
        assert_eq!(report.torn_bytes, 0);
    }
}

#[test]
fn a_stale_frame_behind_a_cut_tail_never_comes_back() {
    // An unsynced record survives behind one that is lost; the tail is cut before both. Rewriting
    // the first must not make the second valid.
    let bytes = pattern(1, 2000);
    let mut was_cut = false;
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let (store, _) = open(&disk);
        let id = chunk(1, 0);
        write_chunk(&store, id, spec(1, 8192, 0), &pattern(2, 8192)).unwrap();
        for sequence in 1..=2 {
            append(
                &store,
                id,
                stamp(1, sequence),
                RecordKind::NewBytes,
                0,
                &bytes,
            )
            .unwrap();
        }
        let (store, report) = open(&disk.after_crash(seed));
        was_cut |= report.torn_bytes > 2000;
        let held = store.collect(StripeId(1)).unwrap().records.len() as u64;
        if held == 0 {
            let lsn = append(&store, id, stamp(1, 1), RecordKind::NewBytes, 0, &bytes).unwrap();
            store.sync(lsn).unwrap();
        }
        drop(store);
        let (store, _) = open(&disk.after_crash(seed));
        let after = store.collect(StripeId(1)).unwrap().records.len() as u64;
        assert_eq!(after, held, "the original disk is untouched");
    }
    assert!(was_cut, "no crash tore the tail");
}

#[test]
fn an_apply_is_redone_from_its_image() {
    let mut redone_count = 0;
    for number in 1..40 {
        let disk = SimDisk::new(number);
        let (store, _) = open(&disk);
        let id = chunk(1, 4);
        let old = pattern(1, 8192);
        write_chunk(&store, id, spec(1, 8192, 0), &old).unwrap();
        let delta = pattern(2, 5000);
        let lsn = append(
            &store,
            id,
            stamp(1, 1),
            RecordKind::ParityDelta,
            100,
            &delta,
        )
        .unwrap();
        store.sync(lsn).unwrap();
        store.commit(StripeId(1), Sequence(1)).unwrap();
        disk.power_off_at(disk.counts().operation_count + number);
        let is_through = store.apply(StripeId(1)).is_ok();
        let (store, report) = open(&disk.after_crash(number));
        redone_count += report.redone.len();
        let mut new = old;
        for (byte, change) in new[100..].iter_mut().zip(&delta) {
            *byte ^= change;
        }
        let found = read(&store, id, 0, 8192, Cut::Exactly(Sequence(1))).unwrap();
        assert!(found == new, "crash at {number}");
        if is_through {
            break;
        }
    }
    assert!(redone_count >= 3, "only {redone_count} applies were redone");
}

#[test]
fn records_that_concurrent_threads_were_told_are_durable_survive() {
    // A reserve that overflows into the journal, since nothing is settled.
    let reserve = Keeping::Reserve { bytes: 20_000 };
    for keeping in [Keeping::InPlace, reserve] {
        check_waiting_threads(keeping);
    }
}

fn check_waiting_threads(keeping: Keeping) {
    let thread_count = 8;
    for seed in 0..30 {
        let disk = SimDisk::new(seed);
        let (store, _) = open(&disk);
        for thread in 0..thread_count {
            let spec = ChunkSpec {
                keeping,
                ..spec(1, 8192, 0)
            };
            write_chunk(&store, chunk(thread, 0), spec, &pattern(2, 8192)).unwrap();
        }
        disk.power_off_at(disk.counts().operation_count + 20 + seed * 10);
        // Each thread counts its records that it was told are durable.
        let run = |thread: u64| {
            let one = |sequence| {
                let stamp = stamp(1, sequence);
                let bytes = [sequence as u8; 600];
                let lsn = append(
                    &store,
                    chunk(thread, 0),
                    stamp,
                    RecordKind::NewBytes,
                    0,
                    &bytes,
                )?;
                store.sync(lsn)
            };
            (1..200)
                .take_while(|&sequence| one(sequence).is_ok())
                .count() as u64
        };
        let told: Vec<u64> = std::thread::scope(|scope| {
            let run = &run;
            let running: Vec<_> = (0..thread_count)
                .map(|thread| scope.spawn(move || run(thread)))
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let (store, _) = open(&disk.after_crash(seed));
        for (thread, told) in told.into_iter().enumerate() {
            let held = store
                .collect(StripeId(thread as u64))
                .unwrap()
                .records
                .len() as u64;
            assert!(
                held >= told,
                "thread {thread} was told {told}; the store holds {held}"
            );
        }
    }
}

#[test]
fn a_recreated_chunk_never_adopts_records_of_its_predecessor() {
    for number in 1..8 {
        for outcome in 0..8 {
            let disk = SimDisk::new(number);
            let (store, _) = open(&disk);
            // The second chunk's record keeps the segment with the first one's alive.
            for stripe in 1..=2 {
                let id = chunk(stripe, 0);
                write_chunk(&store, id, spec(1, 8192, 0), &pattern(stripe, 8192)).unwrap();
                append(&store, id, stamp(1, 1), RecordKind::NewBytes, 0, b"old").unwrap();
            }
            store.sync_all().unwrap();
            disk.power_off_at(disk.counts().operation_count + number);
            let _ = store.remove(chunk(1, 0));
            let disk = disk.after_crash(outcome);
            let (store, _) = open(&disk);
            if store.chunk_info(chunk(1, 0)).is_ok() {
                let state = store.collect(StripeId(1)).unwrap();
                assert_eq!(state.records.len(), 1, "the chunk without its record");
                continue;
            }
            write_chunk(&store, chunk(1, 0), spec(1, 8192, 0), &pattern(9, 8192)).unwrap();
            let (store, _) = open(&disk.after_crash(outcome));
            assert_eq!(store.collect(StripeId(1)).unwrap().records, []);
            assert_eq!(store.collect(StripeId(2)).unwrap().records.len(), 1);
        }
    }
}
