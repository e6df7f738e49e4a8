//! Rack by rack: parity chunks share as few racks as may be, and data chunks share the others, as `RackCU` lays stripes
//! out (section III-B: racks hold data or parity). Traffic between the nodes of one rack does not cross racks, so a
//! parity rack gets each delta once, regardless of its chunks.

use crate::PlanError;
use gabion_layout::{NodeId, RackId, Topology};
use rand::Rng;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;

/// Places `k` data and `m` parity chunks on random distinct nodes of random racks with at most
/// `per_rack` a rack, filling one rack after the other: parity first, from the racks with most room
/// for it. Data gets racks without parity while there are any.
///
/// # Errors
/// [`PlanError::NoRoom`] when the topology is too small.
///
/// ```
/// use gabion_layout::Topology;
/// use gabion_planner::placement::rack_by_rack;
/// use rand::SeedableRng;
/// use std::collections::BTreeSet;
///
/// let topology = Topology::uniform(8, 2);
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
/// let placement = rack_by_rack(&topology, 12, 4, 2, &mut rng).unwrap();
/// let parity_racks: BTreeSet<_> = placement[12..].iter().map(|&n| topology.rack_of(n)).collect();
/// assert_eq!(parity_racks.len(), 2, "two parity chunks in each");
/// ```
pub fn rack_by_rack(
    topology: &Topology,
    k: usize,
    m: usize,
    per_rack: usize,
    rng: &mut impl Rng,
) -> Result<Vec<NodeId>, PlanError> {
    let mut by_rack: BTreeMap<RackId, Vec<NodeId>> = BTreeMap::new();
    for place in topology.nodes() {
        by_rack.entry(place.rack).or_default().push(place.node);
    }
    let mut racks: Vec<Vec<NodeId>> = by_rack.into_values().collect();
    racks.shuffle(rng);
    for nodes in &mut racks {
        nodes.shuffle(rng);
        nodes.truncate(per_rack);
    }
    // Racks with room for more parity than there is are no better than others.
    racks.sort_by_key(|nodes| std::cmp::Reverse(nodes.len().min(m)));
    let mut room = 0;
    let holds_parity = |nodes: &Vec<NodeId>| {
        let is_short = room < m;
        room += nodes.len();
        is_short
    };
    let (parity_racks, others): (Vec<_>, Vec<_>) = racks.into_iter().partition(holds_parity);
    let mut parity = parity_racks.concat();
    let left_over = parity.split_off(m.min(parity.len()));
    let data = others.into_iter().flatten().chain(left_over);
    let placement: Vec<NodeId> = data.take(k).chain(parity).collect();
    if placement.len() < k + m {
        return Err(PlanError::NoRoom {
            chunks: k + m,
            per_rack,
            room: placement.len(),
        });
    }
    Ok(placement)
}
