//! Chooses the replica of each block that a stripe keeps, so that no rack exceeds its limit: a matching of
//! blocks with nodes that grows block by block (EAR, section III-B).
//!
//! The paper states it as a maximum flow from blocks over nodes to racks, solved anew for each draw. Here the flow is
//! kept between draws. A new block can be added if and only if one of its nodes has a path to a rack with room, over
//! blocks that could move to their other replicas. One search back from the racks with room finds all nodes with such a
//! path. So each draw only checks its nodes, and only an accepted draw changes the flow.

use super::rack_table::{NodeNumber, RackNumber, RackTable};
use crate::PlanError;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

/// A rack's way to keep one more replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Nothing.
    None,
    /// It has room.
    Room,
    /// This block, kept there, can move elsewhere.
    Block(usize),
}

#[derive(Clone, Debug)]
struct Block {
    /// Its candidates, as a range of all.
    first: usize,
    end: usize,
    /// The node that keeps it.
    kept: Option<NodeNumber>,
    /// The candidate that it could move to. Invariant: of the last survey.
    way: Option<NodeNumber>,
}

/// Blocks, the nodes that could keep each, and the node that does.
#[derive(Clone, Debug)]
pub(super) struct Matching<'a> {
    racks: &'a RackTable,
    per_rack: usize,
    /// By rack, how many more chunks it may hold.
    room: Vec<usize>,
    blocks: Vec<Block>,
    /// The candidates of all blocks, one block after another.
    candidates: Vec<NodeNumber>,
    /// Nodes that hold chunks which are no blocks: parity.
    occupied: Vec<NodeNumber>,
    /// By rack. Invariant: of the last survey.
    ways: Vec<Way>,
    /// Whether the last survey still holds.
    is_surveyed: bool,
}

impl<'a> Matching<'a> {
    /// No blocks yet, and at most `per_rack` chunks in each rack.
    pub(super) fn new(racks: &'a RackTable, per_rack: usize) -> Self {
        let room = |rack| racks.nodes_of(rack).len().min(per_rack);
        Self {
            racks,
            per_rack,
            room: (0..racks.rack_count()).map(room).collect(),
            blocks: Vec::new(),
            candidates: Vec::new(),
            occupied: Vec::new(),
            ways: vec![Way::None; racks.rack_count()],
            is_surveyed: false,
        }
    }

    /// Takes all room from a rack that holds nothing yet.
    pub(super) fn close(&mut self, rack: RackNumber) {
        self.room[rack] = 0;
        self.is_surveyed = false;
    }

    /// Returns the number of further chunks that a rack may hold.
    pub(super) fn room_in(&self, rack: RackNumber) -> usize {
        self.room[rack]
    }

    /// Blocks that were added.
    pub(super) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The node that keeps a block.
    pub(super) fn kept(&self, block: usize) -> Option<NodeNumber> {
        self.blocks[block].kept
    }

    /// Adds a block that one of these nodes is to keep, if all blocks can then be kept; says whether it
    /// did. Other blocks may get another of their own nodes for it.
    pub(super) fn add(&mut self, nodes: &[NodeNumber]) -> bool {
        let has_room = |&&node: &&NodeNumber| self.has_room(node);
        if let Some(&node) = nodes.iter().find(has_room) {
            let block = self.add_without(nodes);
            self.put(block, node);
            return true;
        }
        self.survey();
        let Some(&node) = nodes.iter().find(|&&node| self.is_open(node)) else {
            return false;
        };
        // The survey holds for the blocks before; the new one is on no way yet.
        let block = self.add_without(nodes);
        self.reroute(block, node);
        true
    }

    /// Adds a block that no node keeps yet, and gives its number.
    pub(super) fn add_without(&mut self, nodes: &[NodeNumber]) -> usize {
        let first = self.candidates.len();
        self.candidates.extend_from_slice(nodes);
        self.blocks.push(Block {
            first,
            end: self.candidates.len(),
            kept: None,
            way: None,
        });
        self.blocks.len() - 1
    }

