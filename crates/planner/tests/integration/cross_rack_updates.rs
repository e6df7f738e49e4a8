//! Updates that spare the links between racks: every plan checks, costs what the papers' formulas
//! say, and is never below the bound.

use crate::setting::{Setting, any_numbers, any_selection, any_setting, ranges};
use gabion_codec::{Code, Family};
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, GroupingRule, NodeId, RackId, Topology, UpdateScheme,
};
use gabion_plan::{Cost, Goal, Log, Plan, check};
use gabion_planner::bound::{self, Proof};
use gabion_planner::update::cau::Selection;
use gabion_planner::update::{self, cau, parix};
use gabion_planner::{PlanError, Stripe};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Chunks, updated and parity, by rack.
fn by_rack(setting: &Setting, updated: &[ChunkIndex]) -> BTreeMap<Option<RackId>, (u64, u64)> {
    let mut racks: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for chunk in setting.geometry.chunks() {
        let node = setting.placement[chunk.at()];
        let rack = racks.entry(setting.topology.rack_of(node)).or_default();
        rack.0 += u64::from(updated.contains(&chunk));
        rack.1 += u64::from(!setting.geometry.is_data(chunk));
    }
    racks
}

/// The sum of a formula over ordered pairs of different racks, of updated chunks in the first and
/// parity chunks in the second.
fn over_pairs(
    racks: &BTreeMap<Option<RackId>, (u64, u64)>,
    formula: impl Fn(u64, u64) -> u64,
) -> u64 {
    let pairs = racks.iter().flat_map(|a| {
        racks
            .iter()
            .filter(move |b| b.0 != a.0)
            .map(move |b| (a, b))
    });
    pairs.map(|(a, b)| formula(a.1.0, b.1.1)).sum()
}

fn whole(setting: &Setting, chunks: &[ChunkIndex]) -> Vec<ChunkRange> {
    let range = ByteRange::new(0, setting.geometry.chunk_bytes());
    let part = |&chunk| ChunkRange { chunk, range };
    chunks.iter().map(part).collect()
}

/// The data chunks that `picks` names, at least one.
fn picked(setting: &Setting, picks: &[bool]) -> Vec<ChunkIndex> {
    let chunks = setting.geometry.data_chunks();
    let picked: Vec<ChunkIndex> = chunks.filter(|chunk| picks[chunk.at()]).collect();
    if picked.is_empty() {
        vec![ChunkIndex(0)]
    } else {
        picked
    }
}

fn picks() -> impl Strategy<Value = Vec<bool>> {
    proptest::collection::vec(any::<bool>(), 14)
}

/// Every parity chunk depends on every data chunk, and any few of each are independent.
fn is_plain_mds(code: &Code) -> bool {
    matches!(
        code.family(),
        Family::ReedSolomon { .. } | Family::Cauchy { .. }
    )
}

