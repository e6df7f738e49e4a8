//! The places of a stripe's chunks when replicated blocks become a stripe, and of the replicas when it becomes
//! replicated blocks again. Both start from where chunks lie now, since repairs may have moved them after EAR placed
//! them: repairs keep the rack limit and know nothing of core racks.

use super::matching::Matching;
use super::rack_table::{NodeNumber, RackNumber, RackTable};
use super::replicated::{ReplicatedStripe, fill_with_parity};
use super::rr::{check_count, draw_others, draw_rest};
use super::rules::ReplicaSpread;
use crate::PlanError;
use gabion_layout::NodeId;
use rand::Rng;

/// Returns the places of the chunks of a stripe of replicated blocks. `replicas` are the nodes of each block's
/// replicas; those that the table does not have are not kept. As few blocks as possible move, and none after EAR has
/// placed them; parity goes into the core rack first, if the blocks have one still.
///
/// # Errors
/// [`PlanError::NoRoom`] when the topology cannot hold the stripe with `per_rack` chunks in a rack.
pub fn encoding(
    racks: &RackTable,
    replicas: Vec<Vec<NodeId>>,
    parity_count: usize,
    per_rack: usize,
    rng: &mut impl Rng,
) -> Result<ReplicatedStripe, PlanError> {
    let mut matching = Matching::new(racks, per_rack);
    let known = |nodes: &Vec<NodeId>| -> Vec<NodeNumber> {
        nodes
            .iter()
            .filter_map(|&node| racks.node_number(node))
            .collect()
    };
    let numbers: Vec<Vec<NodeNumber>> = replicas.iter().map(known).collect();
    matching.add_all(&numbers, parity_count, rng)?;
    let is_core = |&rack: &RackNumber| {
        let mut blocks = numbers.iter();
        blocks.all(|nodes| nodes.iter().any(|&node| racks.rack_of(node) == rack))
    };
    let core = (0..racks.rack_count()).find(is_core);
    if let Some(core) = core {
        matching.vacate(core, per_rack.min(parity_count));
    }
    let parity = fill_with_parity(&mut matching, parity_count, core, rng)?;
    Ok(ReplicatedStripe::new(
        racks, core, replicas, &matching, &parity,
    ))
}

/// Returns the places of the replicas of each data chunk of a stripe, given the chunks' places. A chunk stays where it
/// is as its block's first replica. Two others go into a rack that is the same for all blocks, or for those that are in
/// it already into another: so the blocks have a core rack, and become the same stripe again without a move. Further
/// ones go into racks of their own.
///
/// # Errors
/// [`PlanError::TooManyCopies`] when there are fewer nodes than replicas.
///
/// ```
/// use gabion_layout::{NodeId, Topology};
/// use gabion_planner::placement::{RackTable, promotion};
/// use rand::SeedableRng;
///
/// let topology = Topology::uniform(4, 3);
/// let kept = [0, 3, 6, 9].map(NodeId);
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
/// let blocks = promotion(&RackTable::new(&topology), &kept, 3, &mut rng).unwrap();
/// let in_rack = |rack| blocks.iter().all(|nodes| nodes.iter().any(|&n| topology.rack_of(n) == rack));
/// assert!((0..4).any(|rack| in_rack(Some(gabion_layout::RackId(rack)))), "there is a core rack");
/// assert!(blocks.iter().zip(kept).all(|(nodes, kept)| nodes[0] == kept && nodes.len() == 3));
/// ```
pub fn promotion(
    racks: &RackTable,
    kept: &[NodeId],
    replica_count: usize,
    rng: &mut impl Rng,
) -> Result<Vec<Vec<NodeId>>, PlanError> {
    check_count(racks, replica_count)?;
    let core = racks.rack_of(racks.any_node(rng));
    let spread = ReplicaSpread::FreshRacks;
    let mut blocks = Vec::with_capacity(kept.len());
    for &node in kept {
        let mut replicas: Vec<NodeNumber> = racks.node_number(node).into_iter().collect();
        match replicas.first() {
            Some(&first) if racks.rack_of(first) == core => {
                draw_others(racks, replica_count, spread, &mut replicas, rng);
            }
            // The node is on its way out, or a replica comes into the core rack beside it.
            _ => {
                replicas.push(racks.node_in(core, rng));
                draw_rest(racks, replica_count, spread, &mut replicas, rng);
            }
        }
        replicas.truncate(replica_count);
        blocks.push(
            replicas
                .iter()
                .map(|&number| racks.node_id(number))
                .collect(),
        );
    }
    Ok(blocks)
}
