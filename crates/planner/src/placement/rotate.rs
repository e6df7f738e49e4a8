//! Rotating placement: stripe `s` starts at node `s mod N` and takes the nodes that follow, rack by
//! rack. With as many nodes as chunks, chunk `j` of stripe `s` is on node `(s + j) mod n`, which is
//! the layout of the exact counts in CAU's analysis.

use super::descriptor::{Layout, LayoutDescriptor};
use super::in_order::take_in_order;
use crate::PlanError;
use gabion_layout::{NodeId, Topology};

/// Its name.
pub(super) const NAME: &str = "rotate";

/// The layout as all others know it.
pub(super) const DESCRIPTOR: LayoutDescriptor = LayoutDescriptor {
    forms: NAME,
    example: NAME,
    read: |text| (text == NAME).then_some(Ok(Layout::Rotate)),
    help: "stripe s starts at node s mod n",
    paper: "CAU, analysis",
};

/// Places the `chunks` chunks of stripe number `stripe` (a plain count, not an id) with at most
/// `per_rack` a rack.
///
/// # Errors
/// [`PlanError::NoRoom`] when the topology is too small.
pub fn rotate(
    topology: &Topology,
    stripe: u64,
    chunks: usize,
    per_rack: usize,
) -> Result<Vec<NodeId>, PlanError> {
    let nodes: Vec<NodeId> = topology.nodes_by_rack().into_values().flatten().collect();
    if nodes.is_empty() {
        return Err(PlanError::NoRoom {
            chunks,
            per_rack,
            room: 0,
        });
    }
    let start = (stripe % nodes.len() as u64) as usize;
    let order = (0..nodes.len()).map(|step| nodes[(start + step) % nodes.len()]);
    take_in_order(topology, order, chunks, per_rack)
}
