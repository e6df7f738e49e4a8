//! Whole plans on executors that communicate over a network in memory. For every code, layout,
//! failure and order of events, each run finishes, leaves the bytes of the code's own encoder, and
//! sends exactly the plan's cost in bytes over each link.

use crate::network::{Image, Network, Outcome, Slow};
use crate::setting::bytes::{Chunks, encoded, overwritten, random_stripe};
use crate::setting::{
    Setting, any_numbers, any_scheme, any_selection, any_setting, bearable_losses, ranges,
};
use gabion_exec::RING_SLICES;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, StripeId, Topology};
use gabion_plan::{Cost, Plan, Step, StepOrder, check};
use gabion_planner::repair::{MultiScheme, Scheme, read, repair, repair_all};
use gabion_planner::update::{Waiting, cau, parix};
use gabion_planner::{Stripe, encode, update};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// Losses from random numbers: as many as the planner can handle, the first one at least.
fn losses(setting: &Setting, numbers: &[usize]) -> Vec<ChunkIndex> {
    let mut lost: Vec<usize> = Vec::new();
    for number in numbers {
        let chunk = number % setting.geometry.n();
        let rest: Vec<usize> = (0..setting.geometry.n())
            .filter(|c| *c != chunk && !lost.contains(c))
            .collect();
        if !lost.contains(&chunk) && setting.code.is_sufficient(&rest) {
            lost.push(chunk);
        }
    }
    lost.into_iter().map(ChunkIndex::new).collect()
}

fn any_losses() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(any::<usize>(), 1..4)
}

fn any_order() -> impl Strategy<Value = StepOrder> {
    prop_oneof![Just(StepOrder::Streamed), Just(StepOrder::InTurn)]
}

/// Runs a plan with one node slower than all others, and checks the properties of every plan.
fn run(plan: &Plan, setting: &Setting, stored: &Chunks, new: &Chunks, seed: u64) -> Outcome {
    let participants = plan.participants();
    let slow = match seed % 4 {
        0 => Slow::NoNode,
        _ => Slow::Node(participants[seed as usize / 4 % participants.len()]),
    };
    let outcome = Network::run(plan, stored, new, slow, seed);
    assert_eq!(outcome.unfinished, [], "every part comes to its end");
    assert_eq!(
        outcome.links(),
        Cost::of(plan, &setting.topology).links,
        "links carry the plan's cost"
    );
    outcome
}

