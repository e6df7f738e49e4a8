//! The matching against a search through all choices of nodes.

use super::*;
use gabion_layout::{NodePlace, RackId, Topology};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn table(rack_sizes: &[u32]) -> RackTable {
    let racks = rack_sizes.iter().enumerate().flat_map(|(rack, &size)| {
        let rack = RackId(rack as u32);
        (0..size).map(move |at| NodePlace {
            node: gabion_layout::NodeId(rack.0 * 100 + at),
            rack,
        })
    });
    RackTable::new(&Topology::new(racks).expect("distinct ids"))
}

/// Whether one node of each block can be chosen, all distinct, within the room of each rack.
fn fits(
    racks: &RackTable,
    room: &mut [usize],
    used: &mut Vec<NodeNumber>,
    blocks: &[Vec<u32>],
) -> bool {
    let Some((block, rest)) = blocks.split_first() else {
        return true;
    };
    block.iter().any(|&node| {
        let rack = racks.rack_of(node);
        if room[rack] == 0 || used.contains(&node) {
            return false;
        }
        room[rack] -= 1;
        used.push(node);
        let fits = fits(racks, room, used, rest);
        used.pop();
        room[rack] += 1;
        fits
    })
}

fn check_kept(matching: &Matching<'_>, racks: &RackTable, limits: &[usize]) {
    let mut used = Vec::new();
    let mut counts = vec![0; racks.rack_count()];
    for (block, entry) in matching.blocks.iter().enumerate() {
        let node = entry.kept.expect("each block is kept");
        assert!(matching.candidates[matching.candidates_of(block)].contains(&node));
        assert!(!used.contains(&node), "two blocks on one node");
        used.push(node);
        counts[racks.rack_of(node)] += 1;
    }
    for rack in 0..racks.rack_count() {
        assert_eq!(
            counts[rack] + matching.room[rack],
            limits[rack],
            "rack {rack}"
        );
    }
}

fn any_blocks() -> impl Strategy<Value = (Vec<u32>, usize, Vec<Vec<u32>>)> {
    (proptest::collection::vec(1u32..4, 1..5), 1usize..4).prop_flat_map(|(sizes, per_rack)| {
        let count: u32 = sizes.iter().sum();
        let block = proptest::collection::btree_set(0..count, 1..=3.min(count as usize));
        let block = block
            .prop_map(|nodes| nodes.into_iter().collect::<Vec<_>>())
            .prop_shuffle();
        (
            Just(sizes),
            Just(per_rack),
            proptest::collection::vec(block, 1..9),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn accepts_what_an_exhaustive_search_accepts((sizes, per_rack, blocks) in any_blocks()) {
        let racks = table(&sizes);
        let mut matching = Matching::new(&racks, per_rack);
        let limits = matching.room.clone();
        let mut accepted: Vec<Vec<u32>> = Vec::new();
        for block in blocks {
            accepted.push(block.clone());
            let expected = fits(&racks, &mut limits.clone(), &mut Vec::new(), &accepted);
            prop_assert_eq!(matching.add(&block), expected, "{:?}", accepted);
            if !expected {
                accepted.pop();
            }
            check_kept(&matching, &racks, &limits);
        }
    }

    #[test]
    fn vacates_as_much_as_can_be((sizes, per_rack, blocks) in any_blocks(), wanted in 1usize..4) {
        let racks = table(&sizes);
        let mut matching = Matching::new(&racks, per_rack);
        let limits = matching.room.clone();
        let accepted: Vec<_> = blocks.into_iter().filter(|block| matching.add(block)).collect();
        let before = matching.room[0];
        matching.vacate(0, wanted);
        check_kept(&matching, &racks, &limits);
        let left = matching.room[0];
        prop_assert!(left >= before);
        if left < wanted.min(limits[0]) {
            let mut limits = limits;
            limits[0] -= left + 1;
            prop_assert!(!fits(&racks, &mut limits, &mut Vec::new(), &accepted));
        }
    }

    #[test]
    fn says_exactly_where_a_block_could_go((sizes, per_rack, blocks) in any_blocks(), seed in any::<u64>()) {
        let racks = table(&sizes);
        let mut matching = Matching::new(&racks, per_rack);
        for block in &blocks {
            matching.add(block);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        match matching.any_open(0, 2, &mut rng) {
            Some(node) => prop_assert!(matching.add(&[node])),
            None => for node in 0..racks.node_count() as u32 {
                prop_assert!(!matching.clone().add(&[node]));
            },
        }
    }
}

#[test]
fn vacates_a_block_that_another_ones_way_out_brought_in() {
    let racks = table(&[2, 3, 2]);
    let mut matching = Matching::new(&racks, 2);
    for block in [&[5, 0][..], &[1, 5, 2], &[0, 3]] {
        assert!(matching.add(block));
    }
    matching.vacate(0, 2);
    assert_eq!(matching.room_in(0), 2);
}