fn crossing(setting: &Setting, plan: &Plan) -> u64 {
    Cost::of(plan, &setting.topology).cross_rack_bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn plans_of_any_ranges_check(
        setting in any_setting(), numbers in any_numbers(), known in any_numbers(),
        slice in 1u64..300, selection in any_selection(), replicas in any::<usize>(),
    ) {
        let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
        let k = setting.geometry.k();
        let (known, ranges) = (ranges(setting.geometry, k, &known), ranges(setting.geometry, k, &numbers));
        let replicas = replicas % (setting.geometry.m() + 1);
        for plan in [
            update::rackcu(&stripe, topology, &ranges, slice),
            cau::selective(&stripe, topology, &ranges, selection, slice),
            cau::append(&stripe, topology, &ranges, replicas, slice),
            cau::commit(&stripe, topology, &ranges, selection, slice),
            parix::append(&stripe, &ranges, &known, slice),
            parix::commit(&stripe, &ranges, slice),
        ] {
            prop_assert_eq!(check(&plan.unwrap(), &setting.code), Ok(()));
        }
    }

    #[test]
    fn commits_cost_what_section_3_2_says(setting in any_setting(), picks in picks()) {
        prop_assume!(is_plain_mds(&setting.code));
        let updated = picked(&setting, &picks);
        let (ranges, racks) = (whole(&setting, &updated), by_rack(&setting, &updated));
        for (selection, expected) in [
            (Selection::Selective, over_pairs(&racks, u64::min)),
            (Selection::DataDelta, over_pairs(&racks, |u, t| u * u64::from(t > 0))),
            (Selection::ParityDelta, over_pairs(&racks, |u, t| t * u64::from(u > 0))),
        ] {
            let expected = expected * setting.geometry.chunk_bytes();
            let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
            let commit = cau::commit(&stripe, topology, &ranges, selection, 64).unwrap();
            prop_assert_eq!(crossing(&setting, &commit), expected);
            let at_once = cau::selective(&stripe, topology, &ranges, selection, 64).unwrap();
            prop_assert_eq!(crossing(&setting, &at_once), expected);
        }
    }

    #[test]
    fn no_plan_is_below_the_bound_and_rackcu_reaches_that_of_its_form(
        setting in any_setting(), picks in picks(),
    ) {
        let updated = picked(&setting, &picks);
        let ranges = whole(&setting, &updated);
        let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
        let bound = bound::least(&stripe, topology, &updated);
        let row_bytes = setting.geometry.sub_chunk_bytes();
        prop_assert!(bound.cut_rows <= bound.rows);
        let rackcu = crossing(&setting, &update::rackcu(&stripe, topology, &ranges, 64).unwrap());
        let selective =
            cau::selective(&stripe, topology, &ranges, Selection::Selective, 64).unwrap();
        let delta = update::delta(&stripe, topology, &ranges, 64).unwrap();
        prop_assert!(rackcu <= crossing(&setting, &selective));
        prop_assert!(crossing(&setting, &selective) <= crossing(&setting, &delta));
        prop_assert!(bound.rows * row_bytes <= rackcu);
        if is_plain_mds(&setting.code) && bound.proof != Proof::Cuts {
            prop_assert_eq!(bound.rows * row_bytes, rackcu);
        }
    }

    #[test]
    fn replicas_are_where_a_rack_failure_leaves_them(
        setting in any_setting(), numbers in any_numbers(), replicas in 0usize..6,
    ) {
        let stripe = setting.stripe(&[]);
        let (g, topology) = (setting.geometry, &setting.topology);
        let ranges = ranges(g, g.k(), &numbers);
        let plan = cau::append(&stripe, topology, &ranges, replicas, 64);
        if replicas > g.m() {
            let error = PlanError::TooManyReplicas { asked: replicas, parity_nodes: g.m() };
            prop_assert_eq!(plan, Err(error));
            return Ok(());
        }
        let Goal::Append { copies, .. } = plan.unwrap().goal else {
            return Err(TestCaseError::fail("no append"));
        };
        for part in ranges {
            let home = topology.rack_of(stripe.node_of(part.chunk));
            let mine = copies.iter().filter(|copy| copy.part == part);
            let nodes: Vec<NodeId> = mine.map(|copy| copy.node).collect();
            prop_assert_eq!(nodes.len(), replicas);
            let parity = || g.parity_chunks().map(|chunk| stripe.node_of(chunk));
            let is_away = |node: &NodeId| topology.rack_of(*node) != home;
            let away = nodes.iter().filter(|node| is_away(node)).count();
            prop_assert_eq!(away, replicas.min(parity().filter(is_away).count()));
            let racks = |nodes: &mut dyn Iterator<Item = NodeId>| {
                let mut racks: Vec<_> = nodes.map(|node| topology.rack_of(node)).collect();
                racks.sort_unstable();
                racks.dedup();
                racks.len()
            };
            let reached = racks(&mut nodes.iter().copied().filter(is_away));
            prop_assert_eq!(reached, away.min(racks(&mut parity().filter(is_away))));
        }
    }

    #[test]
    fn parix_sends_old_bytes_once_and_commits_without_sending(
        setting in any_setting(), picks in picks(), first in any::<u64>(),
    ) {
        let updated = picked(&setting, &picks);
        let ranges = whole(&setting, &updated);
        let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
        let known = &ranges[..first as usize % (ranges.len() + 1)];
        let plan = parix::append(&stripe, &ranges, known, 64).unwrap();
        let each: u64 = ranges
            .iter()
            .map(|part| {
                let delta = update::delta(&stripe, topology, &[*part], 64).unwrap();
                let times = if known.contains(part) { 1 } else { 2 };
                times * crossing(&setting, &delta)
            })
            .sum();
        prop_assert_eq!(crossing(&setting, &plan), each);
        let commit = parix::commit(&stripe, &ranges, 64).unwrap();
        let cost = Cost::of(&commit, &setting.topology);
        prop_assert_eq!((cost.links.len(), cost.client_bytes), (0, 0));
    }

    /// As much as a commit of the same chunks, and never more than updates by delta.
    #[test]
    fn cau_selective_sends_what_a_commit_sends(setting in any_setting(), picks in picks()) {
        let ranges = whole(&setting, &picked(&setting, &picks));
        let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
        let at_once = update::scheme(UpdateScheme::CauSelective);
        let plan = at_once.plan(&stripe, topology, &ranges, 64).unwrap();
        prop_assert_eq!(check(&plan, &setting.code), Ok(()));
        let commit = cau::commit(&stripe, topology, &ranges, Selection::Selective, 64).unwrap();
        prop_assert_eq!(crossing(&setting, &plan), crossing(&setting, &commit));
        let by_delta = update::delta(&stripe, topology, &ranges, 64).unwrap();
        prop_assert!(crossing(&setting, &plan) <= crossing(&setting, &by_delta));
    }

    #[test]
    fn grouping_gains_what_it_says_and_keeps_racks_as_full_as_they_were(
        setting in any_setting(), picks in picks(),
    ) {
        let updated = picked(&setting, &picks);
        let ranges = whole(&setting, &updated);
        let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
        for (rule, least) in [(GroupingRule::Algorithm1, 1), (GroupingRule::Authors, 0)] {
            let Some(grouping) = cau::group(&stripe, topology, &updated, rule) else {
                continue;
            };
            let is_lone = rule == GroupingRule::Authors && updated.len() == 1;
            prop_assert!(is_lone || grouping.gain >= least);
            let moved = cau::relocate(&stripe, &grouping, 64).unwrap();
            prop_assert_eq!(check(&moved, &setting.code), Ok(()));
            let commit = |placement| {
                let stripe = Stripe { placement, ..stripe };
                let selection = Selection::Selective;
                let plan = cau::commit(&stripe, topology, &ranges, selection, 64).unwrap();
                crossing(&setting, &plan).cast_signed()
            };
            let spared = commit(&setting.placement) - commit(&grouping.placement);
            let gain = spared - crossing(&setting, &moved).cast_signed();
            prop_assert_eq!(gain, grouping.gain * setting.geometry.sub_chunk_bytes().cast_signed());
            let after = Setting { placement: grouping.placement, ..setting.clone() };
            let data: Vec<ChunkIndex> = setting.geometry.data_chunks().collect();
            prop_assert_eq!(by_rack(&after, &data), by_rack(&setting, &data));
        }
    }
}