fn images_of(chunks: &Chunks, ranges: &[ChunkRange]) -> BTreeMap<ChunkIndex, Image> {
    let mut images: BTreeMap<ChunkIndex, Image> = BTreeMap::new();
    for part in ranges {
        let image = images.entry(part.chunk).or_default();
        let positions = part.range.offset..part.range.end();
        image.extend(positions.map(|at| (at, chunks[part.chunk.at()][at as usize])));
    }
    images
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn encoding_writes_what_the_encoder_makes(
        setting in any_setting(), slice in 1u64..100, seed in any::<u64>(),
    ) {
        let new = random_stripe(&setting, &mut ChaCha8Rng::seed_from_u64(seed));
        let plan = encode::direct(&setting.stripe(&[]), NodeId::CLIENT, slice).unwrap();
        let outcome = run(&plan, &setting, &new, &new, seed);
        for chunk in setting.geometry.chunks() {
            let written = outcome.whole(setting.placement[chunk.at()], chunk);
            prop_assert_eq!(written.as_ref(), Some(&new[chunk.at()]));
        }
    }

    /// Parity with all logged deltas added is the parity of the new data, whatever is lost; lost
    /// chunks stay as they were.
    #[test]
    fn updates_leave_the_parity_of_the_new_data(
        setting in any_setting(), numbers in any_numbers(), losses in any_numbers(),
        slice in 1u64..100, seed in any::<u64>(),
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stored = random_stripe(&setting, &mut rng);
        let new = random_stripe(&setting, &mut rng);
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let lost = bearable_losses(&setting, &losses);
        let plan = update::delta(&setting.stripe(&lost), &setting.topology, &ranges, slice).unwrap();
        let outcome = run(&plan, &setting, &stored, &new, seed);
        let updated = overwritten(&stored, &new, &ranges);
        let mut expected = encoded(&setting, updated);
        for chunk in lost {
            expected[chunk.at()].clone_from(&stored[chunk.at()]);
        }
        prop_assert_eq!(&outcome.merged, &expected);
    }

    /// The same holds when deltas are combined on their way between racks.
    #[test]
    fn cross_rack_updates_leave_the_parity_of_the_new_data(
        setting in any_setting(), numbers in any_numbers(), slice in 1u64..100, seed in any::<u64>(),
        selection in any_selection(),
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stored = random_stripe(&setting, &mut rng);
        let new = random_stripe(&setting, &mut rng);
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let updated = overwritten(&stored, &new, &ranges);
        let expected = encoded(&setting, updated);
        let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
        for plan in [
            cau::selective(&stripe, topology, &ranges, selection, slice),
            update::rackcu(&stripe, topology, &ranges, slice),
        ] {
            let outcome = run(&plan.unwrap(), &setting, &stored, &new, seed);
            prop_assert_eq!(&outcome.merged, &expected);
        }
    }

    /// A commit gives data chunks their appended bytes, and parity the resulting changes, with
    /// chunks lost or not; lost chunks stay as they were.
    #[test]
    fn commits_leave_the_parity_of_what_was_appended(
        setting in any_setting(), numbers in any_numbers(), losses in any_numbers(),
        slice in 1u64..100, seed in any::<u64>(), selection in any_selection(),
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stored = random_stripe(&setting, &mut rng);
        let new = random_stripe(&setting, &mut rng);
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let updated = overwritten(&stored, &new, &ranges);
        let expected = encoded(&setting, updated);
        let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
        let mut waiting = Waiting::default();
        let replicas = setting.geometry.m();
        waiting.note_plan(&cau::append(&stripe, topology, &ranges, replicas, slice).unwrap());
        for plan in [
            cau::commit(&stripe, topology, &waiting.ranges(), selection, slice),
            parix::commit(&stripe, &waiting.ranges(), slice),
        ] {
            let outcome = run(&plan.unwrap(), &setting, &stored, &new, seed);
            prop_assert_eq!(&outcome.merged, &expected);
        }
        let lost = bearable_losses(&setting, &losses);
        let mut left = expected;
        for chunk in &lost {
            left[chunk.at()].clone_from(&stored[chunk.at()]);
        }
        let stripe = setting.stripe(&lost);
        for plan in [
            cau::commit_without(&stripe, topology, &waiting, slice),
            parix::commit(&stripe, &waiting.ranges(), slice),
        ] {
            let plan = plan.unwrap();
            prop_assert_eq!(check(&plan, &setting.code), Ok(()));
            let outcome = run(&plan, &setting, &stored, &new, seed);
            prop_assert_eq!(&outcome.merged, &left);
        }
    }

    #[test]
    fn repairs_bring_lost_bytes_back(
        setting in any_setting(), numbers in any_losses(), slice in 1u64..100,
        scheme in any_scheme(), order in any_order(), seed in any::<u64>(),
    ) {
        let stored = random_stripe(&setting, &mut ChaCha8Rng::seed_from_u64(seed));
        let lost = losses(&setting, &numbers);
        let stripe = setting.stripe(&lost);
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let requestor = setting.spare();
        let plan = repair(&stripe, lost[0], requestor, &helpers, scheme, slice).unwrap();
        let outcome = run(&plan.in_order(order), &setting, &stored, &stored, seed);
        let repaired = outcome.whole(requestor, lost[0]);
        prop_assert_eq!(repaired.as_ref(), Some(&stored[lost[0].at()]));
    }

    #[test]
    fn repairs_of_several_chunks_bring_all_back(
        setting in any_setting(), numbers in any_losses(), slice in 1u64..100,
        scheme in 0..4, order in any_order(), seed in any::<u64>(),
    ) {
        let stored = random_stripe(&setting, &mut ChaCha8Rng::seed_from_u64(seed));
        let lost = losses(&setting, &numbers);
        let stripe = setting.stripe(&lost);
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        // Each chunk is rebuilt on its own node, as after a restart with an empty disk.
        let targets: Vec<_> = lost.iter().map(|&chunk| (chunk, stripe.node_of(chunk))).collect();
        let scheme = match scheme {
            0 => MultiScheme::Dedicated,
            1 => MultiScheme::Pipeline,
            2 => MultiScheme::Dealt,
            _ => MultiScheme::Racks(&setting.topology),
        };
        let plan = repair_all(&stripe, &targets, &helpers, scheme, slice).unwrap();
        let outcome = run(&plan.in_order(order), &setting, &stored, &stored, seed);
        for (chunk, node) in targets {
            let repaired = outcome.whole(node, chunk);
            prop_assert_eq!(repaired.as_ref(), Some(&stored[chunk.at()]));
        }
    }

    #[test]
    fn reads_deliver_stored_bytes_and_no_others(
        setting in any_setting(), losses_drawn in any_losses(), numbers in any_numbers(),
        slice in 1u64..100, scheme in any_scheme(), seed in any::<u64>(),
    ) {
        let stored = random_stripe(&setting, &mut ChaCha8Rng::seed_from_u64(seed));
        let lost = losses(&setting, &losses_drawn);
        let stripe = setting.stripe(&lost);
        let mut ranges = ranges(setting.geometry, setting.geometry.n(), &numbers);
        ranges.retain(|part| part.chunk != lost[0]);
        let half = setting.geometry.chunk_bytes().div_ceil(2);
        ranges.push(ChunkRange { chunk: lost[0], range: ByteRange::new(seed % half, half) });
        ranges.retain(|part| part.range.end() <= setting.geometry.chunk_bytes());
        prop_assume!(!ranges.is_empty());
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let plan = read(&stripe, &ranges, NodeId::CLIENT, &helpers, scheme, slice).unwrap();
        let outcome = run(&plan, &setting, &stored, &stored, seed);
        prop_assert_eq!(outcome.delivered, images_of(&stored, &ranges));
    }
}

