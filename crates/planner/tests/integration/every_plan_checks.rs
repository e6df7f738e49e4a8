//! Every plan of every planner passes the checker, over random codes, layouts, ranges and
//! failures; and costs are what the papers' formulas say where there is one.

use crate::setting::{any_numbers, any_scheme, any_setting, bearable_losses, ranges};
use gabion_codec::{Code, Family};
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, RackId, ReserveSpec, StripeId, Topology,
    UpdateScheme,
};
use gabion_plan::{Cost, Log, Step, check};
use gabion_planner::repair::{
    Scheme, Touched, catch_up, helpers_by_distance, missed, read, repair,
};
use gabion_planner::{PlanError, Stripe, encode, placement, update};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn encoding_checks(setting in any_setting(), slice in 1u64..300) {
        let stripe = setting.stripe(&[]);
        let plan = encode::direct(&stripe, NodeId::CLIENT, slice).unwrap();
        prop_assert_eq!(check(&plan, &setting.code), Ok(()));
        let cost = Cost::of(&plan, &setting.topology);
        let stripe_bytes = setting.geometry.n() as u64 * setting.geometry.chunk_bytes();
        prop_assert_eq!(cost.client_bytes, stripe_bytes);
        prop_assert_eq!((cost.cross_rack_bytes, cost.write_bytes), (0, stripe_bytes));
    }

    #[test]
    fn stripes_are_stored_without_lost_chunks_while_one_more_may_be_lost(
        setting in any_setting(), losses in any_numbers(), slice in 1u64..300,
    ) {
        let mut lost = bearable_losses(&setting, &losses);
        let plan = encode::direct(&setting.stripe(&lost), NodeId::CLIENT, slice).unwrap();
        prop_assert_eq!(check(&plan, &setting.code), Ok(()));
        let stored_count = setting.geometry.n() - lost.len();
        let stored_bytes = stored_count as u64 * setting.geometry.chunk_bytes();
        prop_assert_eq!(Cost::of(&plan, &setting.topology).write_bytes, stored_bytes);
        lost = setting.geometry.chunks().take(setting.code.m()).collect();
        let plan = encode::direct(&setting.stripe(&lost), NodeId::CLIENT, slice);
        let is_refused = matches!(plan, Err(PlanError::TooFewLeft { .. }));
        prop_assert!(is_refused);
    }

    #[test]
    fn updates_check(setting in any_setting(), numbers in any_numbers(), slice in 1u64..300) {
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let plan = update::delta(&setting.stripe(&[]), &setting.topology, &ranges, slice).unwrap();
        prop_assert_eq!(check(&plan, &setting.code), Ok(()));
        let bytes: u64 = ranges.iter().map(|r| r.range.length).sum();
        // Copies get the new bytes as they are.
        let is_replicated = matches!(setting.code.family(), Family::Replication { .. });
        let old_bytes = if is_replicated { 0 } else { bytes };
        prop_assert_eq!(Cost::of(&plan, &setting.topology).read_bytes, old_bytes);
    }

    #[test]
    fn every_scheme_by_delta_checks_and_sends_the_same(
        setting in any_setting(), numbers in any_numbers(), slice in 1u64..300,
    ) {
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let plain = update::delta(&setting.stripe(&[]), &setting.topology, &ranges, slice).unwrap();
        let sent = Cost::of(&plain, &setting.topology).links;
        for name in UpdateScheme::BY_DELTA {
            let keepings = update::keepings(name, Some(ReserveSpec::default()), 4096);
            let plan = plain.clone().kept(keepings);
            prop_assert_eq!(check(&plan, &setting.code), Ok(()));
            prop_assert_eq!(&Cost::of(&plan, &setting.topology).links, &sent);
            let anew = encode::direct(&setting.stripe(&[]), NodeId::CLIENT, slice).unwrap();
            let anew = anew.kept(keepings);
            for chunk in setting.geometry.chunks() {
                let is_data = setting.geometry.is_data(chunk);
                let keeping = if is_data { keepings.data } else { keepings.parity };
                prop_assert_eq!(anew.part(setting.placement[chunk.at()]).keeping, keeping);
            }
        }
    }

    #[test]
    fn degraded_updates_check_and_log_for_nothing_that_is_lost(
        setting in any_setting(), numbers in any_numbers(), losses in any_numbers(),
        slice in 1u64..300,
    ) {
        let lost = bearable_losses(&setting, &losses);
        let stripe = setting.stripe(&lost);
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let plan = update::delta(&stripe, &setting.topology, &ranges, slice).unwrap();
        prop_assert_eq!(check(&plan, &setting.code), Ok(()));
        let left: Vec<NodeId> = stripe.available().map(|chunk| stripe.node_of(chunk)).collect();
        prop_assert!(plan.participants().iter().all(|node| left.contains(node)));
        for step in &plan.steps {
            if let Step::Input { node, chunk, .. } = step {
                prop_assert!(lost.contains(chunk) || *node == stripe.node_of(*chunk));
            }
        }
        let again = update::delta(&stripe, &setting.topology, &ranges, slice);
        prop_assert_eq!(again, Ok(plan), "equal inputs give equal plans");
    }

    #[test]
    fn every_pools_updates_check_with_and_without_losses(
        setting in any_setting(), numbers in any_numbers(), losses in any_numbers(),
        slice in 1u64..300,
    ) {
        let lost = bearable_losses(&setting, &losses);
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        for (_, name) in UpdateScheme::NAMES {
            let keepings = update::keepings(name, Some(ReserveSpec::default()), 4096);
            for lost in [&[][..], &lost] {
                let stripe = setting.stripe(lost);
                let plan = update::scheme(name).plan(&stripe, &setting.topology, &ranges, slice);
                prop_assert_eq!(check(&plan.unwrap().kept(keepings), &setting.code), Ok(()));
            }
        }
    }

    #[test]
    fn stripes_that_another_loss_could_break_take_no_updates(
        setting in any_setting(), numbers in any_numbers(), losses in any_numbers(),
    ) {
        let mut lost = bearable_losses(&setting, &losses);
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let more = setting.geometry.chunks().find(|chunk| !lost.contains(chunk)).unwrap();
        lost.push(more);
        let may_write = bearable_losses(&setting, &as_numbers(&lost)).len() == lost.len();
        let plan = update::delta(&setting.stripe(&lost), &setting.topology, &ranges, 64);
        let left_count = setting.geometry.n() - lost.len();
        match plan {
            Ok(plan) => {
                prop_assert!(may_write && left_count > setting.geometry.k());
                prop_assert_eq!(check(&plan, &setting.code), Ok(()));
            }
            Err(error) => {
                let chunk_count = setting.geometry.n();
                prop_assert_eq!(error, PlanError::TooFewLeft { left_count, chunk_count });
                prop_assert!(!may_write);
            }
        }
    }

    #[test]
    fn whole_chunk_updates_cross_once_for_each_remote_parity(
        setting in any_setting(), chunk in any::<usize>(),
    ) {
        let chunk = ChunkIndex::new(chunk % setting.geometry.k());
        let whole = ByteRange::new(0, setting.geometry.chunk_bytes());
        let ranges = [ChunkRange { chunk, range: whole }];
        let plan = update::delta(&setting.stripe(&[]), &setting.topology, &ranges, 1 << 20).unwrap();
        let mut touched: Vec<usize> = (0..setting.code.sub_chunks())
            .flat_map(|row| setting.code.delta_rows(chunk.at(), row))
            .map(|target| target.chunk)
            .collect();
        touched.sort_unstable();
        touched.dedup();
        let data_node = setting.placement[chunk.at()];
        let remote = touched
            .iter()
            .filter(|&&p| setting.topology.crosses_racks(data_node, setting.placement[p]))
            .count() as u64;
        let cost = Cost::of(&plan, &setting.topology);
        prop_assert!(cost.cross_rack_bytes <= remote * whole.length);
        if setting.code.sub_chunks() == 1 {
            prop_assert_eq!(cost.cross_rack_bytes, remote * whole.length);
        }
    }

    #[test]
    fn repairs_check(
        setting in any_setting(), losses in proptest::collection::vec(any::<usize>(), 1..4),
        slice in 1u64..300, scheme in any_scheme(),
    ) {
        let n = setting.geometry.n();
        let mut lost: Vec<ChunkIndex> = losses.iter().map(|l| ChunkIndex::new(l % n)).collect();
        lost.sort_unstable();
        lost.dedup();
        let stripe = setting.stripe(&lost);
        let requestor = setting.spare();
        let helpers = helpers_by_distance(&stripe, requestor, &setting.topology);
        for &chunk in &lost {
            match repair(&stripe, chunk, requestor, &helpers, scheme, slice) {
                Ok(plan) => {
                    prop_assert_eq!(check(&plan, &setting.code), Ok(()));
                    if scheme == Scheme::Pipeline && setting.code.sub_chunks() == 1 {
                        let cost = Cost::of(&plan, &setting.topology);
                        prop_assert_eq!(cost.busiest_link_bytes(), setting.geometry.chunk_bytes());
                    }
                }
                Err(error) => {
                    prop_assert!(matches!(error, PlanError::NotEnoughHelpers(_)), "{}", error);
                    prop_assert!(lost.len() > setting.code.failures_survived());
                }
            }
        }
    }

    #[test]
    fn degraded_reads_check_and_move_no_more_than_asked(
        setting in any_setting(), loss in any::<usize>(), numbers in any_numbers(),
        slice in 1u64..300, scheme in any_scheme(),
    ) {
        let lost = [ChunkIndex::new(loss % setting.geometry.n())];
        let stripe = setting.stripe(&lost);
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let plan = read(&stripe, &ranges, NodeId::CLIENT, &helpers, scheme, slice).unwrap();
        prop_assert_eq!(check(&plan, &setting.code), Ok(()));
        let asked: u64 = ranges.iter().map(|r| r.range.length).sum();
        let cost = Cost::of(&plan, &setting.topology);
        if setting.code.sub_chunks() == 1 {
            let helpers = setting.code.k() as u64;
            prop_assert!(cost.read_bytes <= asked * helpers);
            if scheme == Scheme::Pipeline {
                prop_assert_eq!(cost.client_bytes, asked);
            }
        }
    }

    #[test]
    fn logs_of_other_chunks_tell_all_that_one_has_missed(
        setting in any_setting(), loss in any::<usize>(), witness in any::<usize>(),
        numbers in any_numbers(), slice in 1u64..300, scheme in any_scheme(),
    ) {
        let n = setting.geometry.n();
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let plan = update::delta(&setting.stripe(&[]), &setting.topology, &ranges, slice).unwrap();
        let mut logs: BTreeMap<ChunkIndex, Touched> =
            setting.geometry.chunks().map(|chunk| (chunk, Touched::new())).collect();
        for step in &plan.steps {
            if let Step::Append { log, chunk, slices, .. } = step {
                let data = if let Log::Parity { data } = log { *data } else { *chunk };
                logs.get_mut(chunk).unwrap().push((data, slices.span()));
            }
        }
        let lost = ChunkIndex::new(loss % n);
        let had = logs.remove(&lost).unwrap();
        // One log fewer may leave too little to tell, but nothing wrong.
        logs.remove(&ChunkIndex::new(witness % n));
        let lost = [lost];
        let stripe = setting.stripe(&lost);
        let Some(touched) = missed(&stripe, lost[0], &logs) else {
            return Ok(());
        };
        for (_, range) in had {
            let covers = |r: &ByteRange| r.intersect(range) == Some(range);
            prop_assert!(touched.iter().any(covers), "{:?} of {:?}", range, touched);
        }
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let node = stripe.node_of(lost[0]);
        let plan = catch_up(&stripe, lost[0], node, &touched, &helpers, scheme, slice).unwrap();
        prop_assert_eq!(check(&plan, &setting.code), Ok(()));
    }

    #[test]
    fn placements_keep_the_rack_limit(
        racks in 1u32..8, per in 1u32..6, chunks in 1usize..20, limit in 1usize..6, s in any::<u64>(),
    ) {
        let topology = Topology::uniform(racks, per);
        let fits = racks as usize * limit.min(per as usize) >= chunks;
        let mut rng = ChaCha8Rng::seed_from_u64(s);
        let random = placement::random(&topology, chunks, limit, &mut rng);
        let rotated = placement::rotate(&topology, s, chunks, limit);
        for placed in [random, rotated] {
            prop_assert_eq!(placed.is_ok(), fits);
            let Ok(mut placed) = placed else { continue };
            for rack in 0..racks {
                let here = placed.iter().filter(|&&n| topology.rack_of(n) == Some(RackId(rack)));
                prop_assert!(here.count() <= limit);
            }
            placed.sort_unstable();
            placed.dedup();
            prop_assert_eq!(placed.len(), chunks);
        }
    }
}

