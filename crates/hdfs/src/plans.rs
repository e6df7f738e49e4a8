//! The plan of a rebuild: a degraded read of the lost blocks whose asker is the requestor's agent. The requestor is the
//! node behind those of the group's blocks.

use crate::error::HdfsError;
use crate::message::{PathChoice, Task};
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, NodeId, NodePlace, RackId, StripeId, Topology,
};
use gabion_plan::{Plan, check};
use gabion_planner::repair::{CANDIDATES_MAX, LinkWeights, rack_aware_path, read, weighted_path};
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

/// Plans to bring `missing` ranges of the lost blocks to the requestor without the `excluded` blocks, and proves the
/// plan.
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
    if task.path != PathChoice::Listed && !helpers.is_empty() {
        // Groups differ in the blocks that they prefer, so that no DataNode helps them all.
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
    let impossible = |error: PlanError| HdfsError::Policy(error.to_string());
    let path = match &task.path {
        PathChoice::Listed => Some(helpers.clone()),
        PathChoice::Weighted(rates) => fastest_path(task, rates, excluded, &empty),
        PathChoice::RackAware => None,
    };
    let path = if let Some(path) = path {
        path
    } else {
        let first = missing.first().map_or(ChunkIndex(0), |(chunk, _)| *chunk);
        let topology = topology(task)?;
        let path = rack_aware_path(&stripe, first, requestor, &helpers, &topology);
        path.map_err(impossible)?
    };
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

/// The path whose slowest link is the fastest, behind the empty chunks; none if the links with rates make none.
fn fastest_path(
    task: &Task,
    rates: &[Vec<u32>],
    excluded: &[ChunkIndex],
    empty: &[ChunkIndex],
) -> Option<Vec<ChunkIndex>> {
    let requestor = requestor(task);
    let nodes: Vec<NodeId> = (task.sources.iter().map(|source| source.chunk))
        .map(|chunk| NodeId(u32::from(chunk.0)))
        .collect();
    let is_out = |node: NodeId| excluded.iter().any(|chunk| u32::from(chunk.0) == node.0);
    let mut weights = LinkWeights::new();
    for (&from, row) in nodes.iter().zip(rates) {
        for (&to, &rate) in nodes.iter().chain([&requestor]).zip(row) {
            if rate > 0 && from != to && !is_out(from) && !is_out(to) {
                weights.insert((from, to), u64::from(u32::MAX) / u64::from(rate));
            }
        }
    }
    let candidates: Vec<NodeId> = nodes.into_iter().filter(|&node| !is_out(node)).collect();
    let length = task.policy.code().k().checked_sub(empty.len());
    let length = length.filter(|length| (1..=candidates.len()).contains(length))?;
    if candidates.len() > CANDIDATES_MAX {
        return None;
    }
    let found = weighted_path(&candidates, requestor, length, &weights)?;
    let chunks = found
        .helpers
        .iter()
        .map(|node| ChunkIndex::new(node.0 as usize));
    Some(empty.iter().copied().chain(chunks).collect())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{BlockName, Source};
    use crate::policy::{Codec, Policy};
    use bytes::Bytes;
    use gabion_plan::Step;
    use gabion_planner::repair::Scheme;
    use std::time::Duration;

    /// A rebuild of block 0 of RS-3-2 from the four others.
    fn task(path: PathChoice) -> Task {
        let source = |block: u8| Source {
            chunk: ChunkIndex(block),
            agent: String::new(),
            location: "/a".to_owned(),
            token: Bytes::new(),
        };
        Task {
            policy: Policy::new(Codec::Rs, 3, 2, 1024).unwrap(),
            group: BlockName {
                pool: String::new(),
                id: -16,
                stamp: 1,
                length: 3 * 4096,
            },
            scheme: Scheme::Pipeline,
            slice_bytes: 512,
            deadline: Duration::from_secs(1),
            stall: Duration::from_secs(1),
            location: "/a".to_owned(),
            sources: [4, 1, 3, 2].map(source).into(),
            targets: vec![ChunkIndex(0)],
            range: ByteRange::new(0, 4096),
            path,
        }
    }

    /// The nodes of the chain, from the requestor back.
    fn chain(task: &Task, excluded: &[u8]) -> Vec<u32> {
        let excluded: Vec<ChunkIndex> = excluded.iter().map(|&block| ChunkIndex(block)).collect();
        let missing = [(ChunkIndex(0), ByteRange::new(0, 4096))];
        let plan = plan(task, &missing, &excluded).unwrap();
        let mut chain = vec![requestor(task)];
        loop {
            let at = *chain.last().unwrap();
            let part = plan.part(at);
            let from = part.steps.iter().find_map(|step| match step.step {
                Step::Send { from, to, .. } if to == at => Some(from),
                _ => None,
            });
            match from {
                Some(from) => chain.push(from),
                None => return chain.into_iter().map(|node| node.0).collect(),
            }
        }
    }

    #[test]
    fn a_listed_path_is_taken_and_spare_blocks_replace_helpers() {
        let task = task(PathChoice::Listed);
        assert_eq!(chain(&task, &[]), [5, 3, 1, 4]);
        assert_eq!(chain(&task, &[1]), [5, 2, 3, 4]);
    }

    #[test]
    fn a_weighted_path_avoids_slow_links() {
        // From blocks 4, 1, 3 and 2, to these and to the requestor.
        let mut rates = vec![vec![100; 5]; 4];
        // Only block 1 has a fast link to the requestor, and block 4 sends to none fast.
        for (from, row) in rates.iter_mut().enumerate() {
            row[4] = if from == 1 { 100 } else { 10 };
        }
        rates[0] = vec![10; 5];
        let weighted = task(PathChoice::Weighted(rates.clone()));
        let found = chain(&weighted, &[]);
        assert_eq!(found[..2], [5, 1]);
        assert!(!found.contains(&4), "{found:?}");
        // Without block 1 the fastest slowest link is a slow one.
        assert_eq!(chain(&weighted, &[1]).len(), 4);
        // No links, no path by weights: the racks' path is taken.
        let nowhere = task(PathChoice::Weighted(vec![vec![0; 5]; 4]));
        assert_eq!(
            chain(&nowhere, &[]),
            chain(&task(PathChoice::RackAware), &[])
        );
    }
}
