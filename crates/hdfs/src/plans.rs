//! The plan of a rebuild: a degraded read of the lost blocks whose asker is the requestor's agent. The requestor is the
//! node behind those of the group's blocks.

use crate::error::HdfsError;
use crate::message::Task;
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, NodeId, NodePlace, RackId, StripeId, Topology,
};
use gabion_plan::{Plan, check};
use gabion_planner::repair::{rack_aware_path, read};
use gabion_planner::{PlanError, Stripe};

/// The requestor's node.
pub(crate) fn requestor(task: &Task) -> NodeId {
    NodeId(task.policy.code().n() as u32)
}

/// The chunks of a group that have no bytes and so no block. They are zeros, which the requestor knows by itself.
pub(crate) fn empty_chunks(task: &Task) -> Vec<ChunkIndex> {
    let chunks = (0..task.policy.code().n()).map(ChunkIndex::new);
    let is_empty = |chunk: &ChunkIndex| task.policy.block_bytes(*chunk, task.group.length) == 0;
    chunks.filter(is_empty).collect()
}

/// Plans to bring `missing` ranges of the lost blocks to the requestor without the `excluded` blocks, and proves the plan.
///
/// # Errors
/// [`HdfsError::Policy`] when too few blocks are left.
pub(crate) fn plan(
    task: &Task,
    missing: &[(ChunkIndex, ByteRange)],
    excluded: &[ChunkIndex],
) -> Result<Plan, HdfsError> {
    let code = task.policy.code();
    let (empty, requestor) = (empty_chunks(task), requestor(task));
    let live = task.sources.iter().map(|source| source.chunk);
    let mut helpers: Vec<ChunkIndex> = live.filter(|chunk| !excluded.contains(chunk)).collect();
    // Groups differ in the blocks that they prefer, so that no DataNode helps them all.
    if !helpers.is_empty() {
        let first = task.group.id.unsigned_abs() / 16 % helpers.len() as u64;
        helpers.rotate_left(first as usize);
    }
    helpers.splice(0..0, empty.iter().copied());
    let place = |at| match ChunkIndex::new(at) {
        chunk if empty.contains(&chunk) => requestor,
        chunk => NodeId(u32::from(chunk.0)),
    };
    let placement: Vec<NodeId> = (0..code.n()).map(place).collect();
    let chunks = (0..code.n()).map(ChunkIndex::new);
    let lost: Vec<ChunkIndex> = chunks.filter(|chunk| !helpers.contains(chunk)).collect();
    let stripe = Stripe {
        id: StripeId(task.group.id as u64),
        code,
        geometry: task.policy.geometry(task.group.length)?,
        placement: &placement,
        lost: &lost,
    };
    let topology = topology(task)?;
    let impossible = |error: PlanError| HdfsError::Policy(error.to_string());
    let first = missing.first().map_or(ChunkIndex(0), |(chunk, _)| *chunk);
    let path = rack_aware_path(&stripe, first, requestor, &helpers, &topology);
    let path = path.map_err(impossible)?;
    let ranges: Vec<ChunkRange> = missing
        .iter()
        .map(|&(chunk, range)| ChunkRange { chunk, range })
        .collect();
    let plan = read(
        &stripe,
        &ranges,
        requestor,
        &path,
        task.scheme,
        task.slice_bytes,
    );
    let plan = plan.map_err(impossible)?;
    check(&plan, code).map_err(|error| HdfsError::Policy(format!("a plan is wrong: {error}")))?;
    Ok(plan)
}

/// The rack of each `DataNode`, by their network locations.
fn topology(task: &Task) -> Result<Topology, HdfsError> {
    let mut locations: Vec<&str> = task.sources.iter().map(|s| s.location.as_str()).collect();
    locations.push(&task.location);
    locations.sort_unstable();
    locations.dedup();
    let rack = |location: &str| {
        let at = locations.binary_search(&location).unwrap_or(0);
        RackId(at as u32)
    };
    let sources = task.sources.iter().map(|source| NodePlace {
        node: NodeId(u32::from(source.chunk.0)),
        rack: rack(&source.location),
    });
    let own = NodePlace {
        node: requestor(task),
        rack: rack(&task.location),
    };
    let topology = Topology::new(sources.chain([own]));
    topology.map_err(|error| HdfsError::Policy(error.to_string()))
}