fn setting(code: &str, racks: u32, per_rack: u32, placement: &[u32]) -> Setting {
    let code: Code = code.parse().expect("a code");
    let geometry = gabion_layout::Geometry::new(code.k(), code.m(), 1, 100).expect("a shape");
    Setting {
        code,
        geometry,
        topology: Topology::uniform(racks, per_rack),
        placement: placement.iter().copied().map(NodeId).collect(),
    }
}

/// CAU's figure 4: three and one updated chunks in two racks of four data chunks, three parity chunks
/// in racks of their own. Moving the one costs 2 and saves 3.
#[test]
fn figure_4_is_grouped_with_a_gain_of_1() {
    let placement: Vec<u32> = (0..8).chain([8, 12, 16]).collect();
    let setting = setting("rs(8,3)", 5, 4, &placement);
    let updated = [0, 1, 2, 4].map(ChunkIndex);
    let found = cau::group(
        &setting.stripe(&[]),
        &setting.topology,
        &updated,
        GroupingRule::Algorithm1,
    );
    let grouping = found.unwrap();
    assert_eq!(grouping.gain, 1);
    let (updated, other) = (ChunkIndex(4), ChunkIndex(3));
    assert_eq!(grouping.swaps, [cau::Swap { updated, other }]);
}

/// RS(6,3) on three racks of three, however its parity is spread over them.
#[test]
fn algorithm_1_never_moves_a_chunk_of_rs_6_3_on_three_racks() {
    for start in 0..9 {
        let placement: Vec<u32> = (0..9).map(|j| (start + j) % 9).collect();
        let setting = setting("rs(6,3)", 3, 3, &placement);
        for picks in 1u32..64 {
            let updated: Vec<ChunkIndex> = (0..6)
                .filter(|j| picks >> j & 1 == 1)
                .map(ChunkIndex)
                .collect();
            let rule = GroupingRule::Algorithm1;
            assert_eq!(
                cau::group(&setting.stripe(&[]), &setting.topology, &updated, rule),
                None
            );
        }
    }
}

fn by_authors(setting: &Setting, updated: &[u8]) -> Option<cau::Grouping> {
    let updated: Vec<ChunkIndex> = updated.iter().copied().map(ChunkIndex).collect();
    let (stripe, rule) = (setting.stripe(&[]), GroupingRule::Authors);
    cau::group(&stripe, &setting.topology, &updated, rule)
}

