//! The paged inventory, and decisions for many stripes at a time.

use crate::{append, chunk, open, pattern, spec, stamp, write_chunk};
use gabion_layout::{ChunkId, Epoch, Generation, Sequence, StripeId};
use gabion_store::{Decision, HeldStripe, RecordKind::NewBytes, SimDisk, Store};

const STRIPE_COUNT: u64 = 400;

/// A store of many stripes, each with an undecided update.
fn with_undecided(seed: u64) -> (SimDisk, Store, Vec<ChunkId>) {
    let disk = SimDisk::new(seed);
    let (store, _) = open(&disk);
    let ids: Vec<ChunkId> = (1..=STRIPE_COUNT).map(|stripe| chunk(stripe, 0)).collect();
    for &id in &ids {
        write_chunk(&store, id, spec(1, 4096, 0), &pattern(1, 4096)).unwrap();
        append(&store, id, stamp(1, 1), NewBytes, 0, b"undecided bytes").unwrap();
    }
    store.sync_all().unwrap();
    (disk, store, ids)
}

fn syncs_of(disk: &SimDisk, work: impl FnOnce()) -> u64 {
    let before = disk.counts().sync_count;
    work();
    disk.counts().sync_count - before
}

fn decision(stripe: StripeId, stands: bool) -> Decision {
    let stood = (Epoch(1), Sequence(1));
    Decision {
        stripe,
        epoch: Epoch(2),
        generation: Generation(3),
        stands: stands.then_some(stood).into_iter().collect(),
    }
}

#[test]
fn pages_tell_of_each_stripe_once_and_in_order() {
    let (_, store, ids) = with_undecided(1);
    assert_eq!(store.chunk_count(), STRIPE_COUNT);
    for limit in [1, 2, 7, 10_000] {
        let (mut told, mut after): (Vec<HeldStripe>, _) = (Vec::new(), None);
        loop {
            let page = store.held_page(after, limit).unwrap();
            assert!(page.stripes.len() <= limit);
            told.extend(page.stripes);
            assert!(page.upto > after || page.upto.is_none());
            after = page.upto;
            if after.is_none() {
                break;
            }
        }
        let stripes: Vec<StripeId> = told.iter().map(|held| held.stripe).collect();
        let all: Vec<StripeId> = ids.iter().map(|id| id.stripe).collect();
        assert_eq!(stripes, all);
        assert!(told.iter().all(|held| held.state.records.len() == 1));
    }
}

#[test]
fn many_decisions_and_many_chunks_set_aside_cost_a_few_syncs_and_survive_a_crash() {
    let (disk, store, ids) = with_undecided(2);
    let decisions = ids
        .iter()
        .map(|id| decision(id.stripe, id.stripe.0 % 2 == 0));
    let decisions: Vec<Decision> = decisions.collect();
    let adopt = |decisions: &[Decision]| {
        assert_eq!(store.adopt_decisions(decisions).unwrap(), []);
    };
    let sync_count = syncs_of(&disk, || adopt(&decisions));
    assert!(sync_count <= 4, "{sync_count} syncs for 400 stripes");
    let sync_count = syncs_of(&disk, || adopt(&[]));
    assert_eq!(sync_count, 0);
    disk.crash();
    drop(store);

    let (store, _) = open(&disk);
    for id in &ids {
        let state = store.collect(id.stripe).unwrap();
        let mark = Sequence(u64::from(id.stripe.0.is_multiple_of(2)));
        assert_eq!((state.epoch, state.generation), (Epoch(2), Generation(3)));
        assert_eq!((state.mark, state.records.len()), (mark, 0), "{id}");
    }
    let gone = &ids[..16];
    let sync_count = syncs_of(&disk, || store.set_aside(gone).unwrap());
    assert!(sync_count <= 2 + 2 * 16, "{sync_count} syncs for 16 chunks");
    disk.crash();
    drop(store);
    let (store, _) = open(&disk);
    assert_eq!(store.chunk_count(), STRIPE_COUNT - 16);
    assert_eq!(store.trash().unwrap().len(), 16);
}
