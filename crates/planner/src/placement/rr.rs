//! Random replication (RR): replicas are placed as HDFS places them, without regard to stripes. The
//! first replica is on any node, the second on a node of another rack, the third on another node of the
//! second's rack (EAR, section II-A). The paper does not give the place of further replicas: see [`ReplicaSpread`].
//!
//! When `k` blocks are encoded together, the replicas that are kept may share racks more than the
//! stripe's rack limit allows. [`random_replication_end`] then lists the replicas that have to move.

use super::descriptor::Descriptor;
use super::matching::Matching;
use super::rack_table::{NodeNumber, RackTable};
use super::replicated::{ReplicatedStripe, fill_with_parity};
use super::rules::{ReplicaSpread, StripeRules};
use crate::PlanError;
use gabion_layout::{NodeId, ReplicaPlacement};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;

/// The placement as all others know it.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    placement: ReplicaPlacement::Rr,
    help: "random",
    paper: "EAR section II-A",
    planner: place_blocks,
};

/// The treatment of stripes of random replication that break their rack limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RackLimit {
    /// As few data chunks as possible are moved to other racks when the stripe is encoded.
    Enforced,
    /// No constraint: any replica of each block is kept, and parity chunks go to any other nodes. The
    /// paper's simulation (section V-B) does the same, which flatters random replication.
    Ignored,
}

/// Draws the nodes of one block's replicas, the first replica first.
///
/// If racks are too few or too small for the rule, a replica goes to any node that has none.
///
/// # Errors
/// [`PlanError::TooManyCopies`] when there are fewer nodes than replicas.
///
/// ```
/// use gabion_layout::Topology;
/// use gabion_planner::placement::{RackTable, ReplicaSpread, random_replication};
/// use rand::SeedableRng;
///
/// let topology = Topology::uniform(20, 20);
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
/// let table = RackTable::new(&topology);
/// let replicas = random_replication(&table, 4, ReplicaSpread::FreshRacks, &mut rng).unwrap();
/// let racks: Vec<_> = replicas.iter().map(|&node| topology.rack_of(node)).collect();
/// assert!(racks[0] != racks[1] && racks[1] == racks[2] && !racks[..3].contains(&racks[3]));
/// ```
pub fn random_replication(
    racks: &RackTable,
    replica_count: usize,
    spread: ReplicaSpread,
    rng: &mut impl Rng,
) -> Result<Vec<NodeId>, PlanError> {
    check_count(racks, replica_count)?;
    let mut replicas = Vec::with_capacity(replica_count);
    if replica_count > 0 {
        replicas.push(racks.any_node(rng));
        draw_others(racks, replica_count, spread, &mut replicas, rng);
    }
    Ok(replicas.iter().map(|&node| racks.node_id(node)).collect())
}