/// A requestor whose disk hangs stops the whole chain, each value with about one full ring: the
/// sink has taken one ring of slices, and each ring from there back to a read holds another.
#[test]
fn a_stuck_disk_stops_a_pipeline_with_one_ring_a_value() {
    const CHUNK_BYTES: u64 = 1000;
    let code = "rs(4,2)".parse().unwrap();
    let placement: Vec<NodeId> = (0..6).map(NodeId).collect();
    let lost = [ChunkIndex(1)];
    let stripe = Stripe {
        id: StripeId(1),
        code: &code,
        geometry: Geometry::new(4, 2, 1, CHUNK_BYTES).unwrap(),
        placement: &placement,
        lost: &lost,
    };
    let helpers: Vec<ChunkIndex> = stripe.available().collect();
    let requestor = NodeId(6);
    let plan = repair(&stripe, lost[0], requestor, &helpers, Scheme::Pipeline, 1).unwrap();
    let chunks = vec![vec![0; CHUNK_BYTES as usize]; 6];
    for seed in 0..20 {
        let outcome = Network::run(&plan, &chunks, &chunks, Slow::Stuck(requestor), seed);
        assert_eq!(outcome.unfinished.len(), 5, "no node has finished");
        let reads = plan.steps.iter().filter(|s| matches!(s, Step::Read { .. }));
        assert_eq!(reads.count(), 4);
        // Sink, incoming value and sum, then the last helper's read; each hop before adds an
        // incoming value and a sum.
        for (&fetched, rings) in outcome.fetched.values().zip([10, 8, 6, 4]) {
            // At each hop, less than half a ring is not requested.
            let most = rings * RING_SLICES;
            let least = most - 4 * (RING_SLICES / 2 - 1);
            assert!((least..=most).contains(&fetched), "{fetched} of {most}");
        }
    }
    assert_eq!(
        Cost::of(&plan, &Topology::uniform(7, 1)).busiest_link_bytes(),
        CHUNK_BYTES
    );
}
