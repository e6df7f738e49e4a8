//! Deltas on their way: the moves from which cross-rack update plans are made, for one piece.
//!
//! The planner decides the transfers between racks; this file turns them into steps. A value goes to a node at most
//! once, and a parity node sums all received values before it logs one delta.

use super::piece::{Cell, Piece, check_ranges, pieces};
use super::spread::{Spread, Target};
use crate::{PlanError, Stripe};
use gabion_layout::{ChunkIndex, ChunkRange, NodeId, Slices, Topology};
use gabion_plan::{Goal, Log, Plan, PlanBuilder, ValueId};

/// The values that a rack has to give: data deltas of cells, and partial sums of targets' parity deltas.
#[derive(Clone, Default, Debug)]
pub(super) struct Holding {
    /// Cell and its delta, at a node of the rack.
    pub(super) deltas: Vec<(usize, ValueId)>,
    /// Target and what is to be added to it, at a node of the rack.
    pub(super) partials: Vec<(usize, ValueId)>,
}

/// The steps of one piece, while they are being planned.
pub(super) struct Flow<'a> {
    pub(super) spread: Spread,
    b: &'a mut PlanBuilder,
    stripe: &'a Stripe<'a>,
    piece: &'a Piece,
    slice_bytes: u64,
    /// By cell, at the data node.
    deltas: Vec<ValueId>,
    /// By target: what has come to the parity node, with its factor there.
    terms: Vec<Vec<(u8, ValueId)>>,
    /// By value: where it has been sent, and what it is there.
    sent: Vec<Vec<(NodeId, ValueId)>>,
}

/// The place of the new bytes of an update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NewBytes {
    /// The asker gave them to the data nodes, which journal them.
    Given,
    /// The data nodes' journals have kept them since the last commit.
    Logged,
}