/// Chunks as the random numbers that stand for them.
fn as_numbers(chunks: &[ChunkIndex]) -> Vec<(u64, u64, u64)> {
    chunks
        .iter()
        .map(|chunk| (chunk.at() as u64, 0, 0))
        .collect()
}

/// The delta of a lost chunk starts where most of its parity chunks are, and each rack that helps
/// sends one partial sum.
#[test]
fn a_substitute_spares_the_links_between_racks() {
    let code: Code = "rs(6,3)".parse().unwrap();
    let topology = Topology::uniform(3, 4);
    let placement = placement::rotate(&topology, 0, code.n(), 3).unwrap();
    let lost = [ChunkIndex(1)];
    let stripe = Stripe {
        id: StripeId(0),
        code: &code,
        geometry: Geometry::new(6, 3, 1, 1 << 20).unwrap(),
        placement: &placement,
        lost: &lost,
    };
    let range = ByteRange::new(0, 4096);
    let chunk = lost[0];
    let plan = update::delta(&stripe, &topology, &[ChunkRange { chunk, range }], 4096).unwrap();
    check(&plan, &code).unwrap();
    // The parity chunks share a rack: three helpers there, three in the nearest other rack.
    assert_eq!(Cost::of(&plan, &topology).cross_rack_bytes, 4096);
}