/// Under the authors' rule a lone updated chunk goes where most parity is, though its next commit
/// spares less than the exchange costs.
#[test]
fn a_lone_chunk_goes_to_the_rack_with_most_parity_whatever_it_costs() {
    // Rack 0: chunks 0, 1, 2; rack 1: 3 and 4 with parity 8; rack 2: 5 with parity 6 and 7.
    let setting = setting("rs(6,3)", 3, 3, &[0, 1, 2, 3, 4, 6, 7, 8, 5]);
    let grouping = by_authors(&setting, &[1]).expect("an exchange");
    let (updated, other) = (ChunkIndex(1), ChunkIndex(5));
    assert_eq!(grouping.swaps, [cau::Swap { updated, other }]);
    // A commit sends one delta to each rack with parity: 2 before and 1 after. An exchange is 2.
    assert_eq!(grouping.gain, -1);
    assert_eq!(by_authors(&setting, &[3]), None, "its rack has parity");
    let whole_racks = Setting {
        topology: Topology::uniform(9, 1),
        ..setting
    };
    let found = by_authors(&whole_racks, &[1]);
    assert_eq!(
        found, None,
        "a rack of parity alone has no data chunk to give"
    );
}

/// The authors' program takes the chunks of the rack with fewest, and looks at no other rack.
#[test]
fn the_authors_rule_takes_from_the_rack_with_fewest_updated_chunks() {
    // Rack 0: chunks 0 to 3; rack 1: 4 to 7; rack 2: 8 to 11; parity chunks in racks of their own.
    let placement: Vec<u32> = (0..12).chain([12, 16, 20, 24]).collect();
    let setting = setting("rs(12,4)", 7, 4, &placement);
    let swap = |updated, other| cau::Swap {
        updated: ChunkIndex(updated),
        other: ChunkIndex(other),
    };
    // Racks 1 and 2 have one each: the first of them.
    let grouping = by_authors(&setting, &[0, 1, 5, 9]).expect("an exchange");
    assert_eq!(grouping.swaps, [swap(5, 2)]);
    // Rack 2 has one and rack 1 two, which would fit as well.
    let grouping = by_authors(&setting, &[0, 1, 4, 5, 9]).expect("an exchange");
    assert_eq!(grouping.swaps, [swap(9, 2)]);
    // Rack 0 has no room: none, though rack 1 has room for what rack 2 has.
    assert_eq!(by_authors(&setting, &[0, 1, 2, 3, 4, 5, 9]), None);
}

#[test]
fn an_lrc_whose_local_parity_is_in_its_groups_rack_pays_for_global_parity_alone() {
    // Groups of 2 with their local parity in racks 0 and 1; two global parity chunks in rack 2.
    let mut setting = setting("lrc(4,2,2)", 3, 3, &[0, 1, 3, 4, 2, 5, 6, 7]);
    setting.geometry = gabion_layout::Geometry::new(4, 4, 1, 100).unwrap();
    let all: Vec<ChunkIndex> = (0..4).map(ChunkIndex).collect();
    let ranges = whole(&setting, &all);
    let plan = update::rackcu(&setting.stripe(&[]), &setting.topology, &ranges, 64).unwrap();
    check(&plan, &setting.code).unwrap();
    // Rack 0 gives its two deltas to rack 1, which sends two sums for both.
    assert_eq!(crossing(&setting, &plan), 400);
    let bound = bound::least(&setting.stripe(&[]), &setting.topology, &all);
    assert_eq!(bound.rows, 4);
}

#[test]
fn stripes_with_lost_chunks_are_left_to_the_update_by_delta() {
    let setting = setting("rs(2,2)", 4, 1, &[0, 1, 2, 3]);
    let lost = [ChunkIndex(3)];
    let (stripe, topology) = (setting.stripe(&lost), &setting.topology);
    let ranges = whole(&setting, &[ChunkIndex(0)]);
    for plan in [
        update::rackcu(&stripe, topology, &ranges, 64),
        cau::append(&stripe, topology, &ranges, 1, 64),
        parix::append(&stripe, &ranges, &[], 64),
    ] {
        assert_eq!(plan, Err(PlanError::NeedsChunk(lost[0])));
    }
    assert_eq!(
        parix::append(&setting.stripe(&[]), &[], &[], 64),
        Err(PlanError::BadRanges)
    );
}

#[test]
fn interim_replicas_are_replicas_of_new_bytes() {
    let setting = setting("rs(2,2)", 4, 1, &[0, 1, 2, 3]);
    let ranges = whole(&setting, &[ChunkIndex(0)]);
    let plan = cau::append(&setting.stripe(&[]), &setting.topology, &ranges, 2, 64).unwrap();
    let Goal::Append { copies, .. } = &plan.goal else {
        panic!("an append");
    };
    assert!(copies.iter().all(|copy| copy.log == Log::Replica));
    assert_eq!(cau::append_phase_survives(&setting.code, 2), 2);
    assert_eq!(cau::append_phase_survives(&setting.code, 0), 0);
}