/// The plan of an update whose pieces go to the other racks by `send`.
///
/// # Errors
/// [`PlanError::BadRanges`] for ranges that make no update, [`PlanError::NeedsChunk`] when a chunk is lost.
pub(super) fn update(
    stripe: &Stripe<'_>,
    topology: &Topology,
    ranges: &[ChunkRange],
    (from, slice_bytes): (NewBytes, u64),
    send: impl Fn(&mut Flow<'_>),
    goal: impl FnOnce(&[ChunkRange]) -> Goal,
) -> Result<Plan, PlanError> {
    check_ranges(stripe, ranges)?;
    let mut b = stripe.builder();
    for piece in pieces(stripe.geometry, ranges) {
        let mut flow = Flow::begin(&mut b, stripe, topology, &piece, from, slice_bytes);
        flow.update_at_home();
        send(&mut flow);
        flow.finish();
    }
    Ok(b.finish(goal(ranges)))
}

/// The goal of an update of data and parity at once.
pub(super) fn at_once(ranges: &[ChunkRange]) -> Goal {
    let ranges = ranges.to_vec();
    Goal::Update { ranges }
}

impl<'a> Flow<'a> {
    /// Begins a piece: each data node makes its delta.
    fn begin(
        b: &'a mut PlanBuilder,
        stripe: &'a Stripe<'a>,
        topology: &Topology,
        piece: &'a Piece,
        from: NewBytes,
        slice_bytes: u64,
    ) -> Self {
        let spread = Spread::of_cells(stripe, topology, &piece.cells);
        let delta = |&Cell { chunk, row }: &Cell| {
            let slices = piece.slices(stripe.geometry, row, slice_bytes);
            let node = stripe.node_of(chunk);
            let new = match from {
                NewBytes::Given => b.input(node, chunk, slices),
                NewBytes::Logged => b.recall(node, Log::Journal, chunk, slices),
            };
            let old = b.read(chunk, slices);
            let delta = b.combine(node, &[(1, new), (1, old)]);
            b.append(Log::Journal, chunk, slices, new);
            delta
        };
        let deltas = piece.cells.iter().map(delta).collect();
        Self {
            terms: vec![Vec::new(); spread.targets.len()],
            spread,
            b,
            stripe,
            piece,
            slice_bytes,
            deltas,
            sent: Vec::new(),
        }
    }

    /// Returns the rack's own values.
    pub(super) fn own(&self, rack: usize) -> Holding {
        let cells = (0..self.deltas.len()).filter(|&cell| self.spread.cell_racks[cell] == rack);
        Holding {
            deltas: cells.map(|cell| (cell, self.deltas[cell])).collect(),
            partials: Vec::new(),
        }
    }

    /// The node where a rack brings things together: that of its first cell, or else of its first
    /// target; none if it has neither.
    pub(super) fn meeting_node(&self, rack: usize) -> Option<NodeId> {
        let cell = self
            .spread
            .cell_racks
            .iter()
            .position(|&other| other == rack);
        let target = || {
            self.spread
                .targets
                .iter()
                .find(|target| target.rack == rack)
        };
        cell.map(|cell| self.stripe.node_of(self.piece.cells[cell].chunk))
            .or_else(|| target().map(|target| target.node))
    }

    /// Every rack's own targets get the deltas of its own cells.
    fn update_at_home(&mut self) {
        for rack in 0..self.spread.rack_count {
            if self.spread.cells(rack, rack) > 0 {
                let own = self.own(rack);
                self.give_data(&own, rack, rack);
            }
        }
    }

    /// Sends the data deltas of rack `from` to the parity nodes of rack `to`: within a rack straight
    /// to each, and across racks to the first, which passes them on to the others.
    pub(super) fn give_data(&mut self, holding: &Holding, from: usize, to: usize) {
        for &(cell, delta) in &holding.deltas {
            let mut source = delta;
            for target in 0..self.spread.targets.len() {
                let Target { rack, node, .. } = self.spread.targets[target];
                let coefficient = self.spread.targets[target].coefficients[cell];
                if coefficient == 0 || rack != to {
                    continue;
                }
                let there = self.bring(source, node);
                self.terms[target].push((coefficient, there));
                if from != to && source == delta {
                    source = there;
                }
            }
        }
    }

    /// Sums a rack's deltas at `meeting` for each target of rack `to`, and sends the sums.
    pub(super) fn give_parity(&mut self, holding: &Holding, meeting: NodeId, to: usize) {
        for target in 0..self.spread.targets.len() {
            if self.spread.targets[target].rack != to {
                continue;
            }
            if let Some(sum) = self.sum_for(target, holding, meeting) {
                let there = self.bring(sum, self.spread.targets[target].node);
                self.terms[target].push((1, there));
            }
        }
    }

    /// Brings what rack `from` has for others to a node of a collector rack.
    pub(super) fn collect(&mut self, from: usize, at: NodeId, collected: &mut Holding) {
        let own = self.own(from);
        if self.spread.is_raw(from) {
            for (cell, delta) in own.deltas {
                let leaves =
                    |target: &Target| target.rack != from && target.coefficients[cell] != 0;
                if self.spread.targets.iter().any(leaves) {
                    collected.deltas.push((cell, self.bring(delta, at)));
                }
            }
            return;
        }
        let Some(meeting) = self.meeting_node(from) else {
            return;
        };
        for target in 0..self.spread.targets.len() {
            if self.spread.targets[target].rack == from {
                continue;
            }
            if let Some(sum) = self.sum_for(target, &own, meeting) {
                collected.partials.push((target, self.bring(sum, at)));
            }
        }
    }

    /// Ends the piece: each parity node logs the sum of what has come to it.
    fn finish(self) {
        for (target, terms) in self.spread.targets.iter().zip(self.terms) {
            let g = self.stripe.geometry;
            let slices: Slices = self.piece.slices(g, target.row, self.slice_bytes);
            let sum = self.b.combine(target.node, &terms);
            self.b.append(Log::ParitySum, target.chunk, slices, sum);
        }
    }

    /// The parity delta of a target, as far as the holding goes, at `meeting`; none if it has
    /// nothing for it.
    fn sum_for(&mut self, target: usize, holding: &Holding, meeting: NodeId) -> Option<ValueId> {
        let mut terms = Vec::with_capacity(holding.deltas.len());
        for &(cell, delta) in &holding.deltas {
            let coefficient = self.spread.targets[target].coefficients[cell];
            if coefficient != 0 {
                terms.push((coefficient, self.bring(delta, meeting)));
            }
        }
        for &(of, partial) in &holding.partials {
            if of == target {
                terms.push((1, self.bring(partial, meeting)));
            }
        }
        (!terms.is_empty()).then(|| self.b.combine(meeting, &terms))
    }

    /// The value at a node, sent there unless it is there already.
    fn bring(&mut self, value: ValueId, node: NodeId) -> ValueId {
        if self.sent.len() <= value.at() {
            self.sent.resize_with(value.at() + 1, Vec::new);
        }
        let known = self.sent[value.at()].iter().find(|(at, _)| *at == node);
        if let Some(&(_, there)) = known {
            return there;
        }
        let there = self.b.send(value, node);
        self.sent[value.at()].push((node, there));
        there
    }
}

/// The parity chunks that follow when a row of a data chunk changes.
pub(super) fn followers(stripe: &Stripe<'_>, cell: Cell) -> Vec<ChunkIndex> {
    let rows = stripe.code.delta_rows(cell.chunk.at(), cell.row);
    let mut chunks: Vec<ChunkIndex> = rows.iter().map(|row| ChunkIndex::new(row.chunk)).collect();
    chunks.dedup();
    chunks
}