    /// Adds blocks, each with the nodes that may keep it; which of them does is a matter of chance. A
    /// block that none of its nodes can keep goes to another one.
    ///
    /// # Errors
    /// [`PlanError::NoRoom`] when there is none for it; `parity_count` chunks are yet to come then.
    pub(super) fn add_all(
        &mut self,
        blocks: &[Vec<NodeNumber>],
        parity_count: usize,
        rng: &mut impl Rng,
    ) -> Result<(), PlanError> {
        let mut homeless = Vec::new();
        for nodes in blocks {
            let mut nodes = nodes.clone();
            nodes.shuffle(rng);
            if !self.add(&nodes) {
                homeless.push(self.add_without(&nodes));
            }
        }
        for block in homeless {
            let node = self.any_with_room(rng);
            self.put(block, node.ok_or_else(|| self.no_room(parity_count))?);
        }
        Ok(())
    }

    /// Has a node with room keep a block that none keeps.
    pub(super) fn put(&mut self, block: usize, node: NodeNumber) {
        assert!(
            self.has_room(node),
            "the node is free and its rack has room"
        );
        self.blocks[block].kept = Some(node);
        self.room[self.racks.rack_of(node)] -= 1;
        self.is_surveyed = false;
    }

    /// Takes a node with room for a chunk that is no block.
    pub(super) fn occupy(&mut self, node: NodeNumber) {
        assert!(
            self.has_room(node),
            "the node is free and its rack has room"
        );
        self.occupied.push(node);
        self.room[self.racks.rack_of(node)] -= 1;
        self.is_surveyed = false;
    }

    /// Moves blocks out of a rack until it has room for `wanted` chunks, as far as their other replicas
    /// allow.
    pub(super) fn vacate(&mut self, rack: RackNumber, wanted: usize) {
        // One block's way out may bring another block into the rack, which is then tried as well.
        while self.room[rack] < wanted
            && (0..self.blocks.len()).any(|block| self.move_out(rack, block))
        {}
    }

    /// Moves a block out of a rack, if it is kept there and another of its nodes can keep it, so that
    /// the rack has room for one more chunk; says whether it did.
    fn move_out(&mut self, rack: RackNumber, block: usize) -> bool {
        let Some(node) = self.blocks[block].kept else {
            return false;
        };
        if self.racks.rack_of(node) != rack {
            return false;
        }
        // Without this block, and with no other let into the rack.
        let room = std::mem::take(&mut self.room[rack]);
        self.blocks[block].kept = None;
        self.is_surveyed = false;
        self.survey();
        let candidates = self.candidates_of(block);
        let elsewhere =
            |&&other: &&NodeNumber| self.racks.rack_of(other) != rack && self.is_open(other);
        let other = self.candidates[candidates].iter().find(elsewhere).copied();
        if let Some(other) = other {
            self.reroute(block, other);
            self.room[rack] = room + 1;
        } else {
            self.blocks[block].kept = Some(node);
            self.room[rack] = room;
        }
        self.is_surveyed = false;
        other.is_some()
    }

    /// Any node of a rack that could keep a block without moving others.
    pub(super) fn any_with_room_in(
        &self,
        rack: RackNumber,
        rng: &mut impl Rng,
    ) -> Option<NodeNumber> {
        if self.room[rack] == 0 {
            return None;
        }
        // Fewer chunks than nodes are there, or there would be no room.
        loop {
            let node = self.racks.node_in(rack, rng);
            if self.has_room(node) {
                return Some(node);
            }
        }
    }

    /// Any node that could keep a block without moving others: each rack with room is as likely.
    pub(super) fn any_with_room(&self, rng: &mut impl Rng) -> Option<NodeNumber> {
        let has_room = |&rack: &RackNumber| self.room[rack] > 0;
        let count = (0..self.room.len()).filter(has_room).count();
        if count == 0 {
            return None;
        }
        let chosen = rng.random_range(0..count);
        let rack = (0..self.room.len()).filter(has_room).nth(chosen)?;
        self.any_with_room_in(rack, rng)
    }