#[test]
fn equal_seeds_give_equal_placements() {
    let topology = Topology::uniform(5, 5);
    let place =
        |seed| placement::random(&topology, 9, 2, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
    assert_eq!(place(7), place(7));
    assert_ne!(place(7), place(8));
}

/// The disks' cost of one update of 4 KiB of an `rs(6,3)` stripe until parity has moved, before and after the answer
/// (`CodFS` section 2.1.2 and 4.1). Each node of the four logs 4 KiB, and the data node reads the bytes that it
/// replaces.
#[test]
fn update_schemes_cost_what_the_paper_says() {
    let code: Code = "rs(6,3)".parse().unwrap();
    let topology = Topology::uniform(3, 4);
    let placement = placement::rotate(&topology, 0, code.n(), 3).unwrap();
    let stripe = Stripe {
        id: StripeId(1),
        code: &code,
        geometry: Geometry::new(6, 3, 1, 1 << 20).unwrap(),
        placement: &placement,
        lost: &[],
    };
    let range = ByteRange::new(8192, 4096);
    let chunk = ChunkIndex(2);
    let sent = update::delta(&stripe, &topology, &[ChunkRange { chunk, range }], 4096).unwrap();
    let cost = |name, reserve| {
        let plan = sent.clone().kept(update::keepings(name, reserve, 1 << 20));
        let (now, later) = (Cost::of(&plan, &topology), Cost::of_merge(&plan));
        let disk = |cost: Cost| (cost.read_count, cost.write_count, cost.seek_count);
        (disk(now), disk(later))
    };
    // Four records; then new bytes over the data, and parity read and written at one place.
    assert_eq!(
        cost(UpdateScheme::Fo, None),
        ((1 + 3, 4 + 4, 5 + 4), (0, 0, 0))
    );
    // Each merge first fetches its record.
    assert_eq!(cost(UpdateScheme::Fl, None), ((1, 4, 5), (4 + 3, 4, 8)));
    assert_eq!(cost(UpdateScheme::Pl, None), ((1, 4, 5), (4 + 3, 4, 8)));
    // Deltas lie where their parity chunk is: three seeks fewer.
    let reserve = ReserveSpec::default();
    assert_eq!(
        cost(UpdateScheme::Plr, Some(reserve)),
        ((1, 4, 5), (4 + 3, 4, 5))
    );
    // With nothing reserved, parity is as in FO and data as ever.
    let none = ReserveSpec {
        initial_chunks: 0,
        ..reserve
    };
    assert_eq!(
        cost(UpdateScheme::Plr, Some(none)),
        ((1 + 3, 4 + 3, 5 + 3), (1, 1, 2))
    );
}
