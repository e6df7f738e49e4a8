//! The schedule of a recovery: on which `DataNode` which lost block is made, and by which helpers, for many groups at
//! once (`ECPipe` section 3.3). The recovery in `hdfs/` gathers the groups, and any agent answers.

use crate::error::HdfsError;
use crate::message::{Input, invalid};
use crate::policy::{Codec, Policy};
use bytes::Bytes;
use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry, NodeId, NodePlace, RackId, StripeId, Topology};
use gabion_planner::Stripe;
use gabion_planner::repair::{Bandwidths, Job, Schedule, balanced_recovery, greedy_recovery};
use std::collections::BTreeMap;

/// Most lost blocks of one schedule.
const JOB_COUNT_MAX: u16 = 1024;
/// Only ratios of bandwidths matter: all nodes' links are alike, and racks have no limit of their own.
const ALIKE: Bandwidths = Bandwidths {
    node_bytes_per_s: 1_000_000,
    rack_bytes_per_s: u64::MAX,
};

/// The lost blocks of a recovery.
pub(crate) struct Lost {
    is_balanced: bool,
    topology: Topology,
    codes: BTreeMap<(String, u8, u8), Code>,
    blocks: Vec<LostBlock>,
}

/// A lost block, and the places of the others of its group.
struct LostBlock {
    code: (String, u8, u8),
    geometry: Geometry,
    group: u64,
    lost: Vec<ChunkIndex>,
    target: ChunkIndex,
    placement: Vec<NodeId>,
    requestors: Vec<NodeId>,
}

impl Lost {
    /// Reads the body of a frame.
    ///
    /// # Errors
    /// [`HdfsError::Peer`], [`HdfsError::Policy`] when it is no valid request.
    pub(crate) fn read(body: Bytes) -> Result<Self, HdfsError> {
        let mut from = Input(body);
        let is_balanced = from.u8()? != 0;
        let node_count = from.u16()?;
        let mut racks: BTreeMap<String, RackId> = BTreeMap::new();
        let mut places = Vec::with_capacity(usize::from(node_count));
        for node in 0..node_count {
            let next = RackId(racks.len() as u32);
            let rack = *racks.entry(from.text()?).or_insert(next);
            let node = NodeId(u32::from(node));
            places.push(NodePlace { node, rack });
        }
        let topology = Topology::new(places).map_err(invalid)?;
        let job_count = from.u16()?;
        if job_count > JOB_COUNT_MAX {
            return Err(invalid(format!(
                "has {job_count} lost blocks; a schedule has at most {JOB_COUNT_MAX}"
            )));
        }
        let mut codes = BTreeMap::new();
        let blocks = (0..job_count)
            .map(|_| LostBlock::read(&mut from, node_count, &mut codes))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            is_balanced,
            topology,
            codes,
            blocks,
        })
    }

    /// Chooses the requestor and the path of each block.
    ///
    /// # Errors
    /// [`HdfsError::Policy`] when a block cannot be rebuilt.
    pub(crate) fn schedule(&self) -> Result<Schedule, HdfsError> {
        let jobs: Vec<Job<'_>> = (self.blocks.iter())
            .map(|block| Job {
                stripe: Stripe {
                    id: StripeId(block.group),
                    code: &self.codes[&block.code],
                    geometry: block.geometry,
                    placement: &block.placement,
                    lost: &block.lost,
                },
                lost: block.target,
                requestors: &block.requestors,
            })
            .collect();
        let scheduled = if self.is_balanced {
            balanced_recovery(&jobs, &self.topology, ALIKE)
        } else {
            greedy_recovery(&jobs, &self.topology, ALIKE)
        };
        scheduled.map_err(|error| HdfsError::Policy(error.to_string()))
    }
}

impl LostBlock {
    fn read(
        from: &mut Input,
        node_count: u16,
        codes: &mut BTreeMap<(String, u8, u8), Code>,
    ) -> Result<Self, HdfsError> {
        let code = (from.text()?, from.u8()?, from.u8()?);
        if !codes.contains_key(&code) {
            let (name, k, m) = &code;
            let policy = Policy::new(Codec::named(name)?, usize::from(*k), usize::from(*m), 1)?;
            codes.insert(code.clone(), policy.code().clone());
        }
        let (k, m) = (usize::from(code.1), usize::from(code.2));
        let group = from.u64()?;
        let geometry = Geometry::new(k, m, 1, from.u64()?).map_err(invalid)?;
        let target = ChunkIndex(from.u8()?);
        let node = |from: &mut Input| from.u16().map(|node| NodeId(u32::from(node)));
        let mut placement = Vec::with_capacity(k + m);
        let mut lost = Vec::new();
        for at in 0..k + m {
            let place = node(from)?;
            if place.0 >= u32::from(node_count) {
                lost.push(ChunkIndex::new(at));
                // No node of the recovery.
                placement.push(NodeId(u32::from(u16::MAX) + 1 + at as u32));
            } else {
                placement.push(place);
            }
        }
        let requestor_count = from.u16()?;
        let requestors: Vec<NodeId> = (0..requestor_count)
            .map(|_| node(from))
            .collect::<Result<_, _>>()?;
        let mut distinct = placement.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let may_receive =
            |node: &NodeId| node.0 < u32::from(node_count) && !placement.contains(node);
        if distinct.len() < placement.len()
            || !lost.contains(&target)
            || !requestors.iter().all(may_receive)
        {
            return Err(invalid(
                "names a block that is not lost, or a DataNode that would have two blocks of a group",
            ));
        }
        Ok(Self {
            code,
            geometry,
            group,
            lost,
            target,
            placement,
            requestors,
        })
    }
}

/// The body of a frame with the schedule.
pub(crate) fn schedule_body(schedule: &Schedule) -> Vec<u8> {
    let mut body = schedule.finish_ns.to_be_bytes().to_vec();
    for assignment in &schedule.assignments {
        body.extend((assignment.requestor.0 as u16).to_be_bytes());
        body.push(assignment.path.len() as u8);
        body.extend(assignment.path.iter().map(|chunk| chunk.0));
    }
    body
}