    /// A random node that could keep a further block with this number of replicas, the first in `core`, if
    /// others move; none when there is none, so that no draw would ever be accepted.
    pub(super) fn any_open(
        &mut self,
        core: RackNumber,
        replica_count: usize,
        rng: &mut impl Rng,
    ) -> Option<NodeNumber> {
        self.survey();
        let may_hold = |node: NodeNumber| replica_count > 1 || self.racks.rack_of(node) == core;
        let nodes = 0..self.racks.node_count() as NodeNumber;
        let open: Vec<NodeNumber> = nodes
            .filter(|&node| may_hold(node) && self.is_open(node))
            .collect();
        (!open.is_empty()).then(|| open[rng.random_range(0..open.len())])
    }

    /// The error for a stripe of which `missing_count` chunks have no place.
    pub(super) fn no_room(&self, missing_count: usize) -> PlanError {
        let placed = self.blocks.iter().filter(|b| b.kept.is_some()).count() + self.occupied.len();
        PlanError::NoRoom {
            chunks: placed + missing_count,
            per_rack: self.per_rack,
            room: placed,
        }
    }

    fn candidates_of(&self, block: usize) -> std::ops::Range<usize> {
        self.blocks[block].first..self.blocks[block].end
    }

    fn holder(&self, node: NodeNumber) -> Option<usize> {
        self.blocks
            .iter()
            .position(|block| block.kept == Some(node))
    }

    /// Whether the node keeps nothing and its rack has room.
    fn has_room(&self, node: NodeNumber) -> bool {
        self.room[self.racks.rack_of(node)] > 0
            && self.holder(node).is_none()
            && !self.occupied.contains(&node)
    }

    /// Whether the node could keep a further block, by the last survey.
    fn is_open(&self, node: NodeNumber) -> bool {
        match self.holder(node) {
            Some(block) => self.blocks[block].way.is_some(),
            None => {
                self.ways[self.racks.rack_of(node)] != Way::None && !self.occupied.contains(&node)
            }
        }
    }

    /// Finds the racks and blocks from which there is a way to a rack with room.
    fn survey(&mut self) {
        if std::mem::replace(&mut self.is_surveyed, true) {
            return;
        }
        for (way, &room) in self.ways.iter_mut().zip(&self.room) {
            *way = if room > 0 { Way::Room } else { Way::None };
        }
        for block in &mut self.blocks {
            block.way = None;
        }
        // Each way leads over ways that were found before it, so none of them is a circle.
        while self.survey_once() {}
    }

    /// Goes through the blocks without a way; says whether one was found.
    fn survey_once(&mut self) -> bool {
        let mut has_found = false;
        for block in 0..self.blocks.len() {
            let Block { kept, way, .. } = self.blocks[block];
            let (Some(kept), None) = (kept, way) else {
                continue;
            };
            let mut others = self.candidates[self.candidates_of(block)].iter();
            let open = others.find(|&&node| node != kept && self.is_open(node));
            let Some(&open) = open else {
                continue;
            };
            self.blocks[block].way = Some(open);
            let rack = self.racks.rack_of(kept);
            if self.ways[rack] == Way::None {
                self.ways[rack] = Way::Block(block);
            }
            has_found = true;
        }
        has_found
    }

    /// Has an open node keep a block, and moves others along their ways until a rack's room is used.
    fn reroute(&mut self, mut block: usize, mut node: NodeNumber) {
        self.is_surveyed = false;
        loop {
            let displaced = self.holder(node);
            self.blocks[block].kept = Some(node);
            let rack = self.racks.rack_of(node);
            block = match (displaced, self.ways[rack]) {
                (Some(other), _) | (None, Way::Block(other)) => other,
                (None, Way::Room) => {
                    self.room[rack] -= 1;
                    return;
                }
                (None, Way::None) => unreachable!("an open node has a way"),
            };
            node = self.blocks[block]
                .way
                .expect("a block on a way has a way on");
        }
    }
}

#[cfg(test)]
mod tests;
