//! The rule by which `RackCU`'s collector is chosen is never beaten: for all small stripes, whatever
//! their racks hold of updated data and of parity, every choice of collectors is tried (section III-C,
//! beyond its assumption that data and parity racks are apart).

use gabion_codec::Code;
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, NodePlace, RackId, StripeId, Topology,
};
use gabion_plan::Cost;
use gabion_planner::bound::{Proof, least};
use gabion_planner::{Stripe, update};

/// Updated data chunks and parity chunks of each rack.
type Racks = Vec<(usize, usize)>;

/// All lists of `count` racks with `u` updated and `t` parity chunks each, `u + t` at most `most`;
/// lists that only differ in the racks' order are given once.
fn all_racks(count: usize, most: usize) -> Vec<Racks> {
    let kinds: Vec<(usize, usize)> = (0..=most)
        .flat_map(|u| (0..=most - u).map(move |t| (u, t)))
        .filter(|kind| *kind != (0, 0))
        .collect();
    let mut lists: Vec<Racks> = vec![vec![]];
    for _ in 0..count {
        lists = lists
            .into_iter()
            .flat_map(|list| {
                let larger = kinds
                    .iter()
                    .filter(|kind| list.last().is_none_or(|last| *kind >= last));
                let longer = larger.map(|kind| [list.as_slice(), &[*kind]].concat());
                longer.collect::<Vec<_>>()
            })
            .collect();
    }
    lists
}

/// Returns the chunks that the planner's plan sends across racks, and those that the search finds.
fn compare(racks: &Racks) -> Option<(u64, u64)> {
    let k: usize = racks.iter().map(|(u, _)| u).sum();
    let m: usize = racks.iter().map(|(_, t)| t).sum();
    if k == 0 || m == 0 {
        return None;
    }
    let code = Code::reed_solomon(k, m).expect("a small code");
    let geometry = Geometry::new(k, m, 1, 1).expect("its shape");
    let in_racks = |count: fn(&(usize, usize)) -> usize| {
        let racks = racks.iter().enumerate();
        racks.flat_map(move |(rack, kind)| std::iter::repeat_n(RackId(rack as u32), count(kind)))
    };
    let places = in_racks(|kind| kind.0).chain(in_racks(|kind| kind.1));
    let places = places.enumerate().map(|(node, rack)| NodePlace {
        node: NodeId(node as u32),
        rack,
    });
    let topology = Topology::new(places).expect("nodes are distinct");
    let placement: Vec<NodeId> = (0..(k + m) as u32).map(NodeId).collect();
    let stripe = Stripe {
        id: StripeId(0),
        code: &code,
        geometry,
        placement: &placement,
        lost: &[],
    };
    let updated: Vec<ChunkIndex> = geometry.data_chunks().collect();
    let range = ByteRange::new(0, 1);
    let ranges: Vec<ChunkRange> = updated
        .iter()
        .map(|&chunk| ChunkRange { chunk, range })
        .collect();
    let plan = update::rackcu(&stripe, &topology, &ranges, 1).expect("a plan");
    let bound = least(&stripe, &topology, &updated);
    assert_ne!(
        bound.proof,
        Proof::Cuts,
        "{racks:?} is small enough to be searched"
    );
    Some((Cost::of(&plan, &topology).cross_rack_bytes, bound.rows))
}

#[track_caller]
fn check(count: usize, most: usize, expected_count: usize) {
    let mut compared = 0;
    for racks in all_racks(count, most) {
        if let Some((planned, least)) = compare(&racks) {
            assert_eq!(
                planned, least,
                "updated and parity chunks by rack: {racks:?}"
            );
            compared += 1;
        }
    }
    assert_eq!(compared, expected_count);
}

#[test]
fn on_two_and_three_racks_of_up_to_four_chunks() {
    check(2, 4, 85);
    check(3, 4, 520);
}

#[test]
fn on_four_racks_of_up_to_three_chunks() {
    check(4, 3, 465);
}

#[test]
fn on_five_racks_of_up_to_two_chunks() {
    check(5, 2, 114);
}