/// Places each block of a stripe as [`random_replication`] does.
pub(super) fn place_blocks(
    racks: &RackTable,
    rules: StripeRules,
    _: usize,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<Vec<NodeId>>, PlanError> {
    let place = |_| random_replication(racks, rules.replica_count, rules.replica_spread, rng);
    (0..rules.data_count).map(place).collect()
}

/// Checks that there are nodes enough for `replica_count` replicas.
pub(super) fn check_count(racks: &RackTable, replica_count: usize) -> Result<(), PlanError> {
    if replica_count <= racks.node_count() {
        return Ok(());
    }
    Err(PlanError::TooManyCopies {
        replica_count,
        node_count: racks.node_count(),
    })
}

/// Draws all replicas but the first, which is given. The caller has checked that there are nodes enough.
pub(super) fn draw_others(
    racks: &RackTable,
    replica_count: usize,
    spread: ReplicaSpread,
    replicas: &mut Vec<NodeNumber>,
    rng: &mut impl Rng,
) {
    replicas.truncate(1);
    draw_rest(racks, replica_count, spread, replicas, rng);
}

/// Draws the replicas that are missing behind those that are there, of which there is one.
pub(super) fn draw_rest(
    racks: &RackTable,
    replica_count: usize,
    spread: ReplicaSpread,
    replicas: &mut Vec<NodeNumber>,
    rng: &mut impl Rng,
) {
    while replicas.len() < replica_count {
        let drawn = match (replicas.len(), spread) {
            (1, _) => racks.node_outside(racks.rack_of(replicas[0]), rng),
            (2, _) | (_, ReplicaSpread::TwoRacks) => beside(racks, replicas[1], replicas, rng),
            (count, ReplicaSpread::TwoARack) if count % 2 == 0 => {
                beside(racks, replicas[count - 1], replicas, rng)
            }
            _ => in_a_fresh_rack(racks, replicas, rng),
        };
        let node = drawn.unwrap_or_else(|| any_other(racks, replicas, rng));
        replicas.push(node);
    }
}

/// A node of the rack of `home` without a replica; none when all of them have one.
fn beside(
    racks: &RackTable,
    home: NodeNumber,
    replicas: &[NodeNumber],
    rng: &mut impl Rng,
) -> Option<NodeNumber> {
    let nodes = racks.nodes_of(racks.rack_of(home));
    // In a cluster of one rack the first replica is there as well.
    let taken = replicas.iter().filter(|node| nodes.contains(node));
    if nodes.len() <= taken.count() {
        return None;
    }
    loop {
        let node = rng.random_range(nodes.clone());
        if !replicas.contains(&node) {
            return Some(node);
        }
    }
}

/// Any node of a rack without replicas; none when all racks have one.
fn in_a_fresh_rack(
    racks: &RackTable,
    replicas: &[NodeNumber],
    rng: &mut impl Rng,
) -> Option<NodeNumber> {
    let is_fresh = |node: NodeNumber| {
        let rack = racks.rack_of(node);
        replicas.iter().all(|&other| racks.rack_of(other) != rack)
    };
    let is_fresh_rack = |rack| is_fresh(racks.nodes_of(rack).start);
    if !(0..racks.rack_count()).any(is_fresh_rack) {
        return None;
    }
    loop {
        let node = racks.any_node(rng);
        if is_fresh(node) {
            return Some(node);
        }
    }
}

/// Any node without a replica, of which there is one.
fn any_other(racks: &RackTable, replicas: &[NodeNumber], rng: &mut impl Rng) -> NodeNumber {
    loop {
        let node = racks.any_node(rng);
        if !replicas.contains(&node) {
            return node;
        }
    }
}

/// Returns the final places of the chunks of a stripe of independently placed blocks. `replicas` are the nodes of each
/// block's replicas, `per_rack` is the most chunks that a rack may hold.
///
/// # Errors
/// [`PlanError::NoRoom`] when the topology cannot hold the stripe, [`PlanError::Layout`] when a block has
/// no replica or one on a node that the topology does not have.
pub fn random_replication_end(
    racks: &RackTable,
    replicas: Vec<Vec<NodeId>>,
    parity_count: usize,
    per_rack: usize,
    limit: RackLimit,
    rng: &mut impl Rng,
) -> Result<ReplicatedStripe, PlanError> {
    // A rack limit of all chunks is none.
    let per_rack = match limit {
        RackLimit::Enforced => per_rack,
        RackLimit::Ignored => replicas.len() + parity_count,
    };
    let known = |(block, nodes): (usize, &Vec<NodeId>)| {
        let unknown = || PlanError::Layout(format!("block {block} has no replica that is known"));
        let numbers: Option<Vec<_>> = nodes.iter().map(|&node| racks.node_number(node)).collect();
        numbers.filter(|n| !n.is_empty()).ok_or_else(unknown)
    };
    let numbers: Result<Vec<_>, _> = replicas.iter().enumerate().map(known).collect();
    let mut matching = Matching::new(racks, per_rack);
    matching.add_all(&numbers?, parity_count, rng)?;
    let parity = fill_with_parity(&mut matching, parity_count, None, rng)?;
    Ok(ReplicatedStripe::new(
        racks, None, replicas, &matching, &parity,
    ))
}
